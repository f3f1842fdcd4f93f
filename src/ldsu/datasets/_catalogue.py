"""Catalogue of the data sets: published files and metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sklearn.datasets import load_digits

from ldsu.datasets import formats
from ldsu.datasets.download import Remote
from ldsu.datasets.events import read_icu_records, read_icu_table
from ldsu.datasets.formats import Arrays

GITHUB = "https://raw.githubusercontent.com"
# Of published files, and of the bytes of the arrays X (or documents) and y as first read.
SHA256 = {
    "zip.train.RData": "68cc11b888f8f199b91500818358855ef352dc7f7cb0f599f4a3323fae4eef8b",
    "zip.test.RData": "dd652f33aa679d1a71662a0df49b75dac30b616dac1a51c353fd21109301782a",
    "COIL20.mat": "4595ebdda07f47b0eb014fcfaddc22b452f9aed9c1d9261a0d5bc336c1ee1344",
    "umist.mat": "b89f79abb84d5825cd3008f8ee7537582a5c0ab268781c26d7227b11286d4d11",
    "YaleB_32x32_ori.mat": "3fbbda4eb781b9bb28025189677b6727706e114eb0215bbfd718f1f4fcb54b99",
    "PCMAC.mat": "9999dfccf97ab88f87127dd3457da436acb75cda9f0af4750e7cae5fe1a31b25",
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "covtype.data.gz": "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
    "usps X": "3ec3165a10010c63c06c7f2a39548a50db703b943e2097932b61862320e841eb",
    "usps y": "fa8db5b29cb00257466bd31ef08fb4b4b104b74b490598b12b9681b766253c80",
    "coil20 X": "e2055fc49bac70a1b7c2e245c904ad2dc477ba8d1afdff2de18f4b372729d76f",
    "coil20 y": "35049b23ee21c3eac769e31734e51a64b8072276517170093a3fddccd6b9e358",
    "umist X": "40c3b5a843f2ec967dd562b8f9c33cd2d01d7a70b22398e7105a0f897e015a25",
    "umist y": "28dd4ead195a8efaec1b9092bee517dbe9c5a344788d66573457de914247e752",
    "yaleb X": "e75210e65715441b9ef9e5bb0c2faf2055362996c6b93c53de1cc6bf201203f9",
    "yaleb y": "037ced40267fc47304a4ef62cb40486f23094ae3c5e60fcd37317e6fcbf94a57",
    "icu2012 X": "0711f9222ace6ab0e716856e6c44b3db078ee3dd8a232ea5a21c768b88d6819a",
    "icu2012 y": "5767e7fac1476c97cd39f69c1cbf5bc8d2e57588e11db6a7c51c224e8b50e6a5",
    "pcmac X": "b1765fe5970ecbc1e68890e93c861eca94e8dd2b308b51ea34666d3a59fffa71",
    "pcmac y": "fb0a758e0bf87843d455f54d7e024fb9a85040dad8e0b69d9524912aac61750c",
    "mnist X": "5b92582eb909c82a9bfefcd44acbe9233be3eb5b419a44cf211022ad2bf4bf96",
    "mnist y": "818800b46032126b329f9306cb69a6842cc53ea30318374769bb6f46cc861467",
    "covtype X": "1d8ed656c88560e0f10ec542ecfd4b4b2f1dbd17ec145c29918aebb63a8c0e6f",
    "covtype y": "96820b05ee63f682b50f167a4d1ff9357e334fe7e6a0a07f5a03857e8c68d170",
}


@dataclass(frozen=True)
class Form:
    """One of the forms a data set is published in.

    Attributes
    ----------
    files : tuple of Remote
        All files of the data set.
    read : callable
        Reads the files from their paths.
    variant : str
        Why its samples may differ from the reference copy; empty if a download must match it.
    """

    files: tuple[Remote, ...]
    read: Callable[..., Arrays]
    variant: str = ""

    def find(self, folder: Path) -> list[Path] | None:
        """Paths of the files in a folder, or None if one is missing; ignores case and compression."""
        if not folder.is_dir():
            return None if self.files else []
        present = {path.name.lower() + "/" * path.is_dir(): path for path in folder.iterdir()}
        found = [next((present[name] for name in _names(file) if name in present), None) for file in self.files]
        return None if None in found else [path for path in found if path is not None]


def _names(file: Remote) -> Iterator[str]:
    for name in (file.name.lower(), *map(str.lower, file.aliases)):
        yield name
        whole = name.removesuffix(".gz").removesuffix(".bz2")
        for stem in (whole, whole.replace("-idx", ".idx")):  # MNIST, as some tools unpack it
            yield from (stem, f"{stem}.gz", f"{stem}.bz2")


@dataclass(frozen=True)
class DatasetInfo:
    """Metadata of a data set.

    Attributes
    ----------
    name, title, description : str
        For display.
    class_sizes : tuple of int
        Number of samples per class, as published.
    forms : tuple of Form
        Forms it can be read from, in order of preference.
    preprocessings : tuple of str
        Suitable names in `PREPROCESSINGS`; the first is the default.
    citation, licence, source : str
        Citation, known licence, and page of the publisher.
    sha256 : tuple of str
        Of the bytes of X (or of the documents) and y, as first read, in `dtype`.
    dtype : str
        Of X as first read.
    classes : tuple of str
        Class names, in the order of `class_sizes`. If empty, their numbers are the names, and their order is unknown.
    scale : tuple of float or None
        Range of the values, to which other ranges (0 to 1, 0 to 255, -1 to 1) are converted.
    resize_to : tuple of int or None
        Image shape for every preprocessing except "none".
    """

    name: str
    title: str
    description: str
    class_sizes: tuple[int, ...]
    forms: tuple[Form, ...]
    preprocessings: tuple[str, ...]
    citation: str
    licence: str
    source: str
    sha256: tuple[str, str] = ("", "")
    dtype: str = "float64"
    classes: tuple[str, ...] = ()
    scale: tuple[float, float] | None = None
    resize_to: tuple[int, int] | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples, as published."""
        return sum(self.class_sizes)


def _read_digits() -> Arrays:
    X, y = load_digits(return_X_y=True)
    return Arrays(X, y, (8, 8))


def _npz(name: str) -> Form:
    return Form((Remote(f"{name}.npz"),), formats.read_npz)


def _mat(host: str, name: str, image_shape: tuple[int, int] | None = None, variant: str = "") -> Form:
    return Form(_files((host,), name), partial(formats.read_mat, image_shape=image_shape), variant)


def _files(hosts: tuple[str, ...], *names: str) -> tuple[Remote, ...]:
    """Files of the same names on several hosts."""
    return tuple(Remote(name, tuple(f"{host}/{name}" for host in hosts), SHA256.get(name)) for name in names)


_ESL = f"{GITHUB}/cran/ElemStatLearn/253e54016d004ac67879b594311651be3debbed4/data"
_SKFEATURE = f"{GITHUB}/jundongl/scikit-feature/48cffad4e88ff4b9d2f1c7baffb314d1b3303792/skfeature/data"
_UMIST = f"{GITHUB}/KhrTim/Feature_Selection/438acf23aba411d6c79d9cb2350a5e2966920111/all_datasets"
_YALEB = f"{GITHUB}/tansyab1/CNN-Sparse/c52b9c2c783bf6e350b11962781b7c2d701ce2c4/data"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_HASTIE = (
    "https://web.stanford.edu/~hastie/ElemStatLearn/datasets",
    "https://hastie.su.domains/ElemStatLearn/datasets",
)
_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
_PHYSIONET = "https://physionet.org/files/challenge-2012/1.0.0"
_DIGITS = tuple("0123456789")
_NOT_VERIFIED = "(not verified)"

DATASETS: dict[str, DatasetInfo] = {
    info.name: replace(info, sha256=(SHA256.get(f"{info.name} X", ""), SHA256.get(f"{info.name} y", "")))
    for info in (
        DatasetInfo(
            name="usps",
            title="USPS",
            description="Handwritten digits of the US Postal Service, 16 x 16 pixels; 7291 to train, 2007 to test.",
            class_sizes=(1553, 1269, 929, 824, 852, 716, 834, 792, 708, 821),
            forms=(
                _npz("usps"),
                Form(_files((_ESL,), "zip.train.RData", "zip.test.RData"), formats.read_digit_tables),
                Form(_files(_HASTIE, "zip.train.gz", "zip.test.gz"), formats.read_digit_tables),
                Form(
                    _files((_LIBSVM,), "usps.bz2", "usps.t.bz2"),
                    formats.read_libsvm_pairs,
                    variant="the copy of LIBSVM may be rounded differently",
                ),
            ),
            preprocessings=("none",),
            citation="Y. Le Cun et al., 1990; J. J. Hull, IEEE PAMI 16(5), 1994.",
            licence="None stated.",
            source="https://web.stanford.edu/~hastie/ElemStatLearn/",
            dtype="float32",
            classes=_DIGITS,
            scale=(-1.0, 1.0),
        ),
        DatasetInfo(
            name="coil20",
            title="COIL-20",
            description="20 objects on a turntable, 72 views each, 32 x 32 pixels.",
            class_sizes=(72,) * 20,
            forms=(_npz("coil20"), _mat(_SKFEATURE, "COIL20.mat", (32, 32))),
            preprocessings=("none",),
            citation="S. A. Nene, S. K. Nayar, H. Murase: Columbia Object Image Library, technical report CUCS-006-96.",
            licence="Available for research purposes.",
            source="http://www.cad.zju.edu.cn/home/dengcai/Data/MLData.html",
            dtype="float32",
            scale=(0.0, 1.0),
        ),
        DatasetInfo(
            name="umist",
            title="UMIST",
            description="Faces of 20 people from profile to frontal, 28 x 23 pixels; 565 distinct images among 575.",
            class_sizes=(38, 35, 26, 24, 26, 23, 19, 22, 20, 32, 34, 34, 26, 30, 19, 26, 26, 33, 48, 34),
            forms=(
                _npz("umist"),
                _mat(_UMIST, "umist.mat", (28, 23)),
                _mat(
                    "https://cs.nyu.edu/~roweis/data",
                    "umist_cropped.mat",
                    (28, 23),
                    variant="its images are resized from 112 x 92",
                ),
            ),
            preprocessings=("distinct", "none"),
            citation="D. B. Graham, N. M. Allinson, 1998; cropped by S. Roweis.",
            licence=f"Free for research {_NOT_VERIFIED}.",
            source="https://cs.nyu.edu/~roweis/data/umist_cropped.mat",
            dtype="uint8",
            scale=(0.0, 255.0),
        ),
        DatasetInfo(
            name="yaleb",
            title="Extended Yale B",
            description="Frontal faces of 38 people under about 64 lights each, 32 x 32 pixels, used at 24 x 24.",
            class_sizes=(*(64,) * 10, 60, 59, 60, 63, 62, 63, 63, *(64,) * 21),
            forms=(
                _npz("yaleb"),
                _mat(_YALEB, "YaleB_32x32_ori.mat", (32, 32)),
                _mat("http://www.cad.zju.edu.cn/home/dengcai/Data/YaleB", "YaleB_32x32.mat", (32, 32)),
            ),
            preprocessings=("log", "local-contrast", "pixels", "none"),
            citation=(
                "A. Georghiades, P. Belhumeur, D. Kriegman, IEEE PAMI 23(6), 2001; K.-C. Lee, J. Ho, D. Kriegman, "
                "2005; 32 x 32 by D. Cai, who asks to be cited."
            ),
            licence=f"Free for research with acknowledgement {_NOT_VERIFIED}.",
            source="http://www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html",
            dtype="uint8",
            scale=(0.0, 255.0),
            resize_to=(24, 24),
        ),
        DatasetInfo(
            name="icu2012",
            title="the PhysioNet Challenge 2012",
            description=(
                "Events of the first 48 hours of ICU stays, and whether the patient died in hospital: documents "
                "instead of samples. A substitute for the clinical notes of MIMIC II: numbers, not text."
            ),
            class_sizes=(3446, 554),
            forms=(
                Form((Remote("icu2012_events.csv.gz"), Remote("icu2012_outcomes.csv")), read_icu_table),
                Form(
                    (
                        Remote("set-a.tar.gz", (f"{_PHYSIONET}/set-a.tar.gz",), aliases=("set-a/", "set-a.zip")),
                        *_files((_PHYSIONET,), "Outcomes-a.txt"),
                    ),
                    read_icu_records,
                ),
            ),
            preprocessings=("balanced", "none"),
            citation="I. Silva, G. Moody, D. J. Scott, L. A. Celi, R. G. Mark, 2012; A. L. Goldberger et al., 2000.",
            licence=f"Open access; believed to be Open Data Commons Attribution 1.0 {_NOT_VERIFIED}.",
            source="https://physionet.org/content/challenge-2012/1.0.0/",
            classes=("survived", "died"),
        ),
        DatasetInfo(
            name="pcmac",
            title="PCMAC",
            description="Word counts of messages to two newsgroups on computers.",
            class_sizes=(982, 961),
            forms=(_npz("pcmac"), _mat(_SKFEATURE, "PCMAC.mat")),
            preprocessings=("none", "tf-idf"),
            citation="20 Newsgroups, as distributed with scikit-feature.",
            licence="None stated.",
            source="https://github.com/jundongl/scikit-feature",
            dtype="uint8",
        ),
        DatasetInfo(
            name="mnist",
            title="MNIST",
            description="Handwritten digits, 28 x 28 pixels; 60,000 for training, then 10,000 for test.",
            class_sizes=(6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958),
            forms=(
                _npz("mnist"),
                Form(
                    _files(
                        _MNIST,
                        "train-images-idx3-ubyte.gz",
                        "train-labels-idx1-ubyte.gz",
                        "t10k-images-idx3-ubyte.gz",
                        "t10k-labels-idx1-ubyte.gz",
                    ),
                    formats.read_idx_pairs,
                ),
            ),
            preprocessings=("pixels", "none"),
            citation="Y. LeCun, C. Cortes, C. J. C. Burges: the MNIST database.",
            licence=f"CC BY-SA 3.0 {_NOT_VERIFIED}.",
            source="https://ossci-datasets.s3.amazonaws.com/mnist/",
            dtype="uint8",
            classes=_DIGITS,
        ),
        DatasetInfo(
            name="covtype",
            title="Covertype",
            description="Forest cover type of 30 m squares from 54 cartographic columns.",
            class_sizes=(211840, 283301, 35754, 2747, 9493, 17367, 20510),
            forms=(
                _npz("covtype"),
                Form(
                    (
                        Remote(
                            "covtype.data.gz",
                            (
                                "https://ndownloader.figshare.com/files/5976039",
                                "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
                            ),
                            SHA256["covtype.data.gz"],
                            ("covtype.csv",),
                        ),
                    ),
                    formats.read_covtype,
                ),
            ),
            preprocessings=("standard", "none"),
            citation="J. A. Blackard, 1998: Covertype, UCI Machine Learning Repository.",
            licence=f"CC BY 4.0 {_NOT_VERIFIED}.",
            source="https://archive.ics.uci.edu/dataset/31/covertype",
            dtype="int16",
            classes=(
                "spruce or fir",
                "lodgepole pine",
                "ponderosa pine",
                "cottonwood or willow",
                "aspen",
                "Douglas fir",
                "krummholz",
            ),
        ),
        DatasetInfo(
            name="digits",
            title="the digits of scikit-learn",
            description="Handwritten digits, 8 x 8 pixels; included in scikit-learn.",
            class_sizes=(178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
            forms=(Form((), _read_digits),),
            preprocessings=("none",),
            citation="E. Alpaydin, C. Kaynak, 1998: Optical Recognition of Handwritten Digits, UCI.",
            licence="As scikit-learn distributes it.",
            source="https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html",
            classes=_DIGITS,
        ),
    )
}
