"""Each method against the slow reference written from its formula, on random data and on digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import references as ref
from conftest import few_labels
from ldsu import KDA, KLPP, KPCA, KSDA, KSELF, LDSU, METHODS
from ldsu.graphs import clique_laplacian, clique_scatter
from ldsu.methods.kself import local_fisher_weights

GAMMA = 0.1


@pytest.fixture(params=["blobs", "digits"])
def problem(request):
    X, y = request.getfixturevalue(request.param)
    return X, y, ref.kernel_matrix("rbf", X, X, gamma=GAMMA)


def assert_same_features(ours, theirs, atol=1e-6):
    """Equal up to the sign of each column."""
    signs = np.sign(np.sum(ours * theirs, axis=0))
    np.testing.assert_allclose(ours, theirs * signs, atol=atol * np.abs(theirs).max())


@pytest.mark.parametrize("delta", [1e-3, 1.0])
def test_kda_is_its_formula(problem, delta):
    X, y, K = problem
    rows = np.flatnonzero(y >= 0)
    model = KDA(delta=delta, gamma=GAMMA).fit(X, y)
    alpha = ref.kda(K[np.ix_(rows, rows)], y[rows], delta)
    assert_same_features(model.transform(X), K[:, rows] @ alpha)


def test_kda_responses_are_met_by_the_labelled_points_as_the_ridge_vanishes(problem):
    X, y, _ = problem
    rows = np.flatnonzero(y >= 0)
    Z = KDA(delta=1e-9, gamma=GAMMA).fit_transform(X, y)[rows]
    np.testing.assert_allclose(Z.T @ Z, np.eye(Z.shape[1]), atol=1e-5)
    np.testing.assert_allclose(Z.sum(axis=0), 0, atol=1e-5)


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.01), (10.0, 1.0), (0.0, 0.1)])
def test_ksda_is_its_formula(problem, alpha, beta):
    X, y, K = problem
    L = ref.laplacian(ref.knn_graph(ref.squared_distances(X), 5))
    mu, a = ref.ksda(K, y, L, alpha, beta)
    model = KSDA(alpha=alpha, beta=beta, n_neighbors=5, gamma=GAMMA).fit(X, y)
    np.testing.assert_allclose(model.eigenvalues_, mu, rtol=1e-7)
    assert_same_features(model.transform(X), K @ a)


@pytest.mark.parametrize(("beta", "ridge"), [(0.5, 0.0), (0.01, 1e-3), (1.0, 0.0), (0.0, 1e-2)])
def test_kself_is_its_formula(problem, beta, ridge):
    X, y, K = problem
    mu, _, F = ref.kself(K, y, beta, ridge, 8)
    model = KSELF(8, beta=beta, ridge=ridge, gamma=GAMMA).fit(X, y)
    np.testing.assert_allclose(model.eigenvalues_, mu, rtol=1e-7)
    assert_same_features(model.transform(X), F)


def test_kself_with_beta_1_is_kernel_pca(problem):
    X, y, _ = problem
    Z = KSELF(5, beta=1.0, ridge=0.0, gamma=GAMMA).fit_transform(X, y)
    assert_same_features(Z - Z.mean(axis=0), KPCA(5, gamma=GAMMA).fit_transform(X), atol=1e-7)


def test_kself_with_beta_0_is_kernel_lfda_of_the_labelled_points_alone(problem):
    X, y, K = problem
    rows = np.flatnonzero(y >= 0)
    _, a, _ = ref.kself(K[np.ix_(rows, rows)], y[rows], 0.0, 1e-2, 2)
    Z = KSELF(2, beta=0.0, ridge=1e-2, gamma=GAMMA).fit_transform(X, y)
    assert_same_features(Z, K[:, rows] @ a)


def test_kself_weights_of_equal_affinities_give_fishers_scatters(problem):
    """With all affinities 1 the local scatters are Fisher's, and their sum is the total scatter of the labelled."""
    X, y, _ = problem
    Z, codes = X[y >= 0], y[y >= 0]
    # Within a class every distance is equal, so that A_ij = exp(-1) for all i != j: divide it out.
    W_lw, W_lb = local_fisher_weights(np.eye(codes.size), codes)
    same = (codes[:, None] == codes) & ~np.eye(codes.size, dtype=bool)
    W_lw[same] *= np.e
    W_lb[same] *= np.e

    def scatter(W):
        return Z.T @ (np.diag(W.sum(axis=1)) - W) @ Z

    def total(Z):
        return (Z - Z.mean(axis=0)).T @ (Z - Z.mean(axis=0))

    np.testing.assert_allclose(scatter(W_lw), sum(total(Z[codes == t]) for t in np.unique(codes)), atol=1e-9)
    np.testing.assert_allclose(scatter(W_lw) + scatter(W_lb), total(Z), atol=1e-9)


def test_kself_with_beta_0_keeps_only_directions_with_an_eigenvalue(digits):
    X, y = digits
    model = KSELF(100, beta=0.0, gamma=GAMMA).fit(X, y)
    assert model.coef_.shape[1] <= np.sum(y >= 0)
    order = np.random.default_rng(0).permutation(len(X))
    permuted = KSELF(100, beta=0.0, gamma=GAMMA).fit(X[order], y[order])
    Z, W = model.transform(X), permuted.transform(X)
    np.testing.assert_allclose(W @ W.T, Z @ Z.T, atol=1e-5 * np.abs(Z @ Z.T).max())


@pytest.mark.parametrize(("alpha", "beta"), [(1e4, 1e-4), (1e-4, 1e-4), (1.0, 1e4)])
def test_ksda_reaches_its_maximum_on_eight_bit_pixels_and_a_linear_kernel(alpha, beta):
    X, y = load_digits(return_X_y=True)
    X, y = 16.0 * X[:200], few_labels(y[:200], 5)
    model = KSDA(kernel="linear", alpha=alpha, beta=beta).fit(X, y)
    L = ref.laplacian(ref.knn_graph(ref.squared_distances(X), 5))
    N = np.diag((y >= 0).astype(float)) + alpha * L
    W = (y[:, None] == y) * (y >= 0) / 5.0
    Z, a = model.transform(X), model.coef_
    np.testing.assert_allclose(Z.T @ N @ Z + beta * a.T @ Z, np.eye(Z.shape[1]), atol=1e-5)
    np.testing.assert_allclose(np.diag(Z.T @ W @ Z), model.eigenvalues_, rtol=1e-4)
    assert Z.shape[1] == 10


@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_klpp_is_its_formula(problem, ridge):
    X, _, K = problem
    D2 = ref.squared_distances(X)
    members = np.array(ref.cliques(D2, 6))[:, 1:]
    t = 2.0 * np.take_along_axis(D2, members, axis=1).mean()
    mu, _, F = ref.klpp(K, ref.heat_graph(D2, 5, t), ridge, 8)
    model = KLPP(8, n_neighbors=5, heat_scale=2.0, ridge=ridge, gamma=GAMMA).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, mu, rtol=1e-6, atol=1e-9)
    # Where the graph falls into parts the eigenvalue 0 is multiple and only its eigenspace is determined.
    zero, Z = mu < 1e-9, model.transform(X)
    np.testing.assert_allclose(Z[:, zero] @ Z[:, zero].T, F[:, zero] @ F[:, zero].T, atol=1e-7)
    assert_same_features(Z[:, ~zero], F[:, ~zero])


def test_klpp_without_ridge_is_laplacian_eigenmaps():
    X, _ = load_digits(return_X_y=True)
    X = X[:80] / 16
    model = KLPP(6, n_neighbors=8, ridge=0.0, gamma=1.0).fit(X)
    D2 = ref.squared_distances(X)
    members = np.array(ref.cliques(D2, 9))[:, 1:]
    W = ref.heat_graph(D2, 8, np.take_along_axis(D2, members, axis=1).mean())
    D_root = np.sqrt(W.sum(axis=1))
    mu = np.linalg.eigvalsh(ref.laplacian(W) / np.outer(D_root, D_root))
    np.testing.assert_allclose(model.eigenvalues_, mu[:6], atol=1e-8)


@pytest.mark.parametrize("filter", ["truncate", "tikhonov", "heat"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "chi2", "linear", "poly", "cosine"])
@pytest.mark.parametrize("scaling", ["relative", "absolute"])
def test_ldsu_is_its_formula(digits, kernel, filter, scaling):
    X, y = digits
    X = np.abs(X)
    n, k, theta, lam, strength = len(X), 4, 0.3, 2.0, 0.7
    gamma = None if kernel in ("linear", "cosine") else ref.median_gamma(kernel, X, 2.0)
    K = ref.kernel_matrix(kernel, X, X, gamma=gamma, degree=2)
    in_input = kernel in ("rbf", "linear")
    members = ref.cliques(ref.squared_distances(X) if in_input else ref.kernel_squared_distances(K), k)
    grams = [ref.clique_gram(X, i) if in_input else ref.clique_gram_kernel(K, i) for i in members]
    if scaling == "relative":
        L = ref.relative_units(ref.clique_laplacian(grams, members, theta * ref.mean_clique_scatter(grams), n))
        eta = strength / np.mean(np.diag(K))
    else:
        L = ref.clique_laplacian(grams, members, theta, n)
        eta = strength
    M = ref.class_laplacian(y) + lam * L

    model = LDSU(
        kernel=kernel, degree=2, filter=filter, clique_size=k, theta=theta, lam=lam, strength=strength, scaling=scaling,
        n_components=20 if filter == "truncate" else None, store_graphs=True,
    ).fit(X, y)  # fmt: skip
    assert (model.gamma_ is None) if gamma is None else model.gamma_ == pytest.approx(gamma)
    np.testing.assert_allclose(model.clique_laplacian_.toarray(), L, atol=1e-6 * np.abs(L).max())
    np.testing.assert_allclose(model.class_laplacian_.toarray(), ref.class_laplacian(y))
    Z = model.transform(X)
    if filter == "truncate":
        mu, _, F = ref.ldsu_truncate(K, M, 20)
        np.testing.assert_allclose(model.eigenvalues_, mu[:20], rtol=1e-5, atol=1e-8 * mu.max())
        np.testing.assert_allclose(Z @ Z.T, F @ F.T, atol=1e-5 * np.abs(F @ F.T).max())
    else:
        f = {"tikhonov": lambda mu: 1 / (1 + eta * mu), "heat": lambda mu: np.exp(-eta * mu)}[filter]
        Kt = ref.filtered_kernel(K, M, f)
        labelled = np.flatnonzero(y >= 0)
        assert set(labelled) <= set(model.anchors_)
        np.testing.assert_allclose(Z[labelled] @ Z.T, Kt[labelled], atol=1e-6 * np.abs(Kt).max())


def test_methods_of_one_kernel_given_three_ways_agree(problem):
    """By name, as a function, and precomputed."""
    X, y, K = problem
    train, new = np.arange(len(X) - 10), np.arange(len(X) - 10, len(X))

    def rbf(a, b):
        return np.exp(-GAMMA * np.sum((a - b) ** 2))

    for name, method in METHODS.items():
        if name == "EnFS":
            continue
        space = {"cliques": "kernel"} if name == "LDSU" else {}
        precomputed = method(kernel="precomputed", **space).fit(K[np.ix_(train, train)], y[train])
        function = method(kernel=rbf, **space).fit(X[train], y[train])
        Z = precomputed.transform(K[np.ix_(new, train)])
        np.testing.assert_allclose(function.transform(X[new]), Z, atol=1e-7 * np.abs(Z).max())
        if name in ("KDA", "KPCA", "KSELF", "LDSU"):
            named = method(gamma=GAMMA, **space).fit(X[train], y[train])
            np.testing.assert_allclose(named.transform(X[new]), Z, atol=1e-7 * np.abs(Z).max())


def test_every_method_separates_digits_better_than_chance():
    X, y = load_digits(return_X_y=True)
    few = few_labels(y[:600], 5)
    from ldsu import LDSUClassifier

    for name, method in METHODS.items():
        accuracy = LDSUClassifier(method()).fit(X[:600], few).score(X[600:1200], y[600:1200])
        assert accuracy > 0.5, name


def test_relative_parameters_do_not_change_with_the_unit_of_the_data(digits):
    X, y = digits
    for kernel in ("rbf", "linear", "cosine"):
        for filter in ("truncate", "tikhonov", "heat"):
            small, large = (LDSU(kernel=kernel, filter=filter).fit_transform(s * X, y) for s in (1.0, 1000.0))
            unit = np.linalg.norm(large) / np.linalg.norm(small)
            np.testing.assert_allclose(large, unit * small, atol=1e-5 * np.abs(large).max())


def test_input_cliques_can_be_asked_for_with_any_kernel(digits):
    X, y = digits
    model = LDSU(kernel="cosine", cliques="input", store_graphs=True).fit(X, y)
    expected, _ = clique_laplacian(*clique_scatter(X, None, 3), theta=0.1, relative=True)
    np.testing.assert_allclose(model.clique_laplacian_.toarray(), expected.toarray())
    with pytest.raises(ValueError, match="no input space"):
        LDSU(kernel="precomputed", cliques="input").fit(X @ X.T, y)


def test_one_component_of_many_that_are_equal():
    # With this gamma no two samples are alike: every eigenvalue but one is 1, and LAPACK's search for a single one
    # of them comes back with none.
    X = 1e-8 * np.random.default_rng(0).standard_normal((15, 1))
    model = KPCA(n_components=1, gamma=1e300).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, [1.0])
    assert np.isfinite(model.transform(X)).all()
