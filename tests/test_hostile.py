"""Data that break other packages: a clear error or a documented result, never complex numbers, NaN, a LAPACK error."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier

from ldsu import LDSU, METHODS, BlockScaler, EnFS, LabelledOnly, LDSUClassifier, Problem

RNG = np.random.default_rng(0)
SETTINGS = [
    *[cls() for cls in METHODS.values()],
    LDSU(filter="truncate"),
    LDSU(filter="heat"),
    LDSU(kernel="linear"),
    LDSU(kernel="linear", filter="truncate"),
    LDSU(kernel="poly", filter="truncate"),
    LDSU(kernel="cosine"),
    LDSUClassifier(),
]
every_setting = pytest.mark.parametrize("method", SETTINGS, ids=repr)


def labels(n, c=3, per_class=2):
    y = np.full(n, -1)
    y[: c * per_class] = np.arange(c * per_class) % c
    return y


def features_or_scores(model, X):
    out = model.decision_function(X) if isinstance(model, LDSUClassifier) else model.transform(X)
    return out.toarray() if scipy.sparse.issparse(out) else out


def duplicates():
    return np.repeat(RNG.standard_normal((8, 4)), 5, axis=0)


HOSTILE = {
    "duplicate rows": (duplicates(), labels(40)),
    "all rows equal": (np.ones((12, 3)), labels(12)),
    "all zeros": (np.zeros((12, 3)), labels(12)),
    "constant columns": (np.hstack([RNG.standard_normal((30, 2)), np.ones((30, 4))]), labels(30)),
    "one column": (RNG.standard_normal((30, 1)), labels(30)),
    "rank one": (np.outer(RNG.standard_normal(30), np.ones(5)), labels(30)),
    "d much larger than n": (RNG.standard_normal((200, 50_000)), labels(200)),
    "d much larger than n, sparse": (
        scipy.sparse.random(200, 50_000, 1e-3, "csr", random_state=1),
        labels(200),
    ),
    "two points": (np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1])),
    "three points": (np.array([[0.0, 1.0], [1.0, 0.0], [5.0, 5.0]]), np.array([0, 1, -1])),
    "far outlier": (np.vstack([RNG.standard_normal((29, 3)), [[1e6, 1e6, 1e6]]]), labels(30)),
    "columns of very different size": (RNG.standard_normal((30, 3)) * [1e-8, 1.0, 1e8], labels(30)),
    "large values": (RNG.standard_normal((30, 3)) * 1e70, labels(30)),
    "small values": (RNG.standard_normal((30, 3)) * 1e-70, labels(30)),
    "labels against the data": (np.repeat(np.eye(3), 10, axis=0), np.arange(30) % 3),
}


@every_setting
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_data_give_finite_real_features(method, case):
    X, y = HOSTILE[case]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*too large for these data")
        warnings.filterwarnings("ignore", message="EnFS stopped after")
        try:
            model = clone(method).fit(X, y)
        except ValueError as error:
            assert case in ("all rows equal", "all zeros")
            assert re.search(r"kernel( matrix of X)? is zero|found no features", str(error))  # noqa: PT017
            return
    out = features_or_scores(model, X)
    assert out.size
    assert np.isrealobj(out)
    assert np.all(np.isfinite(out))


@every_setting
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(method, bad):
    X = RNG.standard_normal((20, 3))
    model = clone(method).fit(X, labels(20))
    X[3, 1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        clone(method).fit(X, labels(20))
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        features_or_scores(model, X)


@pytest.mark.parametrize("method", [*SETTINGS, BlockScaler(), LabelledOnly(RidgeClassifier())], ids=repr)
def test_masked_samples_are_refused_like_missing_ones(method):
    X = np.ma.masked_array(RNG.standard_normal((20, 3)))
    model = clone(method).fit(X, labels(20))  # without a masked entry it is an array like any other
    X[3, 1] = np.ma.masked
    with pytest.raises(ValueError, match="X is a masked array with 1 masked entries, which are missing values"):
        clone(method).fit(X, labels(20))
    if not isinstance(model, LabelledOnly):  # whose prediction is scikit-learn's
        with pytest.raises(ValueError, match="1 masked entries"):
            features_or_scores(model, X)


def test_a_problem_of_masked_samples_is_refused():
    X = np.ma.masked_invalid([[0.0, 1.0], [np.nan, 2.0], [3.0, 1.0]])
    with pytest.raises(ValueError, match="1 masked entries"):
        Problem(X)


@pytest.mark.parametrize("method", [LDSU(), EnFS(), LDSUClassifier()], ids=repr)
def test_masked_labels_are_no_labels(method):
    X, y = RNG.standard_normal((20, 3)), labels(20)
    wrong = np.ma.masked_array(np.where(y < 0, 0, y), y < 0)
    expected = features_or_scores(clone(method).fit(X, y), X)
    np.testing.assert_array_equal(features_or_scores(clone(method).fit(X, wrong), X), expected)


@every_setting
def test_values_whose_squares_overflow_are_refused_by_name(method):
    X = RNG.standard_normal((20, 3))
    X[0, 0] = 1e155
    with pytest.raises(ValueError, match=r"1e\+155.*Rescale the data"):
        clone(method).fit(X, labels(20))


@every_setting
@pytest.mark.parametrize("scale", [1e150, 1e-150])
def test_the_ends_of_the_range_work_or_are_refused_by_name(method, scale):
    X = RNG.standard_normal((20, 3)) * scale
    try:
        model = clone(method).fit(X, labels(20))
    except ValueError as error:
        assert "Rescale" in str(error) or "rescale X" in str(error)  # noqa: PT017
    else:
        assert np.all(np.isfinite(features_or_scores(model, X)))


@pytest.mark.parametrize("k", [60, 61, 1000])
@pytest.mark.parametrize("filter", ["truncate", "tikhonov"])
def test_cliques_of_all_points_work_and_larger_ones_are_cut_with_a_warning(blobs, k, filter):
    X, y = blobs
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = LDSU(clique_size=k, filter=filter).fit(X, y)
    assert model.clique_size_ == 60
    assert any("clique_size" in str(w.message) and "uses 60" in str(w.message) for w in caught) == (k > 60)


def test_neighbors_beyond_the_data_are_cut_with_a_warning(blobs):
    X, y = blobs
    for name in ("KSDA", "KLPP"):
        with pytest.warns(UserWarning, match="n_neighbors=500"):
            METHODS[name](n_neighbors=500).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"theta": 0.0}, "'theta' parameter of LDSU must be a float in the range"),
        ({"theta": -1.0}, "'theta' parameter"),
        ({"lam": -1.0}, "'lam' parameter"),
        ({"gamma": 0.0}, "'gamma' parameter"),
        ({"clique_size": 0}, "'clique_size' parameter"),
        ({"n_components": 0}, "'n_components' parameter"),
        ({"n_components": 1.5}, "'n_components' parameter"),
        ({"kernel": "poly", "degree": 2.5}, "'degree' parameter"),
        ({"kernel": "sigmoid"}, "'kernel' parameter"),
        ({"filter": "sharp"}, "'filter' parameter"),
        ({"solver": "magic"}, "'solver' parameter"),
    ],
)
def test_parameters_out_of_range_are_named(blobs, parameters, message):
    with pytest.raises(ValueError, match=message):
        LDSU(**parameters).fit(*blobs)


def test_a_kernel_that_is_not_one_is_refused_with_its_worst_eigenvalue(blobs):
    X, y = blobs
    K = X @ X.T - 50 * np.eye(len(X))
    lowest = np.linalg.eigvalsh(K)[0]
    for method in (LDSU(), LDSU(filter="truncate"), METHODS["KPCA"]()):
        method.set_params(kernel="precomputed")
        with pytest.raises(ValueError, match=f"smallest eigenvalue is {lowest:.6g}".replace("+", r"\+")):
            method.fit(K, y)
    with pytest.raises(ValueError, match="must be square"):
        LDSU(kernel="precomputed").fit(K[:, :10], y)


def test_a_kernel_function_that_fails_is_named(blobs):
    X, y = blobs
    with pytest.raises(ValueError, match="kernel function failed"):
        LDSU(kernel=lambda x: 1.0).fit(X, y)
    with pytest.raises(ValueError, match="is NaN or infinite"):
        LDSU(kernel=lambda x, y: np.nan).fit(X, y)


@pytest.mark.parametrize("strength", [1e10, 1e100, 1e300])
@pytest.mark.parametrize("filter", ["tikhonov", "heat"])
def test_extreme_strength_gives_finite_features_or_a_named_error(blobs, strength, filter):
    X, y = blobs
    try:
        Z = LDSU(filter=filter, strength=strength).fit_transform(X, y)
    except ValueError as error:
        assert "strength" in str(error)  # noqa: PT017
    else:
        assert np.all(np.isfinite(Z))


@pytest.mark.parametrize("parameters", [{"degree": 2000}, {"coef0": 1e200}, {"gamma": 1e200}])
def test_kernels_that_overflow_are_named_by_every_method(blobs, parameters):
    X, y = blobs
    for method in METHODS.values():
        if method is not EnFS:
            with pytest.raises(ValueError, match="is NaN or infinite"):
                method(kernel="poly", **parameters).fit(X * 100, y)


@pytest.mark.parametrize(
    "method", [METHODS["KDA"](kernel="linear"), METHODS["KDA"](delta=1e-20), METHODS["KSDA"](kernel="linear")], ids=repr
)
def test_a_ridge_lost_in_rounding_is_no_lapack_error(method):
    X, y = HOSTILE["duplicate rows"]
    Z = method.fit_transform(X * 1e7, y)
    assert Z.size
    assert np.all(np.isfinite(Z))


def test_a_column_of_unix_time_does_not_matter(blobs):
    X, y = blobs
    X = np.round(X * 2**10) / 2**10
    plain, offset = (LDSU().fit(X + shift, y).transform(X + shift) for shift in (0.0, [1.7e9, 0, 0, 0, 0]))
    np.testing.assert_allclose(offset @ offset.T, plain @ plain.T, atol=1e-4)


def test_rows_of_ones_among_tiny_ones_do_not_make_the_bandwidth_infinite():
    X = np.full((20, 3), 1e-155)
    X[0] = 1.0
    for method in METHODS.values():
        if method is not EnFS:
            assert np.all(np.isfinite(method().fit(X, labels(20)).transform(X)))


def test_a_far_point_of_a_precomputed_kernel_is_no_error(blobs):
    X, y = blobs
    for dtype, value in ((np.float64, 1e-200), (np.float32, 1e-30)):
        model = LDSU(kernel="precomputed").fit((X @ X.T).astype(dtype), y)
        assert np.all(model.transform(np.full((1, len(X)), value, dtype=dtype)) == pytest.approx(0))


def test_more_anchors_than_samples_can_be_asked_for(blobs):
    X, y = blobs
    assert LDSU(min_anchors=10**8).fit(X, y).anchors_.size == len(X)


def test_far_new_points_get_finite_features(blobs):
    X, y = blobs
    for method in METHODS.values():
        if method is not EnFS:
            assert np.all(np.isfinite(method().fit(X, y).transform(X + 1e7)))


@pytest.mark.parametrize("labels", [None, [0, 1, -1, -1, -1]])
@pytest.mark.parametrize("filter_", ["tikhonov", "heat", "truncate"])
def test_a_kernel_that_is_zero_is_an_error(filter_, labels):
    with pytest.raises(ValueError, match=r"kernel.* is zero"):
        LDSU(kernel="cosine", filter=filter_).fit(np.zeros((5, 2)), labels)


@pytest.mark.parametrize(("lam", "strength"), [(1e300, "auto"), (1e10, 1e95), (1.0, 1e250)])
@pytest.mark.parametrize("solver", ["exact", "sparse"])
def test_graphs_too_heavy_for_numbers_are_refused_by_name(lam, strength, solver):
    X = np.random.default_rng(0).standard_normal((30, 2))
    with pytest.raises(ValueError, match=r"lam = 1.* and strength = 1.* are too large"):
        LDSU(lam=lam, strength=strength, solver=solver).fit(X)
    assert np.isfinite(LDSU(lam=1e99, strength=10.0, solver=solver, filter="truncate").fit_transform(X)).all()
