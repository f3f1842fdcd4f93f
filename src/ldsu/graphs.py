"""Graph Laplacians: same class, local discriminant cliques, plain neighbours."""

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

# Small matrices that are decomposed together; a GPU's library takes half a megabyte for each.
CLIQUES_AT_ONCE = 2**13


def class_laplacian(codes: np.ndarray) -> scipy.sparse.csr_array:
    """Laplacian of the graph that joins labelled points of one class: ``m_t I - 1 1^T`` per class t, zero elsewhere.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Class numbers, -1 where unlabelled.

    Returns
    -------
    L_w : sparse array of shape (n, n)
        It stores m_t^2 entries a class; `class_laplacian_rows` needs none of them.
    """
    G = class_indicator(codes)
    labelled = codes >= 0
    degrees = np.zeros(codes.shape[0])
    degrees[labelled] = class_counts(codes)[codes[labelled]]
    return (scipy.sparse.diags_array(degrees) - G @ G.T).tocsr()


def class_laplacian_rows(codes: np.ndarray, Z: Any) -> Iterator[tuple[np.ndarray, Any]]:
    """The rows of ``L_w @ Z`` that are not zero, class by class, in O(m q) for Z (n x q) and without L_w."""
    for t, m_t in enumerate(class_counts(codes).tolist()):
        members = np.flatnonzero(codes == t)
        yield members, m_t * Z[members] - Z[members].sum(axis=0)


def class_indicator(codes: np.ndarray, *, unit_columns: bool = False) -> scipy.sparse.csr_array:
    """Class membership G (n x c): ``G_it = 1`` if point i is labelled t; columns of norm 1 on request."""
    labelled = np.flatnonzero(codes >= 0)
    counts = class_counts(codes)
    values = 1 / np.sqrt(counts[codes[labelled]]) if unit_columns else np.ones(labelled.size)
    return scipy.sparse.csr_array((values, (labelled, codes[labelled])), shape=(codes.shape[0], counts.size))


def clique_grams(X: Any, cliques: Any, arrays: Arrays = CPU) -> Any:
    """Gram matrix of each clique about its own mean, ``G_i = H X_i X_i^T H``, from rows of X (n x d): (n, k, k).

    The rows of a block of cliques are gathered, centred in double precision and multiplied, so that memory beyond the
    result stays small whatever n and d are.
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
    """The same in the kernel's feature space: ``G_i = H K_[clique i] H``."""
    grams = K[cliques[:, :, None], cliques[:, None, :]]
    grams -= grams.mean(axis=1)[:, None]
    grams -= grams.mean(axis=2)[:, :, None]
    return grams


def mean_clique_scatter(grams: Any) -> float:
    """Mean squared distance of a point from its clique's mean: the unit in which a relative theta is given."""
    n, k = grams.shape[:2]
    return float(grams.reshape(n, -1)[:, :: k + 1].sum()) / (n * k)


def clique_weights(grams: Any, theta: float, xp: Any = np) -> Any:
    """The Laplacian of each clique, ``L_i = H (G_i + theta I)^-1 H``, from its Gram matrix: (n, k, k)."""
    weights = xp.empty_like(grams)
    for block in gen_batches(grams.shape[0], CLIQUES_AT_ONCE):
        # Eigenvalues rather than an inverse: G_i is singular by construction, and by rounding a little indefinite.
        scatter, Q = xp.linalg.eigh(grams[block])
        HQ = Q - Q.mean(axis=1)[:, None]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            weights[block] = (HQ / (xp.clip(scatter, 0, None) + theta)[:, None, :]) @ xp.swapaxes(HQ, 1, 2)
    if not bool(xp.isfinite(weights).all()):
        raise ValueError(f"theta = {theta:.3g} is too small for these data: 1 / theta overflows. Use a larger theta.")
    return weights


def assemble_cliques(weights: np.ndarray, cliques: np.ndarray) -> scipy.sparse.csr_array:
    """``sum_i S_i L_i S_i^T`` from the cliques' Laplacians (n, k, k) and members (n, k): sparse (n, n)."""
    n, k = cliques.shape
    rows = np.repeat(cliques, k, axis=1).ravel()
    columns = np.tile(cliques, (1, k)).ravel()
    return scipy.sparse.coo_array((weights.ravel(), (rows, columns)), shape=(n, n)).tocsr()


def clique_laplacian(grams: np.ndarray, cliques: np.ndarray, theta: float) -> scipy.sparse.csr_array:
    """Local discriminant Laplacian ``L = sum_i S_i L_i S_i^T``, ``L_i = H (G_i + theta I)^-1 H``.

    Parameters
    ----------
    grams : ndarray of shape (n, k, k)
        Centred Gram matrices of the cliques.
    cliques : ndarray of shape (n, k)
        Members of the cliques.
    theta : float
        Ridge, > 0, in the units of the Gram matrices.

    Returns
    -------
    L : sparse array of shape (n, n)
        Symmetric, positive semi-definite, ``L @ 1 = 0``, at most n k^2 entries.
    """
    return assemble_cliques(clique_weights(grams, theta), cliques)


def local_discriminant_graph(
    X: Any, K: Any, *, clique_size: int, theta: float, relative: bool, arrays: Arrays = CPU
) -> tuple[scipy.sparse.csr_array, float]:
    """Neighbours, cliques and their Laplacian in one go.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
        Samples; read only where K is None.
    K : array of shape (n, n) or None
        Take neighbours and cliques from this kernel's feature space instead of the input space.
    clique_size : int
        k, the point itself included.
    theta : float
        Ridge of the cliques.
    relative : bool
        Measure theta in units of the mean clique scatter, and divide L by the mean of its diagonal.
    arrays : Arrays
        Where K is, neighbours are searched and Gram matrices made.

    Returns
    -------
    L : sparse array of shape (n, n)
    theta : float
        The ridge in the units of the data.
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
    # A few numbers for each sample: the rest is work for the CPU.
    return scaled_clique_laplacian(arrays.get(grams), arrays.get(members), theta, relative=relative)


def scaled_clique_laplacian(
    grams: np.ndarray, cliques: np.ndarray, theta: float, *, relative: bool
) -> tuple[scipy.sparse.csr_array, float]:
    """`clique_laplacian` in the units asked for, and the ridge in the units of the data."""
    if relative:
        theta *= mean_clique_scatter(grams) or 1.0
    L = clique_laplacian(grams, cliques, theta)
    return (L / mean_diagonal(L) if relative else L), theta


def mean_diagonal(L: scipy.sparse.csr_array) -> float:
    """Mean of the diagonal, or 1 for an empty graph: the unit of a relative lam."""
    return float(L.diagonal().mean()) or 1.0


def neighbor_weights(neighbors: np.ndarray, weights: np.ndarray | None = None) -> scipy.sparse.csr_array:
    """Symmetric weights of the graph in which i and j are joined if either lists the other.

    Parameters
    ----------
    neighbors : ndarray of shape (n, k)
    weights : ndarray of shape (n, k), optional
        A weight for each listed pair, the same whichever of the two lists it. Default: 1.
    """
    n, k = neighbors.shape
    values = np.ones(n * k) if weights is None else weights.ravel()
    rows = np.repeat(np.arange(n), k)
    listed = scipy.sparse.csr_array((values, (rows, neighbors.ravel())), shape=(n, n))
    return listed.maximum(listed.T).tocsr()


def graph_laplacian(W: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """``D - W``, D the row sums of W."""
    return (scipy.sparse.diags_array(W.sum(axis=1)) - W).tocsr()
