"""Nearest neighbors on a GPU: exact, block by block, or approximate with k-means cells for very many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import gen_batches

# Approximate memory of a block of rows.
BLOCK_BYTES = 2**30
# Candidates beyond k that are compared by differences.
SPARE = 8
# With more rows than ALL_PAIRS_ROWS only SEARCHED cells of about CELL_ROWS rows are searched. The rows of a cell choose
# them by voting for their VOTES nearest centers.
ALL_PAIRS_ROWS = 200_000
CELL_ROWS, SEARCHED, VOTES, ROUNDS = 1000, 64, 32, 5
# Columns of a group whose minimum is found first.
GROUP = 32
# Limit of numbers in half precision, whose double is finite, in units of their typical size.
LARGEST_HALF = 3e4


def nearest(X: Any, Q: Any, k: int, exclude_self: bool, xp: Any) -> tuple[Any, Any]:
    """Find the k nearest rows of X (n x d) for each row of Q (m x d) by Euclidean distance.

    Matrix products, ``|x|^2 - 2 x^T q``, select ``k + 8`` candidates, which are then ordered by differences ``x - q``.
    If rounding may have excluded a nearer row, candidates are selected by differences, too. Returns squared distances
    (m, k), ascending, and indices (m, k), ties ordered by index. The dtype of the tensors X and Q is that of the
    computation. With `exclude_self`, Q is X and rows are not their own neighbors; duplicates of a row are.
    """
    n, d = X.shape
    m = Q.shape[0]
    distances = xp.empty((m, k), dtype=X.dtype, device=X.device)
    indices = xp.empty((m, k), dtype=xp.int64, device=X.device)
    if k == 0 or m == 0:
        return distances, indices
    others = n - 1 if exclude_self else n
    n_candidates = min(k + SPARE, others)
    origin = X.mean(axis=0)
    points = X - origin  # avoid rounding errors from a large common offset
    norms = (points * points).sum(axis=1)
    largest = float(norms.max())
    unit = (4 + float(np.sqrt(d))) * float(xp.finfo(X.dtype).eps)  # relative error of a product of d terms
    row_bytes = X.element_size() * (3 * n + 3 * n_candidates * d)
    for block in gen_batches(m, max(1, BLOCK_BYTES // row_bytes)):
        queries = Q[block] - origin
        scores = xp.addmm(norms, queries, points.T, alpha=-2)
        rows = xp.arange(block.start, block.stop, device=X.device)
        if exclude_self:
            scores[rows - block.start, rows] = float("inf")
        bounds, candidates = _smallest(scores, n_candidates, xp)
        near, order = _by_differences(points, queries, candidates, k, xp)
        if n_candidates < others:
            lengths = (queries * queries).sum(axis=1)
            lower_bound = bounds[:, -1] + lengths - unit * (lengths + largest)  # of the distance to other rows
            doubtful = xp.nonzero((near[:, -1] > 0) & (near[:, -1] > lower_bound))[:, 0]
            if doubtful.shape[0]:
                scores = xp.cdist(queries[doubtful], points, compute_mode="donot_use_mm_for_euclid_dist")
                if exclude_self:
                    scores[xp.arange(doubtful.shape[0], device=X.device), rows[doubtful]] = float("inf")
                candidates = xp.topk(scores, n_candidates, dim=1, largest=False)[1]
                near[doubtful], order[doubtful] = _by_differences(points, queries[doubtful], candidates, k, xp)
        distances[block], indices[block] = near, order
    return distances, indices


def nearest_in_cells(X: Any, Q: Any, k: int, exclude_self: bool, xp: Any) -> tuple[Any, Any]:
    """Approximate `nearest`: each row of Q is only compared with the rows of X in nearby k-means cells.

    Products in half precision, relative to the center of the cell, select the candidates.
    """
    m = Q.shape[0]
    distances = xp.empty((m, k), dtype=X.dtype, device=X.device)
    indices = xp.empty((m, k), dtype=xp.int64, device=X.device)
    if k == 0 or m == 0:
        return distances, indices
    centers = _cell_centers(X, xp)
    n_cells = centers.shape[0]
    votes = _nearest_centers(Q, centers, min(VOTES, n_cells), xp)
    queries = _rows_by_cell(votes[:, 0], n_cells, xp)
    rows = queries if Q is X else _rows_by_cell(_nearest_centers(X, centers, 1, xp)[:, 0], n_cells, xp)
    pairs = xp.bincount((votes[:, :1] * n_cells + votes).reshape(-1), minlength=n_cells**2).reshape(n_cells, n_cells)
    pairs.fill_diagonal_(m + 1)  # its own first
    to_search = xp.topk(pairs, min(SEARCHED, n_cells), dim=1)[1].cpu().tolist()
    for cell, some in enumerate(queries):
        if not some.shape[0]:
            continue
        near = xp.cat([rows[j] for j in to_search[cell]])
        if near.shape[0] <= k + SPARE:
            near = xp.cat([rows[cell], *(others for j, others in enumerate(rows) if j != cell)])
        points = X[near] - centers[cell]
        # The median: a single row may be far from all others, or be its cell.
        unit = xp.clip(xp.linalg.vector_norm(points, dim=1).median() / X.shape[1] ** 0.5, xp.finfo(X.dtype).tiny, None)
        points = _in_half(points, unit, xp)
        norms = points.float().square_().sum(axis=1)
        n_candidates = min(k + SPARE, near.shape[0] - exclude_self)
        row_bytes = 4 * 3 * near.shape[0] + X.element_size() * 3 * n_candidates * X.shape[1]
        for block in gen_batches(some.shape[0], max(1, BLOCK_BYTES // row_bytes)):
            # With `exclude_self` the queries of a cell are its rows, the first of the candidates.
            half = points[block] if exclude_self else _in_half(Q[some[block]] - centers[cell], unit, xp)
            scores = _half_products(-2 * half, points, xp)
            scores += norms
            if exclude_self:
                scores[:, block].fill_diagonal_(float("inf"))
            best = near[_smallest(scores, n_candidates, xp)[1]]
            distances[some[block]], indices[some[block]] = _by_differences(X, Q[some[block]], best, k, xp)
    return distances, indices


def _cell_centers(X: Any, xp: Any) -> Any:
    """Centers of k-means cells of about `CELL_ROWS` rows, from some of the rows."""
    n, n_cells = X.shape[0], max(1, X.shape[0] // CELL_ROWS)
    generator = xp.Generator(device=X.device).manual_seed(0)
    chosen = xp.randperm(n, generator=generator, device=X.device)
    centers = X[chosen[:n_cells]].clone()
    sample = X[chosen[: 40 * n_cells]]
    for _ in range(ROUNDS):
        cells = _nearest_centers(sample, centers, 1, xp)[:, 0]
        sums = xp.zeros_like(centers).index_add_(0, cells, sample)
        counts = xp.bincount(cells, minlength=n_cells)
        centers = xp.where(counts[:, None] > 0, sums / xp.clip(counts, 1, None)[:, None], centers)
    return centers


def _rows_by_cell(cell_of: Any, n_cells: int, xp: Any) -> Any:
    """The rows of each cell, ascending."""
    return xp.split(xp.argsort(cell_of, stable=True), xp.bincount(cell_of, minlength=n_cells).cpu().tolist())


def _nearest_centers(X: Any, centers: Any, k: int, xp: Any) -> Any:
    """The k nearest centers of each row of X, nearest first."""
    origin = centers.median(axis=0)[0]  # avoid rounding errors from a large common offset
    centers = centers - origin
    norms = (centers * centers).sum(axis=1)
    found = xp.empty((X.shape[0], k), dtype=xp.int64, device=X.device)
    for block in gen_batches(X.shape[0], max(1, BLOCK_BYTES // (3 * X.element_size() * centers.shape[0]))):
        scores = xp.addmm(norms, X[block] - origin, centers.T, alpha=-2)
        found[block] = scores.argmin(axis=1, keepdims=True) if k == 1 else xp.topk(scores, k, dim=1, largest=False)[1]
    return found


def _in_half(differences: Any, unit: Any, xp: Any) -> Any:
    """Differences in half precision; rows too far for it are far from all others."""
    return xp.clip(differences / unit, -LARGEST_HALF, LARGEST_HALF).half()


def _half_products(A: Any, B: Any, xp: Any) -> Any:
    """``A B^T`` of arrays in half precision, summed in single precision: a GPU has units for that."""
    if A.is_cuda and "dtype" in xp.ops.aten.mm.overloads():  # from PyTorch 2.8 on
        return xp.mm(A, B.T, out_dtype=xp.float32)
    return A.float() @ B.float().T


def _smallest(scores: Any, k: int, xp: Any) -> tuple[Any, Any]:
    """The k smallest entries of each row (m, n), ascending, and their columns.

    They are in the k groups of columns with the smallest minima, which one pass finds; sorting takes several.
    """
    m, n = scores.shape
    n_groups = n // GROUP
    if n_groups <= 2 * k:
        return xp.topk(scores, k, dim=1, largest=False)
    minima = scores[:, : n_groups * GROUP].unflatten(1, (GROUP, n_groups)).amin(axis=1)
    groups = xp.topk(minima, k, dim=1, largest=False, sorted=False)[1]
    steps = n_groups * xp.arange(GROUP, device=scores.device)
    rest = xp.arange(n_groups * GROUP, n, device=scores.device)
    columns = xp.cat([(groups[:, :, None] + steps).reshape(m, -1), rest.expand(m, -1)], dim=1)
    values, places = xp.topk(xp.gather(scores, 1, columns), k, dim=1, largest=False)
    return values, xp.gather(columns, 1, places)


def _by_differences(points: Any, queries: Any, candidates: Any, k: int, xp: Any) -> tuple[Any, Any]:
    """The k nearest of each row's candidates by ``|x - q|^2``; sorted by index first, which breaks ties."""
    candidates = xp.sort(candidates, dim=1)[0]
    differences = points[candidates]
    differences -= queries[:, None]
    differences *= differences
    near, order = xp.sort(differences.sum(axis=2), dim=1, stable=True)
    return near[:, :k], xp.gather(candidates, 1, order[:, :k])


def nearest_by_kernel(K: Any, k: int, xp: Any) -> Any:
    """Indices (n, k) of the nearest other points in the feature space of K (n x n), nearest first, ties by index."""
    n = K.shape[0]
    diagonal = K.diagonal()
    indices = xp.empty((n, k), dtype=xp.int64, device=K.device)
    for block in gen_batches(n, max(1, BLOCK_BYTES // (3 * K.element_size() * n))):
        D2 = xp.clip(diagonal[block][:, None] + diagonal - 2 * K[block], 0, None)
        rows = xp.arange(block.start, block.stop, device=K.device)
        D2[rows - block.start, rows] = float("inf")
        candidates = xp.sort(xp.topk(D2, k, dim=1, largest=False)[1], dim=1)[0]
        order = xp.sort(xp.gather(D2, 1, candidates), dim=1, stable=True)[1]
        indices[block] = xp.gather(candidates, 1, order)
    return indices
