"""Graph Laplacians: same-class graph, local discriminant cliques, nearest-neighbor graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import gen_batches

from ldsu._utils.arrays import CPU, Arrays
from ldsu.kernels import dense
from ldsu.labels import class_counts
from ldsu.neighbors import cliques as cliques_of
from ldsu.neighbors import input_neighbors, kernel_neighbors, nearest, nearest_by_kernel

# Batch size of small eigendecompositions; the GPU library needs half a megabyte for each.
CLIQUES_AT_ONCE = 2**13


def class_laplacian(codes: np.ndarray) -> scipy.sparse.csr_array:
    """Laplacian of the graph that joins labelled points of one class: ``m_t I - 1 1^T`` per class t, zero elsewhere.

    It stores m_t^2 entries per class; `class_laplacian_rows` avoids forming it.
    """
    G = class_indicator(codes)
    labelled = codes >= 0
    degrees = np.zeros(codes.shape[0])
    degrees[labelled] = class_counts(codes)[codes[labelled]]
    return (scipy.sparse.diags_array(degrees) - G @ G.T).tocsr()


def class_laplacian_rows(codes: np.ndarray, Z: Any) -> Iterator[tuple[np.ndarray, Any]]:
    """Nonzero rows of ``L_w @ Z``, class by class, in O(m q) for Z (n x q) without forming L_w."""
    for t, m_t in enumerate(class_counts(codes).tolist()):
        members = np.flatnonzero(codes == t)
        yield members, m_t * Z[members] - Z[members].sum(axis=0)


def class_graph_correction(Kt_AA: Any, codes: np.ndarray, strength: float, arrays: Arrays = CPU) -> Any:
    """C (a x a) with ``Kt C = (Kt^-1 + strength L_w)^-1`` at the anchors, ``C = (I + strength L_w Kt_AA)^-1``.

    None if no class has two labels: L_w is then zero.
    """
    if not class_counts(codes).max(initial=0) > 1:
        return None
    system = arrays.put(np.eye(codes.size))
    for members, rows in class_laplacian_rows(codes, Kt_AA):
        system[members] += strength * rows
    return arrays.lu_solve(arrays.lu_factor(system), arrays.put(np.eye(codes.size)))


def class_indicator(codes: np.ndarray, *, unit_columns: bool = False) -> scipy.sparse.csr_array:
    """Class membership G (n x c): ``G_it = 1`` if point i is labelled t; optionally with columns of norm 1."""
    labelled = np.flatnonzero(codes >= 0)
    counts = class_counts(codes)
    values = 1 / np.sqrt(counts[codes[labelled]]) if unit_columns else np.ones(labelled.size)
    return scipy.sparse.csr_array((values, (labelled, codes[labelled])), shape=(codes.shape[0], counts.size))


def clique_scatter(X: Any, K: Any, clique_size: int, arrays: Arrays = CPU) -> tuple[np.ndarray, np.ndarray]:
    """Cliques (n, k) of each point and its nearest neighbors, and their centered Gram matrices (n, k, k), on the CPU.

    In the input space of X (n x d), or, if K (n x n) is given, in the feature space of the kernel; on the device of
    `arrays`.
    """
    k = clique_size - 1
    on_device = arrays.xp is not np
    if K is not None:
        neighbors = nearest_by_kernel(K, k, arrays.xp) if on_device else kernel_neighbors(K, k)[1]
        members = cliques_of(neighbors, arrays)
        grams = clique_grams_kernel(K, members)
    elif on_device and not scipy.sparse.issparse(X):
        points = arrays.put(X, "float64")
        members = cliques_of(nearest(points, points, k, True, arrays.xp)[1], arrays)
        grams = clique_grams(points, members, arrays)
    else:
        arrays = CPU
        members = cliques_of(input_neighbors(X, k)[1])
        grams = clique_grams(X, members)
    # Only a few numbers per sample are left: continue on the CPU.
    return arrays.get(members), arrays.get(grams)


def clique_grams(X: Any, cliques: Any, arrays: Arrays = CPU) -> Any:
    """Gram matrix of each clique, centered at its mean, ``G_i = H X_i X_i^T H``, from rows of X (n x d): (n, k, k).

    Works on blocks of cliques in double precision, so that temporary memory stays small for any n and d.
    """
    n, k = cliques.shape
    grams = arrays.zeros((n, k, k), "float64")

    def fill(block: slice) -> None:
        rows = X[cliques[block].reshape(-1)]
        rows = arrays.put(dense(rows) if scipy.sparse.issparse(rows) else rows, "float64").reshape(-1, k, X.shape[1])
        rows = rows - rows.mean(axis=1)[:, None]
        grams[block] = rows @ arrays.xp.swapaxes(rows, 1, 2)

    arrays.each(fill, n, 2 * 8 * k * X.shape[1])
    return grams


def clique_grams_kernel(K: Any, cliques: Any) -> Any:
    """Like `clique_grams`, in the kernel's feature space: ``G_i = H K_[clique i] H``."""
    return double_centered(K[cliques[:, :, None], cliques[:, None, :]])


def double_centered(grams: Any) -> Any:
    """``H G_i H`` for matrices (n, k, k), in place."""
    grams -= grams.mean(axis=1)[:, None]
    grams -= grams.mean(axis=2)[:, :, None]
    return grams


def mean_clique_scatter(grams: Any) -> float:
    """Mean squared distance of a point from its clique's mean: the unit of a relative theta."""
    n, k = grams.shape[:2]
    return float(grams.reshape(n, -1)[:, :: k + 1].sum()) / (n * k)


def clique_weights(grams: Any, theta: float, xp: Any = np) -> Any:
    """The Laplacian of each clique, ``L_i = H (G_i + theta I)^-1 H``, from its Gram matrix: (n, k, k)."""
    weights = xp.empty_like(grams)
    for block in gen_batches(grams.shape[0], CLIQUES_AT_ONCE):
        # Eigenvalues rather than an inverse: G_i is singular, and by rounding slightly indefinite.
        scatter, Q = xp.linalg.eigh(grams[block])
        HQ = Q - Q.mean(axis=1)[:, None]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            weights[block] = (HQ / (xp.clip(scatter, 0, None) + theta)[:, None, :]) @ xp.swapaxes(HQ, 1, 2)
    if not bool(xp.isfinite(weights).all()):
        raise ValueError(f"theta = {theta:.3g} is too small for these data: 1 / theta overflows. Use a larger theta.")
    return weights


def assemble_cliques(weights: np.ndarray, cliques: np.ndarray, n: int | None = None) -> scipy.sparse.csr_array:
    """``sum_i S_i L_i S_i^T`` from the Laplacians (q, k, k) and members (q, k) of cliques: sparse (n, n), or (q, q)."""
    n, k = n or cliques.shape[0], cliques.shape[1]
    rows = np.repeat(cliques, k, axis=1).ravel()
    columns = np.tile(cliques, (1, k)).ravel()
    return scipy.sparse.coo_array((weights.ravel(), (rows, columns)), shape=(n, n)).tocsr()


def clique_laplacian(
    cliques: np.ndarray, grams: np.ndarray, theta: float, *, relative: bool = False
) -> tuple[scipy.sparse.csr_array, float]:
    """Local discriminant Laplacian ``L = sum_i S_i L_i S_i^T``, ``L_i = H (G_i + theta I)^-1 H``, of `clique_scatter`.

    L is symmetric and positive semi-definite, ``L @ 1 = 0``, with at most n k^2 entries. If `relative`, theta is in
    units of the mean clique scatter, and L is divided by the mean of its diagonal. Also returns the ridge in the units
    of the data.
    """
    if relative:
        theta *= mean_clique_scatter(grams) or 1.0
    L = assemble_cliques(clique_weights(grams, theta), cliques)
    return (L / (float(L.diagonal().mean()) or 1.0) if relative else L), theta


def neighbor_weights(neighbors: np.ndarray, weights: np.ndarray | None = None) -> scipy.sparse.csr_array:
    """Weights of the graph that joins i and j if either is among the neighbors (n, k) of the other: given, or 1."""
    n, k = neighbors.shape
    values = np.ones(n * k) if weights is None else weights.ravel()
    rows = np.repeat(np.arange(n), k)
    listed = scipy.sparse.csr_array((values, (rows, neighbors.ravel())), shape=(n, n))
    return listed.maximum(listed.T).tocsr()


def graph_laplacian(W: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """``D - W`` with D the row sums of W."""
    return (scipy.sparse.diags_array(W.sum(axis=1)) - W).tocsr()
