"""Graph Laplacians: same class, local discriminant cliques, plain neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils import gen_batches

from ldsu.kernels import dense
from ldsu.labels import class_counts
from ldsu.memory import BLOCK_BYTES
from ldsu.neighbors import cliques as cliques_of
from ldsu.neighbors import input_neighbors, kernel_neighbors


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


def class_laplacian_rows(codes: np.ndarray, Z: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of ``L_w @ Z`` that are not zero, class by class, in O(m q) for Z (n x q) and without L_w."""
    for t, m_t in enumerate(class_counts(codes)):
        members = np.flatnonzero(codes == t)
        yield members, m_t * Z[members] - Z[members].sum(axis=0)


def class_indicator(codes: np.ndarray, *, unit_columns: bool = False) -> scipy.sparse.csr_array:
    """Class membership G (n x c): ``G_it = 1`` if point i is labelled t; columns of norm 1 on request."""
    labelled = np.flatnonzero(codes >= 0)
    counts = class_counts(codes)
    values = 1 / np.sqrt(counts[codes[labelled]]) if unit_columns else np.ones(labelled.size)
    return scipy.sparse.csr_array((values, (labelled, codes[labelled])), shape=(codes.shape[0], counts.size))


def clique_grams(X: Any, cliques: np.ndarray) -> np.ndarray:
    """Gram matrix of each clique about its own mean, ``G_i = H X_i X_i^T H``, from rows of X (n x d): (n, k, k).

    The rows of a block of cliques are gathered, centred in double precision and multiplied, so that memory beyond the
    result stays near 64 MiB whatever n and d are.
    """
    n, k = cliques.shape
    grams = np.empty((n, k, k))
    for block in gen_batches(n, max(1, BLOCK_BYTES // (8 * k * X.shape[1]))):
        rows = dense(X[cliques[block].ravel()]).astype(np.float64, copy=False).reshape(-1, k, X.shape[1])
        rows = rows - rows.mean(axis=1, keepdims=True)
        np.matmul(rows, rows.transpose(0, 2, 1), out=grams[block])
    return grams


def clique_grams_kernel(K: np.ndarray, cliques: np.ndarray) -> np.ndarray:
    """The same in the kernel's feature space: ``G_i = H K_[clique i] H``."""
    grams = K[cliques[:, :, None], cliques[:, None, :]].astype(np.float64)
    grams -= grams.mean(axis=1, keepdims=True)
    grams -= grams.mean(axis=2, keepdims=True)
    return grams


def mean_clique_scatter(grams: np.ndarray) -> float:
    """Mean squared distance of a point from its clique's mean: the unit in which a relative theta is given."""
    return float(np.trace(grams, axis1=1, axis2=2).mean() / grams.shape[1])


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
    n, k = cliques.shape
    # Eigenvalues rather than an inverse: G_i is singular by construction, and rounding leaves it a little indefinite.
    scatter, Q = np.linalg.eigh(grams)
    HQ = Q - Q.mean(axis=1, keepdims=True)
    local = (HQ / (np.maximum(scatter, 0) + theta)[:, None, :]) @ HQ.transpose(0, 2, 1)
    if not np.all(np.isfinite(local)):
        raise ValueError(f"theta = {theta:.3g} is too small for these data: 1 / theta overflows. Use a larger theta.")
    rows = np.repeat(cliques, k, axis=1).ravel()
    columns = np.tile(cliques, (1, k)).ravel()
    return scipy.sparse.coo_array((local.ravel(), (rows, columns)), shape=(n, n)).tocsr()


def local_discriminant_graph(
    X: Any, K: np.ndarray | None, *, clique_size: int, theta: float, relative: bool
) -> tuple[scipy.sparse.csr_array, float]:
    """Neighbours, cliques and their Laplacian in one go.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
        Samples; read only where K is None.
    K : ndarray of shape (n, n) or None
        Take neighbours and cliques from this kernel's feature space instead of the input space.
    clique_size : int
        k, the point itself included.
    theta : float
        Ridge of the cliques.
    relative : bool
        Measure theta in units of the mean clique scatter, and divide L by the mean of its diagonal.

    Returns
    -------
    L : sparse array of shape (n, n)
    theta : float
        The ridge in the units of the data.
    """
    if K is None:
        members = cliques_of(input_neighbors(X, clique_size - 1)[1])
        grams = clique_grams(X, members)
    else:
        members = cliques_of(kernel_neighbors(K, clique_size - 1)[1])
        grams = clique_grams_kernel(K, members)
    return scaled_clique_laplacian(grams, members, theta, relative=relative)


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
