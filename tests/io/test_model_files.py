"""Saved models: what comes back is what was saved."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from conftest import few_labels
from ldsu import KDA, KPCA, LDSU, METHODS, BlockScaler, EnFS, LabelledOnly, LDSUClassifier, LDSUSearch
from ldsu._utils.files import replacing
from ldsu.io import (
    ModelError,
    describe_model,
    load_model,
    read_container,
    read_record,
    save_model,
    write_container,
)
from ldsu.io._fields import ANYTHING, Array
from ldsu.io._objects import SCHEMAS, Objects, Schema
from ldsu.io._schemas import sample_rows
from ldsu.solvers import KernelExpansion
from ldsu.tables.encoder import TableEncoder
from ldsu.tables.model import TableModel
from ldsu.tables.table import Table

LINEAR = [RidgeClassifier, LogisticRegression, LinearSVC]


@pytest.fixture
def again(tmp_path):
    """A function that saves a model and loads it."""

    def save_and_load(model, **options):
        save_model(model, tmp_path / "model.ldsu")
        return load_model(tmp_path / "model.ldsu", **options)

    return save_and_load


def plain(answer):
    return answer.toarray() if scipy.sparse.issparse(answer) else np.asarray(answer)


def assert_same(loaded, model, X):
    """The same class, parameters and answers, to the last bit."""
    assert type(loaded) is type(model)
    assert repr(loaded) == repr(model)
    compared = 0
    for method in ("transform", "decision_function", "predict", "predict_proba"):
        if hasattr(model, method):
            before, after = plain(getattr(model, method)(X)), plain(getattr(loaded, method)(X))
            assert before.dtype == after.dtype
            np.testing.assert_array_equal(after, before)
            compared += 1
    assert compared
    for name in ("classes_", "eigenvalues_", "coef_", "anchors_", "transduction_", "score_scale_", "feature_names_in_"):
        if getattr(model, name, None) is not None:
            np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
            assert getattr(loaded, name).dtype == getattr(model, name).dtype


@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_back_exactly(name, again, blobs):
    X, y = blobs
    model = METHODS[name]().fit(X, y)
    loaded = again(model)
    assert_same(loaded, model, X + 0.1)
    assert loaded.get_params() == model.get_params()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_sparse_samples_comes_back_exactly(name, again):
    X = scipy.sparse.random_array((60, 20), density=0.3, format="csr", random_state=np.random.default_rng(0))
    y = np.where(np.arange(60) < 20, np.arange(60) % 3, -1)
    for kind in (scipy.sparse.csr_array, scipy.sparse.csr_matrix):
        model = METHODS[name]().fit(kind(X), y)
        loaded = again(model)
        assert_same(loaded, model, kind(X))
        if hasattr(model, "feature_map_"):
            assert type(loaded.feature_map_.points) is type(model.feature_map_.points)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "chi2", "linear", "poly", "cosine", "precomputed"])
@pytest.mark.parametrize("name", ["LDSU", "KPCA"])
def test_every_kernel_comes_back_exactly(name, kernel, again, blobs):
    X, y = np.abs(blobs[0]), blobs[1]
    samples = X @ X.T if kernel == "precomputed" else X
    model = METHODS[name](kernel=kernel).fit(samples, y)
    assert_same(again(model), model, samples[:7])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_precision_is_kept(dtype, again, blobs):
    X, y = blobs[0].astype(dtype), blobs[1]
    model = LDSUClassifier().fit(X, y)
    loaded = again(model)
    assert_same(loaded, model, X)
    assert loaded.features_.feature_map_.points.dtype == dtype


@pytest.mark.parametrize(
    "names",
    [
        np.array([3, 5, 11]),
        np.array([3, 5, 11], dtype=np.uint8),
        np.array([0.0, 1.0, 2.0], dtype=np.float32),
        np.array(["b", "ccc", "Ähre"]),
        np.array(["x", "yy\n", "\ud800"], dtype=object),
        np.array([False, True]),
    ],
    ids=["int64", "uint8", "float32", "text", "object", "bool"],
)
def test_labels_of_every_type_come_back(names, again, blobs):
    X, y = blobs[0], names[np.arange(60) % names.size]
    model = LDSUClassifier().fit(X, y)
    assert model.classes_.dtype == names.dtype
    loaded = again(model)
    assert loaded.classes_.tolist() == names.tolist()
    assert_same(loaded, model, X)


@pytest.mark.parametrize("estimator", LINEAR)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("intercept", [True, False])
def test_linear_classifiers_come_back_exactly(estimator, n_classes, intercept, again, blobs):
    X, y = blobs[0], np.array(["a", "b", "c"])[np.arange(60) % n_classes]
    model = estimator(fit_intercept=intercept).fit(X, y)
    assert_same(again(model), model, X)
    few = np.where(np.arange(60) < 30, y, None)
    assert_same(again(LabelledOnly(model).fit(X, few)), LabelledOnly(model).fit(X, few), X)


@pytest.mark.parametrize("scaler", [StandardScaler(), StandardScaler(with_mean=False), BlockScaler()])
def test_scalers_come_back_exactly(scaler, again, blobs):
    model = scaler.fit(blobs[0])
    assert_same(again(model), model, blobs[0])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("per_class", [1, 4])
def test_classifier_on_every_method_comes_back_exactly(name, per_class, again, blobs):
    X, y = blobs
    y = few_labels(np.where(y < 0, np.arange(60) % 3, y), per_class)
    model = LDSUClassifier(METHODS[name]()).fit(X, y)
    loaded = again(model)
    assert_same(loaded, model, X)
    for part, same in zip(loaded.confidence(X), model.confidence(X), strict=True):
        np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("classifier", [LinearSVC(), LogisticRegression(class_weight={0: 1.0, 1: 2.0})])
def test_classifier_with_another_linear_one_comes_back_exactly(classifier, again, blobs):
    model = LDSUClassifier(classifier=classifier, standardize_scores=True).fit(*blobs)
    loaded = again(model)
    assert_same(loaded, model, blobs[0])
    assert loaded.classifier.get_params() == classifier.get_params()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_pooled_classifiers_come_back_exactly(n_classes, sparse, again):
    X = np.round(np.maximum(np.random.default_rng(0).standard_normal((90, 6)), 0), 1)
    y = (X[:, :n_classes].argmax(axis=1)).astype(int)
    X = scipy.sparse.csr_array(X) if sparse else X
    model = LDSUClassifier().fit(X, few_labels(y, 5))
    assert model.supervised_ is not None
    loaded = again(model)
    assert_same(loaded, model, X)
    assert loaded.selection_ == model.selection_
    assert loaded.leave_one_out_accuracy_ == model.leave_one_out_accuracy_


def test_two_classes_come_back_exactly(again, blobs):
    X, y = blobs[0], np.where(blobs[1] == 2, -1, blobs[1])
    model = LDSUClassifier().fit(X, y)
    assert_same(again(model), model, X)


def test_pipelines_come_back_exactly(again, blobs):
    X, y = blobs
    for model in (
        make_pipeline(StandardScaler(), LDSUClassifier(KPCA(3))),
        make_pipeline(StandardScaler(), BlockScaler(), LDSU(), BlockScaler(), LabelledOnly(LinearSVC())),
        make_pipeline(EnFS(3), "passthrough", KDA()),
        LDSUClassifier(make_pipeline(StandardScaler(), LDSU(strength=3.0))),
    ):
        assert_same(again(model.fit(X, y)), model, X)


@pytest.mark.parametrize(
    ("n", "parameters", "in_cells"),
    [
        (3200, {}, False),
        (900, {"solver": "sparse"}, True),
        (900, {"solver": "sparse", "filter": "truncate", "n_components": 10}, True),
    ],
    ids=["auto", "cells", "truncate"],
)
def test_sparse_solver_comes_back_exactly(n, parameters, in_cells, again, monkeypatch):
    if in_cells:  # as with more than 8,000 rows
        monkeypatch.setattr("ldsu.neighbors._index.EXACT_ROWS", 500)
    X, y = make_blobs(n, n_features=6, centers=4, cluster_std=3.0, random_state=0)
    model = LDSU(n_landmarks=50, min_anchors=20, tol=0.1, **parameters).fit(X, few_labels(y, 2))
    assert model.solver_ == "sparse"
    assert (model.feature_map_.index.cells is not None) == in_cells
    loaded = again(model)
    np.testing.assert_array_equal(loaded.transform(X[:300] + 0.1), model.transform(X[:300] + 0.1))
    # The points are kept once, though the search refers to them too.
    assert loaded.feature_map_.index.X is loaded.feature_map_.points


@pytest.mark.parametrize("kernel", ["cosine", "chi2", "laplacian", "poly"])
def test_sparse_solver_of_sparse_samples_comes_back_exactly(kernel, again, monkeypatch):
    monkeypatch.setattr("ldsu.neighbors._index.EXACT_ROWS", 100)
    X = scipy.sparse.random_array((200, 40), density=0.3, format="csr", random_state=np.random.default_rng(0))
    y = np.where(np.arange(200) < 12, np.arange(200) % 3, -1)
    settings = {"n_landmarks": 20, "min_anchors": 12, "strength": 10.0}
    model = LDSU(solver="sparse", kernel=kernel, **settings).fit(X, y)
    assert scipy.sparse.issparse(model.feature_map_.points)
    assert_same(again(model), model, X)


def test_probe_of_the_sparse_solver_avoids_neighbors_that_rounding_chooses(tmp_path):
    grid = np.stack(np.meshgrid(np.arange(57.0), np.arange(57.0)), axis=-1).reshape(-1, 2)  # equal distances everywhere
    y = np.where(np.arange(len(grid)) % 400 == 0, grid[:, 0] > 28, -1)
    model = LDSU(n_landmarks=30, min_anchors=20, tol=0.1).fit(grid, y)
    save_model(model, tmp_path / "grid.ldsu")
    probe = read_record(tmp_path / "grid.ldsu")["probe"]
    if probe is not None:
        rows = read_container(tmp_path / "grid.ldsu")[1]["probe.rows"]
        for row in rows:
            distances = np.sort(((grid - row) ** 2).sum(axis=1))
            assert distances[16] > distances[15]
    load_model(tmp_path / "grid.ldsu")


def test_model_can_be_cloned_fitted_again_and_saved_again(again, tmp_path, blobs):
    X, y = blobs
    model = LDSUClassifier(KPCA(n_components=np.int64(3), gamma=np.float64(0.1))).fit(X, y)
    loaded = again(again(model))
    assert loaded.features.gamma == 0.1
    assert loaded.features is not loaded.features_
    assert not hasattr(loaded.features, "coef_")
    np.testing.assert_array_equal(clone(loaded).fit(X, y).predict_proba(X), model.predict_proba(X))


def test_order_in_memory_by_which_products_round_is_kept(again, blobs):
    for order in "CF":
        model = KPCA(3).fit(*blobs)
        model.coef_ = np.array(model.coef_, order=order)
        model.feature_map_ = replace(model.feature_map_, coefficients=model.coef_)
        loaded = again(model)
        assert loaded.coef_.flags[f"{order}_CONTIGUOUS"]
        assert loaded.coef_ is loaded.feature_map_.coefficients


def test_names_of_columns_and_the_container_of_features_are_kept(again, blobs):
    frame = pd.DataFrame(blobs[0], columns=["größe", "b", "c", "d", "e\n"])
    model = KPCA(2).set_output(transform="pandas").fit(frame)
    loaded = again(model)
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    pd.testing.assert_frame_equal(loaded.transform(frame), model.transform(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame[["b", "c", "d", "e\n", "größe"]])


def test_model_of_a_gpu_loads_on_the_cpu(again, blobs, monkeypatch):
    X, y = blobs
    model = LDSU().fit(X, y)
    expected = model.transform(X)
    model.device = "cuda"  # as a fit on a GPU leaves it: NumPy arrays, to be moved there
    model.feature_map_ = replace(model.feature_map_, device="cuda")
    monkeypatch.setitem(SCHEMAS, "LDSU", replace(SCHEMAS["LDSU"], rows=lambda model: None))  # which would need the GPU
    loaded = again(model)
    assert loaded.device == loaded.feature_map_.device == "cpu"
    np.testing.assert_array_equal(loaded.transform(X), expected)
    with pytest.raises(ValueError, match="device = 'tpu'"):
        again(model, device="tpu")


def test_file_is_a_safetensors_file_of_about_the_arrays_size(tmp_path, digits):
    safe_open = pytest.importorskip("safetensors").safe_open
    X, y = digits
    model = LDSUClassifier(supervised=False).fit(X, y)
    path = tmp_path / "digits.ldsu"
    save_model(model, path)
    with safe_open(path, "np") as file:
        points = file.get_tensor("model.features_.feature_map_.points")
        assert file.metadata()["format"] == "2"
        stored = sum(file.get_tensor(name).nbytes for name in file.keys())  # noqa: SIM118
    np.testing.assert_array_equal(points, X)
    kept = model.features_.coef_.nbytes + X.nbytes + model.classifier_.coef_.nbytes
    assert kept < stored < path.stat().st_size < 1.2 * kept


def test_digits_model_loads_in_a_fifth_of_a_second(tmp_path):
    X, y = load_digits(return_X_y=True)
    save_model(LDSUClassifier().fit(X, few_labels(y, 1)), tmp_path / "digits.ldsu")
    load_model(tmp_path / "digits.ldsu")
    start = time.perf_counter()
    load_model(tmp_path / "digits.ldsu")
    assert time.perf_counter() - start < 0.2


def test_model_loads_in_another_process(tmp_path, blobs):
    model = LDSUClassifier().fit(*blobs)
    save_model(model, tmp_path / "model.ldsu")
    np.save(tmp_path / "X.npy", blobs[0])
    program = (
        "import sys, numpy as np\n"
        "class Missing:\n"  # as if these were not installed
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pyarrow', 'rich', 'click', 'safetensors', 'onnx'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from ldsu.io import load_model\n"
        "model = load_model('model.ldsu')\n"
        "np.save('answer.npy', model.predict_proba(np.load('X.npy')))\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    np.testing.assert_allclose(np.load(tmp_path / "answer.npy"), model.predict_proba(blobs[0]), rtol=0, atol=1e-12)


def test_writer_that_dies_half_way_leaves_the_old_file(tmp_path, blobs, monkeypatch):
    path = tmp_path / "model.ldsu"
    save_model(KDA().fit(*blobs), path)
    before = path.read_bytes()

    @contextmanager
    def failing(path, **options):
        with replacing(path, **options) as file:
            written = []

            class Full:
                def write(self, data):
                    written.append(data)
                    if len(written) > 3:
                        raise OSError(28, "No space left on device")
                    file.write(data)

            yield Full()

    monkeypatch.setattr("ldsu.io.container.replacing", failing)
    with pytest.raises(OSError, match="No space"):
        save_model(KPCA().fit(*blobs), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.ldsu"]


def test_description_needs_no_arrays_and_builds_nothing(tmp_path, blobs, monkeypatch):
    frame = pd.DataFrame(blobs[0], columns=list("abcde"))
    path = tmp_path / "model.ldsu"
    names = np.array(["ash", "birch", "cherry"], dtype=object)
    y = np.array([names[code] if code >= 0 else None for code in blobs[1]], dtype=object)
    save_model(
        make_pipeline(StandardScaler(), LDSUClassifier(KPCA(3))).fit(frame, y), path, about={"table": "trees.csv"}
    )
    path.write_bytes(path.read_bytes()[:-8] + b"damaged!")  # an array's last bytes
    for cls, method in ((LDSUClassifier, "__setattr__"), (KPCA, "__setattr__"), (KernelExpansion, "__init__")):
        monkeypatch.setattr(cls, method, lambda *_, **__: pytest.fail("it was built"))
    monkeypatch.setattr("ldsu.io.model_files.read_container", lambda path: pytest.fail("arrays were read"))
    description = describe_model(path)
    assert description["class"] == "Pipeline"
    assert description["classes"] == ["ash", "birch", "cherry"]
    assert description["n_features_in"] == 5
    assert description["feature_names"] == list("abcde")
    assert description["about"] == {"table": "trees.csv"}
    assert set(description["versions"]) == {"ldsu", "python", "numpy", "scipy", "scikit-learn"}
    classifier = description["model"]["fields"]["steps"]["ldsuclassifier"]
    assert classifier["changed"] == {"features": classifier["parameters"]["features"]}
    assert classifier["parameters"]["features"]["parameters"]["n_components"] == 3
    assert classifier["fields"]["features_"]["fields"]["feature_map_"]["fields"]["points"] == "float64 (60, 5)"
    assert sum(one["bytes"] for one in description["arrays"].values()) < description["bytes"] == path.stat().st_size
    json.dumps(description)


def test_model_that_answers_otherwise_than_when_it_was_saved_is_refused(tmp_path, blobs, monkeypatch):
    path = tmp_path / "model.ldsu"
    save_model(LDSU().fit(*blobs), path)
    called = KernelExpansion.__call__
    monkeypatch.setattr(KernelExpansion, "__call__", lambda self, X: called(self, X) * (1 + 1e-9))
    load_model(path)
    monkeypatch.setattr(KernelExpansion, "__call__", lambda self, X: called(self, X) * 1.03)
    with pytest.raises(ModelError, match=r"gives different features than when it was saved \(by 3e-02\).*numpy"):
        load_model(path)
    load_model(path, check=False)


def test_probe_goes_through_the_scalers_of_a_pipeline(tmp_path, blobs):
    X, y = blobs
    save_model(make_pipeline(StandardScaler(), BlockScaler(), LDSU()).fit(X, y), tmp_path / "model.ldsu")
    rows = read_container(tmp_path / "model.ldsu")[1]["probe.rows"]
    np.testing.assert_allclose(rows, X[[0, 30, 59]])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (KPCA(kernel=lambda x, y: float(x @ y)), "cannot store code.*rbf"),
        (KPCA(kernel_params={"weights": np.ones(3)}), r"kernel_params\['weights'\] is array.* cannot store"),
        (LDSUClassifier(classifier=SVC()), "SVC, which cannot be saved"),
        (LDSUClassifier(classifier=LinearSVC(random_state=np.random.RandomState(0))), "random_state"),
        (make_pipeline(StandardScaler(), KDA(), memory="cache"), "memory"),
        (SVC(), r"sklearn.svm._classes.SVC, which cannot be saved. Supported: LDSUClassifier, LDSU, KDA"),
    ],
    ids=["function", "array", "inner class", "generator", "cache", "class"],
)
def test_what_cannot_be_saved_says_so_and_leaves_no_file(model, message, tmp_path, blobs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(60) % 3
    with pytest.raises(ValueError, match=message):
        save_model(model.fit(blobs[0], y), tmp_path / "new" / "model.ldsu")
    assert not (tmp_path / "new").exists()


def test_numbers_of_every_width_are_saved(tmp_path, blobs):
    model = LDSU(lam=np.longdouble(2), gamma_scale=np.float16(0.5), min_anchors=np.uint8(9)).fit(*blobs)
    save_model(model, tmp_path / "model.ldsu", about={"share": np.longdouble(0.5)})
    loaded = load_model(tmp_path / "model.ldsu").get_params()
    assert [loaded[name] for name in ("lam", "gamma_scale", "min_anchors")] == [2.0, 0.5, 9]
    assert describe_model(tmp_path / "model.ldsu")["about"] == {"share": 0.5}


def test_keys_that_are_no_strings_are_named(tmp_path, blobs):
    with pytest.raises(ValueError, match=r"about\.runs has the key 3, but keys"):
        save_model(LDSU().fit(*blobs), tmp_path / "model.ldsu", about={"runs": {3: "a"}})


def test_search_is_saved_through_its_best_estimator(tmp_path, blobs):
    search = LDSUSearch(param_grid={"features__strength": [1.0, 10.0]}).fit(*blobs)
    with pytest.raises(ValueError, match="Save its best_estimator_"):
        save_model(search, tmp_path / "model.ldsu")


def test_subclass_of_a_known_class_is_not_taken_for_it(tmp_path, blobs):
    Other = type("KDA", (KDA,), {})
    with pytest.raises(ValueError, match="cannot be saved"):
        save_model(Other().fit(*blobs), tmp_path / "model.ldsu")


def test_model_that_is_not_fitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        save_model(LDSU(), tmp_path / "model.ldsu")
    with pytest.raises(ValueError, match="LDSU is a class"):
        save_model(LDSU, tmp_path / "model.ldsu")


@dataclass(frozen=True)
class Planned:
    plan: dict
    numbers: np.ndarray
    parts: list


def test_class_is_added_by_one_entry(again, tmp_path, monkeypatch, blobs):
    schema = Schema(
        __name__,
        {"plan": ANYTHING, "numbers": Array("f", "n"), "parts": Objects("BlockScaler", "KPCA")},
        constructed=True,
        rows=lambda model: sample_rows(model.parts[1]),
        tried=lambda model: model.parts[1],
    )
    monkeypatch.setitem(SCHEMAS, "Planned", schema)
    X = blobs[0]
    loaded = again(Planned({"columns": ["a", {"b": None}]}, np.arange(3.0), [BlockScaler().fit(X), KPCA(2).fit(X)]))
    assert loaded.plan == {"columns": ["a", {"b": None}]}
    assert loaded.numbers.tolist() == [0.0, 1.0, 2.0]
    assert loaded.parts[1].transform(X).shape == (60, 2)
    assert read_record(tmp_path / "model.ldsu")["probe"] is not None


def counts_table():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, (60, 300)) * (rng.random((60, 300)) < 0.02)
    return Table(Path("words.npz"), matrix=scipy.sparse.csr_array(counts.astype(float)))


def pixels_table(*shape):
    pixels = np.random.default_rng(0).integers(0, 256, (60, int(np.prod(shape))), dtype=np.uint8)
    return Table(Path("images"), matrix=pixels, image_shape=shape)


@pytest.mark.parametrize(
    "table", [counts_table(), pixels_table(3, 2), pixels_table(3, 2, 3)], ids=["counts", "gray images", "colored"]
)
def test_models_of_counts_and_images_come_back_exactly(table, again, tmp_path, blobs):
    encoder = TableEncoder.learn(table)
    classes = np.array(["a", "b", "c"], dtype=object)
    y = np.array([classes[code] if code >= 0 else None for code in blobs[1]], dtype=object)
    model = TableModel(encoder, LDSUClassifier().fit(encoder.transform(table), y), "kind", {"file": "ä", "rows": 60})
    loaded = again(model)
    assert type(loaded) is TableModel
    assert loaded.encoder.image_shape == table.image_shape
    assert (loaded.encoder.counts is None) == (table.image_shape is not None)
    assert (loaded.label, loaded.about) == (model.label, model.about)
    np.testing.assert_array_equal(loaded.encoder.transform(table), encoder.transform(table))
    for after, before in zip(loaded.predict(table), model.predict(table), strict=True):
        np.testing.assert_array_equal(after, before)
    assert loaded.encoder.decisions() == encoder.decisions()
    assert read_record(tmp_path / "model.ldsu")["probe"] is not None
    assert describe_model(tmp_path / "model.ldsu")["classes"] == ["a", "b", "c"]


@pytest.mark.parametrize("shape", [(0,), (3,), (0, 5), (2, 3), (2, 0, 3)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u1", "?", ">f8"])
def test_arrays_of_every_type_and_shape_come_back(shape, dtype, tmp_path):
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    for order in (array, np.asfortranarray(array), np.repeat(array, 2, axis=-1)[..., ::2]):
        write_container(tmp_path / "a", {"x": [1, "ä", None]}, {"b.c": order, "a": np.ones(3, dtype="u1")})
        record, arrays = read_container(tmp_path / "a")
        assert record == {"x": [1, "ä", None]}
        np.testing.assert_array_equal(arrays["b.c"], array)
        assert arrays["b.c"].flags.writeable
        assert arrays["b.c"].shape == shape


@pytest.mark.parametrize(
    ("record", "arrays", "message"),
    [
        ({"x": float("nan")}, {}, "not JSON compliant|Out of range"),
        ({}, {"../x": np.ones(1)}, "named by words"),
        ({}, {"x": np.ones(1, dtype=complex)}, "complex128"),
        ({"x": list(range(1_000_001))}, {}, "fewer or shorter names"),
    ],
)
def test_what_could_not_be_read_is_not_written(record, arrays, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_container(tmp_path / "a", record, arrays)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", ["1", "2"])
def test_files_of_every_format_load_and_are_saved_with_the_same_arrays(number, tmp_path):
    path = Path(__file__).parent / "data" / f"table-format{number}.ldsu"  # written when that format was current
    assert f'"format":"{number}"'.encode() in path.read_bytes()[:100]
    model = load_model(path)
    assert describe_model(path)["classes"] == model.classifier.classes_.tolist() == ["a", "b"]
    assert [column.name for column in model.encoder.columns] == ["size", "town", "note"]
    assert model.encoder.columns[1].levels == ("Bonn", "Kiel", "Ulm")
    assert model.classifier.transduction_.tolist() == ["a", "b"] * 12
    save_model(model, tmp_path / "again.ldsu")
    before, after = read_container(path)[1], read_container(tmp_path / "again.ldsu")[1]
    assert set(before) == set(after)
    for name, array in before.items():
        assert after[name].dtype == array.dtype
        np.testing.assert_allclose(after[name], array, rtol=1e-6 if name.startswith("probe.") else 0)


def test_parameters_that_versions_of_scikit_learn_do_not_share_are_settled_here(tmp_path, blobs):
    path = tmp_path / "model.ldsu"
    save_model(LogisticRegression().fit(blobs[0], np.arange(60) % 3), path)
    record, arrays = read_container(path)
    parameters = record["model"]["parameters"]
    parameters |= {"multi_class": "ovr", "penalty": "deprecated"}  # some have the first, some say the second
    del parameters["max_iter"]
    write_container(path, record, arrays)
    kept = {"multi_class": "ovr"} if "multi_class" in LogisticRegression().get_params() else {}  # old ones keep it
    assert repr(load_model(path)) == repr(LogisticRegression(**kept))
    parameters["of_tomorrow"] = 1
    write_container(path, record, arrays)
    with pytest.raises(ModelError, match=r"'of_tomorrow', which is unknown in this version.*pip install -U"):
        load_model(path)
