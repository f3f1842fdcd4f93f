"""The command line: quick to answer, one sentence for an error, and what it says is so."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import ldsu
from bench_rows import EXPERIMENT
from ldsu.bench import engine
from ldsu.bench.experiment_file import load_experiment
from ldsu.bench.store import Store
from ldsu.bench.tasks import Cell, Row, Task
from ldsu.cli import cli


def ldsu_command(*arguments, environment=None):
    return subprocess.run(
        [sys.executable, "-m", "ldsu", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | (environment or {}),
    )


def call(*arguments):
    return CliRunner().invoke(cli, arguments, prog_name="ldsu")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "small.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture
def half_done(folder):
    with Store(folder / "runs" / "small.sqlite") as store:
        store.bind("small", EXPERIMENT, {})
        store.plan({Task("digits", 0): 2})
        store.add([Row(Cell("digits", 0, 3, "KPCA", "{}", 1.0, -1), None, None, 0, error="no score")], 1)
        run = store.begin_run("ldsu bench run small", 1, 1)
        store.add_failure(Task("digits", 0), run, "Traceback\nArithmeticError: three", final=True)
        store.claim(Task("digits", 0))
        store.heartbeat({Task("digits", 0): "digits, KPCA"})
        yield folder


def test_help_and_version_answer_without_the_numerical_libraries():
    code = (
        "import sys\nfrom ldsu.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end:\n"
        "    print(end.code, sorted({'numpy', 'scipy', 'sklearn', 'pandas', 'rich'} & set(sys.modules)))"
    )
    for options in (["bench", "run", "--help"], ["--help"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, timeout=60)
        assert done.stdout.endswith("0 []\n"), done.stderr
    assert done.stdout.startswith(f"ldsu {ldsu.__version__}\n")


def commands(group=cli, path=()):
    """The words of every command and group."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


@pytest.mark.parametrize("command", [*commands()], ids=" ".join)
def test_every_command_has_help_without_marks_that_click_should_have_read(command):
    result = call(*command, "--help")
    assert result.exit_code == 0
    assert "Usage: ldsu" in result.output
    assert "\\b" not in result.output
    assert "\b" not in result.output


def test_the_help_of_predict_has_a_line_for_each_column_of_the_output():
    lines = [line.strip() for line in call("predict", "--help").output.splitlines()]
    for name in ("row", "label", "probability", "confidence", "runner_up", "familiarity"):
        assert any(line.startswith(f"{name}  ") for line in lines), name


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra_it_says_how_to_install_it(package, tmp_path):
    hide = f"import sys\nsys.modules[{package!r}] = None\nfrom ldsu.__main__ import main\nmain()\n"

    def run(argument):
        return subprocess.run([sys.executable, "-c", hide, argument], capture_output=True, text=True, timeout=30)

    done = run("fit")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"The command line requires the extra 'cli' ({package} is not installed). "
        "Install it with: pip install 'ldsu[cli]'\n"
    )
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"ldsu {ldsu.__version__}\n", "")


def test_an_unknown_experiment_names_those_there_are(folder):
    result = call("bench", "run", "large")
    assert result.exit_code == 2
    assert "Experiment large not found; ./experiments has small." in result.output


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("repetitions = 1", "repetitions = 0", "repetitions = 0"), ("[protocol]", "[protocol", "not valid TOML")],
)
def test_a_wrong_experiment_is_one_sentence(folder, old, new, said):
    path = folder / "experiments" / "small.toml"
    path.write_text(EXPERIMENT.replace(old, new))
    result = call("bench", "run", "small")
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert said in result.output
    assert result.output.count("\n") == 1
    assert isinstance(call("--debug", "bench", "run", "small").exception, ValueError)


def test_a_file_that_is_no_store_is_one_sentence(folder):
    Path("notes.txt").write_text("notes" * 1000)
    result = call("bench", "status", "small", "--store", "notes.txt")
    assert result.exit_code == 1
    assert result.output == "Error: notes.txt is not a results store: it is not an SQLite database.\n"


def test_a_damaged_store_is_one_sentence(half_done):
    path = half_done / "runs" / "damaged.sqlite"
    with Store(path) as store:
        cells = [Cell("digits", 0, 3, "KPCA", str(k), 1.0, -1) for k in range(2000)]
        store.add([Row(cell, 0.5, 0.5, 1) for cell in cells], 1)
    content = bytearray(path.read_bytes())
    content[len(content) // 4 : -len(content) // 4] = bytes([255]) * (len(content) // 2)
    path.write_bytes(content)
    for arguments in (
        ["status"],
        ["status", "--store", str(path)],
        ["export", "small", "--store", str(path), "-o", "x"],
    ):
        result = call("bench", *arguments)
        assert result.exit_code == 1
        assert result.output.startswith("Error: The store ")
        assert "The file is damaged" in result.output
        assert result.output.count("\n") == 1


@pytest.mark.parametrize("options", [["--jobs", "0"], ["--device", "gpu"]])
def test_a_wrong_option_is_a_usage_error(folder, options):
    result = call("bench", "run", "small", *options)
    assert result.exit_code == 2
    assert f"Invalid value for '{options[0]}'" in result.output


def test_an_experiment_is_run_by_name_and_its_status_shown(folder):
    done = ldsu_command("bench", "run", "small", "--jobs", "1", "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "start"
    assert events[-1]["cells_done"] == events[-1]["cells_total"] > 0
    with Store(folder / "runs" / "small.sqlite") as store:
        assert store.runs()[0]["command"] == "ldsu bench run small --jobs 1 --json"
        assert store.meta("toml") == EXPERIMENT
        assert all(0 < row["map"] <= 1 for row in store.rows())
    (row,) = json.loads(call("bench", "status", "small", "--json").output)
    assert (row["data"], row["done"], row["failed"], row["running"]) == ("digits", row["total"], 0, 0)
    report = call("bench", "report", "small", "--no-pictures")
    assert report.exit_code == 0, report.output
    assert "KPCA" in report.output
    assert "html       runs/small/index.html\n" in report.output
    assert (folder / "runs" / "small" / "index.html").stat().st_size > 1000


def test_stores_of_other_machines_are_merged_and_the_status_is_right(folder):
    experiment = load_experiment("experiments/small.toml")
    wanted = list(engine.wanted_cells(experiment, Task("digits", 0)))
    with Store("elsewhere.sqlite") as other:
        other.bind("small", EXPERIMENT, {})
        other.add([Row(cell, 0.5, 0.5, 1) for cell in wanted[1:]], other.begin_run("elsewhere", 1, 1))
        other.add([Row(Cell("digits", 0, 3, "KPCA", "{}", 5.0, -1), 0.5, 0.5, 1)], 1)  # of an older grid
    result = call("bench", "merge", "small", "elsewhere.sqlite")
    assert result.output == f"{len(wanted)} cells from elsewhere.sqlite\n"
    (row,) = json.loads(call("bench", "status", "small", "--json").output)
    assert (row["done"], row["total"]) == (len(wanted) - 1, len(wanted))
    with Store("last.sqlite") as other:
        other.add([Row(wanted[0], 0.5, 0.5, 1)], 1)
    call("bench", "merge", "small", "last.sqlite")
    (row,) = json.loads(call("bench", "status", "small", "--json").output)
    assert (row["done"], row["total"]) == (len(wanted), len(wanted))


def test_rows_are_exported(half_done):
    assert call("bench", "export", "small", "-o", "rows.csv").output == "1 rows in rows.csv\n"
    with Path("rows.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["data"], row["method"], row["error"]) == ("digits", "KPCA", "no score")


def test_rows_and_reports_replace_only_what_they_may(half_done):
    Path("rows.csv").write_text("mine")
    Path("report").mkdir()
    Path("report/index.html").write_text("mine")
    export, report = ("bench", "export", "small", "-o", "rows.csv"), ("bench", "report", "small", "--out", "report")
    for command, kept in ((export, Path("rows.csv")), (report, Path("report/index.html"))):
        refused = call(*command)
        assert refused.exit_code == 2
        assert f"{kept} exists" in refused.output
        assert "--force" in refused.output
        assert kept.read_text() == "mine"
        done = call(*command, "--force")
        assert done.exit_code == 0, done.output
        assert kept.read_text() != "mine"
    assert call(*report).exit_code == 0  # its own report is written again without a question
    nowhere = call("bench", "report", "small", "--out", "no/such/report")
    assert nowhere.exit_code == 1
    assert "no/such does not exist" in nowhere.output
    assert not Path("no").exists()


def test_a_run_on_a_device_that_is_not_there_ends_before_it_begins(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    refused = call("bench", "run", "small", "--device", "cuda")
    assert refused.exit_code == 2
    assert "pip install 'ldsu[gpu]'" in refused.output
    assert not Path("runs").exists()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_names_that_standard_output_cannot_encode_do_not_end_a_command(folder, encoding):
    name = "gr\xf6\xdfe \u03bc.sqlite"
    with Store(name) as store:
        store.bind("small", EXPERIMENT, {})
    environment = os.environ | {"PYTHONIOENCODING": encoding, "LC_ALL": "C.UTF-8"}
    for command in (["status", "--store", name], ["export", "small", "--store", name, "-o", "\u03bc.csv"]):
        words = [sys.executable, "-m", "ldsu", "bench", *command]
        done = subprocess.run(words, capture_output=True, timeout=120, env=environment)
        assert (done.returncode, done.stderr) == (0, b"")


def test_status_shows_cells_failures_and_what_is_running(half_done):
    output = call("bench", "status", "small").output
    assert "digits  1 / 2  50%" in output
    assert "running digits, split 0: digits, KPCA" in output
    assert "failed digits, split 0: ArithmeticError: three" in output


def test_status_without_a_file_lists_the_stores(half_done):
    assert "small  1 / 2" in call("bench", "status").output
    (row,) = json.loads(call("bench", "status", "--json").output)
    assert (row["store"], row["done"], row["total"], row["failed"], row["running"]) == ("small", 1, 2, 1, 1)


def test_status_without_any_store_says_how_to_make_one(folder):
    result = call("bench", "status")
    assert result.exit_code == 2
    assert "ldsu bench run FILE" in result.output
    assert "Store runs/small.sqlite does not exist" in call("bench", "status", "small").output


def test_data_are_listed_and_fetched():
    listed = call("data", "list").output
    assert "digits" in listed
    assert "1,797" in listed
    assert call("data", "fetch", "digits").output == "digits: 1,797 samples of 10 classes\n"
    unknown = call("data", "fetch", "digits", "numbers")
    assert unknown.exit_code == 2
    assert "Unknown data set 'numbers'" in unknown.output


def test_the_package_gives_what_it_lists_when_it_is_asked():
    code = (
        "import sys, ldsu\nassert 'sklearn' not in sys.modules\nfrom ldsu import *\n"
        "assert LDSU is ldsu.methods.ldsu.LDSU\n"
        "assert set(ldsu.__all__) <= set(dir(ldsu)) & set(globals())\n"
        "print(ldsu.kernels.__name__, hasattr(ldsu, 'nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "ldsu.kernels False\n", done.stderr
