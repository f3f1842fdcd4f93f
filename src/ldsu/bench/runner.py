"""Run an experiment: start workers, monitor them, and report their progress.

This process computes nothing, and it alone writes to the store. It claims tasks there for its workers, so any number of
runs can share one store: a run that finds every task claimed waits for the others, takes over the tasks of runs that
died, and ends when all cells are computed.
The runs must be on one machine; with several machines, each fills its own store, and `ldsu bench merge` joins them.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ldsu._utils.memory import available_memory
from ldsu.bench.display import Display, make_display
from ldsu.bench.progress import Progress, TaskProgress
from ldsu.bench.spec import Experiment
from ldsu.bench.status import CellGrid, survey
from ldsu.bench.store import Claim, Store, StoreError
from ldsu.bench.tasks import Row, Task
from ldsu.bench.worker import ClusterWorker, LocalWorker, TaskFailed, WorkerDied, measure_cost, run_task

ENGINE = "ldsu.bench.engine"
# How often a run tries a task that kills its worker.
ATTEMPTS = 3
HEARTBEAT_SECONDS = 2.0
# How long idle workers wait before the run looks for tasks again, and how long it waits for a message.
PAUSE_SECONDS = 0.5
POLL_SECONDS = 0.2
WAITING = "waiting for other workers"
# Claimed by the run that measures costs: one at a time, or they would disturb each other.
COSTS = Task("(costs)", -1)


def run(
    experiment: Experiment,
    store_path: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    threads: int | None = None,
    only: Sequence[str] = (),
    retry: bool = False,
    quiet: bool = False,
    json: bool = False,
    device: str | None = None,
    dask: str | None = None,
    engine: str = ENGINE,
    command: Sequence[str] | None = None,
) -> Progress:
    """Compute the cells of an experiment that are missing in the store, and return the outcome.

    Parameters
    ----------
    experiment : Experiment
        What to compute.
    store_path : path-like
        Results file; created if it does not exist.
    jobs : int or None
        Worker processes; None for the number of cores.
    threads : int or None
        Threads of the numerical libraries per worker; None divides the cores among the workers.
    only : sequence of str
        Keys of data sets (``usps``), of their splits (``usps:0``) or of methods to restrict the run to.
    retry : bool
        Retry cells that hold an error.
    quiet : bool
        Print only errors.
    json : bool
        Print one JSON object per line to standard output instead of a display.
    device : str or None
        Where large matrices are multiplied and decomposed, if the engine supports other devices than the CPU.
    dask : str or None
        Address of a Dask scheduler: tasks are computed on its cluster, by default as many at a time as it has
        threads. Its workers need this package and the same data sets as this machine.
    engine : str
        Module that computes.
    command : sequence of str or None
        Command to record; None for that of this process. Paths are reduced to their last part.
    """
    for name, value in {"jobs": jobs, "threads": threads}.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, but it is {value}.")
    part, tasks = select(experiment, only)
    display = make_display(quiet=quiet, json=json)
    with Store(store_path) as store, _connected_to(dask) as client:
        if client is not None and jobs is None:
            from ldsu.dask.cluster import Cluster

            jobs = Cluster(client).threads()
        options = {} if device is None else {"device": device}
        session = _Session(experiment, part, tasks, store, engine, options, display, client)
        return session.run(jobs, threads, retry, plain_command(command or sys.argv, only))


def _connected_to(address: str | None) -> AbstractContextManager[Any]:
    """The client of the cluster at an address; of None without an address."""
    if address is None:
        return nullcontext()
    from ldsu.dask.cluster import connect

    client: AbstractContextManager[Any] = connect(address)
    return client


def select(experiment: Experiment, only: Sequence[str]) -> tuple[Experiment, list[Task]]:
    """The part of an experiment selected by keys of data sets, splits (``usps:0``) and methods, and its tasks."""
    tasks = experiment.tasks
    data = {key for key in only if any(key == spec.key for spec in experiment.data)}
    splits = {key for key in only if any(key == f"{task.data}:{task.split}" for task in tasks)}
    methods = {key for key in only if any(key == spec.key for spec in experiment.methods)}
    for key in only:
        if key not in data | splits | methods:
            raise ValueError(
                f"{key!r} is neither a data set nor a method of {experiment.name}; its data sets are "
                f"{', '.join(spec.key for spec in experiment.data)} (one split: {tasks[0].data}:{tasks[0].split}) "
                f"and its methods {', '.join(spec.key for spec in experiment.methods)}."
            )
    if data or splits:
        tasks = [task for task in tasks if task.data in data or f"{task.data}:{task.split}" in splits]
    if methods:
        chosen = tuple(spec for spec in experiment.methods if spec.key in methods)
        experiment = dataclasses.replace(experiment, methods=chosen)
    return experiment, tasks


def default_store(experiment_name: str) -> Path:
    """The default store of an experiment."""
    return Path("runs") / f"{experiment_name}.sqlite"


def plain_command(arguments: Sequence[str], keys: Sequence[str] = ()) -> str:
    """A command with paths reduced to file names; `keys` are left unchanged, though they may look like paths.

    >>> plain_command(["/usr/bin/ldsu", "run", "/some/where/x.toml", "--store=../x.sqlite", "--only", "a/b"], ["a/b"])
    'ldsu run x.toml --store=x.sqlite --only a/b'
    """
    plain = []
    for argument in arguments:
        option, sign, value = argument.rpartition("=")
        plain.append(option + sign + (value if value in keys else re.split(r"[/\\]", value)[-1]))
    return " ".join(plain)


def protocol(experiment: Experiment) -> dict[str, Any]:
    """The settings that must not change between runs on a store."""
    fixed = {name: getattr(experiment, name) for name in ("seed", "test_fraction", "folds")}
    data = {spec.key: [spec.name, spec.preprocessing, spec.kernel, spec.rows] for spec in experiment.data}
    for spec in experiment.data:
        if spec.file is not None:
            from ldsu.bench.sources import load_data

            data[spec.key].append(load_data(spec).fingerprint)
    return fixed | {f"data {key}": facts for key, facts in data.items()}


def cores() -> int:
    """Number of cores available to this process."""
    import joblib

    return int(joblib.cpu_count())


class _Session:
    """One run on one store."""

    def __init__(
        self,
        whole: Experiment,
        part: Experiment,
        tasks: list[Task],
        store: Store,
        engine: str,
        options: dict[str, Any],
        display: Display,
        client: Any = None,
    ) -> None:
        self.whole, self.part, self.store, self.options, self.display = whole, part, store, options, display
        self.engine_name, self.engine, self.client = engine, import_module(engine), client
        self.weight = {task: float(self.engine.cost_weight(part, task)) for task in tasks}
        # Longest first: a long task started last would leave the other workers idle.
        self.tasks = sorted(tasks, key=lambda task: -self.weight[task])
        self.methods = [spec.key for spec in part.methods]
        self.grid = CellGrid(part, self.engine)
        # By number: workers, the tasks they compute and when they started, and messages of all of them.
        self.workers: dict[int, LocalWorker | ClusterWorker] = {}
        self.running: dict[int, tuple[Task, float]] = {}
        self.messages: queue.Queue[tuple[int, Any]] = queue.Queue()
        self.crashed: set[Task] = set()
        self.abandoned: set[Task] = set()
        self.run_id = 0
        self.failed_starts = 0
        self.next_heartbeat = 0.0
        self.waiting_reported = False

    def run(self, jobs: int | None, threads: int | None, retry: bool, command: str) -> Progress:
        store, whole = self.store, self.whole
        text = whole.path.read_text(encoding="utf-8") if whole.path.exists() else ""
        store.bind(whole.name, text, protocol(whole))
        kept = store.delete_errors(self.tasks, self.methods) if retry else []
        self.progress = progress = self.load_progress()
        left = sum(not task.finished for task in progress.tasks.values())
        jobs = progress.jobs = min(jobs or cores(), max(1, left))
        threads = threads or max(1, cores() // jobs)
        store.clear_stale()
        self.run_id = store.begin_run(command, jobs, threads)
        try:
            self.display.start(whole, store.path, self.run_id, progress, threads)
            if kept:
                self.display.note(
                    f"Another run is computing {', '.join(map(str, kept))}: cells with an error are not retried there."
                )
            if left:
                self.compute(jobs, threads)
            if not progress.errors and all(task.finished for task in progress.tasks.values()):
                self.stop_workers()
                self.measure_costs(threads=cores())
        except KeyboardInterrupt:
            progress.interrupted = True
        except StoreError as error:
            self.error(str(error))
        finally:
            try:
                self.stop_workers()
                # An error of the store has been reported, or will be when it is opened again.
                with suppress(StoreError):
                    store.release()
                    store.end_run(self.run_id)
                    self.recount()
                try:
                    store.check_not_replaced()
                except StoreError as error:
                    progress.lost = True
                    self.error(str(error))
            finally:
                self.display.end(progress, store.path)
        return progress

    # Progress

    def load_progress(self) -> Progress:
        """Progress of the tasks from the store."""
        is_whole = self.part is self.whole
        found = survey(self.store, self.grid if is_whole else CellGrid(self.whole, self.engine))
        progress = Progress({}, jobs=1)
        for task in self.tasks:
            total, count = len(self.grid.keys(task)), found[task] if is_whole else self.grid.count(self.store, task)
            known = TaskProgress(total, self.weight[task], count.done, finished=count.done == total)
            known.surplus = 0 if known.finished else self.store.count(task).done - count.done
            progress.tasks[task] = known
            progress.failed += count.failed
        return progress

    def recount(self) -> None:
        """Count the cells in the store by key at the end."""
        self.progress.failed = 0
        for task, known in self.progress.tasks.items():
            if not known.finished or self.store.count(task).failed:
                count = self.grid.count(self.store, task)
                known.present = count.done
                self.progress.failed += count.failed

    # Workers

    def compute(self, jobs: int, threads: int) -> None:
        """Compute tasks on `jobs` workers until none are left."""
        slots, next_look = list(range(jobs)), 0.0
        while slots:
            idle = [slot for slot in slots if slot not in self.running]
            if idle and time.monotonic() >= next_look:
                next_look = time.monotonic() + PAUSE_SECONDS
                left = self.tasks_left()
                if not left and not self.running:
                    return
                for slot in idle:
                    task = next((task for task in left if self.claim(task)), None)
                    if task is not None:
                        left.remove(task)
                        self.start_task(slot, task, threads)
                    elif left:
                        self.progress.doing[slot] = WAITING
                    else:
                        self.progress.doing.pop(slot, None)
            for slot, message in self.receive():
                match message:
                    case str():
                        self.progress.doing[slot] = message
                    case list() | tuple():  # Dask sends a list as a tuple
                        self.add_rows(self.running[slot][0], message)
                    case _:
                        next_look = 0.0
                        if not self.end_task(slot, message):
                            slots.remove(slot)

    def tasks_left(self) -> list[Task]:
        """Tasks not finished, abandoned or running in this run; tasks that killed a worker come last."""
        excluded = self.abandoned | {task for task, _ in self.running.values()}
        left = [task for task, known in self.progress.tasks.items() if not known.finished and task not in excluded]
        return sorted(left, key=self.crashed.__contains__)

    def claim(self, task: Task) -> bool:
        """Claim a task that no other run computes and that fits in memory."""
        if task in self.abandoned:
            return False
        memory, available = 0, None
        if hasattr(self.engine, "task_memory") and self.client is None:  # a cluster uses its own memory
            memory, available = int(self.engine.task_memory(self.part, task)), available_memory()
        try:
            if not self.store.claim(task, memory=memory, available=available):
                return False
        except MemoryError as error:
            self.abandon(task, str(error))
            return False
        known = self.progress.tasks[task]
        known.present = self.grid.count(self.store, task).done
        if known.present < known.total:
            return True
        known.finished = True  # by its last owner, in the meantime
        self.store.release(task)
        return False

    def start_task(self, slot: int, task: Task, threads: int) -> None:
        if slot not in self.workers:
            self.workers[slot] = LocalWorker(threads) if self.client is None else ClusterWorker(self.client)
        arguments = (self.engine_name, self.part, task, self.store.done_keys(task), self.options)
        self.start(slot, task, "starting", run_task, *arguments)

    def start(self, slot: int, task: Task, doing: str, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in a worker; its messages are put in the queue, at the end None or the exception."""
        self.progress.doing[slot] = doing
        messages = self.workers[slot].compute(function, *arguments)
        self.running[slot] = task, time.perf_counter()

        def read() -> None:
            end = None
            try:
                for message in messages:
                    self.messages.put((slot, message))
            except (TaskFailed, WorkerDied) as error:
                end = error
            except Exception as error:
                end = TaskFailed.of(error)
            self.messages.put((slot, end))

        threading.Thread(target=read, name=f"ldsu worker {slot}", daemon=True).start()

    def receive(self) -> Iterator[tuple[int, Any]]:
        """Yield at most one message of the workers; sends heartbeats and updates the display."""
        with suppress(queue.Empty):
            yield self.messages.get(timeout=POLL_SECONDS)
        if time.monotonic() >= self.next_heartbeat:
            self.send_heartbeats()
            self.next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
        self.display.update(self.progress)

    def add_rows(self, task: Task, rows: Sequence[Row]) -> None:
        written, known = self.store.add(rows, self.run_id), self.progress.tasks[task]
        known.computed += written
        known.present += written
        self.progress.failed += sum(row.error is not None for row in rows)

    def end_task(self, slot: int, error: TaskFailed | WorkerDied | None) -> bool:
        """Record how a task ended; returns whether its worker can be used again or replaced."""
        task, started = self.running.pop(slot)
        self.progress.doing.pop(slot)
        known, goes_on = self.progress.tasks[task], True
        if isinstance(error, WorkerDied):
            self.workers.pop(slot).stop()
            goes_on = self.record_exit(task, error)
        elif error is not None:
            self.abandon(task, error.message, error.traceback)
        elif (present := self.grid.count(self.store, task).done) < known.total:
            self.abandon(task, f"The task ended with {present} of {known.total} cells.")
        else:
            known.finished = True
            self.display.task_done(task, known, time.perf_counter() - started)
        self.store.release(task)  # after a failure is recorded: then another run may claim the task
        return goes_on

    def record_exit(self, task: Task, error: WorkerDied) -> bool:
        """Record that a worker died during or before a task; returns whether to start a replacement."""
        if not error.in_task:
            self.failed_starts += 1
            if self.failed_starts >= ATTEMPTS:
                self.error(f"A worker {error.how}, as others did before. {error.last_line}".strip())
                return False
            self.display.note(f"A worker {error.how}. A new one is started.")
            return True
        self.crashed.add(task)
        message = f"The worker of {task} {error.how}."
        times = self.store.add_failure(task, self.run_id, f"{message}\n{error.stderr}".strip(), final=False)
        if times >= ATTEMPTS:
            self.abandoned.add(task)
            self.store.add_failure(task, self.run_id, f"Abandoned after {times} attempts.", final=True)
            self.error(f"{message} Abandoned after {times} attempts.", task)
        else:
            self.display.note(f"{message} The task is retried.")
        return True

    def abandon(self, task: Task, error: str, details: str = "") -> None:
        """Record the failure of a task, which this run does not retry."""
        self.abandoned.add(task)
        self.store.add_failure(task, self.run_id, details or error, final=True)
        self.error(f"{task}: {error}", task)

    def error(self, message: str, task: Task | None = None) -> None:
        # Report an error that several workers share only once.
        if message not in self.progress.errors:
            self.progress.errors.append(message)
            self.display.error(message, task)

    def stop_workers(self) -> None:
        for worker in self.workers.values():
            worker.stop()
        self.workers.clear()

    def send_heartbeats(self) -> None:
        """Update the heartbeats of this run's claims, and read the progress of other runs."""
        doing = self.progress.doing
        self.store.heartbeat({task: doing[slot] for slot, (task, _) in self.running.items()})
        others = self.other_claims()
        for task in {claim.task for claim in others} & self.progress.tasks.keys():
            # By the number of rows, not by key: fast, and need not be exact.
            known = self.progress.tasks[task]
            known.present = self.store.count(task).done - known.surplus
        self.progress.other_tasks = len(others)
        if others and not self.waiting_reported and doing and all(what == WAITING for what in doing.values()):
            self.waiting_reported = True
            self.display.note(
                "Another run is computing all remaining tasks; this run waits, and takes over if the other stops."
            )

    def other_claims(self) -> list[Claim]:
        """Live claims of other runs."""
        return [claim for claim in self.store.live_claims() if not (claim.is_local and claim.owner.pid == os.getpid())]

    def measure_costs(self, threads: int) -> None:
        """Measure each stand-alone fit in a separate process, one at a time and while no other run is active."""
        if not hasattr(self.engine, "cost_tasks"):
            return
        keys = {task.data for task in self.tasks}
        items = [tuple(item) for item in self.engine.cost_tasks(self.part) if item[0] in keys]
        tried: set[Any] = set()
        waiting = False
        while True:
            known = {(cost["data"], cost["method"], cost["labels"]) for cost in self.store.costs()}
            left = [item for item in items if item not in known | tried]
            if not left:
                return
            if self.other_claims() or not self.store.claim(COSTS):
                if not waiting:
                    self.display.note("Costs of single fits are measured as soon as no other run is active.")
                waiting = True
                list(self.receive())
                continue
            try:
                tried.add(left[0])
                data, method, labels = left[0]
                what = f"costs: {method} on {data} ({len(items) - len(left) + 1} of {len(items)})"
                self.workers[0] = LocalWorker(threads)
                self.start(0, COSTS, what, measure_cost, self.engine_name, self.part, left[0])
                while self.running:
                    for slot, message in self.receive():
                        if isinstance(message, dict):
                            self.store.add_cost(data, method, labels, message, self.run_id)
                            continue
                        del self.running[slot], self.progress.doing[slot]
                        if message is not None:
                            self.error(f"Costs of {method} on {data}: {message}")
                self.stop_workers()
            finally:
                self.store.release(COSTS)
