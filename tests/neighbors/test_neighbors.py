"""Nearest neighbors: all pairs, in the input and in the kernel space, and those found in cells."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import references as ref
from ldsu.neighbors import cell_index, cell_neighbors, cliques, input_neighbors, kernel_neighbors


@pytest.mark.parametrize("k", [1, 2, 5, 60])
def test_cliques_are_the_point_and_its_nearest(blobs, k):
    X, _ = blobs
    expected = np.array(ref.cliques(ref.squared_distances(X), k))
    np.testing.assert_array_equal(cliques(input_neighbors(X, k - 1)[1]), expected)
    np.testing.assert_array_equal(cliques(kernel_neighbors(X @ X.T, k - 1)[1]), expected)


def test_a_point_is_in_its_own_clique_among_copies_of_itself():
    X = np.repeat(np.random.default_rng(0).standard_normal((3, 2)), 6, axis=0)
    for neighbors in (input_neighbors(X, 4)[1], kernel_neighbors(X @ X.T, 4)[1]):
        assert not np.any(neighbors == np.arange(18)[:, None])


def test_neighbor_distances_are_squared_distances(blobs):
    X, _ = blobs
    D2 = ref.squared_distances(X)
    for distances, indices in (input_neighbors(X, 3), kernel_neighbors(X @ X.T, 3)):
        np.testing.assert_allclose(distances, np.take_along_axis(D2, indices, axis=1), rtol=1e-9)


def recall(found, X, Q, k, exclude_self=False):
    D2 = ((Q[:, None] - X) ** 2).sum(axis=2)
    if exclude_self:
        np.fill_diagonal(D2, np.inf)
    furthest = np.sort(D2, axis=1)[:, k - 1 : k]
    return float(np.mean(np.take_along_axis(D2, found, axis=1) <= furthest * (1 + 1e-6)))


def test_cells_find_nearly_all_true_neighbors_and_never_the_row_itself(monkeypatch):
    monkeypatch.setattr("ldsu.neighbors._cells.CANDIDATES", 400)
    X = load_digits(return_X_y=True)[0].astype(np.float32)
    index = cell_index(X)
    assert index.centres.shape[0] > 10
    found = cell_neighbors(index, X, X, 12, exclude_self=True)
    assert recall(found, X, X, 12, exclude_self=True) > 0.97
    assert not np.any(found == np.arange(len(X))[:, None])
    distances = ((X[:, None] - X[found]) ** 2).sum(axis=2)
    assert np.all(np.diff(distances, axis=1) >= -1e-4)
    assert recall(cell_neighbors(index, X, X[:200] + 0.5, 12), X, X[:200] + 0.5, 12) > 0.95


@pytest.mark.parametrize("k", [1, 29, 30, 50])
def test_cells_give_as_many_neighbors_as_there_are(k):
    X = np.repeat(np.random.default_rng(0).standard_normal((10, 4)), 3, axis=0)
    found = cell_neighbors(cell_index(X), X, X, k, exclude_self=True)
    assert found.shape == (30, min(k, 29))
    assert not np.any(found == np.arange(30)[:, None])
    assert all(np.unique(row).size == row.size for row in found)
    np.testing.assert_array_equal(X[found[:, 0]], X)  # its copy
