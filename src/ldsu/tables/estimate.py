"""Estimate time and memory of a fit before it starts."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from ldsu._utils.memory import available_memory
from ldsu.labels import class_counts, encode_labels
from ldsu.methods import LDSU
from ldsu.methods.ldsu import MIN_LABELS_TO_CHOOSE, ROWS_TO_CHOOSE
from ldsu.tables.model import Task, estimator_for

# Seconds on a machine that multiplies two matrices of this size in PROBE_SECONDS: of parameter selection and of the
# exact solver for 1,000 rows (quadratic in the rows), and of the sparse solver per row of few columns.
PROBE_SIZE, PROBE_SECONDS = 800, 0.012
CHOICE_SECONDS, EXACT_SECONDS, SPARSE_SECONDS = 0.28, 0.2, 1.5e-4
# With this many columns the sparse solver takes twice as long per row.
DOUBLING_COLUMNS = 784
START_SECONDS, NEGLIGIBLE_SECONDS = 0.3, 0.05


class Estimate(NamedTuple):
    """Expected cost of a fit: `seconds` (often within a factor of three), `memory` and `available` in bytes."""

    seconds: float
    memory: int
    available: int
    solver: str


def estimate(task: Task, **parameters: Any) -> Estimate:
    """Estimate time and memory of `fit_task` from the size of the task and a short benchmark of the machine."""
    features = estimator_for(task, **parameters).features
    assert isinstance(features, LDSU)
    codes, _ = encode_labels(task.labels, len(task.labels))
    n, d = task.X.shape
    chosen = features._choose_solver(task.X, features._settings(n))
    chooses = np.median(class_counts(codes)) >= MIN_LABELS_TO_CHOOSE
    seconds = CHOICE_SECONDS * (min(n, ROWS_TO_CHOOSE) / 1000) ** 2 * chooses
    seconds += (
        SPARSE_SECONDS * n * (1 + d / DOUBLING_COLUMNS) if chosen == "sparse" else EXACT_SECONDS * (n / 1000) ** 2
    )
    # Of a small fit the benchmark would take longer than what it estimates.
    return Estimate(
        START_SECONDS + seconds * (_slowness() if seconds > NEGLIGIBLE_SECONDS else 1),
        features._needed_memory(task.X, codes) + task.X.nbytes,
        available_memory(),
        chosen,
    )


def _slowness() -> float:
    """Time of a matrix product relative to the reference machine."""
    A = np.ones((PROBE_SIZE, PROBE_SIZE))
    A @ A  # warm up the thread pool
    times = []
    for _ in range(3):
        start = time.perf_counter()
        A @ A
        times.append(time.perf_counter() - start)
    return min(times) / PROBE_SECONDS
