"""Task groups: messages arrive, sums are over all members, and a lost worker changes nothing."""

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

from ldsu.dask import task_group  # noqa: E402
from ldsu.dask.cluster import Cluster, ClusterError  # noqa: E402
from ldsu.dask.task_group import Mailbox, Peers, PeersGone, run_group  # noqa: E402


@pytest.fixture(scope="module")
def processes():
    """Three workers of their own processes, of one thread each."""
    options = {"threads_per_worker": 1, "dashboard_address": None, "memory_limit": "1GiB"}
    with distributed.LocalCluster(n_workers=3, **options) as workers, distributed.Client(workers):
        yield workers


@pytest.fixture
def cluster(processes):
    made = Cluster()
    made.client.wait_for_workers(3, timeout=60)
    return made


def numbers(cluster, count):
    return [[cluster.submit("number", float, number)] for number in range(count)]


def around_and_sum(peers, own, factor):
    """The value of the previous member, and the sum over all; some messages are large."""
    following = (peers.number + 1) % peers.size
    peers.send(following, "around", np.full(300_000, own))
    before = peers.receive((peers.number - 1) % peers.size, "around")
    assert before.shape == (300_000,)
    return float(before[-1]), (factor * peers.total(np.array([own, 1.0]))).tolist()


@pytest.mark.parametrize("members", [1, 3, 7])
def test_messages_arrive_and_sums_are_of_all_even_with_more_members_than_threads(members, cluster):
    futures = run_group(cluster, "ring", around_and_sum, numbers(cluster, members), [(2.0,)] * members)
    total = [members * (members - 1.0), 2.0 * members]
    assert cluster.collect(futures) == [(float((a - 1) % members), total) for a in range(members)]


def many_sums(peers, own, rounds, folder):
    """Sums repeatedly; records where it runs, and how often."""
    with open(os.path.join(folder, f"{peers.number}-{os.getpid()}"), "a") as file:
        file.write("started\n")
    value = np.array([own])
    for _ in range(rounds):
        time.sleep(0.01)
        value = peers.total(value) / peers.size
    return float(value[0])


def test_a_worker_killed_while_members_exchange_messages_changes_nothing(cluster, processes, tmp_path):
    inputs, constants = numbers(cluster, 3), [(150, str(tmp_path))] * 3
    killed = []

    def kill(seconds=30):
        end = time.monotonic() + seconds
        while len(list(tmp_path.iterdir())) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.3)
        killed.append(next(iter(processes.workers.values())).pid)
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    futures = run_group(cluster, "sums", many_sums, inputs, constants)
    thread.join()
    assert cluster.collect(futures) == [1.0, 1.0, 1.0]
    assert len(list(tmp_path.iterdir())) > 3  # members started again


def test_a_member_that_runs_apart_from_its_mailbox_does_not_keep_the_others_waiting(cluster, monkeypatch, tmp_path):
    workers, submit = list(cluster.workers()), cluster.client.submit

    def apart(function, *arguments, key, **options):
        for ending, worker in (("-0-1-mailbox", workers[0]), ("-0-1", workers[1])):
            if key.endswith(ending):
                options.update(workers=[worker], allow_other_workers=False)
        return submit(function, *arguments, key=key, **options)

    monkeypatch.setattr(cluster.client, "submit", apart)
    futures = run_group(cluster, "sums", many_sums, numbers(cluster, 3), [(3, str(tmp_path))] * 3)
    assert cluster.collect(futures) == [1.0, 1.0, 1.0]


def test_a_result_lost_afterwards_is_computed_again(cluster, processes, tmp_path):
    futures = run_group(cluster, "sums", many_sums, numbers(cluster, 3), [(3, str(tmp_path))] * 3)
    assert len(list(tmp_path.iterdir())) == 3
    doubled = [cluster.submit("double", float.__mul__, one, 2.0) for one in futures]
    cluster.wait(doubled)
    del futures
    victim = cluster.client.who_has(doubled)[doubled[1].key][0]
    pid = next(worker.pid for worker in processes.workers.values() if worker.worker_address == victim)
    os.kill(pid, signal.SIGKILL)
    while victim in cluster.workers():
        time.sleep(0.05)
    assert cluster.collect(doubled) == [2.0, 2.0, 2.0]
    assert len(list(tmp_path.iterdir())) > 3  # all members started again


def lost(peers):
    raise PeersGone("always")


def test_members_that_are_lost_in_every_run_are_one_sentence(cluster):
    with pytest.raises(ClusterError, match=r"A worker was lost in each of 8 runs of 'ldsu-lost-.*', .*more memory"):
        run_group(cluster, "lost", lost, [[], []], [(), ()])


def failing(peers):
    if peers.number:
        raise ValueError("this is wrong")
    return peers.total(np.zeros(1))


def test_the_error_of_a_member_is_raised(cluster):
    with pytest.raises(ValueError, match="this is wrong"):
        run_group(cluster, "failing", failing, [[], []], [(), ()])


def test_messages_are_received_once_and_those_of_a_failed_member_raise_its_error():
    mailbox, tag = Mailbox("mailbox"), (1, "sum", 0)
    assert mailbox.open()
    assert not mailbox.open()  # a task that is recomputed alone
    mailbox.put(tag, 5)
    assert asyncio.run(mailbox.fetch(*tag)) == 5
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(mailbox.fetch(*tag), 0.01))
    mailbox.put((1, "sum", 1), 6)
    mailbox.fail(PeersGone("Member 0 has left."))
    assert asyncio.run(mailbox.fetch(1, "sum", 1)) == 6
    with pytest.raises(PeersGone, match="Member 0 has left"):
        asyncio.run(mailbox.fetch(1, "sum", 2))


@pytest.mark.parametrize("reason", [PeersGone, task_group.Cancelled])
def test_a_member_stops_when_its_peer_has_left_or_its_result_is_not_needed(reason, monkeypatch):
    monkeypatch.setattr(task_group, "POLL_SECONDS", 0.01)

    def check(member):
        raise reason(f"Member {member} is lost.")

    peers = Peers(0, 2, Mailbox("own"), lambda member, tag: Future(), check)
    with pytest.raises(reason, match="Member 1 is lost"):
        peers.receive(1, "sum")


def test_a_connection_that_breaks_is_a_lost_member():
    broken = Future()
    broken.set_exception(ConnectionResetError("in read"))
    with pytest.raises(PeersGone, match="Member 1 is lost"):
        Peers(0, 2, Mailbox("own"), lambda member, tag: broken, lambda member: None).receive(1, "sum")
