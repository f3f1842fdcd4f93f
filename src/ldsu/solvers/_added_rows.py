"""Labelled rows added to a problem of rows drawn without labels, to evaluate kernels at few of many samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from ldsu._utils.stages import StageCache
from ldsu.graphs import assemble_cliques, clique_grams, clique_grams_kernel, clique_weights
from ldsu.kernels import Kernel, kernel_squared_distances
from ldsu.neighbors import input_neighbors
from ldsu.solvers._problem import Problem, graph_key
from ldsu.solvers._solved_columns import NamedColumns
from ldsu.solvers._types import Settings


class AddedRows:
    """Labelled rows, and a problem of other rows, whose stages serve all labels.

    The graph is that of the problem's rows, and for each labelled row that is not among these a clique with its nearest
    rows of the problem.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
        All samples; with ``kernel="precomputed"`` the kernel matrix (n, n).
    base : Problem
        Problem of some rows.
    rows : ndarray of shape (b,)
        These rows, ascending.
    labelled : ndarray of shape (m,)
        Labelled rows, ascending.
    """

    def __init__(self, X: Any, base: Problem, rows: np.ndarray, labelled: np.ndarray) -> None:
        self.X, self.base, self.rows, self.labelled = X, base, rows, labelled
        self.added = np.setdiff1d(labelled, rows)
        self._kept = StageCache(1)  # candidates with the same kernel come one after another

    def filtered_kernel(self, kernel: Kernel, settings: Settings, strength: float) -> Any:
        """Entries of ``(K^-1 + strength L)^-1`` at the labelled rows, strength in units of K's mean diagonal.

        On the device of the problem.
        """
        base, arrays, b = self.base, self.base.arrays, self.rows.size
        xp, put = arrays.xp, arrays.put
        K = base.kernel_matrix(kernel)
        weight = strength / (float(K.diagonal().mean()) or 1.0)
        # Rows of the base by place, then added rows; only those that are labelled, or in a clique, matter.
        space = kernel.key if settings.cliques == "kernel" else None
        members = self._kept.once("cliques", (space, settings.clique_size), lambda: self._cliques(kernel, settings))
        is_added = np.isin(self.labelled, self.added)
        at = np.where(is_added, b + np.cumsum(is_added) - 1, np.searchsorted(self.rows, self.labelled))
        used = np.unique(np.concatenate([members.ravel(), at]))
        K_new, new = self._values(kernel), put(used[used < b])
        K_base = xp.concatenate([K[:, new], K_new[:b]], axis=1)  # (b, used)
        values = K_used = xp.concatenate([K_base[new], xp.concatenate([K_new[new].T, K_new[b:]], axis=1)])
        if weight > 0:
            key = (graph_key(kernel, settings)[1:], settings.clique_size)
            L = self._kept.once("graph", key, lambda: self._clique_graph(kernel, settings, members, used, K_used))
            values = values - K_base.T @ self._corrections(kernel, settings, weight, used, K_base)
            LG = weight * (put(L) @ values)
            values = values - values @ xp.linalg.solve(arrays.identity(values.shape[0]) + LG, LG)
        at = put(np.searchsorted(used, at))
        G = values[at][:, at]
        return (G + G.T) / 2

    def _values(self, kernel: Kernel) -> Any:
        """Kernel values (b + a, a) of the base rows and the added rows at the added rows."""
        return self._kept.once("values", kernel.key, lambda: self._compute_values(kernel))

    def _compute_values(self, kernel: Kernel) -> Any:
        arrays = self.base.arrays
        if kernel.name == "precomputed":
            every = np.concatenate([self.rows, self.added])
            return arrays.put(self.X[np.ix_(every, self.added)], "float64")
        added = self.X[self.added]
        at_base, among = (kernel(added, others, arrays=arrays) for others in (self.base.X, added))
        return arrays.xp.concatenate([at_base.T, among])

    def _cliques(self, kernel: Kernel, settings: Settings) -> np.ndarray:
        """Cliques (a, k) of the added rows: each row and the nearest rows of the base, by place."""
        a, b, k, arrays = self.added.size, self.rows.size, settings.clique_size - 1, self.base.arrays
        if settings.cliques == "kernel":
            diagonal = arrays.get(self.base.kernel_matrix(kernel).diagonal())
            K_new = arrays.get(self._values(kernel))
            D2 = kernel_squared_distances(K_new[:b].T, K_new[b:].diagonal(), diagonal)
            neighbors = np.argsort(D2, axis=1, kind="stable")[:, :k]
        elif a:
            neighbors = input_neighbors(self.base.X, k, self.X[self.added], arrays)[1]
        else:
            neighbors = np.empty((0, k), dtype=np.int64)
        return np.concatenate([b + np.arange(a)[:, None], neighbors], axis=1)

    def _corrections(self, kernel: Kernel, settings: Settings, weight: float, used: np.ndarray, K_base: Any) -> Any:
        """``(I + weight L K)^-1 weight L K_base`` for the graph L of the base; columns of rows used before are kept."""
        base, arrays = self.base, self.base.arrays

        def solve(missing: list[int]) -> Any:
            L = arrays.put(base.clique_graph(kernel, settings)[0])
            LK = weight * (L @ K_base[:, arrays.put(np.array(missing))])
            return arrays.lu_solve(base.factor(kernel, settings, weight), LK)

        kept = base.once("corrections", (graph_key(kernel, settings), weight), NamedColumns)
        return kept.take(np.concatenate([self.rows, self.added])[used].tolist(), solve, arrays)

    def _clique_graph(
        self, kernel: Kernel, settings: Settings, members: np.ndarray, used: np.ndarray, values: Any
    ) -> Any:
        """Laplacian of the cliques of the added rows, in the units of the base's, for the rows that are used."""
        places = np.searchsorted(used, members)
        if settings.cliques == "kernel":
            arrays = self.base.arrays
            grams = arrays.get(clique_grams_kernel(values, arrays.put(places)))
        else:
            grams = clique_grams(self.X, np.concatenate([self.rows, self.added])[members])
        theta = self.base.clique_graph(kernel, settings)[1]
        unit = self.base.once(
            "graph_unit", graph_key(kernel, settings)[1:], lambda: self._unit(kernel, settings, theta)
        )
        return assemble_cliques(clique_weights(grams, theta) / unit, places, used.size)

    def _unit(self, kernel: Kernel, settings: Settings, theta: float) -> float:
        """Mean diagonal of the base's graph, by which its Laplacian is divided."""
        weights = clique_weights(self.base.cliques(kernel, settings)[1], theta)
        return float(np.trace(weights, axis1=1, axis2=2).sum()) / self.rows.size or 1.0
