"""Estimate time and memory of a fit before it starts."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from ldsu._utils.arrays import ignoring_warnings
from ldsu._utils.memory import available_memory
from ldsu._utils.stages import announce
from ldsu._utils.temporary import is_mapped
from ldsu.labels import class_counts, encode_labels, sample_labelled_balanced, sample_others
from ldsu.methods import LDSU
from ldsu.methods.ldsu import MIN_LABELS_TO_CHOOSE, ROWS_TO_CHOOSE, resolve_strength
from ldsu.solvers import model_memory
from ldsu.tables.model import Task, estimator_for

# Seconds on a machine that multiplies two matrices of this size in PROBE_SECONDS: of parameter selection and of the
# exact solver for 1,000 rows (quadratic in the rows), and of the sparse solver per row of few columns.
PROBE_SIZE, PROBE_SECONDS = 800, 0.012
CHOICE_SECONDS, EXACT_SECONDS, SPARSE_SECONDS = 0.28, 0.2, 1.5e-4
# With this many columns the sparse solver takes twice as long per row.
DOUBLING_COLUMNS = 784
START_SECONDS, NEGLIGIBLE_SECONDS = 0.3, 0.05
# If this many seconds are expected of the sparse solver, so many rows are fitted, and the time grows as this power of
# the rows (docs/scale.md).
MEASURED_SECONDS, MEASURED_ROWS, GROWTH = 60.0, 10_000, 1.18


class Estimate(NamedTuple):
    """Expected cost of a fit: `seconds` (often within a factor of three), others in bytes.

    `disk` are the temporary files, `model` is the size of the saved model if the sparse solver is used, else 0.
    """

    seconds: float
    memory: int
    available: int
    solver: str
    disk: int = 0
    model: int = 0


def estimate(task: Task, **parameters: Any) -> Estimate:
    """Estimate time, memory and disk space of `fit_task` from the size of the task and a short benchmark.

    For many rows the benchmark is a fit to some of them.
    """
    features = estimator_for(task, **parameters).features
    assert isinstance(features, LDSU)
    codes, _ = encode_labels(task.labels, len(task.labels))
    n, d = task.X.shape
    plan = features.plan(task.X, codes)
    chooses = np.median(class_counts(codes)) >= MIN_LABELS_TO_CHOOSE
    seconds = CHOICE_SECONDS * (min(n, ROWS_TO_CHOOSE) / 1000) ** 2 * chooses
    if plan.solver == "exact":
        seconds += EXACT_SECONDS * (n / 1000) ** 2
    else:
        seconds += SPARSE_SECONDS * n * (1 + d / DOUBLING_COLUMNS)
    # Of a small fit the benchmark would take longer than what it estimates.
    seconds = START_SECONDS + seconds * (_slowness() if seconds > NEGLIGIBLE_SECONDS else 1)
    if plan.solver == "sparse" and seconds > MEASURED_SECONDS and n > 2 * MEASURED_ROWS:
        seconds = _measured_seconds(features, task.X, codes)
    in_memory = 0 if is_mapped(task.X) else task.X.nbytes
    model = model_memory(task.X, codes, features._settings(n)) if plan.solver == "sparse" else 0
    return Estimate(seconds, plan.memory + in_memory, available_memory(), plan.solver, plan.disk, model)


def _measured_seconds(features: LDSU, X: np.ndarray, codes: np.ndarray) -> float:
    """Time of a fit to all rows, from that of a fit to some of them with the labelled rows among these."""
    announce(f"measuring the time of {MEASURED_ROWS:,} rows")
    rng = np.random.default_rng(0)
    labelled = sample_labelled_balanced(codes, MEASURED_ROWS // 2, rng)
    every = np.flatnonzero(codes >= 0)
    rows = np.sort(np.concatenate([labelled, sample_others(codes.size, every, MEASURED_ROWS - labelled.size, rng)]))
    model = clone(features).set_params(strength=resolve_strength(features.strength))
    start = time.perf_counter()
    with ignoring_warnings():
        model.fit_transform(X[rows], codes[rows])
    return float((time.perf_counter() - start) * (codes.size / rows.size) ** GROWTH)


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
