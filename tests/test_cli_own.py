"""`ldsu fit`, `predict`, `transform`, `inspect`, `export`, `compare` and `completion`, as a user runs them."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from ldsu.cli import cli
from ldsu.tables.readers import read_table

COLOURS = ("red", "green", "blue")


def call(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def write_csv(path, rows, header=("size", "weight", "shape", "colour")):
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def colours(n, seed=0):
    """Rows that two numbers and a category tell apart nearly always."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    centres = np.array([[0, 0], [5, 0], [0, 50]])
    shapes = np.array(["round", "long", "flat"])
    for k, c in enumerate(y):
        size, weight = rng.normal(centres[c], [1, 10])
        yield [f"{size:.3f}", f"{weight:.2f}", shapes[c if rng.random() < 0.9 else k % 3]], COLOURS[c]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with four labels a class, new rows, their truth, and a model."""
    path = tmp_path_factory.mktemp("colours")
    seen = dict.fromkeys(COLOURS, 0)
    rows = []
    for row, colour in colours(150):
        seen[colour] += 1
        rows.append([*row, colour if seen[colour] <= 4 else ""])
    write_csv(path / "things.csv", rows)
    new = list(colours(60, seed=1))
    write_csv(path / "new.csv", [row for row, _ in new], ("size", "weight", "shape"))
    (path / "truth.txt").write_text("\n".join(colour for _, colour in new))
    done = call("fit", path / "things.csv", "--label", "colour", "-o", path / "things.ldsu")
    assert done.exit_code == 0, done.output
    (path / "fit.txt").write_text(done.output)
    return path


@pytest.fixture
def here(folder, monkeypatch, tmp_path):
    """An empty folder to stand in, with the module's files named beside it."""
    monkeypatch.chdir(tmp_path)
    return folder


def test_fit_says_what_it_will_do_and_what_it_did(folder):
    said = (folder / "fit.txt").read_text()
    assert "150 rows, 12 of them labelled in 'colour'" in said
    assert "blue 4, green 4, red 4" in said
    assert "scaled by its own deviation" in said
    assert "a column for each level; 3 levels" in said
    assert "rbf kernel, exact solver; " in said
    assert "labels left out are foretold with accuracy" in said
    assert f"ldsu predict {folder / 'things.ldsu'}" in said


def test_predict_labels_new_rows_in_their_order(here):
    done = call("predict", here / "things.ldsu", here / "new.csv", "-o", "out.csv")
    assert done.exit_code == 0, done.output
    with Path("out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["row", "label", "probability", "confidence", "runner_up", "familiarity"]
    assert [int(row["row"]) for row in rows] == list(range(1, 61))
    truth = (here / "truth.txt").read_text().split("\n")
    assert np.mean([row["label"] == colour for row, colour in zip(rows, truth, strict=True)]) > 0.9
    for row in rows:
        assert row["label"] != row["runner_up"]
        assert 1 / 3 <= float(row["probability"]) <= 1
        assert 0 <= float(row["confidence"]) <= float(row["probability"])
        assert 0 <= float(row["familiarity"]) <= 1


def test_predict_without_a_file_writes_the_rows_to_standard_output_and_words_to_error(here):
    done = subprocess.run(
        [sys.executable, "-m", "ldsu", "predict", here / "things.ldsu", here / "new.csv"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(csv.DictReader(done.stdout.splitlines()))) == 60
    assert "60 rows in" in done.stderr


@pytest.mark.parametrize("name", ["out.parquet", "out.feather", "out.tsv"])
def test_predictions_are_written_in_the_format_of_the_name_with_kept_columns(here, name):
    done = call("predict", here / "things.ldsu", here / "new.csv", "-o", name, "--keep", "shape", "--quiet")
    assert (done.exit_code, done.output) == (0, "")
    frame = read_table(name).frame
    shapes = read_table(here / "new.csv").frame["shape"].to_pylist()
    assert frame["shape"].to_pylist() == shapes
    assert set(frame["label"].to_pylist()) <= set(COLOURS)


def test_predict_tells_how_many_given_labels_are_met_and_keeps_all_columns(here):
    done = call("predict", here / "things.ldsu", here / "things.csv", "-o", "all.csv", "--keep-all", "--json")
    summary = json.loads(done.stdout)
    assert summary["given"] == {"column": "colour", "rows": 12, "met": 12}
    assert sum(row["rows"] for row in summary["labels"]) == 150
    assert read_table("all.csv").frame.column_names[-4:] == ["size", "weight", "shape", "colour"]


def test_far_rows_and_unknown_levels_are_warned_of(here):
    write_csv("far.csv", [["1e6", "1e6", "round"], ["0", "0", "spiral"]], ("size", "weight", "shape"))
    done = call("predict", here / "things.ldsu", "far.csv", "-o", "out.csv")
    assert done.exit_code == 0
    assert "1 row(s) have a value in 'shape' that no training row had" in done.output
    assert "1 row(s) lie far from all training rows: their labels are guesses" in done.output
    with Path("out.csv").open() as file:
        far = next(csv.DictReader(file))
    assert float(far["confidence"]) < 1e-3
    assert float(far["familiarity"]) == 0


def test_names_from_files_do_not_steer_the_terminal(here):
    rows = [[str(i % 7), str(i % 5), COLOURS[i % 3] if i < 12 else ""] for i in range(60)]
    write_csv("odd.csv", rows, ("size [kg]", "we\x1b]0;ight", "col [bold]our"))
    said = call("fit", "odd.csv", "--label", "col [bold]our", "--dry-run").output
    assert "labelled in 'col [bold]our'" in said
    assert "size [kg]" in said
    assert "\x1b]0;" not in said


def test_a_fit_that_expects_little_says_so(here):
    rng = np.random.default_rng(0)
    rows = [[*rng.normal(size=3).round(3), COLOURS[i % 2] if i < 30 else ""] for i in range(200)]
    write_csv("noise.csv", rows, ("a", "b", "c", "colour"))
    assert "hardly better than guessing" in call("fit", "noise.csv", "--label", "colour", "-o", "n.ldsu").output


def test_transform_writes_the_features_that_predict_rests_on(here):
    call("transform", here / "things.ldsu", here / "new.csv", "-o", "f.npy")
    features = np.load("f.npy", allow_pickle=False)
    assert features.shape[0] == 60
    call("transform", here / "things.ldsu", here / "new.csv", "-o", "f.csv", "--keep", "shape")
    frame = read_table("f.csv").frame
    assert frame.num_columns == features.shape[1] + 2
    np.testing.assert_allclose([float(v) for v in frame.column(1).to_pylist()], features[:, 0], rtol=1e-12)


def test_inspect_shows_what_a_model_was_fitted_to(here):
    said = call("inspect", here / "things.ldsu").output
    for words in ("things.csv", "blue 4, green 4, red 4", "a column for each level", "scikit-learn", "TableModel"):
        assert words in said
    described = json.loads(call("inspect", here / "things.ldsu", "--json").output)
    assert described["about"]["rows"] == 150


def test_export_writes_a_graph_that_says_the_same(here):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    done = call("export", here / "things.ldsu", "-o", "things.onnx")
    assert done.exit_code == 0, done.output
    call("predict", here / "things.ldsu", here / "new.csv", "-o", "out.csv", "-q")
    call("transform", here / "things.ldsu", here / "new.csv", "-o", "f.npy", "-q")
    frame = read_table(here / "new.csv").frame
    numbers = np.array([[float(v) for v in frame[name].to_pylist()] for name in ("size", "weight")]).T
    shapes = np.array(frame["shape"].to_pylist(), dtype=object)[:, None]
    session = onnxruntime.InferenceSession("things.onnx")
    label, probability, features = session.run(
        ["label", "probability", "features"], {"numbers": numbers, "categories": shapes}
    )
    with Path("out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert label.tolist() == [row["label"] for row in rows]
    np.testing.assert_allclose(probability.max(axis=1), [float(row["probability"]) for row in rows], atol=1e-5)
    np.testing.assert_allclose(features, np.load("f.npy"), atol=1e-5 * np.abs(features).max())


def test_a_dry_run_writes_nothing(here):
    before = sorted(os.listdir())
    done = call("fit", here / "things.csv", "--label", "colour", "-o", "m.ldsu", "--dry-run", "--json")
    summary = json.loads(done.stdout)
    assert summary["dry_run"] is True
    assert summary["expected_seconds"] > 0
    assert summary["expected_bytes"] > 0
    assert call("compare", here / "things.csv", "--label", "colour", "--out", "c", "--dry-run").exit_code == 0
    assert sorted(os.listdir()) == before


def test_json_is_one_object_and_quiet_is_silence(here):
    quiet = call("fit", here / "things.csv", "--label", "colour", "-o", "m.ldsu", "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")
    spoken = call("fit", here / "things.csv", "--label", "colour", "-o", "m.ldsu", "--json")
    summary = json.loads(spoken.stdout)
    assert summary["bytes"] == Path("m.ldsu").stat().st_size
    assert summary["labelled"] == {"blue": 4, "green": 4, "red": 4}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "things.csv", "--label", "color"], "things.csv has no column 'color'. Did you mean 'colour'?"),
        (["fit", "things.csv"], "does not say which column holds the labels"),
        (["fit", "nothing.csv", "--label", "y"], "nothing.csv"),
        (["fit", "bad.csv", "--label", "colour"], "bad.csv"),
        (["fit", "things.csv", "--label", "colour", "--number", "shape"], "line 2, column 'shape'"),
        (["fit", "things.csv", "--label", "colour", "--text", "shape", "--ignore", "shape"], "said to be two things"),
        (["fit", "things.csv", "--label", "colour", "-o", "things.csv"], "exists and is no .ldsu file"),
        (["predict", "things.ldsu", "new.csv", "-o", "out.xlsx"], "has no known ending"),
        (["predict", "things.ldsu", "new.csv", "--json"], "name a file for the rows"),
        (["predict", "things.csv", "new.csv"], "is not an ldsu model"),
        (["predict", "things.ldsu", "truth.txt"], "lacks 'size', 'weight', 'shape'"),
        (["predict", "things.ldsu", "new.csv", "--keep", "sise"], "Did you mean 'size'?"),  # codespell:ignore sise
        (["predict", "things.ldsu", "new.csv", "-o", "new.csv"], "would be written over"),
        (["export", "things.ldsu", "-o", "things.ldsu"], "would be written over"),
        (["fit", "things.csv", "--label", "colour", "--ignore", "colour"], "is the column of labels"),
        (["predict", "nothing.ldsu", "new.csv"], "nothing.ldsu"),
        (["inspect", "new.csv"], "is not an ldsu model"),
        (["export", "new.csv", "-o", "x.onnx"], "is not an ldsu model"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(folder, monkeypatch, arguments, said):
    monkeypatch.chdir(folder)
    (folder / "bad.csv").write_text("size,colour\n1,red\n2,blue,3\n")
    before = {name: (folder / name).stat().st_mtime_ns for name in os.listdir(folder)}
    done = call(*arguments)
    assert done.exit_code in (1, 2)
    assert said in done.output
    assert done.output.startswith("Error: ")
    assert done.output.count("\n") == 1
    assert {name: (folder / name).stat().st_mtime_ns for name in os.listdir(folder)} == before


def test_a_model_saved_from_python_is_not_taken_for_a_tables(here):
    from ldsu import KPCA
    from ldsu.models import save_model

    save_model(KPCA(n_components=2).fit(np.eye(5)), "kpca.ldsu")
    done = call("predict", "kpca.ldsu", here / "new.csv")
    assert done.exit_code == 2
    assert "holds a KPCA that was saved from Python" in done.output


def test_a_table_too_large_for_memory_is_refused_before_the_fit(here, monkeypatch):
    monkeypatch.setattr("ldsu.memory.available_memory", lambda: 2**16)
    done = call("fit", here / "things.csv", "--label", "colour", "-o", "m.ldsu")
    assert done.exit_code == 1
    assert "is available" in done.output
    assert not Path("m.ldsu").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell):
    assert "_LDSU_COMPLETE" in call("completion", shell).output


def test_bash_completes_commands_and_options():
    answers = {}
    for words in ("ldsu pre", "ldsu fit --lab"):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_LDSU_COMPLETE": "bash_complete"}
        done = subprocess.run(
            [sys.executable, "-m", "ldsu"], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60
        )
        answers[words] = done.stdout.split()
    assert answers["ldsu pre"] == ["plain,predict"]
    assert set(answers["ldsu fit --lab"]) == {"plain,--label", "plain,--labels"}


def test_help_comes_without_the_libraries_that_take_time():
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom ldsu.cli import cli\n"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0\n"
        "assert CliRunner().invoke(cli, ['fit', '--help']).exit_code == 0\n"
        "print(sorted({'numpy', 'scipy', 'sklearn', 'pyarrow', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_compare_writes_a_report_of_all_methods(here):
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "ldsu", "compare", here / "things.csv", "--label", "colour", "--repetitions", "2"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - start < 300
    out = Path("things-comparison")
    page = (out / "index.html").read_text()
    from ldsu.bench.owndata import METHODS

    with (out / "table.csv").open() as file:
        found = {row["method"] for row in csv.DictReader(file)}
    assert found == set(METHODS)
    assert "Methods on things.csv" in page
    assert "LDSU against the others" in page
    # The experiment can be continued, or run again, as any other.
    status = call("bench", "status", out / "comparison.toml", "--store", out / "comparison.sqlite", "--json")
    (row,) = json.loads(status.output)
    assert row["done"] == row["total"]


def test_compare_needs_four_labels_of_two_classes(here):
    write_csv("few.csv", [["1", "a"], ["2", "a"], ["3", "b"], ["4", ""], ["5", ""]], ("size", "class"))
    done = call("compare", "few.csv", "--label", "class")
    assert done.exit_code == 2
    assert "at least two classes with 4 labels or more; in 'class' the classes have 2, 1" in done.output
