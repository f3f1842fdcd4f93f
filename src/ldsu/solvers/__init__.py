"""Solvers that compute the features of LDSU from samples and graphs.

A solver is a function ``solve(problem, codes, kernel, settings) -> Solution`` with a function ``memory(X, codes,
settings) -> bytes`` that estimates its peak memory. It takes what does not depend on labels from the stages of the
`Problem`, which keeps them. A solver need not form the n x n kernel matrix. Register both in `SOLVERS` and `MEMORY` to
use it as ``LDSU(solver=...)``.
"""

from ldsu.solvers._conjugate import conjugate_gradients
from ldsu.solvers._exact import (
    RowFeatures,
    exact_memory,
    filtered_labelled_kernel,
    smooth_features,
    solve_exact,
    truncated_directions,
)
from ldsu.solvers._expansion import KernelExpansion
from ldsu.solvers._filters import FILTERS, SMOOTH_FILTERS
from ldsu.solvers._joint_system import JointSystem, coarse_inverse_of, columns_of, warn_residual
from ldsu.solvers._landmarks import landmark_features, resolve_n_directions
from ldsu.solvers._local_expansion import MAX_CONDITIONING, LocalExpansion, in_units, neighbor_weights
from ldsu.solvers._precision import conditional, conditioning_sets, random_ranks, residual_factor
from ldsu.solvers._problem import Problem, graph_key, rounded_product
from ldsu.solvers._sparse import (
    anchored_features,
    choose_anchors_among,
    clique_scale,
    gamma_in_units,
    landmark_directions,
    landmarks_of,
    products,
    restore_order,
    rows_for_spread,
    solve_sparse,
    sparse_memory,
    spread,
    tolerance,
    unsupported_reason,
    working_precision,
)
from ldsu.solvers._types import Settings, Solution

SOLVERS = {"exact": solve_exact, "sparse": solve_sparse}
MEMORY = {"exact": exact_memory, "sparse": sparse_memory}

__all__ = [
    "FILTERS",
    "MAX_CONDITIONING",
    "MEMORY",
    "SMOOTH_FILTERS",
    "SOLVERS",
    "JointSystem",
    "KernelExpansion",
    "LocalExpansion",
    "Problem",
    "RowFeatures",
    "Settings",
    "Solution",
    "anchored_features",
    "choose_anchors_among",
    "clique_scale",
    "coarse_inverse_of",
    "columns_of",
    "conditional",
    "conditioning_sets",
    "conjugate_gradients",
    "exact_memory",
    "filtered_labelled_kernel",
    "gamma_in_units",
    "graph_key",
    "in_units",
    "landmark_directions",
    "landmark_features",
    "landmarks_of",
    "neighbor_weights",
    "products",
    "random_ranks",
    "residual_factor",
    "resolve_n_directions",
    "restore_order",
    "rounded_product",
    "rows_for_spread",
    "smooth_features",
    "solve_exact",
    "solve_sparse",
    "sparse_memory",
    "spread",
    "tolerance",
    "truncated_directions",
    "unsupported_reason",
    "warn_residual",
    "working_precision",
]
