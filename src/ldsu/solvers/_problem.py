"""The staged problem: kernel, neighbors, graphs and spectrum of one set of samples, each computed once and kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec, Self, TypeVar

import joblib
import numpy as np
import scipy.sparse
from sklearn.utils import check_array

from ldsu._utils.arrays import CPU, Arrays, arrays_on
from ldsu._utils.memory import require_memory
from ldsu._utils.sizes import bytes_held
from ldsu._utils.stages import Stages
from ldsu.graphs import class_laplacian_rows, clique_laplacian, clique_scatter
from ldsu.kernels import FLOATS, Kernel, check_mask, dense, resolve_kernel, stacked
from ldsu.neighbors import input_neighbors, kernel_neighbors
from ldsu.solvers._more_rows import more_stages
from ldsu.solvers._sparse import SparseStages
from ldsu.solvers._types import Settings
from ldsu.spectrum import KernelBasis

# Memory up to which several n x n results of a stage are kept, so that other settings find them again.
KEEP_BYTES = 2**28
MAX_KEPT = 8
TRIANGLE_BLOCKS = 6
# Bytes per entry assumed for the comparison of samples: blocks that fit into a processor's cache.
COMPARED_BYTES = 512
# lam times strength that agrees to this many digits is one product: 0.1 * 100 is 1 * 10.
PRODUCT_DIGITS = 12
P = ParamSpec("P")
T = TypeVar("T")


def stage(key: Callable[..., Hashable]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method of `Problem`, or a function of one, whose result is kept under ``key(*other_arguments)``."""

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def once(*args: P.args, **kwargs: P.kwargs) -> T:
            problem: Any = args[0]
            result: T = problem.once(method.__name__, key(*args[1:]), lambda: method(*args, **kwargs))
            return result

        return once

    return decorate


class Problem(SparseStages):
    """The stages of LDSU on one set of samples: each is computed when a fit first needs it, and kept for the next.

    Pass it to ``fit(X, y, problem=problem)`` of `LDSU` or `LDSUClassifier` for many fits to the same samples with other
    labels or parameters. A fit computes only what depends on what has changed, with the result of a fit without it:
    other labels reuse kernel, neighbors, graphs and the factored or decomposed system, and of the sparse solver the
    solved columns: those of new labels are solved to the tolerance `tol`. Another `lam` or `strength` reuses kernel,
    neighbors and graphs. It holds a copy of X, and kernel matrices and columns while it exists.

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
        self._start(X, arrays=arrays_on(device), reusable=True)
        self.device = device

    def add_rows(self, X: Any) -> Self:
        """Add unlabelled samples after those of the problem, without starting over.

        The next fit takes all of them, and a label, or -1, for each. The sparse solver searches the neighbors of the
        new rows among all rows, and puts them last in its order: its factor gets further rows. This differs from a
        problem of all rows in what was learned from the first ones: bandwidth, units, landmarks and the rows that
        strength is chosen on, and a new row is a neighbor of an old one only if it lists that one, too. Make another
        problem of all rows when they have become many. The exact solver computes its stages again, but not the
        bandwidth.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (t, d)

        Returns
        -------
        self : object

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from ldsu import LDSUClassifier, Problem
        >>> X, y = load_iris(return_X_y=True)
        >>> few = np.where(np.arange(150) % 10, -1, y)
        >>> problem = Problem(X[:100])
        >>> model = LDSUClassifier().fit(X[:100], few[:100], problem=problem)
        >>> model = LDSUClassifier().fit(X, few, problem=problem.add_rows(X[100:]))
        """
        check_mask(X)
        sparse = scipy.sparse.issparse(self.X)
        X = check_array(X, accept_sparse="csr" if sparse else False, dtype=self.X.dtype)
        if X.shape[1] != self.X.shape[1]:
            raise ValueError(f"X has {X.shape[1]} columns, but the samples of the problem have {self.X.shape[1]}.")
        stack = stacked(self.X, X)
        n_new = X.shape[0]
        require_memory(
            2 * bytes_held(stack),  # samples in the units of the solver, and their index
            f"Adding {n_new:,} rows to {self.n:,}",
            "Add fewer rows, or make a problem of fewer rows.",
        )
        self.replace(lambda kept: more_stages(kept, X, self.arrays))
        self.X, self.n = stack, stack.shape[0]
        return self

    @classmethod
    def once_for(cls, X: Any, X_new: Any = None, **options: Any) -> Problem:
        """A problem of validated samples that nobody changes, with the options of `_start`."""
        problem = cls.__new__(cls)
        problem._start(X, X_new, **options)
        return problem

    def _start(
        self,
        X: Any,
        X_new: Any = None,
        *,
        arrays: Arrays = CPU,
        keep: int | None = None,
        stages: Stages | None = None,
        reusable: bool = False,
    ) -> None:
        """Set the samples, and rows that are not learned from, whose features are wanted too.

        Of each stage `keep` results are kept, or those that fit in `KEEP_BYTES`. If several settings are solved the
        problem is `reusable`; otherwise memory is reused as early as possible.
        """
        self.X, self.X_new, self.n = X, X_new, X.shape[0]
        self.n_drawn = self.n
        self.arrays, self.reusable, self.stages = arrays, reusable, stages or Stages("Problem")
        super().__init__(keep or int(np.clip(KEEP_BYTES // (8 * self.n**2), 1, MAX_KEPT)))

    def check_samples(self, X: Any, device: str) -> None:
        """Raise a ValueError if an estimator on `device` is fitted to samples other than those of the problem."""
        if device != self.device:
            raise ValueError(
                f"problem is on device {self.device!r}, but the estimator on {device!r}. Use Problem(X, {device=})."
            )
        if X is not self.X and not _same_samples(self.X, X):
            raise ValueError("problem was made from samples other than X. Make another: Problem(X).")
        if scipy.sparse.issparse(self.X) and not scipy.sparse.issparse(X):
            self.X = X  # a precomputed kernel, made dense

    def holds(self, X: Any) -> bool:
        """Whether X is an array of the same floats, or of integers, with the samples of the problem: it is valid."""
        if type(X) is not np.ndarray or type(self.X) is not np.ndarray or X.shape != self.X.shape:
            return False
        if X.dtype != self.X.dtype and not (X.dtype.kind in "biu" and self.X.dtype == np.float64):
            return False
        unequal: list[slice] = []

        def compare(block: slice) -> None:
            if not unequal and not np.array_equal(X[block], self.X[block]):
                unequal.append(block)

        CPU.each(compare, self.n, COMPARED_BYTES * X.shape[1])
        return not unequal

    def kernel(self, **parameters: Any) -> Kernel:
        """The kernel with its bandwidth, from the kernel parameters of an estimator."""
        values = (
            (name, joblib.hash(value) if isinstance(value, dict) else value) for name, value in parameters.items()
        )
        return self.once("kernel", tuple(values), lambda: resolve_kernel(self.X, **parameters))

    @stage(lambda kernel: kernel.key)
    def kernel_matrix(self, kernel: Kernel) -> Any:
        """K (n, n), on the device."""
        with self.stages("kernel"):
            return kernel.train_matrix(self.X, self.arrays)

    @stage(lambda kernel: kernel.key)
    def new_kernel_values(self, kernel: Kernel) -> np.ndarray:
        """Kernel values (t, n) of the new rows against the training rows."""
        with self.stages("kernel"):
            values: np.ndarray = kernel(self.X_new, np.arange(self.n) if kernel.name == "precomputed" else self.X)
            return values

    @stage(lambda kernel, k, space: (k, kernel.key if space == "kernel" else None))
    def neighbors(self, kernel: Kernel, k: int, space: str) -> tuple[np.ndarray, np.ndarray]:
        """Squared distances and indices (n, k) of the nearest other rows, in the "input" or "kernel" space."""
        return kernel_neighbors(self.kernel_matrix(kernel), k) if space == "kernel" else input_neighbors(self.X, k)

    @stage(lambda kernel, settings: graph_key(kernel, settings)[1])
    def cliques(self, kernel: Kernel, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
        """Cliques (n, k) and their centered Gram matrices (n, k, k)."""
        K = self.kernel_matrix(kernel) if settings.cliques == "kernel" else None
        with self.stages("graphs"):
            return clique_scatter(self.X, K, settings.clique_size, self.arrays)

    @stage(lambda kernel, settings: graph_key(kernel, settings)[1:])
    def clique_graph(self, kernel: Kernel, settings: Settings) -> tuple[scipy.sparse.csr_array, float]:
        """The local discriminant Laplacian L, in the units that lam multiplies, and the ridge in units of the data."""
        members, grams = self.cliques(kernel, settings)
        with self.stages("graphs"):
            return clique_laplacian(members, grams, settings.theta, relative=settings.scaling == "relative")

    @stage(lambda kernel, settings: graph_key(kernel, settings))
    def graph_kernel(self, kernel: Kernel, settings: Settings) -> Any:
        """``L K`` (n, n)."""
        L = self.arrays.put(self.clique_graph(kernel, settings)[0])
        K = self.kernel_matrix(kernel)
        with self.stages("solve"):
            return L @ K

    @stage(lambda kernel, settings, weight: (graph_key(kernel, settings), weight))
    def factor(self, kernel: Kernel, settings: Settings, weight: float) -> Any:
        """LU factors of ``I + weight L K``, which does not depend on labels."""
        LK = self.graph_kernel(kernel, settings)
        with self.stages("solve"):
            if self.reusable or self.keep > 1:
                LK = LK * weight
            else:
                self.drop("graph_kernel")
                LK *= weight
            diagonal = self.arrays.put(np.arange(self.n))
            LK[diagonal, diagonal] += 1
            return self.arrays.lu_factor(LK)

    def filtered_columns(self, kernel: Kernel, settings: Settings, weight: float, rows: np.ndarray) -> Any:
        """C (n x m) with ``K C`` the columns of ``(K^-1 + weight L)^-1`` at m rows."""
        C = self.arrays.zeros((self.n, rows.size), "float64")
        C[self.arrays.put(rows), self.arrays.put(np.arange(rows.size))] = 1
        return C if weight == 0 else self.arrays.lu_solve(self.factor(kernel, settings, weight), C)

    @stage(lambda kernel: kernel.key)
    def coordinates(self, kernel: Kernel) -> tuple[KernelBasis, np.ndarray]:
        """Coordinates B (n x q) of the training rows, ``K = B B^T``, and of training and new rows (n + t, q)."""
        K = self.kernel_matrix(kernel)
        if self.reusable:
            K = self.arrays.copy(K)
        else:  # overwritten
            for kind in ("kernel_matrix", "graph_kernel", "factor"):
                self.drop(kind)
        with self.stages("decompose kernel"):
            basis = KernelBasis.from_kernel_matrix(K, eps=kernel.precision(self.X), arrays=self.arrays)
        if self.X_new is None:
            return basis, basis.coordinates
        new = self.arrays.dot(self.new_kernel_values(kernel), basis.coordinates / basis.eigenvalues)
        stacked = np.vstack([basis.coordinates, new])
        return KernelBasis(basis.eigenvalues, stacked[: self.n]), stacked

    def basis(self, kernel: Kernel) -> KernelBasis:
        """Coordinates of the training rows."""
        return self.coordinates(kernel)[0]

    @stage(lambda kernel, key, laplacian: (kernel.key, key))
    def project(self, kernel: Kernel, key: Hashable, laplacian: Callable[[], Any]) -> Any:
        """``B^T L B`` (q, q) for a sparse L that ``laplacian()`` returns; only the lower triangle is defined."""
        B = self.basis(kernel).coordinates
        L = self.arrays.put(laplacian())
        with self.stages("project graphs"):
            return _lower_product(L @ B, B, self.arrays)

    @stage(lambda kernel, settings, codes, lam: spectrum_key(kernel, settings, codes, lam))
    def spectrum(
        self, kernel: Kernel, settings: Settings, codes: np.ndarray, lam: float | None
    ) -> tuple[np.ndarray, Any]:
        """Eigenpairs, mu (q,) and directions (q, q), of ``B^T (L_w + lam L) B``; without lam of ``B^T L B``.

        The latter serves every label, lam and strength.
        """
        S = self.project(kernel, graph_key(kernel, settings), lambda: self.clique_graph(kernel, settings)[0])
        if self.reusable:
            S = self.arrays.copy(S)
        else:  # overwritten
            self.drop("project")
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

    @stage(lambda kernel, settings, codes, lam: spectrum_key(kernel, settings, codes, lam))
    def rotated(self, kernel: Kernel, settings: Settings, codes: np.ndarray, lam: float | None) -> tuple[Any, Any]:
        """Eigenvalues of `spectrum`, not below 0, and training and new rows in the coordinates of its directions."""
        mu, directions = self.spectrum(kernel, settings, codes, lam)
        with self.stages("decompose graphs"):
            return np.maximum(mu, 0), self.arrays.dot(self.coordinates(kernel)[1], directions)


def graph_key(kernel: Kernel, settings: Settings) -> tuple[Hashable, ...]:
    """What the kernel, its cliques and their graph depend on, beside the samples; a clique of one has no ridge."""
    cliques = (settings.clique_size, kernel.key if settings.cliques == "kernel" else None)
    return kernel.key, cliques, (settings.theta if settings.clique_size > 1 else None, settings.scaling)


def spectrum_key(kernel: Kernel, settings: Settings, codes: np.ndarray, lam: float | None) -> tuple[Hashable, ...]:
    """What a spectrum depends on: without lam, not on labels."""
    return graph_key(kernel, settings), lam, None if lam is None else codes.tobytes()


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
