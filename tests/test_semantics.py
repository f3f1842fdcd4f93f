"""What the methods promise about rows, labels, dtypes, threads and containers."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from threadpoolctl import threadpool_info, threadpool_limits

from conftest import few_labels
from ldsu import KDA, LDSU, METHODS, LabelledOnly, LDSUClassifier, Problem, encode_labels
from ldsu.kernels import Kernel
from ldsu.solvers import smooth_features

TRANSFORMERS = [
    *[cls() for cls in METHODS.values()],
    LDSU(filter="truncate"),
    LDSU(filter="heat"),
    LDSU(kernel="cosine", filter="truncate"),
]
every_method = pytest.mark.parametrize("method", TRANSFORMERS, ids=repr)


def assert_close(ours, theirs, atol):
    np.testing.assert_allclose(ours, theirs, atol=atol * max(1.0, np.abs(theirs).max()))


@every_method
def test_permuting_rows_permutes_features(digits, method):
    X, y = digits
    order = np.random.default_rng(1).permutation(len(X))
    straight = clone(method).fit_transform(X, y)
    permuted = clone(method).fit_transform(X[order], y[order])
    assert_close(permuted, straight[order], 1e-7)


@pytest.mark.parametrize("filter", ["truncate", "tikhonov", "heat"])
def test_permuting_rows_permutes_features_without_labels(digits, filter):
    X, _ = digits
    order = np.random.default_rng(1).permutation(len(X))
    straight, permuted = LDSU(filter=filter).fit_transform(X), LDSU(filter=filter).fit_transform(X[order])
    assert_close(permuted, straight[order], 1e-7)


@every_method
def test_fit_transform_is_fit_then_transform(digits, method):
    X, y = digits
    assert_close(clone(method).fit_transform(X, y), clone(method).fit(X, y).transform(X), 1e-8)


@every_method
def test_transform_of_a_row_does_not_depend_on_its_company(digits, method):
    X, y = digits
    model = clone(method).fit(X, y)
    assert_close(np.vstack([model.transform(X[i : i + 1]) for i in range(9)]), model.transform(X)[:9], 1e-9)


@every_method
def test_two_fits_are_equal_to_the_bit(digits, method):
    X, y = digits
    np.testing.assert_array_equal(clone(method).fit_transform(X, y), clone(method).fit_transform(X, y))


@every_method
def test_thread_count_does_not_change_the_result(digits, method):
    X, y = load_digits(return_X_y=True)
    X = X[:400] / 16 + 1e-3 * np.random.default_rng(0).standard_normal((400, 64))
    y = few_labels(y[:400], 3)
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert all(pool["num_threads"] == threads for pool in threadpool_info() if pool["user_api"] == "blas")
            results.append(clone(method).fit_transform(X, y))
    assert_close(results[0], results[1], 1e-6)


@every_method
def test_label_names_do_not_matter(digits, method):
    X, y = digits
    names = np.array([f"class {label}" if label >= 0 else None for label in y], dtype=object)
    np.testing.assert_array_equal(clone(method).fit_transform(X, names), clone(method).fit_transform(X, y))


@every_method
def test_all_labelled_and_one_label_per_class_work(digits, method):
    X, _ = digits
    full = np.arange(len(X)) % 4
    single = np.full(len(X), -1)
    single[:4] = range(4)
    for labels in (full, single):
        assert np.all(np.isfinite(clone(method).fit_transform(X, labels)))


@every_method
@pytest.mark.parametrize("labels", [None, "all -1"])
def test_without_labels_a_method_works_or_says_why_not(digits, method, labels):
    X, y = digits
    y = None if labels is None else np.full_like(y, -1)
    if get_tags(method).target_tags.required:
        with pytest.raises(ValueError, match=r"requires y|needs labels of at least 2 classes"):
            clone(method).fit(X, y)
    else:
        assert np.all(np.isfinite(clone(method).fit_transform(X, y)))


@every_method
def test_one_class_works_or_is_named(digits, method):
    X, y = digits
    one = np.where(y == 3, 3, -1)
    if get_tags(method).target_tags.required:
        with pytest.raises(ValueError, match=r"at least 2 classes, but y has 1"):
            clone(method).fit(X, one)
    else:
        assert np.all(np.isfinite(clone(method).fit_transform(X, one)))


@every_method
def test_signs_are_fixed_by_the_largest_entry(digits, method):
    X, y = digits
    model = clone(method).fit(X, y)
    if hasattr(model, "coef_"):
        anchored = getattr(model, "anchors_", None) is not None
        columns = model.transform(X[model.anchors_]) if anchored else model.coef_
        assert np.all(columns[np.abs(columns).argmax(axis=0), np.arange(columns.shape[1])] > 0)


@every_method
def test_float32_stays_float32_and_means_the_same(digits, method):
    X, y = digits
    exact = LDSUClassifier(clone(method)).fit(X, y).decision_function(X)
    single = clone(method).fit(X.astype(np.float32), y)
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    scores = LDSUClassifier(clone(method)).fit(X.astype(np.float32), y).decision_function(X.astype(np.float32))
    assert np.corrcoef(scores.ravel(), exact.ravel())[0, 1] > 0.999


@every_method
@pytest.mark.parametrize("container", ["pandas", "polars", "csr_array", "csr_matrix", "list"])
def test_every_container_gives_the_same_features(digits, method, container):
    X, y = digits
    names = [f"pixel{i}" for i in range(X.shape[1])]
    wrapped = {
        "pandas": lambda: pd.DataFrame(X, columns=names),
        "polars": lambda: pl.DataFrame(X, schema=names),
        "csr_array": lambda: scipy.sparse.csr_array(X),
        "csr_matrix": lambda: scipy.sparse.csr_matrix(X),
        "list": lambda: X.tolist(),
    }[container]()
    features = clone(method).fit(wrapped, y).transform(wrapped)
    features = features.toarray() if scipy.sparse.issparse(features) else np.asarray(features)
    assert_close(features, clone(method).fit_transform(X, y), 1e-7)


@every_method
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_set_output_names_the_features(digits, method, library):
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"pixel{i}" for i in range(X.shape[1])])
    model = clone(method).set_output(transform=library).fit(frame, y)
    result = model.transform(frame)
    assert list(result.columns) == list(model.get_feature_names_out())
    assert len(set(result.columns)) == result.shape[1]


@every_method
def test_the_callers_arrays_are_left_alone(digits, method):
    X, y = digits
    X_before, y_before = X.copy(), y.copy()
    X.flags.writeable = y.flags.writeable = False
    clone(method).fit(X, y).transform(X)
    np.testing.assert_array_equal(X, X_before)
    np.testing.assert_array_equal(y, y_before)


@every_method
def test_changing_the_samples_after_fit_does_not_change_the_model(digits, method):
    X, y = digits
    new = X[:5].copy()
    model = clone(method).fit(X, y)
    before = model.transform(new)
    X[:] = 0
    np.testing.assert_array_equal(model.transform(new), before)


def test_a_precomputed_kernel_is_left_alone(digits):
    X, y = digits
    K = X @ X.T
    before = K.copy()
    for name, method in METHODS.items():
        if name != "EnFS":
            method(kernel="precomputed").fit(K, y).transform(K)
    LDSU(kernel="precomputed", filter="truncate").fit(K, y)
    LDSU(kernel="precomputed", filter="truncate").fit(K, y, problem=Problem(K))
    np.testing.assert_array_equal(K, before)


@pytest.mark.parametrize("filter", ["truncate", "tikhonov", "heat"])
@pytest.mark.parametrize("kernel", ["rbf", "cosine", "precomputed"])
def test_a_reused_problem_gives_the_features_of_a_fresh_fit_without_the_kernel_again(digits, filter, kernel):
    X, y = digits
    X = X @ X.T if kernel == "precomputed" else X
    problem = Problem(X)
    LDSU(kernel=kernel, filter=filter, strength=100.0).fit(X, problem=problem)
    other = np.where(np.arange(y.size) % 3, y, -1)
    for parameters in ({"lam": 0.1}, {"theta": 1.0}, {"clique_size": 5}, {"n_components": 7}):
        for labels in (y, other):
            model = LDSU(kernel=kernel, filter=filter, strength=100.0, **parameters).fit(X, labels, problem=problem)
            assert not {"kernel", "decompose kernel"} & set(model.timings_)
            fresh = LDSU(kernel=kernel, filter=filter, strength=100.0, **parameters).fit(X, labels)
            assert_close(model.transform(X), fresh.transform(X), 1e-9)


@pytest.mark.parametrize("solver", ["exact", "sparse"])
def test_other_labels_on_a_problem_give_a_fresh_classifier(digits, solver):
    X, _ = digits
    problem = Problem(X)
    model, atol = LDSUClassifier(LDSU(solver=solver, tol=1e-10)), {"exact": 1e-9, "sparse": 1e-7}[solver]
    for per_class in (3, 4, 5):
        few = few_labels(load_digits().target[: len(X)], per_class)
        reused, fresh = clone(model).fit(X, few, problem=problem), clone(model).fit(X, few)
        assert_close(reused.decision_function(X), fresh.decision_function(X), atol)
        assert reused.features_.strength_ == fresh.features_.strength_
    repeated = set(reused.features_.timings_)
    assert not repeated & ({"kernel", "graphs"} if solver == "exact" else {"neighbors", "graphs"})


def spectral_features(model, X, y):
    """Features by the joint spectrum, whatever the fit has done."""
    codes, _ = encode_labels(y, len(y))
    settings = model._settings(len(y), model.strength_)
    return smooth_features(Problem(X), codes, Kernel(model.kernel, model.gamma_), settings, joint=True)[:]


@pytest.mark.parametrize("kernel", ["linear", "cosine"])
@pytest.mark.parametrize("strength", [1.0, 100.0, 1e4, 1e8])
def test_both_roads_agree_on_a_kernel_of_low_rank(kernel, strength):
    X, y = load_iris(return_X_y=True)
    few = few_labels(y, 5)
    direct = LDSU(kernel=kernel, strength=strength).fit(X, few)
    Z, W = direct.transform(X), spectral_features(direct, X, few)
    assert Z.shape[1] == W.shape[1] == 4
    assert_close(Z @ Z.T, W @ W.T, 1e-6)


def test_where_the_direct_solve_loses_accuracy_the_spectral_road_is_taken():
    X, y = load_digits(return_X_y=True)
    X, few = 16.0 * X[:300], few_labels(y[:300], 3)
    setting = {"kernel": "linear", "scaling": "absolute", "theta": 1e-4, "strength": 3e5}
    model = LDSU(**setting, store_graphs=True).fit(X, few)
    assert "decompose kernel" in model.timings_
    # K = X X^T, so that the filtered kernel is X (I + strength X^T M X)^-1 X^T: a small system.
    M = model.class_laplacian_ + model.clique_laplacian_
    Kt = X @ np.linalg.solve(np.eye(X.shape[1]) + 3e5 * (X.T @ (M @ X)), X.T)
    Z, labelled = model.transform(X), np.flatnonzero(few >= 0)
    np.testing.assert_allclose(Z[labelled] @ Z.T, Kt[labelled], atol=1e-5 * np.abs(Kt).max())


def test_a_problem_of_other_samples_is_refused(digits):
    X, y = digits
    problem = Problem(X)
    X[0, 0] += 1  # in place: the array is the same object
    with pytest.raises(ValueError, match="samples other than X"):
        LDSU().fit(X, y, problem=problem)
    for other in (X + 1, X[:-1], X.astype(np.float32)):
        with pytest.raises(ValueError, match="samples other than X"):
            LDSU().fit(other, y[: len(other)], problem=Problem(X))


def test_few_labels_get_landmarks_and_many_get_none(digits):
    X, y = digits
    labelled = np.flatnonzero(y >= 0)
    model = LDSU(min_anchors=50).fit(X, y)
    assert model.anchors_.size == 50
    np.testing.assert_array_equal(model.anchors_[: labelled.size], labelled)
    assert LDSU(min_anchors=10).fit(X, y).anchors_.size == labelled.size
    assert LDSU(min_anchors=10).fit(X).anchors_.size == 10


def test_landmarks_change_nothing_a_classifier_sees(digits):
    X, y = digits
    few, many = (make_pipeline(LDSU(min_anchors=q), LabelledOnly(RidgeClassifier(alpha=0.1))) for q in (1, 80))
    assert_close(few.fit(X, y).decision_function(X), many.fit(X, y).decision_function(X), 1e-6)


def test_n_components_counts_and_fractions(digits):
    X, y = digits
    n = len(X)
    for filter, available in (("truncate", n), ("tikhonov", min(200, n))):
        shapes = [LDSU(r, filter=filter).fit_transform(X, y).shape[1] for r in (1, 7, 0.5, 1.0, None, 10_000)]
        assert shapes == [1, 7, available // 2, available, available, available]
    assert KDA(3).fit_transform(X, y).shape == (n, 3)


def test_fewer_components_are_a_prefix_of_more(digits):
    X, y = digits
    for method in (LDSU, lambda r, **kw: LDSU(r, filter="truncate", **kw)):
        assert_close(method(5).fit_transform(X, y), method(20).fit_transform(X, y)[:, :5], 1e-9)


def test_stages_are_timed_and_printed(digits, capsys):
    X, y = digits
    model = LDSU(filter="truncate", verbose=True).fit(X, y)
    assert {"kernel", "graphs", "decompose kernel", "decompose graphs"} <= set(model.timings_)
    assert all(seconds >= 0 for seconds in model.timings_.values())
    assert "[LDSU] decompose kernel" in capsys.readouterr().err


def test_large_inputs_are_transformed_in_blocks(digits, monkeypatch):
    X, y = digits
    model = LDSU().fit(X, y)
    whole = model.transform(X)
    monkeypatch.setattr("ldsu.solvers._exact.BLOCK_BYTES", 8 * len(X) * 7)
    assert_close(model.transform(X), whole, 1e-12)


def test_real_integers_and_ties_are_no_obstacle():
    X, y = load_digits(return_X_y=True)
    Z = LDSU(filter="truncate").fit(X[:200], few_labels(y[:200], 3)).transform(X)
    assert np.all(np.isfinite(Z))
