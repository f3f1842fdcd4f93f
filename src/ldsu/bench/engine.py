"""Compute the cells of one split in an order that shares work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from ldsu.bench.families import FAMILIES, Family, Params, class_scores
from ldsu.bench.linalg import algebra_on
from ldsu.bench.protocol import Split, few_labels, folds, load_split, n_folds
from ldsu.bench.sources import size_of
from ldsu.bench.spec import Experiment, MethodSpec
from ldsu.bench.svm import MAX_ITER, svm_path
from ldsu.bench.tasks import Cell, Row, Task, canonical
from ldsu.classifier import BlockScaler, LabelledOnly
from ldsu.model_selection import average_precisions
from ldsu.solvers import Problem
from ldsu.spectrum import resolve_n_components

# Seconds on one core for a decomposition of size n, divided by n^3, for an SVM per C value and class, and for another
# classifier, divided by n: the initial estimate of the time left.
EIGH_SECONDS = 3e-10
SVM_SECONDS = 5e-4
CLASSIFIER_SECONDS = 1e-3
# Peak number of matrices of the size of the kernel matrix in a task; measured on USPS.
MATRICES = 20


@dataclass(frozen=True)
class Job:
    """Settings of a method that differ only in the number of components: one solution, several rows per C."""

    method: MethodSpec
    labels: int
    fold: int  # -1 for the test half
    params: Params  # without n_components
    components: list[Any]  # values of n_components; [None] for a method without n_components

    @property
    def family(self) -> Family:
        """The family of the method."""
        return FAMILIES[self.method.family]

    def cells(self, experiment: Experiment, task: Task) -> dict[tuple[Any, float], Cell]:
        """Its cells by number of components and C."""
        found = {}
        for component in self.components:
            counted = {"n_components": component} if "n_components" in self.method.default else {}
            params = canonical({**self.params, **counted})
            for C in experiment.C if "C" in self.method.default else (0.0,):
                cell = Cell(task.data, task.split, self.labels, self.method.key, params, float(C), self.fold)
                found[component, float(C)] = cell
        return found


def _jobs(experiment: Experiment, task: Task) -> list[Job]:
    """The jobs of a task, by method, number of labels and fold."""
    found: list[Job] = []
    for method in experiment.methods_for(task.data):
        for labels in experiment.data_spec(task.data).labels:
            for fold in range(-1, n_folds(labels, experiment.folds)):
                choose = method.settings if fold < 0 else method.honest_settings
                groups: dict[str, Job] = {}
                for setting in choose(labels, task.data):
                    params = {name: value for name, value in setting.items() if name != "n_components"}
                    job = groups.setdefault(canonical(params), Job(method, labels, fold, params, []))
                    job.components.append(setting.get("n_components"))
                found += groups.values()
    return found


def wanted_cells(experiment: Experiment, task: Task) -> Iterator[Cell]:
    """Every cell of a task."""
    for job in _jobs(experiment, task):
        yield from job.cells(experiment, task).values()


def cost_weight(experiment: Experiment, task: Task) -> float:
    """Estimated seconds of a task on one core; includes rows that a preprocessing drops."""
    rows, classes = size_of(experiment.data_spec(task.data))
    n = rows * (1 - experiment.test_fraction)
    seconds = 0.0
    for job in _jobs(experiment, task):
        if job.family.features is None:
            seconds += CLASSIFIER_SECONDS * n
        else:
            evaluations = len(job.components) * len(experiment.C)
            seconds += EIGH_SECONDS * n**3 * ("gamma_scale" in job.params) + SVM_SECONDS * classes * evaluations
    return seconds


def task_memory(experiment: Experiment, task: Task) -> int:
    """Peak memory of a task in bytes: matrices over pairs of training rows."""
    n = size_of(experiment.data_spec(task.data))[0] * (1 - experiment.test_fraction)
    return int(8 * MATRICES * n**2)


def run_task(
    experiment: Experiment,
    task: Task,
    done: Callable[[Cell], bool],
    progress: Callable[[str], None],
    device: str = "cpu",
) -> Iterator[list[Row]]:
    """Compute the missing rows of a task, one batch per solved problem.

    Parameters
    ----------
    experiment : Experiment
    task : Task
    done : callable
        Whether the row of a cell exists.
    progress : callable
        Called with a description of the current step.
    device : {"cpu", "cuda"}
        Where large matrices are multiplied and decomposed.

    Yields
    ------
    rows : list of Row
    """
    order = {method.key: number for number, method in enumerate(experiment.methods)}

    def rank(job: Job) -> tuple[Any, ...]:
        """Position in the order that shares the most work."""
        shares = tuple(job.params[name] for name in job.family.shares)
        position, rest = (job.labels, job.fold), canonical(job.params)
        last = (*position, rest) if job.family.uses_labels else (rest, *position)
        return shares[0] if shares else -1.0, job.family.shares, shares, order[job.method.key], *last

    todo = [job for job in _jobs(experiment, task) if not all(map(done, job.cells(experiment, task).values()))]
    if not todo:
        return
    spec = experiment.data_spec(task.data)
    progress(f"{spec.title}, split {task.split}: loading")
    split = load_split(experiment, task.data, task.split)
    # Settings are sorted by bandwidth, then graph: of each stage, two results suffice.
    problem = Problem.once_for(split.X_train, split.X_test, arrays=algebra_on(device), keep=2, reusable=True)
    for job in sorted(todo, key=rank):
        part = f"fold {job.fold + 1}" if job.fold >= 0 else "test half"
        progress(f"{spec.title}, split {task.split}, {job.labels} labels, {job.method.key}, {part}")
        yield _run_job(experiment, task, job, split, problem)


class _Scores(NamedTuple):
    """Scores of one number of components, valid for some values of C."""

    component: Any
    penalties: list[float]
    scores: np.ndarray
    n_features: int
    seconds: dict[str, float]


def _run_job(experiment: Experiment, task: Task, job: Job, split: Split, problem: Problem) -> list[Row]:
    """Solve one problem and score every number of components and every C. Failures become rows with an error."""
    missing = job.cells(experiment, task)
    kernel = experiment.data_spec(task.data).kernel
    rows: list[Row] = []
    try:
        y, held_out = few_labels(split, job.labels), None
        if job.fold >= 0:
            parts = folds(y, job.labels, experiment.folds, split.seed)
            if not parts:  # too few labels of every class: rows without a score
                return [Row(cell, None, None, 0, {}, _peak_mib(), split.seed) for cell in missing.values()]
            y, held_out = parts[job.fold]
        truth = split.y_test if held_out is None else split.y_train[held_out]
        membership = truth[:, None] == np.arange(len(split.classes))
        if job.family.features is None:
            found = _classifier_scores(job, y, held_out, split, kernel)
        else:
            found = _feature_scores(job, y, held_out, split, kernel, problem, experiment.C)
        for component, penalties, scores, n_features, seconds in found:
            start = time.perf_counter()
            if not np.all(np.isfinite(scores)):
                raise ValueError("scores are not finite")
            precision = float(np.nanmean(average_precisions(membership, scores)))
            accuracy = float(np.mean(scores.argmax(axis=1) == truth))
            stages = {**seconds, "score": (time.perf_counter() - start) / len(penalties)}
            peak = _peak_mib()
            for C in penalties:
                cell = missing.pop((component, C))
                rows.append(Row(cell, precision, accuracy, n_features, stages, peak, split.seed))
    except (ValueError, MemoryError, np.linalg.LinAlgError) as error:
        message = f"{type(error).__name__}: {error}"
        rows += [Row(cell, None, None, 0, {}, _peak_mib(), split.seed, message) for cell in missing.values()]
    return rows


def _classifier_scores(
    job: Job, y: np.ndarray, held_out: np.ndarray | None, split: Split, kernel: str
) -> Iterator[_Scores]:
    start = time.perf_counter()
    X_new = split.X_test if held_out is None else split.X_train[held_out]
    with np.errstate(invalid="ignore"):  # see `class_scores`
        scores = class_scores(job.family.estimator(job.params, kernel).fit(split.X_train, y), X_new)
    yield _Scores(None, [0.0], scores, split.X_train.shape[1], {"classifier": time.perf_counter() - start})


def _feature_scores(
    job: Job,
    y: np.ndarray,
    held_out: np.ndarray | None,
    split: Split,
    kernel: str,
    problem: Problem,
    penalties: tuple[float, ...],
) -> Iterator[_Scores]:
    problem.take_seconds()
    start = time.perf_counter()
    assert job.family.features is not None
    features = job.family.features(
        problem, y, {**job.params, "n_components": None, "kernel": kernel, "seed": split.seed}
    )
    labelled = np.flatnonzero(y >= 0)
    F = features.at(labelled)
    if held_out is not None:
        F_new = features.at(held_out)
    elif job.family.uses_labels:
        F_new = features.test()
    else:
        F_new = problem.once("test features", (job.method.key, canonical(job.params)), features.test)
    relied_on, made_now = problem.take_seconds()
    seconds = {"shared": relied_on, "features": time.perf_counter() - start - made_now}
    counts = [resolve_n_components(component, features.power.size) for component in job.components]
    gram = np.zeros((labelled.size, labelled.size))
    cross = np.zeros((F_new.shape[0], labelled.size))
    kept = 0
    for r, component in sorted(zip(counts, job.components, strict=True), key=lambda pair: pair[0]):
        gram += F[:, kept:r] @ F[:, kept:r].T
        cross += F_new[:, kept:r] @ F[:, kept:r].T
        kept = r
        unit = float(features.power[:r].sum())  # as BlockScaler: mean squared norm 1 over the training half
        if not unit > 0:
            raise ValueError(f"the first {r} features are zero")
        start = time.perf_counter()
        machines = svm_path(gram / unit, y[labelled], penalties)
        seconds["classifier"] = (time.perf_counter() - start) / len(penalties)
        for machine, values in machines:
            yield _Scores(component, values, cross @ (machine.weights / unit) + machine.intercepts, r, seconds)


def cost_tasks(experiment: Experiment) -> list[tuple[str, str, int]]:
    """Stand-alone fits to measure, once per data set: (data, method, labels), with default parameters."""
    return [
        (spec.key, method.key, spec.middle_labels)
        for spec in experiment.data
        for method in experiment.methods_for(spec.key)
    ]


def measure_cost(experiment: Experiment, item: tuple[str, str, int]) -> dict[str, float]:
    """Time and memory of one fit with default parameters and of scoring the test half. Run it in a fresh process."""
    key, method_key, labels = item
    method = next(method for method in experiment.methods if method.key == method_key)
    split = load_split(experiment, key, 0)
    y = few_labels(split, labels)
    model = independent_model(method, experiment.data_spec(key).kernel, method.default)
    before = _peak_mib()
    start = time.perf_counter()
    model.fit(split.X_train, y)
    fitted = time.perf_counter()
    class_scores(model, split.X_test)
    return {
        "seconds_fit": fitted - start,
        "seconds_transform": time.perf_counter() - fitted,
        "peak_mib": max(0.0, _peak_mib() - before),
    }


def independent_model(method: MethodSpec, kernel: str, setting: Params) -> Any:
    """A method with one setting as a stand-alone estimator, from features to linear SVM."""
    estimator = FAMILIES[method.family].estimator(setting, kernel)
    if hasattr(estimator, "predict"):
        return estimator
    classifier = OneVsRestClassifier(SVC(kernel="linear", C=setting["C"], max_iter=MAX_ITER))
    return make_pipeline(estimator, BlockScaler(), LabelledOnly(classifier))


def _peak_mib() -> float:
    """Peak memory of this process so far."""
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        return float(getattr(psutil.Process().memory_info(), "peak_wset", 0)) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
