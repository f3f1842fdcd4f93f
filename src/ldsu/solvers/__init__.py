"""Ways from samples and graphs to the features of LDSU.

A solver is a function ``solve(X, codes, kernel, settings, *, basis, stages) -> Solution``, with another, ``memory(X,
codes, settings, *, basis) -> bytes``, that says beforehand what it takes. It owns the whole way, so that one that
never forms the n x n kernel matrix fits the same seam: register both here and it can be named in
``LDSU(solver=...)``.
"""

from ldsu.solvers._conjugate import conjugate_gradients
from ldsu.solvers._exact import (
    ASYMMETRY,
    anchor_features,
    choose_anchors,
    class_projection,
    exact_memory,
    filtered_labelled_kernel,
    project,
    scaled_strength,
    solve_exact,
    spectral_directions,
)
from ldsu.solvers._expansion import KernelExpansion
from ldsu.solvers._filters import FILTERS, SMOOTH_FILTERS
from ldsu.solvers._joint_system import JointSystem, coarse_inverse_of, columns_of, warn_of_residual
from ldsu.solvers._landmarks import landmark_features, resolve_n_directions
from ldsu.solvers._local_expansion import MOST_CONDITIONING, LocalExpansion, in_units
from ldsu.solvers._precision import conditional, conditioning_sets, random_ranks, residual_factor
from ldsu.solvers._sparse import (
    anchored_features,
    anchors_among,
    clique_scale,
    gamma_in_units,
    in_given_order,
    landmark_directions,
    landmarks_of,
    products,
    reason_against,
    rows_for_spread,
    solve_sparse,
    sparse_memory,
    spread,
    tolerance,
    working_precision,
)
from ldsu.solvers._types import Settings, Solution

SOLVERS = {"exact": solve_exact, "sparse": solve_sparse}
MEMORY = {"exact": exact_memory, "sparse": sparse_memory}

__all__ = [
    "ASYMMETRY",
    "FILTERS",
    "MEMORY",
    "MOST_CONDITIONING",
    "SMOOTH_FILTERS",
    "SOLVERS",
    "JointSystem",
    "KernelExpansion",
    "LocalExpansion",
    "Settings",
    "Solution",
    "anchor_features",
    "anchored_features",
    "anchors_among",
    "choose_anchors",
    "class_projection",
    "clique_scale",
    "coarse_inverse_of",
    "columns_of",
    "conditional",
    "conditioning_sets",
    "conjugate_gradients",
    "exact_memory",
    "filtered_labelled_kernel",
    "gamma_in_units",
    "in_given_order",
    "in_units",
    "landmark_directions",
    "landmark_features",
    "landmarks_of",
    "products",
    "project",
    "random_ranks",
    "reason_against",
    "residual_factor",
    "resolve_n_directions",
    "rows_for_spread",
    "scaled_strength",
    "solve_exact",
    "solve_sparse",
    "sparse_memory",
    "spectral_directions",
    "spread",
    "tolerance",
    "warn_of_residual",
    "working_precision",
]
