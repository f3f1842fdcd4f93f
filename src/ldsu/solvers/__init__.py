"""Ways from samples and graphs to the features of LDSU.

A solver is a function ``solve(X, codes, kernel, settings, *, basis, stages) -> Solution``, with another, ``memory(X,
codes, settings, *, basis) -> bytes``, that says beforehand what it takes. It owns the whole way, so that one that
never forms the n x n kernel matrix fits the same seam: register both here and it can be named in
``LDSU(solver=...)``.
"""

from ldsu.solvers._seam import Settings, Solution
from ldsu.solvers.exact import exact_memory, solve_exact
from ldsu.solvers.sparse import solve_sparse, sparse_memory

SOLVERS = {"exact": solve_exact, "sparse": solve_sparse}
MEMORY = {"exact": exact_memory, "sparse": sparse_memory}

__all__ = ["MEMORY", "SOLVERS", "Settings", "Solution", "exact_memory", "solve_exact", "solve_sparse", "sparse_memory"]
