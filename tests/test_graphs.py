import numpy as np
import pytest
import scipy.sparse

import references as ref
from ldsu.graphs import (
    class_laplacian,
    class_laplacian_rows,
    clique_grams,
    clique_grams_kernel,
    clique_laplacian,
    clique_scatter,
    graph_laplacian,
    mean_clique_scatter,
    neighbor_weights,
)
from ldsu.neighbors import cliques, input_neighbors


def reference_cliques(D2, k):
    return np.array(ref.cliques(D2, k))


def test_class_laplacian_is_its_formula(blobs):
    _, y = blobs
    L_w = ref.class_laplacian(y)
    np.testing.assert_allclose(class_laplacian(y).toarray(), L_w)
    Z = np.random.default_rng(0).standard_normal((y.size, 4))
    product = np.zeros_like(Z)
    for members, rows in class_laplacian_rows(y, Z):
        product[members] = rows
    np.testing.assert_allclose(product, L_w @ Z, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("theta", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("space", ["input", "kernel"])
def test_clique_laplacian_is_its_formula(blobs, k, theta, space):
    X, _ = blobs
    K = ref.kernel_matrix("rbf", X, X, gamma=0.05)
    D2 = ref.squared_distances(X) if space == "input" else ref.kernel_squared_distances(K)
    members = reference_cliques(D2, k)
    grams = [ref.clique_gram(X, i) if space == "input" else ref.clique_gram_kernel(K, i) for i in members]
    expected = ref.clique_laplacian(grams, members, theta, len(X))

    ours = clique_grams(X, members) if space == "input" else clique_grams_kernel(K, members)
    np.testing.assert_allclose(ours, grams, atol=1e-10)
    assert mean_clique_scatter(ours) == pytest.approx(ref.mean_clique_scatter(grams), abs=1e-12)
    L = clique_laplacian(members, ours, theta)[0].toarray()
    np.testing.assert_allclose(L, expected, atol=1e-9 * max(1, np.abs(expected).max()))
    np.testing.assert_allclose(L, L.T, atol=1e-9 / theta)
    np.testing.assert_allclose(L @ np.ones(len(X)), 0, atol=1e-9 / theta)
    assert np.linalg.eigvalsh(L).min() > -1e-9 / theta


def test_clique_laplacian_of_sparse_samples_is_that_of_dense_ones(blobs):
    X, _ = blobs
    members = cliques(input_neighbors(X, 3)[1])
    np.testing.assert_allclose(clique_grams(scipy.sparse.csr_array(X), members), clique_grams(X, members))


def test_relative_units_make_the_graph_independent_of_the_unit_of_the_data(blobs):
    X, _ = blobs
    for K_of in (lambda X: None, lambda X: X @ X.T):
        L, theta = clique_laplacian(*clique_scatter(X, K_of(X), 4), theta=0.1, relative=True)
        L10, theta10 = clique_laplacian(*clique_scatter(10 * X, K_of(10 * X), 4), theta=0.1, relative=True)
        np.testing.assert_allclose(L10.toarray(), L.toarray(), atol=1e-10)
        assert theta10 == pytest.approx(100 * theta)
        assert L.diagonal().mean() == pytest.approx(1)


def test_linear_kernel_cliques_are_input_cliques(blobs):
    X, _ = blobs
    X = X - X.mean(axis=0)
    in_input, _ = clique_laplacian(*clique_scatter(X, None, 4), theta=0.1)
    in_kernel, _ = clique_laplacian(*clique_scatter(X, X @ X.T, 4), theta=0.1)
    np.testing.assert_allclose(in_input.toarray(), in_kernel.toarray(), atol=1e-8)


def test_neighbor_graph_is_its_formula(blobs):
    X, _ = blobs
    D2 = ref.squared_distances(X)
    distances, neighbors = input_neighbors(X, 4)
    W = ref.knn_graph(D2, 4)
    np.testing.assert_allclose(neighbor_weights(neighbors).toarray(), W)
    np.testing.assert_allclose(graph_laplacian(neighbor_weights(neighbors)).toarray(), ref.laplacian(W))
    np.testing.assert_allclose(
        neighbor_weights(neighbors, np.exp(-distances / 7)).toarray(), ref.heat_graph(D2, 4, 7), atol=1e-10
    )


def test_clique_ridge_too_small_for_floating_point_is_an_error():
    members = np.array([[0, 1], [1, 0]])
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="theta = 1e-320 is too small"):
        clique_laplacian(members, np.zeros((2, 2, 2)), 1e-320)
