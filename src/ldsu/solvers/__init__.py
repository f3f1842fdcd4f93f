"""Solvers that compute the features of LDSU from samples and graphs.

A solver is a function ``solve(problem, codes, kernel, settings) -> Solution`` with a function ``memory(X, codes,
settings) -> bytes`` that estimates its peak memory. It takes what does not depend on labels from the stages of the
`Problem`, which keeps them. A solver need not form the n x n kernel matrix. Register both in `SOLVERS` and `MEMORY` to
use it as ``LDSU(solver=...)``.
"""

from ldsu.solvers._added_rows import AddedRows
from ldsu.solvers._aggregates import coarse_inverse_of
from ldsu.solvers._exact import (
    FILTERS,
    KernelExpansion,
    exact_memory,
    filtered_labelled_kernel,
    smooth_features,
    solve_exact,
    truncated_directions,
)
from ldsu.solvers._frame import Frame
from ldsu.solvers._joint_system import JointSystem, columns_of, conjugate_gradients
from ldsu.solvers._landmarks import Landmarks, resolve_n_directions
from ldsu.solvers._local_expansion import LocalExpansion
from ldsu.solvers._problem import Problem, graph_key, rounded_product
from ldsu.solvers._sparse import solve_sparse
from ldsu.solvers._sparse_plan import (
    MAX_CONDITIONING,
    arrays_in_files,
    disk_with_files,
    memory_with_files,
    model_memory,
    sparse_memory,
    unsupported_reason,
)
from ldsu.solvers._types import Settings, Solution

SOLVERS = {"exact": solve_exact, "sparse": solve_sparse}
MEMORY = {"exact": exact_memory, "sparse": sparse_memory}

__all__ = [
    "FILTERS",
    "MAX_CONDITIONING",
    "MEMORY",
    "SOLVERS",
    "AddedRows",
    "Frame",
    "JointSystem",
    "KernelExpansion",
    "Landmarks",
    "LocalExpansion",
    "Problem",
    "Settings",
    "Solution",
    "arrays_in_files",
    "coarse_inverse_of",
    "columns_of",
    "conjugate_gradients",
    "disk_with_files",
    "filtered_labelled_kernel",
    "graph_key",
    "memory_with_files",
    "model_memory",
    "resolve_n_directions",
    "rounded_product",
    "smooth_features",
    "truncated_directions",
    "unsupported_reason",
]
