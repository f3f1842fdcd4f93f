"""Other labels, and more rows, on a problem: the features of a fresh fit, without the work that depends on neither."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits

from conftest import few_labels
from ldsu import LDSU, LDSUClassifier, Problem
from ldsu._utils.arrays import arrays_on
from ldsu.graphs import clique_laplacian, clique_scatter
from ldsu.kernels import Kernel
from ldsu.solvers import AddedRows, JointSystem


def digits(n=400):
    X, y = load_digits(return_X_y=True)
    return X[:n], y[:n]


def accurate(**parameters):
    return LDSU(solver="sparse", tol=1e-10, strength=100.0, **parameters)


def gram(model, X):
    Z = model.transform(X[:50])
    return Z @ Z.T


def label_changes(y):
    """Labels, and the same with one more, one less, one changed, one of a new class, and all at once."""
    few = np.where(few_labels(y, 4) < 8, few_labels(y, 4), -1)
    rows, others = np.flatnonzero(few >= 0), np.flatnonzero(few < 0)
    more, less, changed, new = (few.copy() for _ in range(4))
    more[others[5]] = y[others[5]]
    less[rows[3]] = -1
    changed[rows[3]] = (changed[rows[3]] + 1) % 8
    new[others[y[others] == 9][0]] = 9
    every = few_labels(y, 6)
    return few, more, less, changed, new, every, few


def test_changed_labels_give_the_features_of_a_fresh_fit():
    X, y = digits()
    problem = Problem(X)
    for labels in label_changes(y):
        reused, fresh = accurate().fit(X, labels, problem=problem), accurate().fit(X, labels)
        np.testing.assert_array_equal(reused.anchors_, fresh.anchors_)
        np.testing.assert_allclose(gram(reused, X), gram(fresh, X), atol=1e-7)
        training, expected = (accurate().fit_transform(X, labels, **o) for o in ({"problem": problem}, {}))
        np.testing.assert_allclose(training @ training[:50].T, expected @ expected[:50].T, atol=1e-6)


def test_only_columns_of_new_labels_are_solved(monkeypatch):
    X, y = digits()
    few, more, less, changed, *_ = label_changes(y)
    problem, solved = Problem(X), []
    solve = JointSystem.solve

    def counted(self, anchors, P, *others, **options):
        solved.append((anchors.size, P.shape[1]))
        return solve(self, anchors, P, *others, **options)

    monkeypatch.setattr(JointSystem, "solve", counted)
    model = accurate(min_anchors=60, n_landmarks=100)
    for labels in (few, few, less, changed):
        model.fit(X, labels, problem=problem)
    anchors = max(60, int(np.sum(few >= 0)))
    assert solved[0] == (anchors, 100 + np.sum(few >= 0))
    # One label less makes another landmark an anchor; with it again, changed, only its own columns are missing.
    assert solved[1:] == [(1, 0), (1, 1)]
    model.fit(X, more, problem=problem)
    assert solved[-1] == (1, 1)


def test_a_fit_that_fails_leaves_problem_and_model_as_they_were():
    X, y = digits()
    few, more, *_ = label_changes(y)
    problem = Problem(X)
    model = accurate().fit(X, few, problem=problem)
    before = gram(model, X)
    for wrong in (more[:-1], np.where(more < 0, np.inf, more)):
        with pytest.raises(ValueError, match=r"rows but y|infinite"):
            model.fit(X, wrong, problem=problem)
    with pytest.raises(ValueError, match="samples other than X"):
        model.fit(X + 1, more, problem=problem)
    np.testing.assert_array_equal(gram(model, X), before)
    model.fit(X, more, problem=problem)
    np.testing.assert_allclose(gram(model, X), gram(accurate().fit(X, more), X), atol=1e-7)


def test_labels_one_after_another_keep_the_accuracy_of_fresh_fits():
    X, y = digits(900)
    few = few_labels(y, 3)
    others = np.random.default_rng(0).permutation(np.flatnonzero(few < 0))[:6]
    problem, differences = Problem(X), []
    for i, row in enumerate(others):
        few[row] = y[row]
        reused = LDSUClassifier(LDSU(solver="sparse")).fit(X, few, problem=problem)
        if i % 3 == 2:
            fresh = LDSUClassifier(LDSU(solver="sparse")).fit(X, few)
            assert reused.features_.strength_ == fresh.features_.strength_
            differences.append(np.mean(reused.transduction_ == y) - np.mean(fresh.transduction_ == y))
    assert max(np.abs(differences)) < 0.006


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
def test_integers_are_the_samples_that_a_problem_was_made_of(dtype):
    X, y = digits(200)
    X = X.astype(dtype)
    problem = Problem(X)
    few = few_labels(y, 2)
    np.testing.assert_allclose(gram(LDSU().fit(X, few, problem=problem), X), gram(LDSU().fit(X, few), X), atol=1e-9)
    other = X.copy()
    other[0, 0] = not other[0, 0]
    with pytest.raises(ValueError, match="samples other than X"):
        LDSU().fit(other, few, problem=problem)


@pytest.mark.parametrize("space", ["input", "kernel"])
@pytest.mark.parametrize("reusable", [False, True])
@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_added_rows_give_the_filtered_kernel_of_the_graph_with_their_cliques(space, reusable, device):
    if device == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    rows = np.sort(rng.choice(60, 40, replace=False))
    labelled = np.sort(rng.choice(60, 12, replace=False))
    kernel, settings = Kernel("rbf", 0.3), LDSU(cliques=space)._settings(40)
    base = Problem.once_for(X[rows], arrays=arrays_on(device), keep=6, reusable=reusable)
    for chosen in (labelled, labelled[1:], labelled):
        added = AddedRows(X, base, rows, chosen)
        every = np.concatenate([rows, added.added])
        K = kernel(X[every])
        scatter = clique_scatter(X[rows], K[:40, :40] if space == "kernel" else None, 3)
        theta = clique_laplacian(*scatter, 0.1, relative=True)[1]
        M = np.zeros(K.shape)
        M[:40, :40] = clique_laplacian(*scatter, theta)[0].toarray()
        unit, H = np.trace(M) / 40, np.eye(3) - 1 / 3
        for i in range(40, len(every)):
            clique = [i, *np.argsort(((X[rows] - X[every[i]]) ** 2).sum(axis=1))[:2]]
            points = X[every[clique]]
            G = K[np.ix_(clique, clique)] if space == "kernel" else points @ points.T
            M[np.ix_(clique, clique)] += H @ np.linalg.inv(H @ G @ H + theta * np.eye(3)) @ H
        at = [every.tolist().index(row) for row in chosen]
        for strength in (0.0, 10.0, 1000.0):
            expected = np.linalg.inv(np.linalg.inv(K) + strength / unit * M)[np.ix_(at, at)]
            found = base.arrays.get(added.filtered_kernel(kernel, settings, strength))
            np.testing.assert_allclose(found, expected, atol=1e-9)


def test_the_choice_on_some_rows_is_that_of_a_fresh_fit(monkeypatch):
    monkeypatch.setattr("ldsu.methods.ldsu.ROWS_TO_CHOOSE", 150)
    X, y = digits()
    problem = Problem(X)
    for labels in label_changes(y)[1:4]:
        reused, fresh = (LDSU(solver="sparse").fit(X, labels, **o) for o in ({"problem": problem}, {}))
        assert [c["strength"] for c in reused.selection_] == [c["strength"] for c in fresh.selection_]
        np.testing.assert_allclose(*([c["criterion"] for c in m.selection_] for m in (reused, fresh)), atol=1e-9)


@pytest.mark.parametrize("solver", ["exact", "sparse"])
def test_added_rows_with_full_conditioning_give_a_fresh_fit(solver):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((70, 5)), rng.integers(0, 3, 70)
    few = few_labels(y, 3)
    few[50:] = -1
    full = {"n_conditioning": 69, "nugget": 1e-12, "tol": 1e-12, "gamma": 0.3, "min_anchors": 1, "strength": 100.0}
    problem = Problem(X[:50])
    model = LDSU(solver=solver, **full)
    model.fit(X[:50], few[:50], problem=problem)
    problem.add_rows(X[50:60]).add_rows(X[60:])
    with pytest.raises(ValueError, match="samples other than X"):
        model.fit(X[:50], few[:50], problem=problem)
    reused, fresh = model.fit(X, few, problem=problem), LDSU(solver=solver, **full).fit(X, few)
    np.testing.assert_allclose(gram(reused, X), gram(fresh, X), atol=1e-8)


@pytest.mark.parametrize("made", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("kernel", ["laplacian", "chi2", "cosine"])
def test_labels_and_rows_join_with_every_kernel_dense_or_sparse(kernel, made):
    rng = np.random.default_rng(0)
    counts, y = rng.poisson(0.5, (60, 90)) * rng.random((60, 90)), rng.integers(0, 3, 60)
    few, X = few_labels(y, 3), made(counts)
    few[45:] = -1
    more = few.copy()
    more[np.flatnonzero(few[:45] < 0)[:2]] = 1
    full = {"n_conditioning": 59, "nugget": 1e-12, "tol": 1e-12, "min_anchors": 1, "n_landmarks": 20}
    model = LDSU(kernel=kernel, solver="sparse", gamma=0.02, strength=100.0, **full)
    problem = Problem(X[:45])
    for labels in (few, more):
        reused, fresh = model.fit(X[:45], labels[:45], problem=problem), clone(model).fit(X[:45], labels[:45])
        np.testing.assert_allclose(gram(reused, X), gram(fresh, X), atol=1e-8)
        assert ("neighbors" in reused.timings_) == (labels is few)
    reused, fresh = model.fit(X, more, problem=problem.add_rows(X[45:])), clone(model).fit(X, more)
    np.testing.assert_allclose(gram(reused, X), gram(fresh, X), atol=1e-8)


@pytest.mark.parametrize(
    ("search", "kernel", "made"),
    [
        ("exact", "rbf", np.asarray),
        ("cells", "rbf", np.asarray),
        ("cells", "laplacian", np.asarray),
        ("exact", "poly", scipy.sparse.csr_array),
        ("cells", "cosine", scipy.sparse.csr_array),
    ],
)
def test_added_rows_join_neighbors_and_factor(search, kernel, made):
    X, y = digits(900)
    X, few = made(X), few_labels(y, 5)
    few[800:] = -1
    model = LDSU(kernel=kernel, solver="sparse", strength=100.0, neighbor_search=search, store_graphs=True)
    problem = Problem(X[:800])
    first = LDSUClassifier(model).fit(X[:800], few[:800], problem=problem)
    problem.add_rows(X[800:850]).add_rows(X[850:])
    reused, fresh = LDSUClassifier(model).fit(X, few, problem=problem), LDSUClassifier(model).fit(X, few)
    assert "neighbors" not in reused.features_.timings_
    assert reused.features_.gamma_ == first.features_.gamma_
    assert reused.features_.n_iter_ <= fresh.features_.n_iter_
    listed, expected = (m.features_.neighbors_ for m in (reused, fresh))
    assert np.mean([np.isin(a, b).mean() for a, b in zip(listed[800:], expected[800:], strict=True)]) > 0.97
    assert np.mean(listed[:, :2] == expected[:, :2]) > 0.97
    assert np.mean(reused.transduction_ == fresh.transduction_) > 0.98
    assert np.mean(reused.predict(X) == fresh.predict(X)) > 0.98


def test_rows_that_cannot_be_added_leave_the_problem_as_it_was():
    X, y = digits(200)
    problem = Problem(X)
    few = few_labels(y, 2)
    before = gram(LDSU().fit(X, few, problem=problem), X)
    for wrong, message in ((X[:3, :5], "has 5 columns"), (X[:3] * np.nan, "NaN"), (X[:0], "minimum of 1")):
        with pytest.raises(ValueError, match=message):
            problem.add_rows(wrong)
    np.testing.assert_allclose(gram(LDSU().fit(X, few, problem=problem), X), before, atol=1e-12)
