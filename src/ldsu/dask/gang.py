"""Tasks that run at the same time and speak with each other, over the connections that Dask's workers have anyway.

A task of Dask sees its input and nothing else. An algorithm of many small steps between large arrays that stay where
they are, as conjugate gradients on a system in parts, is better served by one long task for each part. The members of
such a gang find each other through the scheduler, send arrays from worker to worker, and add up over all of them.

Dask computes again what a dead worker had, one task at a time, and knows nothing of gangs. So a member whose peers do
not answer, because they died or because it is run again by itself, asks for a next run of the whole gang and takes its
own result from it. Whoever asks asks for the same keys, so that they share the run.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED
from concurrent.futures import Future as Sending
from concurrent.futures import wait as wait_for_sending
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ldsu.dask.cluster import Cluster, ClusterError, given, places

# How often a gang is run, at most.
RUNS = 8
# How long members wait for one that has not begun, since its worker may be busy with something else; and how often they
# see whether one that is silent is still there.
START_SECONDS, LOOK_SECONDS = 600.0, 0.5


class PeersGone(Exception):
    """A member of a gang does not answer."""


class Unwanted(Exception):
    """Nobody wants the result any more."""


@dataclass(frozen=True)
class Gang:
    """What the members of a gang do.

    Attributes
    ----------
    name : str
        Keys of its tasks begin with it.
    function : callable
        ``function(peers, *inputs, *constants)``.
    inputs : tuple of tuples of str
        Of each member the keys of what it works on.
    constants : tuple of tuples
    queue : str
        Of the gangs with the same queue that have to run again one runs at a time: each is given all the memory there
        is. That first runs do so is up to whoever starts them.
    """

    name: str
    queue: str
    function: Callable[..., Any]
    inputs: tuple[tuple[str, ...], ...]
    constants: tuple[tuple[Any, ...], ...]

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.inputs)

    def key(self, run: int, member: int) -> str:
        """Key of a member's task in a run."""
        return f"{self.name}-{run}-{member}"


class Stamp(NamedTuple):
    """Which letter it is: that of a member, about something, in its turn."""

    sender: int
    about: str
    turn: int


class Exchange:
    """What arrived at a worker for members of gangs that run on it."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.bytes_sent = 0
        self._letters: dict[str, dict[Stamp, Any]] = {}
        self._arrived = threading.Condition()
        self._watches: dict[str, Sending[Any]] = {}
        worker.handlers["ldsu_deliver"] = self.deliver
        worker.handlers["ldsu_listens"] = self.tell_whether_listens
        worker.handlers["ldsu_watch"] = self.stay

    def begin(self, box: str) -> None:
        """From now on letters for a member are taken in."""
        with self._arrived:
            self._letters[box] = {}

    def end(self, box: str) -> None:
        """Letters that are left are forgotten, and new ones refused."""
        with self._arrived:
            self._letters.pop(box, None)
            watches = list(self._watches.values()) if not self._letters else []
            if watches:
                self._watches.clear()
        for one in watches:
            one.cancel()

    def listens(self, box: str) -> bool:
        """Whether a member is here, and at work."""
        return box in self._letters

    async def tell_whether_listens(self, box: str) -> bool:
        """The same, for another worker."""
        return self.listens(box)

    async def stay(self, comm: Any) -> None:
        """Do not answer while the other side listens: it learns of this worker's death by the lost connection."""
        while not comm.closed():
            await asyncio.sleep(LOOK_SECONDS)

    def watch(self, address: str) -> Sending[Any]:
        """What is done when another worker is lost."""
        with self._arrived:
            if address not in self._watches or self._watches[address].done():
                self._watches[address] = self.start(self._ask(address, "ldsu_watch"))
            return self._watches[address]

    def ask_whether_listens(self, address: str, box: str) -> Sending[Any]:
        """Whether a member on another worker is at work."""
        return self.start(self._ask(address, "ldsu_listens", box=box))

    def post(self, address: str, box: str, stamp: Stamp, value: Any) -> Sending[Any]:
        """Send a letter to another worker: whether it arrived."""
        from distributed.protocol import to_serialize

        self.bytes_sent += value.nbytes
        letter = {"box": box, "stamp": stamp, "value": to_serialize(value)}
        return self.start(self._ask(address, "ldsu_deliver", **letter))

    def start(self, work: Any) -> Sending[Any]:
        """Have the worker's loop do something."""
        return asyncio.run_coroutine_threadsafe(work, self.worker.loop.asyncio_loop)

    async def _ask(self, address: str, operation: str, **arguments: Any) -> bool:
        with suppress(Exception):  # whatever it was, there was no answer
            return bool(await getattr(self.worker.rpc(address), operation)(**arguments))
        return False

    async def deliver(self, box: str, stamp: Sequence[Any], value: Any) -> bool:
        """Take a letter in; whether it is for anyone."""
        return self.put(box, Stamp(*stamp), value)

    def put(self, box: str, stamp: Stamp, value: Any) -> bool:
        """A letter of a member on the same worker, or one that arrived."""
        with self._arrived:
            letters = self._letters.get(box)
            if letters is not None:
                letters[stamp] = value
                self._arrived.notify_all()
        return letters is not None

    def take(self, box: str, stamp: Stamp, seconds: float) -> tuple[bool, Any]:
        """Whether a letter has come in time, and it."""
        with self._arrived:
            letters = self._letters[box]
            here = self._arrived.wait_for(lambda: stamp in letters, seconds)
            return here, letters.pop(stamp, None)


_making = threading.Lock()


def exchange_of(worker: Any) -> Exchange:
    """The exchange of a worker, made where there is none yet."""
    with _making:
        if "ldsu_deliver" not in worker.handlers:
            Exchange(worker)
        exchange: Exchange = worker.handlers["ldsu_deliver"].__self__
        return exchange


class Peers:
    """The members of a gang as one of them sees them.

    Parameters
    ----------
    exchange : Exchange
        Of this worker.
    number : int
        This member's.
    addresses, boxes : lists of str
        Of all members: their workers', and where their letters go, a name that is used once.
    wanted : callable
        Whether anyone still wants the result.
    """

    def __init__(
        self,
        exchange: Exchange,
        number: int,
        addresses: Sequence[str],
        boxes: Sequence[str],
        wanted: Callable[[], bool],
    ) -> None:
        self.number, self.size = number, len(addresses)
        self._exchange, self._addresses, self._boxes, self._wanted = exchange, addresses, boxes, wanted
        self._sent: dict[tuple[int, str], int] = defaultdict(int)
        self._taken: dict[tuple[int, str], int] = defaultdict(int)
        self._sending: list[Sending[Any]] = []
        self._watches: dict[str, Sending[Any]] = {}

    def send(self, member: int, about: str, value: np.ndarray) -> None:
        """Send an array, which may not be changed afterwards; this does not wait until it is there."""
        stamp = Stamp(self.number, about, self._sent[member, about])
        self._sent[member, about] += 1
        if self._addresses[member] == self._exchange.worker.address:
            if not self._exchange.put(self._boxes[member], stamp, value):
                raise PeersGone(f"Member {member} has left.")
            return
        self._sending.append(self._exchange.post(self._addresses[member], self._boxes[member], stamp, value))

    def receive(self, member: int, about: str) -> Any:
        """The next array about something from a member.

        Raises
        ------
        PeersGone
            If that or another that was sent to does not answer.
        Unwanted
            If nobody wants the result any more: tasks that wait cannot be ended from outside.
        """
        stamp = Stamp(member, about, self._taken[member, about])
        self._taken[member, about] += 1
        present = True
        address = self._addresses[member]
        if address != self._exchange.worker.address and address not in self._watches:
            self._watches[address] = self._exchange.watch(address)
        while True:
            here, value = self._exchange.take(self._boxes[self.number], stamp, LOOK_SECONDS)
            self._require_delivered()
            if here:
                return value
            if not self._wanted():
                raise Unwanted
            if not present:
                raise PeersGone(f"Member {member} has left.")
            present = self._is_there(member)

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum of all members' arrays of this shape: along a tree, so that all have the same to the last bit.

        It may be the very array that others have: nobody may change it, nor what was given.
        """
        below = [child for child in (2 * self.number + 1, 2 * self.number + 2) if child < self.size]
        for child in below:
            values = values + self.receive(child, "sum")
        if self.number:
            above = (self.number - 1) // 2
            self.send(above, "sum", values)
            values = self.receive(above, "sum")
        for child in below:
            self.send(child, "sum", values)
        return values

    def settle(self) -> None:
        """Wait until all that was sent is there."""
        while self._sending:
            wait_for_sending(self._sending, timeout=LOOK_SECONDS)
            self._require_delivered()
            if not self._wanted():
                raise Unwanted

    def leave(self) -> None:
        """Send nothing any more."""
        for one in self._sending:
            one.cancel()

    def _is_there(self, member: int) -> bool:
        address, box = self._addresses[member], self._boxes[member]
        if address == self._exchange.worker.address:
            return self._exchange.listens(box)
        watch, answer = self._watches[address], self._exchange.ask_whether_listens(address, box)
        wait_for_sending([watch, answer], return_when=FIRST_COMPLETED)
        return not watch.done() and bool(answer.result())

    def _require_delivered(self) -> None:
        done = [one for one in self._sending if one.done()]
        self._sending = [one for one in self._sending if not one.done()]
        if not all(one.result() for one in done):
            raise PeersGone("What was sent did not arrive.")


class Membership:
    """A member's task: its worker, its client, and what the scheduler knows of the run."""

    def __init__(self, gang: Gang, run: int, member: int) -> None:
        from distributed import get_client, get_worker

        self.gang, self.number, self.member = gang, run, member
        self.worker = get_worker()
        with _making:  # workers make their client when they are first asked, and are not made to be asked by many
            self.client = get_client()
        self.key, self.run = gang.key(run, member), gang.key(run, 0)

    def wanted(self) -> bool:
        """Whether anyone still wants the result."""
        task = self.worker.state.tasks.get(self.key)
        return task is not None and task.state != "cancelled"

    def publish(self, what: str, value: Any) -> None:
        """Tell the other members; the scheduler forgets what is kept by the name of a task with the task."""
        self.client.set_metadata([self.run, what], value)

    def published(self) -> dict[str, Any]:
        """What members have told: addresses by number, and whether one of them failed."""
        told: dict[str, Any] = self.client.get_metadata([self.run], {})
        return told

    @contextmanager
    def joined(self) -> Iterator[Peers]:
        """The peers, once all have begun."""
        exchange, peers, box = exchange_of(self.worker), None, uuid4().hex
        if str(self.member) in self.published():
            raise PeersGone("It is run again by itself.")
        with self._turn():
            exchange.begin(box)
            try:
                peers = Peers(exchange, self.member, *self._addresses_and_boxes(box), self.wanted)
                yield peers
                peers.settle()
            except (PeersGone, Unwanted):
                raise
            except Exception as error:
                self.publish("failed", repr(error))
                raise
            finally:
                exchange.end(box)
                if peers is not None:
                    peers.leave()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The first member waits until no other gang of its queue runs, and the others wait for the first."""
        if self.member or not self.number:
            yield
            return
        from distributed import Semaphore

        # By the number of the run, since the turn of a worker that died ends only after half a minute.
        queue = Semaphore(max_leases=1, name=f"{self.gang.queue}-{self.number}")
        while not queue.acquire(timeout=LOOK_SECONDS):
            if not self.wanted():
                raise Unwanted
        try:
            yield
        finally:
            queue.release()

    def _addresses_and_boxes(self, box: str) -> tuple[list[str], list[str]]:
        from distributed import Future

        self.publish(str(self.member), [self.worker.address, box])
        looked = last = time.monotonic()
        count = 0
        while True:
            told = self.published()
            missing = [number for number in range(self.gang.size) if str(number) not in told]
            if not missing:
                addresses, boxes = zip(*(told[str(number)] for number in range(self.gang.size)), strict=True)
                return list(addresses), list(boxes)
            now = time.monotonic()
            if len(told) > count or 0 in missing:  # the first may have to wait for its turn
                count, last = len(told), now
            if now > last + START_SECONDS:
                raise PeersGone(f"{len(missing)} members have not begun.")
            if not self.wanted():
                raise Unwanted
            if now > looked + LOOK_SECONDS:
                looked = now
                others = [Future(self.gang.key(self.number, number), self.client) for number in missing]
                if any(self.client.who_has(others).values()):
                    raise PeersGone("Another member has its result, and will not begin.")
            time.sleep(max(0.02, 0.002 * self.gang.size))


def _member(gang: Gang, run: int, member: int, _: None, *inputs: Any) -> Any:
    """The task of one member."""
    from distributed import Reschedule, secede

    secede()  # that all members begin, even where there are more of them than threads
    task = Membership(gang, run, member)
    try:
        with suppress(PeersGone), task.joined() as peers:
            return gang.function(peers, *inputs, *gang.constants[member])
        return _again(task, run + 1)
    except Unwanted:
        raise Reschedule from None  # which is nothing if it really is unwanted


def _again(task: Membership, run: int) -> Any:
    """The member's result, from the next run of the gang."""
    from distributed import wait

    gang = task.gang
    if not task.wanted():
        raise Unwanted
    failed = task.published().get("failed")
    if failed is not None:
        raise ClusterError(f"Another task of '{gang.name}' failed: {failed}.")
    if run == RUNS:
        raise ClusterError(
            f"In each of {RUNS} runs of '{gang.name}' a worker was lost, most likely of too little memory. Give "
            "workers more memory or fewer threads."
        )
    futures = start(task.client, gang, run)  # all are held on to: one alone would wait for the others
    own = futures[task.member]
    while own.status == "pending":
        with suppress(TimeoutError):
            wait([own], timeout=LOOK_SECONDS)
        if not task.wanted():
            raise Unwanted
        for one in futures:
            if one.status == "error":
                one.result()
    return own.result()


def together(
    cluster: Cluster,
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    constants: Sequence[tuple[Any, ...]],
) -> list[Any]:
    """Futures of the results of a gang, one member for each sequence of futures, which are its input."""
    keys = tuple(tuple(future.key for future in some) for some in inputs)
    gang = Gang(cluster.key(name), f"ldsu-{cluster.token}", function, keys, tuple(constants))
    with cluster.translated():
        futures = start(cluster.client, gang, 0)
    cluster.wait(futures)
    return futures


def start(client: Any, gang: Gang, run: int) -> list[Any]:
    """Futures of the results of a run, which begins when all that it works on is where it is worked on."""
    from distributed import Future

    where = places(client, gang.size)

    def submit(function: Callable[..., Any], member: int, key: str, *arguments: Any) -> Any:
        inputs = [Future(key, client) for key in gang.inputs[member]]
        place = {} if where[member] is None else {"workers": [where[member]], "allow_other_workers": True}
        return client.submit(function, *arguments, *inputs, key=key, pure=False, **place)

    every, name = range(gang.size), gang.key(run, 0)
    ready = [submit(_nothing, member, f"{gang.key(run, member)}-ready") for member in every]
    begin = client.submit(_nothing, *ready, key=f"{name}-begin", pure=False)
    plan = client.submit(given, gang, key=f"{gang.name}-plan", pure=False)
    return [submit(_member, member, gang.key(run, member), plan, run, member, begin) for member in every]


def _nothing(*_: Any) -> None:
    return None
