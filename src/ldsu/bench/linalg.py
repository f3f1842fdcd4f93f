"""Large dense products and decompositions: NumPy and LAPACK, or PyTorch on a GPU.

Both work in double precision and give the same numbers to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu.spectrum import generalized_eigh, solve_shifted, symmetric_eigh

DEVICES = ("cpu", "cuda")
# Below this size a matrix is decomposed faster where it lies than on a GPU, the way there and back counted.
GPU_SIZE = 1500


class DenseAlgebra:
    """On the CPU."""

    def dot(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """``A @ B``."""
        return A @ B

    def eigh(self, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All eigenpairs, ascending, of the lower triangle of A, which is overwritten."""
        return symmetric_eigh(A)

    def generalized_eigh(self, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of ``A w = mu B w``, ascending; both are overwritten."""
        return generalized_eigh(A, B)

    def solve(self, A: np.ndarray, T: np.ndarray, shift: float) -> np.ndarray:
        """``A^-1 T`` for A positive semi-definite plus `shift` times the identity, read from its lower triangle."""
        return solve_shifted(A, T, shift)


class CudaAlgebra(DenseAlgebra):
    """On a GPU, through PyTorch."""

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise ValueError("device 'cuda' needs PyTorch, which is not installed. Use --device cpu.") from error
        if not torch.cuda.is_available():
            raise ValueError("device 'cuda' was asked for, but PyTorch finds no GPU. Use --device cpu.")
        self.torch: Any = torch

    def _put(self, A: np.ndarray) -> Any:
        # A Fortran-ordered matrix travels as the transpose it is in memory.
        if A.flags.f_contiguous and not A.flags.c_contiguous:
            return self.torch.from_numpy(A.T).cuda().T
        return self.torch.from_numpy(np.ascontiguousarray(A)).cuda()

    def dot(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """``A @ B``."""
        if min(A.shape[0], A.shape[1], B.shape[1]) < GPU_SIZE:
            return A @ B
        product: np.ndarray = (self._put(A) @ self._put(B)).cpu().numpy()
        return product

    def eigh(self, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All eigenpairs, ascending, of the lower triangle of A, which is overwritten."""
        if A.shape[0] < GPU_SIZE:
            return symmetric_eigh(A)
        values, vectors = self.torch.linalg.eigh(self._put(A), UPLO="L")
        return values.cpu().numpy(), vectors.cpu().numpy()

    def generalized_eigh(self, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of ``A w = mu B w``, ascending; both are overwritten."""
        if A.shape[0] < GPU_SIZE:
            return generalized_eigh(A, B)
        torch = self.torch
        try:
            factor = torch.linalg.cholesky(self._put(B))
        except RuntimeError as error:
            raise ValueError(
                f"A generalised eigenproblem of size {A.shape[0]} is singular ({error}). Use a larger ridge."
            ) from error
        half = torch.linalg.solve_triangular(factor, self._put(A), upper=False)
        reduced = torch.linalg.solve_triangular(factor, half.T, upper=False)
        values, vectors = torch.linalg.eigh((reduced + reduced.T) / 2)
        vectors = torch.linalg.solve_triangular(factor.T, vectors, upper=True)
        return values.cpu().numpy(), vectors.cpu().numpy()

    def solve(self, A: np.ndarray, T: np.ndarray, shift: float) -> np.ndarray:
        """``A^-1 T`` for A positive semi-definite plus `shift` times the identity, read from its lower triangle."""
        if A.shape[0] < GPU_SIZE:
            return solve_shifted(A, T, shift)
        factor, failed = self.torch.linalg.cholesky_ex(self._put(A).tril())
        if failed.item():
            return solve_shifted(A, T, shift)
        solution: np.ndarray = self.torch.cholesky_solve(self._put(T), factor).cpu().numpy()
        return solution


def algebra_on(device: str) -> DenseAlgebra:
    """The algebra of a device, "cpu" or "cuda"."""
    if device not in DEVICES:
        raise ValueError(f"device = {device!r}, but it must be one of {', '.join(DEVICES)}.")
    return CudaAlgebra() if device == "cuda" else DenseAlgebra()
