"""A worker process: it claims tasks in the store, runs them, and writes each batch of rows as it is computed.

`ldsu.bench.runner` starts it with a pickled `Assignment` on standard input and reads one JSON message per line from
its standard output. It exits with its parent.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Set
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ldsu.bench.remote import run_on_cluster
from ldsu.bench.spec import Experiment
from ldsu.bench.store import Store, StoreError
from ldsu.bench.tasks import Cell, Task

# How long an idle worker waits before it looks for tasks again.
PAUSE_SECONDS = 0.5
# Maximum time for a run to notice that one of its workers has died.
EXIT_NOTICE_SECONDS = 10.0
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Assignment:
    """The work of a worker.

    Parameters
    ----------
    experiment : Experiment
        What to compute.
    engine : str
        Module that computes the cells.
    store : str
        Results file.
    run : int
        Number of the run in the store.
    tasks : tuple of Task
        Tasks, in the order to compute them.
    fingerprints : dict
        Hash of the cells of each task, for `Store.finish`.
    parent : int
        Process that started the worker.
    device : str or None
        Passed to the engine if not None.
    cost : tuple or None
        Measure this cost instead of computing tasks.
    dask : str or None
        Address of a Dask scheduler on whose cluster the tasks are computed.
    """

    experiment: Experiment
    engine: str
    store: str
    run: int
    tasks: tuple[Task, ...]
    fingerprints: dict[Task, str]
    parent: int
    device: str | None = None
    cost: Any = None
    dask: str | None = None


Send = Callable[..., None]


def work(assignment: Assignment, send: Send) -> None:
    """Compute tasks until all are finished or abandoned."""
    engine = import_module(assignment.engine)
    with Store(assignment.store, create=False) as store:
        while True:
            left = _tasks_left(assignment, store)
            if not left:
                return
            task = _claim_next(assignment, engine, store, left, send)
            if task is not None:
                _run(assignment, engine, store, task, send)
                gc.collect()
            elif _tasks_left(assignment, store) == left:
                send("wait")
                time.sleep(PAUSE_SECONDS)


def measure_cost(assignment: Assignment, send: Send) -> None:
    """Measure one stand-alone fit in this fresh process."""
    send("cost", cost=dict(import_module(assignment.engine).measure_cost(assignment.experiment, assignment.cost)))


def _tasks_left(assignment: Assignment, store: Store) -> list[Task]:
    """Tasks neither finished nor abandoned in this run; tasks that killed a worker come last."""
    finished = store.finished()
    failures = [
        (Task(failure["data"], failure["split"]), failure["final"]) for failure in store.failures(assignment.run)
    ]
    abandoned = {task for task, final in failures if final}
    crashed = {task for task, _ in failures}
    left = [
        task
        for task in assignment.tasks
        if assignment.fingerprints[task] not in finished.get(task, ()) and task not in abandoned
    ]
    return sorted(left, key=lambda task: task in crashed)


def _claim_next(assignment: Assignment, engine: Any, store: Store, left: list[Task], send: Send) -> Task | None:
    """Claim the first unclaimed task that fits in memory."""
    from ldsu._utils.memory import available_memory

    for task in left:
        memory, available = 0, None
        if hasattr(engine, "task_memory") and assignment.dask is None:  # a cluster uses its own memory
            memory, available = int(engine.task_memory(assignment.experiment, task)), available_memory()
        try:
            claimed = store.claim(task, memory=memory, available=available, patience=EXIT_NOTICE_SECONDS)
        except MemoryError as error:
            _fail(assignment, store, task, str(error), send)
            continue
        if claimed:
            # Its last owner may have finished it in the meantime.
            if task in _tasks_left(assignment, store):
                return task
            store.release(task)
    return None


def _run(assignment: Assignment, engine: Any, store: Store, task: Task, send: Send) -> None:
    done = store.done_keys(task)
    send("take", task=task, present=_count_present(assignment, engine, task, done)[0])
    start = time.perf_counter()
    try:
        progress = lambda text: send("doing", task=task, text=text)  # noqa: E731
        options = {} if assignment.device is None else {"device": assignment.device}
        if assignment.dask is None:
            batches = engine.run_task(assignment.experiment, task, done.__contains__, progress, **options)
        else:
            batches = run_on_cluster(
                assignment.dask, assignment.engine, assignment.experiment, task, done, progress, options
            )
        for rows in batches:
            written = store.add(rows, assignment.run)
            send("batch", task=task, cells=written, failed=sum(row.error is not None for row in rows))
    except StoreError:
        raise
    except Exception as error:
        traceback.print_exc()
        message = str(error) if isinstance(error, MemoryError) and str(error) else f"{type(error).__name__}: {error}"
        _fail(assignment, store, task, message, send, traceback.format_exc())
        store.release(task)
        return
    present, total = _count_present(assignment, engine, task, store.done_keys(task))
    if present < total:
        _fail(assignment, store, task, f"The task ended with {present} of {total} cells.", send)
        store.release(task)
        return
    store.finish(task, assignment.fingerprints[task])
    send("finish", task=task, seconds=time.perf_counter() - start)


def _count_present(assignment: Assignment, engine: Any, task: Task, done: Set[Cell]) -> tuple[int, int]:
    """Number of computed cells of a task, and of all its cells."""
    present = [cell in done for cell in engine.wanted_cells(assignment.experiment, task)]
    return sum(present), len(present)


def _fail(assignment: Assignment, store: Store, task: Task, error: str, send: Send, details: str = "") -> None:
    store.add_failure(task, assignment.run, details or error, final=True)
    send("fail", task=task, error=error)


def _exit_with_parent(parent: int) -> None:
    """Exit as soon as the parent process ends."""
    if sys.platform == "linux":
        # A thread alone is not enough: some LAPACK calls hold the GIL for minutes.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # returns when the parent has exited: it writes nothing more
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Read an `Assignment` from standard input, carry it out, and write messages to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which stops its workers
    faulthandler.enable()
    # Redirect printed output so that it does not mix with the messages.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def send(event: str, **details: Any) -> None:
        if "task" in details:
            details["task"] = [details["task"].data, details["task"].split]
        with lock:
            print(json.dumps({"event": event, **details}), file=messages, flush=True)

    assignment: Assignment = pickle.load(sys.stdin.buffer)
    _exit_with_parent(assignment.parent)
    try:
        (work if assignment.cost is None else measure_cost)(assignment, send)
    except Exception as error:
        traceback.print_exc()
        send(
            "broken",
            error=str(error) if isinstance(error, OSError | MemoryError) else f"{type(error).__name__}: {error}",
        )
        return 1
    send("end")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Skip the cleanup of numerical libraries: some hang in it.
    os._exit(code)
