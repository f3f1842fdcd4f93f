"""The staged problem: kernel, neighbors, graphs and spectrum of one set of samples, each computed once and kept."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Any

import joblib
import numpy as np
import scipy.sparse
from sklearn.utils import check_array

from ldsu._utils.arrays import CPU, Arrays, arrays_on
from ldsu._utils.stages import StageCache, Stages
from ldsu.graphs import class_laplacian_rows, clique_scatter, scaled_clique_laplacian
from ldsu.kernels import FLOATS, Kernel, check_mask, dense, resolve_kernel
from ldsu.neighbors import input_neighbors, kernel_neighbors
from ldsu.solvers._types import Settings
from ldsu.spectrum import KernelBasis

# Memory up to which several n x n results of a stage are kept, so that other settings find them again.
KEEP_BYTES = 2**28
MAX_KEPT = 8
TRIANGLE_BLOCKS = 6
# lam times strength that agrees to this many digits is one product: 0.1 * 100 is 1 * 10.
PRODUCT_DIGITS = 12


class Problem(StageCache):
    """The stages of LDSU on one set of samples: each is computed when a fit first needs it, and kept for the next.

    Pass it to ``fit(X, y, problem=problem)`` of `LDSU` or `LDSUClassifier` for many fits to the same samples with other
    labels or parameters. A fit computes only what depends on what has changed, with the result of a fit without it:
    other labels reuse kernel, neighbors, graphs and the factored or decomposed system; another `lam` or `strength`
    reuses kernel, neighbors and graphs. It holds a copy of X, and kernel matrices while it exists.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Samples; with ``kernel="precomputed"`` the kernel matrix (n, n).
    device : {"cpu", "cuda", "cuda:N", "torch"}, default="cpu"
        Device of the estimators that use it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import LDSU, Problem
    >>> X, y = load_iris(return_X_y=True)
    >>> problem = Problem(X)
    >>> for n_labelled in (30, 60, 90):
    ...     few = y.copy()
    ...     few[np.random.default_rng(0).permutation(150)[n_labelled:]] = -1
    ...     model = LDSU().fit(X, few, problem=problem)
    >>> "kernel" in model.timings_
    False
    """

    def __init__(self, X: Any, *, device: str = "cpu") -> None:
        check_mask(X)
        X = check_array(X, accept_sparse="csr", dtype=FLOATS, ensure_min_samples=2, copy=True)
        self._start(X, None, arrays_on(device), None, reusable=True)
        self.device = device

    @classmethod
    def once_for(
        cls,
        X: Any,
        X_new: Any = None,
        *,
        arrays: Arrays = CPU,
        keep: int | None = None,
        stages: Stages | None = None,
        reusable: bool = False,
    ) -> Problem:
        """A problem of validated samples that nobody changes.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
        X_new : array or sparse matrix of shape (t, d), optional
            Rows that are not learned from, whose features are wanted too.
        arrays : Arrays
        keep : int, optional
            Results of each stage to keep. Default: those that fit in `KEEP_BYTES`.
        stages : Stages, optional
            Records the time of each stage.
        reusable : bool
            Whether several settings are solved. Otherwise memory is reused as early as possible.
        """
        problem = cls.__new__(cls)
        problem._start(X, X_new, arrays, keep, reusable=reusable)
        problem.stages = stages or problem.stages
        return problem

    def _start(self, X: Any, X_new: Any, arrays: Arrays, keep: int | None, *, reusable: bool) -> None:
        n = X.shape[0]
        super().__init__(keep or int(np.clip(KEEP_BYTES // (8 * n * n), 1, MAX_KEPT)))
        self.X = X
        self.X_new = X_new
        self.n = n
        self.arrays = arrays
        self.reusable = reusable
        self.stages = Stages("Problem")

    def check_samples(self, X: Any, device: str) -> None:
        """Raise a ValueError if an estimator on `device` is fitted to samples other than those of the problem."""
        if device != self.device:
            raise ValueError(
                f"problem is on device {self.device!r}, but the estimator on {device!r}. Use Problem(X, {device=})."
            )
        if not _same_samples(self.X, X):
            raise ValueError("problem was made from samples other than X. Make another: Problem(X).")
        if scipy.sparse.issparse(self.X) and not scipy.sparse.issparse(X):
            self.X = X  # a precomputed kernel, made dense

    def kernel(self, **parameters: Any) -> Kernel:
        """The kernel with its bandwidth, from the kernel parameters of an estimator."""
        key = tuple(
            (name, joblib.hash(value) if isinstance(value, dict) else value) for name, value in parameters.items()
        )
        return self.once("bandwidth", key, lambda: resolve_kernel(self.X, **parameters))

    def kernel_matrix(self, kernel: Kernel) -> Any:
        """K (n, n), on the device."""

        def make() -> Any:
            with self.stages("kernel"):
                return kernel.train_matrix(self.X, self.arrays)

        return self.once("kernel matrix", kernel.key, make)

    def new_kernel_values(self, kernel: Kernel) -> np.ndarray:
        """Kernel values (t, n) of the new rows against the training rows."""

        def make() -> np.ndarray:
            with self.stages("kernel"):
                values: np.ndarray = kernel(self.X_new, np.arange(self.n) if kernel.name == "precomputed" else self.X)
                return values

        return self.once("new kernel values", kernel.key, make)

    def neighbors(self, kernel: Kernel, k: int, *, in_kernel_space: bool) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices (n, k) of the nearest other rows, in the input or the kernel's space."""
        if in_kernel_space:
            return self.once("neighbors", (kernel.key, k), lambda: kernel_neighbors(self.kernel_matrix(kernel), k))
        return self.once("neighbors", (None, k), lambda: input_neighbors(self.X, k))

    def cliques(self, kernel: Kernel, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
        """Cliques (n, k) and their centered Gram matrices (n, k, k)."""

        def make() -> tuple[np.ndarray, np.ndarray]:
            K = self.kernel_matrix(kernel) if settings.cliques == "kernel" else None
            with self.stages("graphs"):
                return clique_scatter(self.X, K, settings.clique_size, self.arrays)

        return self.once("cliques", _clique_key(kernel, settings), make)

    def clique_graph(self, kernel: Kernel, settings: Settings) -> tuple[scipy.sparse.csr_array, float]:
        """The local discriminant Laplacian L, in the units that lam multiplies, and the ridge in units of the data."""

        def make() -> tuple[scipy.sparse.csr_array, float]:
            members, grams = self.cliques(kernel, settings)
            with self.stages("graphs"):
                return scaled_clique_laplacian(grams, members, settings.theta, relative=settings.scaling == "relative")

        return self.once("clique graph", (_clique_key(kernel, settings), _ridge(settings)), make)

    def factor(self, kernel: Kernel, settings: Settings, weight: float) -> Any:
        """LU factors of ``I + weight L K``, which does not depend on labels."""

        def make() -> Any:
            LK = self._graph_kernel(kernel, settings)
            with self.stages("solve"):
                if self.reusable or self.keep > 1:
                    LK = LK * weight
                else:
                    self.drop("graph kernel")
                    LK *= weight
                diagonal = self.arrays.put(np.arange(self.n))
                LK[diagonal, diagonal] += 1
                return self.arrays.lu_factor(LK)

        return self.once("factor", (graph_key(kernel, settings), weight), make)

    def _graph_kernel(self, kernel: Kernel, settings: Settings) -> Any:
        """``L K`` (n, n)."""

        def make() -> Any:
            K = self.kernel_matrix(kernel)
            L = self.arrays.put_sparse(self.clique_graph(kernel, settings)[0])
            with self.stages("solve"):
                return L @ K

        return self.once("graph kernel", graph_key(kernel, settings), make)

    def filtered_columns(self, kernel: Kernel, settings: Settings, weight: float, rows: np.ndarray) -> Any:
        """C (n x m) with ``K C`` the columns of ``(K^-1 + weight L)^-1`` at m rows."""
        C = self.arrays.zeros((self.n, rows.size), "float64")
        C[self.arrays.put(rows), self.arrays.put(np.arange(rows.size))] = 1
        return C if weight == 0 else self.arrays.lu_solve(self.factor(kernel, settings, weight), C)

    def basis(self, kernel: Kernel) -> KernelBasis:
        """Coordinates of the training rows, ``K = B B^T``."""
        return self.coordinates(kernel)[0]

    def coordinates(self, kernel: Kernel) -> tuple[KernelBasis, np.ndarray]:
        """Coordinates B (n x q) of the training rows, and of training and new rows (n + t, q)."""

        def make() -> tuple[KernelBasis, np.ndarray]:
            K = self.kernel_matrix(kernel)
            if self.reusable:
                K = self.arrays.copy(K)
            else:  # overwritten
                self.drop("kernel matrix")
                self.drop("factor")
                self.drop("graph kernel")
            with self.stages("decompose kernel"):
                basis = KernelBasis.from_kernel_matrix(K, eps=kernel.precision(self.X), arrays=self.arrays)
            if self.X_new is None:
                return basis, basis.coordinates
            new = self.arrays.dot(self.new_kernel_values(kernel), basis.coordinates / basis.eigenvalues)
            stacked = np.vstack([basis.coordinates, new])
            return KernelBasis(basis.eigenvalues, stacked[: self.n]), stacked

        return self.once("coordinates", kernel.key, make)

    def project(self, kernel: Kernel, key: Hashable, laplacian: Any) -> Any:
        """``B^T L B`` (q, q) for a sparse L that ``laplacian()`` returns; only the lower triangle is defined."""

        def make() -> Any:
            B = self.basis(kernel).coordinates
            L = self.arrays.put_sparse(laplacian())
            with self.stages("project graphs"):
                return _lower_product(L @ B, B, self.arrays)

        return self.once("projected", (kernel.key, key), make)

    def spectrum(
        self, kernel: Kernel, settings: Settings, codes: np.ndarray, lam: float | None
    ) -> tuple[np.ndarray, Any]:
        """Eigenpairs, mu (q,) and directions (q, q), of ``B^T (L_w + lam L) B``; without lam of ``B^T L B``.

        The latter serves every label, lam and strength.
        """
        labels = None if lam is None else codes.tobytes()

        def make() -> tuple[np.ndarray, Any]:
            graph = self.project(kernel, graph_key(kernel, settings), lambda: self.clique_graph(kernel, settings)[0])
            S = self.arrays.copy(graph) if self.reusable else graph
            if not self.reusable:
                self.drop("projected")
            with self.stages("decompose graphs"):
                if lam is not None:
                    S *= lam
                    B = self.basis(kernel).coordinates
                    parts = list(class_laplacian_rows(codes, B))
                    if parts:
                        labelled = np.concatenate([members for members, _ in parts])
                        S += B[labelled].T @ self.arrays.xp.concatenate([rows for _, rows in parts])
                if not bool((S != 0).any()):  # no graph at all: any directions will do
                    return np.zeros(S.shape[0]), self.arrays.put(np.eye(S.shape[0]))
                return self.arrays.eigh(S)

        return self.once("spectrum", (graph_key(kernel, settings), lam, labels), make)

    def rotated(self, kernel: Kernel, settings: Settings, codes: np.ndarray, lam: float | None) -> tuple[Any, Any]:
        """Eigenvalues of `spectrum`, not below 0, and training and new rows in the coordinates of its directions."""
        labels = None if lam is None else codes.tobytes()

        def make() -> tuple[Any, Any]:
            mu, directions = self.spectrum(kernel, settings, codes, lam)
            with self.stages("decompose graphs"):
                return np.maximum(mu, 0), self.arrays.dot(self.coordinates(kernel)[1], directions)

        return self.once("rotated", (graph_key(kernel, settings), lam, labels), make)


def graph_key(kernel: Kernel, settings: Settings) -> tuple[Hashable, ...]:
    """What the kernel with its local graph depends on, beside the samples."""
    return kernel.key, _clique_key(kernel, settings), _ridge(settings)


def _clique_key(kernel: Kernel, settings: Settings) -> tuple[Hashable, ...]:
    return settings.clique_size, kernel.key if settings.cliques == "kernel" else None


def _ridge(settings: Settings) -> tuple[Hashable, ...]:
    """A clique of one has no ridge."""
    return settings.theta if settings.clique_size > 1 else None, settings.scaling


def rounded_product(lam: float, strength: float) -> str:
    """``lam * strength`` by its leading digits, as a key."""
    return f"{lam * strength:.{PRODUCT_DIGITS}e}"


def _same_samples(A: Any, B: Any) -> bool:
    if A.shape != B.shape or A.dtype != B.dtype:
        return False
    if scipy.sparse.issparse(A) and scipy.sparse.issparse(B):
        return (A != B).nnz == 0
    return np.array_equal(dense(A), dense(B))


def _lower_product(MB: Any, B: Any, arrays: Arrays) -> Any:
    """``B^T (M B)``, symmetric: the lower triangle, in blocks of columns."""
    q = B.shape[1]
    S = arrays.zeros((q, q), "float64").T  # in LAPACK's order
    edges = np.linspace(0, q, TRIANGLE_BLOCKS + 1).astype(int)
    for start, stop in pairwise(edges):
        S[start:, start:stop] = arrays.dot(MB[:, start:stop].T, B[:, start:]).T  # transposed: in the order of S
    return S
