"""Where a task is computed: a process of this machine, started by loky, or a Dask cluster. Rows come back as they are
computed.

A worker never opens the store. A local one has an executor of its own: when a process dies, loky breaks the whole
executor and does not tell which call killed it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import psutil
from joblib.externals.loky import BrokenProcessPool, ProcessPoolExecutor

from ldsu.bench.spec import Experiment
from ldsu.bench.tasks import Cell, Task

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
# How long to wait for a message before checking the state of the worker.
POLL_SECONDS = 0.2
CLUSTER_POLL_SECONDS = 0.5
# How long loky may take to notice that a process has exited.
GRACE_SECONDS = 1.0
STDERR_BYTES = 4000
PR_SET_PDEATHSIG = 1


@dataclass(eq=False)
class WorkerDied(Exception):
    """The process of a worker exited: how, its last output, and whether it had started to compute."""

    how: str
    stderr: str
    in_task: bool

    def __str__(self) -> str:
        return f"the worker {self.how}. {self.last_line}".strip()

    @property
    def last_line(self) -> str:
        """The last line of its output: the error after a traceback."""
        return (self.stderr.splitlines() or [""])[-1]


@dataclass(eq=False)
class TaskFailed(Exception):
    """A task raised an exception, given as text, since it may not be picklable."""

    message: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> TaskFailed:
        """The failure that an exception is."""
        is_told = isinstance(error, MemoryError) and str(error)
        message = str(error) if is_told else f"{type(error).__name__}: {error}"
        return cls(message, "".join(traceback.format_exception(error)))

    def __str__(self) -> str:
        return self.message


class LocalWorker:
    """A process that computes one task at a time, with some threads of its libraries, and exits with this process."""

    def __init__(self, threads: int) -> None:
        self.reader, self.writer = Pipe(duplex=False)
        # Unnamed: it is deleted when this process ends.
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `stop`
        log = Connection(os.dup(self.log.fileno()), readable=False)  # a file descriptor that loky can pass on
        self.executor = ProcessPoolExecutor(
            1,
            initializer=_set_up,
            initargs=(self.writer, log, os.getpid()),
            env={name: str(threads) for name in THREAD_VARIABLES},
        )

    def compute(self, function: Callable[..., None], *arguments: Any) -> Iterator[Any]:
        """Call one of the functions below in the process; yields what it sends.

        The iterator raises `TaskFailed` or `WorkerDied` at its end. Only the main thread may call this method: the
        process exits with the thread that started it.
        """
        with _signals_blocked():
            future = self.executor.submit(_call, function, *arguments)
        future.add_done_callback(self._wake_reader)
        return self._messages(future)

    def _wake_reader(self, future: Future[Any]) -> None:
        with suppress(OSError):  # it was stopped
            if future.exception() is None:
                self.writer.send(None)
            else:  # its last message may be incomplete
                self.writer.close()

    def _messages(self, future: Future[Any]) -> Iterator[Any]:
        pid = 0
        with suppress(EOFError):
            while not future.done() or self.reader.poll():
                if self.reader.poll(POLL_SECONDS):
                    message = self.reader.recv()
                    if isinstance(message, int):  # the first one
                        pid = message
                    elif message is not None:
                        yield message
                elif pid and _has_exited(pid):
                    break
        try:
            failure = future.result(GRACE_SECONDS)
        except (BrokenProcessPool, TimeoutError) as error:
            how = "exited and left a process behind" if isinstance(error, TimeoutError) else _exit_reason(str(error))
            self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - STDERR_BYTES))
            raise WorkerDied(how, self.log.read().decode(errors="replace").strip(), bool(pid)) from None
        if failure:
            raise failure

    def stop(self) -> None:
        """Kill the process."""
        self.executor.shutdown(kill_workers=True)
        for file in (self.writer, self.log):
            file.close()


def _exit_reason(error: str) -> str:
    """How a process exited, from loky's message: ``The exit codes of the workers are {SIGKILL(-9)}``.

    >>> _exit_reason("The exit codes of the workers are {SIGSEGV(-11)}"), _exit_reason("... {EXIT(7)}")
    ('was terminated by SIGSEGV', 'exited with code 7')
    """
    found = re.search(r"\{(\w+)\((-?\d+)\)", error)
    name, code = found.groups() if found else ("", "")
    if name == "SIGKILL":
        return "was killed (SIGKILL), probably because memory ran out; try fewer --jobs"
    if name.startswith("SIG"):
        return f"was terminated by {name}"
    return f"exited with code {code}" if code else f"exited: {error}"


def _has_exited(pid: int) -> bool:
    """Whether a process has exited, which loky does not notice while a child of it lives."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block Ctrl-C, and with it in processes started meanwhile: their parent handles it and stops them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # loky starts it, and then it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ClusterWorker:
    """One task at a time on a Dask cluster. Dask restarts a task whose worker dies; duplicate rows are written once."""

    def __init__(self, client: Any) -> None:
        from ldsu.dask.cluster import Cluster

        self.cluster = Cluster(client)

    def compute(
        self, function: Callable[..., None], engine: str, experiment: Experiment, task: Task, *arguments: Any
    ) -> Iterator[Any]:
        """Call `run_task` on the cluster; yields what it sends."""
        from distributed import Queue

        self.cluster.set_stage(str(task))
        with self.cluster.translate_errors():
            messages = Queue(client=self.cluster.client)
            arguments = (messages.name, function, engine, experiment, task, *arguments)
            future = self.cluster.submit("cells", _call_on_cluster, *arguments)
            yield f"{task} on the cluster"
            try:
                while not future.done() or messages.qsize():
                    try:
                        yield messages.get(timeout=CLUSTER_POLL_SECONDS)
                    except TimeoutError:
                        continue
                future.result()
            finally:
                messages.close()

    def stop(self) -> None:
        """Nothing to do: tasks end with the client."""


def _call_on_cluster(queue: str, function: Callable[..., None], *arguments: Any) -> None:
    # By name: a scheduler in the client's process would deadlock when it unpickles a queue.
    from distributed import Queue

    function(Queue(queue).put, *arguments)


# In the process of a worker


def run_task(
    send: Callable[[Any], None],
    engine: str,
    experiment: Experiment,
    task: Task,
    done: set[Cell],
    options: dict[str, Any],
) -> None:
    """Compute the cells of a task that are not done; sends texts, which tell the current step, and lists of rows."""
    send(str(task))
    for rows in import_module(engine).run_task(experiment, task, done.__contains__, send, **options):
        send(rows)
    gc.collect()


def measure_cost(send: Callable[[Any], None], engine: str, experiment: Experiment, item: Any) -> None:
    """Measure one stand-alone fit; sends a dict."""
    send(dict(import_module(engine).measure_cost(experiment, item)))


_send: Callable[[Any], None]


def _set_up(messages: Connection, log: Connection, parent: int) -> None:
    """Send printed output to a log, and exit as soon as the parent process ends."""
    global _send
    _send = messages.send
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    if sys.platform == "linux":
        # A thread alone is not enough: some LAPACK calls hold the GIL for minutes.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    else:
        threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(parent).wait()
    os._exit(1)


def _call(function: Callable[..., None], *arguments: Any) -> TaskFailed | None:
    """Call a function; its exception is returned."""
    _send(os.getpid())
    try:
        function(_send, *arguments)
    except Exception as error:
        return TaskFailed.of(error)
    return None
