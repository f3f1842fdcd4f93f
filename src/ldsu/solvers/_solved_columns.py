"""Solved columns of a system, kept for other labels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ldsu._utils.arrays import Arrays
from ldsu.solvers._joint_system import JointSystem
from ldsu.solvers._types import Settings


class NamedColumns:
    """Columns by name: those of the last call are kept, and only the others are computed."""

    def __init__(self) -> None:
        self.names: dict[Hashable, int] = {}
        self.rows: Any = None  # the columns, which are then contiguous

    def take(self, names: Sequence[Hashable], compute: Callable[[list[int]], Any], arrays: Arrays) -> Any:
        """Columns (n, k) with these names; `compute` returns some of them, by number."""
        known, rows = dict(self.names), self.rows
        missing = [number for number, name in enumerate(names) if name not in known]
        if missing:
            rows = _joined(rows, compute(missing), arrays)
            known |= {names[number]: len(known) + i for i, number in enumerate(missing)}
        rows = _rows(rows, [known[name] for name in names], arrays)
        self.names, self.rows = {name: i for i, name in enumerate(names)}, rows
        return rows.T


class SolvedColumns:
    """Columns of ``JointSystem.solve`` by name: those of the last call are kept, and only the others are solved.

    Their solves start from the best combination of the columns at hand. If rows were added to the system, all are
    solved again, from what they were.
    """

    def __init__(self) -> None:
        self.residual, self.outdated = 0.0, False
        self.anchors: dict[Hashable, int] = {}
        self.features: dict[Hashable, int] = {}
        # Columns as rows, which are contiguous: of B^-1, of the landmark features, of eta M times these, and of H.
        self.Z: Any = None
        self.P: Any = None
        self.MP: Any = None
        self.H: Any = None

    def solve(
        self,
        system: JointSystem,
        anchors: np.ndarray,
        names: Sequence[Hashable],
        features: Callable[[list[int]], Any],
        settings: Settings,
    ) -> tuple[Any, Any, Any, Any, int, float]:
        """Columns of P, ``B^-1 E_A``, ``eta M P``, ``H``, iterations, and the largest relative residual of all.

        `names` are those of the columns of P; `features` computes some of them, by number.
        """
        arrays = system.arrays
        new = np.array([place for place in anchors.tolist() if place not in self.anchors], dtype=np.int64)
        missing = [number for number, name in enumerate(names) if name not in self.features]
        stacks, iterations, residual = (self.Z, self.P, self.MP, self.H), 0, self.residual
        known_anchors, known_features = dict(self.anchors), dict(self.features)
        if self.outdated:
            new, missing, stacks, residual = anchors, list(range(len(names))), (None,) * 4, 0.0
            known_anchors, known_features = {}, {}
            starts = _padded(self.Z, self.anchors, anchors.tolist()), _padded(self.P - self.H, self.features, names)
            known = None
        else:
            starts, known = None, None if self.Z is None else (self.Z, np.fromiter(self.anchors, dtype=np.int64))
        if new.size or missing:
            P = features(missing)
            Z, MP, H, iterations, largest = system.solve(new, P, settings, known, starts)
            residual = max(residual, largest)
            stacks = tuple(_joined(stack, block, arrays) for stack, block in zip(stacks, (Z, P, MP, H), strict=True))
            known_anchors |= {place: len(known_anchors) + i for i, place in enumerate(new.tolist())}
            known_features |= {names[number]: len(known_features) + i for i, number in enumerate(missing)}
        at_anchors = [known_anchors[place] for place in anchors.tolist()]
        at_features = [known_features[name] for name in names]
        Z, P, MP, H = (
            _rows(stack, at, arrays)
            for stack, at in zip(stacks, (at_anchors, at_features, at_features, at_features), strict=True)
        )
        self.__dict__ = {
            "residual": residual,
            "outdated": False,
            "anchors": {place: i for i, place in enumerate(anchors.tolist())},
            "features": {name: i for i, name in enumerate(names)},
            **{"Z": Z, "P": P, "MP": MP, "H": H},
        }
        return P.T, Z.T, MP.T, H.T, iterations, residual

    def with_rows(self, similar: np.ndarray, arrays: Arrays) -> SolvedColumns:
        """Approximate columns of a system with further rows, which get the values of similar rows."""
        extended = SolvedColumns()
        extended.outdated, extended.anchors, extended.features = True, self.anchors, self.features
        at = arrays.put(similar)
        extended.Z, extended.P, extended.H = (
            arrays.xp.concatenate([stack, stack[:, at]], axis=1) for stack in (self.Z, self.P, self.H)
        )
        return extended


def _padded(stack: Any, known: dict[Hashable, int], names: Sequence[Hashable]) -> Any:
    """Rows of a stack by name, and 0 for those that it lacks."""
    rows = stack[[known.get(name, 0) for name in names]]
    rows[[name not in known for name in names]] = 0
    return rows


def _joined(stack: Any, columns: Any, arrays: Arrays) -> Any:
    rows = arrays.contiguous(columns.T)
    return rows if stack is None else arrays.xp.concatenate([stack, rows])


def _rows(stack: Any, at: list[int], arrays: Arrays) -> Any:
    return stack if at == list(range(stack.shape[0])) else stack[arrays.put(np.array(at, dtype=np.int64))]
