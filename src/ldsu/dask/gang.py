"""Groups of concurrent tasks that exchange messages over the connections between Dask workers.

A Dask task sees only its input. An algorithm of many small steps between large arrays that stay in place, such as
conjugate gradients on a partitioned system, is better served by one long task per part. The members of such a task
group find each other through the scheduler, send arrays from worker to worker, and sum over all members.

Dask recomputes the results of a dead worker one task at a time, and does not know about task groups. A member whose
peers do not answer, because they died or because only this task is recomputed, requests the next run of the whole group
and returns its result from that run. All members request the same keys, so they share the run.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import wait as wait_for_futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ldsu.dask.cluster import Cluster, ClusterError, assign_workers, identity

# Maximum number of runs of a task group.
MAX_RUNS = 8
# Timeout for members that have not started, since their worker may be busy with other tasks; and the interval at which
# a silent member is checked.
START_SECONDS, POLL_SECONDS = 600.0, 0.5


class PeersGone(Exception):
    """A member of the task group does not answer."""


class Cancelled(Exception):
    """The result is no longer needed."""


@dataclass(frozen=True)
class TaskGroup:
    """Definition of a task group.

    Attributes
    ----------
    name : str
        Prefix of the task keys.
    queue : str
        Of the groups with the same queue, one repeated run is active at a time, because each run may use all available
        memory. The caller must ensure the same for first runs.
    function : callable
        ``function(peers, *inputs, *constants)``.
    inputs : tuple of tuples of str
        Keys of the input of each member.
    constants : tuple of tuples
    """

    name: str
    queue: str
    function: Callable[..., Any]
    inputs: tuple[tuple[str, ...], ...]
    constants: tuple[tuple[Any, ...], ...]

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.inputs)

    def key(self, run: int, member: int) -> str:
        """Key of a member's task in a run."""
        return f"{self.name}-{run}-{member}"


class Tag(NamedTuple):
    """Identifies a message: its sender, its topic, and its sequence number."""

    sender: int
    topic: str
    sequence: int


class Exchange:
    """Messages that a worker received for members of task groups that run on it."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.bytes_sent = 0
        self._mailboxes: dict[str, dict[Tag, Any]] = {}
        self._arrived = threading.Condition()
        self._watches: dict[str, ThreadFuture[Any]] = {}
        worker.handlers["ldsu_deliver"] = self.handle_deliver
        worker.handlers["ldsu_is_open"] = self.handle_is_open
        worker.handlers["ldsu_watch"] = self.handle_watch

    def open(self, mailbox: str) -> None:
        """Accept messages for a member."""
        with self._arrived:
            self._mailboxes[mailbox] = {}

    def close(self, mailbox: str) -> None:
        """Drop the remaining messages and refuse new ones."""
        with self._arrived:
            self._mailboxes.pop(mailbox, None)
            watches = list(self._watches.values()) if not self._mailboxes else []
            if watches:
                self._watches.clear()
        for watch in watches:
            watch.cancel()

    def is_open(self, mailbox: str) -> bool:
        """Whether a member runs on this worker."""
        return mailbox in self._mailboxes

    async def handle_is_open(self, mailbox: str) -> bool:
        """`is_open` for another worker."""
        return self.is_open(mailbox)

    async def handle_watch(self, comm: Any) -> None:
        """Do not answer while the other side listens: it detects the death of this worker by the lost connection."""
        while not comm.closed():
            await asyncio.sleep(POLL_SECONDS)

    def watch(self, address: str) -> ThreadFuture[Any]:
        """Future that is done when another worker is lost."""
        with self._arrived:
            if address not in self._watches or self._watches[address].done():
                self._watches[address] = self.start(self._call(address, "ldsu_watch"))
            return self._watches[address]

    def is_open_at(self, address: str, mailbox: str) -> ThreadFuture[Any]:
        """`is_open` of another worker."""
        return self.start(self._call(address, "ldsu_is_open", mailbox=mailbox))

    def post(self, address: str, mailbox: str, tag: Tag, value: Any) -> ThreadFuture[Any]:
        """Send a message to another worker; the result tells whether it was delivered."""
        from distributed.protocol import to_serialize

        self.bytes_sent += value.nbytes
        message = {"mailbox": mailbox, "tag": tag, "value": to_serialize(value)}
        return self.start(self._call(address, "ldsu_deliver", **message))

    def start(self, coroutine: Any) -> ThreadFuture[Any]:
        """Run a coroutine in the worker's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.worker.loop.asyncio_loop)

    async def _call(self, address: str, operation: str, **arguments: Any) -> bool:
        with suppress(Exception):  # any error counts as no answer
            return bool(await getattr(self.worker.rpc(address), operation)(**arguments))
        return False

    async def handle_deliver(self, mailbox: str, tag: Sequence[Any], value: Any) -> bool:
        """`put` for another worker."""
        return self.put(mailbox, Tag(*tag), value)

    def put(self, mailbox: str, tag: Tag, value: Any) -> bool:
        """Store a message; return whether the mailbox is open."""
        with self._arrived:
            messages = self._mailboxes.get(mailbox)
            if messages is not None:
                messages[tag] = value
                self._arrived.notify_all()
        return messages is not None

    def take(self, mailbox: str, tag: Tag, seconds: float) -> tuple[bool, Any]:
        """Whether a message arrived in time, and its value."""
        with self._arrived:
            messages = self._mailboxes[mailbox]
            arrived = self._arrived.wait_for(lambda: tag in messages, seconds)
            return arrived, messages.pop(tag, None)


_creation = threading.Lock()


def exchange_of(worker: Any) -> Exchange:
    """The exchange of a worker, created on first use."""
    with _creation:
        if "ldsu_deliver" not in worker.handlers:
            Exchange(worker)
        exchange: Exchange = worker.handlers["ldsu_deliver"].__self__
        return exchange


class Peers:
    """The members of a task group, as seen by one member.

    Parameters
    ----------
    exchange : Exchange
        Of this worker.
    number : int
        Number of this member.
    addresses, mailboxes : lists of str
        Worker address and mailbox of each member; mailbox names are used once.
    is_wanted : callable
        Whether the result is still needed.
    """

    def __init__(
        self,
        exchange: Exchange,
        number: int,
        addresses: Sequence[str],
        mailboxes: Sequence[str],
        is_wanted: Callable[[], bool],
    ) -> None:
        self.number, self.size = number, len(addresses)
        self._exchange, self._addresses, self._mailboxes, self._is_wanted = exchange, addresses, mailboxes, is_wanted
        self._n_sent: dict[tuple[int, str], int] = defaultdict(int)
        self._n_received: dict[tuple[int, str], int] = defaultdict(int)
        self._pending: list[ThreadFuture[Any]] = []
        self._watches: dict[str, ThreadFuture[Any]] = {}

    def send(self, member: int, topic: str, value: np.ndarray) -> None:
        """Send an array, which must not be modified afterwards, without waiting for its delivery."""
        tag = Tag(self.number, topic, self._n_sent[member, topic])
        self._n_sent[member, topic] += 1
        if self._addresses[member] == self._exchange.worker.address:
            if not self._exchange.put(self._mailboxes[member], tag, value):
                raise PeersGone(f"Member {member} has left.")
            return
        self._pending.append(self._exchange.post(self._addresses[member], self._mailboxes[member], tag, value))

    def receive(self, member: int, topic: str) -> Any:
        """Wait for the next array of a topic from a member.

        Raises
        ------
        PeersGone
            If this member, or another one that a message was sent to, does not answer.
        Cancelled
            If the result is no longer needed: waiting tasks cannot be stopped from outside.
        """
        tag = Tag(member, topic, self._n_received[member, topic])
        self._n_received[member, topic] += 1
        alive = True
        address = self._addresses[member]
        if address != self._exchange.worker.address and address not in self._watches:
            self._watches[address] = self._exchange.watch(address)
        while True:
            arrived, value = self._exchange.take(self._mailboxes[self.number], tag, POLL_SECONDS)
            self._check_delivered()
            if arrived:
                return value
            if not self._is_wanted():
                raise Cancelled
            if not alive:
                raise PeersGone(f"Member {member} has left.")
            alive = self._is_alive(member)

    def total(self, values: np.ndarray) -> np.ndarray:
        """Sum of the arrays of all members, along a tree, so that all members get bitwise the same result.

        Members on the same worker may share the result: neither it nor `values` may be modified.
        """
        children = [child for child in (2 * self.number + 1, 2 * self.number + 2) if child < self.size]
        for child in children:
            values = values + self.receive(child, "sum")
        if self.number:
            parent = (self.number - 1) // 2
            self.send(parent, "sum", values)
            values = self.receive(parent, "sum")
        for child in children:
            self.send(child, "sum", values)
        return values

    def flush(self) -> None:
        """Wait until all messages are delivered."""
        while self._pending:
            wait_for_futures(self._pending, timeout=POLL_SECONDS)
            self._check_delivered()
            if not self._is_wanted():
                raise Cancelled

    def cancel_pending(self) -> None:
        """Cancel the messages that are not delivered yet."""
        for future in self._pending:
            future.cancel()

    def _is_alive(self, member: int) -> bool:
        address, mailbox = self._addresses[member], self._mailboxes[member]
        if address == self._exchange.worker.address:
            return self._exchange.is_open(mailbox)
        watch, answer = self._watches[address], self._exchange.is_open_at(address, mailbox)
        wait_for_futures([watch, answer], return_when=FIRST_COMPLETED)
        return not watch.done() and bool(answer.result())

    def _check_delivered(self) -> None:
        done = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        if not all(future.result() for future in done):
            raise PeersGone("A message was not delivered.")


class MemberTask:
    """The task of a member: its worker, its client, and the metadata of the run on the scheduler."""

    def __init__(self, group: TaskGroup, run: int, member: int) -> None:
        from distributed import get_client, get_worker

        self.group, self.number, self.member = group, run, member
        self.worker = get_worker()
        with _creation:  # workers create their client on the first call, which is not thread-safe
            self.client = get_client()
        self.key, self.run = group.key(run, member), group.key(run, 0)

    def is_wanted(self) -> bool:
        """Whether the result is still needed."""
        task = self.worker.state.tasks.get(self.key)
        return task is not None and task.state != "cancelled"

    def publish(self, name: str, value: Any) -> None:
        """Set metadata for the other members; the scheduler drops metadata under a task's key with the task."""
        self.client.set_metadata([self.run, name], value)

    def published(self) -> dict[str, Any]:
        """Metadata of all members: worker addresses and mailboxes by member, and the error of a failed member."""
        metadata: dict[str, Any] = self.client.get_metadata([self.run], {})
        return metadata

    @contextmanager
    def joined(self) -> Iterator[Peers]:
        """The peers, once all members have started."""
        exchange, peers, mailbox = exchange_of(self.worker), None, uuid4().hex
        if str(self.member) in self.published():
            raise PeersGone("Only this task is recomputed.")
        with self._queued():
            exchange.open(mailbox)
            try:
                peers = Peers(exchange, self.member, *self._addresses_and_mailboxes(mailbox), self.is_wanted)
                yield peers
                peers.flush()
            except (PeersGone, Cancelled):
                raise
            except Exception as error:
                self.publish("failed", repr(error))
                raise
            finally:
                exchange.close(mailbox)
                if peers is not None:
                    peers.cancel_pending()

    @contextmanager
    def _queued(self) -> Iterator[None]:
        """The first member waits until no other group of its queue runs, and the others wait for the first."""
        if self.member or not self.number:
            yield
            return
        from distributed import Semaphore

        # One semaphore per run number, since the lease of a dead worker expires only after half a minute.
        queue = Semaphore(max_leases=1, name=f"{self.group.queue}-{self.number}")
        while not queue.acquire(timeout=POLL_SECONDS):
            if not self.is_wanted():
                raise Cancelled
        try:
            yield
        finally:
            queue.release()

    def _addresses_and_mailboxes(self, mailbox: str) -> tuple[list[str], list[str]]:
        from distributed import Future

        self.publish(str(self.member), [self.worker.address, mailbox])
        last_check = last_start = time.monotonic()
        count = 0
        while True:
            metadata = self.published()
            missing = [number for number in range(self.group.size) if str(number) not in metadata]
            if not missing:
                addresses, mailboxes = zip(*(metadata[str(number)] for number in range(self.group.size)), strict=True)
                return list(addresses), list(mailboxes)
            now = time.monotonic()
            if len(metadata) > count or 0 in missing:  # the first member may wait in the queue
                count, last_start = len(metadata), now
            if now > last_start + START_SECONDS:
                raise PeersGone(f"{len(missing)} members have not started.")
            if not self.is_wanted():
                raise Cancelled
            if now > last_check + POLL_SECONDS:
                last_check = now
                others = [Future(self.group.key(self.number, number), self.client) for number in missing]
                if any(self.client.who_has(others).values()):
                    raise PeersGone("Another member already has its result and will not start.")
            time.sleep(max(0.02, 0.002 * self.group.size))


def _run_member(group: TaskGroup, run: int, member: int, _: None, *inputs: Any) -> Any:
    """The task of one member."""
    from distributed import Reschedule, secede

    secede()  # so that all members start, even with more members than threads
    task = MemberTask(group, run, member)
    try:
        with suppress(PeersGone), task.joined() as peers:
            return group.function(peers, *inputs, *group.constants[member])
        return _result_of_run(task, run + 1)
    except Cancelled:
        raise Reschedule from None  # has no effect on a task that really is cancelled


def _result_of_run(task: MemberTask, run: int) -> Any:
    """The member's result from the next run of the group."""
    from distributed import wait

    group = task.group
    if not task.is_wanted():
        raise Cancelled
    failed = task.published().get("failed")
    if failed is not None:
        raise ClusterError(f"Another task of '{group.name}' failed: {failed}.")
    if run == MAX_RUNS:
        raise ClusterError(
            f"A worker was lost in each of {MAX_RUNS} runs of '{group.name}', most likely for lack of memory. "
            "Give workers more memory or fewer threads."
        )
    futures = start_run(task.client, group, run)  # keep all futures: a single task would wait for the others
    future = futures[task.member]
    while future.status == "pending":
        with suppress(TimeoutError):
            wait([future], timeout=POLL_SECONDS)
        if not task.is_wanted():
            raise Cancelled
        for other in futures:
            if other.status == "error":
                other.result()
    return future.result()


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
    with cluster.translate_errors():
        futures = start_run(cluster.client, group, 0)
    cluster.wait(futures)
    return futures


def start_run(client: Any, group: TaskGroup, run: int) -> list[Any]:
    """Futures of the results of a run, which starts when all inputs are on the workers that need them."""
    from distributed import Future

    workers = assign_workers(client, group.size)

    def submit(function: Callable[..., Any], member: int, key: str, *arguments: Any) -> Any:
        inputs = [Future(key, client) for key in group.inputs[member]]
        options = {} if workers[member] is None else {"workers": [workers[member]], "allow_other_workers": True}
        return client.submit(function, *arguments, *inputs, key=key, pure=False, **options)

    members, name = range(group.size), group.key(run, 0)
    ready = [submit(_return_none, member, f"{group.key(run, member)}-ready") for member in members]
    begin = client.submit(_return_none, *ready, key=f"{name}-begin", pure=False)
    plan = client.submit(identity, group, key=f"{group.name}-plan", pure=False)
    return [submit(_run_member, member, group.key(run, member), plan, run, member, begin) for member in members]


def _return_none(*_: Any) -> None:
    return None
