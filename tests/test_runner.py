"""Runs that survive being killed, share a store, and say the truth about themselves."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import fake_engine
from ldsu.bench import runner
from ldsu.bench.cells import Task
from ldsu.bench.display import closing, opening
from ldsu.bench.progress import Progress, TaskProgress, time_left
from ldsu.bench.store import COLUMNS, Owner, Store

TESTS = Path(__file__).parent
# Two runs of the same cells differ in these alone.
MEASURED = {"written_at", "run", "peak_mib", *(name for name in COLUMNS if name.startswith("seconds_"))}
SCRIPT = """
import sys, fake_engine
from ldsu.bench import runner
runner.cores = lambda: 2
options = eval(sys.argv[2])
experiment = fake_engine.experiment(**options.pop("experiment", {}))
sys.exit(runner.run(experiment, sys.argv[1], engine="fake_engine", **options).exit_code)
"""


@pytest.fixture(autouse=True)
def engine_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    # Counting the real ones takes longer than all else here.
    monkeypatch.setattr(runner, "cores", lambda: 2)


def run(path, experiment=None, **options):
    settings = {"engine": "fake_engine", "jobs": 2, "quiet": True} | options
    return runner.run(experiment or fake_engine.experiment(), path, **settings)


def start(path, pause=0.0, **options):
    """A run in a process of its own."""
    settings = {"jobs": 2, "quiet": True} | options
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, path, repr(settings)],
        env=os.environ | {"FAKE_PAUSE": str(pause)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers_of(process):
    return [
        child for child in psutil.Process(process.pid).children() if "ldsu.bench.worker" in " ".join(child.cmdline())
    ]


def is_dead(process):
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def n_rows(path):
    if not path.exists():
        return 0
    with Store(path) as store:
        return sum(count.done for count in store.counts().values())


def comparable(path):
    with Store(path) as store:
        assert store.check() == []
        return [{name: value for name, value in row.items() if name not in MEASURED} for row in store.rows()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "x.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
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
    kills = {"worker": 0, "parent": 0, "all": 0}
    code = None
    for victim in ["worker", "parent", "all", "worker", "parent", "all", None]:
        before = n_rows(path)
        process = start(path, pause=0.01 if victim else 0.0)
        if victim:
            # Mostly in the middle of the work, wherever that is.
            wait_until(lambda before=before: n_rows(path) > before)
            time.sleep(chance.uniform(0, 0.08))
            workers = workers_of(process)
            targets = {"worker": workers[:1], "parent": [process], "all": [*workers, process]}[victim]
            for target in targets:
                target.send_signal(signal.SIGKILL)
            kills[victim] += 1
            if victim == "worker":
                time.sleep(0.1)
                process.kill()
            wait_until(lambda workers=workers: all(map(is_dead, workers)), 3)
        code = process.wait(20)
        process.communicate()
        assert victim is None or n_rows(path) < 360, "it ended before it was killed"
    assert kills == {"worker": 2, "parent": 2, "all": 2}
    assert code == 0
    assert comparable(path) == comparable(undisturbed)


def test_a_killed_worker_is_replaced_and_the_run_ends_whole(undisturbed, tmp_path):
    path = tmp_path / "x.sqlite"
    process = start(path, pause=0.02, quiet=False)
    wait_until(lambda: n_rows(path) > 10)
    workers_of(process)[0].kill()
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "was killed (SIGKILL)" in said
    assert "tried again" in said or "takes its place" in said  # it may have been between two tasks
    assert comparable(path) == comparable(undisturbed)


def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    path = tmp_path / "x.sqlite"
    process = start(path, pause=5.0)
    wait_until(lambda: len(workers_of(process)) == 2)
    workers = workers_of(process)
    process.kill()
    process.communicate()
    assert len(workers) == 2
    wait_until(lambda: all(map(is_dead, workers)), 2)


def test_two_runs_on_one_store_share_the_work(undisturbed, tmp_path):
    path = tmp_path / "x.sqlite"
    processes = [start(path, pause=0.02, jobs=1, quiet=False) for _ in range(2)]
    for process in processes:
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0, said
    assert comparable(path) == comparable(undisturbed)
    with Store(path) as store:
        by_task = {(row["data"], row["split"], row["run"]) for row in store.rows()}
        assert len(by_task) == 6, "a task was worked on by both"
        assert {run for _, _, run in by_task} == {1, 2}


def test_a_run_that_finds_everything_claimed_waits_and_takes_over_what_is_left(undisturbed, tmp_path):
    path = tmp_path / "x.sqlite"
    first = start(path, pause=0.5, jobs=2, experiment={"data": ("a",), "repetitions": 2})
    wait_until(lambda: n_rows(path) > 3)
    second = start(path, json=True, quiet=False, experiment={"data": ("a",), "repetitions": 2})
    said = ""
    while "this one waits, and takes over if that one stops" not in said or '"elsewhere": 2' not in said:
        line = second.stdout.readline()
        assert line, "it did not wait"
        said += line
    first.kill()
    first.communicate()
    second.communicate(timeout=20)
    assert second.returncode == 0
    assert comparable(path) == [row for row in comparable(undisturbed) if row["data"] == "a" and row["split"] < 2]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_at_once_with_code_130_and_says_how_to_continue(sent, tmp_path):
    path = tmp_path / "x.sqlite"
    process = start(path, pause=0.05, quiet=False)
    wait_until(lambda: n_rows(path) > 10)
    workers = workers_of(process)
    process.send_signal(sent)
    begin = time.monotonic()
    _, said = process.communicate(timeout=10)
    assert time.monotonic() - begin < 3
    assert process.returncode == 130
    assert "Interrupted with" in said
    assert "Give the same command to continue." in said
    assert "Traceback" not in said
    assert all(map(is_dead, workers))
    assert 0 < len(comparable(path)) < 360
    with Store(path) as store:
        assert store.claims() == []


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
    assert "was ended by SIGSEGV. Given up after 3 attempts." in capsys.readouterr().err
    with Store(path) as store:
        assert [(failure["data"], failure["final"]) for failure in store.failures()] == [("a", 0)] * 3 + [("a", 1)]
        assert "Segmentation fault" in store.failures()[0]["error"]


def test_workers_that_cannot_start_end_the_run_with_the_reason(tmp_path, monkeypatch, capsys):
    (tmp_path / "sitecustomize.py").write_text("import os, sys\nif 'worker' in ' '.join(sys.orig_argv): os._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{TESTS}")
    summary = run(tmp_path / "x.sqlite")
    assert summary.exit_code == 1
    assert "A worker ended with code 7" in capsys.readouterr().err


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
    assert "It ended with 0 cells, but 60 were announced." in capsys.readouterr().err


def test_a_larger_grid_opens_finished_tasks_and_adds_its_cells_alone(tmp_path):
    path = tmp_path / "x.sqlite"
    small = fake_engine.experiment(data=("a",), repetitions=1)
    run(path, small)
    larger = fake_engine.experiment(data=("a",), repetitions=1, settings=12)
    assert run(path, larger).computed == 12
    # The same number of cells, but others.
    (method,) = small.methods
    moved = replace(small, methods=(replace(method, grids=({"k": tuple(range(5, 15))},)),))
    assert run(path, moved).computed == 18


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
    with pytest.raises(OSError, match="made with seed = 0"):
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


def test_json_lines_tell_start_tasks_and_end(tmp_path, capsys):
    run(tmp_path / "x.sqlite", fake_engine.experiment(data=("a",), repetitions=2), json=True)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["start", "task_done", "task_done", "end"]
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
def test_time_left_is_not_told_from_too_little(computed, elapsed):
    tasks = {Task("a", 0): TaskProgress(100, 1.0, computed, computed)}
    assert time_left(tasks, jobs=1, elapsed=elapsed) is None


def test_sentences_at_the_start_and_the_end(tmp_path):
    progress = Progress({Task("a", 0): TaskProgress(1000, 1.0, 250)}, jobs=2)
    said = opening(fake_engine.experiment(), Path("x.sqlite"), progress, 1)
    assert said == "fake: 1,000 cells, 250 of them there already; 2 workers with 1 thread each; results in x.sqlite"
    summary = runner.Summary(999, 1000, 10, 1, ("no",), 5.0)
    assert closing(summary, Path("x.sqlite")) == (
        "999 of 1,000 cells are in x.sqlite (10 computed in 5 s). 1 cell failed; --retry tries them again. "
        "1 error above; give the same command to try again."
    )


def test_a_process_is_told_from_a_later_one_with_its_number():
    me = Owner.of(os.getpid())
    assert me.is_alive()
    assert not replace(me, started=me.started - 100).is_alive()
