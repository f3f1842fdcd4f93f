"""A process that computes: it claims tasks in the store, runs them, and writes each batch of rows as it comes.

`ldsu.bench.runner` starts it with a pickled `Assignment` on standard input and reads a JSON message a line from its
standard output. It lives no longer than its parent.
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

# How long an idle worker waits before it looks for work again.
PAUSE_SECONDS = 0.5
# How long a run takes at most to see that one of its workers has died.
BURIAL_SECONDS = 10.0
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Assignment:
    """What a worker is told.

    Parameters
    ----------
    experiment : Experiment
        What to compute.
    engine : str
        Module that computes it.
    store : str
        File of the results.
    run : int
        Number of the run in the store.
    tasks : tuple of Task
        Tasks to choose from, the ones to begin with first.
    asked : dict
        What is asked of each task, for `Store.finish`.
    parent : int
        Process that started the worker.
    device : str or None
        Passed to the engine if it is given.
    cost : tuple or None
        Instead of working on tasks, measure this one cost.
    dask : str or None
        Address of a Dask scheduler on whose cluster the tasks are computed.
    """

    experiment: Experiment
    engine: str
    store: str
    run: int
    tasks: tuple[Task, ...]
    asked: dict[Task, str]
    parent: int
    device: str | None = None
    cost: Any = None
    dask: str | None = None


Say = Callable[..., None]


def work(given: Assignment, say: Say) -> None:
    """Take one task after the other until all are finished or given up."""
    engine = import_module(given.engine)
    with Store(given.store, create=False) as store:
        while True:
            left = _tasks_left(given, store)
            if not left:
                return
            task = _take(given, engine, store, left, say)
            if task is not None:
                _run(given, engine, store, task, say)
                gc.collect()
            elif _tasks_left(given, store) == left:
                say("wait")
                time.sleep(PAUSE_SECONDS)


def measure_cost(given: Assignment, say: Say) -> None:
    """Measure one stand-alone fit in this process, which has done nothing else."""
    say("cost", cost=dict(import_module(given.engine).measure_cost(given.experiment, given.cost)))


def _tasks_left(given: Assignment, store: Store) -> list[Task]:
    """Tasks neither finished nor given up in this run; those that took a worker down with them come last."""
    finished = store.finished()
    failures = [(Task(failure["data"], failure["split"]), failure["final"]) for failure in store.failures(given.run)]
    given_up = {task for task, final in failures if final}
    crashed = {task for task, _ in failures}
    left = [task for task in given.tasks if given.asked[task] not in finished.get(task, ()) and task not in given_up]
    return sorted(left, key=lambda task: task in crashed)


def _take(given: Assignment, engine: Any, store: Store, left: list[Task], say: Say) -> Task | None:
    """Claim the first task that nobody has and that fits in memory."""
    from ldsu._utils.memory import available_memory

    for task in left:
        memory, available = 0, None
        if hasattr(engine, "task_memory") and given.dask is None:  # on a cluster it is the memory of others
            memory, available = int(engine.task_memory(given.experiment, task)), available_memory()
        try:
            claimed = store.claim(task, memory=memory, available=available, patience=BURIAL_SECONDS)
        except MemoryError as error:
            _fail(given, store, task, str(error), say)
            continue
        if claimed:
            # It may have been finished by its last owner since we looked.
            if task in _tasks_left(given, store):
                return task
            store.release(task)
    return None


def _run(given: Assignment, engine: Any, store: Store, task: Task, say: Say) -> None:
    done = store.done_keys(task)
    say("take", task=task, present=_count_present(given, engine, task, done)[0])
    start = time.perf_counter()
    try:
        progress = lambda text: say("doing", task=task, text=text)  # noqa: E731
        options = {} if given.device is None else {"device": given.device}
        if given.dask is None:
            batches = engine.run_task(given.experiment, task, done.__contains__, progress, **options)
        else:
            batches = run_on_cluster(given.dask, given.engine, given.experiment, task, done, progress, options)
        for rows in batches:
            written = store.add(rows, given.run)
            say("batch", task=task, cells=written, failed=sum(row.error is not None for row in rows))
    except StoreError:
        raise
    except Exception as error:
        traceback.print_exc()
        sentence = str(error) if isinstance(error, MemoryError) and str(error) else f"{type(error).__name__}: {error}"
        _fail(given, store, task, sentence, say, traceback.format_exc())
        store.release(task)
        return
    present, total = _count_present(given, engine, task, store.done_keys(task))
    if present < total:
        _fail(given, store, task, f"It ended with {present} of its {total} cells.", say)
        store.release(task)
        return
    store.finish(task, given.asked[task])
    say("finish", task=task, seconds=time.perf_counter() - start)


def _count_present(given: Assignment, engine: Any, task: Task, done: Set[Cell]) -> tuple[int, int]:
    """How many cells of a task are there, and how many it has."""
    there = [cell in done for cell in engine.wanted_cells(given.experiment, task)]
    return sum(there), len(there)


def _fail(given: Assignment, store: Store, task: Task, error: str, say: Say, details: str = "") -> None:
    store.add_failure(task, given.run, details or error, final=True)
    say("fail", task=task, error=error)


def _live_no_longer_than(parent: int) -> None:
    """End this process as soon as its parent is no more, whatever it is doing."""
    if sys.platform == "linux":
        # A thread would not do alone: some LAPACK calls hold the interpreter's lock for minutes.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # the parent writes no more: this returns when it is gone
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Read an `Assignment` from standard input, do it, and write messages to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    faulthandler.enable()
    # Whatever is printed here must not mix with the messages.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(event: str, **details: Any) -> None:
        if "task" in details:
            details["task"] = [details["task"].data, details["task"].split]
        with lock:
            print(json.dumps({"event": event, **details}), file=messages, flush=True)

    given: Assignment = pickle.load(sys.stdin.buffer)
    _live_no_longer_than(given.parent)
    try:
        (work if given.cost is None else measure_cost)(given, say)
    except Exception as error:
        traceback.print_exc()
        say(
            "broken",
            error=str(error) if isinstance(error, OSError | MemoryError) else f"{type(error).__name__}: {error}",
        )
        return 1
    say("end")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # The threads and caches of numerical libraries have nothing to clean up, and some hang when they try.
    os._exit(code)
