"""Files that are no models, or mean harm: refused in a sentence, with nothing run, written or taken."""

import copy
import json
import os
import pickle
import subprocess
import sys
import zipfile
from contextlib import suppress
from dataclasses import replace
from functools import partial

import joblib
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from conftest import few_labels, peak_memory
from ldsu import KPCA, LDSU, EnFS, LDSUClassifier
from ldsu.io import ModelError, describe_model, load_model, read_container, read_record, save_model, write_container
from ldsu.io.container import HEADER_BYTES
from ldsu.tables.columns import Column
from ldsu.tables.encoder import Numbers, TableEncoder
from ldsu.tables.model import TableModel
from ldsu.tables.text_features import Words

POINTS = "model.features_.feature_map_.points"
COEFFICIENTS = "model.features_.coef_"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes of a sound model."""
    X, y = make_blobs(40, n_features=4, centers=3, random_state=0)
    path = tmp_path_factory.mktemp("sound") / "model.ldsu"
    save_model(LDSUClassifier(LDSU(min_anchors=5)).fit(X, few_labels(y, 3)), path)
    return path.read_bytes()


@pytest.fixture
def file(tmp_path):
    """Where a hostile file is put, alone in its folder."""
    return tmp_path / "model.ldsu"


def assert_refused(path, match="", readers=(load_model, read_container)):
    """A ModelError of one short line that names the file; nothing else happens in its folder."""
    before = sorted(os.listdir(path.parent))
    for reader in readers:
        with pytest.raises(ModelError, match=match) as refused:
            reader(path)
        text = str(refused.value)
        assert str(path) in text
        assert "\n" not in text
        assert text.isprintable()
        assert len(text) < 400
    for reader in (describe_model, read_record):  # may know too little to refuse, and must not stumble
        with suppress(ModelError):
            assert isinstance(reader(path), dict)
    assert sorted(os.listdir(path.parent)) == before


def raw(header, data=b"", length=None):
    """A container from a header as it is, sound or not."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(encoded) if length is None else length).to_bytes(8, "little") + encoded + data


def taken_apart(sound):
    length = int.from_bytes(sound[:8], "little")
    return json.loads(sound[8 : 8 + length]), sound[8 + length :]


def changed(sound, path, change):
    """A model file whose record and arrays were changed, with a checksum that matches."""
    path.write_bytes(sound)
    record, arrays = read_container(path)
    change(record, arrays)
    write_container(path, record, arrays)


def test_files_cut_short_anywhere_are_refused(sound, file):
    length = 8 + int.from_bytes(sound[:8], "little")
    lengths = {0, 1, 7, 8, 9, length - 1, length, length + 1, len(sound) - 1}
    for cut in sorted(lengths | set(np.random.default_rng(0).integers(0, len(sound), 40).tolist())):
        file.write_bytes(sound[:cut])
        assert_refused(file, "is damaged|is not an ldsu model")


def test_bytes_added_at_the_end_are_refused(sound, file):
    file.write_bytes(sound + b"\0")
    assert_refused(file, "is damaged")


def test_a_bit_turned_anywhere_is_refused(sound, file):
    rng = np.random.default_rng(1)
    length = 8 + int.from_bytes(sound[:8], "little")
    places = [*range(9), *rng.integers(8, length, 150), *rng.integers(length, len(sound), 60), length - 1]
    for place in places:
        damaged = bytearray(sound)
        damaged[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        assert_refused(file, "is damaged|is not an ldsu model|was written by")


def test_a_bit_turned_in_an_array_is_found_by_the_checksum(sound, file):
    file.write_bytes(sound[:-9] + bytes([sound[-9] ^ 1]) + sound[-8:])
    assert_refused(file, r"is damaged: its checksum does not match .* Copy or download it again\.")


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, HEADER_BYTES + 1, HEADER_BYTES, 10**9])
def test_header_longer_than_the_file_is_refused(length, sound, file):
    file.write_bytes(raw(b'{"__metadata__":{}}', length=length))
    assert_refused(file, "its header")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F64", "shape": [2**57], "data_offsets": [0, 2**60]},
        {"dtype": "F64", "shape": [2**62, 2**62], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [0, 2**59, 2**59], "data_offsets": [0, 0]},
        {"dtype": "F64", "shape": [-1], "data_offsets": [0, -8]},
        {"dtype": "F64", "shape": [-1, -1], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [1.0], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [True], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [1] * 100, "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": "1", "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [[1]], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [1], "data_offsets": [8, 0]},
        {"dtype": "F64", "shape": [1], "data_offsets": [8, 16]},
        {"dtype": "F64", "shape": [1], "data_offsets": [0]},
        {"dtype": "F64", "shape": [1], "data_offsets": None},
        {"dtype": "F64", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]},
        {"dtype": "object", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": ["F64"], "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F64", "shape": [1]},
        {"dtype": "F64", "shape": [1], "data_offsets": [0, 8], "strides": [0]},
        [],
        None,
    ],
)
def test_arrays_that_cannot_be_are_refused(entry, file):
    metadata = {"format": "1", "ldsu": "{}", "sha256": "0" * 64}
    file.write_bytes(raw({"__metadata__": metadata, "x": entry}, b"\0" * 8))
    assert_refused(file, "is damaged|is not an ldsu model")


@pytest.mark.parametrize("starts", [(0, 0), (0, 8), (8, 0), (0, 24)])
def test_arrays_that_overlap_or_leave_gaps_are_refused(starts, file):
    header = {"__metadata__": {"format": "1", "ldsu": "{}", "sha256": "0" * 64}}
    for name, start in zip("ab", starts, strict=True):
        header[name] = {"dtype": "F64", "shape": [2], "data_offsets": [start, start + 16]}
    file.write_bytes(raw(header, b"\0" * 32))
    assert_refused(file, "is damaged")


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "a\nb", "", ".", "a..b", "x" * 10_000, "\ud800", "C:\\x", "é"]
)
def test_names_that_look_like_paths_are_refused(name, file):
    header = {"__metadata__": {"format": "1", "ldsu": "{}", "sha256": "0" * 64}}
    header[name] = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
    file.write_bytes(raw(header, b"\0" * 8))
    assert_refused(file, "is not a valid array name")


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        b"null",
        b'{"a":1',
        b'{"__metadata__":{"format":"1","format":"1"}}',
        b'{"__metadata__":{},"__metadata__":{}}',
        b'{"x":NaN}',
        b'{"x":{"dtype":"F64","shape":[NaN],"data_offsets":[0,8]}}',
        b'{"x":1e999}',
        b'{"x":' + b"9" * 10_000 + b"}",
        b"{" + b"\xff" * 20 + b"}",
        b'{"__metadata__":5}',
        b'{"__metadata__":{"format":"pt"}}',
        b'{"__metadata__":{"format":"1","ldsu":5,"sha256":""}}',
        b'{"__metadata__":{"format":"1","ldsu":"[]","sha256":""}}',
        b'{"__metadata__":{"format":"1","ldsu":"{","sha256":""}}',
        b'{"__metadata__":{"format":1,"ldsu":"{}","sha256":""}}',
        b'{"__metadata__":{"format":"-1","ldsu":"{}","sha256":""}}',
        b'{"__metadata__":{"format":"1","ldsu":"{}"}}',
        b'{"__metadata__":{"format":"1","ldsu":"{\\"a\\":NaN}","sha256":""}}',
    ],
)
def test_headers_that_cannot_be_read_are_refused(header, file):
    file.write_bytes(raw(header))
    assert_refused(file, "is damaged|is not an ldsu model")


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_100_000_levels_deep_is_refused(opening, file):
    file.write_bytes(raw(b'{"a":' + opening.encode() * 100_000))
    assert_refused(file, "nested too deeply")
    inner = json.dumps(opening * 100_000)
    file.write_bytes(raw(f'{{"__metadata__":{{"format":"1","sha256":"","ldsu":{inner}}}}}'.encode()))
    assert_refused(file, "nested too deeply")


def test_newer_format_says_how_to_update(sound, file):
    header, data = taken_apart(sound)
    header["__metadata__"]["format"] = "3"
    record = json.loads(header["__metadata__"]["ldsu"])
    record["versions"]["ldsu"] = "9.1.0"
    header["__metadata__"]["ldsu"] = json.dumps(record)
    file.write_bytes(raw(header, data))
    assert_refused(
        file, r"was written by ldsu 9\.1\.0 \(model format 3\); this is ldsu .*, which reads formats 1 and 2\. Update"
    )
    header["__metadata__"]["ldsu"] = json.dumps({"versions": {"ldsu": "\n" * 500}})
    file.write_bytes(raw(header, data))
    assert_refused(file, "was written by another ldsu")


class Burglar:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_is_refused_and_not_run(protocol, file, tmp_path):
    loot = tmp_path / "loot"
    file.write_bytes(pickle.dumps(Burglar(loot), protocol))
    assert_refused(file, "is not an ldsu model" if protocol < 2 else "is not an ldsu model: it is a pickle")
    assert not loot.exists()
    pickle.loads(file.read_bytes()).close()
    assert loot.exists()  # it would have been


def test_pickles_in_archives_and_joblib_files_are_refused_and_not_run(file, tmp_path):
    loot = tmp_path / "loot"
    for compress in (0, 3, ("gzip", 3), ("bz2", 3), ("xz", 3)):
        joblib.dump(Burglar(loot), file, compress=compress)
        assert_refused(file, "is not an ldsu model: it is a")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Burglar(loot)))
    assert_refused(file, "zip")
    with file.open("wb") as opened:
        np.savez(opened, x=np.array([Burglar(loot)], dtype=object))
    assert_refused(file, "npz")
    with file.open("wb") as opened:
        np.save(opened, np.array([Burglar(loot)], dtype=object))
    assert_refused(file, "NumPy array")
    assert not loot.exists()


@pytest.mark.parametrize(
    ("contents", "what"),
    [
        (b"", "it is empty"),
        (b"a,b,c\n1,2,3\n", "a text file"),
        ("größe;ü\n".encode() * 20, "a text file|another kind"),
        (b"#!/bin/sh\nrm -rf /\n", "a text file"),
        (b"\0" * 100, "another kind|its header"),
        pytest.param(os.urandom(3) + b"\xff" * 100, "is not an ldsu model", id="random"),
    ],
)
def test_other_files_are_named_by_their_format(contents, what, file):
    file.write_bytes(contents)
    assert_refused(file, what)


def test_folders_pipes_and_what_is_not_there_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    assert_refused(tmp_path / "folder", "it is a folder")
    assert_refused(tmp_path / "none", "does not exist")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert_refused(tmp_path / "pipe", "not a plain file")


def set_in(record, path, value):
    *way, last = path.split(".")
    for name in way:
        record = fields_of(record, name)[name]
    fields_of(record, last)[last] = value


def fields_of(record, name):
    return record["fields"] if "fields" in record and name not in record else record


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("class", "os.system"),
        ("class", "LDSUClassifier\n"),
        ("class", "Kernel"),
        ("class", ["LDSU"]),
        ("class", None),
        ("parameters", None),
        ("parameters.os", "rm"),
        ("parameters.__class__", "x"),
        ("parameters.n_refinements", -1),
        ("parameters.n_refinements", {"list": [1]}),
        ("parameters.n_refinements", {"eval": "1"}),
        ("parameters.n_refinements", [1]),
        ("parameters.features", {"estimator": {"class": "os.system", "parameters": {}, "fields": None}}),
        ("parameters.features", {"estimator": {"class": "Kernel", "parameters": {}, "fields": None}}),
        ("parameters.features", {"estimator": {"class": "LDSU", "parameters": {"kernel": "eval"}, "fields": None}}),
        ("parameters.features", {"estimator": {"class": "LDSU", "parameters": {}, "fields": {}}}),
        ("fields", None),
        ("fields.predict", 1),
        ("fields.__dict__", {}),
        ("fields.features_", None),
        ("fields.features_.class", "os.system"),
        ("fields.features_.class", "LinearSVC"),
        ("fields.features_.class", "KPCA"),
        ("fields.features_.parameters.kernel", "linear"),
        ("fields.features_.parameters.kernel", "precomputed"),
        ("fields.features_.n_features_in_", 5),
        ("fields.features_.n_features_in_", -1),
        ("fields.features_.n_features_in_", 4.0),
        ("fields.features_.n_features_in_", True),
        ("fields.features_.n_features_in_", 10**40),
        ("fields.features_.feature_map_.class", "os.system"),
        ("fields.features_.feature_map_.kernel.name", "eval"),
        ("fields.features_.feature_map_.kernel.gamma", None),
        ("fields.features_.feature_map_.kernel.gamma", -1.0),
        ("fields.features_.feature_map_.kernel.gamma", "1"),
        ("fields.features_.feature_map_.kernel.params", 5),
        ("fields.features_.feature_map_.coefficients", {"array": "nowhere"}),
        ("fields.features_.feature_map_.coefficients", {"array": "../../etc/passwd"}),
        ("fields.features_.feature_map_.coefficients", {"array": "model._lengths"}),
        ("fields.features_.feature_map_.coefficients", {"array": POINTS}),
        ("fields.features_.feature_map_.coefficients", {"array": COEFFICIENTS, "order": "X"}),
        ("fields.features_.feature_map_.points", {"either": 9, "value": {"array": POINTS}}),
        ("fields.features_.feature_map_.points", {"either": 1, "value": {"array": POINTS}}),
        ("fields.features_.feature_map_.points", {"either": 2, "value": {"array": POINTS}}),
        ("fields.features_.feature_map_.points", {"either": 1, "value": {"array": "model.features_.anchors_"}}),
        ("fields.features_.solver_", "os"),
        ("fields.scaler_.scale_", 0.0),
        ("fields.scaler_.scale_", "x"),
        ("fields.scaler_.n_features_in_", 1),
        ("fields.classes_.values", [0, 1]),
        ("fields.classes_.values", [0, 1, 1]),
        ("fields.classes_.values", [0, 1, None]),
        ("fields.classes_.values", [0, 1, [2]]),
        ("fields.classes_.values", [0, 1, 2**70]),
        ("fields.classes_.dtype", "object"),
        ("fields.classes_.dtype", "O"),
        ("fields.classes_.dtype", "V8"),
        ("fields.classes_", {"dtype": "str", "width": 2**40, "values": ["a", "b", "c"]}),
        ("fields.classes_", {"dtype": "str", "width": 1, "values": ["a", "b", "cc"]}),
        ("fields.classes_", []),
        ("fields.feature_names_in_", ["a"]),
        ("fields.feature_names_in_", [1, 2, 3, 4]),
        ("fields.classifier_.class", "LinearSVC"),
        ("fields.classifier_._label_binarizer.y_type_", "multilabel-indicator"),
        ("fields._sharpness", None),
        ("fields._odds", -1),
    ],
)
def test_records_that_are_not_by_the_table_are_refused(place, value, sound, file):
    changed(sound, file, lambda record, arrays: set_in(record["model"], place, value))
    assert_refused(file, "is not a valid model", readers=[load_model])


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("probe"),
        lambda record: record.update(more=1),
        lambda record: record.update(versions={"ldsu": 5}),
        lambda record: record.update(versions={"x" * 1000: "1"}),
        lambda record: record.update(saved="now\n"),
        lambda record: record.update(about=None),
        lambda record: record.update(model=None),
        lambda record: record.update(probe=5),
        lambda record: record["probe"].update(rows={"array": POINTS}),
        lambda record: record["probe"]["answers"].update(x={"either": 5, "value": None}),
        lambda record: record["probe"]["answers"].update({"\n" * 99: record["probe"]["answers"]["scores"]}),
        lambda record: record["model"]["fields"].pop("_odds"),
        lambda record: record["model"]["fields"].pop("_sharpness"),
        lambda record: record["model"]["fields"]["features_"]["fields"].pop("eigenvalues_"),
    ],
)
def test_records_with_parts_missing_or_added_are_refused(change, sound, file):
    changed(sound, file, lambda record, arrays: change(record))
    assert_refused(file, "is not a valid model", readers=[load_model])


@pytest.mark.parametrize("name", [POINTS, COEFFICIENTS, "model.classifier_.coef_", "model._lengths", "probe.rows"])
@pytest.mark.parametrize(
    "change",
    [
        lambda array: np.full_like(array, np.nan),
        lambda array: np.where(np.arange(array.size).reshape(array.shape) == array.size - 1, np.inf, array),
        lambda array: array[:-1],
        lambda array: array[..., :-1],
        lambda array: array[None],
        lambda array: array[:0],
        lambda array: array.astype(np.int64),
        lambda array: array.astype(bool),
    ],
    ids=["nan", "inf", "shorter", "narrower", "deeper", "empty", "whole", "truth"],
)
def test_arrays_of_another_kind_or_shape_are_refused(name, change, sound, file):
    changed(sound, file, lambda record, arrays: arrays.update({name: change(arrays[name])}))
    assert_refused(file, "is not a valid model", readers=[load_model])


def test_array_that_nothing_uses_is_refused(sound, file):
    changed(sound, file, lambda record, arrays: arrays.update(more=np.ones(2)))
    assert_refused(file, "nothing in it uses array more", readers=[load_model])


def test_probe_that_does_not_fit_the_coefficients_is_refused(sound, file):
    changed(sound, file, lambda record, arrays: arrays.update({COEFFICIENTS: 1.01 * arrays[COEFFICIENTS]}))
    assert_refused(file, "gives different scores than when it was saved", readers=[load_model])


def test_places_of_labels_out_of_range_are_refused(sound, file):
    for place in (3, 2**31 - 1, -1):
        changed(sound, file, lambda record, arrays, place=place: arrays["model.transduction_"].put(0, place))
        assert_refused(file, "is not a valid model", readers=[load_model])


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [
        ("indices", 0, 99),
        ("indices", 0, -1),
        ("indptr", 0, 1),
        ("indptr", -1, 10**6),
        ("indptr", 3, 0),
        ("indptr", 3, 10**6),
    ],
)
def test_sparse_indices_out_of_range_are_refused(part, place, value, file):
    X = scipy.sparse.random_array((30, 9), density=0.4, format="csr", random_state=np.random.default_rng(0))
    save_model(KPCA(2).fit(X), file)
    name = f"model.feature_map_.points.{part}"
    changed(file.read_bytes(), file, lambda record, arrays: arrays[name].__setitem__(place, value))
    assert_refused(file, "is not a valid model", readers=[load_model])


@pytest.mark.parametrize(
    ("name", "value"), [("starts", -1), ("starts", 10**6), ("order", -1), ("order", 10**6), ("rows", np.nan)]
)
def test_cells_out_of_range_are_refused(name, value, file, monkeypatch):
    monkeypatch.setattr("ldsu.neighbors._index.EXACT_ROWS", 200)
    X, y = make_blobs(300, n_features=4, centers=3, random_state=0)
    save_model(LDSU(solver="sparse", n_landmarks=20, min_anchors=10, tol=0.1).fit(X, few_labels(y, 2)), file)
    name = f"model.feature_map_.index.cells.{name}"
    changed(file.read_bytes(), file, lambda record, arrays: arrays[name].put(1, value))
    assert_refused(file, "is not a valid model", readers=[load_model])


@pytest.mark.parametrize(("stored", "asked"), [(16, 15), (10**6, 15), (10**6, 10**6), (200, 200)])
def test_more_neighbors_than_fit_takes_are_refused(stored, asked, file, monkeypatch):
    monkeypatch.setattr("ldsu.solvers.MAX_CONDITIONING", 100)
    X, y = make_blobs(300, n_features=4, centers=3, random_state=0)
    save_model(LDSU(solver="sparse", n_landmarks=20, min_anchors=10, tol=0.1).fit(X, few_labels(y, 2)), file)

    def change(record, arrays):
        set_in(record["model"], "feature_map_.n_conditioning", stored)
        set_in(record["model"], "parameters.n_conditioning", asked)

    changed(file.read_bytes(), file, change)
    assert_refused(file, f"it conditions on {stored} neighbors", readers=[load_model, partial(load_model, check=False)])


def test_probe_of_more_rows_than_are_saved_is_refused(sound, file):
    rows = {"probe.rows": (4, 4), "probe.scores": (4, 3)}
    changed(sound, file, lambda record, arrays: arrays.update({name: np.zeros(shape) for name, shape in rows.items()}))
    assert_refused(file, "its probe has 4 rows, where 3 is the limit", readers=[load_model])


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "chi2", "linear", "poly", "cosine"])
def test_columns_that_hold_nothing_take_no_memory(kernel, file):
    X = scipy.sparse.random_array((30, 9), density=0.4, format="csr", random_state=np.random.default_rng(0))
    features = KPCA(2, kernel=kernel).fit(X)
    save_model(features, file)

    def widen(record, arrays):
        set_in(record["model"], "n_features_in_", 10**7)
        for matrix in (record["model"]["fields"]["feature_map_"]["fields"]["points"], record["probe"]["rows"]):
            matrix["value"]["columns"] = 10**7

    changed(file.read_bytes(), file, widen)
    with peak_memory() as peak:
        wide = load_model(file).transform(scipy.sparse.csr_array((X.data, X.indices, X.indptr), shape=(30, 10**7)))
    assert peak() < 2**22
    np.testing.assert_allclose(wide, features.transform(X), rtol=1e-12)


def test_length_of_an_array_without_elements_is_refused(file):
    write_container(file, {}, {"x": np.empty((0, 2**40))})
    assert_refused(file, r"array x has no elements in shape '\(0, 1099511627776\)'")


def test_type_of_labels_takes_little_more_room_than_the_labels(file):
    X, y = make_blobs(40, n_features=4, centers=3, random_state=0)
    save_model(KPCA(2).fit(X, np.array(["a", "b", "c"], dtype="<U100")[y]), file)
    assert load_model(file).classes_.dtype == "<U100"
    changed(file.read_bytes(), file, lambda record, arrays: set_in(record["model"], "classes_.width", 10**7))
    assert load_model(file).classes_.dtype.itemsize <= 1024


def test_precomputed_columns_out_of_range_are_refused(file):
    X = np.random.default_rng(0).standard_normal((12, 3))
    save_model(KPCA(2, kernel="precomputed").fit(X @ X.T), file)
    changed(file.read_bytes(), file, lambda record, arrays: arrays["model.feature_map_.points"].put(0, 12))
    assert_refused(file, "columns that its kernel matrix does not have", readers=[load_model])


def test_ranking_that_names_a_column_twice_is_refused(file):
    X, y = make_blobs(30, n_features=6, centers=2, random_state=0)
    save_model(EnFS(2).fit(X, y), file)
    changed(file.read_bytes(), file, lambda record, arrays: arrays["model.ranking_"].fill(1))
    assert_refused(file, "ranking", readers=[load_model])


def test_pipelines_that_do_not_fit_together_are_refused(file):
    X, y = make_blobs(30, n_features=6, centers=2, random_state=0)
    save_model(make_pipeline(StandardScaler(), EnFS(2), KPCA(2)).fit(X, y), file)
    whole = file.read_bytes()

    def reorder(order):
        def change(record, arrays):
            steps = record["model"]["fields"]["steps"]
            record["model"]["fields"]["steps"] = [copy.deepcopy(steps[i]) for i in order]

        return change

    for order in ([2, 0, 1], [0, 2, 1], [0, 0, 1, 2], []):
        changed(whole, file, reorder(order))
        assert_refused(file, "is not a valid model", readers=[load_model])
    changed(whole, file, lambda record, arrays: record["model"]["parameters"].update(memory="cache"))
    assert_refused(file, "is not a valid model", readers=[load_model])


@pytest.fixture(scope="module")
def table_model():
    """A model of a table with 2 x 2 images, a number that is often missing, two levels and a text: 11 columns."""
    rng = np.random.default_rng(0)
    N = rng.standard_normal((30, 5))
    N[::3, 4] = np.nan
    columns = (
        Column("size", "number"),
        Column("town", "category", levels=("Ulm", "Bonn")),
        Column("note", "text"),
        Column("id", "ignored"),
    )
    encoder = TableEncoder(
        columns=columns,
        scaling="each",
        matrix_columns=4,
        image_shape=(2, 2),
        kernel="rbf",
        numbers=Numbers.learn([N], "each", np.zeros(5, dtype=bool), flag=True),
        counts=None,
        words=(Words.learn(np.array(["sun and rain", "rain and snow", "snow and sun"] * 10, dtype=object)),),
    )
    classifier = LDSUClassifier(LDSU(min_anchors=5)).fit(*points(encoder.n_points_columns))
    return TableModel(encoder, classifier, "season", {"rows": 30})


def points(n_columns):
    X, y = make_blobs(30, n_features=n_columns, centers=2, random_state=0)
    return X, few_labels(y, 3)


def shorter_numbers(encoder, arrays):
    for name in ("fill", "center", "scale"):
        arrays[f"model.encoder.numbers.{name}"] = arrays[f"model.encoder.numbers.{name}"][:-1]


def without_numbers(encoder, arrays):
    encoder["numbers"] = None
    for name in ("fill", "center", "scale", "flagged"):
        del arrays[f"model.encoder.numbers.{name}"]


def set_column(number, **values):
    def change(encoder, arrays):
        one_by_one(encoder)
        encoder["columns"][number]["fields"].update(values)

    return change


def one_by_one(encoder):
    """Columns as format 1 stored them."""
    columns = encoder["columns"]
    if isinstance(columns, dict):
        encoder["columns"] = [
            {**columns["different"][int(place)], "fields": {**columns["different"][int(place)]["fields"], "name": name}}
            for name, place in zip(columns["names"].split("\n"), columns["places"].split(" "), strict=True)
        ]


def set_columns(**values):
    return lambda encoder, arrays: encoder["columns"].update(values)


def set_array(name, values):
    return lambda encoder, arrays: arrays.update({f"model.encoder.{name}": np.array(values)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shorter_numbers, "it has 5 columns of numbers and encodes 4"),
        (without_numbers, "it has 5 columns of numbers and encodes 0"),
        (set_array("numbers.fill", [0.0] * 4), "has a length of 5 where 4 is needed"),
        (set_array("numbers.scale", [np.nan] * 5), "scale holds NaN"),
        (set_array("numbers.scale", [1.0, 1, 1, 1, 0]), "it divides a column by zero or less"),
        (
            lambda encoder, arrays: encoder["words"][0]["fields"].update(vocabulary=["a", "b", "c", "a"]),
            "it weighs 4 words and names 3",
        ),
        (lambda encoder, arrays: encoder.update(counts=encoder["words"][0]), "it has 5 columns of numbers"),
        (lambda encoder, arrays: encoder.update(matrix_columns=3), "it has 4 columns of numbers and encodes 5"),
        (lambda encoder, arrays: encoder.update(matrix_columns=-1), "matrix_columns is -1"),
        (lambda encoder, arrays: encoder.update(first_index=2), "first_index is 2"),
        (lambda encoder, arrays: encoder.update(words=[]), r"it has 1 column\(s\) of text and words for 0"),
        (
            lambda encoder, arrays: encoder["words"][0]["fields"].update(vocabulary=[]),
            r"1 column\(s\) of text and words for 0",
        ),
        (lambda encoder, arrays: encoder.update(words=2 * encoder["words"]), r"1 column\(s\) of text and words for 2"),
        (lambda encoder, arrays: encoder["words"][0]["fields"]["vocabulary"].pop(), "it weighs 4 words and names 3"),
        (lambda encoder, arrays: encoder["words"][0]["fields"]["vocabulary"].append(5), "not a list of texts"),
        (set_column(3, kind="text"), r"it has 2 column\(s\) of text and words for 1"),
        (set_column(3, kind="number"), "it has 6 columns of numbers and encodes 5"),
        (set_column(3, kind="eval"), "not one of number, time, category, text, ignored"),
        (set_columns(names="size\ntown\nnote"), "columns has 3 names for 4 columns"),
        (set_columns(names="size\ntown\nnote\nid\nage"), "columns has 5 names for 4 columns"),
        (set_columns(names="size\ntown\nnote\nsize"), "two of its columns have the same name"),
        (set_columns(names=""), "columns has 1 names for 4 columns"),
        (set_columns(names=["size"]), "not a list of names"),
        (set_columns(names="x", places=""), "columns has 1 names for 0 columns"),
        (set_columns(names="", places=""), "it has 4 columns of numbers and encodes 5"),
        (set_columns(places="0 1 2"), "columns has 4 names for 3 columns"),
        (set_columns(places="0 1 2 4"), "columns refers to columns that are missing"),
        (set_columns(places="0 1 2 -1"), "not a list of names"),
        (set_columns(places="0 1  3"), "columns refers to columns that are missing"),
        (set_columns(places=f"0 1 2 {'9' * 5000}"), "columns refers to columns that are missing"),
        (set_columns(places=[0, 1, 2, 3]), "not a list of names"),
        (set_columns(places="0 1 2 2"), r"it has 2 column\(s\) of text and words for 1"),
        (set_columns(different={}), "columns is a table of 0, not a list"),
        (set_columns(different=[]), "columns refers to columns that are missing"),
        (set_columns(different=[5] * 4), "columns.0 is 5, not an object"),
        (set_columns(more=5), "not a list of names"),
        (lambda encoder, arrays: encoder.update(columns={}), "not a list of names"),
        (set_array("numbers.flagged", [5]), "it flags a column that does not exist"),
        (set_array("numbers.flagged", [2**62]), "it flags a column that does not exist"),
        (set_array("numbers.flagged", [-1]), "flagged goes down to -1"),
        (set_array("numbers.flagged", [4.0]), "not an array of whole numbers"),
        (set_column(1, name="size"), "two of its columns have the same name"),
        (set_column(3, name="note"), "two of its columns have the same name"),
        (lambda encoder, arrays: encoder.update(image_shape=[2, 3]), "its images do not have 4 pixels"),
        (lambda encoder, arrays: encoder.update(image_shape=[2, 2, 3]), "its images do not have 4 pixels"),
        (lambda encoder, arrays: encoder.update(image_shape=[-2, -2]), "not the shape of an image"),
        (lambda encoder, arrays: encoder.update(image_shape=[2, 2, 1]), "not the shape of an image"),
        (lambda encoder, arrays: encoder.update(image_shape="2x2"), "not the shape of an image"),
        (set_column(1, levels=["Ulm"]), "its classifier requires 11 columns, but gets 10"),
        (set_array("numbers.flagged", [0, 4]), "its classifier requires 11 columns, but gets 12"),
        (lambda encoder, arrays: encoder.update(kernel="precomputed"), "not one of rbf, cosine, linear"),
        (lambda encoder, arrays: encoder.update(scaling="eval"), "not one of each, common, counts, none"),
    ],
)
def test_tables_whose_columns_do_not_fit_together_are_refused(change, message, table_model, file):
    save_model(table_model, file)
    load_model(file)
    changed(
        file.read_bytes(),
        file,
        lambda record, arrays: change(record["model"]["fields"]["encoder"]["fields"], arrays),
    )
    assert_refused(file, f"is not a valid model: .*{message}", readers=[load_model])


def test_a_file_that_stores_columns_one_by_one_loads_as_before(table_model, file):
    save_model(table_model, file)
    described = describe_model(file)["model"]
    changed(file.read_bytes(), file, lambda record, arrays: one_by_one(record["model"]["fields"]["encoder"]["fields"]))
    header, data = taken_apart(file.read_bytes())
    header["__metadata__"]["format"] = "1"
    file.write_bytes(raw(header, data))
    assert load_model(file).encoder.columns == table_model.encoder.columns
    assert describe_model(file)["model"] == described


@pytest.mark.parametrize("reader", [load_model, describe_model])
def test_memory_for_very_many_columns_is_asked_for_first(reader, table_model, file, monkeypatch):
    save_model(table_model, file)
    n = 10**6

    def many(record, arrays):
        columns = record["model"]["fields"]["encoder"]["fields"]["columns"]
        columns.update(names="\n" * (n - 1), places="0 " * (n - 1) + "0")

    changed(file.read_bytes(), file, many)
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 2**28)
    with pytest.raises(MemoryError, match=r"A model of 1,000,000 columns needs about 0\.7 GiB"):
        reader(file)


def test_tables_with_a_classifier_that_is_not_theirs_are_refused(table_model, file):
    save_model(replace(table_model, classifier=LDSUClassifier(LDSU(min_anchors=5)).fit(*points(7))), file)
    assert_refused(file, "its classifier requires 7 columns, but gets 11", readers=[load_model])
    save_model(replace(table_model, classifier=LDSUClassifier(classifier=LinearSVC()).fit(*points(11))), file)
    assert_refused(file, "its classifier has no probabilities", readers=[load_model])
    save_model(table_model, file)
    whole = file.read_bytes()
    for place, value in (("class", "LDSUClassifier"), ("classifier.class", "Pipeline"), ("label", 5), ("about", [])):
        changed(whole, file, lambda record, arrays, place=place, value=value: set_in(record["model"], place, value))
        assert_refused(file, "is not a valid model", readers=[load_model])


def test_records_within_records_without_end_are_refused(sound, file):
    def nest(record, arrays):
        inner = record["model"]
        for _ in range(60):
            inner = {
                "class": "Pipeline",
                "parameters": {},
                "fields": {"steps": [["a", {"either": 0, "value": inner}]]},
            }
        record["model"] = inner

    changed(sound, file, nest)
    assert_refused(file, "nested too deeply", readers=[load_model])

    def nest_parameter(record, arrays):
        inner = None
        for _ in range(60):
            inner = {"list": [inner]}
        record["model"]["parameters"]["classifier"] = inner

    changed(sound, file, nest_parameter)
    assert_refused(file, "nested too deeply", readers=[load_model])


BOMBS = {
    "brackets": b"{" + b"[" * 50_000_000,
    "text": b'{"__metadata__":{"format":"1","sha256":"","ldsu":"' + b"[" * 50_000_000 + b'"}}',
    "lists": b'{"x":[' + b"[]," * 16_000_000 + b"[]]}",
    "tables": b'{"x":[' + b'{"":0},' * 7_000_000 + b"0]}",
    "numbers": b'{"x":[' + b"1.5," * 12_000_000 + b"0]}",
    "digits": b'{"x":' + b"9" * 50_000_000 + b"}",
}
JAIL = """
import sys
from pathlib import Path
from ldsu.io import ModelError, load_model, describe_model
import sklearn.linear_model, ldsu.classifier
def peak():  # KiB; unlike ru_maxrss it does not begin with that of the process that started this one
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
before = peak()
for path in sys.argv[1:]:
    for reader in (load_model, describe_model):
        try:
            reader(path)
        except ModelError as error:
            assert len(str(error)) < 400, error
        else:
            raise SystemExit(path + " was read")
print((peak() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_bombs_are_refused_in_little_memory(tmp_path):
    for name, header in BOMBS.items():
        (tmp_path / name).write_bytes(raw(header))
    with (tmp_path / "hole").open("wb") as opened:  # 2**44 bytes that take no room on disk, but would in memory
        opened.write(raw({"x": {"dtype": "F64", "shape": [2**41], "data_offsets": [0, 2**44]}}))
        opened.truncate(2**43)
    for path in sorted(tmp_path.iterdir()):
        done = subprocess.run([sys.executable, "-c", JAIL, path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr[-2000:]
        assert int(done.stdout) < 300, path.name


def test_model_larger_than_memory_is_refused_before_it_is_read(file):
    header = {"__metadata__": {"format": "1", "ldsu": "{}", "sha256": "0" * 64}}
    header["x"] = {"dtype": "F64", "shape": [2**40], "data_offsets": [0, 2**43]}
    with file.open("wb") as opened:
        opened.write(raw(header))
        opened.truncate(opened.tell() + 2**43)
    with pytest.raises(MemoryError, match=r"8192\.0 GiB"):
        load_model(file)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("forest.left", lambda array: np.zeros_like(array)),  # a cycle: no way would end
        ("forest.right", lambda array: array[::-1].copy()),
        ("forest.left", lambda array: array + array.size),
        ("forest.roots", lambda array: array + 10**6),
        ("forest.feature", lambda array: array + 99),
        ("forest.columns", lambda array: array + 99),
        ("forest.leaf", lambda array: array + 10**6),
        ("forest.values", lambda array: array + 2),
        ("forest.values", lambda array: array[:, :-1]),
        ("weights", lambda array: array[:1]),
        ("scaling.center", lambda array: array[:-1]),
        ("laplacian.points", lambda array: array[:-1]),
        ("laplacian.coefficients", lambda array: np.full_like(array, np.nan)),
        ("linear.coefficients", lambda array: array[:-1]),
    ],
)
def test_trees_and_kernels_that_are_none_are_refused(name, change, file):
    X = np.random.default_rng(0).standard_normal((60, 4))
    model = LDSUClassifier(LDSU(min_anchors=5)).fit(X, few_labels(X[:, :3].argmax(axis=1), 3))
    save_model(model, file)
    name = f"model.supervised_.{name}"
    changed(file.read_bytes(), file, lambda record, arrays: arrays.update({name: change(arrays[name])}))
    assert_refused(file, "is not a valid model", readers=[load_model])
