"""Sound files of every format, ways to damage them, and what may come of it. Needs neither pytest nor hypothesis."""

import bz2
import gzip
import lzma
import tempfile
import traceback
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import scipy.io
import scipy.sparse
from PIL import Image

from ldsu import KPCA, LDSU, EnFS, LDSUClassifier, save_model
from ldsu.io import ModelError, describe_model, load_model
from ldsu.tables import Table, TableError, read_table
from ldsu.tables.images import SUFFIXES as IMAGE_SUFFIXES
from ldsu.tables.model import TableModel, fit_task, prepare

RNG = np.random.default_rng(0)
N = 12
X = RNG.standard_normal((N, 3))
Y = np.arange(N) % 3
WORDS = [f"word {row % 4}" for row in range(N)]
CSV = ("a,b,k,w\n" + "".join(f'{x[0]:.3f},{x[1]:.3f},{k},"w, {k}"\n' for x, k in zip(X, Y, strict=True))).encode()
LIBSVM = "".join(f"{k} {' '.join(f'{j + 1}:{v:.2f}' for j, v in enumerate(x))}\n" for x, k in zip(X, Y, strict=True))
SPARSE = scipy.sparse.random_array((N, 8), density=0.3, format="csr", random_state=np.random.default_rng(0))
TIMES = pa.array([86_400 * day for day in range(N)], pa.timestamp("s"))
FRAME = pa.table(
    {"x": X[:, 0], "k": Y, "w": WORDS, "c": pa.array(WORDS).dictionary_encode(), "b": Y > 1, "t": TIMES, "l": [[1]] * N}
)
PIXELS = RNG.integers(0, 256, (9, 7, 3), dtype=np.uint8)


def _stream(path):
    with pa.ipc.new_stream(str(path), FRAME.schema) as writer:
        writer.write_table(FRAME)


def _image(kind, mode="RGB"):
    def write(path):
        Image.fromarray(PIXELS).convert(mode).save(path, kind)

    return write


def _excel(path):
    import openpyxl

    workbook = openpyxl.Workbook()
    for row in [["x", "k", "w"], *zip(X[:, 0].tolist(), Y.tolist(), WORDS, strict=True)]:
        workbook.active.append(row)
    workbook.save(path)


def _few(y):
    return np.where(np.arange(y.size) < 9, y, -1)


def _table_model(path):
    csv = path.with_name("table.csv")
    csv.write_bytes(CSV)
    save_model(fit_task(prepare(read_table(csv), "k"))[0], path)
    csv.unlink()


# Files by format: how each is written. The name of a model ends in .ldsu, and that of an image says its folder.
WRITERS = {
    "plain.csv": lambda path: path.write_bytes(CSV),
    "semicolon.csv": lambda path: path.write_bytes(CSV.replace(b"w,", b"w").replace(b",", b";").replace(b".", b",")),
    "utf16.csv": lambda path: path.write_bytes(CSV.decode().encode("utf-16")),
    "packed.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV, mtime=0)),
    "packed.csv.bz2": lambda path: path.write_bytes(bz2.compress(CSV)),
    "packed.csv.xz": lambda path: path.write_bytes(lzma.compress(CSV)),
    "pairs.libsvm": lambda path: path.write_text(LIBSVM),
    "plain.npy": lambda path: np.save(path, X),
    "fields.npy": lambda path: np.save(path, np.rec.fromarrays([X[:, 0], Y, WORDS], names="x,y,w")),
    "stored.npz": lambda path: np.savez(path, X=X, y=Y, w=WORDS),
    "deflated.npz": lambda path: np.savez_compressed(path, X=X, y=Y),
    "csr.npz": lambda path: scipy.sparse.save_npz(path, SPARSE),
    "csc.npz": lambda path: scipy.sparse.save_npz(path, SPARSE.tocsc(), compressed=False),
    "plain.mat": lambda path: scipy.io.savemat(path, {"fea": X, "gnd": Y, "w": np.array(WORDS, dtype=object)}),
    "deflated.mat": lambda path: scipy.io.savemat(path, {"fea": X, "gnd": Y}, do_compression=True),
    "sparse.mat": lambda path: scipy.io.savemat(path, {"fea": SPARSE.tocsc(), "gnd": Y}),
    "plain.parquet": lambda path: parquet.write_table(FRAME, path),
    "zstd.parquet": lambda path: parquet.write_table(FRAME, path, compression="zstd", write_page_checksum=True),
    "lz4.feather": lambda path: feather.write_feather(FRAME, str(path)),
    "plain.arrow": lambda path: feather.write_feather(FRAME, str(path), compression="uncompressed"),
    "stream.arrows": _stream,
    **({"sheet.xlsx": _excel} if find_spec("openpyxl") else {}),
    "image.png": _image("PNG"),
    "palette.png": _image("PNG", "P"),
    "image.jpg": _image("JPEG"),
    "image.bmp": _image("BMP"),
    "image.gif": _image("GIF", "P"),
    "image.tif": _image("TIFF"),
    "image.webp": _image("WEBP"),
    "image.ppm": _image("PPM"),
    "image.pgm": _image("PPM", "L"),
    "classifier.ldsu": lambda path: save_model(LDSUClassifier(LDSU(min_anchors=5)).fit(X, _few(Y)), path),
    "sparse.ldsu": lambda path: save_model(LDSU(solver="sparse").fit(X, _few(Y)), path),
    "kpca.ldsu": lambda path: save_model(KPCA().fit(X), path),
    "enfs.ldsu": lambda path: save_model(EnFS().fit(X, _few(Y)), path),
    "table.ldsu": _table_model,
}
IMAGES = frozenset(name for name in WRITERS if Path(name).suffix in IMAGE_SUFFIXES)
MODELS = frozenset(name for name in WRITERS if name.endswith(".ldsu"))
# What reading, or using what was read, may raise.
REFUSALS = (TableError, ModelError, MemoryError)
LONGEST_SENTENCE = 600


def sound(name):
    """The bytes of a sound file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        WRITERS[name](path)
        return path.read_bytes()


def damaged(data, edits):
    """Bytes after edits, each an operation, a place (taken modulo the length) and bytes to put there."""
    for operation, place, piece in edits:
        at = place % (len(data) + 1)
        if operation == "cut":
            data = data[:at]
        elif operation == "insert":
            data = data[:at] + piece + data[at:]
        elif operation == "overwrite":
            data = data[:at] + piece + data[at + len(piece) :]
        elif operation == "delete":
            data = data[:at] + data[at + len(piece) :]
        elif operation == "repeat":
            data = data[:at] + data[at : at + 8 * len(piece)] * 3 + data[at + 8 * len(piece) :]
        elif operation == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << (len(piece) % 8))]) + data[at + 1 :]
    return data


def try_file(path, name):
    """Read a file that may be damaged: gives what was read, or None where it was refused in a sentence.

    Anything else is raised: another kind of error, a message of several lines, a table or a model that cannot be used.
    """
    try:
        if name in MODELS:
            describe_model(path)
            model = load_model(path)
            use_model(model)
            return model
        table = read_table(path.parent if name in IMAGES else path)
        check_table(table)
        return table
    except REFUSALS as error:
        check_sentence(error)
        return None


def check_sentence(error):
    """A message is one line, not empty, and short enough to be read."""
    text = str(error)
    assert text.strip(), f"{type(error).__name__} without a word"
    assert "\n" not in text, f"several lines: {text!r}"
    assert len(text) <= LONGEST_SENTENCE, f"{len(text)} characters: {text[:200]!r}"


def check_table(table):
    """What every part of the library takes for granted of a table."""
    assert isinstance(table, Table)
    assert table.n_rows > 0
    assert table.lines is None or len(table.lines) == table.n_rows
    assert table.row_names is None or len(table.row_names) == table.n_rows
    for note in table.notes:
        assert "\n" not in note
    if table.frame is not None:
        table.frame.validate(full=True)
        assert len(set(table.frame.column_names)) == table.frame.num_columns
        assert table.label_name is None or table.label_name in table.frame.column_names
    if table.matrix is not None:
        assert table.matrix.dtype in (np.float64, np.float32, np.uint8)
        assert table.matrix.ndim == 2


def use_model(model):
    """Ask a loaded model; a refusal in a sentence of the library's own is an answer too.

    Whoever writes numbers near the largest double into a file, with a checksum that is right, gets infinite answers.
    """
    try:
        if isinstance(model, TableModel):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "new.csv"
                path.write_bytes(CSV)
                answer = model.predict(path).probability
        else:
            ask = model.predict_proba if hasattr(model, "predict_proba") else model.transform
            answer = ask(np.zeros((2, model.n_features_in_)))
    except (ValueError, TypeError) as error:
        if not own_sentence(error):
            raise
        return
    answer = answer.toarray() if scipy.sparse.issparse(answer) else np.asarray(answer)
    assert answer.shape[0] == (N if isinstance(model, TableModel) else 2)
    assert answer.dtype.kind == "f"


def raised_in(error):
    """The file whose code raised an error."""
    return traceback.extract_tb(error.__traceback__)[-1].filename


def own_sentence(error):
    """Whether an error was raised on purpose: by this library or by scikit-learn's checks, and not by LAPACK."""
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    deliberate = "/ldsu/" in raised_in(error) or "/sklearn/" in raised_in(error)
    return deliberate and line.startswith("raise") and not isinstance(error, np.linalg.LinAlgError)
