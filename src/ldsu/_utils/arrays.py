"""Array operations that differ between NumPy and PyTorch, so that one implementation runs on both.

An algorithm takes an `Arrays`, moves its input to the device with `put`, uses ``arrays.xp`` (functions with the same
name in NumPy and PyTorch) and converts results back with `get`. Eigenvalues are always NumPy arrays; eigenvectors stay
on the device of the matrix.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from multiprocessing.pool import ThreadPool
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import threadpoolctl
from joblib import effective_n_jobs

from ldsu._utils.memory import BLOCK_BYTES, available_memory

MAX_INT32 = 2**31 - 1


class _ProcessWide:
    """A context of the whole process: the first of several users enters it, and the last leaves it."""

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self.make, self.lock, self.users = make, threading.Lock(), 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        entered = False
        try:
            with self.lock:
                if self.users == 0:
                    self.context = self.make()
                    self.context.__enter__()
                self.users, entered = self.users + 1, True
            yield
        finally:  # an interrupt before it was entered must not leave it
            if entered:
                with self.lock:
                    self.users -= 1
                    if self.users == 0:
                        self.context.__exit__(None, None, None)


@contextmanager
def _limited_blas() -> Iterator[None]:
    limits = _thread_controller().limit(limits=1, user_api="blas")
    yield
    # From 3.8 on, threadpoolctl lets the thread alone restore that limited, which may not be the last one.
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", lambda force: None)
    clear(force=True)
    limits.restore_original_limits()
    clear(force=True)


one_blas_thread = _ProcessWide(_limited_blas)
"""Keep BLAS to one thread while any caller asks for it; the last to leave restores what was before the first."""
_warning_filters = _ProcessWide(warnings.catch_warnings)
_forked = False


def _set_forked() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_set_forked)


@contextmanager
def one_openmp_thread(unless: bool = False) -> Iterator[None]:
    """Limit OpenMP to the calling thread if `unless` is False; in a forked process always.

    GCC's OpenMP deadlocks in a forked process that had OpenMP threads before the fork, unless it only uses one thread.
    """
    if unless and not _forked:
        yield
        return
    # The setting is thread-local: no lock is needed.
    with _thread_controller().limit(limits=1, user_api="openmp"):
        yield


@cache
def _thread_controller() -> threadpoolctl.ThreadpoolController:
    """The libraries of NumPy, SciPy and scikit-learn, which are loaded by now: to find them takes longer than a row."""
    return threadpoolctl.ThreadpoolController()


@contextmanager
def ignoring_warnings(message: str = "") -> Iterator[None]:
    """Ignore warnings that begin with `message`; the last of several threads to leave restores what was before.

    `warnings.catch_warnings` alone would not: of two threads, the one that leaves last puts back what the other set.
    """
    with _warning_filters():
        warnings.filterwarnings("ignore", message=message)
        yield


def row_blocks(n: int, size: int) -> Iterator[slice]:
    """Slices of ``range(n)`` with at most `size` rows; scikit-learn's `gen_batches` checks its arguments, slowly."""
    size = max(1, size)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def in_threads(function: Callable[[Any], Any], parts: Iterable[Any], n_jobs: int) -> list[Any]:
    """Results of `function` for each part, by joblib's number of threads.

    joblib itself looks for results every hundredth of a second: longer than many a part takes.
    """
    parts = list(parts)
    n_threads = min(effective_n_jobs(n_jobs), len(parts))
    if n_threads <= 1:
        return [function(part) for part in parts]
    with ThreadPool(n_threads) as threads:  # an error or interrupt does not wait for parts that have begun
        return list(threads.imap(function, parts))


class Arrays:
    """NumPy and SciPy with work split over `n_jobs` threads, by default one per core."""

    xp: Any = np
    n_jobs: int = -1
    # Memory of a block of rows, and number of right-hand sides solved together, per thread.
    block_bytes = BLOCK_BYTES // 2
    columns = 32

    def put(self, array: Any, dtype: str | None = None) -> Any:
        """Move an array or a sparse matrix to the device, with the given dtype."""
        return array if scipy.sparse.issparse(array) else np.asarray(array, dtype=dtype)

    def get(self, array: Any) -> np.ndarray:
        """Convert an array to NumPy."""
        return np.asarray(array)

    def dtype_of(self, array: Any) -> str:
        """Name of an array's dtype, as accepted by `put` and `zeros`."""
        return str(array.dtype).removeprefix("torch.")

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Array of zeros."""
        return np.zeros(shape, dtype=dtype)

    def identity(self, n: int) -> Any:
        """Identity matrix (n, n), in double precision."""
        return np.eye(n)

    def stored(self, shape: tuple[int, ...], dtype: str, order: str = "C") -> Any:
        """Array of zeros with a row per sample; `FileArrays` has it in a file, by rows ("C") or by columns ("F")."""
        return self.zeros(shape, dtype)

    def integers(self, n: int) -> Any:
        """0 ... n - 1, as short integers as can index n rows."""
        return np.arange(n, dtype=np.int32 if n <= MAX_INT32 else np.int64)

    def rows(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """``function(*values)``, which treats each row by itself."""
        return function(*values)

    def each(self, function: Callable[[slice], None], n: int, row_bytes: int) -> None:
        """Call `function` on slices of ``range(n)`` that fit into `block_bytes` at `row_bytes` per row."""
        if n:
            self.map(function, row_blocks(n, self.block_bytes // max(row_bytes, 1)))

    def map(self, function: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
        """Results of `function` for each part, in parallel over parts with one BLAS thread each."""
        with one_blas_thread():
            return in_threads(function, parts, self.n_jobs)

    def sparse(self, rows: Any, columns: Any, values: Any, shape: tuple[int, int]) -> Any:
        """CSR matrix from triplets; duplicate entries are summed."""
        return scipy.sparse.coo_array((values, (rows, columns)), shape=shape).tocsr()

    def triplets(self, A: Any) -> tuple[Any, Any, Any]:
        """Rows, columns and values of a CSR matrix, by row."""
        triplets = A.tocoo()
        return triplets.row, triplets.col, triplets.data

    def row_maxima(self, values: Any, rows: Any, n: int) -> Any:
        """Largest of the values of each of n rows, which are ascending and have at least one each."""
        return np.maximum.reduceat(values, np.searchsorted(rows, self.integers(n)))

    def contiguous(self, array: Any) -> Any:
        """The array in C order."""
        return np.ascontiguousarray(array)

    def free_memory(self) -> int:
        """Bytes of free memory."""
        return available_memory()

    def eigh(self, A: Any) -> tuple[np.ndarray, Any]:
        """All eigenpairs of a symmetric matrix, ascending. Reads the lower triangle; A may be overwritten.

        Divide and conquer ("evd") is the fastest LAPACK driver for all pairs at every size measured.
        """
        try:
            # SciPy 1.12 allocates too little workspace for "evd" of a 1 x 1 matrix.
            driver = "evd" if A.shape[0] > 1 else "ev"
            return scipy.linalg.eigh(A, driver=driver, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError as error:
            raise _decomposition_error(A, error) from error

    def generalized_eigh(self, A: Any, B: Any) -> tuple[np.ndarray, Any]:
        """All pairs of ``A w = mu B w``, ascending, ``w^T B w = 1``; A symmetric, B positive definite.

        Both may be overwritten.
        """
        try:
            return scipy.linalg.eigh(A, B, driver="gvd", overwrite_a=True, overwrite_b=True, check_finite=False)
        except np.linalg.LinAlgError as error:
            raise _singular_error(A, error) from error

    def solve(self, A: Any, T: Any, shift: float) -> Any:
        """``A^-1 T`` for A, positive semi-definite plus `shift` times the identity. Reads the lower triangle."""
        solution = self.cholesky_solve(A, T)
        if solution is not None:
            return solution
        S, U = self.eigh(A)  # the shift is lost to rounding in A: apply it to the eigenvalues
        return U @ ((U.T @ T) / self.put(np.maximum(S, shift))[:, None])

    def cholesky_solve(self, A: Any, T: Any) -> Any:
        """``A^-1 T`` from the lower triangle of A, or None if A is not positive definite."""
        try:
            factor = scipy.linalg.cho_factor(A, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        return scipy.linalg.cho_solve(factor, T, check_finite=False)

    def lu_factor(self, A: Any) -> tuple[Any, Any]:
        """LU factors of any square A in C order, which may be overwritten."""
        # LAPACK reads the transpose of a C-ordered matrix without a copy; trans=1 undoes it.
        # Not SciPy's `lu_factor`, which warns about a singular A: callers check the result.
        lu, pivots, _ = scipy.linalg.lapack.get_lapack_funcs("getrf", (A,))(A.T, overwrite_a=True)
        return lu, pivots

    def lu_solve(self, factors: tuple[Any, Any], T: Any) -> Any:
        """``A^-1 T`` from `lu_factor`; T may be overwritten. Not finite if A is singular."""
        return scipy.linalg.lu_solve(factors, T, trans=1, overwrite_b=True, check_finite=False)

    def dot(self, A: Any, B: Any) -> Any:
        """``A @ B``."""
        return A @ B

    def copy(self, array: Any) -> Any:
        """A copy in the same memory order."""
        return array.copy(order="K")


def _decomposition_error(A: Any, error: Exception) -> ValueError:
    return ValueError(
        f"The eigendecomposition of a {A.shape[0]} x {A.shape[0]} matrix failed ({error}). "
        "The columns of X probably have very different scales: rescale them."
    )


def _singular_error(A: Any, error: Exception) -> ValueError:
    return ValueError(f"A generalized eigenproblem of size {A.shape[0]} is singular ({error}). Use a larger ridge.")


class TorchArrays(Arrays):
    """PyTorch on one device: a GPU, or "cpu" to test the same code without a GPU."""

    n_jobs = 1
    block_bytes = 2**30
    columns = 4096

    def __init__(self, device: str = "cuda") -> None:
        try:
            import torch
        except ImportError as error:
            raise ValueError(
                f"device {device!r} requires PyTorch, which is not installed. Use the device 'cpu', or install PyTorch "
                "with: pip install 'ldsu[gpu]'"
            ) from error
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ValueError(f"device {device!r}: PyTorch finds no CUDA device on this machine. Use the device 'cpu'.")
        self.xp = torch
        self.device = torch.device(device)

    def put(self, array: Any, dtype: str | None = None) -> Any:
        """Move an array or a sparse matrix to the device, with the given dtype."""
        if scipy.sparse.issparse(array):
            triplets = array.tocoo()
            return self.sparse(self.put(triplets.row), self.put(triplets.col), self.put(triplets.data), array.shape)
        if isinstance(array, np.ndarray):
            if array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous:
                return self.put(array.T, dtype).T  # copy without changing the memory order
            array = np.ascontiguousarray(array)
            array = array if array.flags.writeable else array.copy()  # tensors cannot be read-only
        tensor = self.xp.as_tensor(array).to(self.device)  # first: PyTorch would convert where it comes from
        return tensor if dtype is None else tensor.to(getattr(self.xp, dtype))

    def get(self, array: Any) -> np.ndarray:
        """Convert an array to NumPy."""
        return array.cpu().numpy()

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Array of zeros."""
        return self.xp.zeros(shape, dtype=getattr(self.xp, dtype), device=self.device)

    def identity(self, n: int) -> Any:
        """Identity matrix (n, n), in double precision."""
        return self.xp.eye(n, dtype=self.xp.float64, device=self.device)

    def integers(self, n: int) -> Any:
        """0 ... n - 1."""
        return self.xp.arange(n, device=self.device)

    def map(self, function: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
        """Results of `function` for each part, sequentially: each uses the whole device."""
        return [function(part) for part in parts]

    def sparse(self, rows: Any, columns: Any, values: Any, shape: tuple[int, int]) -> Any:
        """CSR matrix from triplets; duplicate entries are summed."""
        with ignoring_warnings("Sparse"):  # "in beta", "invariant checks": not actionable
            indices = self.xp.stack([rows, columns])
            matrix = self.xp.sparse_coo_tensor(indices, values, shape).coalesce().to_sparse_csr()
            if max(matrix.values().shape[0], *shape) > MAX_INT32:
                return matrix
            # Products are limited by memory bandwidth: short indices take half of it.
            parts = matrix.crow_indices().int(), matrix.col_indices().int(), matrix.values()
            return self.xp.sparse_csr_tensor(*parts, shape)

    def triplets(self, A: Any) -> tuple[Any, Any, Any]:
        """Rows, columns and values of a CSR matrix, by row."""
        triplets = A.to_sparse_coo().coalesce()
        return *triplets.indices(), triplets.values()

    def row_maxima(self, values: Any, rows: Any, n: int) -> Any:
        """Largest of the values of each of n rows, which have at least one each."""
        maxima = self.xp.zeros(n, dtype=values.dtype, device=self.device)
        return maxima.scatter_reduce(0, rows, values, "amax", include_self=False)

    def contiguous(self, array: Any) -> Any:
        """The array in C order."""
        return array.contiguous()

    def free_memory(self) -> int:
        """Bytes of free memory on the device, including PyTorch's cache."""
        if self.device.type != "cuda":
            return available_memory()
        cuda = self.xp.cuda
        kept = cuda.memory_reserved(self.device) - cuda.memory_allocated(self.device)
        return int(cuda.mem_get_info(self.device)[0] + kept)

    def eigh(self, A: Any) -> tuple[np.ndarray, Any]:
        """All eigenpairs of a symmetric matrix, ascending. Reads the lower triangle."""
        try:
            values, vectors = self.xp.linalg.eigh(A, UPLO="L")
        except RuntimeError as error:
            raise _decomposition_error(A, error) from error
        return self.get(values), vectors

    def generalized_eigh(self, A: Any, B: Any) -> tuple[np.ndarray, Any]:
        """All pairs of ``A w = mu B w``, ascending, ``w^T B w = 1``; A symmetric, B positive definite."""
        linalg = self.xp.linalg
        try:
            factor = linalg.cholesky(B)
        except RuntimeError as error:
            raise _singular_error(A, error) from error
        half = linalg.solve_triangular(factor, A, upper=False)
        reduced = linalg.solve_triangular(factor, half.T, upper=False)
        values, vectors = self.eigh((reduced + reduced.T) / 2)
        return values, linalg.solve_triangular(factor.T, vectors, upper=True)

    def cholesky_solve(self, A: Any, T: Any) -> Any:
        """``A^-1 T`` from the lower triangle of A, or None if A is not positive definite."""
        factor, failed = self.xp.linalg.cholesky_ex(A.tril())
        return None if failed.item() else self.xp.cholesky_solve(T, factor)

    def lu_factor(self, A: Any) -> tuple[Any, Any]:
        """LU factors of any square A."""
        lu, pivots, _ = self.xp.linalg.lu_factor_ex(A)
        return lu, pivots

    def lu_solve(self, factors: tuple[Any, Any], T: Any) -> Any:
        """``A^-1 T`` from `lu_factor`. Not finite if A is singular."""
        return self.xp.linalg.lu_solve(*factors, T)

    def copy(self, array: Any) -> Any:
        """A copy in the same memory order."""
        return array.clone()


class OneThread(Arrays):
    """NumPy and SciPy on one thread, for work that is already parallelized by the caller."""

    n_jobs = 1
    block_bytes = BLOCK_BYTES // 4


CPU = Arrays()
ONE = OneThread()
DEVICES = ("cpu", "cuda", "torch")


def arrays_of(array: Any) -> Arrays:
    """`Arrays` of the device that holds an array: PyTorch's for a tensor, otherwise NumPy's."""
    is_tensor = type(array).__module__.partition(".")[0] == "torch"
    return TorchArrays(str(array.device)) if is_tensor else CPU


def arrays_on(device: str) -> Arrays:
    """`Arrays` of a device: "cpu" is NumPy, "cuda" (or "cuda:1") a GPU, "torch" PyTorch on the CPU."""
    if device == "cpu":
        return CPU
    if device == "torch":
        return TorchArrays("cpu")
    if device == "cuda" or device.startswith("cuda:"):
        return TorchArrays(device)
    raise ValueError(f"device = {device!r}, but it must be 'cpu', 'cuda', 'cuda:N' or 'torch'.")
