"""Run an experiment: start workers, monitor them, and report their progress.

This process computes nothing. The workers claim tasks in the store, so any number of runs can share one store: a run
that finds every task claimed waits for the others, takes over abandoned tasks, and ends when all cells are computed.
The runs must be on one machine; with several machines, each fills its own store, and `ldsu bench merge` joins them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from ldsu.bench.display import Display, make_display
from ldsu.bench.forecast import Progress, TaskProgress
from ldsu.bench.remote import slots
from ldsu.bench.spec import Experiment
from ldsu.bench.status import Grid, survey, task_fingerprint
from ldsu.bench.store import Claim, Count, Owner, Store, StoreError
from ldsu.bench.tasks import Summary, Task
from ldsu.bench.worker import Assignment

ENGINE = "ldsu.bench.engine"
# How often a run tries a task that kills its worker.
ATTEMPTS = 3
HEARTBEAT_SECONDS = 2.0
GRACE_SECONDS = 1.0
PAUSE_SECONDS = 0.5
WAITING = "waiting for other workers"
THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
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
) -> Summary:
    """Compute the cells of an experiment that are missing in the store.

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
    part, tasks = select(experiment, only, import_module(engine).split_tasks(experiment))
    display = make_display(quiet=quiet, json=json)
    with Store(store_path) as store, _interrupt_on_sigterm():
        if dask is not None and jobs is None:
            jobs = slots(dask)
        session = _Session(experiment, part, tasks, store, engine, device, display, dask)
        return session.run(jobs, threads, retry, plain_command(command or sys.argv, only))


def select(experiment: Experiment, only: Sequence[str], tasks: Sequence[Task]) -> tuple[Experiment, list[Task]]:
    """The part of an experiment selected by keys of data sets, splits (``usps:0``) and methods, and its tasks."""
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
    return experiment, list(tasks)


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


class _Worker:
    """A worker process and the thread that reads its messages."""

    def __init__(
        self, assignment: Assignment, threads: int, messages: queue.Queue[tuple[_Worker, dict[str, Any] | None]]
    ) -> None:
        self.task: Task | None = None
        self.owner: Owner | None = None
        self.stopping = False
        # Unnamed: it is deleted when this process ends.
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `stop`
        environment = os.environ | {name: str(threads) for name in THREAD_VARIABLES}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ldsu.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
        )
        assert self.process.stdin is not None
        # If the worker dies at once, the end of its messages shows it.
        with suppress(BrokenPipeError):
            self.process.stdin.write(pickle.dumps(assignment))
            self.process.stdin.flush()
        self.reader = threading.Thread(target=self._read, args=(messages,), daemon=True)
        self.reader.start()

    def _read(self, messages: queue.Queue[tuple[_Worker, dict[str, Any] | None]]) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                # The last line of a killed worker may be truncated.
                with suppress(ValueError):
                    messages.put((self, json.loads(line)))
        messages.put((self, None))

    def has_exited(self) -> bool:
        """Whether it has exited and its messages have been read, even if a child process still holds the pipe."""
        if self.process.poll() is None:
            return False
        self.reader.join(GRACE_SECONDS)
        return True

    def stderr_tail(self) -> str:
        """The last part of its standard error."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - 4000))
        return self.log.read().decode(errors="replace").strip()

    def last_line(self) -> str:
        """The last line of its standard error: the error after a traceback."""
        return (self.stderr_tail().splitlines() or [""])[-1]

    def exit_reason(self) -> str:
        """How it exited, as part of a message."""
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL), probably because memory ran out; try fewer --jobs"
        if code < 0:
            return f"was terminated by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def stop(self, grace: float = 0.0) -> None:
        """Stop it if it is still running."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(grace)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        # The reader ends when the pipe is closed. If a child of the worker holds the pipe, the reader is abandoned.
        self.reader.join(GRACE_SECONDS)
        self.log.close()


class _Session:
    """One run on one store."""

    def __init__(
        self,
        whole: Experiment,
        part: Experiment,
        tasks: list[Task],
        store: Store,
        engine: str,
        device: str | None,
        display: Display,
        dask: str | None = None,
    ) -> None:
        self.dask = dask
        self.whole, self.part, self.store, self.device, self.display = whole, part, store, device, display
        self.engine_name, self.engine = engine, import_module(engine)
        weight = {task: float(self.engine.cost_weight(part, task)) for task in tasks}
        # Longest first: a long task started last would leave the other workers idle.
        self.tasks = sorted(tasks, key=lambda task: -weight[task])
        self.weight = weight
        self.total = {task: int(self.engine.count_cells(part, task)) for task in tasks}
        self.fingerprints = {task: task_fingerprint(part, task) for task in tasks}
        self.methods = [spec.key for spec in part.methods]
        self.grid = Grid(part, self.engine)
        # For tasks of other runs: required cells minus all rows of the task.
        self.watched: dict[Task, int] = {}
        self.messages: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()
        self.workers: list[_Worker] = []
        self.run_id = 0
        self.failed_starts = 0
        self.waiting_reported = False

    def run(self, jobs: int | None, threads: int | None, retry: bool, command: str) -> Summary:
        store, whole = self.store, self.whole
        text = whole.path.read_text(encoding="utf-8") if whole.path.exists() else ""
        store.bind(whole.name, text, protocol(whole))
        kept = store.delete_errors(self.tasks, self.methods) if retry else []
        state, failed = self.load_progress()
        left = sum(not task.finished for task in state.values())
        jobs = min(jobs or cores(), max(1, left))
        threads = threads or max(1, cores() // jobs)
        store.clear_stale()  # of killed runs, which no longer record failures of their workers
        self.run_id = store.begin_run(command, jobs, threads)
        self.progress = progress = Progress(state, jobs, failed_cells=failed)
        interrupted = lost = False
        try:
            self.display.start(whole, store.path, self.run_id, progress, threads)
            if kept:
                self.display.note(
                    f"Another run is computing {', '.join(f'{task.data}, split {task.split}' for task in kept)}: "
                    "cells with an error are not retried there."
                )
            if left:
                self.compute(jobs, threads)
            if not progress.errors and all(task.finished for task in progress.tasks.values()):
                self.measure_costs(threads=cores())
        except KeyboardInterrupt:
            interrupted = True
        except StoreError as error:
            self.error(str(error))
        finally:
            try:
                self.stop_workers()
                # An error of the store has been reported, or will be when it is opened again.
                with suppress(StoreError):
                    store.clear_stale()
                    store.end_run(self.run_id)
                    self.recount()
                try:
                    store.check_not_replaced()
                except StoreError as error:
                    lost = True
                    self.error(str(error))
            finally:
                summary = self.summary(interrupted, lost)
                self.display.end(progress, summary, store.path)
        return summary

    def load_progress(self) -> tuple[dict[Task, TaskProgress], int]:
        """Progress of the tasks from the store, and the number of their cells that hold an error."""
        found, finished = survey(self.store, self.whole, self.engine, self.part), self.store.finished()
        state = {}
        for task in self.tasks:
            done, total = found[task].done, self.total[task]
            if done == total and self.fingerprints[task] not in finished.get(task, ()):
                self.store.finish(task, self.fingerprints[task])
            state[task] = TaskProgress(total, self.weight[task], done, finished=done == total)
        return state, sum(found[task].failed for task in self.tasks)

    def count(self, task: Task) -> Count:
        """Required cells of a task in the store."""
        return Count(*(counter.total() for counter in self.grid.count_cells(self.store, task)))

    def refresh(self, others: Sequence[Task]) -> None:
        """Read the progress of tasks of other runs from the store."""
        finished = self.store.finished()
        for task in self.tasks:
            known = self.progress.tasks[task]
            if self.fingerprints[task] in finished.get(task, ()):
                known.finished = True
                self.watched.pop(task, None)
            elif task in others:
                # Counted by key once, then by the number of rows: fast, and need not be exact.
                rows = self.store.count(task).done
                if task not in self.watched:
                    self.watched[task] = self.count(task).done - rows
                known.present = self.watched[task] + rows
            elif self.watched.pop(task, None) is not None:
                known.present = self.count(task).done

    def recount(self) -> None:
        """Count the cells in the store by key at the end."""
        self.refresh(())
        failed = 0
        for task, known in self.progress.tasks.items():
            if not known.finished or self.store.count(task).failed:
                count = self.count(task)
                known.present = count.done
                failed += count.failed
        self.progress.failed_cells = failed

    def summary(self, interrupted: bool, lost: bool) -> Summary:
        return Summary(
            done=0 if lost else self.progress.done,
            total=self.progress.total,
            computed=self.progress.computed,
            failed=self.progress.failed_cells,
            errors=tuple(self.progress.errors),
            seconds=self.progress.elapsed,
            interrupted=interrupted,
            lost=lost,
        )

    # Workers

    def start_worker(self, threads: int, cost: Any = None) -> _Worker:
        assignment = Assignment(
            experiment=self.part,
            engine=self.engine_name,
            store=str(self.store.path.resolve()),
            run=self.run_id,
            tasks=tuple(self.tasks),
            fingerprints=self.fingerprints,
            parent=os.getpid(),
            device=self.device,
            cost=cost,
            dask=self.dask if cost is None else None,
        )
        worker = _Worker(assignment, threads, self.messages)
        with suppress(psutil.Error):
            worker.owner = self.store.owner(worker.process.pid)
        self.workers.append(worker)
        self.progress.doing[worker.process.pid] = "starting"
        return worker

    def drop(self, worker: _Worker) -> None:
        worker.stop()
        self.workers.remove(worker)
        self.progress.doing.pop(worker.process.pid, None)

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.process.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self.workers:
            worker.stop(max(0.0, deadline - time.monotonic()))
        self.workers.clear()

    def compute(self, jobs: int, threads: int) -> None:
        """Keep `jobs` workers running until no tasks are left."""
        for _ in range(jobs):
            self.start_worker(threads)
        for worker, message in self.iter_messages():
            if message is not None:
                self.handle_message(worker, message)
            elif self.handle_exit(worker):
                self.start_worker(threads)

    def iter_messages(self) -> Iterator[tuple[_Worker, dict[str, Any] | None]]:
        """Yield messages of the workers, None when one has exited, until none is left; updates the display."""
        next_heartbeat = 0.0
        while self.workers:
            with suppress(queue.Empty):
                worker, message = self.messages.get(timeout=0.2)
                if worker in self.workers:  # an exit may be noticed twice
                    yield worker, message
            if time.monotonic() >= next_heartbeat:
                for worker in [worker for worker in self.workers if worker.has_exited()]:
                    self.messages.put((worker, None))
                self.send_heartbeats()
                next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
            self.display.update(self.progress)

    def handle_message(self, worker: _Worker, message: dict[str, Any]) -> None:
        """Update the progress from a message of a worker."""
        progress, pid = self.progress, worker.process.pid
        task = Task(*message["task"]) if "task" in message else None
        match message["event"]:
            case "take":
                worker.task = task
                progress.doing[pid] = f"{task.data}, split {task.split}" if task else ""
                if task:
                    progress.tasks[task].present = message["present"]
            case "doing":
                progress.doing[pid] = message["text"]
            case "batch" if task:
                progress.tasks[task].computed += message["cells"]
                progress.tasks[task].present += message["cells"]
                progress.failed_cells += message["failed"]
            case "finish" if task:
                worker.task = None
                progress.doing[pid] = "starting the next task"
                progress.tasks[task].finished = True
                self.display.task_done(task, progress.tasks[task], message["seconds"])
            case "fail" if task:
                worker.task = None
                self.error(f"{task.data}, split {task.split}: {message['error']}", task)
            case "wait":
                progress.doing[pid] = WAITING
            case "broken":
                worker.stopping = True
                self.error(message["error"])
            case "end":
                worker.stopping = True

    def handle_exit(self, worker: _Worker) -> bool:
        """Record why a worker exited; return whether to start a replacement."""
        how, stderr = worker.exit_reason(), worker.stderr_tail()
        last_line = worker.last_line()
        # Its last message may be lost, but its claim is stored.
        claimed = (claim.task for claim in self.store.claims() if worker.owner and claim.owner.is_same(worker.owner))
        task = next(claimed, worker.task)
        self.drop(worker)
        try:
            return not worker.stopping and self.record_exit(task, how, stderr, last_line)
        finally:
            self.store.clear_stale()  # after the failure is recorded: then another worker may claim the task

    def record_exit(self, task: Task | None, how: str, stderr: str, last_line: str) -> bool:
        """Record that a worker died during or before a task; return whether to start a replacement."""
        if task is None:
            self.failed_starts += 1
            if self.failed_starts >= ATTEMPTS:
                self.error(f"A worker {how}, as others did before. {last_line}".strip())
                return False
            self.display.note(f"A worker {how}. A new one is started.")
            return True
        message = f"The worker of {task.data}, split {task.split} {how}."
        times = self.store.add_failure(task, self.run_id, f"{message}\n{stderr}".strip(), final=False)
        if times >= ATTEMPTS:
            self.store.add_failure(task, self.run_id, f"Abandoned after {times} attempts.", final=True)
            self.error(f"{message} Abandoned after {times} attempts.", task)
        else:
            self.display.note(f"{message} The task is retried.")
        return True

    def error(self, message: str, task: Task | None = None) -> None:
        # Report an error that several workers share only once.
        if message not in self.progress.errors:
            self.progress.errors.append(message)
            self.display.error(message, task)

    def send_heartbeats(self) -> None:
        """Update the heartbeats of this run and its workers, and read the progress of other runs."""
        doing = self.progress.doing
        # This process itself only claims the costs.
        steps = {os.getpid(): next(iter(doing.values()), "")}
        self.store.heartbeat(steps | {worker.process.pid: doing[worker.process.pid] for worker in self.workers})
        others = self.other_claims()
        if others or self.progress.other_tasks:
            self.refresh([claim.task for claim in others])
        self.progress.other_tasks = len(others)
        if others and not self.waiting_reported and doing and all(what == WAITING for what in doing.values()):
            self.waiting_reported = True
            self.display.note(
                "Another run is computing all remaining tasks; this run waits, and takes over if the other stops."
            )

    def other_claims(self) -> list[Claim]:
        """Live claims of other runs."""
        ours = {os.getpid(), *(worker.process.pid for worker in self.workers)}
        return [claim for claim in self.store.live_claims() if not (claim.is_local and claim.owner.pid in ours)]

    # Costs

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
            left = [item for item in items if item not in known and item not in tried]
            if not left:
                return
            if self.other_claims() or not self.store.claim(COSTS):
                if not waiting:
                    self.display.note("Costs of single fits are measured as soon as no other run is active.")
                waiting = True
                self.send_heartbeats()
                self.display.update(self.progress)
                time.sleep(PAUSE_SECONDS)
                continue
            try:
                tried.add(left[0])
                number = f"{len(items) - len(left) + 1} of {len(items)}"
                self.measure_cost(left[0], f"costs: {left[0][1]} on {left[0][0]} ({number})", threads)
            finally:
                self.store.release(COSTS)

    def measure_cost(self, item: Any, what: str, threads: int) -> None:
        worker = self.start_worker(threads, cost=item)
        self.progress.doing[worker.process.pid] = what
        for sender, message in self.iter_messages():
            if message is None:
                how, last_line = sender.exit_reason(), sender.last_line()
                self.drop(sender)
                if not sender.stopping:
                    self.error(f"Costs of {item[1]} on {item[0]}: the worker {how}. {last_line}".strip())
            elif message["event"] == "cost":
                data, method, labels = item
                self.store.add_cost(data, method, labels, message["cost"], self.run_id)
            elif message["event"] == "broken":
                sender.stopping = True
                self.error(f"Costs of {item[1]} on {item[0]}: {message['error']}")
            else:
                sender.stopping = True


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
