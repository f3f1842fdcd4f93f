"""filter="truncate" of the sparse solver: the smallest pairs of ``M v = mu K^-1 v``."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from conftest import few_labels
from ldsu import LDSU
from ldsu.solvers._landmarks import choose_landmarks
from ldsu.solvers._residual_factor import random_ranks
from ldsu.solvers._sparse_spectrum import BLOCK, MAX_PAIRS, graph_components

NOISE = 0.3


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that the space of a small problem is not soon all there is, and must be restarted."""
    monkeypatch.setattr("ldsu.solvers._sparse_spectrum.BLOCK", 5)


def samples(n=90, seed=0):
    """Samples with a kernel far from singular at gamma = 0.3, of 3 classes, and as many new ones."""
    X, y = make_blobs(2 * n, n_features=6, centers=3, cluster_std=2.0, random_state=seed)
    return X[:n], y[:n], X[n:]


def labels(y, how):
    return {"none": None, "one": few_labels(y, 1), "many": few_labels(y, 8)}[how]


def sparse(r, **parameters):
    parameters = {"tol": 1e-9, "nugget": 1e-12, "landmark_noise": NOISE, "n_landmarks": 20, "gamma": 0.3, **parameters}
    return LDSU(r, filter="truncate", solver="sparse", **parameters)


def slow_precision(X, codes, gamma, n_landmarks, s, seed=0):
    """K^-1 of the sparse solver, entry by entry: landmarks, and each point given its s nearest earlier ones."""
    n = X.shape[0]
    rng = np.random.default_rng(seed)
    landmarks, _, _ = choose_landmarks(codes, n_landmarks, rng)
    rank = random_ranks(np.arange(n), seed)
    D2 = np.array([[np.sum((a - b) ** 2) for b in X] for a in X])
    K = np.exp(-gamma * D2)
    K_nz = K[:, landmarks]
    global_part = K_nz @ np.linalg.inv(K_nz[landmarks] + NOISE * np.eye(landmarks.size)) @ K_nz.T
    R = K - global_part
    Q = np.zeros((n, n))
    for i in range(n):
        listed = sorted((j for j in range(n) if j != i), key=lambda j: D2[i, j])[: 2 * s]
        N = [j for j in listed if rank[j] < rank[i]][:s]
        w = np.linalg.solve(R[np.ix_(N, N)], R[N, i])
        row = np.zeros(n)
        row[i] = 1
        row[N] = -w
        Q += np.outer(row, row) / (R[i, i] - w @ R[N, i])
    return np.linalg.inv(np.linalg.inv(Q) + global_part)


def slow_graph(model, lam):
    return model.class_laplacian_.toarray() + lam * model.clique_laplacian_.toarray()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("r", [1, 8, 20, 80])
@pytest.mark.parametrize("lam", [0.1, 10.0])
@pytest.mark.parametrize("how", ["none", "one", "many"])
def test_is_the_exact_solver_when_every_point_is_conditioned_on_all(r, lam, how):
    X, y, new = samples()
    y = labels(y, how)
    model = sparse(r, lam=lam, n_conditioning=X.shape[0] - 1).fit(X, y)
    exact = LDSU(r, filter="truncate", solver="exact", lam=lam, gamma=0.3).fit(X, y)
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, atol=1e-6 * exact.eigenvalues_[-1] + 1e-12)
    F, F_exact = model.transform(X), exact.transform(X)
    np.testing.assert_allclose(F @ F.T, F_exact @ F_exact.T, atol=1e-6)
    np.testing.assert_allclose(model.transform(new) @ F.T, exact.transform(new) @ F_exact.T, atol=1e-6)


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_a_group_of_zero_eigenvalues_is_settled_as_by_the_exact_solver(lam):
    X, y, _ = samples()
    X = X + 100 * np.arange(9).repeat(10)[:, None]  # nine groups far apart: nine components of the graph or more
    y = few_labels(y, 4)
    exact = LDSU(6, filter="truncate", solver="exact", lam=lam, gamma=0.3, clique_size=4).fit(X, y)
    model = sparse(6, lam=lam, n_conditioning=89, clique_size=4).fit(X, y)
    assert exact.eigenvalues_[-1] < 1e-10
    np.testing.assert_array_equal(model.eigenvalues_, 0)
    np.testing.assert_allclose(model.transform(X), exact.transform(X), atol=1e-6)
    assert np.all(np.diff((model.transform(X) ** 2).sum(axis=0)) < 1e-9)  # the largest variance first


def test_features_one_by_one_are_those_of_the_exact_solver_with_their_signs():
    X, y, new = samples()
    y = few_labels(y, 3)
    model, exact = sparse(10, n_conditioning=89).fit(X, y), LDSU(10, filter="truncate", gamma=0.3).fit(X, y)
    np.testing.assert_allclose(model.transform(new), exact.transform(new), atol=1e-6)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("how", ["none", "many"])
@pytest.mark.parametrize("r", [5, 40])
def test_pairs_are_the_smallest_of_the_pencil_with_few_neighbors(how, r):
    X, y, _ = samples(n=150)
    y = labels(y, how)
    model = sparse(r, n_conditioning=6, lam=2.0, store_graphs=True).fit(X, y)
    codes = np.full(150, -1) if y is None else y
    E = slow_precision(X, codes, 0.3, 20, 6)
    M = slow_graph(model, 2.0)
    mu, V = model.eigenvalues_, model.transform(X)
    np.testing.assert_allclose(V.T @ E @ V, np.eye(r), atol=1e-6)
    np.testing.assert_allclose(M @ V, E @ V * mu, atol=1e-6 * np.abs(M @ V).max())
    np.testing.assert_allclose(mu, scipy.linalg.eigh(M, E, eigvals_only=True)[:r], atol=1e-7 * mu[-1])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-7])
def test_the_reported_residual_is_that_of_the_shifted_problem_and_bounds_the_error_of_mu(tol, monkeypatch):
    monkeypatch.setattr("ldsu.solvers._sparse_spectrum.SHIFT", 0.3)  # not negligible beside mu
    X, _, _ = samples(n=200)
    model = sparse(20, n_conditioning=6, tol=tol, store_graphs=True).fit(X)
    E, M = slow_precision(X, np.full(200, -1), 0.3, 20, 6), slow_graph(model, 1.0)
    mu, V = model.eigenvalues_, model.transform(X)
    sigma = 0.3 * np.trace(M) / 200
    residuals = M @ V - E @ V * mu
    rho = np.sqrt((residuals * np.linalg.solve(M + sigma * E, residuals)).sum(axis=0) / (mu + sigma))
    assert model.residual_ <= tol
    np.testing.assert_allclose(rho.max(), model.residual_, rtol=0.3)
    true = scipy.linalg.eigh(M, E, eigvals_only=True)[:20]
    assert np.all(np.abs(mu - true) <= tol * (true + sigma))


def test_finds_every_copy_of_nearly_equal_eigenvalues():
    # The same ten points, 100 times far apart: each eigenvalue comes a hundred times, more often than a block holds.
    copies = BLOCK + 36
    cell = np.random.default_rng(0).standard_normal((10, 3))
    X = (cell + 1000 * np.arange(copies)[:, None, None]).reshape(-1, 3)
    X = X + 1e-6 * np.random.default_rng(1).standard_normal(X.shape)
    model = sparse(2 * copies, gamma=0.5, n_conditioning=9, n_landmarks=0, tol=1e-6, clique_size=6).fit(X)
    exact = LDSU(2 * copies, filter="truncate", solver="exact", gamma=0.5, clique_size=6).fit(X)
    assert np.all(exact.eigenvalues_[:copies] < 1e-10)
    assert np.ptp(exact.eigenvalues_[copies:]) < 1e-3 * exact.eigenvalues_[-1]
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, atol=1e-4 * exact.eigenvalues_[-1])


def test_the_same_twice():
    X, y, new = samples(n=200)
    y = few_labels(y, 3)
    first, second = (sparse(12, n_conditioning=8, tol=1e-3).fit(X, y).transform(new) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_more_than_there_are_is_all_of_them():
    X, y, new = samples(n=60)
    y = few_labels(y, 3)
    model = sparse(100, n_conditioning=59).fit(X, y)
    F = model.transform(X)
    assert F.shape == (60, 60)
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2))
    np.testing.assert_allclose(F @ F.T, K, atol=1e-6)  # kernel PCA rotated
    assert sparse(0.5, n_conditioning=10).fit(X, y).transform(new).shape[1] == 30


def test_warns_and_says_what_to_change_where_max_iter_is_too_small():
    X, _, _ = samples(n=600)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2.*tol=.*n_components=30"):
        model = sparse(30, n_conditioning=8, max_iter=2).fit(X)
    assert model.residual_ > model.tol
    assert model.n_iter_ == 2
    assert model.transform(X[:3]).shape == (3, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert sparse(30, n_conditioning=8).fit(X).n_iter_ > 2


@pytest.mark.parametrize("n_components", ["auto", 0.5, None, MAX_PAIRS + 1])
def test_too_many_pairs_are_refused_with_their_number(n_components):
    X = np.random.default_rng(0).standard_normal((MAX_PAIRS * 3, 2))
    count = {None: 1500, MAX_PAIRS + 1: 501}.get(n_components, 750)
    with pytest.raises(ValueError, match=rf"n_components=.* is {count} .* at most {MAX_PAIRS}.*solver='exact'"):
        sparse(n_components).fit(X)


def test_a_graph_of_very_many_components_is_refused(monkeypatch):
    monkeypatch.setattr("ldsu.solvers._sparse_spectrum.MAX_COMPONENTS", 10)
    X, _, _ = samples()
    with pytest.raises(ValueError, match=r"graph of these samples has 90\. Use a larger clique_size"):
        sparse(5, clique_size=1).fit(X)


def test_components_are_joined_by_cliques_and_by_labels():
    members = np.array([[0, 1], [1, 0], [2, 3], [3, 2], [4, 5], [5, 4]])
    codes = np.array([0, -1, 0, -1, -1, 1])
    assert graph_components(members, codes, 1.0).tolist() == [0, 0, 0, 0, 1, 1]
    assert graph_components(members, codes, 0.0).tolist() == [0, 1, 0, 2, 3, 4]


def test_the_smooth_filter_that_is_not_there_is_named():
    X, _, _ = samples()
    with pytest.raises(ValueError, match="not 'heat'"):
        LDSU(filter="heat", solver="sparse").fit(X)


def test_torch_gives_the_same():
    pytest.importorskip("torch")
    X, y, new = samples(n=120)
    y = few_labels(y, 3)
    numpy, torch = (sparse(15, n_conditioning=8, device=device).fit(X, y) for device in ("cpu", "torch"))
    np.testing.assert_allclose(numpy.eigenvalues_, torch.eigenvalues_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(numpy.transform(new), torch.transform(new), atol=1e-5)
