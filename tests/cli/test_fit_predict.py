"""`ldsu fit`, `predict`, `transform`, `inspect`, `export`, `compare` and `completion`, as a user runs them."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from ldsu.cli import cli
from ldsu.io import load_model, read_container, write_container
from ldsu.tables.readers import read_table

COLOURS = ("red", "green", "blue")
NEW = ("-o", "m.ldsu")
# Commands by the file that each writes.
WRITERS = {
    "m.ldsu": ["fit", "things.csv", "--label", "colour"],
    "l.csv": ["predict", "things.ldsu", "new.csv"],
    "f.npy": ["transform", "things.ldsu", "new.csv"],
    "m.onnx": ["export", "things.ldsu"],
}


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
    """A table with four labels per class, new rows, their truth, and a model."""
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
    printed = (folder / "fit.txt").read_text()
    assert "150 rows, 12 of them labelled in 'colour'" in printed
    assert "blue 4, green 4, red 4" in printed
    assert "standardized" in printed
    assert "one-hot encoded; 3 levels" in printed
    assert "rbf kernel, exact solver; " in printed
    assert "leave-one-out accuracy on your labels: " in printed
    assert "contains the training rows and is readable only by you" in printed
    assert f"ldsu predict {folder / 'things.ldsu'}" in printed


def test_given_class_shares_are_kept_in_the_model(here):
    shares = {"blue": 0.2, "green": 0.3, "red": 0.5}
    given = ",".join(f"{name}={share}" for name, share in shares.items())
    done = call("fit", here / "things.csv", "--label", "colour", "--class-shares", given, "-o", "shares.ldsu")
    assert done.exit_code == 0, done.output
    classifier = load_model("shares.ldsu").classifier
    assert classifier.class_shares == shares
    np.testing.assert_allclose(classifier.class_shares_, [0.2, 0.3, 0.5])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("even", "--class-shares 'even' is not auto, equal, labels, or NAME=SHARE"),
        ("blue=0.5,green=much,red=0.5", "such as yes=0.9,no=0.1"),
        ("blue=0.5,red=0.5", "the classes with a label are ['blue', 'green', 'red']"),
        ("blue=0.5,green=0.5,red=0.5", "positive numbers that sum to 1"),
    ],
)
def test_class_shares_that_do_not_fit_are_an_error_in_one_sentence(here, given, message):
    done = call("fit", here / "things.csv", "--label", "colour", "--class-shares", given, "-o", "shares.ldsu")
    assert done.exit_code == 2
    assert message in done.output
    assert not Path("shares.ldsu").exists()


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
    assert "1 row(s) have a value in 'shape' that is in no training row" in done.output
    assert "1 row(s) are far from all training rows: their labels are unreliable" in done.output
    with Path("out.csv").open() as file:
        far = next(csv.DictReader(file))
    assert float(far["confidence"]) < 1e-3
    assert float(far["familiarity"]) == 0


def test_names_from_files_do_not_steer_the_terminal(here):
    rows = [[str(i % 7), str(i % 5), COLOURS[i % 3] if i < 12 else ""] for i in range(60)]
    write_csv("odd.csv", rows, ("size [kg]", "we\x1b]0;ight", "col [bold]our"))
    printed = call("fit", "odd.csv", "--label", "col [bold]our", "--dry-run").output
    assert "labelled in 'col [bold]our'" in printed
    assert "size [kg]" in printed
    assert "\x1b]0;" not in printed


def test_a_fit_that_expects_little_says_so(here):
    rng = np.random.default_rng(0)
    rows = [[*rng.normal(size=3).round(3), COLOURS[i % 2] if i < 30 else ""] for i in range(200)]
    write_csv("noise.csv", rows, ("a", "b", "c", "colour"))
    assert "hardly better than chance" in call("fit", "noise.csv", "--label", "colour", "-o", "n.ldsu").output


def test_transform_writes_the_features_that_predict_rests_on(here):
    call("transform", here / "things.ldsu", here / "new.csv", "-o", "f.npy")
    features = np.load("f.npy", allow_pickle=False)
    assert features.shape[0] == 60
    call("transform", here / "things.ldsu", here / "new.csv", "-o", "f.csv", "--keep", "shape")
    frame = read_table("f.csv").frame
    assert frame.num_columns == features.shape[1] + 2
    np.testing.assert_allclose([float(v) for v in frame.column(1).to_pylist()], features[:, 0], rtol=1e-12)


def test_inspect_shows_what_a_model_was_fitted_to(here):
    printed = call("inspect", here / "things.ldsu").output
    for words in ("things.csv", "blue 4, green 4, red 4", "one-hot encoded", "scikit-learn", "TableModel"):
        assert words in printed
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
    spoken = call("fit", here / "things.csv", "--label", "colour", "-o", "m.ldsu", "--json", "--force")
    summary = json.loads(spoken.stdout)
    assert summary["bytes"] == Path("m.ldsu").stat().st_size
    assert summary["labelled"] == {"blue": 4, "green": 4, "red": 4}


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["fit", "things.csv", "--label", "color", *NEW], "things.csv has no column 'color'. Did you mean 'colour'?"),
        (["fit", "things.csv", *NEW], "does not name a label column"),
        (["fit", "nothing.csv", "--label", "y"], "nothing.csv"),
        (["fit", "bad.csv", "--label", "colour"], "bad.csv"),
        (["fit", "things.csv", "--label", "colour", "--number", "shape", *NEW], "line 2, column 'shape'"),
        (["fit", "things.csv", "--label", "colour", "--text", "shape", "--ignore", "shape", *NEW], "has two options"),
        (["fit", "things.csv", "--label", "colour", "-o", "things.csv", "--force"], "exists and is not a .ldsu file"),
        (["predict", "things.ldsu", "new.csv", "-o", "out.xlsx"], "has an unknown suffix"),
        (["predict", "things.ldsu", "new.csv", "--json"], "write the rows to a file with --output"),
        (["predict", "things.csv", "new.csv"], "is not an ldsu model"),
        (["predict", "new.csv", "things.ldsu"], "Give the model first: ldsu predict things.ldsu new.csv"),
        (["transform", "new.csv", "things.ldsu"], "Give the model first: ldsu transform things.ldsu new.csv"),
        (["transform", "things.ldsu", "new.csv", "-o", "f.npy", "--keep", "size"], "--keep needs an output in CSV"),
        (
            ["transform", "things.ldsu", "new.csv", "-o", "f.csv", "--keep", "sizee"],
            "Did you mean 'size'?",
        ),
        (["predict", "things.ldsu", "truth.txt"], "lacks 'size', 'weight', 'shape'"),
        (["predict", "things.ldsu", "new.csv", "--keep", "sizee"], "Did you mean 'size'?"),
        (["predict", "things.ldsu", "new.csv", "-o", "new.csv", "--force"], "is an input of this command"),
        (["export", "things.ldsu", "-o", "things.ldsu", "--force"], "is an input of this command"),
        (["fit", "things.csv", "--label", "colour", "--ignore", "colour", *NEW], "is the label column"),
        (["predict", "nothing.ldsu", "new.csv"], "nothing.ldsu"),
        (["inspect", "new.csv"], "is not an ldsu model"),
        (["export", "new.csv", "-o", "x.onnx"], "is not an ldsu model"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(folder, monkeypatch, arguments, printed):
    monkeypatch.chdir(folder)
    (folder / "bad.csv").write_text("size,colour\n1,red\n2,blue,3\n")
    before = {name: (folder / name).stat().st_mtime_ns for name in os.listdir(folder)}
    done = call(*arguments)
    assert done.exit_code in (1, 2)
    assert printed in done.output
    assert done.output.startswith("Error: ")
    assert done.output.count("\n") == 1
    assert {name: (folder / name).stat().st_mtime_ns for name in os.listdir(folder)} == before


@pytest.fixture
def copies(here):
    """Copies of the table, the new rows and the model in an empty folder."""
    for name in ("things.csv", "new.csv", "things.ldsu"):
        shutil.copy(here / name, name)


@pytest.mark.parametrize("name", WRITERS)
def test_an_existing_output_is_refused_before_the_work_and_replaced_by_force(copies, name, monkeypatch):
    if name.endswith("onnx"):
        pytest.importorskip("onnx", reason="onnx is not installed")
    Path(name).write_text("mine")
    with monkeypatch.context() as patched:
        for work in ("ldsu.tables.readers.read_table", "ldsu.io.load_model"):
            patched.setattr(work, lambda *_, **__: pytest.fail("it began to work"))
        done = call(*WRITERS[name], "-o", name)
    assert done.exit_code == 2
    assert done.output == f"Error: {name} exists. Choose another name, or replace it with --force.\n"
    assert Path(name).read_text() == "mine"
    assert call(*WRITERS[name], "-o", name, "-q", "-f").exit_code == 0
    assert Path(name).read_bytes() != b"mine"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_a_user_at_a_terminal_is_asked_before_an_output_is_replaced(copies, answer, code):
    Path("l.csv").write_text("mine")
    master, slave = os.openpty()
    try:
        os.write(master, f"{answer}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "ldsu", *WRITERS["l.csv"], "-o", "l.csv"],
            stdin=slave,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert "l.csv exists. Replace it? [y/N]" in done.stderr
    assert done.returncode == code, done.stderr
    assert (Path("l.csv").read_text() == "mine") == (answer == "n")


@pytest.mark.parametrize("name", WRITERS)
def test_an_output_in_a_folder_that_is_not_there_is_refused_and_no_folder_is_made(copies, name):
    done = call(*WRITERS[name], "-o", Path("nowhere", "else", name))
    assert done.exit_code == 1
    assert f"{Path.cwd() / 'nowhere' / 'else'} does not exist). Create the folder first" in done.output
    assert not Path("nowhere").exists()


def test_without_onnx_the_export_names_the_extra_before_the_work(copies, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr("ldsu.io.load_model", lambda *_, **__: pytest.fail("it began to work"))
    done = call("export", "things.ldsu", "-o", "m.onnx")
    assert done.exit_code == 1
    assert done.output.count("\n") == 1
    assert "pip install 'ldsu[onnx]'" in done.output


@pytest.mark.parametrize("installed", [False, True])
def test_a_device_that_is_not_there_is_refused_before_the_work(copies, installed, monkeypatch):
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch if installed else None)
    monkeypatch.setattr("ldsu.tables.readers.read_table", lambda *_, **__: pytest.fail("it began to work"))
    done = call(*WRITERS["m.ldsu"], "-o", "m.ldsu", "--device", "cuda")
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert ("finds no CUDA device" if installed else "pip install 'ldsu[gpu]'") in done.output


@pytest.mark.parametrize(
    ("labels", "is_warned_of"),
    [
        ([str(i * i) for i in range(40)], True),
        ([f"{i / 7:.3f}" for i in range(40)], True),
        ([str(i + 1) for i in range(40)], False),
        ([f"class {i}" for i in range(40)], False),
        ([str(1 + i / 3)[:3] for i in range(12)], False),
    ],
    ids=["whole numbers", "fractions", "numbers of classes", "names", "a few grades"],
)
@pytest.mark.parametrize("command", ["fit", "compare"])
def test_labels_that_look_like_a_quantity_are_warned_of(here, command, labels, is_warned_of):
    rows = [[f"{i % 11}.5", f"{i % 7}", labels[i % len(labels)] if i < 160 else ""] for i in range(240)]
    write_csv("quantity.csv", rows, ("a", "b", "target"))
    done = call(command, "quantity.csv", "--label", "target", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    assert ("is regression, which is not supported" in done.stderr) == is_warned_of


def test_a_label_column_with_a_number_for_every_row_is_refused_with_a_hint_at_regression(here):
    write_csv("quantity.csv", [[f"{i % 11}.5", f"{i}.25"] for i in range(60)], ("a", "target"))
    done = call("fit", "quantity.csv", "--label", "target")
    assert done.exit_code == 2
    assert "60 different labels in 60 labelled rows. If 'target' is a quantity, this is regression" in done.output


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_files_with_training_rows_are_readable_by_their_owner_alone_and_say_so(copies):
    before = os.umask(0o022)
    try:
        for name in ("m.ldsu", "m.onnx"):
            if name.endswith("onnx"):
                pytest.importorskip("onnx", reason="onnx is not installed")
            printed = call(*WRITERS[name], "-o", name).output
            assert "contains the training rows and is readable only by you" in printed
            assert Path(name).stat().st_mode & 0o777 == 0o600
            Path(name).chmod(0o644)
            printed = call(*WRITERS[name], "-o", name, "--force").output
            assert f"is readable by others (change that with: chmod 600 {name})" in printed
            assert Path(name).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_rows_on_standard_output_are_utf8_whatever_it_is_set_to(here, encoding):
    names = ["gr\xf6\xdfe", "\u03bc", "\u4e2d"]
    rows = [[f"{i % 3}.{i % 10}", f"{i % 7}", names[i % 3] if i < 15 else ""] for i in range(60)]
    with Path("names.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["a", "b", names[1]], *rows])
    environment = os.environ | {"PYTHONIOENCODING": encoding, "LC_ALL": "C.UTF-8"}

    def run(*arguments):
        command = [sys.executable, "-m", "ldsu", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("fit", "names.csv", "--label", names[1], "-o", "n.ldsu")
    run("predict", "n.ldsu", "names.csv", "-o", "l.csv", "--keep-all")
    assert run("predict", "n.ldsu", "names.csv", "--keep-all") == Path("l.csv").read_bytes()
    assert b"n.ldsu" in run("inspect", "n.ldsu")


def test_a_model_holds_as_many_columns_as_its_file_holds_texts(here, monkeypatch):
    monkeypatch.setattr("ldsu.io.container.HEADER_ITEMS", 5000)
    rng = np.random.default_rng(0)
    names = [f"gene {j}" for j in range(5000)]
    rows = [[*np.round(rng.normal(4 * (i % 2), size=5000), 2), "ab"[i % 2]] for i in range(8)]
    write_csv("wide.csv", rows, (*names, "kind"))
    done = call("fit", "wide.csv", "--label", "kind", "-o", "wide.ldsu")
    assert done.exit_code == 0, done.output
    shown = json.loads(call("inspect", "wide.ldsu", "--json").stdout)["about"]["columns"]
    assert [row[:2] for row in shown] == [[name, "number"] for name in names]
    done = call("predict", "wide.ldsu", "wide.csv", "-o", "labels.csv", "--keep-all", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["given"] == {"column": "kind", "rows": 8, "met": 8}


def test_inspect_refuses_a_column_of_no_kind_in_a_sentence(here):
    record, arrays = read_container(here / "things.ldsu")
    record["model"]["fields"]["encoder"]["fields"]["columns"]["different"][0]["fields"]["kind"] = "eval"
    write_container("bad.ldsu", record, arrays)
    done = call("inspect", "bad.ldsu")
    assert done.exit_code == 1
    assert "bad.ldsu is not a valid model" in done.output


def test_a_table_with_more_texts_than_a_model_file_holds_is_refused_before_the_fit(here, monkeypatch):
    def too_late(*_, **__):
        raise AssertionError("it began to fit")

    monkeypatch.setattr("ldsu.tables.model.fit_task", too_late)
    monkeypatch.setattr("ldsu.io.container.HEADER_ITEMS", 50)
    done = call("fit", here / "things.csv", "--label", "colour", "-o", "x.ldsu")
    assert done.exit_code == 2
    assert "and a model file holds 64 MiB in 50. Give columns and classes fewer or shorter names." in done.output
    assert not list(Path().iterdir())


def test_a_model_saved_from_python_is_not_taken_for_a_tables(here):
    from ldsu import KPCA
    from ldsu.io import save_model

    save_model(KPCA(n_components=2).fit(np.eye(5)), "kpca.ldsu", about={"columns": ["width", "height"]})
    done = call("predict", "kpca.ldsu", here / "new.csv")
    assert done.exit_code == 2
    assert "holds a KPCA that was saved from Python" in done.output
    lines = call("inspect", "kpca.ldsu").output.splitlines()
    assert [line.split() for line in lines if line.startswith("columns")] == [
        ["columns", "width"],
        ["columns", "height"],
    ]


def test_a_table_too_large_for_memory_is_refused_before_the_fit(here, monkeypatch):
    monkeypatch.setattr("ldsu._utils.memory.available_memory", lambda: 2**16)
    done = call("fit", here / "things.csv", "--label", "colour", "-o", "m.ldsu")
    assert done.exit_code == 1
    assert "is available" in done.output
    assert not Path("m.ldsu").exists()


def test_a_table_larger_than_memory_is_fitted_with_files_and_said_before(monkeypatch, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 3200)
    columns = {f"x{j}": (3 * (kind == j) + rng.standard_normal(3200)).astype(np.float32) for j in range(3)}
    label = pa.array([COLOURS[k] if i < 30 else None for i, k in enumerate(kind.tolist())])
    pq.write_table(pa.table({**columns, "colour": label}), tmp_path / "large.parquet")
    monkeypatch.chdir(tmp_path)
    for name in ("tables.formats.limits", "tables.encoder", "methods.ldsu"):
        monkeypatch.setattr(f"ldsu.{name}.available_memory", lambda: 2**20)
    monkeypatch.setattr("ldsu.cli.reporter.LONG_STAGE", 0.0)
    planned = call("fit", "large.parquet", "--label", "colour", "--dry-run")
    assert "of temporary files in" in planned.output
    done = call("fit", "large.parquet", "--label", "colour", "-o", "m.ldsu")
    assert done.exit_code == 0, done.output
    assert "\nsolve " in done.output  # progress
    predicted = call("predict", "m.ldsu", "large.parquet", "-o", "l.csv")
    assert predicted.exit_code == 0, predicted.output
    with Path("l.csv").open() as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    assert np.mean(np.array(labels) == np.array(COLOURS)[kind]) > 0.85
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=1000))
    short = call("fit", "large.parquet", "--label", "colour", "-o", "n.ldsu")
    assert short.exit_code == 1
    assert "of temporary files, but 0.0 GiB is free" in short.output
    assert not Path("n.ldsu").exists()


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


@pytest.mark.parametrize("name", ["solver", "device", "kernel"])
def test_options_of_the_estimator_have_its_default_and_only_values_that_it_takes(name):
    from ldsu import LDSU

    (option,) = [option for option in cli.commands["fit"].params if option.name == name]
    assert option.default == LDSU().get_params()[name]
    for value in option.type.choices:
        LDSU(**{name: value})._validate_params()
    if name == "solver":  # the others offer a few of the values
        (allowed,) = LDSU._parameter_constraints[name]
        assert set(option.type.choices) == allowed.options


def test_the_option_scale_offers_all_scalings():
    from ldsu.tables.encoder import SCALINGS

    (option,) = [option for option in cli.commands["fit"].params if option.name == "scale"]
    assert [*option.type.choices] == ["auto", *SCALINGS]
    assert option.default == "auto"


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
    check_that_a_comparison_is_continued_or_replaced(here, out)


def check_that_a_comparison_is_continued_or_replaced(here, out):
    same = ("compare", here / "things.csv", "--label", "colour", "--repetitions", "2", "--jobs", "1", "-q")
    store = (out / "comparison.sqlite").stat().st_ino
    assert call(*same).exit_code == 0  # all is computed already
    assert (out / "comparison.sqlite").stat().st_ino == store
    table = (here / "things.csv").read_text().replace("round", "square", 1)
    Path("things.csv").write_text(table)
    other = ("compare", "things.csv", *same[2:])
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".sqlite"}
    refused = call(*other)
    assert refused.exit_code == 2
    assert f"Error: {out / 'data.npz'} exists and does not belong to this comparison." in refused.output
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".sqlite"} == before
    done = call(*other, "--force")
    assert done.exit_code == 0, done.output
    assert (out / "data.npz").read_bytes() != before["data.npz"]
    assert (out / "data.npz").stat().st_mode & 0o077 == 0 or os.name != "posix"


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps the name of an open file")
def test_compare_whose_store_is_deleted_says_so_and_writes_no_report(here, monkeypatch):
    monkeypatch.setattr("ldsu.bench.runner._Session.compute", lambda session, *_: session.store.path.unlink())
    done = call("compare", here / "things.csv", "--label", "colour", "--out", "c", "--quiet")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: The store comparison.sqlite was deleted or replaced while in use")
    assert len(done.stderr.splitlines()) == 1
    assert not (here / "c" / "index.html").exists()


def test_compare_needs_four_labels_of_two_classes(here):
    write_csv("few.csv", [["1", "a"], ["2", "a"], ["3", "b"], ["4", ""], ["5", ""]], ("size", "class"))
    done = call("compare", "few.csv", "--label", "class")
    assert done.exit_code == 2
    assert "at least two classes with 4 labels or more; in 'class' the classes have 2, 1" in done.output
