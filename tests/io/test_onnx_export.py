"""Models as ONNX graphs: onnxruntime gives what the library gives."""

import json

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import ldsu
from conftest import few_labels
from ldsu import KDA, KPCA, LDSU, METHODS, BlockScaler, EnFS, LabelledOnly, LDSUClassifier
from ldsu.io.onnx_export import Graph, export_onnx, graph_outputs, to_onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

KERNELS = ["rbf", "laplacian", "linear", "poly", "cosine", "chi2"]


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    contents = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(contents, options, providers=["CPUExecutionProvider"])


def run(model, X, **options):
    """Outputs by name, as onnxruntime computes them with all of its optimisations."""
    opened = session(to_onnx(model, **options))
    names = [output.name for output in opened.get_outputs()]
    return dict(zip(names, opened.run(None, {"X": np.asarray(X, dtype=np.float64)}), strict=True))


def assert_close(actual, expected, tolerance=1e-10):
    """Equal up to rounding, relative to the largest value."""
    assert actual.shape == expected.shape
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(np.abs(expected).max(initial=0), 1e-300))


def assert_same_decisions(outputs, model, X):
    np.testing.assert_array_equal(outputs["label"], model.predict(X))
    assert_close(outputs["probability"], model.predict_proba(X))
    margin, familiarity = model.confidence(X)
    np.testing.assert_allclose(outputs["confidence"], margin, rtol=0, atol=1e-10)
    np.testing.assert_allclose(outputs["familiarity"], familiarity, rtol=0, atol=1e-12)
    assert_close(outputs["features"], model.features_.transform(X))


@pytest.fixture(scope="module")
def many_digits():
    """150 digits to learn from with five labels per class, and 150 others."""
    X, y = load_digits(return_X_y=True)
    return X[:150], few_labels(y[:150], 5), X[150:300]


@pytest.mark.parametrize("name", METHODS)
def test_features_of_every_method_on_digits(name, many_digits):
    X, y, X_new = many_digits
    model = METHODS[name]().fit(X, y)
    outputs = run(model, X_new)
    assert list(outputs) == ["features"]
    assert_close(outputs["features"], model.transform(X_new))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["LDSU", "KPCA"])
def test_features_of_every_kernel_on_digits(name, kernel, many_digits):
    X, y, X_new = many_digits
    model = METHODS[name](n_components=20 if name == "KPCA" else None, kernel=kernel).fit(X, y)
    assert_close(run(model, X_new)["features"], model.transform(X_new))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_batches_of_few_rows(kernel, rows, many_digits):
    X, y, X_new = many_digits
    model = LDSUClassifier(LDSU(kernel=kernel)).fit(X, y)
    outputs = run(model, X_new[:rows])
    assert outputs["probability"].shape == (rows, 10)
    assert outputs["label"].shape == outputs["confidence"].shape == outputs["familiarity"].shape == (rows,)
    if rows:
        assert_same_decisions(outputs, model, X_new[:rows])


@pytest.mark.parametrize("kernel", ["cosine", "chi2", "rbf"])
def test_rows_of_zeros(kernel, many_digits):
    X, y, _ = many_digits
    X = np.vstack([np.zeros(64), X[1:]])
    model = KPCA(5, kernel=kernel).fit(X, y)
    zeros = np.vstack([np.zeros((2, 64)), np.full((1, 64), 1e-17)])
    assert_close(run(model, zeros)["features"], model.transform(zeros))


def test_common_offset_does_not_drown_distances(blobs):
    X, y = blobs[0] + 1e6, blobs[1]
    model = LDSU().fit(X, y)
    assert_close(run(model, X)["features"], model.transform(X))


@pytest.mark.parametrize("name", METHODS)
def test_decisions_of_a_classifier_on_every_method(name, many_digits):
    X, y, X_new = many_digits
    model = LDSUClassifier(METHODS[name]()).fit(X, y)
    outputs = run(model, X_new)
    np.testing.assert_array_equal(outputs["label"], model.predict(X_new))
    assert_close(outputs["probability"], model.predict_proba(X_new))


@pytest.mark.parametrize("per_class", [1, 5, 25])
@pytest.mark.parametrize(
    "parameters", [{}, {"standardize_scores": False}, {"class_shares": "equal"}], ids=["auto", "raw", "shares"]
)
def test_decisions_with_few_and_many_labels(per_class, parameters):
    X, y = load_digits(return_X_y=True)
    X, X_new = X[:300], X[300:500]
    model = LDSUClassifier(**parameters).fit(X, few_labels(y[:300], per_class))
    outputs = run(model, X_new)
    assert list(outputs) == ["label", "probability", "confidence", "familiarity", "scores", "features"]
    assert_same_decisions(outputs, model, X_new)
    assert_same_decisions(run(model, X), model, X)  # as familiar as it says, training rows too


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("per_class", [1, 6])
def test_decisions_of_pooled_classifiers(per_class, n_classes):
    X = np.random.default_rng(0).standard_normal((150, 7))
    y = X[:, :n_classes].argmax(axis=1)
    model = LDSUClassifier().fit(X[:100], few_labels(y[:100], per_class))
    assert model.supervised_ is not None
    assert_same_decisions(run(model, X), model, X)


@pytest.mark.parametrize(
    "names",
    [np.array([7, 11]), np.array(["nein", "ja, größer"]), np.array([False, True]), np.array([1.0, 2.0])],
    ids=["int", "text", "bool", "float"],
)
def test_two_classes_with_labels_of_every_type(names, blobs):
    X = blobs[0]
    y = np.array([names[code % 2] if code >= 0 else None for code in blobs[1]], dtype=object)
    model = LDSUClassifier().fit(X, y)
    graph = to_onnx(model)
    outputs = run(model, X)
    assert outputs["probability"].shape == (60, 2)
    assert outputs["label"].tolist() == model.predict(X).tolist()
    assert outputs["label"].dtype == (object if names.dtype.kind == "U" else np.int64)
    assert_close(outputs["probability"], model.predict_proba(X))
    (classes,) = (json.loads(prop.value) for prop in graph.metadata_props if prop.key == "classes")
    assert classes == model.classes_.tolist()


def test_rows_far_from_everything_have_nearly_equal_probabilities(blobs):
    X, y = blobs
    model = LDSUClassifier().fit(X, y)
    far = X[:3] + 1e4
    outputs = run(model, far)
    np.testing.assert_allclose(outputs["probability"], 1 / 3, atol=1e-6)
    assert_close(outputs["probability"], model.predict_proba(far), 1e-12)
    assert outputs["familiarity"].tolist() == [0, 0, 0]
    with pytest.warns(UserWarning, match="far from all training rows"):
        np.testing.assert_array_equal(outputs["label"], model.predict(far))


@pytest.mark.parametrize("classifier", [LinearSVC(), LogisticRegression(), RidgeClassifier()])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_other_linear_classifiers(classifier, n_classes, blobs):
    X, y = blobs[0], np.where(blobs[1] >= n_classes, -1, blobs[1])
    model = LDSUClassifier(classifier=classifier).fit(X, y)
    outputs = run(model, X)
    assert list(outputs) == ["label", "scores", "features"]
    np.testing.assert_array_equal(outputs["label"], model.predict(X))
    assert_close(outputs["scores"], model.decision_function(X).reshape(60, -1))
    pipeline = make_pipeline(StandardScaler(), KDA(), BlockScaler(), LabelledOnly(classifier)).fit(X, y)
    outputs = run(pipeline, X)
    np.testing.assert_array_equal(outputs["label"], pipeline.predict(X))
    assert_close(outputs["scores"], pipeline.decision_function(X).reshape(60, -1))


def test_pipelines(blobs):
    X, y = blobs[0] * [1, 10, 100, 1000, 1e4] + 50, blobs[1]
    for model in (
        make_pipeline(StandardScaler(), LDSUClassifier()),
        make_pipeline(BlockScaler(), LDSUClassifier(make_pipeline(StandardScaler(with_mean=False), EnFS(3), KDA()))),
    ):
        outputs = run(model.fit(X, y), X)
        np.testing.assert_array_equal(outputs["label"], model.predict(X))
        assert_close(outputs["probability"], model.predict_proba(X))
    model = make_pipeline(StandardScaler(), "passthrough", KPCA(2), BlockScaler()).fit(X, y)
    assert_close(run(model, X)["features"], model.transform(X))


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf"])
def test_a_single_column_keeps_double_precision(kernel):
    # onnxruntime would merge a single factor beside a matrix product into it, in single precision.
    X = np.random.default_rng(0).standard_normal((40, 1)) * np.pi
    for model in (
        make_pipeline(StandardScaler(), KPCA(1, kernel=kernel), BlockScaler()),
        make_pipeline(BlockScaler(), KPCA(1, kernel=kernel, gamma=0.1), BlockScaler(), BlockScaler()),
    ):
        assert_close(run(model.fit(X), X)["features"], model.transform(X), 1e-13)


def test_sparse_points_are_made_dense(monkeypatch):
    X = scipy.sparse.random_array((60, 30), density=0.2, format="csr", random_state=np.random.default_rng(0))
    model = LDSU().fit(X, np.where(np.arange(60) < 9, np.arange(60) % 3, -1))
    assert_close(run(model, X.toarray())["features"], model.transform(X))
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="60 points of 30 columns"):
        to_onnx(model)


def test_single_precision_models_are_as_good_as_their_numbers(blobs):
    X, y = blobs[0].astype(np.float32), blobs[1]
    model = LDSUClassifier().fit(X, y)
    outputs = run(model, X)
    np.testing.assert_array_equal(outputs["label"], model.predict(X))
    assert_close(outputs["probability"], model.predict_proba(X), 1e-5)


def test_file_names_its_producer_and_is_written_whole(tmp_path, blobs, monkeypatch):
    path = tmp_path / "model.onnx"
    export_onnx(LDSUClassifier().fit(*blobs), path)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert (model.producer_name, model.producer_version) == ("ldsu", ldsu.__version__)
    assert {one.domain: one.version for one in model.opset_import} == {"": 17, "ai.onnx.ml": 3}
    assert {prop.key: prop.value for prop in model.metadata_props}["model"] == "LDSUClassifier"
    before = path.read_bytes()
    with pytest.raises(ValueError, match="cannot be exported to ONNX"):
        export_onnx(SVC().fit(blobs[0], np.arange(60) % 2), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_outputs_are_those_asked_for(blobs):
    X, y = blobs
    model = LDSUClassifier().fit(X, y)
    assert list(run(model, X, outputs=["probability", "label"])) == ["probability", "label"]
    for wrong in (["proba"], []):
        with pytest.raises(
            ValueError, match="has the outputs label, probability, confidence, familiarity, scores, features"
        ):
            to_onnx(model, outputs=wrong)


def test_what_has_no_onnx_form_says_so(blobs):
    X = blobs[0]
    big, big_y = make_blobs(300, n_features=5, centers=3, random_state=0)
    sparse = LDSU(solver="sparse", n_landmarks=20, min_anchors=10, tol=0.1).fit(big, few_labels(big_y, 2))
    with pytest.raises(ValueError, match="nearest-neighbor search is not supported in ONNX; fit with solver='exact'"):
        to_onnx(sparse)
    with pytest.raises(ValueError, match="precomputed kernel is not supported in ONNX"):
        to_onnx(KPCA(kernel="precomputed").fit(X @ X.T))
    with pytest.raises(ValueError, match="kernel given as a function is not supported in ONNX"):
        to_onnx(KPCA(kernel=lambda a, b: float(a @ b)).fit(X))
    with pytest.raises(ValueError, match=r"SVC cannot be exported to ONNX .* LDSUClassifier"):
        to_onnx(make_pipeline(KPCA(2), SVC()).fit(X, np.arange(60) % 2))
    with pytest.raises(NotFittedError):
        to_onnx(LDSU())


def test_steps_may_be_put_before_a_model(blobs):
    X, y = blobs
    model = LDSUClassifier().fit(X, y)
    graph = Graph()
    colour = graph.input("colour", str, (None, 1))
    size = graph.input("size", np.float64, (None, 2))
    hot = graph.add("OneHotEncoder", [colour], domain="ai.onnx.ml", cats_strings=["red", "green", "blue"], zeros=1)
    hot = graph.add("Squeeze", [hot, graph.constant(np.array([1]))])
    numbers = graph.add("Cast", [hot], to=onnx.TensorProto.DOUBLE)
    missing = graph.add("IsNaN", [size])
    filled = graph.add("Where", [missing, graph.constant(np.array([1.5, 2.5])), size])
    outputs = graph_outputs(graph, model, graph.add("Concat", [filled, numbers], axis=1))
    opened = session(graph.finish({"label": outputs["label"]}, {"table": "trees"}))
    colours = np.array([["red"], ["blue"], ["violet"]], dtype=object)
    sizes = np.array([[0.1, 0.2], [np.nan, 3.0], [1.0, np.nan]])
    (labels,) = opened.run(None, {"colour": colours, "size": sizes})
    encoded = np.array([[0.1, 0.2, 1, 0, 0], [1.5, 3.0, 0, 0, 1], [1.0, 2.5, 0, 0, 0]])
    np.testing.assert_array_equal(labels, model.predict(encoded))


def test_equal_constants_are_carried_once():
    graph = Graph()
    assert graph.constant(np.eye(3)) == graph.constant(np.eye(3))
    assert graph.constant(np.eye(3)) != graph.constant(np.eye(3).astype(np.int64))
    assert graph.constant(np.zeros((1, 4))) != graph.constant(np.zeros((4, 1)))


def test_model_too_large_for_one_file_is_refused(monkeypatch, blobs):
    monkeypatch.setattr("ldsu.io.onnx_export.MAX_BYTES", 1000)
    with pytest.raises(ValueError, match=r"an ONNX file cannot hold.*save_model"):
        to_onnx(LDSU().fit(*blobs))
