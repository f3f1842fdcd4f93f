"""Leaving labels out in closed form, and what LDSU chooses by it."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

from ldsu import LDSU, LDSUClassifier
from ldsu._utils.arrays import arrays_on
from ldsu.graphs import clique_laplacian, clique_scatter
from ldsu.kernels import Kernel
from ldsu.methods._leave_one_out import accuracy, choose, leave_one_out, log_likelihoods
from ldsu.methods.ldsu import CANDIDATE_STRENGTHS, CANDIDATES
from ldsu.solvers import Problem, Settings, filtered_labelled_kernel


def few_labels(y, count, seed=0):
    order = np.random.default_rng(seed).permutation(y.size)
    few = np.full(y.size, -1)
    for label in np.unique(y):
        rows = order[y[order] == label][:count]
        few[rows] = label
    return few


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 40))
    return Z @ Z.T, rng.integers(0, 3, 30)


@pytest.mark.parametrize("noise", [1e-3, 0.1, 1.0])
def test_scores_are_those_of_a_ridge_regression_without_each_sample_to_targets_of_the_same_mean(problem, noise):
    G, codes = problem
    features = np.linalg.cholesky(G / (np.trace(G) / 30))
    Y = np.where(codes[:, None] == np.arange(3), 1.0, -1.0)
    expected = []
    for i in range(30):
        kept = np.arange(30) != i
        targets = Y[kept] - Y[kept].mean(axis=0) + Y.mean(axis=0)
        expected.append(Ridge(alpha=noise).fit(features[kept], targets).predict(features[i : i + 1])[0])
    ((scores, _),) = leave_one_out(G, codes, [noise])
    np.testing.assert_allclose(scores, expected, atol=1e-8)


def test_kernels_on_a_device_are_ranked_as_by_numpy(problem):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    G, codes = problem
    arrays, kernels = arrays_on("torch"), [G, G @ G, G**2]
    ranked = choose([(i, K, 0.0) for i, K in enumerate(kernels)], codes)
    on_device = choose([(i, arrays.put(K), 0.0) for i, K in enumerate(kernels)], codes, arrays)
    assert [(c.number, c.noise) for c in on_device] == [(c.number, c.noise) for c in ranked]
    for found, expected in zip(on_device, ranked, strict=True):
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-9)
        assert found.criterion == pytest.approx(expected.criterion)


def test_equally_many_labels_without_structure_are_neither_right_nor_wrong():
    codes = np.arange(12) % 3
    ((scores, _),) = leave_one_out(np.eye(12), codes, [0.1])
    np.testing.assert_allclose(scores, -1 / 3, atol=1e-12)


def test_evidence_is_the_density_of_the_targets_under_the_gaussian_process(problem):
    G, codes = problem
    scaled = G / (np.trace(G) / 30)
    Y = np.where(codes[:, None] == np.arange(3), 1.0, -1.0)
    U = np.linalg.svd(np.eye(30) - 1 / 30)[0][:, :29]  # everything but the mean

    def density(noise):
        covariance = U.T @ scaled @ U + noise * np.eye(29)
        residual = U.T @ Y
        scale = np.sum(residual * np.linalg.solve(covariance, residual)) / residual.size
        return sum(multivariate_normal(cov=scale * covariance).logpdf(column) for column in residual.T)

    (_, first), (_, second) = leave_one_out(G, codes, [0.01, 0.5])
    assert (first - second) * 30 * 3 == pytest.approx(density(0.01) - density(0.5))


def test_a_class_with_one_sample_does_not_count():
    scores = np.array([[3.0, 0, 0], [2.0, 0, 0], [0, 3.0, 0], [0, 2.0, 1.0], [9.0, 0, 0]])
    codes = np.array([0, 0, 1, 1, 2])
    assert log_likelihoods(scores, codes).shape == (4,)
    assert accuracy(scores, codes) == pytest.approx((4 + 1) / (4 + 2))
    np.testing.assert_allclose(log_likelihoods(scores, codes), log_likelihoods(scores[:4], codes[:4]))


def test_likelihoods_are_those_of_the_best_factor():
    codes = np.repeat([0, 1], 4)
    right = np.where(codes[:, None] == np.arange(2), 1.0, -1.0)
    assert log_likelihoods(right, codes).mean() > -1e-6  # the sharpest
    wrong = -right
    # The least sharp: exp(-0.5) against exp(0.5).
    np.testing.assert_allclose(log_likelihoods(wrong, codes), -np.log1p(np.exp(1.0)))


def test_the_prior_is_that_of_all_labels_together():
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1], 10)
    apart = np.where(codes[:, None] == codes, 1.0, 0.0) + np.eye(20)
    noisy = apart + 0.5 * np.cov(rng.normal(size=(20, 60)))
    first, second = ((choose([(0, K, 0.0)], codes)[0].criterion) for K in (noisy, apart))
    gain = 20 * (second - first)  # in units of the log-likelihood of twenty labels
    assert gain > 0
    assert choose([(0, noisy, 0.0), (1, apart, -0.9 * gain)], codes)[0].number == 1
    assert choose([(0, noisy, 0.0), (1, apart, -1.1 * gain)], codes)[0].number == 0
    assert choose([(0, apart, 0.0), (1, 3.0 * apart, 0.0)], codes)[0].number == 0  # the first of equal ones


def test_labelled_kernel_is_the_filtered_kernel_among_the_labelled_points():
    X, _ = load_digits(return_X_y=True)
    X = X[:60]
    K = np.exp(-1e-3 * ((X[:, None] - X) ** 2).sum(axis=2))
    L, _ = clique_laplacian(*clique_scatter(X, None, 3), theta=0.1, relative=True)
    labelled = np.array([3, 10, 40])
    expected = np.linalg.inv(np.linalg.inv(K) + 10 * L.toarray())[np.ix_(labelled, labelled)]
    problem, kernel, settings = Problem(X), Kernel("rbf", 1e-3), Settings(clique_size=3, theta=0.1)
    filtered = [filtered_labelled_kernel(problem, kernel, settings, strength, labelled) for strength in (10.0, 0.0)]
    np.testing.assert_allclose(filtered[0], expected, atol=1e-8)
    np.testing.assert_allclose(filtered[1], K[np.ix_(labelled, labelled)], rtol=1e-12)


def test_with_one_label_per_class_auto_is_the_default_setting():
    X, y = load_digits(return_X_y=True)
    X, few = X[:300], few_labels(y[:300], 1)
    auto = LDSU().fit(X, few)
    assert auto.selection_ is None
    assert (auto.strength_, auto.noise_) == (100.0, 0.01)
    fixed = LDSU(strength=100.0, gamma_scale=2.0).fit(X, few)
    np.testing.assert_array_equal(auto.transform(X), fixed.transform(X))


def test_chosen_values_give_the_same_features_as_parameters():
    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    few = few_labels(y, 4)
    auto = LDSU().fit(X, few)
    best = auto.selection_[0]
    assert len({(row["gamma_scale"], row["strength"]) for row in auto.selection_}) == len(CANDIDATES)
    assert auto.strength_ == best["strength"]
    by_hand = LDSU(strength=best["strength"], gamma_scale=best["gamma_scale"]).fit(X, few)
    assert by_hand.gamma_ == pytest.approx(auto.gamma_)
    np.testing.assert_allclose(auto.transform(X), by_hand.transform(X), rtol=1e-6, atol=1e-8)


def test_a_given_bandwidth_is_kept():
    X, y = load_digits(return_X_y=True)
    few = few_labels(y[:300], 4)
    for parameters in ({"gamma_scale": 3.0}, {"gamma": 1e-3}, {"kernel": "cosine"}):
        model = LDSU(**parameters).fit(X[:300], few)
        fixed = LDSU(strength=1.0, **parameters).fit(X[:300], few)
        assert model.gamma_ == fixed.gamma_
        assert {row["strength"] for row in model.selection_} == set(CANDIDATE_STRENGTHS)


def test_precomputed_kernel_chooses_as_the_kernel_itself_does():
    X, y = load_digits(return_X_y=True)
    X, y = X[:200] / 16, few_labels(y[:200], 4)
    named = LDSU(kernel="linear", cliques="kernel").fit(X, y)
    given = LDSU(kernel="precomputed").fit(X @ X.T, y)
    assert given.strength_ == named.strength_
    assert [row["criterion"] for row in given.selection_] == pytest.approx(
        [row["criterion"] for row in named.selection_], abs=1e-6
    )


def misleading(n=400, seed=0):
    """Neighbors share a nuisance; the class is a small step in another direction."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    place = rng.integers(0, 40, n)
    centers = rng.normal(size=(40, 30)) * 3
    X = centers[place] + 0.05 * rng.normal(size=(n, 30))
    X[:, 0] = 4.0 * y + 0.5 * rng.normal(size=n)
    X[:, 1:] *= 1.5
    return X, y


def test_the_graph_is_turned_down_where_neighbors_are_of_other_classes():
    X, y = misleading()
    few = few_labels(y, 30)
    model = LDSU().fit(X, few)
    trusted = max(row["criterion"] for row in model.selection_ if row["strength"] >= 100)
    assert model.strength_ < 100
    assert model.selection_[0]["criterion"] > trusted
    rest = few < 0
    auto = LDSUClassifier().fit(X, few).score(X[rest], y[rest])
    strong = LDSUClassifier(LDSU(strength=1000.0)).fit(X, few).score(X[rest], y[rest])
    assert auto > strong


def test_the_choice_reads_no_hidden_label_and_is_the_same_again():
    X, y = load_digits(return_X_y=True)
    few = few_labels(y[:500], 5)
    first, second = (clone(LDSU()).fit(X[:500], few) for _ in range(2))
    assert first.selection_ == second.selection_
