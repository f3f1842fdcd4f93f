"""Nearest neighbors on PyTorch: what comparing all pairs finds, and what NumPy finds."""

import numpy as np
import pytest

from ldsu.neighbors import _device, kernel_neighbors, nearest, nearest_by_kernel

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def brute(X, Q, exclude_self):
    X, Q = X.astype(np.float64), Q.astype(np.float64)
    D2 = np.array([((X - q) ** 2).sum(axis=1) for q in Q])
    if exclude_self:
        np.fill_diagonal(D2, np.inf)
    return D2


def rows(kind, dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    if kind == "duplicates":
        X = np.repeat(X[:30], 3, axis=0)[rng.permutation(90)]
    elif kind == "constant":
        X[:] = X[0]
    elif kind == "far from zero":
        X = np.round(64 * X) / 64 + 1024  # which single precision holds
    elif kind == "tight clusters":
        X = 100 * X[rng.integers(0, 3, 90)] + 1e-4 * rng.standard_normal((90, 6))
    return X.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [0, 1, 5, 89])
@pytest.mark.parametrize("kind", ["plain", "duplicates", "constant", "far from zero", "tight clusters"])
@pytest.mark.parametrize("exclude_self", [True, False])
def test_nearest_finds_what_comparing_all_pairs_finds(kind, k, dtype, exclude_self):
    X = rows(kind, dtype)
    Q = X if exclude_self else X[::7] + np.dtype(dtype).type(0.25)
    distances, indices = nearest(torch.as_tensor(X), torch.as_tensor(Q), k, exclude_self, torch)
    assert distances.dtype == torch.as_tensor(X).dtype
    assert indices.dtype == torch.int64
    distances, indices = distances.numpy(), indices.numpy()
    assert distances.shape == indices.shape == (len(Q), k)
    D2 = brute(X, Q, exclude_self)
    # The spread of the data is the unit of rounding, and the distances themselves where they are by differences.
    eps = 64 * float(np.finfo(dtype).eps)
    expected = np.sort(D2, axis=1)[:, :k]
    offset = np.finfo(dtype).eps * np.abs(X - X.mean(axis=0, dtype=np.float64)).max()
    tolerance = eps * expected + 8 * offset * np.sqrt(expected) + 8 * offset**2
    assert np.all(np.abs(distances - expected) <= tolerance)
    assert np.all(np.abs(np.take_along_axis(D2, indices, axis=1) - expected) <= tolerance)
    assert np.all(np.diff(distances, axis=1) >= 0)
    for row, listed in enumerate(indices):
        assert len(set(listed)) == k
        assert not (exclude_self and row in listed)


def test_nearest_does_not_depend_on_the_blocks(monkeypatch):
    X = torch.as_tensor(rows("duplicates", "float64"))
    whole = nearest(X, X, 4, True, torch)
    monkeypatch.setattr("ldsu.neighbors._device.BLOCK_BYTES", 20_000)
    parts = nearest(X, X, 4, True, torch)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


@pytest.mark.parametrize("k", [0, 1, 5, 89])
def test_neighbors_in_the_kernel_space_are_those_of_numpy(k, monkeypatch):
    X = rows("plain", "float64")
    K = (X @ X.T + 1) ** 2
    np.testing.assert_array_equal(nearest_by_kernel(torch.as_tensor(K), k, torch).numpy(), kernel_neighbors(K, k)[1])
    monkeypatch.setattr("ldsu.neighbors._device.BLOCK_BYTES", 20_000)
    np.testing.assert_array_equal(nearest_by_kernel(torch.as_tensor(K), k, torch).numpy(), kernel_neighbors(K, k)[1])


@pytest.fixture
def many_cells(monkeypatch):
    """Rows in cells of about ten, of which a quarter is searched."""
    monkeypatch.setattr(_device, "CELL_ROWS", 10)
    monkeypatch.setattr(_device, "SEARCHED", 50)
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 8))[rng.integers(0, 40, 2000)] + 0.3 * rng.standard_normal((2000, 8))


def recall(X, Q, k, exclude_self):
    X, Q = torch.as_tensor(X), torch.as_tensor(Q)
    Q = X if exclude_self else Q
    distances, indices = _device.nearest_in_cells(X, Q, k, exclude_self, torch)
    exact = X.double()
    true = nearest(exact, exact if exclude_self else Q.double(), k, exclude_self, torch)[1]
    found = (indices[:, :, None] == true[:, None]).any(axis=2)
    np.testing.assert_allclose(distances[found], ((X[indices] - Q[:, None]) ** 2).sum(axis=2)[found], rtol=1e-6)
    assert bool((distances.diff(dim=1) >= 0).all())
    assert not (exclude_self and bool((indices == torch.arange(len(X))[:, None]).any()))
    assert indices.sort(dim=1)[0].diff(dim=1).min() > 0  # none twice
    return float(found.double().mean())


@pytest.mark.parametrize("exclude_self", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0, 1000])
@pytest.mark.parametrize("unit", [1, 1e-12, 1e12])
def test_few_cells_of_many_contain_nearly_all_neighbors(many_cells, exclude_self, dtype, offset, unit):
    X = (unit * (many_cells + offset)).astype(dtype)
    assert recall(X, X[::7], 10, exclude_self) > 0.98


def test_cells_do_not_depend_on_the_blocks(many_cells, monkeypatch):
    X = torch.as_tensor(many_cells)
    whole = _device.nearest_in_cells(X, X, 4, True, torch)
    monkeypatch.setattr(_device, "BLOCK_BYTES", 20_000)
    parts = _device.nearest_in_cells(X, X, 4, True, torch)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_a_row_far_from_all_others_leaves_their_neighbors_as_they_are(many_cells):
    X = many_cells.astype("float32")
    X[17] = 1e6
    assert recall(X, X, 10, True) > 0.97


def test_fewer_rows_than_neighbors_in_the_searched_cells_are_compared_with_all(many_cells, monkeypatch):
    monkeypatch.setattr(_device, "SEARCHED", 1)
    assert recall(many_cells, many_cells, 100, True) > 0.99
    assert recall(np.repeat(many_cells[:3], 50, axis=0), many_cells[:20], 100, False) > 0


@pytest.mark.parametrize("n", [1, 31, 32, 1000, 1500])
@pytest.mark.parametrize("k", [1, 5])
def test_the_smallest_of_groups_are_the_smallest_of_all(n, k):
    scores = torch.as_tensor(np.random.default_rng(0).permuted(np.tile(np.arange(n), (9, 1)), axis=1)).float()
    scores[:, 0] = float("inf")
    k = min(k, n)
    values, columns = _device._smallest(scores, k, torch)
    expected = torch.topk(scores, k, dim=1, largest=False)
    assert torch.equal(values, expected[0])
    assert torch.equal(columns, expected[1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
def test_cells_on_a_gpu_contain_nearly_all_neighbors(many_cells):
    X = torch.as_tensor(many_cells, dtype=torch.float32, device="cuda")
    found, true = (search(X, X, 10, True, torch)[1] for search in (_device.nearest_in_cells, nearest))
    assert float((found[:, :, None] == true[:, None]).any(axis=2).double().mean()) > 0.98
