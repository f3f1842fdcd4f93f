"""The identities of the method (design notes, section 2), each one a test."""

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import references as ref
from conftest import few_labels
from ldsu import KPCA, LDSU, BlockScaler, LabelledOnly, Problem, encode_labels
from ldsu.kernels import Kernel
from ldsu.solvers import Settings, smooth_features

ABSOLUTE = {"scaling": "absolute", "gamma": 0.05}


def kernel_and_graphs(X, y, k=3, theta=1.0, gamma=0.05):
    K = ref.kernel_matrix("rbf", X, X, gamma=gamma)
    members = ref.cliques(ref.squared_distances(X), k)
    L = ref.clique_laplacian([ref.clique_gram(X, i) for i in members], members, theta, len(X))
    return K, ref.class_laplacian(y), L


def test_1_coefficients_are_orthonormal_in_the_kernel_and_give_the_training_features(blobs):
    X, y = blobs
    model = LDSU(None, filter="truncate", theta=1.0, **ABSOLUTE).fit(X, y)
    K, L_w, L = kernel_and_graphs(X, y)
    a = model.coef_
    np.testing.assert_allclose(a.T @ K @ a, np.eye(a.shape[1]), atol=1e-8)
    mu, _, F = ref.ldsu_truncate(K, L_w + L, a.shape[1])
    np.testing.assert_allclose(K @ a, model.transform(X), atol=1e-10)
    np.testing.assert_allclose(model.eigenvalues_, mu, rtol=1e-6, atol=1e-9)
    # The two clusters of blobs are not joined, so the eigenvalue 0 is double and only its eigenspace is determined.
    double = np.sum(mu < 1e-9)
    ours = model.transform(X)
    np.testing.assert_allclose(ours[:, :double] @ ours[:, :double].T, F[:, :double] @ F[:, :double].T, atol=1e-7)
    np.testing.assert_allclose(np.abs(ours[:, double:]), np.abs(F[:, double:]), atol=1e-6)


@pytest.mark.parametrize("parameters", [{}, {"lam": 1e-3}, {"theta": 1e3}, {"clique_size": 10}])
def test_2_all_components_are_the_kernel_itself_whatever_the_parameters(digits, parameters):
    X, y = digits
    model = LDSU(None, filter="truncate", gamma=0.2, **parameters).fit(X, y)
    F = model.transform(X)
    np.testing.assert_allclose(F @ F.T, ref.kernel_matrix("rbf", X, X, gamma=0.2), atol=1e-8)


def test_2_a_linear_svm_cannot_tell_all_components_from_kernel_pca(digits):
    X, y = digits
    svm = LabelledOnly(OneVsRestClassifier(SVC(kernel="linear", C=10.0, tol=1e-8)))
    scores = [
        make_pipeline(method, svm).fit(X, y).decision_function(X)
        for method in (LDSU(None, filter="truncate", gamma=0.2), KPCA(gamma=0.2))
    ]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)


def test_3_with_one_label_per_class_lam_only_rescales(blobs):
    X, y = blobs
    one_each = np.full_like(y, -1)
    for label in range(3):
        one_each[np.flatnonzero(y == label)[0]] = label
    first, second = (LDSU(10, filter="truncate", lam=lam).fit(X, one_each) for lam in (1.0, 7.0))
    np.testing.assert_allclose(second.eigenvalues_, 7 * first.eigenvalues_, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(second.transform(X), first.transform(X), atol=1e-6)
    unsupervised = LDSU(10, filter="truncate").fit(X)
    np.testing.assert_allclose(unsupervised.transform(X), first.transform(X), atol=1e-6)


def test_4_without_the_local_graph_exactly_m_minus_c_eigenvalues_are_positive(digits):
    X, y = digits
    model = LDSU(None, filter="truncate", lam=0.0).fit(X, y)
    m, c = np.sum(y >= 0), len(np.unique(y[y >= 0]))
    assert np.sum(model.eigenvalues_ > 1e-9) == m - c
    kept = model.transform(X)[:, : -(m - c)]
    for label in range(c):
        within = kept[y == label]
        np.testing.assert_allclose(within - within.mean(axis=0), 0, atol=1e-6)


def test_5_first_features_are_tiny_and_block_scaling_keeps_their_proportions(digits):
    X, y = digits
    F = LDSU(None, filter="truncate").fit_transform(X, y)
    squared_norms = np.sum(F**2, axis=0)
    assert np.median(squared_norms[:30]) < 0.3 * np.median(squared_norms[-30:])
    Z = BlockScaler().fit_transform(F)
    assert np.mean(np.sum(Z**2, axis=1)) == pytest.approx(1)
    ratio = Z[np.abs(F) > 1e-12] / F[np.abs(F) > 1e-12]
    np.testing.assert_allclose(ratio, ratio[0])


@pytest.mark.parametrize(
    ("name", "f"),
    [("tikhonov", lambda mu, t: 1 / (1 + t * mu)), ("heat", lambda mu, t: np.exp(-t * mu))],
)
def test_6_smooth_features_have_the_inner_products_of_the_filtered_kernel(blobs, name, f):
    X, y = blobs
    K, L_w, L = kernel_and_graphs(X, y)
    model = LDSU(filter=name, strength=0.3, theta=1.0, min_anchors=1, **ABSOLUTE).fit(X, y)
    Kt = ref.filtered_kernel(K, L_w + L, lambda mu: f(mu, 0.3))
    labelled = np.flatnonzero(y >= 0)
    np.testing.assert_array_equal(model.anchors_, labelled)
    Z = model.transform(X)
    np.testing.assert_allclose(Z[labelled] @ Z.T, Kt[labelled], atol=1e-7)
    np.testing.assert_allclose(Z @ Z.T, ref.anchored_inner_products(Kt, labelled), atol=1e-7)


def test_6_tikhonov_is_the_inverse_of_a_sum_and_both_roads_lead_to_it(blobs):
    X, y = blobs
    K, L_w, L = kernel_and_graphs(X, y)
    Kt = ref.tikhonov_kernel(K, L_w + 2 * L, 0.3)
    model = LDSU(strength=0.3, lam=2.0, theta=1.0, **ABSOLUTE).fit(X, y)
    settings = Settings(strength=0.3, lam=2.0, theta=1.0, scaling="absolute", clique_size=model.clique_size_)
    codes, kernel = encode_labels(y, len(y))[0], Kernel("rbf", model.gamma_)
    labelled = np.flatnonzero(y >= 0)
    spectral = [smooth_features(Problem(X), codes, kernel, settings, joint=joint)[:] for joint in (False, True)]
    for Z in (model.transform(X), *spectral):
        np.testing.assert_allclose(Z[labelled] @ Z.T, Kt[labelled], atol=1e-7)


def test_6_features_solve_the_generalized_problem_and_the_filtered_kernel_needs_no_square_roots(blobs):
    X, y = blobs
    K, L_w, L = kernel_and_graphs(X, y)
    M = L_w + L
    model = LDSU(20, filter="truncate", theta=1.0, **ABSOLUTE).fit(X, y)
    v = model.transform(X)
    np.testing.assert_allclose(M @ v, np.linalg.solve(K, v) * model.eigenvalues_, atol=1e-6)
    labelled = np.flatnonzero(y >= 0)
    for name, Kt in (
        ("heat", K @ scipy.linalg.expm(-0.3 * M @ K)),
        ("tikhonov", K @ np.linalg.inv(np.eye(len(X)) + 0.3 * M @ K)),
    ):
        Z = LDSU(filter=name, strength=0.3, theta=1.0, **ABSOLUTE).fit_transform(X, y)
        np.testing.assert_allclose(Z[labelled] @ Z.T, Kt[labelled], atol=1e-7)


@pytest.mark.parametrize("lam", [1e-4, 1e-3, 1e-2, 1.0])
def test_truncation_reaches_the_optimum_of_the_papers_objective_on_eight_bit_pixels(lam):
    """Eigenvalues then span many orders of magnitude, and none may be taken for another."""
    X, y = load_digits(return_X_y=True)
    X, few = 16.0 * X[:300], few_labels(y[:300], 5)
    model = LDSU(150, filter="truncate", scaling="absolute", theta=1.0, lam=lam, store_graphs=True).fit(X, few)
    M = model.class_laplacian_ + lam * model.clique_laplacian_
    Z = model.transform(X)
    K = ref.kernel_matrix("rbf", X, X, gamma=model.gamma_)
    optimum = ref.ldsu_truncate(K, M.toarray(), 150)[0][:150].sum()
    assert np.trace(Z.T @ (M @ Z)) == pytest.approx(optimum, rel=1e-4)
    assert model.eigenvalues_.sum() == pytest.approx(optimum, rel=1e-4)


def test_without_strength_the_smooth_filters_leave_the_kernel_alone(blobs):
    X, y = blobs
    K = ref.kernel_matrix("rbf", X, X, gamma=0.05)
    labelled = np.flatnonzero(y >= 0)
    for name in ("tikhonov", "heat"):
        Z = LDSU(filter=name, strength=0.0, gamma=0.05).fit_transform(X, y)
        np.testing.assert_allclose(Z[labelled] @ Z.T, K[labelled], atol=1e-7)


def test_kernel_pca_is_its_formula(digits):
    X, _ = digits
    K = ref.kernel_matrix("rbf", X, X, gamma=0.2)
    H = np.eye(len(X)) - 1 / len(X)
    eigenvalues, V = np.linalg.eigh(H @ K @ H)
    model = KPCA(10, gamma=0.2).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, eigenvalues[::-1][:10], rtol=1e-8)
    expected = V[:, ::-1][:, :10] * np.sqrt(eigenvalues[::-1][:10])
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(expected), atol=1e-7)


def test_kernel_pca_is_scikit_learns(digits):
    X, _ = digits
    ours = KPCA(10, gamma=0.2).fit(X[:80])
    theirs = KernelPCA(10, kernel="rbf", gamma=0.2, eigen_solver="dense").fit(X[:80])
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), atol=1e-8)
