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
        bounds, candidates = xp.topk(scores, n_candidates, dim=1, largest=False)
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
    """Approximate `nearest`: each row of Q is only compared with the rows of X in nearby k-means cells."""
    n, m = X.shape[0], Q.shape[0]
    distances = xp.empty((m, k), dtype=X.dtype, device=X.device)
    indices = xp.empty((m, k), dtype=xp.int64, device=X.device)
    generator = xp.Generator(device=X.device).manual_seed(0)
    chosen = xp.randperm(n, generator=generator, device=X.device)
    n_cells = max(1, n // CELL_ROWS)
    centers = X[chosen[:n_cells]].clone()
    sample = X[chosen[: 40 * n_cells]]
    for _ in range(ROUNDS):
        cells = _nearest_centers(sample, centers, 1, xp)[:, 0]
        sums = xp.zeros_like(centers).index_add_(0, cells, sample)
        counts = xp.bincount(cells, minlength=n_cells)
        centers = xp.where(counts[:, None] > 0, sums / xp.clip(counts, 1, None)[:, None], centers)
    cell_of = _nearest_centers(X, centers, 1, xp)[:, 0]
    order = xp.argsort(cell_of, stable=True)
    starts = np.concatenate([[0], np.cumsum(xp.bincount(cell_of, minlength=n_cells).cpu().numpy())])
    votes = _nearest_centers(Q, centers, min(VOTES, n_cells), xp)
    by_cell = xp.argsort(votes[:, 0], stable=True)
    query_starts = np.concatenate([[0], np.cumsum(xp.bincount(votes[:, 0], minlength=n_cells).cpu().numpy())])
    for cell in np.flatnonzero(np.diff(query_starts)).tolist():
        rows = by_cell[query_starts[cell] : query_starts[cell + 1]]
        vote_counts = xp.bincount(votes[rows].reshape(-1), minlength=n_cells)
        near_cells = xp.topk(vote_counts, min(SEARCHED, n_cells))[1].cpu().numpy()
        candidates = xp.sort(xp.concatenate([order[starts[j] : starts[j + 1]] for j in near_cells]))[0]
        if candidates.shape[0] < k + SPARE + 1:
            candidates = xp.arange(n, device=X.device)
        points = X[candidates]
        norms = (points * points).sum(axis=1)
        row_bytes = X.element_size() * (3 * points.shape[0] + 3 * (k + SPARE) * X.shape[1])
        for block in gen_batches(rows.shape[0], max(1, BLOCK_BYTES // row_bytes)):
            queries = Q[rows[block]]
            scores = xp.addmm(norms, queries, points.T, alpha=-2)
            if exclude_self:
                place = xp.clip(xp.searchsorted(candidates, rows[block]), None, points.shape[0] - 1)
                is_self = candidates[place] == rows[block]
                scores[xp.nonzero(is_self)[:, 0], place[is_self]] = float("inf")
            n_candidates = min(k + SPARE, points.shape[0] - exclude_self)
            best = xp.topk(scores, n_candidates, dim=1, largest=False)[1]
            near, at = _by_differences(points, queries, best, k, xp)
            distances[rows[block]], indices[rows[block]] = near, candidates[at]
    return distances, indices


def _nearest_centers(X: Any, centers: Any, k: int, xp: Any) -> Any:
    """The k nearest centers of each row of X, nearest first."""
    norms = (centers * centers).sum(axis=1)
    found = xp.empty((X.shape[0], k), dtype=xp.int64, device=X.device)
    for block in gen_batches(X.shape[0], max(1, BLOCK_BYTES // (3 * X.element_size() * centers.shape[0]))):
        scores = xp.addmm(norms, X[block], centers.T, alpha=-2)
        found[block] = xp.topk(scores, k, dim=1, largest=False)[1]
    return found


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
