"""Groups of concurrent tasks that exchange messages through Dask actors.

A Dask task sees only its input. An algorithm of many small steps between large arrays that stay in place, such as
conjugate gradients on a partitioned system, is better served by one long task per part. Each member of such a task
group has a mailbox, a Dask actor on its worker: it puts arrays for the others there, and they fetch them. The scheduler
reports the loss of an actor, and a call of it fails at once when its worker dies.

Dask recomputes the results of a dead worker one task at a time, and does not know about task groups. A member whose
peers do not answer, because they died or because only this task is recomputed, requests the next run of the whole group
and returns its result from that run. All members request the same keys, so they share the run.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from ldsu.dask.cluster import Cluster, ClusterError, assign_workers, identity

# Maximum number of runs of a task group.
MAX_RUNS = 8
# Interval at which a waiting member checks its peers and whether its result is still needed.
POLL_SECONDS = 0.5

# Held to create the client of a worker, and futures: two threads that create the same one could wait forever.
_creation = threading.Lock()

Tag = tuple[int, str, int]  # receiver, topic and sequence number of a message


class PeersGone(Exception):
    """A member of the task group does not answer."""


class Cancelled(Exception):
    """The result is no longer needed."""


class Mailbox:
    """Messages from one member to the others: a Dask actor, which outlives the member until the run ends."""

    in_this_process: ClassVar[WeakValueDictionary[str, Mailbox]] = WeakValueDictionary()

    def __init__(self, key: str) -> None:
        self._is_open = False
        self._messages: dict[Tag, ThreadFuture[Any]] = {}
        self._error: Exception | None = None
        self.in_this_process[key] = self

    def open(self) -> bool:
        """Whether this is the first task to use the mailbox: messages are received only once."""
        was_open, self._is_open = self._is_open, True
        return not was_open

    def put(self, tag: Tag, value: np.ndarray) -> None:
        """Store a message."""
        self._message(tag).set_result(value)

    async def fetch(self, *tag: Any) -> Any:
        """Take a message, as soon as it is there; raises the error of the member if it failed."""
        value = await asyncio.wrap_future(self._message(tag))
        del self._messages[tag]
        return value

    def fail(self, error: Exception) -> None:
        """Raise an error wherever a missing message is awaited."""
        self._error = error
        for tag in list(self._messages):
            self._message(tag)

    def _message(self, tag: Tag) -> ThreadFuture[Any]:
        future = self._messages.setdefault(tag, ThreadFuture())
        if self._error is not None:
            with suppress(InvalidStateError):  # the message is there
                future.set_exception(self._error)
        return future


class Peers:
    """The members of a task group, as seen by the member `number`, with its mailbox.

    ``fetch(member, tag)`` is the future of a message; it fails with an `OSError` if the member is lost.
    ``check(member)`` raises `PeersGone` if the member is lost and `Cancelled` if the result is no longer needed:
    waiting tasks cannot be stopped from outside.
    """

    def __init__(
        self,
        number: int,
        size: int,
        mailbox: Mailbox,
        fetch: Callable[[int, Tag], ThreadFuture[Any]],
        check: Callable[[int], None],
    ) -> None:
        self.number, self.size, self._mailbox, self._fetch, self._check = number, size, mailbox, fetch, check
        self._n_sent: dict[tuple[int, str], int] = defaultdict(int)
        self._n_received: dict[tuple[int, str], int] = defaultdict(int)

    def send(self, member: int, topic: str, value: np.ndarray) -> None:
        """Send an array, which must not be modified afterwards, without waiting for its delivery."""
        self._mailbox.put((member, topic, self._n_sent[member, topic]), value)
        self._n_sent[member, topic] += 1

    def request(self, member: int, topic: str) -> Callable[[], Any]:
        """Request the next array of a topic from a member; the result is a function that waits for it.

        The function raises `PeersGone` if this member is lost, `Cancelled` if the result is no longer needed, and the
        error of this member if it failed.
        """
        future = self._fetch(member, (self.number, topic, self._n_received[member, topic]))
        self._n_received[member, topic] += 1

        def wait() -> Any:
            while True:
                try:
                    return future.result(POLL_SECONDS)
                except TimeoutError:
                    self._check(member)
                except OSError as error:
                    raise PeersGone(f"Member {member} is lost.") from error

        return wait

    def receive(self, member: int, topic: str) -> Any:
        """Wait for the next array of a topic from a member, see `request`."""
        return self.request(member, topic)()

    def total(self, values: np.ndarray) -> np.ndarray:
        """Sum of the arrays of all members, along a tree, so that all members get bitwise the same result.

        Members on the same worker may share the result: neither it nor `values` may be modified.
        """
        children = [child for child in (2 * self.number + 1, 2 * self.number + 2) if child < self.size]
        for received in [self.request(child, "sum") for child in children]:
            values = values + received()
        if self.number:
            parent = (self.number - 1) // 2
            self.send(parent, "sum", values)
            values = self.receive(parent, "sum")
        for child in children:
            self.send(child, "sum", values)
        return values


@dataclass(frozen=True)
class TaskGroup:
    """Definition of a task group.

    Of the groups with the same queue, one repeated run is active at a time, because each run may use all available
    memory. The caller must ensure the same for first runs.
    """

    name: str  # prefix of the task keys
    queue: str
    function: Callable[..., Any]  # ``function(peers, *inputs, *constants)``
    inputs: tuple[tuple[str, ...], ...]  # keys, per member
    constants: tuple[tuple[Any, ...], ...]

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.inputs)

    def key(self, run: int, member: int) -> str:
        """Key of a member's task in a run."""
        return f"{self.name}-{run}-{member}"

    def mailbox_key(self, run: int, member: int) -> str:
        """Key of a member's mailbox in a run."""
        return f"{self.key(run, member)}-mailbox"

    def start(self, client: Any, run: int, wait: Callable[[list[Any]], Any]) -> tuple[list[Any], list[Any]]:
        """Futures of the results of a run, which starts when all inputs are in place, and of its mailboxes."""
        from distributed import Future

        workers, members = assign_workers(client, self.size), range(self.size)

        def submit(member: int, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            if workers[member] is not None:
                options.update(workers=[workers[member]], allow_other_workers=True)
            return client.submit(function, *arguments, pure=False, **options)

        mailbox_keys = [self.mailbox_key(run, member) for member in members]
        with _creation:
            mailboxes = [submit(m, Mailbox, key, key=key, actor=True) for m, key in enumerate(mailbox_keys)]
        wait(mailboxes)
        keys = [self.key(run, member) for member in members]
        with _creation:
            inputs = [[Future(key, client) for key in keys] for keys in self.inputs]
            ready = [submit(m, _return_none, *inputs[m], key=f"{keys[m]}-ready") for m in members]
            begin = client.submit(_return_none, *ready, key=f"{keys[0]}-begin", pure=False)
            plan = client.submit(identity, self, key=f"{self.name}-plan", pure=False)
            tasks = [submit(m, _run_member, plan, run, m, begin, *inputs[m], key=keys[m]) for m in members]
        return tasks, mailboxes


def run_group(
    cluster: Cluster,
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    constants: Sequence[tuple[Any, ...]],
) -> list[Any]:
    """Run a task group with one member per sequence of input futures; return the futures of the results."""
    keys = tuple(tuple(future.key for future in futures) for futures in inputs)
    group = TaskGroup(cluster.key(name), f"ldsu-{cluster.token}", function, keys, tuple(constants))

    def wait(mailboxes: list[Any]) -> None:
        with suppress(RuntimeError):  # members handle the loss of a mailbox
            cluster.wait(mailboxes)

    with cluster.translate_errors():
        futures, mailboxes = group.start(cluster.client, 0, wait)
    cluster.wait(futures)
    del mailboxes
    return futures


class MemberTask:
    """The task of a member in a run: its worker and its client."""

    bytes_received: ClassVar[int] = 0  # messages from other processes

    def __init__(self, group: TaskGroup, run: int, member: int) -> None:
        from distributed import get_client, get_worker

        self.group, self.run, self.member = group, run, member
        self.worker = get_worker()
        with _creation:
            self.client = get_client()
        self._mailboxes: dict[int, Any] = {}

    def check_wanted(self) -> None:
        """Raise `Cancelled` if the result is no longer needed."""
        task = self.worker.state.tasks.get(self.group.key(self.run, self.member))
        if task is None or task.state == "cancelled":
            raise Cancelled

    @contextmanager
    def joined(self) -> Iterator[Peers]:
        """The peers, once all members have started."""
        mailbox = Mailbox.in_this_process.get(self.group.mailbox_key(self.run, self.member))
        if mailbox is None:
            self._close_mailbox()
        if mailbox is None or not mailbox.open():
            raise PeersGone("Only this task is recomputed.")
        try:
            with self._queued():
                peers = Peers(self.member, self.group.size, mailbox, self._fetch, self._check)
                peers.total(np.zeros(1))
                yield peers
        except Exception as error:
            mailbox.fail(PeersGone(f"Member {self.member} has left.") if isinstance(error, Cancelled) else error)
            raise

    @contextmanager
    def _queued(self) -> Iterator[None]:
        """The first member waits until no other group of its queue runs, and the others wait for the first."""
        if self.member or not self.run:
            yield
            return
        from distributed import Semaphore

        # One semaphore per run number, since the lease of a dead worker expires only after half a minute.
        queue = Semaphore(max_leases=1, name=f"{self.group.queue}-{self.run}")
        while not queue.acquire(timeout=POLL_SECONDS):
            self.check_wanted()
        try:
            yield
        finally:
            queue.release()

    def _fetch(self, member: int, tag: Tag) -> ThreadFuture[Any]:
        if member not in self._mailboxes:
            self._mailboxes[member] = self._find_mailbox(member)
        mailbox = self._mailboxes[member][0]
        message = mailbox.fetch(*tag) if isinstance(mailbox, Mailbox) else self._fetch_from(mailbox, member, tag)
        return asyncio.run_coroutine_threadsafe(message, self.worker.loop.asyncio_loop)

    async def _fetch_from(self, address: str, member: int, tag: Tag) -> Any:
        """What a call of an `Actor` does, at a third of its cost."""
        key = self.group.mailbox_key(self.run, member)
        try:
            answer = await self.worker.rpc(address).actor_execute(actor=key, function="fetch", args=tag)
        except KeyError as error:
            raise OSError(f"{key} is no longer there.") from error
        if answer["status"] != "OK":
            raise answer["exception"]
        MemberTask.bytes_received += answer["result"].nbytes
        return answer["result"]

    def _find_mailbox(self, member: int) -> tuple[Mailbox | str, Any]:
        """The mailbox of a member, or the address of its worker, and the mailbox's future."""
        from distributed import Future

        key = self.group.mailbox_key(self.run, member)
        with _creation:
            future = Future(key, self.client)
        return Mailbox.in_this_process.get(key) or self._address(future, member), future

    def _close_mailbox(self) -> None:
        """Tell the others, if they wait for messages from a mailbox on another worker, that there will be none."""
        from distributed.protocol import to_serialize

        with suppress(PeersGone, OSError, KeyError):
            address, _future = self._find_mailbox(self.member)
            error = to_serialize(PeersGone(f"Member {self.member} runs apart from its mailbox."))
            key = self.group.mailbox_key(self.run, self.member)
            closing = self.worker.rpc(address).actor_execute(actor=key, function="fail", args=[error])
            asyncio.run_coroutine_threadsafe(closing, self.worker.loop.asyncio_loop).result()

    def _check(self, member: int) -> None:
        self.check_wanted()
        self._address(self._mailboxes[member][1], member)

    def _address(self, mailbox: Any, member: int) -> str:
        for address in self.client.who_has([mailbox])[mailbox.key]:
            return str(address)
        raise PeersGone(f"Member {member} is lost.")

    def result_of_next_run(self) -> Any:
        """The member's result from the next run of the group."""
        from distributed import wait

        self.check_wanted()
        if self.run + 1 == MAX_RUNS:
            raise ClusterError(
                f"A worker was lost in each of {MAX_RUNS} runs of '{self.group.name}', most likely for lack of memory. "
                "Give workers more memory or fewer threads."
            )
        # Keep all futures: a single task would wait for the others.
        futures, _mailboxes = self.group.start(self.client, self.run + 1, wait)
        future = futures[self.member]
        while future.status == "pending":
            with suppress(TimeoutError):
                wait([future], timeout=POLL_SECONDS)
            self.check_wanted()
            for other in futures:
                if other.status == "error":
                    other.result()
        return future.result()


def _run_member(group: TaskGroup, run: int, member: int, _: None, *inputs: Any) -> Any:
    """The task of one member."""
    from distributed import Reschedule, secede

    secede()  # so that all members start, even with more members than threads
    task = MemberTask(group, run, member)
    try:
        with suppress(PeersGone), task.joined() as peers:
            return group.function(peers, *inputs, *group.constants[member])
        return task.result_of_next_run()
    except Cancelled:
        raise Reschedule from None  # has no effect on a task that really is cancelled


def _return_none(*_: Any) -> None:
    return None
