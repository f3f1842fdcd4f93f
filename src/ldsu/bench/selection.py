"""From rows to results: parameter selection, sweeps over parameters, significance tests.

A row is a mapping with the columns of the store's `cells` table. `group_rows` reads them once; the other functions use
its groups: all settings of one method on one data set at one number of labels.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ldsu.bench.tasks import STAGES, canonical

_SECONDS = tuple(f"seconds_{stage}" for stage in STAGES)
GroupKey = tuple[str, int, str]


@lru_cache(maxsize=100_000)
def _parse(params: str) -> dict[str, Any]:
    return json.loads(params)


class Setting(NamedTuple):
    """Parameters as canonical JSON, and the classifier's C (0 if the method has none)."""

    params: str
    C: float

    @property
    def values(self) -> dict[str, Any]:
        """All parameters by name, including C if the method has one."""
        return {**_parse(self.params), "C": self.C} if self.C else dict(_parse(self.params))


@dataclass(frozen=True, eq=False)
class Group:
    """All settings of one method on one data set at one number of labels; arrays have shape (settings, splits)."""

    data: str
    labels: int
    method: str
    settings: tuple[Setting, ...]
    splits: tuple[int, ...]
    present: np.ndarray  # whether a test row exists, failed or not
    map: np.ndarray  # on the test half; NaN if the row is missing or failed
    accuracy: np.ndarray
    cv_map: np.ndarray  # mean over the cross-validation folds; NaN if a fold is missing or failed
    failures: int  # rows with an error
    seconds: dict[str, float]  # mean of each stage over the successful rows

    @cached_property
    def complete_splits(self) -> np.ndarray:
        """Columns of the splits with the most settings: splits that are still running are excluded."""
        counts = self.present.sum(axis=0)
        return np.flatnonzero(counts == counts.max()) if counts.size and counts.max() else np.arange(0)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean test MAP of each setting over the whole splits; NaN if one of them failed or is missing."""
        if not self.complete_splits.size:
            return np.full(len(self.settings), np.nan)
        return self.map[:, self.complete_splits].mean(axis=1)

    def values(self, parameter: str) -> list[Any]:
        """The values of a parameter, in order: numbers ascending, then strings, then None."""
        found = {setting.values[parameter] for setting in self.settings if parameter in setting.values}
        return sorted(found, key=_value_order)


@dataclass(frozen=True)
class Choice:
    """Result of a selection for one method: scores and chosen setting of each split."""

    data: str
    labels: int
    method: str
    selection: str  # "oracle" or "honest"
    splits: tuple[int, ...]  # with a score
    map: tuple[float, ...]
    accuracy: tuple[float, ...]
    settings: tuple[Setting, ...]
    how: tuple[str, ...]  # what each setting was selected on: "test", "cross-validation" or "default"
    missing: tuple[int, ...] = ()  # splits whose chosen setting has no score: not run yet, or failed

    def mean(self, metric: str = "map") -> float:
        """Mean over the splits."""
        return float(np.mean(getattr(self, metric)))

    def std(self, metric: str = "map") -> float:
        """Standard deviation over the splits, with n - 1 in the denominator; NaN for one split."""
        scores = getattr(self, metric)
        return float(np.std(scores, ddof=1)) if len(scores) > 1 else math.nan


class SweepPoint(NamedTuple):
    """One value of a parameter: the best over all others, and with all others at their defaults."""

    value: Any
    best: float
    best_std: float
    default: float
    default_std: float


def group_rows(rows: Iterable[Mapping[str, Any]]) -> dict[GroupKey, Group]:
    """Sort rows of the `cells` table into groups by (data, labels, method)."""
    found: dict[GroupKey, tuple[dict[Setting, int], list[tuple[float, ...]]]] = {}
    for row in rows:
        codes, lines = found.setdefault((row["data"], row["labels"], row["method"]), ({}, []))
        code = codes.setdefault(Setting(row["params"], row["C"]), len(codes))
        failed = row["error"] is not None or row["map"] is None
        scores = [math.nan if failed or row[name] is None else row[name] for name in ("map", "accuracy")]
        lines.append((code, row["split"], row["fold"], *scores, *(row[name] or 0.0 for name in _SECONDS)))
    return {key: _group(key, tuple(codes), np.array(lines)) for key, (codes, lines) in found.items()}


def _group(key: GroupKey, settings: tuple[Setting, ...], lines: np.ndarray) -> Group:
    """A group from its rows (number of the setting, split, fold, MAP, accuracy, seconds of each stage)."""
    setting, split, fold = lines[:, :3].astype(int).T
    score, accuracy = lines[:, 3:5].T
    splits, column = np.unique(split, return_inverse=True)
    shape = len(settings), splits.size
    test, folded = ((setting[rows], column[rows]) for rows in (fold < 0, fold >= 0))
    present = np.zeros(shape, dtype=bool)
    present[test] = True
    tables = np.full((2, *shape), np.nan)
    tables[:, *test] = score[fold < 0], accuracy[fold < 0]
    # A setting with fewer folds than its split, or a failed one, has no mean.
    count, total = np.zeros(shape), np.zeros(shape)
    np.add.at(count, folded, 1)
    np.add.at(total, folded, score[fold >= 0])
    folds = count.max(axis=0, initial=0)
    scored = np.isfinite(score)
    seconds = lines[scored, 5:].mean(axis=0) if scored.any() else np.full(len(STAGES), np.nan)
    return Group(
        *key,
        settings=settings,
        splits=tuple(splits.tolist()),
        present=present,
        map=tables[0],
        accuracy=tables[1],
        cv_map=np.where((count == folds) & (folds > 0), total, np.nan) / np.maximum(folds, 1),
        failures=int((~scored).sum()),
        seconds=dict(zip(STAGES, seconds.tolist(), strict=True)),
    )


def oracle(group: Group, default: Mapping[str, Any]) -> Choice | None:
    """The setting with the best mean test MAP over the whole splits: an upper bound, since it uses the test half."""
    best = _best(group, group.means, default)
    return None if best is None else _choice(group, "oracle", dict.fromkeys(group.complete_splits, (best, "test")))


def honest(group: Group, default: Mapping[str, Any]) -> Choice | None:
    """Split by split, the setting with the best mean cross-validation MAP; without folds, the default.

    Test scores are not used in the selection.
    """
    chosen = {}
    defaults = [row for row, setting in enumerate(group.settings) if _agrees(setting.values, default)]
    fallback = min(defaults, key=lambda row: (group.settings[row].C, group.settings[row].params), default=None)
    for column in range(len(group.splits)):
        best = _best(group, group.cv_map[:, column], default)
        if best is not None:
            chosen[column] = best, "cross-validation"
        elif fallback is not None:
            chosen[column] = fallback, "default"
    return _choice(group, "honest", chosen)


def _choice(group: Group, selection: str, chosen: Mapping[int, tuple[int, str]]) -> Choice | None:
    """The scores of the setting (row, what it was selected on) of each split (column), without missing scores."""
    scored = {column: choice for column, choice in chosen.items() if np.isfinite(group.map[choice[0], column])}
    if not scored:
        return None
    rows, columns = [row for row, _ in scored.values()], list(scored)
    return Choice(
        group.data,
        group.labels,
        group.method,
        selection,
        splits=tuple(group.splits[column] for column in columns),
        map=tuple(group.map[rows, columns].tolist()),
        accuracy=tuple(group.accuracy[rows, columns].tolist()),
        settings=tuple(group.settings[row] for row in rows),
        how=tuple(how for _, how in scored.values()),
        missing=tuple(split for column, split in enumerate(group.splits) if column not in scored),
    )


def _best(group: Group, scores: np.ndarray, default: Mapping[str, Any]) -> int | None:
    """Row of the best score; None if there is no score.

    Ties are resolved by distance to the default in steps of the grid, then by smaller C, then by the text.
    """
    if not np.any(np.isfinite(scores)):
        return None
    # Ignore rounding differences of sums in another order.
    scores = np.round(scores, 12)
    tied = np.flatnonzero(scores == np.nanmax(scores)).tolist()
    if len(tied) == 1:
        return tied[0]
    grids = {name: group.values(name) for name in default}

    def steps(name: str, value: Any) -> int:
        expected = default[name]
        if not (_is_number(value) and _is_number(expected)):
            return int(value != expected)
        low, high = min(value, expected), max(value, expected)
        return sum(low <= other <= high for other in grids[name] if _is_number(other) and other != value)

    def rank(row: int) -> tuple[int, float, str]:
        setting = group.settings[row]
        values = setting.values
        return sum(steps(name, values[name]) for name in default if name in values), setting.C, setting.params

    return min(tied, key=rank)


def _agrees(values: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    return all(values[name] == value for name, value in expected.items() if name in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value_order(value: Any) -> tuple[int, float, str]:
    if _is_number(value):
        return 0, float(value), ""
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def sweep(group: Group, parameter: str, default: Mapping[str, Any]) -> list[SweepPoint]:
    """How the mean test MAP varies with one parameter or C; NaN if there is none."""
    best, at_default = _best_by(group, (parameter,)), _best_by(group, (parameter,), default)
    return [SweepPoint(value, *best[value,], *at_default[value,]) for value in group.values(parameter)]


def sweep_pair(group: Group, first: str, second: str) -> tuple[list[Any], list[Any], np.ndarray]:
    """Values of two parameters, and for each pair the best mean test MAP over all others; NaN without a setting."""
    rows, columns = group.values(first), group.values(second)
    best = _best_by(group, (first, second))
    table = np.array([best[row, column][0] for row in rows for column in columns])
    return rows, columns, table.reshape(len(rows), len(columns))


def _best_by(
    group: Group, names: tuple[str, ...], default: Mapping[str, Any] | None = None
) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Mean and deviation of the best setting for each combination of values of some parameters; NaN if there is none.

    The others are at their defaults if these are given. If not, the best is among the values of the others that were
    tried with the most combinations: one that was tried more often than the rest would be favored by chance.
    """
    contexts: dict[str, dict[tuple[Any, ...], int]] = {}
    for row, setting in enumerate(group.settings):
        values, rest = _divide(setting, names)
        if values is not None:
            contexts.setdefault(rest, {})[values] = row
    most = max(map(len, contexts.values()), default=0)
    best: dict[tuple[Any, ...], tuple[float, float]] = defaultdict(lambda: (math.nan, math.nan))
    for rest, found in contexts.items():
        if len(found) == most if default is None else _agrees(_parse(rest), default):
            for values, row in found.items():
                # Comparisons with NaN are false.
                if math.isfinite(group.means[row]) and not group.means[row] <= best[values][0]:
                    scores = group.map[row, group.complete_splits]
                    best[values] = float(scores.mean()), float(scores.std(ddof=1)) if scores.size > 1 else math.nan
    return best


@lru_cache(maxsize=100_000)
def _divide(setting: Setting, names: tuple[str, ...]) -> tuple[tuple[Any, ...] | None, str]:
    values = setting.values
    if not all(name in values for name in names):
        return None, ""
    chosen = tuple(values.pop(name) for name in names)
    return chosen, canonical(values)


def paired_test(first: Choice, second: Choice, metric: str = "map") -> float:
    """p-value of a two-sided paired t-test over the splits that both have; NaN with fewer than two."""
    ours = dict(zip(first.splits, getattr(first, metric), strict=True))
    theirs = dict(zip(second.splits, getattr(second, metric), strict=True))
    differences = np.array([ours[split] - theirs[split] for split in sorted(ours.keys() & theirs.keys())])
    n = differences.size
    if n < 2:
        return math.nan
    return _t_test(differences.mean(), differences.std(ddof=1) / math.sqrt(n), n - 1)


def welch_test(mean: float, std: float, n: int, other_mean: float, other_std: float, other_n: int) -> float:
    """p-value of Welch's two-sided t-test from means, deviations (n - 1) and counts; NaN if a count is below 2."""
    if n < 2 or other_n < 2:
        return math.nan
    ours, theirs = std**2 / n, other_std**2 / other_n
    freedom = (ours + theirs) ** 2 / (ours**2 / (n - 1) + theirs**2 / (other_n - 1)) if ours + theirs > 0 else 1.0
    return _t_test(mean - other_mean, math.sqrt(ours + theirs), freedom)


def _t_test(difference: float, error: float, freedom: float) -> float:
    # Treat rounding errors as zero deviation.
    if error <= 1e-12:
        return 1.0 if abs(difference) <= 1e-12 else 0.0
    return float(2 * stats.t.sf(abs(difference) / error, freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number (Holm 1979); NaN values stay NaN and are not counted.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    corrected = np.full(p.shape, np.nan)
    order = np.argsort(p)[: int(np.isfinite(p).sum())]
    factors = np.arange(order.size, 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return corrected.tolist()


def verdict(difference: float, p_value: float, level: float = 0.05) -> str:
    """Return "ahead" or "behind" if the difference is significant at this level, else "no clear difference"."""
    if not p_value < level:
        return "no clear difference"
    return "ahead" if difference > 0 else "behind"
