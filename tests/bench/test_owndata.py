"""Experiments on data of one's own and on tables: what is taken; rows without a label can only be learned from."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from ldsu.bench import report, runner
from ldsu.bench.experiment_file import load_experiment
from ldsu.bench.owndata import METHODS, plan_comparison, write_comparison
from ldsu.bench.protocol import few_labels, load_split
from ldsu.bench.sources import load_data, size_of, write_data
from ldsu.bench.store import Store
from ldsu.tables import Table, prepare, read_table


def task_of(counts, unlabelled, n_columns=3):
    """Labelled rows of classes a, b, ..., and unlabelled ones, as a task."""
    import pyarrow as pa

    labels = [name for name, count in zip("abcdefgh", counts, strict=False) for _ in range(count)] + [None] * unlabelled
    X = np.random.default_rng(0).normal(size=(len(labels), n_columns))
    return prepare(Table(Path("own.npz"), pa.table({"y": pa.array(labels, pa.string())}), X, label_name="y"), None)


def test_rows_without_a_label_are_learned_from_and_never_judged(tmp_path):
    plan = plan_comparison(task_of([8, 8], 30), repetitions=2, rows=1000)
    experiment = load_experiment(write_comparison(plan, tmp_path))
    (spec,) = experiment.data
    assert size_of(spec) == (46, 2)
    for number in range(2):
        split = load_split(experiment, spec.key, number)
        assert len(split.y_test) == 8
        assert np.all(split.y_test >= 0)
        assert len(split.y_train) == 38
        assert np.sum(split.y_train < 0) == 30
        for labels in plan.labels:
            seen = few_labels(split, labels)
            assert np.bincount(seen[seen >= 0]).tolist() == [labels, labels]
        # Both parts together are all rows, each once.
        rows = np.vstack([split.X_train, split.X_test])
        assert len(np.unique(rows, axis=0)) == 46


def test_classes_with_few_labels_are_left_out_and_named():
    plan = plan_comparison(task_of([6, 3, 9], 10), repetitions=2, rows=1000)
    assert plan.classes == ["a", "c"]
    assert plan.notes == ("Ignored classes with fewer than 4 labels: b.",)
    assert len(plan.y) == 6 + 9 + 10
    assert np.bincount(plan.y[plan.y >= 0]).tolist() == [6, 9]
    assert plan.labels == (1, 2, 3)


def test_of_many_rows_the_labelled_ones_are_taken_first():
    plan = plan_comparison(task_of([30, 20], 400), repetitions=2, rows=100)
    assert len(plan.y) == 100
    assert np.bincount(plan.y[plan.y >= 0]).tolist() == [30, 20]
    assert plan.labels == (1, 3, 5, 10)
    fewer = plan_comparison(task_of([300, 20], 0), repetitions=2, rows=60)
    assert np.bincount(fewer.y).tolist() == [40, 20]


def test_enfs_is_left_out_where_there_are_thousands_of_columns():
    plan = plan_comparison(task_of([6, 6], 0, n_columns=2001), repetitions=2, rows=100)
    assert set(METHODS) - set(plan.methods) == {"EnFS"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read as data"),
        (b"not an archive", "cannot be read as data"),
        ({"X": np.eye(3), "y": np.array([0, 1, 2]), "classes": np.array(["a", "b"])}, "class numbers below 2 or -1"),
        ({"X": np.eye(3), "y": np.array([0, 1]), "classes": np.array(["a", "b"])}, "must hold X"),
    ],
)
def test_a_file_that_holds_no_data_is_refused_in_a_sentence(content, said, tmp_path):
    plan = plan_comparison(task_of([6, 6], 5), repetitions=2, rows=100)
    experiment = load_experiment(write_comparison(plan, tmp_path))
    if isinstance(content, bytes):
        (tmp_path / "data.npz").write_bytes(content)
    else:
        np.savez(tmp_path / "data.npz", **content, image_shape=np.array([], dtype=int))
    with pytest.raises(ValueError, match=said):
        load_data(experiment.data[0])
    (tmp_path / "data.npz").unlink()
    with pytest.raises(ValueError, match=r"File .* not found"):
        load_data(experiment.data[0])


def test_results_of_other_data_under_the_same_name_are_not_mixed(tmp_path):
    plan = plan_comparison(task_of([6, 6], 5), repetitions=2, rows=100)
    path = write_comparison(plan, tmp_path)
    before = runner.protocol(load_experiment(path))
    load_data.cache_clear()
    assert runner.protocol(load_experiment(path)) == before
    write_data(tmp_path / "data.npz", plan.X + 1, plan.y, plan.classes, ())
    load_data.cache_clear()
    assert runner.protocol(load_experiment(path)) != before


TABLES = """
[protocol]
repetitions = 1
labels = [1, 3]
[[data]]
table = "flowers"
[[data]]
table = "flowers"
draw = "rows"
labels = [9]
rows = 40
[[method]]
name = "KNN"
[method.honest]
n_neighbors = [1, 3]
"""


@pytest.fixture
def flowers(tmp_path, monkeypatch):
    """An experiment on a table of 60 rows, 7 of them of a rare class, and with missing values."""
    monkeypatch.setenv("LDSU_DATA", str(tmp_path / "data"))
    rng = np.random.default_rng(0)
    lines = ["width,color,class"]
    for name, count in (("rose", 33), ("lily", 20), ("rare", 7)):
        width = rng.normal(3.0 if name == "rose" else 6.0, size=count)
        lines += [f"{w:.2f},{'red' if w < 5 else ''},{name}" for w in width]
    (tmp_path / "data" / "tables").mkdir(parents=True)
    (tmp_path / "data" / "tables" / "flowers.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "small.toml").write_text(TABLES)
    load_data.cache_clear()
    return load_experiment(tmp_path / "small.toml")


def test_a_table_is_encoded_as_for_a_fit_and_rare_classes_are_dropped(flowers, tmp_path):
    dataset = load_data(flowers.data[0])
    assert dataset.classes == ("lily", "rose")
    assert np.bincount(dataset.y).tolist() == [20, 33]
    task = prepare(read_table(tmp_path / "data" / "tables" / "flowers.csv"), "class")
    assert np.array_equal(dataset.X, task.X[task.labels != "rare"])
    assert [size_of(spec) for spec in flowers.data] == [(53, 2), (40, 2)]


def test_both_ways_of_drawing_labels_have_rows_of_their_own_in_one_store_and_report(flowers, tmp_path):
    outcome = runner.run(flowers, tmp_path / "small.sqlite", jobs=1, quiet=True)
    assert outcome.exit_code == 0
    with Store(tmp_path / "small.sqlite") as store:
        found = {(row["data"], row["labels"]) for row in store.rows() if row["map"] > 0}
        assert found == {("flowers", 1), ("flowers", 3), ("flowers/rows", 9)}
        written = report.write_report(flowers, store, tmp_path / "report", pictures=False)
    page = written["html"].read_text(encoding="utf-8")
    assert "KNN, flowers, 3 labels per class" in page
    assert "KNN, flowers as the rows come, 9 labels in all" in page
    assert "| flowers as the rows come | 9 |" in written["markdown"].read_text(encoding="utf-8")


def test_a_table_that_is_not_there_is_refused_before_anything_runs(flowers, tmp_path):
    (tmp_path / "data" / "tables" / "flowers.csv").unlink()
    with pytest.raises(ValueError, match=r"Table 'flowers' not found: tables/flowers.csv is neither in LDSU_DATA"):
        runner.run(flowers, tmp_path / "small.sqlite", jobs=1, quiet=True)


def test_the_tables_of_the_project_can_be_split(data_folder, monkeypatch):
    experiments = Path(__file__).parents[2] / "experiments"
    monkeypatch.setenv("LDSU_DATA", str(data_folder("tables/zoo.csv", "tables/page-blocks.csv")))
    experiment = load_experiment(experiments / "tables.toml")
    for key, rows in (("zoo", 92), ("page-blocks/rows", 4000)):
        split = load_split(experiment, key, 0)
        assert len(split.y_train) + len(split.y_test) == rows
        assert np.bincount(split.y_train).size == np.unique(split.y_test).size == 5
        assert np.unique(few_labels(split, 1)).tolist() == [-1, 0, 1, 2, 3, 4]
