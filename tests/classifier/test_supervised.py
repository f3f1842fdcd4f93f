"""Classifiers of the labelled rows alone, and their weights beside the features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.special import log_softmax
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import scale

from ldsu import LDSU, LDSUClassifier
from ldsu.classifier import Forest, Scaling
from ldsu.classifier._supervised import (
    MIN_WEIGHT,
    evidence_weights,
    fit_forest,
    fit_laplacian,
    fit_linear,
    weight_prior,
)
from ldsu.methods import SampleKinds


def few_labels(y, per_class, seed=0):
    rng = np.random.default_rng(seed)
    few = np.full(y.size, -1)
    for label in np.unique(y):
        few[rng.permutation(np.flatnonzero(y == label))[:per_class]] = label
    return few


def thresholds(n=400, seed=0):
    """Two classes, decided by single columns among many: what trees find and distances do not."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 12))
    return X, ((X[:, 0] > 0) & (X[:, 1] > -0.5)).astype(int)


@pytest.mark.parametrize("sparse", [False, True])
def test_trees_in_arrays_predict_as_the_forest_they_come_from(sparse):
    X, y = load_wine(return_X_y=True)
    model = RandomForestClassifier(30, random_state=0).fit(X[::2], y[::2])
    forest = Forest.from_sklearn(model)
    X_new = scipy.sparse.csr_array(X) if sparse else X
    np.testing.assert_allclose(forest.predict_proba(X_new), model.predict_proba(X), atol=1e-6)
    assert forest.predict_proba(X_new[:0]).shape == (0, 3)


def test_trees_decide_values_at_their_thresholds_equally():
    X = np.repeat(np.arange(12.0), 5)[:, None] / 7
    y = (X[:, 0] > 0.9).astype(int)
    model = RandomForestClassifier(20, random_state=0).fit(X, y)
    at = np.unique(np.concatenate([tree.tree_.threshold for tree in model.estimators_]))[:, None]
    at = np.concatenate([at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf)])
    np.testing.assert_allclose(Forest.from_sklearn(model).predict_proba(at), model.predict_proba(at), atol=1e-7)


def test_out_of_bag_probabilities_are_means_over_the_trees_that_did_not_see_a_row_with_its_label_counted():
    X, y = load_wine(return_X_y=True)
    forest, left_out = fit_forest(X, y)
    model = RandomForestClassifier(200, max_samples=y.size, random_state=0).fit(X, y)
    for row in (0, 70, 150):
        trees = [
            tree
            for tree, seen in zip(model.estimators_, model.estimators_samples_, strict=True)
            if row not in set(seen)
        ]
        expected = np.mean([tree.predict_proba(X[[row]])[0] for tree in trees], axis=0)
        counts = np.bincount(y)
        expected *= counts / (counts - (np.arange(3) == y[row]))
        np.testing.assert_allclose(left_out[row], expected / expected.sum(), atol=1e-6)
    assert forest.roots.size == 200


def test_out_of_bag_probabilities_of_constant_columns_do_not_lean_against_the_class_of_a_row():
    y = np.array([0, 0, 0, 1, 1, 1])
    left_out = fit_forest(np.ones((6, 2)), y)[1]
    # Without the correction they would be .4 on average: a row's own class has lost one label of three.
    assert left_out[np.arange(6), y].mean() == pytest.approx(0.5, abs=0.01)


def test_a_forest_of_constant_columns_knows_the_class_frequencies():
    forest, _ = fit_forest(np.ones((6, 2)), np.array([0, 0, 0, 0, 1, 1]))
    np.testing.assert_allclose(forest.predict_proba(np.zeros((1, 2))), [[2 / 3, 1 / 3]], atol=0.05)


def products(X, gamma):
    return X @ X.T


def exponentials(X, gamma):
    return np.exp(-gamma * np.abs(X[:, None] - X).sum(axis=2))


@pytest.mark.parametrize("kernel", [products, exponentials])
def test_kernel_scores_are_those_of_ridge_regression_and_left_out_ones_of_refits(kernel):
    X, y = load_wine(return_X_y=True)
    X, y = scale(X)[::6], y[::6]
    if kernel is products:
        (model, left_out), K = fit_linear(X, y), products(X, None)
        unit = np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1))
    else:
        (model, left_out), unit = fit_laplacian(X, y, X), 1.0
        distances = np.abs(X[:, None] - X).sum(axis=2)
        assert model.gamma == pytest.approx(0.25 / np.median(distances[distances > 0]))
        K = exponentials(X, model.gamma)

    def refit(rows, new, noise):
        m = rows.size
        Y = np.where(y[rows, None] == np.arange(3), 1.0, -1.0)
        system = np.block([[K[np.ix_(rows, rows)] + noise * np.eye(m), np.ones((m, 1))], [np.ones((1, m)), 0.0]])
        solution = np.linalg.solve(system, np.vstack([Y, np.zeros(3)]))
        return K[new][:, rows] @ solution[:m] + solution[m]

    every = np.arange(y.size)
    noises = unit * np.array([1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0])
    fits = []
    for noise in noises:  # the ridge that was chosen is one of these
        fits.append(np.allclose(model.scores(X), refit(every, every, noise), atol=1e-8))
        if fits[-1]:
            for row in (0, 12, 25):
                rest = np.delete(every, row)
                own = np.where(y[[row]][:, None] == np.arange(3), 1.0, -1.0)
                others = np.where(y[rest, None] == np.arange(3), 1.0, -1.0)
                # The targets keep their mean, which is added to the scores.
                kept_mean = np.vstack([own, others]).mean(axis=0) - others.mean(axis=0)
                expected = refit(rest, np.array([row]), noise) + kept_mean
                np.testing.assert_allclose(left_out(np.array([row])), expected, atol=1e-8)
    assert sum(fits) == 1


def test_sparse_samples_have_the_scores_of_dense_ones():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (60, 15)).astype(float)
    y = np.arange(60) % 3
    for fit in (lambda Z: fit_laplacian(Z, y, Z), lambda Z: fit_linear(Z, y)):
        dense, sparse = (fit(Z)[0] for Z in (X, scipy.sparse.csr_array(X)))
        np.testing.assert_allclose(sparse.scores(scipy.sparse.csr_array(X[:7])), dense.scores(X[:7]), atol=1e-10)


def test_a_linear_answer_is_given_to_the_linear_classifier():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 12))
    y = (X @ rng.standard_normal((12, 2))).argmax(axis=1)
    model = LDSUClassifier().fit(X, few_labels(y, 20))
    assert max(model.selection_, key=lambda row: row["weight"] / row["prior"])["classifier"] == "linear"


def test_weights_maximize_likelihood_times_prior():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 40)
    log_odds = rng.standard_normal((3, 40, 3)) + 2 * np.eye(3)[codes] * np.array([0.1, 1, 3])[:, None, None]
    prior = np.array([0.3, 1.0, 0.2])

    def value(weights):
        log_p = log_softmax(np.tensordot(weights, log_odds, 1), axis=1)[np.arange(40), codes].sum()
        return log_p - (np.log(weights / prior) ** 2).sum() / 2

    weights = evidence_weights(log_odds, codes, prior)
    best = value(weights)
    for change in rng.standard_normal((200, 3)) * 0.05:
        assert value(weights * np.exp(change)) <= best + 1e-6
    assert weights[2] / prior[2] > weights[0] / prior[0]  # the informative one gained


def test_without_labels_to_evaluate_the_prior_stands():
    prior = weight_prior(SampleKinds(), 1, 100)
    np.testing.assert_allclose(evidence_weights(np.zeros((4, 0, 2)), np.zeros(0, dtype=int), prior), prior)


def test_prior_weights_are_between_those_of_the_kinds_of_samples():
    kinds = [weight_prior(SampleKinds(*kind), 5, 500) for kind in (*np.eye(3), np.zeros(3))]
    mixed = weight_prior(SampleKinds(0.2, 0.1, 0.4), 5, 500)
    np.testing.assert_allclose(mixed, np.exp([0.2, 0.1, 0.4, 0.3] @ np.log(kinds)))


def test_labelled_rows_of_images_gain_weight_with_labels_per_class_and_lose_it_with_rows():
    images = SampleKinds(image=1.0)
    by_labels = [weight_prior(images, labels, 500)[1:].max() for labels in (1, 2, 3, 10)]
    assert by_labels[0] < MIN_WEIGHT < by_labels[1] < by_labels[2] < by_labels[3]
    by_rows = [weight_prior(images, 10, n)[1:].max() for n in (2000, 3000, 60_000)]
    assert by_rows[0] > by_rows[1] > MIN_WEIGHT > by_rows[2]


@pytest.mark.parametrize(("factor", "shift"), [(1e-100, 0.0), (1e100, 1e101), (1.0, 1e6)])
def test_scaling_removes_units(factor, shift):
    X = np.random.default_rng(0).standard_normal((50, 3))
    scaled = Scaling.of(factor * X + shift)(factor * X + shift)
    np.testing.assert_allclose(scaled, Scaling.of(X)(X), atol=1e-6)


def test_pooling_helps_where_single_columns_decide():
    accuracy = {True: [], False: []}
    for seed in range(3):
        X, y = thresholds(seed=seed)
        few = few_labels(y, 10, seed)
        for supervised in accuracy:
            model = LDSUClassifier(supervised=supervised).fit(X, few)
            accuracy[supervised].append(model.score(X[few < 0], y[few < 0]))
            assert (model.supervised_ is not None) == supervised
    assert np.mean(accuracy[True]) > np.mean(accuracy[False]) + 0.05


@pytest.mark.parametrize("load", [lambda: load_digits(return_X_y=True), lambda: make_moons(300, noise=0.05)])
def test_samples_with_near_neighbors_are_left_to_the_graph_with_one_label_per_class(load):
    X, y = load()
    few = few_labels(y, 1)
    with_, without = (LDSUClassifier(supervised=supervised).fit(X, few) for supervised in (True, False))
    assert with_.supervised_ is None
    np.testing.assert_array_equal(with_.predict_proba(X), without.predict_proba(X))


def test_images_are_pooled_without_a_forest():
    X, y = load_digits(return_X_y=True)
    model = LDSUClassifier().fit(X[:600], few_labels(y[:600], 5))
    forest = model.selection_[1]
    assert (forest["weight"], forest["accuracy"]) == (0, None)
    assert model.supervised_.forest.roots.size == 1
    assert np.all(model.supervised_.weights[1:] > 0)


def test_selection_names_what_was_pooled_and_why():
    X, y = load_wine(return_X_y=True)
    model = LDSUClassifier().fit(scale(X), few_labels(y, 5))
    assert [row["classifier"] for row in model.selection_] == ["graph", "forest", "laplacian", "linear"]
    assert all(0 <= row["accuracy"] <= 1 and row["weight"] > 0 for row in model.selection_)
    one = LDSUClassifier().fit(*thresholds(60)[:1], few_labels(thresholds(60)[1], 1))
    assert [row["accuracy"] for row in one.selection_] == [None] * 4
    assert [row["weight"] for row in one.selection_] == [row["prior"] for row in one.selection_]
    assert LDSUClassifier(supervised=False).fit(X, few_labels(y, 5)).selection_ is None


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_pooled_log_odds_are_the_weighted_sum_of_their_parts(load):
    X, y = load(return_X_y=True)
    X = np.random.default_rng(0).permuted(scale(X), axis=1)  # without structure
    model = LDSUClassifier().fit(X, few_labels(y, 4))
    pool = model.supervised_
    assert pool.weights.max() * model._odds >= MIN_WEIGHT
    Z = model.scaler_.transform(model.features_.transform(X))
    raw = model.classifier_.decision_function(Z).reshape(len(X), -1)
    graph = (raw - model.score_center_) / model.score_scale_
    graph = np.hstack([-graph, graph]) if graph.shape[1] == 1 else graph
    scaled = pool.scaling(X)
    forest = np.log(0.999 * pool.forest.predict_proba(scaled) + 0.001 / graph.shape[1])
    kernels = pool.weights[1] * pool.laplacian.scores(scaled) + pool.weights[2] * pool.linear.scores(scaled)
    total = graph + pool.weights[0] * forest + 4 * kernels
    expected = np.exp(log_softmax(model._sharpness * total, axis=1))
    isolated = np.linalg.norm(Z, axis=1) < 1e-3 * np.median(model._lengths)
    np.testing.assert_allclose(model.predict_proba(X)[~isolated], expected[~isolated], atol=1e-8)


def test_features_of_other_methods_and_kernels_without_columns_are_not_pooled():
    X, y = thresholds(60)
    few = few_labels(y, 3)
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / 20)
    assert LDSUClassifier(LDSU(kernel="precomputed")).fit(K, few).supervised_ is None
    from ldsu import KPCA

    assert LDSUClassifier(KPCA(5)).fit(X, few).supervised_ is None


def test_frames_lists_and_sparse_samples_are_pooled_alike():
    pd = pytest.importorskip("pandas")
    X, y = thresholds(120)
    X = np.round(np.maximum(X, 0), 1)
    few = few_labels(y, 5)
    expected = LDSUClassifier().fit(X, few).predict_proba(X)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    np.testing.assert_allclose(LDSUClassifier().fit(frame, few).predict_proba(frame), expected)
    np.testing.assert_allclose(LDSUClassifier().fit(X.tolist(), few).predict_proba(X.tolist()), expected)
    sparse = LDSUClassifier().fit(scipy.sparse.csr_array(X), few)
    assert np.mean(sparse.predict(scipy.sparse.csr_array(X)) == expected.argmax(axis=1)) > 0.9
