"""Runs that survive being killed, share a store, and say the truth about themselves."""

import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import fake_engine
from ldsu.bench import runner
from ldsu.bench.display import Display, end_message, start_message
from ldsu.bench.progress import Progress, TaskProgress, time_left
from ldsu.bench.status import status_of_store
from ldsu.bench.store import COLUMNS, Store, StoreError
from ldsu.bench.tasks import Task

TESTS = Path(__file__).parents[1]
PYTHONPATH = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
# Two runs of the same cells differ in these alone.
MEASURED = {"written_at", "run", "peak_mib", *(name for name in COLUMNS if name.startswith("seconds_"))}
SCRIPT = """
import signal, sys, fake_engine
from ldsu.bench import display, runner
runner.HEARTBEAT_SECONDS = display.Json.interval = 0.2
# Where tests run in the background of a shell it is ignored, and children inherit that.
for number in (signal.SIGINT, signal.SIGTERM):  # as the command `ldsu` does
    signal.signal(number, signal.default_int_handler)
runner.cores = lambda: 2
options = eval(sys.argv[2])
experiment = fake_engine.experiment(**options.pop("experiment", {}))
sys.exit(runner.run(experiment, sys.argv[1], engine="fake_engine", **options).exit_code)
"""


@pytest.fixture(autouse=True)
def engine_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    # Counting the real ones takes longer than all else here.
    monkeypatch.setattr(runner, "cores", lambda: 2)


def run(path, experiment=None, **options):
    settings = {"engine": "fake_engine", "jobs": 2, "quiet": True} | options
    return runner.run(experiment or fake_engine.experiment(), path, **settings)


def start(path, pause=0.0, gate=None, **options):
    """A run in a process of its own. With a gate its tasks stop after their first batch until that file is there."""
    settings = {"jobs": 2, "quiet": True} | options
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, path, repr(settings)],
        env=os.environ | {"FAKE_PAUSE": str(pause), "FAKE_GATE": str(gate or "")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers_of(process):
    children = psutil.Process(process.pid).children()
    return [child for child in children if not is_dead(child) and "loky.backend.popen" in " ".join(child.cmdline())]


def is_dead(process):
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def n_rows(path):
    try:
        with Store(path, read_only=True) as store:
            return sum(count.done for count in store.counts().values())
    except StoreError:  # it is being made
        return 0


def comparable(path):
    with Store(path) as store:
        assert store.check() == []
        return [{name: value for name, value in row.items() if name not in MEASURED} for row in store.rows()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "x.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PYTHONPATH)
        patch.setenv("FAKE_COSTS", "1")
        summary = run(path)
    assert summary.exit_code == 0
    return path


def test_an_undisturbed_run_has_every_cell_and_no_claim(undisturbed):
    rows = comparable(undisturbed)
    assert len(rows) == 2 * 3 * 60
    assert len({row["map"] for row in rows}) > 50
    with Store(undisturbed) as store:
        assert store.claims() == []
        assert store.failures() == []
        (only,) = store.runs()
        assert (only["jobs"], only["finished_at"] > only["started_at"]) == (2, True)


def test_a_second_run_finds_nothing_to_do(undisturbed, capsys):
    summary = run(undisturbed, json=True)
    assert (summary.computed, summary.done, summary.exit_code) == (0, 360, 0)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["start", "end"]


def test_killed_again_and_again_it_ends_with_the_rows_of_an_undisturbed_run(undisturbed, tmp_path):
    path = tmp_path / "x.sqlite"
    chance = random.Random(0)
    for victim in ["worker", "parent", "all", "parent"]:
        before = n_rows(path)
        process = start(path, pause=0.05)
        wait_until(lambda before=before: n_rows(path) > before)
        time.sleep(chance.uniform(0, 0.08))  # somewhere in the middle of the work
        workers = workers_of(process)
        assert len(workers) == 2
        if victim == "worker":
            workers[0].kill()
            wait_until(lambda workers=workers: is_dead(workers[0]))
            at_kill = n_rows(path)
            wait_until(lambda at_kill=at_kill: n_rows(path) > at_kill)  # the run goes on
            workers = workers_of(process)
        if victim == "all":
            for worker in workers:
                worker.kill()
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        wait_until(lambda workers=workers: all(map(is_dead, workers)))
        assert before < n_rows(path) < 360
    process = start(path)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert comparable(path) == comparable(undisturbed)


def test_a_killed_worker_is_replaced_and_the_run_ends_whole(undisturbed, tmp_path):
    path, gate = tmp_path / "x.sqlite", tmp_path / "gate"
    process = start(path, gate=gate, quiet=False)
    wait_until(lambda: n_rows(path) >= 6)
    workers_of(process)[0].kill()
    gate.touch()
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "was killed (SIGKILL)" in printed
    assert "The task is retried." in printed
    assert comparable(path) == comparable(undisturbed)


def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    path = tmp_path / "x.sqlite"
    process = start(path, pause=60.0)
    wait_until(lambda: len(workers_of(process)) == 2)
    workers = workers_of(process)
    process.kill()
    process.communicate()
    assert len(workers) == 2
    wait_until(lambda: all(map(is_dead, workers)), 10)


def test_two_runs_on_one_store_share_the_work(undisturbed, tmp_path):
    path, gate = tmp_path / "x.sqlite", tmp_path / "gate"
    processes = [start(path, gate=gate, jobs=1, quiet=False) for _ in range(2)]
    wait_until(lambda: n_rows(path) == 6)  # each has its first batch of a task
    gate.touch()
    for process in processes:
        _, printed = process.communicate(timeout=60)
        assert process.returncode == 0, printed
    assert comparable(path) == comparable(undisturbed)
    with Store(path) as store:
        by_task = {(row["data"], row["split"], row["run"]) for row in store.rows()}
        assert len(by_task) == 6, "a task was worked on by both"
        assert {run for _, _, run in by_task} == {1, 2}


def test_a_run_that_finds_everything_claimed_waits_and_takes_over_what_is_left(undisturbed, tmp_path):
    path = tmp_path / "x.sqlite"
    small = {"data": ("a",), "repetitions": 2}
    first = start(path, gate=tmp_path / "never", experiment=small)
    wait_until(lambda: n_rows(path) == 6)
    second = start(path, json=True, quiet=False, experiment=small)
    printed = ""
    while "this run waits, and takes over if the other stops" not in printed or '"elsewhere": 2' not in printed:
        line = second.stdout.readline()
        assert line, "it did not wait"
        printed += line
    assert '"cells_done": 6' in printed
    first.kill()
    first.communicate()
    second.communicate(timeout=60)
    assert second.returncode == 0
    assert comparable(path) == [row for row in comparable(undisturbed) if row["data"] == "a" and row["split"] < 2]


def test_a_run_of_one_method_and_one_of_all_leave_each_other_nothing_to_do(tmp_path, capsys):
    path = tmp_path / "x.sqlite"
    whole = fake_engine.experiment(data=("a",), repetitions=1, methods=("X", "Y"))
    part = replace(whole, methods=whole.methods[:1])
    run(path, whole)
    for experiment, only, cells in ((whole, (), 120), (part, (), 60), (whole, ["Y"], 60)):
        assert run(path, experiment, only=only, quiet=False).exit_code == 0
        assert f"all {cells} cells are in" in capsys.readouterr().err


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_at_once_with_code_130_and_says_how_to_continue(sent, tmp_path):
    path = tmp_path / "x.sqlite"
    process = start(path, gate=tmp_path / "never", quiet=False)
    wait_until(lambda: n_rows(path) == 6)
    workers = workers_of(process)
    assert len(workers) == 2
    process.send_signal(sent)
    _, printed = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Interrupted with" in printed
    assert "Run the same command to continue." in printed
    assert "Traceback" not in printed
    assert all(map(is_dead, workers))
    assert len(comparable(path)) == 6
    with Store(path) as store:
        assert store.claims() == []


def test_ctrl_c_in_a_terminal_reaches_starting_workers_without_a_traceback(tmp_path):
    process = start(tmp_path / "x.sqlite", gate=tmp_path / "never", quiet=False)
    wait_until(lambda: len(workers_of(process)) == 2)
    os.killpg(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Interrupted with 0 of 360 cells" in printed
    assert "Traceback" not in printed


def test_a_task_that_raises_is_given_up_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.sqlite"
    monkeypatch.setenv("FAKE_TROUBLE", "raise a")
    summary = run(path)
    assert summary.exit_code == 1
    assert (summary.done, summary.total) == (180, 360)
    assert "Error: a, split 0: ArithmeticError: three is not four" in capsys.readouterr().err
    with Store(path) as store:
        failures = store.failures()
        assert {(failure["data"], failure["split"]) for failure in failures} == {("a", 0), ("a", 1), ("a", 2)}
        assert all("Traceback" in failure["error"] and "in run_task" in failure["error"] for failure in failures)
        assert store.costs() == []
    monkeypatch.delenv("FAKE_TROUBLE")
    assert run(path).exit_code == 0


def test_a_task_that_takes_its_worker_down_is_tried_three_times(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.sqlite"
    monkeypatch.setenv("FAKE_TROUBLE", "die a")
    summary = run(path, fake_engine.experiment(repetitions=1))
    assert summary.exit_code == 1
    assert (summary.done, summary.total) == (60, 120)
    assert "was terminated by SIGSEGV. Abandoned after 3 attempts." in capsys.readouterr().err
    with Store(path) as store:
        assert [(failure["data"], failure["final"]) for failure in store.failures()] == [("a", 0)] * 3 + [("a", 1)]
        assert "Segmentation fault" in store.failures()[0]["error"]


def test_a_task_is_not_tried_again_before_the_death_of_its_worker_is_counted(tmp_path, monkeypatch):
    path, add_failure = tmp_path / "x.sqlite", Store.add_failure

    def record_late(*arguments, **options):
        time.sleep(1.5)  # long enough for another worker to look for work
        return add_failure(*arguments, **options)

    monkeypatch.setattr(Store, "add_failure", record_late)
    monkeypatch.setenv("FAKE_TROUBLE", "die a")
    run(path, fake_engine.experiment(repetitions=1))
    with Store(path) as store:
        assert [failure["final"] for failure in store.failures()] == [0, 0, 0, 1]


def test_a_task_whose_worker_has_died_is_left_to_its_run_while_that_lives(undisturbed, tmp_path):
    path, gate = tmp_path / "x.sqlite", tmp_path / "gate"
    small = {"data": ("a",), "repetitions": 1}
    first = start(path, gate=gate, jobs=1, experiment=small)
    wait_until(lambda: n_rows(path) == 3)
    first.send_signal(signal.SIGSTOP)  # it cannot notice
    workers_of(first)[0].kill()
    second = start(path, json=True, quiet=False, experiment=small)
    while "this run waits, and takes over if the other stops" not in (line := second.stdout.readline()):
        assert line, "it did not wait"
    with Store(path, read_only=True) as store:
        assert [claim.owner.pid for claim in store.live_claims()] == [first.pid]
    gate.touch()
    first.send_signal(signal.SIGCONT)
    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert comparable(path) == [row for row in comparable(undisturbed) if row["data"] == "a" and row["split"] == 0]
    with Store(path) as store:
        assert [(failure["run"], failure["final"]) for failure in store.failures()] == [(1, 0)]


def test_workers_that_cannot_start_end_the_run_with_the_reason(tmp_path, monkeypatch, capsys):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'loky.backend.popen' in ' '.join(sys.orig_argv): os._exit(7)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{PYTHONPATH}")
    summary = run(tmp_path / "x.sqlite")
    assert summary.exit_code == 1
    assert "A worker exited with code 7" in capsys.readouterr().err


def test_cells_with_an_error_count_as_failed_until_they_are_tried_again(tmp_path, monkeypatch):
    path = tmp_path / "x.sqlite"
    small = fake_engine.experiment(data=("a",), repetitions=1)
    monkeypatch.setenv("FAKE_TROUBLE", "error 4")
    first = run(path, small)
    assert (first.done, first.failed, first.exit_code) == (60, 6, 1)
    monkeypatch.delenv("FAKE_TROUBLE")
    assert (run(path, small).computed, run(path, small).exit_code) == (0, 1)
    again = run(path, small, retry=True)
    assert (again.computed, again.failed, again.exit_code) == (6, 0, 0)


def test_a_task_that_ends_with_too_few_cells_is_not_called_finished(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_TROUBLE", "silent a")
    assert run(tmp_path / "x.sqlite", fake_engine.experiment(data=("a",), repetitions=1)).exit_code == 1
    assert "The task ended with 0 of 60 cells." in capsys.readouterr().err


def shifted(experiment):
    """The same number of cells; the latter half of the old ones and as many new ones."""
    (method,) = experiment.methods
    return replace(experiment, methods=(replace(method, grids=({"k": tuple(range(5, 15))},)),))


def test_cells_of_an_older_grid_do_not_count(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.sqlite"
    old = fake_engine.experiment(data=("a",), repetitions=1)
    monkeypatch.setenv("FAKE_TROUBLE", "error 4")
    assert (run(path, old).failed, run(path, old).exit_code) == (6, 1)
    monkeypatch.setenv("FAKE_TROUBLE", "silent a")
    stopped = run(path, shifted(old))
    assert (stopped.done, stopped.total, stopped.failed, stopped.exit_code) == (30, 60, 0, 1)
    assert "The task ended with 30 of 60 cells." in capsys.readouterr().err
    with Store(path) as store:
        (row,) = status_of_store(store)
        assert (row["done"], row["total"], row["failed"]) == (30, 60, 0)
    monkeypatch.delenv("FAKE_TROUBLE")
    whole = run(path, shifted(old))
    assert (whole.done, whole.computed, whole.failed, whole.exit_code) == (60, 30, 0, 0)
    with Store(path) as store:
        (row,) = status_of_store(store)
        assert (row["done"], row["total"], row["failed"]) == (60, 60, 0)


def test_errors_of_methods_that_do_not_run_are_kept(tmp_path, monkeypatch):
    path = tmp_path / "x.sqlite"
    both = fake_engine.experiment(data=("a",), repetitions=1, methods=("X", "Y"))
    monkeypatch.setenv("FAKE_TROUBLE", "error 4")
    assert run(path, both).failed == 12
    monkeypatch.delenv("FAKE_TROUBLE")
    repaired = run(path, both, only=["X"], retry=True)
    assert (repaired.computed, repaired.failed, repaired.exit_code) == (6, 0, 0)
    with Store(path) as store:
        assert [row["method"] for row in store.rows() if row["error"]] == ["Y"] * 6
    whole = run(path, both)
    assert (whole.done, whole.failed, whole.exit_code) == (120, 6, 1)


def test_a_child_of_a_dead_worker_that_holds_its_pipe_does_not_hold_the_run(tmp_path, monkeypatch):
    broken = []
    monkeypatch.setattr(threading, "excepthook", broken.append)
    monkeypatch.setattr(runner, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setenv("FAKE_TROUBLE", "orphan a")
    monkeypatch.setenv("FAKE_ORPHAN", str(tmp_path / "orphan"))
    begin = time.monotonic()
    summary = run(tmp_path / "x.sqlite", fake_engine.experiment(data=("a",), repetitions=1))
    orphan = psutil.Process(int((tmp_path / "orphan").read_text()))
    assert not is_dead(orphan)
    orphan.kill()
    assert time.monotonic() - begin < 30
    assert summary.exit_code == 0
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("ldsu")])
    assert broken == []


class Recorder(Display):
    ends = 0

    def end(self, progress, path):
        self.ends += 1


@pytest.mark.parametrize("what", ["heartbeat", "end_run", "count"])
def test_a_store_that_breaks_ends_the_run_with_its_sentence(what, tmp_path, monkeypatch, capsys):
    recorder = Recorder()
    monkeypatch.setattr(runner, "make_display", lambda **_: recorder)
    path = tmp_path / "x.sqlite"
    small = fake_engine.experiment(data=("a",), repetitions=1)
    begin_run = Store.begin_run

    def then_break(self, *arguments):
        def fail(*_):
            raise StoreError("The store is gone.")

        monkeypatch.setattr(Store, what, fail)
        return begin_run(self, *arguments)

    monkeypatch.setattr(Store, "begin_run", then_break)
    summary = run(path, small)
    assert recorder.ends == 1
    if what == "heartbeat":
        assert (summary.exit_code, summary.errors) == (1, ["The store is gone."])
    else:  # all was done before
        assert (summary.exit_code, summary.done) == (0, 60)


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps the name of an open file")
@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_deleted_or_replaced_while_it_runs_ends_the_run_with_one_sentence(replaced, undisturbed, tmp_path):
    path, gate = tmp_path / "x.sqlite", tmp_path / "gate"
    process = start(path, gate=gate, quiet=False)
    wait_until(lambda: n_rows(path) > 0)
    path.unlink()
    if replaced:
        shutil.copy(undisturbed, path)
    gate.touch()
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 1
    _, error, last = printed.splitlines()
    assert error.startswith("Error: The store x.sqlite was deleted or replaced while in use")
    assert last.startswith("No cells were saved (")


def test_a_store_deleted_after_the_last_cell_is_noticed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Store, "end_run", lambda store, run: store.path.unlink())
    summary = run(tmp_path / "x.sqlite", json=True)
    assert (summary.exit_code, summary.done, summary.lost) == (1, 0, True)
    *_, error, end = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert "was deleted or replaced" in error["error"]
    assert (end["cells_done"], end["exit_code"]) == (0, 1)


def test_the_display_ends_whatever_happens(tmp_path, monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(runner, "make_display", lambda **_: recorder)

    def fail(*_):
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(runner._Session, "compute", fail)
    with pytest.raises(RuntimeError, match="unforeseen"):
        run(tmp_path / "x.sqlite")
    assert recorder.ends == 1


def test_a_store_names_no_folder_and_no_host(tmp_path, monkeypatch):
    path = tmp_path / "x.sqlite"
    small = fake_engine.experiment(data=("a",), repetitions=1)
    command = [sys.executable, "run", str(tmp_path / "x.toml"), f"--store={path}", "--only", "a"]
    for trouble in ("raise a", "die a"):
        monkeypatch.setenv("FAKE_TROUBLE", trouble)
        run(path, small, command=command, jobs=1)
    with Store(path) as store:
        errors = "\n".join(failure["error"] for failure in store.failures())
        assert 'File "fake_engine.py", line' in errors
        assert "Segmentation fault" in errors
        assert {row["command"] for row in store.runs()} == {
            f"{Path(sys.executable).name} run x.toml --store=x.sqlite --only a"
        }
    content = path.read_bytes()
    for private in (Path.home(), Path.cwd(), TESTS, tmp_path, sys.prefix, platform.node()):
        assert str(private).encode() not in content, private


def test_a_larger_grid_opens_finished_tasks_and_adds_its_cells_alone(tmp_path):
    path = tmp_path / "x.sqlite"
    small = fake_engine.experiment(data=("a",), repetitions=1)
    run(path, small)
    larger = fake_engine.experiment(data=("a",), repetitions=1, settings=12)
    assert run(path, larger).computed == 12
    assert run(path, shifted(small)).computed == 18  # the same number of cells, but others


def test_only_restricts_to_data_splits_and_methods(tmp_path):
    experiment = fake_engine.experiment(methods=("X", "Y"))
    path = tmp_path / "x.sqlite"
    assert run(path, experiment, only=["a:1", "X"]).computed == 60
    assert run(path, experiment, only=["a:1", "b"]).computed == 60 + 3 * 120
    with pytest.raises(ValueError, match="'z' is neither a data set nor a method of fake"):
        run(path, experiment, only=["z"])
    with Store(path) as store:
        assert store.planned()[Task("a", 0)] == 120


def test_jobs_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="jobs must be at least 1, but it is 0"):
        run(tmp_path / "x.sqlite", jobs=0)


def test_another_protocol_is_refused(tmp_path):
    path = tmp_path / "x.sqlite"
    run(path, fake_engine.experiment(data=("a",), repetitions=1))
    with pytest.raises(OSError, match="created with seed = 0"):
        run(path, fake_engine.experiment(data=("a",), repetitions=1, seed=1))


def test_costs_are_measured_once_each_in_a_fresh_process(undisturbed, tmp_path, monkeypatch, capsys):
    with Store(undisturbed) as store:
        costs = store.costs()
    assert [(cost["data"], cost["method"], cost["labels"]) for cost in costs] == [("a", "X", 3), ("b", "X", 3)]
    assert len({cost["peak_mib"] for cost in costs}) == 2  # the fake engine gives its process number
    small = fake_engine.experiment(data=("a",), repetitions=1)
    monkeypatch.setenv("FAKE_COSTS", "1")
    monkeypatch.setenv("FAKE_TROUBLE", "cost")
    assert run(tmp_path / "x.sqlite", small).exit_code == 1
    assert "Costs of X on a: ArithmeticError: too dear" in capsys.readouterr().err


def test_costs_are_measured_when_no_other_run_is_at_work(tmp_path, monkeypatch):
    path, gate = tmp_path / "x.sqlite", tmp_path / "gate"
    monkeypatch.setenv("FAKE_COSTS", "1")
    monkeypatch.setenv("FAKE_COST_GATE", str(gate))
    with Store(path) as store:
        store.claim(Task("z", 0))
        process = start(path, json=True, quiet=False, experiment={"data": ("a",), "repetitions": 1})
        while "as soon as no other run is active" not in (line := process.stdout.readline()):
            assert line, "it did not wait"
        assert [claim.task for claim in store.live_claims()] == [Task("z", 0)]
        store.release(Task("z", 0))
        wait_until(lambda: [claim.doing for claim in store.live_claims()] == ["costs: X on a (1 of 1)"])
        assert store.costs() == []
        gate.touch()
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert len(store.costs()) == 1


def test_a_task_too_large_for_memory_is_reported_and_the_others_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_MEMORY", "a")
    summary = run(tmp_path / "x.sqlite", fake_engine.experiment(repetitions=1), engine="fake_engine_memory")
    assert (summary.done, summary.exit_code) == (60, 1)
    assert "a, split 0 needs about 1048576.0 GiB" in capsys.readouterr().err


def test_workers_get_their_share_of_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "cores", lambda: 8)
    path = tmp_path / "x.sqlite"
    run(path, fake_engine.experiment(data=("a",), repetitions=2), jobs=2)
    run(path, fake_engine.experiment(data=("a",), repetitions=3), jobs=5)
    with Store(path) as store:
        assert [(row["jobs"], row["threads"]) for row in store.runs()] == [(2, 4), (1, 8)]
        assert {row["n_features"] for row in store.rows(split=0)} == set(range(1, 11))


def test_plain_output_has_a_first_and_a_last_line(tmp_path, capsys):
    run(tmp_path / "x.sqlite", fake_engine.experiment(data=("a",), repetitions=1), quiet=False)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("fake: 60 cells; 1 worker with ")
    assert last.startswith("All 60 cells are in ")


def test_quiet_prints_nothing(tmp_path, capfd):
    run(tmp_path / "x.sqlite", fake_engine.experiment(data=("a",), repetitions=1))
    assert tuple(capfd.readouterr()) == ("", "")


def test_json_lines_tell_start_tasks_and_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ldsu.bench.display.Json.interval", 3600.0)  # no line for the time that a slow machine takes
    run(tmp_path / "x.sqlite", fake_engine.experiment(data=("a",), repetitions=2), json=True)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    happened = [event["event"] for event in events if event["event"] != "progress"]  # which comes by the clock
    assert happened == ["start", "task_done", "task_done", "end"]
    assert (events[0]["cells_total"], events[0]["cells_done"]) == (120, 0)
    assert (events[-1]["cells_done"], events[-1]["exit_code"]) == (120, 0)


def test_time_left_counts_only_what_this_run_computed():
    found = {Task("a", 0): TaskProgress(100, 1.0, present=100, finished=True)}
    mine = {Task("a", 1): TaskProgress(100, 1.0, present=50, computed=10)}
    assert time_left(found | mine, jobs=1, elapsed=20) == pytest.approx(100)


def test_time_left_is_that_of_the_longest_task_when_few_are_left():
    done = {Task("a", split): TaskProgress(10, 1.0, 10, 10, finished=True) for split in range(4)}
    last = {Task("b", 0): TaskProgress(10, 2.0)}
    # Four tasks in 60 s by two workers: 30 s of one worker for a unit, so 60 s for the last.
    assert time_left(done | last, jobs=2, elapsed=60) == pytest.approx(60)


@pytest.mark.parametrize(("computed", "elapsed"), [(0, 1000), (1, 1000), (50, 5)])
def test_time_left_is_not_estimated_from_too_little(computed, elapsed):
    tasks = {Task("a", 0): TaskProgress(100, 1.0, computed, computed)}
    assert time_left(tasks, jobs=1, elapsed=elapsed) is None


def test_sentences_at_the_start_and_the_end(tmp_path):
    progress = Progress({Task("a", 0): TaskProgress(1000, 1.0, 250)}, jobs=2)
    printed = start_message(fake_engine.experiment(), Path("x.sqlite"), progress, 1)
    assert (
        printed == "fake: 1,000 cells, 250 of them already computed; 2 workers with 1 thread each; results in x.sqlite"
    )
    state = TaskProgress(1000, 1.0, present=999, computed=10)
    end = Progress({Task("a", 0): state}, jobs=2, started=time.monotonic() - 5, failed=1, errors=["no"])
    assert end_message(end, Path("x.sqlite")) == (
        "999 of 1,000 cells are in x.sqlite (10 computed in 5 s). 1 cell failed; use --retry to compute them again. "
        "1 error above; run the same command to try again."
    )


def test_a_process_is_distinguished_from_a_later_one_with_its_number(tmp_path):
    with Store(tmp_path / "x.sqlite") as store:
        me = store.owner(os.getpid())
    later = replace(me, started=me.started + 100)
    assert me.is_alive()
    assert not later.is_alive()
    assert me.is_same(replace(me, started=me.started + 0.5))
    assert not me.is_same(later)
