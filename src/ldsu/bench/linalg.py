"""Large dense products and decompositions of NumPy arrays: on the CPU or a GPU.

Both use double precision and agree up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.arrays import CPU, Arrays, TorchArrays

DEVICES = ("cpu", "cuda")
# Below this size the CPU is faster than the GPU including transfers.
GPU_SIZE = 1500


class CudaAlgebra(Arrays):
    """Large matrices on a GPU; NumPy arrays in and out."""

    def __init__(self) -> None:
        self.gpu = TorchArrays("cuda")

    def dot(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """``A @ B``."""
        if min(A.shape[0], A.shape[1], B.shape[1]) < GPU_SIZE:
            return A @ B
        return self.gpu.get(self.gpu.put(A) @ self.gpu.put(B))

    def eigh(self, A: Any) -> tuple[np.ndarray, Any]:
        """All eigenpairs, ascending, of the lower triangle of A, which is overwritten."""
        if A.shape[0] < GPU_SIZE:
            return super().eigh(A)
        values, vectors = self.gpu.eigh(self.gpu.put(A))
        return values, self.gpu.get(vectors)

    def generalized_eigh(self, A: Any, B: Any) -> tuple[np.ndarray, Any]:
        """All pairs of ``A w = mu B w``, ascending; both are overwritten."""
        if A.shape[0] < GPU_SIZE:
            return super().generalized_eigh(A, B)
        values, vectors = self.gpu.generalized_eigh(self.gpu.put(A), self.gpu.put(B))
        return values, self.gpu.get(vectors)

    def cholesky_solve(self, A: Any, T: Any) -> Any:
        """``A^-1 T`` from the lower triangle of A, or None where A is not positive definite."""
        if A.shape[0] < GPU_SIZE:
            return super().cholesky_solve(A, T)
        solution = self.gpu.cholesky_solve(self.gpu.put(A), self.gpu.put(T))
        return None if solution is None else self.gpu.get(solution)


def algebra_on(device: str) -> Arrays:
    """The algebra of a device, "cpu" or "cuda"."""
    if device not in DEVICES:
        raise ValueError(f"device = {device!r}, but it must be one of {', '.join(DEVICES)}.")
    return CudaAlgebra() if device == "cuda" else CPU
