"""The shared search gives what scikit-learn's search gives, setting by setting."""

import re

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import make_scorer, recall_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from conftest import few_labels
from ldsu import (
    KDA,
    LDSU,
    BlockScaler,
    FewLabelKFold,
    LabelledOnly,
    LabelledScorer,
    LDSUClassifier,
    LDSUSearch,
    Problem,
    mean_average_precision_scorer,
)
from ldsu._utils.stages import Stages
from ldsu.graphs import class_graph_correction, class_laplacian
from ldsu.model_selection import _search as search_module
from ldsu.model_selection._search import Fold, RidgePath

CLASSIFIERS = {
    "ridge": (RidgeClassifier(alpha=0.1), {"classifier__alpha": [0.1, 10]}),
    "svm": (LinearSVC(random_state=0), {"classifier__C": [1]}),
}
FILTERS = {
    "tikhonov": {"features__strength": [1, 1e4], "features__lam": [0.01, 1, 100]},
    "heat": {"features__strength": [0.5, 10], "features__lam": [0.1, 1], "features__n_components": [30]},
    # With fewer components these graphs of several parts give features that tie test rows, which rounding then orders.
    "truncate": {"features__n_components": [40, 0.7], "features__lam": [0.01, 1]},
}


def small_digits(per_class, rows=120):
    X, y = load_digits(return_X_y=True)
    return X[:rows], few_labels(y[:rows], per_class)


def both(estimator, grid, X, y, *, cv, scoring=None, **options):
    ordinary = GridSearchCV(clone(estimator), grid, cv=cv, scoring=scoring, error_score=np.nan)
    if isinstance(scoring, str) and scoring == "map":
        ordinary.set_params(scoring=mean_average_precision_scorer)
    return LDSUSearch(estimator, grid, cv=cv, scoring=scoring, **options).fit(X, y), ordinary.fit(X, y)


def assert_same(shared, ordinary):
    assert shared.cv_results_["params"] == ordinary.cv_results_["params"]
    for name, expected in ordinary.cv_results_.items():
        if "time" in name or name == "params":
            continue
        got = shared.cv_results_[name]
        if name.startswith("param_"):
            assert got.tolist() == expected.tolist()
            assert np.array_equal(got.mask, expected.mask)
        else:
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12, err_msg=name)
    assert shared.best_params_ == ordinary.best_params_
    assert shared.best_index_ == ordinary.best_index_
    assert shared.best_score_ == pytest.approx(ordinary.best_score_)
    assert shared.n_splits_ == ordinary.n_splits_


@pytest.mark.parametrize("standardize", ["auto", True, False])
@pytest.mark.parametrize("classifier", CLASSIFIERS)
@pytest.mark.parametrize("filter", FILTERS)
def test_scores_are_those_of_an_ordinary_search(filter, classifier, standardize):
    X, y = small_digits(4)
    model, penalties = CLASSIFIERS[classifier]
    estimator = LDSUClassifier(LDSU(filter=filter, strength=100.0), model, standardize_scores=standardize)
    grid = {**FILTERS[filter], **penalties}
    shared, ordinary = both(estimator, grid, X, y, cv=FewLabelKFold(2))
    assert shared.n_shared_ == len(ordinary.cv_results_["params"])
    assert_same(shared, ordinary)
    assert np.array_equal(shared.predict(X), ordinary.predict(X))
    np.testing.assert_allclose(shared.decision_function(X), ordinary.decision_function(X))


@pytest.mark.parametrize("filter", FILTERS)
def test_one_label_per_class_in_training(filter):
    X, y = small_digits(2)
    grid = {**FILTERS[filter], "features__clique_size": [1, 5], "standardize_scores": [True, False]}
    shared, ordinary = both(
        LDSUClassifier(LDSU(filter=filter, strength=100.0), RidgeClassifier(alpha=0.1)),
        grid,
        X,
        y,
        cv=FewLabelKFold(2),
        scoring="map",
    )
    assert shared.n_shared_ == len(ordinary.cv_results_["params"])
    assert_same(shared, ordinary)


@pytest.mark.parametrize(
    "grid",
    [
        {"features__gamma_scale": [0.5, 2], "features__gamma": ["median", 0.001]},
        {"features__clique_size": [1, 3, 500], "features__scaling": ["relative", "absolute"]},
        {"features__clique_size": [2, 4], "features__theta": [0.01, 1, 100], "features__lam": [0.1, 10]},
        {"features__kernel": ["rbf", "linear", "poly", "cosine"], "features__cliques": ["auto", "kernel"]},
        {"features__kernel": ["chi2"], "features__min_anchors": [1, 60], "features__lam": [0, 1]},
        {"features__strength": [0, 1], "features__filter": ["tikhonov", "heat", "truncate"]},
        [
            {"features__filter": ["truncate"], "features__n_components": [0.2, 0.7]},
            {"features__filter": ["tikhonov"], "features__strength": [1, 30], "classifier__alpha": [0.1, 1]},
        ],
        {},
    ],
)
@pytest.mark.filterwarnings("ignore:clique_size")
def test_every_parameter_of_the_features_may_be_searched(grid):
    X, y = small_digits(4, rows=120)
    estimator = LDSUClassifier(LDSU(strength=100.0), RidgeClassifier(alpha=0.1))
    shared, ordinary = both(estimator, grid, X, y, cv=FewLabelKFold(2), scoring="map")
    assert shared.n_shared_ == len(ordinary.cv_results_["params"])
    assert_same(shared, ordinary)


@pytest.mark.parametrize(
    "scoring",
    [
        None,
        "accuracy",
        "map",
        "f1_macro",
        LabelledScorer("balanced_accuracy"),
        LabelledScorer(make_scorer(recall_score, average="macro")),
        mean_average_precision_scorer,
        make_scorer(recall_score, average="macro"),
    ],
    ids=lambda scoring: getattr(scoring, "__name__", None) or str(scoring),
)
def test_scorers(scoring):
    X, y = small_digits(4)
    grid = {"features__strength": [1, 100], "classifier__alpha": [0.1, 1]}
    shared, ordinary = both(
        LDSUClassifier(LDSU(strength=100.0), RidgeClassifier()), grid, X, y, cv=FewLabelKFold(4), scoring=scoring
    )
    assert shared.n_shared_ == 4
    assert_same(shared, ordinary)
    labelled = y >= 0
    assert shared.score(X[labelled], y[labelled]) == pytest.approx(ordinary.score(X[labelled], y[labelled]))


def test_several_scores_at_once():
    X, y = small_digits(4)
    grid = {"features__strength": [1, 100]}
    scoring = {"hits": "accuracy", "map": mean_average_precision_scorer}
    ordinary = GridSearchCV(
        LDSUClassifier(LDSU(strength=100.0), RidgeClassifier(alpha=0.1)),
        grid,
        cv=FewLabelKFold(2),
        scoring=scoring,
        refit="map",
    ).fit(X, y)
    shared = LDSUSearch(param_grid=grid, cv=FewLabelKFold(2), scoring=scoring, refit="map").fit(X, y)
    assert shared.multimetric_
    assert shared.n_shared_ == 2
    for name in ("mean_test_hits", "mean_test_map", "rank_test_map"):
        np.testing.assert_allclose(shared.cv_results_[name], ordinary.cv_results_[name])
    labelled = y >= 0
    assert shared.score(X[labelled], y[labelled]) == pytest.approx(ordinary.score(X[labelled], y[labelled]))


def rows_product(a, b):
    return float(a @ b)


def test_what_cannot_be_shared_is_fitted_in_the_ordinary_way():
    X, y = small_digits(4, rows=80)
    grid = [
        {"features__strength": [1, 10]},
        {"features": [LDSU(kernel=rows_product), KDA()]},
        {"features": [KDA()], "features__delta": [0.1, 1]},
    ]
    estimator = LDSUClassifier(LDSU(strength=100.0), RidgeClassifier(alpha=0.1))
    shared, ordinary = both(estimator, grid, X, y, cv=FewLabelKFold(2), scoring="map")
    assert shared.n_shared_ == 2
    for name in ("split0_test_score", "split1_test_score", "rank_test_score"):
        np.testing.assert_allclose(shared.cv_results_[name], ordinary.cv_results_[name])


def test_solver_that_shares_nothing_is_left_to_ordinary_fits(monkeypatch):
    X, y = small_digits(4, rows=80)
    estimator = LDSUClassifier(LDSU(n_landmarks=10, strength=100.0), RidgeClassifier(alpha=0.1))
    shared, ordinary = both(estimator, {"features__solver": ["sparse", "exact"]}, X, y, cv=FewLabelKFold(2))
    assert shared.n_shared_ == 1
    assert_same(shared, ordinary)
    monkeypatch.setattr("ldsu.methods.ldsu.SPARSE_ROWS", 70)  # more than a fold has left, and fewer than there are
    shared, ordinary = both(estimator, {"features__solver": ["auto", "exact"]}, X, y, cv=FewLabelKFold(2))
    assert shared.n_shared_ == 1
    assert_same(shared, ordinary)


def test_other_estimators_and_custom_scorers_work():
    X, y = small_digits(4, rows=80)
    pipeline = make_pipeline(LDSU(), BlockScaler(), LabelledOnly(RidgeClassifier()))
    shared, ordinary = both(pipeline, {"ldsu__strength": [1, 10]}, X, y, cv=FewLabelKFold(2))
    assert shared.n_shared_ == 0
    assert_same(shared, ordinary)

    def reads_samples(estimator, X, y):
        return float(np.mean(X) + estimator.features_.coef_.shape[1])

    grid = {"features__n_components": [3, 7]}
    estimator = LDSUClassifier(LDSU(strength=100.0), RidgeClassifier())
    shared, ordinary = both(estimator, grid, X, y, cv=FewLabelKFold(2), scoring=reads_samples)
    assert shared.n_shared_ == 0
    assert_same(shared, ordinary)


@pytest.mark.parametrize("form", ["sparse", "frame", "float32", "precomputed"])
def test_forms_of_samples(form):
    X, y = small_digits(4, rows=100)
    features = LDSU(strength=100.0)
    if form == "sparse":
        X = scipy.sparse.csr_array(X)
    elif form == "frame":
        X = pytest.importorskip("pandas").DataFrame(X, columns=[f"pixel{i}" for i in range(64)])
        y = np.array([f"digit {label}" if label >= 0 else None for label in y], dtype=object)
    elif form == "float32":
        X = X.astype(np.float32)
    else:
        X = X @ X.T
        features = LDSU(kernel="precomputed", strength=100.0)
    grid = {"features__strength": [1, 100], "features__lam": [0.1, 1]}
    estimator = LDSUClassifier(features, RidgeClassifier(alpha=0.1))
    shared, ordinary = both(estimator, grid, X, y, cv=FewLabelKFold(2), scoring="map")
    assert shared.n_shared_ == 4
    assert_same(shared, ordinary)


def test_two_classes_and_folds_that_hold_out_unlabelled_rows():
    X, y = load_iris(return_X_y=True)
    X, y = X[50:], y[50:].copy()
    y[::3] = -1
    rows = np.random.default_rng(0).permutation(100)
    cv = [(rows[:50], rows[50:]), (rows[50:], rows[:50])]
    grid = {"features__strength": [1, 100], "features__lam": [0.1, 1], "standardize_scores": [True, False]}
    shared, ordinary = both(LDSUClassifier(LDSU(strength=100.0), RidgeClassifier()), grid, X, y, cv=cv)
    assert_same(shared, ordinary)


def test_features_equal_those_of_an_ordinary_fit(digits):
    X, y = digits
    train, test = next(FewLabelKFold(3).split(X, y))
    for ldsu in (
        LDSU(strength=100.0),
        LDSU(lam=1e-3, strength=1e4),
        LDSU(filter="heat", strength=2),
        LDSU(0.3, filter="truncate"),
    ):
        got = Fold(X, y, train, test, "rbf", Stages("test")).features(ldsu)
        fitted = clone(ldsu).fit(X[train], y[train])
        scaler = BlockScaler().fit(fitted.transform(X[train]))
        np.testing.assert_allclose(got.train, scaler.transform(fitted.transform(X[train])), atol=1e-7)
        np.testing.assert_allclose(got.test, scaler.transform(fitted.transform(X[test])), atol=1e-7)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("shape", [(20, 6), (12, 30)])
def test_ridge_path_is_the_ridge_classifier(n_classes, shape):
    rng = np.random.default_rng(0)
    Z, codes = rng.standard_normal(shape), np.arange(shape[0]) % n_classes
    path = RidgePath(Z, codes)
    for alpha in (1e-3, 1.0, 1e3):
        expected = RidgeClassifier(alpha=alpha).fit(Z, codes).decision_function(Z)
        got = path.solve(alpha).decision_function(Z)
        np.testing.assert_allclose(got.reshape(expected.shape), expected, atol=1e-9)


def test_ridge_with_options_of_its_own_is_not_replaced():
    X, y = small_digits(4, rows=80)
    grid = {"classifier__class_weight": [None, "balanced"], "classifier__fit_intercept": [True, False]}
    estimator = LDSUClassifier(LDSU(strength=100.0), RidgeClassifier())
    shared, ordinary = both(estimator, grid, X, y, cv=FewLabelKFold(2), scoring="map")
    assert_same(shared, ordinary)


def test_class_graph_correction_is_the_filter_of_the_joint_graph():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((8, 8))
    K = root @ root.T + np.eye(8)
    codes = np.array([0, 0, 1, 1, 1, -1, 2, -1])
    expected = np.linalg.inv(np.linalg.inv(K) + 3.0 * class_laplacian(codes).toarray())
    np.testing.assert_allclose(K @ class_graph_correction(K, codes, 3.0), expected, atol=1e-10)


def test_solution_that_lost_its_accuracy_is_left_to_an_ordinary_fit(monkeypatch):
    X, y = small_digits(4, rows=80)
    monkeypatch.setattr("ldsu.solvers._exact.ASYMMETRY", -1.0)
    estimator = LDSUClassifier(LDSU(strength=100.0), RidgeClassifier())
    shared, ordinary = both(estimator, {"features__strength": [1, 10]}, X, y, cv=FewLabelKFold(2))
    assert_same(shared, ordinary)


def test_decompositions_are_shared(monkeypatch):
    X, y = small_digits(4, rows=80)
    calls = []
    once = Problem.once

    def counted(self, kind, key, make):
        def spied():
            if kind == "spectrum":
                calls.append(key)
            return make()

        return once(self, kind, key, spied)

    monkeypatch.setattr(Problem, "once", counted)
    grid = {
        "features__theta": [0.1, 1],
        "features__lam": [0.1, 1, 10],
        "features__strength": [1, 10, 100],
        "classifier__alpha": [0.1, 1],
    }
    LDSUSearch(param_grid=grid, cv=FewLabelKFold(2), refit=False).fit(X, y)
    assert len(calls) == 2 * 2  # folds, thetas
    calls.clear()
    heat = LDSUClassifier(LDSU(filter="heat"), RidgeClassifier(alpha=0.1))
    LDSUSearch(heat, grid, cv=FewLabelKFold(2), refit=False).fit(X, y)
    assert len(calls) == 2 * 2 * 3  # folds, thetas, lams
    calls.clear()
    LDSUSearch(heat, grid, cv=FewLabelKFold(2), refit=False).fit(*small_digits(2, rows=80))
    assert len(calls) == 2 * 2  # with one label per class lam costs nothing


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"features__lamda": [1]}, "features__lamda"),
        ({"lam": [1]}, "param_grid: lam = 1"),
        ({"features__theta": [0.1, -1.0]}, "features__theta = -1.0"),
        ({"features__filter": ["tikhonov", "box"]}, "features__filter = 'box'"),
        ({"classifier__alpha": [-3]}, "classifier__alpha = -3"),
        ({"standardize_scores": ["yes"]}, "standardize_scores = 'yes'"),
        ({"features__lam": []}, "features__lam"),
    ],
)
def test_bad_grids_are_refused_before_any_work(grid, message, monkeypatch):
    monkeypatch.setattr(search_module, "Fold", None)
    with pytest.raises(ValueError, match=re.escape(message)):
        LDSUSearch(param_grid=grid).fit(*small_digits(5))


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:One or more of the test scores")
def test_failing_setting_scores_nan_with_a_warning():
    X, y = small_digits(4, rows=80)
    grid = {"features__strength": [1.0, 1e308], "features__scaling": ["absolute"], "features__lam": [1.0, 1e300]}
    with pytest.warns(FitFailedWarning, match="fits failed"):
        shared = LDSUSearch(param_grid=grid, cv=FewLabelKFold(2)).fit(X, y)
    assert np.isnan(shared.cv_results_["mean_test_score"]).any()
    assert np.isfinite(shared.best_score_)
    hopeless = {**grid, "features__strength": [1e308], "features__lam": [1e300]}
    with pytest.raises(ValueError, match="All the 2 fits failed"):
        LDSUSearch(param_grid=hopeless, cv=FewLabelKFold(2)).fit(X, y)
    with pytest.raises(ValueError, match="are too large"):
        LDSUSearch(param_grid=grid, cv=FewLabelKFold(2), error_score="raise").fit(X, y)


def test_default_folds_follow_the_rarest_class():
    X, y = small_digits(3)
    assert LDSUSearch().fit(X, y).n_splits_ == 3
    assert LDSUSearch().fit(*small_digits(6)).n_splits_ == 5
    with pytest.raises(ValueError, match="A single label cannot be held out"):
        LDSUSearch().fit(*small_digits(1))


def test_a_number_of_folds_folds_the_labelled_rows_whatever_marks_the_others():
    X, y = load_iris(return_X_y=True)
    few = np.array([f"kind {label}" for label in y], dtype=object)
    few[np.arange(150) % 10 != 0] = None
    grid = {"features__strength": [1.0, 100.0]}
    counted = LDSUSearch(param_grid=grid, cv=2).fit(X, few)
    named = LDSUSearch(param_grid=grid, cv=FewLabelKFold(2)).fit(X, few)
    np.testing.assert_array_equal(counted.cv_results_["mean_test_score"], named.cv_results_["mean_test_score"])
    assert counted.n_splits_ == 2


def test_memory_is_checked_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 10**5)
    with pytest.raises(MemoryError, match="LDSUSearch for 120 samples needs about"):
        LDSUSearch().fit(*small_digits(5))


def test_progress_is_written_to_standard_error(capsys, monkeypatch):
    monkeypatch.setattr(search_module, "SECONDS_BETWEEN_LINES", 0.0)
    LDSUSearch(verbose=True).fit(*small_digits(5, rows=80))
    written = capsys.readouterr()
    assert written.out == ""
    assert "[LDSUSearch] 8 settings (8 with shared computation), 5 folds" in written.err
    assert "of 40 scores" in written.err


def test_without_refit_there_is_a_best_setting_and_no_model():
    X, y = small_digits(5, rows=80)
    shared = LDSUSearch(refit=False).fit(X, y)
    assert set(shared.best_params_) == {"features__strength", "features__clique_size"}
    with pytest.raises(AttributeError, match="refit=False"):
        shared.predict(X)
