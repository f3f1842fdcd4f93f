"""Experiments on data of one's own: what is taken, and that rows without a label can only be learned from."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from ldsu.bench import runner
from ldsu.bench.experiment_file import load_experiment
from ldsu.bench.owndata import METHODS, plan_comparison, write_comparison
from ldsu.bench.protocol import few_labels, load_split
from ldsu.bench.sources import load_data, size_of, write_data
from ldsu.tables import Table, prepare


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
