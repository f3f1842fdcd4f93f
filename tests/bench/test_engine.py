"""The shared way of an experiment gives what independent fits give."""

import dataclasses
import time

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from ldsu import BlockScaler, Problem
from ldsu._utils.arrays import Arrays
from ldsu._utils.stages import StageCache
from ldsu.bench import engine
from ldsu.bench.experiment_file import load_experiment
from ldsu.bench.families import FAMILIES
from ldsu.bench.linalg import algebra_on
from ldsu.bench.protocol import few_labels, folds, label_order, load_split
from ldsu.bench.selection import group_rows, honest
from ldsu.bench.tasks import STAGES, Task
from ldsu.solvers import Settings

FILE = """
[protocol]
repetitions = 2
C = [1e-2, 1, 1e2]
labels = [1, 3]
[[data]]
name = "digits"
rows = 160
{kernel}
[[method]]
name = "{method}"
{grid}
"""
SECONDS = [f"seconds_{stage}" for stage in STAGES]
FEATURES = [name for name, family in FAMILIES.items() if family.features is not None and name != "UMAP"]


@pytest.fixture
def experiment(tmp_path):
    def make(method, grid="", kernel=""):
        path = tmp_path / "small.toml"
        path.write_text(FILE.format(method=method, grid=grid, kernel=kernel and f'kernel = "{kernel}"'))
        return load_experiment(path)

    return make


def run(experiment, split=0, done=lambda cell: False):
    return [row for rows in engine.run_task(experiment, Task("digits", split), done, lambda text: None) for row in rows]


def mean_precision(y, scores):
    return np.mean([average_precision_score(y == label, scores[:, label]) for label in np.unique(y)])


@pytest.mark.parametrize("kernel", ["rbf", "chi2"])
@pytest.mark.parametrize("name", FEATURES)
def test_shared_features_score_as_an_independent_fit_does(name, kernel, experiment):
    small = experiment(name, kernel=kernel)
    split = load_split(small, "digits", 0)
    family = FAMILIES[name]
    params = {key: value for key, value in family.defaults.items() if key != "C"}
    for row in run(small):
        if row.cell.fold >= 0 or row.cell.C != 1:
            continue
        y = few_labels(split, row.cell.labels)
        if name == "SVM-RBF":
            scores = (
                family.estimator({**params, "C": 1.0}, kernel).fit(split.X_train, y).decision_function(split.X_test)
            )
        else:
            features = family.estimator(params, kernel).fit(split.X_train, y)
            Z, Z_new = features.transform(split.X_train), features.transform(split.X_test)
            scaler = BlockScaler().fit(Z)
            machine = OneVsRestClassifier(SVC(kernel="linear", C=1.0, max_iter=10_000))
            machine.fit(scaler.transform(Z[y >= 0]), y[y >= 0])
            scores = machine.decision_function(scaler.transform(Z_new))
        assert row.error is None
        assert row.map == pytest.approx(mean_precision(split.y_test, scores), abs=2e-3), row.cell


def test_scores_do_not_depend_on_the_order_in_which_a_task_is_run(experiment):
    grid = "[method.grid]\ngamma_scale = [1, 2, 4]\nlam = [0.1, 10]\nn_components = [0.2, 0.6]"
    small = experiment("LDSU truncate", grid)
    whole = {row.cell: row.map for row in run(small)}
    half = set(list(whole)[::3])
    rest = {row.cell: row.map for row in run(small, done=half.__contains__)}
    assert set(whole) - half <= set(rest)
    assert all(whole[cell] == pytest.approx(score, abs=1e-9) for cell, score in rest.items())


def test_a_task_has_as_many_rows_as_announced_and_none_twice(experiment):
    for name in ("LDSU", "KDA", "LabelSpreading", "SelfTraining", "KNN"):
        small = experiment(name, "[method.honest]\n" + ("strength = [1, 10]" if name == "LDSU" else ""))
        rows = run(small)
        assert len({row.cell for row in rows}) == len(rows) == len(list(engine.wanted_cells(small, Task("digits", 0))))
        assert {row.cell.fold for row in rows if row.cell.labels == 3} == {-1, 0, 1, 2}
        assert {row.cell.fold for row in rows if row.cell.labels == 1} == {-1}
        assert all(0 < row.map <= 1 and 0 <= row.accuracy <= 1 and row.seed == 0 and row.peak_mib > 0 for row in rows)


def test_classifiers_of_other_kinds_score_as_they_do_alone(experiment):
    for name in ("LabelSpreading", "SelfTraining", "RandomForest", "LogisticRegression", "HistGradientBoosting", "KNN"):
        quick = {"RandomForest": "n_estimators = 9", "HistGradientBoosting": "max_iter = 2"}.get(name, "")
        small = experiment(name, f"default = {{ {quick} }}")
        split = load_split(small, "digits", 0)
        for row in run(small):
            y = few_labels(split, row.cell.labels)
            family = FAMILIES[name]
            model = family.estimator(small.methods[0].default, "rbf").fit(split.X_train, y)
            scores = (
                model.decision_function(split.X_test) if name == "SelfTraining" else model.predict_proba(split.X_test)
            )
            assert row.map == pytest.approx(mean_precision(split.y_test, scores))
            assert row.accuracy == np.mean(scores.argmax(axis=1) == split.y_test)


def test_a_setting_that_fails_becomes_rows_with_the_reason(experiment, monkeypatch):
    def fail(*arguments):
        raise ValueError("no such luck")

    monkeypatch.setitem(FAMILIES, "KDA", type(FAMILIES["KDA"])(**{**vars(FAMILIES["KDA"]), "features": fail}))
    rows = run(experiment("KDA"))
    assert rows
    assert all(row.map is None and "no such luck" in row.error for row in rows)


def test_test_labels_are_read_for_scores_alone(experiment, monkeypatch):
    # With other test labels every cross-validation row is the same.
    small = experiment("LDSU", "[method.honest]\nstrength = [1, 10]")
    split = load_split(small, "digits", 0)
    before = {row.cell: row.map for row in run(small) if row.cell.fold >= 0}
    shuffled = type(split)(**{**vars(split), "y_test": np.roll(split.y_test, 7)})
    monkeypatch.setattr(engine, "load_split", lambda *arguments: shuffled)
    assert {row.cell: row.map for row in run(small) if row.cell.fold >= 0} == before


def test_halves_share_no_row_and_labels_are_nested(experiment):
    split = load_split(experiment("KDA"), "digits", 1)
    assert len(split.y_train) == len(split.y_test) == 80
    assert not {row.tobytes() for row in split.X_train} & {row.tobytes() for row in split.X_test}
    few, more = few_labels(split, 1), few_labels(split, 3)
    assert np.bincount(few[few >= 0]).tolist() == [1] * 10
    assert np.bincount(more[more >= 0]).tolist() == [3] * 10
    assert np.all((few < 0) | (more == few))


def test_repetitions_differ_and_repeat_exactly(experiment):
    small = experiment("KDA")
    first, again, second = (load_split(small, "digits", split) for split in (0, 0, 1))
    assert np.array_equal(first.X_train, again.X_train)
    assert np.array_equal(first.order, again.order)
    assert not np.array_equal(first.X_train, second.X_train)


def test_folds_hide_each_label_once():
    y = np.repeat(np.arange(4), 9)
    order = label_order(y, 0)
    few = np.where(order < 5, y, -1)
    parts = folds(few, 5, 3, seed=0)
    assert np.array_equal(np.sort(np.concatenate([held_out for _, held_out in parts])), np.flatnonzero(few >= 0))
    for fewer, held_out in parts:
        assert np.all(fewer[held_out] == -1)
        assert np.sum(fewer >= 0) + held_out.size == 20
    assert folds(few, 2, 3, seed=0) == []


def test_labels_as_the_rows_come_are_nested_and_have_every_class():
    y = np.repeat([0, 1, 2, -1], [150, 40, 2, 30])
    sizes = []
    for seed in range(20):
        order = label_order(y, seed, "rows")
        labelled = [set(np.flatnonzero(order < m)) for m in (10, 20, 50)]
        assert labelled[0] < labelled[1] < labelled[2]
        for m, rows in zip((10, 20, 50), labelled, strict=True):
            counts = np.bincount(y[list(rows)], minlength=3)
            assert counts.min() >= 1
            assert m <= len(rows) <= m + 2
            sizes.append(counts / m)
    assert np.mean(sizes, axis=0) == pytest.approx([0.78, 0.21, 0.05], abs=0.03)  # as in all rows, or one


def test_folds_leave_a_class_with_too_few_labels_as_it_is():
    y = np.array([0, 0, 0, 0, 1, 1, 1, 2, -1, -1])
    parts = folds(y, 8, 3, seed=0)
    assert np.array_equal(np.sort(np.concatenate([held_out for _, held_out in parts])), np.arange(7))
    assert all(fewer[7] == 2 and set(fewer[fewer >= 0]) == {0, 1, 2} for fewer, _ in parts)
    assert folds(np.array([0, 1, 1, 2, -1]), 4, 3, seed=0) == []


def test_folds_that_cannot_be_made_have_rows_without_a_score_and_the_default_stands(experiment):
    small = experiment("KNN", "[method.honest]\nn_neighbors = [1, 5]")
    small = dataclasses.replace(small, data=(dataclasses.replace(small.data[0], draw="rows", labels=(3, 60)),))
    rows = run(small)
    assert len(rows) == 2 * 2 * 4
    assert all(row.error is None for row in rows)
    assert {row.map is None for row in rows if row.cell.labels == 3 and row.cell.fold >= 0} == {True}
    assert {row.map is None for row in rows if row.cell.labels == 60 or row.cell.fold < 0} == {False}
    columns = [{**vars_of(row.cell), **vars_of(row), **dict.fromkeys(SECONDS, 0.0)} for row in rows]
    chosen = {labels: honest(group, {"n_neighbors": 5}) for (_, labels, _), group in group_rows(columns).items()}
    assert {labels: choice.how for labels, choice in chosen.items()} == {3: ("default",), 60: ("cross-validation",)}


def vars_of(item):
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}


def test_shared_stages_are_computed_once(experiment):
    made = []

    class Counting(Arrays):
        def eigh(self, A):
            made.append(A.shape)
            return super().eigh(A)

    split = load_split(experiment("KDA"), "digits", 0)
    problem = Problem.once_for(split.X_train, split.X_test, arrays=Counting(), keep=2, reusable=True)
    for round_ in range(3):
        kernel = problem.kernel(kernel="rbf", gamma_scale=2.0)
        problem.basis(kernel)
        problem.clique_graph(kernel, Settings())
        relied_on, made_now = problem.take_seconds()
        assert relied_on > 0  # reported to every user
        assert (made_now > 0) == (round_ == 0)
    assert len(made) == 1
    problem.basis(problem.kernel(kernel="rbf", gamma_scale=1.0))
    assert len(made) == 2


def test_the_time_of_a_shared_stage_is_its_own_and_is_reported_to_every_user_once():
    work = StageCache(keep=1)

    def outer():
        time.sleep(0.02)
        return work.once("inner", 1, lambda: time.sleep(0.04))

    for round_ in range(2):
        for _ in range(3):
            work.once("outer", 1, outer)
        relied_on, made_now = work.take_seconds()
        assert relied_on == pytest.approx(0.06 if round_ == 0 else 0.02, abs=0.015)
        assert made_now == pytest.approx(0.06 if round_ == 0 else 0.0, abs=0.015)


def test_an_unknown_device_is_refused_by_name():
    with pytest.raises(ValueError, match=r"device = 'tpu'.*cpu, cuda"):
        algebra_on("tpu")


def test_a_stand_alone_fit_is_measured(experiment):
    small = experiment("LDSU")
    (item,) = engine.cost_tasks(small)
    assert item == ("digits", "LDSU", 1)
    cost = engine.measure_cost(small, item)
    assert cost["seconds_fit"] > 0
    assert cost["seconds_transform"] > 0


@pytest.mark.slow
def test_umap_runs_under_the_same_protocol(experiment):
    pytest.importorskip("umap", reason="umap-learn is not installed")
    small = experiment("UMAP", "default = { dimensions = 2, n_neighbors = 5 }")
    rows = run(small)
    assert len(rows) == len(list(engine.wanted_cells(small, Task("digits", 0))))
    assert all(row.error is None and row.n_features == 2 for row in rows)
    assert max(row.map for row in rows) > 0.3  # ten classes: chance is 0.1


def test_a_gpu_gives_the_numbers_of_the_cpu():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    rng = np.random.default_rng(0)
    n = 1600
    A, B = rng.standard_normal((2, n, n))
    cpu, gpu = algebra_on("cpu"), algebra_on("cuda")
    np.testing.assert_allclose(gpu.dot(A, B), cpu.dot(A, B), atol=1e-9)
    S = A @ A.T / n + np.eye(n)
    R = B @ B.T / n + np.eye(n)
    np.testing.assert_allclose(gpu.eigh(S.copy())[0], cpu.eigh(S.copy())[0], rtol=1e-9)
    np.testing.assert_allclose(gpu.solve(S.copy(), B[:, :5], 1.0), cpu.solve(S.copy(), B[:, :5], 1.0), atol=1e-9)
    values, vectors = gpu.generalized_eigh(S.copy(), R.copy())
    np.testing.assert_allclose(values, cpu.generalized_eigh(S.copy(), R.copy())[0], rtol=1e-9)
    np.testing.assert_allclose(S @ vectors, R @ vectors * values, atol=1e-8)
