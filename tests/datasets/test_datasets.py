"""Data sets from the files in which they are published: found, read, checked, preprocessed."""

import bz2
import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from ldsu._utils import files
from ldsu.datasets import (
    DATASETS,
    PREPROCESSINGS,
    DatasetError,
    DatasetWarning,
    _registry,
    cache_folder,
    formats,
    load,
)
from ldsu.datasets._catalogue import Form
from ldsu.datasets.download import DownloadError, Remote
from ldsu.datasets.preprocessing import distinct_rows, resize

PUBLISHED = ["usps", "coil20", "umist", "yaleb", "pcmac", "mnist", "covtype"]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """No data but those that a test makes or asks for."""
    monkeypatch.delenv("LDSU_DATA", raising=False)
    monkeypatch.setenv("LDSU_CACHE", str(tmp_path / "cache"))


def converted(data_folder, name):
    """The folder with the converted files, or a skip."""
    return data_folder(*(file.name for file in DATASETS[name].forms[0].files))


@pytest.fixture
def small(monkeypatch):
    """Make a published set small: a function that puts class sizes in, and leaves the checksums out."""

    def shrink(name, *class_sizes, sha256=("", "")):
        info = replace(DATASETS[name], class_sizes=class_sizes, sha256=sha256)
        monkeypatch.setitem(DATASETS, name, info)
        return info

    return shrink


def sums(X, y):
    return tuple(hashlib.sha256(np.ascontiguousarray(part).tobytes()).hexdigest() for part in (X, y))


# The registry


def test_every_data_set_is_described_and_has_its_preprocessings():
    for name, info in DATASETS.items():
        assert info.name == name
        assert set(info.preprocessings) <= set(PREPROCESSINGS)
        assert all([info.title, info.description, info.citation, info.licence, info.source, info.class_sizes])
        assert len(info.classes) in (0, len(info.class_sizes))
        for form in info.forms:
            assert all(url.startswith("http") for file in form.files for url in file.urls)
            assert all(len(file.sha256) == 64 for file in form.files if file.sha256)
        assert {form.files[0].name for form in info.forms if form.variant} <= {"usps.bz2", "umist_cropped.mat"}
    assert all(step.description for step in PREPROCESSINGS.values())


def test_documentation_gives_the_sources_of_the_catalogue():
    text = (_registry.Path(__file__).parents[2] / "docs" / "datasets.md").read_text()
    assert [name for name, info in DATASETS.items() if name != "digits" and f"<{info.source}>" not in text] == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_converted_file_has_the_published_content(name, recwarn, data_folder):
    folder = converted(data_folder, name)
    data = load(name, preprocessing="none", data_dir=folder, download=False)
    assert not [warning for warning in recwarn if issubclass(warning.category, DatasetWarning)]
    assert data.notes == ()
    assert data.X.shape[0] == data.y.shape[0] == DATASETS[name].n_samples
    assert tuple(np.bincount(data.y)) == DATASETS[name].class_sizes
    assert len(data.classes) == len(DATASETS[name].class_sizes)
    assert data.X.dtype == np.float64
    if data.image_shape:
        assert np.prod(data.image_shape) == data.X.shape[1]


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no data set 'ups'\. Available: usps, coil20"):
        load("ups")
    with pytest.raises(ValueError, match=r"digits has no preprocessing 'log'\. Available: none"):
        load("digits", preprocessing="log")


def test_digits_need_no_file():
    data = load("digits", download=False)
    assert data.X.shape == (1797, 64)
    assert data.preprocessing == "none"


# Where files are looked for


def write_npz(folder, name, X, y, **more):
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", X=X, y=y, **more)


def test_folders_are_searched_in_order(small, monkeypatch, tmp_path):
    small("pcmac", 1, 1)
    argument, variable, cache = tmp_path / "argument", tmp_path / "variable", tmp_path / "cache"
    monkeypatch.setenv("LDSU_DATA", str(variable))
    argument.mkdir()
    for value, folder in enumerate([cache, variable, argument], start=1):
        write_npz(folder, "pcmac", np.full((2, 3), value), [0, 1])
        assert load("pcmac", data_dir=argument, download=False).X[0, 0] == value


def test_cache_folder_follows_the_platform(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("LDSU_CACHE")
    monkeypatch.setattr(files.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "ldsu"
    monkeypatch.setattr(files.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "ldsu"
    monkeypatch.setattr(files.sys, "platform", "darwin")
    assert cache_folder().parts[-3:] == ("Library", "Caches", "ldsu")


def test_missing_files_are_named_with_the_folders_searched(tmp_path):
    with pytest.raises(DatasetError, match=r"not found in .*cache.*Put usps\.npz or zip\.train\.RData and zip\.test"):
        load("usps", data_dir=tmp_path, download=False)
    with pytest.raises(DatasetError, match="not a folder"):
        load("usps", data_dir=tmp_path / "nowhere")


# Content that is not what it should be


def test_other_values_are_read_with_a_warning(small, tmp_path):
    X, y = np.array([[0, 1], [2, 3]], dtype=np.uint8), np.array([0, 1])
    small("pcmac", 1, 1, sha256=sums(X, y))
    write_npz(tmp_path, "pcmac", X, y)
    assert load("pcmac", data_dir=tmp_path).notes == ()
    write_npz(tmp_path, "pcmac", X + 1, y)
    with pytest.warns(DatasetWarning, match=r"has the class sizes of PCMAC, but other values or another order"):
        data = load("pcmac", data_dir=tmp_path)
    assert data.X.tolist() == [[1, 2], [3, 4]]
    assert len(data.notes) == 1


@pytest.mark.parametrize("y", [[0, 0], [0, 2], [0, 1, 1], [-1, 1], [0, 2**30]])
def test_another_data_set_under_the_name_is_refused(small, tmp_path, y):
    small("pcmac", 1, 1)
    write_npz(tmp_path, "pcmac", np.zeros((2, 2)), y)
    with pytest.raises(DatasetError, match="is not PCMAC"):
        load("pcmac", data_dir=tmp_path)


def test_classes_that_have_names_are_compared_in_order(small, tmp_path):
    small("icu2012", 2, 1)
    as_table(tmp_path)
    path = tmp_path / "icu2012_outcomes.csv"
    path.write_text(OUTCOMES.replace("-1,0\n", "-1,x\n").replace("3,1\n", "3,0\n").replace("-1,x\n", "-1,1\n"))
    with pytest.raises(DatasetError, match="class 'survived' has 1 samples, not 2"):
        load("icu2012", data_dir=tmp_path)
    small("usps", 2, 1)
    write_npz(tmp_path, "usps", np.zeros((3, 4)), [0, 1, 1])
    with pytest.raises(DatasetError, match="class '0' has 1 samples, not 2"):
        load("usps", data_dir=tmp_path)
    small("coil20", 2, 1)  # which object is which is not known
    write_npz(tmp_path, "coil20", np.zeros((3, 4)), [0, 1, 1])
    assert load("coil20", data_dir=tmp_path).y.tolist() == [0, 1, 1]
    write_npz(tmp_path, "coil20", np.zeros((4, 4)), [0, 0, 1, 1])
    small("coil20", 3, 1)
    with pytest.raises(DatasetError, match="its classes have other sizes than published"):
        load("coil20", data_dir=tmp_path)


GOOD_X, GOOD_Y = np.arange(6.0).reshape(2, 3), np.array([0, 1])


@pytest.mark.parametrize(
    ("X", "y", "more", "reason"),
    [
        (GOOD_X.astype(str), GOOD_Y, {}, "type <U32, not a matrix of numbers"),
        (GOOD_X * 1j, GOOD_Y, {}, "type complex128, not a matrix"),
        (GOOD_X[:, 0], GOOD_Y, {}, r"shape \(2,\)"),
        (GOOD_X[:, None], GOOD_Y, {}, r"shape \(2, 1, 3\)"),
        (GOOD_X[:, :0], GOOD_Y, {}, r"shape \(2, 0\)"),
        (np.float64(3), GOOD_Y, {}, r"shape \(\)"),
        (GOOD_X * np.nan, GOOD_Y, {}, "not all finite"),
        (np.where(GOOD_X > 4, np.inf, GOOD_X), GOOD_Y, {}, "not all finite"),
        (-np.inf * (GOOD_X + 1), GOOD_Y, {}, "not all finite"),
        (GOOD_X * 1e300, GOOD_Y, {}, "not all finite"),
        (GOOD_X, np.array([0.9, 1.9]), {}, "labels are not integers, such as 0.9"),
        (GOOD_X, np.array([0, np.nan]), {}, "labels are not integers, such as nan"),
        (GOOD_X, np.array([0, 1e300]), {}, "labels are not integers, such as 1e"),
        (GOOD_X, np.array(["a", "b"]), {}, "not a column of numbers"),
        (GOOD_X, np.eye(2), {}, "not a column of numbers"),
        (GOOD_X, np.int64(1), {}, "not a column of numbers"),
        (GOOD_X, GOOD_Y, {"image_shape": [2, 2]}, r"have shape \(2, 2\), but its samples have 3 values"),
        (GOOD_X, GOOD_Y, {"image_shape": [-1, -3]}, "images have shape"),
        (GOOD_X, GOOD_Y, {"image_shape": [3]}, "images have shape"),
        (GOOD_X, GOOD_Y, {"image_shape": 3}, "0-d array"),
        (GOOD_X, GOOD_Y, {"is_test": [True]}, "is_test has shape"),
    ],
)
@pytest.mark.parametrize("name", ["pcmac", "coil20"])  # as whole numbers, and brought to a scale
def test_file_with_the_wrong_kind_of_arrays_is_one_sentence(small, tmp_path, recwarn, name, X, y, more, reason):
    small(name, 1, 1)
    write_npz(tmp_path, name, X, y, **more)
    assert_one_sentence(name, tmp_path, rf"{name}\.npz cannot be read as .*: .*{reason}.*\. Replace or remove the file")
    assert list(recwarn) == []


def assert_one_sentence(name, folder, match):
    with pytest.raises(DatasetError, match=match) as caught:
        load(name, data_dir=folder, download=False)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("y", [[[0], [1]], [[0, 1]], [0.0, 1.0], [False, True]])
def test_labels_may_be_a_column_and_have_any_type_of_number(small, tmp_path, y):
    small("pcmac", 1, 1)
    write_npz(tmp_path, "pcmac", GOOD_X, y)
    data = load("pcmac", data_dir=tmp_path)
    assert data.y.tolist() == [0, 1]
    assert data.y.dtype == np.int64


def test_labels_of_matlab_that_are_not_whole_are_refused(small, tmp_path):
    small("pcmac", 1, 1)
    scipy.io.savemat(tmp_path / "PCMAC.mat", {"X": GOOD_X, "Y": [[0.9], [1.9]]})
    assert_one_sentence("pcmac", tmp_path, r"PCMAC\.mat cannot be read as PCMAC: its labels are not integers")


def test_images_that_are_to_be_resized_need_their_shape(small, tmp_path):
    small("yaleb", 1, 1)
    write_npz(tmp_path, "yaleb", np.zeros((2, 1024)), [0, 1])
    assert_one_sentence("yaleb", tmp_path, "the shape of its images is missing")


def test_error_that_quotes_the_file_is_cut_short(tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"zip.{part}").write_bytes(b"x" * 100_000)
    assert_one_sentence("usps", tmp_path, r"zip\.train and .*zip\.test cannot be read as USPS: could not convert")


@pytest.mark.parametrize("damage", [b"", b"no zip", "cut", "flip"])
def test_damaged_file_is_named_with_what_to_do(small, tmp_path, damage):
    small("pcmac", 1, 1)
    write_npz(tmp_path, "pcmac", np.arange(2000).reshape(2, 1000), [0, 1])
    path = tmp_path / "pcmac.npz"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[:500]
    elif damage == "flip":
        data[800] ^= 1
    path.write_bytes(damage if isinstance(damage, bytes) else data)
    with pytest.raises(DatasetError, match=r"pcmac\.npz cannot be read as PCMAC: .*Replace or remove"):
        load("pcmac", data_dir=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flip"])
@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_matlab_file_is_read_or_named_and_never_ends_the_process(small, tmp_path, damage, compressed):
    small("pcmac", 1, 1)
    path = tmp_path / "PCMAC.mat"
    content = {"X": scipy.sparse.csc_array(GOOD_X), "Y": GOOD_Y, "cells": np.array(["a", 1.5], dtype=object)}
    scipy.io.savemat(path, content, do_compression=compressed)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refusals = []
    for place in rng.integers(124, len(whole), 60):
        data = bytearray(whole[: place if damage == "cut" else None])
        if damage == "flip":
            data[place] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        try:
            assert load("pcmac", data_dir=tmp_path, download=False).X.shape[0] == 2
        except (DatasetError, MemoryError) as error:  # a damaged length may be one that does not fit
            refusals.append(str(error))
    assert len(refusals) > 10
    assert not any("\n" in message or len(message) > 1000 for message in refusals)


def test_archive_that_claims_more_than_the_memory_is_refused_before_it_is_read(small, tmp_path, monkeypatch):
    small("pcmac", 1, 1)
    write_npz(tmp_path, "pcmac", GOOD_X, GOOD_Y)
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=r"Reading pcmac\.npz needs about"):
        load("pcmac", data_dir=tmp_path)


def test_pickles_are_never_opened(small, tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was opened",))

    small("pcmac", 1, 1)
    np.savez(tmp_path / "pcmac.npz", X=np.array([[Trap()], [0]], dtype=object), y=[0, 1])
    with pytest.raises(DatasetError, match=r"PCMAC: it contains Python objects \(a pickle\), which .* are not read"):
        load("pcmac", data_dir=tmp_path)


# Published formats


def column_major(X, shape):
    return X.reshape(-1, *shape).transpose(0, 2, 1).reshape(len(X), -1)


@pytest.mark.parametrize(
    ("name", "file", "names", "shape"),
    [
        ("coil20", "COIL20.mat", ("X", "Y"), (32, 32)),
        ("umist", "UMIST.mat", ("X", "Y"), (28, 23)),
        ("yaleb", "YaleB_32x32.mat", ("fea", "gnd"), (32, 32)),
        ("pcmac", "PCMAC.mat", ("X", "Y"), None),
    ],
)
def test_matlab_file_gives_the_published_content(tmp_path, recwarn, name, file, names, shape, real_data):
    X, y = real_data(f"{name}.npz")
    stored = X.astype(np.float64) if shape is None else column_major(X, shape).astype(np.float64)
    scipy.io.savemat(tmp_path / file, {names[0]: stored, names[1]: y[:, None] + 1})
    data = load(name, preprocessing="none", data_dir=tmp_path, download=False)
    assert data.notes == ()
    assert not [warning for warning in recwarn if issubclass(warning.category, DatasetWarning)]
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, y)
    assert data.image_shape == shape


def test_matlab_images_are_turned_upright(tmp_path):
    image = np.array([[1, 2, 3], [4, 5, 6]])  # MATLAB stores its columns one after the other
    scipy.io.savemat(tmp_path / "a.mat", {"fea": image.ravel(order="F")[None], "gnd": [[1]]})
    arrays = formats.read_mat(tmp_path / "a.mat", image_shape=(2, 3))
    np.testing.assert_array_equal(arrays.X.reshape(2, 3), image)
    assert arrays.y.tolist() == [0]


def test_matlab_file_sparse_or_with_samples_in_columns(tmp_path):
    X = np.array([[1.0, 0, 2], [0, 3, 0]])
    scipy.io.savemat(tmp_path / "a.mat", {"X": scipy.sparse.csc_matrix(X), "Y": [[1], [2]]})
    np.testing.assert_array_equal(formats.read_mat(tmp_path / "a.mat").X, X)
    scipy.io.savemat(tmp_path / "b.mat", {"X": X.T, "Y": [[1, 2]]})
    np.testing.assert_array_equal(formats.read_mat(tmp_path / "b.mat").X, X)


def test_matlab_file_without_samples_says_what_it_has(tmp_path):
    scipy.io.savemat(tmp_path / "YaleB_32x32.mat", {"faces": np.zeros((2, 2))})
    with pytest.raises(DatasetError, match="neither fea and gnd nor X and Y, but faces"):
        load("yaleb", data_dir=tmp_path)


def test_faces_in_cells_are_shrunk_by_blocks(small, tmp_path):
    small("umist", 2, 1)
    cells = np.empty((1, 2), dtype=object)
    rng = np.random.default_rng(0)
    cells[0, 0], cells[0, 1] = (rng.integers(0, 256, (112, 92, views), dtype=np.uint8) for views in (2, 1))
    scipy.io.savemat(tmp_path / "umist_cropped.mat", {"facedat": cells})
    data = load("umist", preprocessing="none", data_dir=tmp_path)
    assert data.image_shape == (28, 23)
    assert data.y.tolist() == [0, 0, 1]
    assert data.X[1, 24] == np.rint(cells[0, 0][4:8, 4:8, 1].mean())


def test_resized_faces_are_read_in_their_own_shape(small, tmp_path):
    small("umist", 1, 1)
    scipy.io.savemat(tmp_path / "umist.mat", {"X": np.full((2, 1024), 7.5), "Y": [[1], [2]]})
    assert load("umist", preprocessing="none", data_dir=tmp_path).image_shape == (32, 32)


@pytest.mark.parametrize(
    ("name", "stored", "expected"),
    [
        ("usps", [0.0, 0.5, 1.0], [-1.0, 0.0, 1.0]),
        ("usps", [0, 51, 255], [-1.0, -0.6, 1.0]),
        ("coil20", [0, 51, 255], [0.0, 0.2, 1.0]),
        ("yaleb", [0.0, 0.2, 1.0], [0.0, 51.0, 255.0]),
        ("yaleb", [0, 51, 255], [0.0, 51.0, 255.0]),
    ],
)
def test_other_scalings_are_brought_to_the_usual_one(small, tmp_path, name, stored, expected):
    small(name, 1)
    write_npz(tmp_path, name, [stored], [0], image_shape=[1, 3])
    np.testing.assert_allclose(load(name, preprocessing="none", data_dir=tmp_path).X[0], expected, atol=1e-5)


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("compressed", [True, False])
def test_idx_files_of_mnist(small, tmp_path, compressed):
    small("mnist", 2, 1)
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5))
    labels = np.array([0, 1, 0])
    for part, rows in (("train", slice(0, 2)), ("t10k", slice(2, 3))):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = idx(array[rows])
            name = f"{part}-{kind}-ubyte" if compressed else f"{part}-{kind.replace('-', '.')}-ubyte"
            (tmp_path / (name + ".gz" * compressed)).write_bytes(gzip.compress(data) if compressed else data)
    data = load("mnist", preprocessing="none", data_dir=tmp_path, download=False)
    np.testing.assert_array_equal(data.X, images.reshape(3, 20))
    assert data.y.tolist() == labels.tolist()
    assert data.image_shape == (4, 5)
    assert data.is_test.tolist() == [False, False, True]
    (tmp_path / next(tmp_path.glob("t10k-images*")).name).write_bytes(b"\x00\x00\x0d\x03more")
    with pytest.raises(DatasetError, match="not an idx file of unsigned bytes"):
        load("mnist", data_dir=tmp_path)


def usps_text(X, y):
    lines = (f"{label}.0000 {' '.join(f'{value:.3f}' for value in row)} \n" for row, label in zip(X, y, strict=True))
    return "".join(lines).encode()


def libsvm_text(X, y):
    lines = (
        f"{label + 1} {' '.join(f'{i}:{value:.6g}' for i, value in enumerate(row, 1) if value)} \n"
        for row, label in zip(X, y, strict=True)
    )
    return "".join(lines).encode()


def r_workspace(name, matrix, version):
    """What R's save() writes for a matrix of doubles, item by item."""

    def integer(*values):
        return struct.pack(f">{len(values)}i", *values)

    def string(text):
        return integer(0x00040009, len(text)) + text.encode()

    head = b"RDX%d\nX\n" % version + integer(version, 0x00040201, 0x00020300)
    encoding = integer(5) + b"UTF-8" if version == 3 else b""
    dim = integer(0x0402, 1) + string("dim") + integer(13, 2, *matrix.shape) + integer(254)
    values = integer(0x020E, matrix.size) + matrix.astype(">f8").tobytes(order="F") + dim
    return head + encoding + integer(0x0402, 1) + string(name) + values + integer(254)


@pytest.mark.parametrize("version", [2, 3])
def test_workspace_of_r_gives_its_matrix(version):
    matrix = np.arange(6.0).reshape(2, 3)
    read = formats.read_rdata(r_workspace("m", matrix, version))
    assert list(read) == ["m"]
    np.testing.assert_array_equal(read["m"], matrix)


def test_workspace_of_r_cut_anywhere_is_an_error():
    data = r_workspace("m", np.arange(6.0).reshape(2, 3), 2)
    for end in range(len(data)):
        with pytest.raises((EOFError, ValueError)):
            formats.read_rdata(data[:end])


def r_items(*words):
    return b"RDX2\nX\n" + struct.pack(f">{len(words) + 3}i", 2, 0x00040201, 0x00020300, *words)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            r_workspace("m", np.arange(6.0).reshape(2, 3), 2).replace(b"dim", b"mid"),
            r"zip\.train\.RData has no numeric",
        ),
        (r_items(254), "has no numeric matrix"),
        (r_items(13, 1, 5), "an unnamed R object"),
        (r_items(*[19, 1] * 50_000), "recursion"),
        (r_items(13, 2**31 - 1), "ends too early"),
        (r_items(13, -1), "ends too early"),
        (r_items(0x1FF), "out of range"),
        (r_items(24), "R object of type 24"),
        (r_workspace("m", np.arange(6.0).reshape(2, 3), 2), "of shape|images have shape"),
        (r_workspace("m", np.full((2, 257), 0.5), 2), "labels are not integers"),
    ],
    ids=["no matrix", "empty", "vector", "deep", "long", "negative", "symbol", "type", "narrow", "half"],
)
def test_workspace_of_r_that_is_not_the_digits_is_one_sentence(tmp_path, data, reason):
    for part in ("train", "test"):
        (tmp_path / f"zip.{part}.RData").write_bytes(data)
    assert_one_sentence("usps", tmp_path, rf"zip\.test\.RData cannot be read as USPS: .*{reason}")


@pytest.mark.parametrize(
    ("files", "write"),
    [
        (("zip.train.gz", "zip.test.gz"), lambda X, y: gzip.compress(usps_text(X, y), 1)),
        (("zip.train", "zip.test"), usps_text),
        (
            ("zip.train.RData", "zip.test.RData"),
            lambda X, y: bz2.compress(r_workspace("zip.train", np.column_stack([y, X]), 2), 1),
        ),
    ],
    ids=["text.gz", "text", "RData"],
)
def test_postal_digits_from_each_published_form(small, tmp_path, files, write, real_data):
    X, y = real_data("usps.npz")
    X, y = X[:300], y[:300]  # every class is among them
    small("usps", *np.bincount(y), sha256=sums(X, y))
    thousandths = np.round(X.astype(np.float64), 3)  # what the publisher printed
    for file, rows in zip(files, (slice(0, 200), slice(200, 300)), strict=True):
        (tmp_path / file).write_bytes(write(thousandths[rows], y[rows]))
    data = load("usps", data_dir=tmp_path, download=False)
    assert data.notes == ()
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, y)
    assert data.is_test.sum() == 100
    assert data.image_shape == (16, 16)


def test_postal_digits_in_libsvm_form(small, tmp_path, real_data):
    X, y = real_data("usps.npz")
    X, y = X[:300], y[:300]
    small("usps", *np.bincount(y))
    for file, rows in (("usps.bz2", slice(0, 200)), ("usps.t.bz2", slice(200, 300))):
        (tmp_path / file).write_bytes(bz2.compress(libsvm_text(X[rows].astype(np.float64), y[rows])))
    data = load("usps", data_dir=tmp_path, download=False)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, y)
    assert data.is_test.sum() == 100


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("compress", [gzip.compress, bytes])
def test_covertype_table(small, tmp_path, header, compress, real_data):
    X, y = real_data("covtype.npz")
    rows = np.flatnonzero(np.arange(len(y)) % 1000 == 0)  # every class is among them
    X, y = X[rows], y[rows]
    small("covtype", *np.bincount(y), sha256=sums(X, y))
    text = "".join(",".join(map(str, [*row, label + 1])) + "\n" for row, label in zip(X, y, strict=True))
    text = ",".join(f"column{i}" for i in range(55)) + "\n" + text if header else text
    (tmp_path / ("covtype.data.gz" if compress is gzip.compress else "covtype.csv")).write_bytes(
        compress(text.encode())
    )
    data = load("covtype", preprocessing="none", data_dir=tmp_path, download=False)
    assert data.notes == ()
    np.testing.assert_array_equal(data.X, X)


RECORDS = {
    "132539.txt": "Time,Parameter,Value\n00:00,RecordID,132539\n00:00,Age,54\n00:07,HR,73\n47:59,HR,80.5\n",
    "132540.txt": "Time,Parameter,Value\r\n00:00,RecordID,132540\r\n00:00,Age,76\r\n00:00,Weight,-1\r\n",
    "132541.txt": "Time,Parameter,Value\n00:00,RecordID,132541\n",
}
OUTCOMES = (
    "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
    "132539,6,1,5,-1,0\n132540,16,8,8,-1,0\n132541,2,1,3,3,1\n"
)
EVENTS = (
    "RecordID,Time,Parameter,Value\n132539,00:00,Age,54\n132539,00:07,HR,73\n132539,47:59,HR,80.5\n132540,00:00,Age,76\n"
    "132540,00:00,Weight,-1\n"
)


def as_folder(folder):
    (folder / "set-a").mkdir()
    for name, text in RECORDS.items():
        (folder / "set-a" / name).write_bytes(text.encode())


def as_tar(folder):
    with tarfile.open(folder / "set-a.tar.gz", "w:gz") as archive:
        for name, text in RECORDS.items():
            member = tarfile.TarInfo(f"./set-a/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        link = tarfile.TarInfo("set-a/132999.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)


def as_zip(folder):
    with zipfile.ZipFile(folder / "set-a.zip", "w") as archive:
        for name, text in RECORDS.items():
            archive.writestr(f"set-a/{name}", text)


def as_table(folder):
    (folder / "icu2012_events.csv.gz").write_bytes(gzip.compress(EVENTS.encode()))
    (folder / "icu2012_outcomes.csv").write_text(OUTCOMES)


@pytest.mark.parametrize("write", [as_folder, as_tar, as_zip, as_table])
def test_icu_records_from_each_published_form(small, tmp_path, write):
    small("icu2012", 2, 1)
    (tmp_path / "Outcomes-a.txt").write_text(OUTCOMES)
    write(tmp_path)
    data = load("icu2012", preprocessing="none", data_dir=tmp_path, download=False)
    events = data.documents
    assert data.y.tolist() == [0, 0, 1]
    assert len(events) == 3
    assert events.parameters == ("Age", "HR", "Weight")
    assert events.stay.tolist() == [0, 0, 0, 1, 1]
    assert events.minute.tolist() == [0, 7, 2879, 0, 0]
    assert events.parameter.tolist() == [0, 1, 1, 0, 2]
    assert events.value.tolist() == [54, 73, 80.5, 76, -1]


def test_archive_is_never_unpacked(small, tmp_path):
    small("icu2012", 2, 1)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "Outcomes-a.txt").write_text(OUTCOMES)
    with tarfile.open(folder / "set-a.tar.gz", "w:gz") as archive:
        for name in ("../132539.txt", "/132540.txt"):
            text = RECORDS[name.strip("./")[:6] + ".txt"].encode()
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    assert len(load("icu2012", preprocessing="none", data_dir=folder).documents) == 3
    assert sorted(path.name for path in tmp_path.rglob("*.txt")) == ["Outcomes-a.txt"]


@pytest.mark.parametrize(
    "events",
    [
        EVENTS + "132539,00:01,HR\n",
        EVENTS + "999,00:01,HR,5\n",
        EVENTS + "132539,x,HR,5\n",
        EVENTS + "132539,00:01,HR,nan\n",
        EVENTS + "132539,-1:01,HR,5\n",
        EVENTS + "132539,999999999999:00,HR,5\n",
        EVENTS + "".join(f"132539,00:01,p{i},5\n" for i in range(300)),
        "a,b\n",
        "",
    ],
)
def test_icu_table_with_a_bad_line_is_an_error(small, tmp_path, events):
    small("icu2012", 2, 1)
    as_table(tmp_path)
    (tmp_path / "icu2012_events.csv.gz").write_bytes(gzip.compress(events.encode()))
    with pytest.raises(DatasetError, match="cannot be read as the PhysioNet Challenge 2012"):
        load("icu2012", data_dir=tmp_path)


# Download

X_KNOWN, Y_KNOWN = np.array([[1, 2], [3, 4]], dtype=np.uint8), np.array([0, 1])


@pytest.fixture
def served(small, monkeypatch, tmp_path):
    """Make the only form of PCMAC a table and a file of labels to download: a function that says what they hold."""
    cache = tmp_path / "cache"

    def serve(X=X_KNOWN, y=Y_KNOWN, sha256=None, variant="", labels=None):
        files = {"x.npy": as_bytes(X), "y.npy": as_bytes(y) if labels is None else labels}
        remotes = tuple(Remote(name, (f"http://example.invalid/{name}",), sha256) for name in files)
        form = Form(remotes, lambda x, y: formats.Arrays(np.load(x), np.load(y)), variant)
        info = small("pcmac", 1, 1, sha256=sums(X_KNOWN, Y_KNOWN))
        monkeypatch.setitem(DATASETS, "pcmac", replace(info, forms=(form,)))
        asked = []

        def fetch(file, folder):
            path = folder / file.name
            if path.exists():
                return path, False
            asked.append(file.name)
            if isinstance(files[file.name], BaseException):
                raise files[file.name]
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[file.name])
            return path, True

        monkeypatch.setattr(_registry, "fetch", fetch)
        return asked

    def kept():
        return sorted(path.name for path in cache.iterdir()) if cache.exists() else []

    serve.cache, serve.kept = cache, kept
    return serve


def as_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_download_is_read_and_kept_in_the_cache(served):
    asked = served()
    for _ in range(2):
        data = load("pcmac")
        assert data.X.tolist() == X_KNOWN.tolist()
        assert data.notes == ()
    assert asked == ["x.npy", "y.npy"]


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ({"labels": b"<html>Moved</html>"}, "cannot be read as PCMAC"),
        ({"y": np.array([0, 0])}, "is not PCMAC"),
        ({"X": X_KNOWN + 1}, "other values or another order"),
        ({"y": Y_KNOWN[::-1]}, "other values or another order"),
        ({"y": Y_KNOWN[::-1], "variant": "rounded"}, "other values or another order"),
    ],
)
def test_download_that_is_something_else_is_not_kept(served, what, match):
    served(**what)
    with pytest.raises(
        DatasetError, match=rf"PCMAC could not be downloaded: http://example\.invalid/x\.npy returned invalid .*{match}"
    ):
        load("pcmac")
    assert served.kept() == []


def test_download_of_a_form_that_may_differ_is_noted(served):
    served(X=X_KNOWN + 1, variant="rounded")
    for _ in range(2):
        with pytest.warns(DatasetWarning, match=r"has the class sizes of PCMAC.*reference copy \(rounded\)\."):
            assert load("pcmac").X.tolist() == [[2, 3], [4, 5]]
    assert served.kept() == ["x.npy", "y.npy"]


def test_download_that_has_its_checksum_is_kept_whatever_is_read_from_it(served):
    served(X=X_KNOWN + 1, sha256="0" * 64)
    with pytest.warns(DatasetWarning, match="has the class sizes of PCMAC"):
        load("pcmac")
    assert served.kept() == ["x.npy", "y.npy"]


def test_file_put_into_the_cache_by_hand_survives_a_download_that_fails(served):
    served(labels=b"<html>Moved</html>")
    served.cache.mkdir()
    (served.cache / "x.npy").write_bytes(as_bytes(X_KNOWN + 7))
    with pytest.raises(DatasetError, match="could not be downloaded"):
        load("pcmac")
    assert served.kept() == ["x.npy"]
    assert np.load(served.cache / "x.npy").tolist() == (X_KNOWN + 7).tolist()


@pytest.mark.parametrize("error", [DownloadError("gone"), KeyboardInterrupt()])
def test_file_that_could_not_be_checked_is_not_kept(served, error):
    served(labels=error)
    with pytest.raises((DatasetError, KeyboardInterrupt)):
        load("pcmac")
    assert served.kept() == []


# Fingerprints


def test_fingerprint_is_of_the_content_and_not_of_the_file(small, tmp_path):
    small("pcmac", 1, 1)
    found = []
    for X, y in [
        (X_KNOWN, Y_KNOWN),
        (X_KNOWN.astype(float), Y_KNOWN[:, None]),
        (X_KNOWN + 1, Y_KNOWN),
        (X_KNOWN, 1 - Y_KNOWN),
    ]:
        write_npz(tmp_path, "pcmac", X, y)
        found.append(load("pcmac", data_dir=tmp_path).fingerprint)
    assert found[0] == found[1]
    assert len(set(found)) == 3
    assert all(len(fingerprint) == 64 for fingerprint in found)


def test_fingerprint_tells_steps_apart_and_does_not_rest_on_what_they_compute(small, tmp_path, monkeypatch):
    small("yaleb", 1, 1)
    write_npz(tmp_path, "yaleb", np.random.default_rng(0).integers(0, 256, (2, 1024)), [0, 1], image_shape=[32, 32])
    steps = DATASETS["yaleb"].preprocessings
    found = [load("yaleb", preprocessing=step, data_dir=tmp_path).fingerprint for step in steps]
    assert len(set(found)) == len(steps)
    monkeypatch.setattr(_registry, "resize", lambda *arguments: resize(*arguments) * (1 + 1e-15))  # another machine
    assert [load("yaleb", preprocessing=step, data_dir=tmp_path).fingerprint for step in steps] == found


def test_fingerprint_of_a_data_set_that_was_changed_is_its_own():
    data = load("digits")
    assert load("digits").fingerprint == data.fingerprint
    found = {data.fingerprint, replace(data, X=data.X + 1).fingerprint, replace(data, y=data.y[::-1]).fingerprint}
    assert len(found) == 3
    assert replace(data, X=data.X + 1).fingerprint == replace(data, X=data.X + 1).fingerprint


# Preprocessing


@pytest.mark.parametrize("name", PREPROCESSINGS)
def test_preprocessing_is_a_pure_function(name):
    X = np.random.default_rng(0).integers(0, 256, (6, 80)).astype(np.uint8)
    before = X.copy()
    Z, shape = PREPROCESSINGS[name](X, (10, 8))
    np.testing.assert_array_equal(X, before)
    assert Z.shape == (6, 80)
    assert Z.dtype == np.float64
    assert shape == (10, 8)
    np.testing.assert_array_equal(Z, PREPROCESSINGS[name](X, (10, 8))[0])
    assert np.all(np.isfinite(Z))


def test_resizing_equals_the_spline_through_each_image():
    from scipy.ndimage import zoom

    X = np.random.default_rng(0).random((2, 32 * 28))
    resized = resize(X, (32, 28), (24, 21))
    for image, small in zip(X.reshape(2, 32, 28), resized.reshape(2, 24, 21), strict=True):
        expected = zoom(image, 0.75, order=3, mode="nearest", grid_mode=True)
        np.testing.assert_allclose(small, np.clip(expected, image.min(), image.max()), atol=1e-12)


def test_resizing_leaves_a_flat_image_flat_and_an_equal_size_alone():
    np.testing.assert_allclose(resize(np.full((1, 64), 7.0), (8, 8), (6, 6)), 7.0)
    X = np.random.default_rng(0).random((2, 64))
    np.testing.assert_allclose(resize(X, (8, 8), (8, 8)), X, atol=1e-12)


def test_log_faces_do_not_depend_on_the_strength_of_the_light():
    X = np.random.default_rng(0).random((3, 64)) * 200
    bright = (X + 1) * 3 - 1  # three times the light, as log(1 + pixel) counts it
    for name in ("log", "local-contrast"):
        dark_faces, _ = PREPROCESSINGS[name](X, (8, 8))
        np.testing.assert_allclose(dark_faces, PREPROCESSINGS[name](bright, (8, 8))[0], atol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(dark_faces, axis=1), 1)


def test_black_image_stays_finite():
    for name in ("log", "local-contrast"):
        np.testing.assert_array_equal(PREPROCESSINGS[name](np.zeros((1, 64)), (8, 8))[0], np.zeros((1, 64)))


def test_local_contrast_equals_the_formula():
    from scipy.ndimage import gaussian_filter

    image = np.random.default_rng(0).random((24, 24)) * 255
    log = np.log(1 + image)
    detail = log - gaussian_filter(log, 2)
    expected = detail / (np.sqrt(gaussian_filter(detail * detail, 3)) + 1e-3)
    expected /= np.sqrt(np.sum(expected**2))
    got, _ = PREPROCESSINGS["local-contrast"](image.reshape(1, -1), (24, 24))
    np.testing.assert_allclose(got.reshape(24, 24), expected, atol=1e-12)


def test_standard_columns_have_mean_zero_and_deviation_one():
    X = np.random.default_rng(0).normal(3, 5, (50, 3))
    X[:, 2] = 7
    Z, _ = PREPROCESSINGS["standard"](X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.std(axis=0), [1, 1, 0], atol=1e-12)


def test_tf_idf_equals_that_of_scikit_learn():
    from sklearn.feature_extraction.text import TfidfTransformer

    X = np.random.default_rng(0).poisson(0.3, (40, 30)).astype(np.uint8)
    X[3], X[:, 5] = 0, 0  # a message without words, and a word without messages
    Z, _ = PREPROCESSINGS["tf-idf"](X)
    np.testing.assert_allclose(Z, TfidfTransformer().fit_transform(X).toarray(), atol=1e-12)


def test_pcmac_may_be_had_as_tf_idf_and_is_counts_by_default(data_folder, real_data):
    counts = load("pcmac", data_dir=converted(data_folder, "pcmac"), download=False)
    data = load("pcmac", preprocessing="tf-idf", data_dir=converted(data_folder, "pcmac"), download=False)
    np.testing.assert_array_equal(counts.X, real_data("pcmac.npz")[0])
    np.testing.assert_array_equal(data.X > 0, counts.X > 0)
    np.testing.assert_allclose(np.linalg.norm(data.X, axis=1)[counts.X.any(axis=1)], 1)


def test_umist_loses_its_ten_copies_by_default(data_folder, real_data):
    data = load("umist", data_dir=converted(data_folder, "umist"), download=False)
    X, y = real_data("umist.npz")
    kept = np.setdiff1d(np.arange(575), np.arange(63, 73))  # the copies, by the data's description
    np.testing.assert_array_equal(data.X, X[kept])
    np.testing.assert_array_equal(data.y, y[kept])
    assert len(load("umist", preprocessing="none", data_dir=converted(data_folder, "umist")).X) == 575


def test_distinct_rows_keep_the_first_of_equals_in_order():
    X = np.array([[3, 3], [1, 1], [3, 3], [2, 2], [1, 1]])
    assert distinct_rows(X, np.zeros(5)).tolist() == [0, 1, 3]


def test_yale_faces_are_used_at_24_by_24(data_folder):
    for name in ("pixels", "log", "local-contrast"):
        data = load("yaleb", preprocessing=name, data_dir=converted(data_folder, "yaleb"), download=False)
        assert data.X.shape == (2414, 576)
        assert data.image_shape == (24, 24)
    assert load("yaleb", preprocessing="none", data_dir=converted(data_folder, "yaleb")).image_shape == (32, 32)
