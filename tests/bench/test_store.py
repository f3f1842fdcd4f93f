"""The store: written once, safe with several processes, and refused where it is not ours."""

import csv
import os
import sqlite3
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from ldsu.bench import store as store_module
from ldsu.bench.status import status_of_store, status_of_stores
from ldsu.bench.store import APPLICATION_ID, COLUMNS, Count, Owner, Store, StoreError, without_folders
from ldsu.bench.tasks import Cell, Row, Task, canonical

TASK = Task("usps", 0)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs" / "x.sqlite") as opened:
        yield opened


def a_row(k=1, split=0, data="usps", method="LDSU", **changes):
    cell = Cell(data, split, 3, method, canonical({"k": k, "theta": 0.1}), 1.0, -1)
    figures = {"map": 0.5, "accuracy": 0.25, "n_features": 7, "seconds": {"shared": 1.5}, "peak_mib": 3.0, "seed": 9}
    return Row(cell, **(figures | changes))


def dead_process(store):
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    owner = store.owner(process.pid)
    process.wait()
    return owner


def files_of(store_path):
    return {path.name: path.read_bytes() for path in store_path.parent.iterdir()}


def put_claim(store, owner, heartbeat=None, task=TASK, memory=0):
    store._db.execute(
        "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, '')",
        (task.data, task.split, owner.pid, owner.started, owner.host, heartbeat or time.time(), memory),
    )


def test_a_row_comes_back_as_it_was_written(store):
    run = store.begin_run("ldsu bench run x", 2, 1)
    store.add([a_row(), a_row(k=2, map=None, accuracy=None, error="no")], run)
    first, second = store.rows()
    assert tuple(first) == COLUMNS
    assert first | {"written_at": 0} == {
        "data": "usps", "split": 0, "labels": 3, "method": "LDSU", "params": '{"k":1,"theta":0.1}', "C": 1.0,
        "fold": -1, "map": 0.5, "accuracy": 0.25, "n_features": 7, "seconds_shared": 1.5, "seconds_features": 0.0,
        "seconds_classifier": 0.0, "seconds_score": 0.0, "peak_mib": 3.0, "seed": 9, "error": None, "run": run,
        "written_at": 0,
    }  # fmt: skip
    assert (second["map"], second["error"]) == (None, "no")
    assert abs(first["written_at"] - time.time()) < 10


def test_a_row_is_written_once(store):
    assert store.add([a_row(map=0.5)], 1) == 1
    assert store.add([a_row(map=0.9), a_row(k=2)], 2) == 1
    assert [(row["map"], row["run"]) for row in store.rows()] == [(0.5, 1), (0.5, 2)]


def test_a_batch_is_written_whole_or_not_at_all(store):
    with pytest.raises(TypeError):
        store.add([a_row(), a_row(k=2, n_features=None)], 1)
    with pytest.raises(StoreError, match="could not be written"):
        store.add([a_row(), a_row(k=2, method=object())], 1)
    assert list(store.rows()) == []


def test_numpy_numbers_become_plain_ones(store):
    store.add([a_row(map=np.float32(0.5), n_features=np.int64(4), seed=np.uint32(5))], 1)
    row = next(store.rows())
    assert (row["map"], row["n_features"], row["seed"]) == (0.5, 4, 5)
    assert canonical({"b": np.int64(2), "a": np.float64(0.1)}) == '{"a":0.1,"b":2}'


def test_done_keys_are_the_cells_of_that_task_alone(store):
    rows = [a_row(k=1), a_row(k=2), a_row(k=1, split=1)]
    store.add(rows, 1)
    assert store.done_keys(TASK) == {rows[0].cell, rows[1].cell}


def test_rows_are_filtered_by_value_list_and_none(store):
    store.add([a_row(k=k, split=k, error="no" if k == 2 else None) for k in range(4)], 1)
    assert [row["split"] for row in store.rows(split=[1, 2])] == [1, 2]
    assert [row["split"] for row in store.rows(error=None, data="usps")] == [0, 1, 3]
    with pytest.raises(ValueError, match="Unknown column 'colour'"):
        list(store.rows(colour="red"))


def test_another_store_is_merged_row_by_row_with_the_runs_that_made_them(store, tmp_path):
    store.bind("x", "", {"seed": 0})
    mine = store.begin_run("here", 2, 1)
    store.add([a_row(map=0.5)], mine)
    with Store(tmp_path / "other.sqlite") as other:
        other.bind("x", "", {"seed": 0})
        other.begin_run("idle", 1, 1)
        theirs = other.begin_run("elsewhere", 16, 1)
        other.add([a_row(map=0.9), a_row(k=2), a_row(data="umist")], theirs)
        assert store.merge(other, ["usps"]) == 1  # one is here already, one of another data set
        assert store.merge(other, ["usps"]) == 0
    rows = {row["params"]: row for row in store.rows()}
    assert len(rows) == 2
    assert rows['{"k":1,"theta":0.1}']["map"] == 0.5
    commands = {run["id"]: run["command"] for run in store.runs()}
    assert commands[rows['{"k":2,"theta":0.1}']["run"]] == "elsewhere"
    assert "idle" not in commands.values()


def test_a_merge_repairs_errors_and_leaves_costs_behind(store, tmp_path):
    cost = {"seconds_fit": 1.0, "seconds_transform": 2.0, "peak_mib": 3.0}
    store.add([a_row(k=1, error="no", map=None), a_row(k=2), a_row(k=3, error="no", map=None)], 0)
    store._db.execute("UPDATE cells SET run = NULL")
    with Store(tmp_path / "other.sqlite") as other:
        first = other.begin_run("repaired", 1, 1)
        other.add([a_row(k=1, map=0.9)], first)
        second = other.begin_run("useless", 1, 1)
        other.add([a_row(k=2, map=0.9), a_row(k=3, error="neither", map=None)], second)
        other.add_cost("usps", "LDSU", 3, cost, second)
        assert store.merge(other, ["usps"]) == 1
    assert [(row["map"], row["error"]) for row in store.rows()] == [(0.9, None), (0.5, None), (None, "no")]
    assert [run["command"] for run in store.runs()] == ["repaired"]
    assert store.costs() == []


def test_a_store_of_another_protocol_is_not_merged(store, tmp_path):
    store.bind("x", "", {"seed": 0})
    with Store(tmp_path / "other.sqlite") as other:
        other.bind("x", "", {"seed": 1})
        other.add([a_row()], other.begin_run("elsewhere", 1, 1))
        with pytest.raises(StoreError, match="seed = 1, but"):
            store.merge(other, ["usps"])
    assert not list(store.rows())


def test_csv_holds_every_row_and_no_half_file_is_left(store, tmp_path, monkeypatch):
    store.add([a_row(k=k) for k in range(5)], 1)
    assert store.export_csv(tmp_path / "out" / "rows.csv") == 5
    with (tmp_path / "out" / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5
    assert rows[3]["params"] == '{"k":3,"theta":0.1}'
    assert rows[3]["map"] == "0.5"

    def break_off(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", break_off)
    with pytest.raises(OSError, match="disk full"):
        store.export_csv(tmp_path / "out" / "more.csv")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rows.csv"]


def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path):
    text = tmp_path / "notes.sqlite"
    text.write_text("not a database, but long enough to look like one to SQLite" * 20)
    with pytest.raises(StoreError, match="is not a results store"):
        Store(text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    before = other.read_bytes()
    with pytest.raises(StoreError, match="another kind of SQLite database"):
        Store(other)
    assert other.read_bytes() == before


def test_a_store_of_another_schema_or_experiment_or_protocol_is_refused(tmp_path):
    with Store(tmp_path / "x.sqlite") as store:
        store.bind("table1", "text", {"seed": 0, "data usps": ["usps", None]})
        store.bind("table1", "new text", {"seed": 0, "data umist": ["umist", None]})
        assert store.meta("toml") == "new text"
        with pytest.raises(StoreError, match="holds experiment 'table1', not 'figure2'"):
            store.bind("figure2", "", {})
        with pytest.raises(StoreError, match="created with seed = 0, but the experiment now has 1"):
            store.bind("table1", "", {"seed": 1})
        with pytest.raises(StoreError, match="data usps"):
            store.bind("table1", "", {"data usps": ["usps", "log"]})
        store._db.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    with pytest.raises(StoreError, match=r"has schema 99, but this version of ldsu reads schema 1"):
        Store(tmp_path / "x.sqlite")


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
def test_a_store_that_is_not_made_is_not_written_either(tmp_path, options):
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    with pytest.raises(StoreError, match=r"empty.sqlite is not a results store"):
        Store(empty, **options)
    assert files_of(empty) == {"empty.sqlite": b""}
    old = tmp_path / "old" / "x.sqlite"
    with Store(old) as store:
        store.add([a_row()], 1)
        store._db.execute("PRAGMA journal_mode = DELETE")
    before = files_of(old)
    with Store(old, **options) as store:
        assert (status_of_store(store)[0]["data"], store.surplus(), len(list(store.rows()))) == ("usps", {}, 1)
    assert files_of(old) == before


@pytest.mark.parametrize("is_open", [True, False])
def test_a_store_that_cannot_be_written_can_be_read(tmp_path, monkeypatch, is_open):
    path = tmp_path / "x.sqlite"
    writer = Store(path)
    writer.add([a_row()], 1)
    if not is_open:
        writer.close()
    before = files_of(path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # for root every file is writable
    with Store(path, read_only=True) as store:
        assert len(list(store.rows())) == 1
        store.add_picture("usps", "LDSU", "[1]")
        assert store.picture("usps", "LDSU") is None
        with pytest.raises(StoreError, match=r"x.sqlite could not be written: attempt to write a readonly database"):
            store.add([a_row(k=2)], 1)
    if not is_open:
        assert files_of(path) == before
    writer.close()


def test_a_store_of_an_older_version_goes_on(tmp_path):
    path = tmp_path / "x.sqlite"
    with Store(path) as store:
        store.plan({TASK: 4})
        store._db.execute("DELETE FROM meta WHERE key = 'salt'")
        store._db.execute("UPDATE tasks SET finished = 'abc'")  # as versions did that had no table of surplus cells
    with Store(path) as store:
        assert (store.surplus(), store.planned()) == ({}, {TASK: 4})
        assert store.claim(TASK)
        store.plan({TASK: 4}, {TASK: Count(2, 1)})
        assert store.surplus() == {TASK: Count(2, 1)}


def test_a_missing_store_is_named_where_it_must_be_there(tmp_path):
    with pytest.raises(StoreError, match=r"Store .* does not exist"):
        Store(tmp_path / "none.sqlite", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_does_not_pass_the_check(tmp_path):
    path = tmp_path / "x.sqlite"
    with Store(path) as store:
        store.add([a_row(k=k) for k in range(2000)], 1)
        assert store.check() == []
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4096] = bytes([255]) * 4096
    path.write_bytes(content)
    with Store(path) as store:
        assert store.check() != []
        for read in (lambda: list(store.rows()), store.counts, lambda: store.export_csv(tmp_path / "rows.csv")):
            with pytest.raises(StoreError, match=r"x.sqlite could not be read: .* The file is damaged"):
                read()
        with pytest.raises(StoreError, match=r"x.sqlite could not be written: .* The file is damaged"):
            store.delete_errors([TASK], ["LDSU"])
    assert [file.name for file in tmp_path.iterdir()] == ["x.sqlite"]


def test_a_store_is_made_once_by_several_processes(tmp_path):
    code = (
        f"from ldsu.bench.store import Store; s = Store({str(tmp_path / 'x.sqlite')!r}); print(s.begin_run('c', 1, 1))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(6)]
    numbers = sorted(int(process.communicate()[0]) for process in processes)
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_a_claim_of_a_living_process_holds_and_is_given_back(store, tmp_path):
    code = (
        "import sys; from ldsu.bench.store import *; s = Store(sys.argv[1]);"
        "print(s.claim(Task('usps', 0)), flush=True);"
        "sys.stdin.readline(); s.release(Task('usps', 0)); print('released', flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, store.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "True\n"
        assert not store.claim(TASK)
        assert [claim.owner.pid for claim in store.live_claims()] == [other.pid]
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == "released\n"
        assert store.claim(TASK)
        other.stdin.close()


@pytest.mark.parametrize("kind", ["dead", "number used again", "other host, silent"])
def test_a_stale_claim_is_taken_over(store, kind):
    me = store.owner(os.getpid())
    owner, heartbeat = {
        "dead": (dead_process(store), None),
        "number used again": (Owner(os.getppid(), me.started - 1000, store.host), None),
        "other host, silent": (Owner(1, 0.0, "elsewhere"), time.time() - store_module.STALE_SECONDS - 1),
    }[kind]
    put_claim(store, owner, heartbeat)
    assert store.live_claims() == []
    assert store.claim(TASK)
    assert [claim.owner for claim in store.claims()] == [me]


def test_a_claim_of_another_host_holds_while_its_heart_beats(store):
    put_claim(store, Owner(1, 0.0, "elsewhere"))
    assert not store.claim(TASK)
    store.clear_stale()
    assert len(store.claims()) == 1


def test_a_heartbeat_says_what_a_worker_does(store):
    store.claim(TASK)
    store._db.execute("UPDATE claims SET heartbeat = 0")
    store.heartbeat({TASK: "KSDA"})
    (claim,) = store.claims()
    assert claim.doing == "KSDA"
    assert time.time() - claim.heartbeat < 10


def test_memory_claimed_by_others_and_not_yet_used_is_not_free(store):
    gib = 2**30
    parent = store.owner(os.getppid())
    put_claim(store, parent, task=Task("usps", 1), memory=100 * gib)
    assert not store.claim(TASK, memory=50 * gib, available=120 * gib)
    assert store.claim(TASK, memory=10 * gib, available=120 * gib)
    # This process runs several tasks.
    assert not store.claim(Task("usps", 2), memory=15 * gib, available=120 * gib)


def test_memory_that_a_process_or_its_workers_use_is_not_counted_twice(store):
    mib = 2**20
    code = "import sys; x = bytearray(200 * 2**20); print('.', flush=True); sys.stdin.readline()"
    assert store.claim(Task("usps", 1), memory=psutil.Process().memory_info().rss + 200 * mib)
    assert not store.claim(TASK, memory=mib, available=100 * mib)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        assert store.claim(TASK, memory=mib, available=100 * mib)
        worker.stdin.close()


def test_all_claims_of_a_process_are_released_together(store):
    put_claim(store, store.owner(os.getppid()))
    for split in (1, 2):
        assert store.claim(Task("usps", split))
    store.release()
    assert [claim.task for claim in store.claims()] == [TASK]


def test_a_task_that_fits_nowhere_is_an_error_with_both_figures(store):
    with pytest.raises(MemoryError, match=r"usps, split 0 needs about 3.0 GiB, but 1.0 GiB is available"):
        store.claim(TASK, memory=3 * 2**30, available=2**30)
    assert store.claims() == []


def test_a_plan_replaces_the_last_one(store):
    store.plan({TASK: 4, Task("usps", 1): 4})
    store.plan({TASK: 8, Task("usps", 2): 8})
    assert store.planned() == {TASK: 8, Task("usps", 2): 8}


def test_errors_of_some_methods_are_deleted(store):
    store.add([a_row(), a_row(k=2, error="no"), a_row(method="KPCA", error="no"), a_row(split=1)], 1)
    assert store.delete_errors([Task("usps", 0), Task("usps", 1)], ["LDSU"]) == []
    assert [row["method"] for row in store.rows()] == ["KPCA", "LDSU", "LDSU"]


def test_errors_of_a_task_that_another_process_works_on_are_kept(store):
    store.add([a_row(error="no"), a_row(split=1, error="no")], 1)
    put_claim(store, store.owner(os.getppid()))
    assert store.delete_errors([TASK, Task("usps", 1)], ["LDSU"]) == [TASK]
    assert [row["split"] for row in store.rows()] == [0]


def test_the_sign_of_a_machine_differs_from_store_to_store(store, tmp_path):
    with Store(tmp_path / "other.sqlite") as other, Store(store.path) as again:
        assert other.host != store.host == again.host


def test_messages_name_files_but_no_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f'File "/opt/x/y.py", line 3\n  cannot read {tmp_path}/data/a.npz or {os.path.expanduser("~")}'
    assert without_folders(text) == 'File "y.py", line 3\n  cannot read data/a.npz or '
    assert without_folders("https://site/tmp/x and 1/2") == "https://site/tmp/x and 1/2"


def test_runs_name_versions_and_no_host(store):
    run = store.begin_run("ldsu bench run x", 2, 1)
    store.end_run(run)
    (row,) = store.runs()
    assert set(row["versions"]) == {"python", "numpy", "scipy", "sklearn", "ldsu", "platform"}
    assert row["versions"]["numpy"] == np.__version__
    assert row["finished_at"] >= row["started_at"]
    assert os.uname().nodename not in str(row)


def test_costs_and_pictures_are_kept(store):
    cost = {"seconds_fit": 1.0, "seconds_transform": 2.0, "peak_mib": 3.0}
    store.add_cost("usps", "LDSU", 3, cost, 1)
    store.add_cost("usps", "LDSU", 3, cost | {"seconds_fit": 9.0}, 2)
    assert store.costs() == [{"data": "usps", "method": "LDSU", "labels": 3, **cost, "run": 1}]
    assert store.picture("usps", "LDSU") is None
    store.add_picture("usps", "LDSU", "[1]")
    store.add_picture("usps", "LDSU", "[2]")
    assert store.picture("usps", "LDSU") == "[2]"


def test_status_counts_cells_failures_and_running_tasks(store):
    store.plan({Task("usps", 0): 3, Task("usps", 1): 3, Task("umist", 0): 5})
    store.add([a_row(k=k, error="no" if k == 1 else None) for k in range(4)], 1)
    store.claim(Task("usps", 1))
    usps, umist = status_of_store(store)
    assert (usps["done"], usps["total"], usps["failed"], usps["running"]) == (3, 6, 1, 1)
    store.plan({Task("usps", 0): 3}, {Task("usps", 0): Count(2, 1)})
    (only,) = status_of_store(store)
    assert (only["done"], only["total"], only["failed"]) == (2, 3, 0)
    store.plan({Task("usps", 0): 3, Task("usps", 1): 3, Task("umist", 0): 5}, {Task("usps", 0): Count(0, 0)})
    assert umist == {"data": "umist", "done": 0, "total": 5, "failed": 0, "running": 0, "last_written": None}
    assert abs(usps["last_written"] - time.time()) < 10
    (whole,) = status_of_stores([store.path])
    assert (whole["store"], whole["done"], whole["total"]) == ("x", 3, 11)


def test_the_file_is_marked_and_uses_a_write_ahead_log(store):
    with sqlite3.connect(store.path) as database:
        assert database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        assert database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps the name of an open file")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_deleted_or_replaced_is_noticed_at_the_next_commit(store, replaced):
    content = store.path.read_bytes()
    store.path.unlink()
    if replaced:
        store.path.write_bytes(content)
    with pytest.raises(StoreError, match=r"x.sqlite was deleted or replaced .* Run the same command to start again\."):
        store.begin_run("ldsu bench run", 1, 1)


def test_a_full_disk_is_one_sentence_and_costs_the_batch_alone(store):
    store.add([a_row(k=k) for k in range(100)], 1)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreError, match=r"could not be written: database or disk is full"):
        store.add([a_row(k=k) for k in range(100, 1000)], 1)
    assert len(list(store.rows())) == 100
    assert store.check() == []


@pytest.mark.slow
def test_six_hundred_thousand_rows_are_written_and_found_in_seconds(store):
    start = time.perf_counter()
    for split in range(60):
        for block in range(100):
            store.add([a_row(k=100 * block + k, split=split) for k in range(100)], 1)
    written = time.perf_counter()
    assert len(store.done_keys(Task("usps", 30))) == 10_000
    found = time.perf_counter()
    assert store.counts()[Task("usps", 30)].done == 10_000
    counted = time.perf_counter()
    print(f"{written - start:.1f} s written, {found - written:.3f} s found, {counted - found:.3f} s counted")
    assert written - start < 60
    assert found - written < 1
    assert counted - found < 5
