"""LDSU on a Dask cluster of real processes: the same results as on one machine, whatever happens to workers."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from click.testing import CliRunner
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks

import fake_engine
import ldsu
from ldsu import load_model, save_model
from ldsu._utils.stages import watching
from ldsu.bench import runner
from ldsu.bench.store import Store
from ldsu.cli import cli
from test_estimators import expected_failed_checks

dask = pytest.importorskip("dask", reason="Dask is not installed")
distributed = pytest.importorskip("distributed", reason="Dask is not installed")
da = pytest.importorskip("dask.array")

import ldsu.dask as on_cluster  # noqa: E402
from ldsu._utils.memory import GIB  # noqa: E402
from ldsu.dask import cluster_problem, partitioned, shards  # noqa: E402
from ldsu.dask import sharded_expansion as expansion  # noqa: E402
from ldsu.dask.allocation import FILLED_SHARE  # noqa: E402
from ldsu.dask.cluster import Cluster  # noqa: E402
from ldsu.dask.pieces import Labels, Piece  # noqa: E402
from ldsu.dask.shard_search import Found, merge  # noqa: E402
from ldsu.dask.shards import Shard, _cut, fingerprint  # noqa: E402
from ldsu.solvers._landmarks import landmark_transform  # noqa: E402
from ldsu.solvers._residual_factor import random_ranks  # noqa: E402
from ldsu.solvers._sparse import SparseStages  # noqa: E402

# Small enough for a second. With another number of workers sums are taken in another order, and a solve may take a step
# more or less, which changes features by a tenth of `tol`, or a little more: solved to 1e-8, they are compared to 1e-7.
QUICK = {"solver": "sparse", "tol": 1e-8, "n_landmarks": 20, "min_anchors": 30, "strength": 10.0}


def start(workers=2, **options):
    options = {"threads_per_worker": 1, "dashboard_address": None, "memory_limit": "2GiB", **options}
    return distributed.LocalCluster(n_workers=workers, **options)


@pytest.fixture(scope="module")
def client():
    with start() as cluster, distributed.Client(cluster) as client:
        yield client


def blobs(n=1200, d=6, seed=0):
    """Five blobs, three labels each."""
    rng = np.random.default_rng(seed)
    y = rng.integers(5, size=n)
    X = 3 * rng.standard_normal((5, d))[y] + rng.standard_normal((n, d))
    few = np.full(n, -1)
    for t in range(5):
        few[np.flatnonzero(y == t)[:3]] = t
    return X, few


def in_blocks(X, rows=250):
    return da.from_array(X, chunks=(rows, X.shape[1]))


def check_same(model, one, X, tolerance=1e-6):
    np.testing.assert_array_equal(model.neighbors_, one.neighbors_)
    np.testing.assert_array_equal(model.anchors_, one.anchors_)
    assert abs(model.clique_laplacian_ - one.clique_laplacian_).max() < tolerance
    for name in ("gamma_", "theta_", "strength_", "noise_"):
        assert getattr(model, name) == pytest.approx(getattr(one, name), rel=1e-9), name
    np.testing.assert_allclose(model.eigenvalues_, one.eigenvalues_, rtol=tolerance)
    expected = one.transform(X)
    unit = np.abs(expected).max()
    np.testing.assert_allclose(model.transform(in_blocks(X)).compute(), expected, rtol=0, atol=tolerance * unit)


def test_a_cluster_supplies_every_operation_of_the_sparse_solver():
    operations = {name for name in vars(SparseStages) if not name.startswith("_")}
    assert "sort_samples" in operations
    assert operations <= vars(cluster_problem.ClusterProblem).keys()


@pytest.mark.parametrize(("search", "replicated"), [("exact", True), ("cells", True), ("cells", False)])
def test_features_and_neighbors_are_those_of_one_machine(search, replicated, client, monkeypatch):
    monkeypatch.setattr(cluster_problem, "WHOLE_SHARE", 1.0 if replicated else 0.0)
    X, y = blobs()
    parameters = {**QUICK, "neighbor_search": search, "store_graphs": True}
    one = ldsu.LDSU(**parameters).fit(X, y)
    model = on_cluster.LDSU(**parameters).fit(in_blocks(X), y)
    assert model.replicated_ == replicated
    if replicated:  # parts have another preconditioner
        assert model.n_iter_ == one.n_iter_
    assert model.residual_ <= 2 * model.tol
    check_same(model, one, X)


def test_how_rows_are_cut_into_blocks_does_not_matter(client):
    X, y = blobs(700)
    features = [
        on_cluster.LDSU(**QUICK).fit(in_blocks(X, rows), da.from_array(y, chunks=rows)).transform(X[:50])
        for rows in (700, 91)
    ]
    np.testing.assert_allclose(features[0], features[1], rtol=0, atol=1e-9)


def test_without_labels_and_in_single_precision(client):
    X, _ = blobs(600)
    X = X.astype(np.float32)
    parameters = {**QUICK, "tol": 1e-4}
    one, model = ldsu.LDSU(**parameters).fit(X), on_cluster.LDSU(**parameters).fit(in_blocks(X))
    features = model.transform(in_blocks(X))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features.compute(), one.transform(X), rtol=0, atol=1e-3)


def test_a_transform_is_lazy_and_has_the_blocks_of_its_input(client):
    X, y = blobs(600)
    model = on_cluster.LDSU(**QUICK).fit(in_blocks(X), y)
    read = []

    def block(rows):
        read.append(rows)
        return X[:rows]

    lazy = da.from_delayed(dask.delayed(block)(40), shape=(40, 6), dtype=float)
    features = model.transform(lazy)
    assert features.chunks == ((40,), (model.eigenvalues_.size,))
    assert not read
    np.testing.assert_allclose(features.compute(), model.transform(X[:40]), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("length", "neighbor_search"), [(40, "cells"), (np.nan, "cells"), (np.nan, "exact")])
def test_blocks_too_large_for_a_worker_are_transformed_slice_by_slice(length, neighbor_search, client, monkeypatch):
    X, y = blobs(600)
    model = on_cluster.LDSU(**QUICK, neighbor_search=neighbor_search).fit(in_blocks(X, 300), y)
    expected = model.transform(X[:40])
    whole = model.feature_map_.rows_at_a_time()
    monkeypatch.setattr(expansion, "NEIGHBORS_SHARE", expansion.NEIGHBORS_SHARE * 7.01 / whole)
    assert model.feature_map_.rows_at_a_time() == 7
    # Of an unknown length 300 rows are expected, and of 43 slices some are empty.
    lazy = da.from_delayed(dask.delayed(X[:40]), shape=(length, 6), dtype=float)
    names = [str(key) for key in model.transform(lazy).dask]
    assert sum("ldsu-slice" in name for name in names) == (6 if length == 40 else 43)
    np.testing.assert_allclose(model.transform(lazy).compute(), expected, rtol=0, atol=1e-9)


def test_frames_of_parquet_and_arrays_of_zarr_are_read_where_they_are(client, tmp_path):
    pandas, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = blobs(600)
    names = [f"column {i}" for i in range(6)]
    frame = pandas.DataFrame(X, columns=names).assign(label=y)
    for part in range(3):
        frame[part * 200 : (part + 1) * 200].to_parquet(tmp_path / f"part{part}.parquet")
    table = dd.read_parquet(f"file://{tmp_path}/*.parquet")  # by fsspec, as S3 and its like
    model = on_cluster.LDSU(**QUICK).fit(table[names], table["label"])
    expected = ldsu.LDSU(**QUICK).fit(X, y).transform(X)
    assert model.feature_names_in_.tolist() == names
    np.testing.assert_allclose(model.transform(table[names]).compute(), expected, rtol=0, atol=1e-7)
    with pytest.raises(ValueError, match="columns of X"):
        model.transform(table[names[::-1]])
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(200, 6), dtype="f8")
    stored[:] = X
    again = on_cluster.LDSU(**QUICK).fit(da.from_zarr(tmp_path / "x.zarr"), y)
    np.testing.assert_allclose(again.transform(X), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("classes", "shares"), [pytest.param(2, "equal", marks=pytest.mark.slow), (5, "auto"), (5, "equal")]
)
def test_a_classifier_is_that_of_one_machine_and_is_loaded_without_a_cluster(classes, shares, client, tmp_path):
    X, y = blobs(900)
    y = np.where(y < 0, -1, y % classes)
    names = np.array([f"kind {t}" for t in range(classes)], dtype=object)
    y = np.array([None if code < 0 else names[code] for code in y], dtype=object)
    one = ldsu.LDSUClassifier(ldsu.LDSU(**QUICK), class_shares=shares, supervised=False).fit(X, y)
    model = on_cluster.LDSUClassifier(on_cluster.LDSU(**QUICK), class_shares=shares).fit(in_blocks(X), y)
    lazy = in_blocks(X)
    np.testing.assert_array_equal(model.predict(lazy).compute(), one.predict(X))
    np.testing.assert_array_equal(model.transduction_, one.transduction_)
    np.testing.assert_allclose(model.predict_proba(lazy).compute(), one.predict_proba(X), rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.decision_function(lazy).compute(), one.decision_function(X), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.confidence(X).familiarity, one.confidence(X).familiarity, rtol=0, atol=2 / 900)
    save_model(model, tmp_path / "model.ldsu")
    loaded = load_model(tmp_path / "model.ldsu")
    assert type(loaded) is ldsu.LDSUClassifier
    np.testing.assert_allclose(loaded.predict_proba(X), one.predict_proba(X), rtol=0, atol=1e-6)


def test_another_classifier_learns_from_the_labelled_rows(client):
    from sklearn.svm import LinearSVC

    X, y = blobs(600)
    one = ldsu.LDSUClassifier(ldsu.LDSU(**QUICK), LinearSVC()).fit(X, y)
    model = on_cluster.LDSUClassifier(on_cluster.LDSU(**QUICK), LinearSVC()).fit(in_blocks(X), y)
    assert np.mean(model.predict(in_blocks(X)).compute() == one.predict(X)) > 0.99
    with pytest.raises(AttributeError, match="classifier=None"):
        model.predict_proba(in_blocks(X))


def test_few_rows_are_fitted_on_the_client(client):
    X, y = blobs(300)
    model = on_cluster.LDSU().fit(in_blocks(X), y)
    assert model.solver_ == "exact"
    # Of the same blocks: products of another number of rows round otherwise on some processors.
    one = ldsu.LDSU().fit(X, y)
    expected = np.concatenate([one.transform(X[:250]), one.transform(X[250:])])
    np.testing.assert_array_equal(model.transform(in_blocks(X)).compute(), expected)
    assert type(model.to_local()) is ldsu.LDSU


@pytest.mark.parametrize(
    ("change", "parameters", "message"),
    [
        (lambda X: np.where(X > 4, np.nan, X), {}, "NaN or infinity"),
        (lambda X: X * 1e200, {}, "square does not fit"),
        (lambda X: X[:, 0], {}, "2 dimensions"),
        (lambda X: X.astype(str), {}, "features|not numbers|could not convert"),
        (lambda X: X, {"filter": "truncate", "n_components": 5}, "filter='tikhonov'"),
        (lambda X: X, {"kernel": "linear"}, "kernel='rbf'"),
        (lambda X: X, {"solver": "exact"}, "all samples on one machine"),
        (lambda X: X, {"device": "torch"}, "device='torch'"),
        (lambda X: X[:-1], {}, "rows but y has"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change, parameters, message, client):
    X, y = blobs(400)
    X = change(X)
    blocks = da.from_array(X, chunks=100)
    if X.dtype.kind == "U":
        blocks = da.from_array(np.where(X == X, "word", X), chunks=100)
    with pytest.raises(ValueError, match=message):
        on_cluster.LDSU(**{**QUICK, **parameters}).fit(blocks, y)


def test_without_a_client_it_says_how_to_make_one():
    program = (
        "import numpy as np, dask.array as da; from ldsu.dask import LDSU\n"
        "try:\n    LDSU().fit(da.ones((10, 2)))\nexcept ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "There is no Dask client. Create one first" in done.stdout, done.stderr


@pytest.mark.parametrize("m", [0, 3, 8])
def test_rows_split_at_the_halo_have_the_product_of_the_whole(m):
    rng = np.random.default_rng(0)
    A = scipy.sparse.random_array((6, 8), density=0.2, rng=rng, format="csr")
    V = rng.standard_normal((8, 4))
    scale = rng.uniform(1, 2, 8)
    rows = partitioned.SplitRows.split(A, m, scale)
    A = A @ scipy.sparse.diags_array(scale)
    assert rows.halo.shape[0] == np.count_nonzero(A.toarray()[:, m:].any(axis=1))
    np.testing.assert_allclose(rows.matmul(V[:m], V[m:]), A @ V, atol=1e-14)
    U = rng.standard_normal((6, 4))
    np.testing.assert_allclose(np.vstack(rows.transposed_matmul(U)), A.T @ U, atol=1e-14)


def test_as_many_columns_are_solved_at_a_time_as_fit_a_worker():
    def columns(rows, gib, total=1000, n_halo=0):
        column = partitioned.column_bytes(rows, n_halo, n_halo, "float32")
        cluster = SimpleNamespace(memory=lambda: int(gib * 2**30))
        return partitioned.columns_at_a_time(total, column, rows, 300 * rows, cluster)

    assert columns(2_500_000, 3) == 16
    assert columns(2_500_000, 3, n_halo=1_000_000) == 8
    assert columns(2_500_000, 3, total=71) == 16
    assert columns(2_500_000, 6) > 2 * columns(2_500_000, 3)
    assert columns(1000, 3) == partitioned.MAX_COLUMNS
    assert columns(1000, 3, total=71) == 36  # as even as multiples allow
    assert columns(1000, 3, total=5) == 8
    with pytest.raises(
        MemoryError, match=r"5,000,000 rows per thread.* needs about 2\.[0-9] GiB, but 2\.0 GiB.*more memory"
    ):
        columns(5_000_000, 2)


def test_labels_of_rows_that_have_none_are_missing():
    labels = Labels(np.array([3, 8]), np.array([1, 0]))
    assert labels.of(np.array([8, 0, 3, 9])).tolist() == [0, -1, 1, -1]
    assert Labels(np.empty(0, dtype=int), np.empty(0, dtype=int)).of(np.arange(2)).tolist() == [-1, -1]


def test_runs_of_cells_have_about_the_same_size_and_none_is_empty():
    counts = np.array([5, 1, 1, 1, 90, 1, 1])
    firsts = _cut(counts, 4)
    assert firsts[0] == 0
    assert firsts[-1] == counts.size
    assert np.all(np.diff(firsts) > 0)
    np.testing.assert_array_equal(_cut(np.full(12, 10), 4), [0, 3, 6, 9, 12])
    np.testing.assert_array_equal(_cut(np.array([5, 10, 0, 0]), 2), [0, 4])  # none without a row


def test_half_of_the_rows_may_be_equal_and_far_from_the_others(client):
    X, y = blobs(4000)
    X[2000:] = 100.0  # in one cell, with empty ones after it
    model = on_cluster.LDSU(**QUICK).fit(in_blocks(X), y)
    features = model.transform(in_blocks(X)).compute()
    assert np.isfinite(features).all()
    np.testing.assert_allclose(features[2001:], np.broadcast_to(features[2000], (1999, features.shape[1])), atol=1e-6)
    assert np.diff(model.feature_map_.shards.directory.first_places).min() > 0


def test_merged_candidates_are_the_best_of_all_shards():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((7, 30))
    found = [
        Found(np.arange(7), scores[:, at], np.tile(np.arange(30)[at], (7, 1))) for at in np.split(np.arange(30), 3)
    ]
    np.testing.assert_array_equal(merge(found, 7, 4), np.sort(np.argsort(scores, axis=1)[:, :4], axis=1))


def test_ranks_are_a_random_order_that_each_row_knows_for_itself():
    ranks = random_ranks(np.arange(20_000), 0)
    assert np.unique(ranks).size == 20_000
    np.testing.assert_array_equal(random_ranks(np.array([19_999, 5]), 0), ranks[[19_999, 5]])
    assert np.any(random_ranks(np.arange(10), 1) != ranks[:10])
    # Neither the row's number nor the rank of the row before tells it.
    assert abs(np.corrcoef(np.arange(20_000), ranks)[0, 1]) < 0.03
    assert abs(np.corrcoef(ranks[1:], ranks[:-1])[0, 1]) < 0.03
    assert (np.asarray(ranks) >= 0).all()


def test_workers_reuse_memory_that_they_freed(client):
    X, y = blobs(600)
    on_cluster.LDSU(**QUICK).fit(in_blocks(X), y)
    plugins = client.run(lambda dask_worker: list(dask_worker.plugins))
    assert all("ldsu-reuses-freed-memory" in names for names in plugins.values())


def test_room_is_made_for_large_tasks_and_no_more_than_they_need(client):
    cluster = Cluster(client)
    made = [cluster.submit("made", np.full, 2**20, float(number)) for number in range(12)]  # 8 MiB each
    cluster.wait(made)

    def in_memory():
        held = client.run(lambda dask_worker: sum(key.startswith("ldsu-made") for key in dask_worker.data.fast))
        return sum(held.values())

    cluster.free_memory(2**20)
    assert in_memory() == 12
    cluster.free_memory(int(FILLED_SHARE * 2 * GIB) - 20 * 2**20)
    assert in_memory() == 4  # two in each worker
    cluster.free_memory(2 * GIB)
    assert in_memory() == 0
    assert [values[-1] for values in cluster.collect(made)] == list(range(12))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_an_array_made_again_takes_the_memory_of_the_one_before():
    program = (
        "import resource, numpy as np\n"
        "from ldsu.dask.allocation import reuse_freed_memory\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20):\n"
        "        np.ones(10**6)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "usual = faults()\n"
        "assert reuse_freed_memory()\n"
        "print(usual, faults())\n"
    )
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}  # as Dask has it
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    usual, reused = map(int, done.stdout.split())
    assert reused < usual / 4


def test_dask_knows_how_large_results_are():
    from dask.sizeof import sizeof

    points, matrix = np.zeros((100, 10)), scipy.sparse.eye_array(50, format="csr")
    shard = Shard(points, np.arange(100), np.array([0, 100]))
    assert sizeof(shard) >= points.nbytes + 8 * 102
    piece = Piece(matrix, np.zeros((50, 3)), np.zeros((50, 3, 3)), points, np.arange(50), np.arange(50))
    assert sizeof((piece, None)) >= matrix.data.nbytes + matrix.indptr.nbytes + points.nbytes + 8 * 50 * 14


def public_estimators():
    named = (getattr(on_cluster, name) for name in on_cluster.__all__)
    return [cls() for cls in named if isinstance(cls, type) and issubclass(cls, BaseEstimator)]


@pytest.mark.slow
@parametrize_with_checks(public_estimators(), expected_failed_checks=expected_failed_checks)
def test_scikit_learn_contract_with_a_client(estimator, check, client):
    check(estimator)  # raises where the contract is broken


def test_a_classifier_learns_where_every_row_is_labelled(client):
    X, _ = blobs(600)
    y = np.sign(X[:, 0]).astype(int) + 1
    features = on_cluster.LDSU(**QUICK)
    model = on_cluster.LDSUClassifier(features).fit(in_blocks(X), y)
    np.testing.assert_array_equal(model.transduction_, y)
    assert np.mean(model.predict(in_blocks(X)).compute() == y) > 0.9


# Faults: workers and schedulers that are killed.


def kill_at(stage, cluster, killed):
    """Tells of stages; in the one named, kills a worker a moment after it has begun."""

    def kill():
        time.sleep(0.15)
        pid = next(iter(cluster.workers.values())).pid
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    def watcher(name, seconds):
        if name == stage and seconds is None:
            threading.Thread(target=kill, daemon=True).start()

    return watching(watcher)


@pytest.mark.parametrize(
    "stage", ["solve", *(pytest.param(name, marks=pytest.mark.slow) for name in ("shards", "neighbors", "factor"))]
)
def test_a_worker_killed_in_any_stage_changes_nothing(stage):
    model, features, undisturbed = fit_while_a_worker_is_killed(stage)
    assert model.replicated_
    np.testing.assert_allclose(features, undisturbed, rtol=0, atol=1e-7)


def fit_while_a_worker_is_killed(stage):
    """A model, its features, and those of a model of the same samples that nobody disturbed."""
    X, y = blobs(4000, 10)
    with start() as cluster, distributed.Client(cluster):
        undisturbed = on_cluster.LDSU(**QUICK).fit(in_blocks(X, 1000), y).transform(X[:100])
        killed = []
        with kill_at(stage, cluster, killed):
            model = on_cluster.LDSU(**QUICK).fit(in_blocks(X, 1000), y)
        assert killed
        return model, model.transform(X[:100]), undisturbed


@pytest.mark.slow
def test_a_worker_killed_with_the_system_in_parts_changes_nothing(monkeypatch):
    monkeypatch.setattr(cluster_problem, "WHOLE_SHARE", 0.0)
    model, features, undisturbed = fit_while_a_worker_is_killed("solve")
    assert not model.replicated_
    np.testing.assert_allclose(features, undisturbed, rtol=0, atol=1e-7)


@pytest.mark.slow
# The whole system is solved again by the same steps; of one in parts sums may be taken in another order.
@pytest.mark.parametrize(("whole_share", "tolerance"), [(1.0, 1e-9), (0.0, 1e-7)])
def test_a_worker_killed_during_a_transform_changes_nothing(whole_share, tolerance, monkeypatch):
    monkeypatch.setattr(cluster_problem, "WHOLE_SHARE", whole_share)
    X, y = blobs(4000, 10)
    with start() as cluster, distributed.Client(cluster):
        model = on_cluster.LDSU(**QUICK).fit(in_blocks(X, 1000), y)
        expected = model.transform(in_blocks(X, 200)).compute()
        pid = next(iter(cluster.workers.values())).pid
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
        features = model.transform(in_blocks(X, 200)).compute()
        np.testing.assert_allclose(features, expected, rtol=0, atol=tolerance)
        assert pid not in [worker.pid for worker in cluster.workers.values()]


def lose_all_results(cluster, client):
    """Kill the only worker there is, once another, which has nothing, can take its place."""
    pid = next(iter(cluster.workers.values())).pid
    cluster.scale(2)
    client.wait_for_workers(2, timeout=60)
    os.kill(pid, signal.SIGKILL)


def test_a_value_of_the_client_outlives_the_worker_that_has_it():
    with start(1) as cluster, distributed.Client(cluster) as client:
        there = Cluster()
        drawn = there.submit("drawn", os.urandom, 8)
        value = there.collect([drawn])[0]
        fixed = there.put("fixed", value)
        there.wait([fixed])
        lose_all_results(cluster, client)
        there.wait([there.submit("size", len, one) for one in (drawn, fixed)])
        drawn_again, fixed_again = there.collect([drawn, fixed])
        assert drawn_again != value
        assert fixed_again == value


def test_landmarks_and_cells_that_would_come_back_otherwise_are_not_computed_again(monkeypatch):
    centers = shards._centers

    def transform_with_random_signs(*arguments):
        transform = landmark_transform(*arguments)
        return transform * np.random.default_rng().choice([-1, 1], transform.shape[1])

    def random_centers(some, n, rng):
        return centers(some, n, np.random.default_rng())

    monkeypatch.setattr("ldsu.solvers._sparse.landmark_transform", transform_with_random_signs)
    monkeypatch.setattr(shards, "_centers", random_centers)
    X, y = blobs()
    with start(1) as cluster, distributed.Client(cluster) as client:
        model = on_cluster.LDSU(**QUICK).fit(in_blocks(X), y)
        expected = model.transform(X)
        lose_all_results(cluster, client)
        np.testing.assert_allclose(model.transform(X), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["points", "rows", "starts"])
def test_samples_that_come_back_otherwise_are_refused(name):
    arrays = {"points": np.arange(12.0).reshape(6, 2), "rows": np.arange(6)[::-1], "starts": np.array([0, 3, 6])}
    before = fingerprint(shards.arrays_of(Shard(**arrays)))
    assert shards.same_shard(Shard(**arrays), before).rows is arrays["rows"]
    other = arrays[name].copy()
    other[1] = other[0]
    with pytest.raises(on_cluster.ClusterError, match="not the same, or not in the same order"):
        shards.same_shard(Shard(**{**arrays, name: other}), before)


@pytest.mark.parametrize(
    ("rows", "complete"),
    [
        ([[0, 3], [4, 2, 1]], True),
        ([[0, 3], [4, 2]], False),  # one in no shard
        ([[0, 3], [3, 4, 2, 1]], False),  # one in two
        ([[0, 3], [3, 2, 1]], False),  # one in two, one in none
        ([[1, 2], [2, 3, 2]], False),  # as many, with the same sum
    ],
)
def test_rows_that_are_in_two_shards_or_in_none_are_noticed(rows, complete):
    cells = shards.Cells(np.zeros(2), np.eye(2), np.zeros((1, 2), dtype=np.float32))
    summaries = [
        shards.summarize(Shard(np.zeros((len(some), 2)), np.array(some), np.array([0, len(some)])), cells)
        for some in rows
    ]
    assert (shards.sum_up(summaries) == shards.every_row_once(5)) == complete


def test_sums_of_rows_wrap_on_workers_as_on_the_client():
    n = 3_000_000  # the sum of squares takes 63 bits, and of twice as many rows 66
    cells = shards.Cells(np.zeros(1), np.eye(1), np.zeros((1, 1), dtype=np.float32))
    for count in (n, 2 * n):
        halves = np.array_split(np.arange(count)[::-1], 2)
        summaries = [
            shards.summarize(Shard(np.zeros((len(some), 1)), some, np.array([0, len(some)])), cells) for some in halves
        ]
        assert shards.sum_up(summaries) == shards.every_row_once(count)


def test_a_halo_that_is_recomputed_differently_is_refused():
    halo = partitioned.Halo([np.array([], dtype=np.int64), np.array([3, 5])])
    with pytest.raises(on_cluster.ClusterError, match="not the same, or not in the same order"):
        partitioned.scaled((None, halo, None), None, [], [], fingerprint([np.array([3, 6])]))


def test_a_source_that_reads_otherwise_after_a_worker_died_ends_in_one_sentence():
    X, y = blobs()

    def read(rows):  # every time it is read
        return X[rows] + np.random.default_rng().normal(scale=1e-3, size=(rows.size, X.shape[1]))

    blocks = [dask.delayed(read)(np.arange(first, first + 300)) for first in range(0, X.shape[0], 300)]
    source = da.concatenate([da.from_delayed(block, (300, X.shape[1]), dtype=float) for block in blocks])
    with start(1) as cluster, distributed.Client(cluster) as client:
        model = on_cluster.LDSU(**QUICK).fit(source, y)
        lose_all_results(cluster, client)
        with pytest.raises(on_cluster.ClusterError, match="after reading them again"):
            model.transform(X[:100])


@pytest.mark.slow
def test_an_adaptive_cluster_grows_for_a_fit_and_its_report_names_the_stages(tmp_path):
    pytest.importorskip("bokeh", reason="Dask's report needs bokeh")
    X, y = blobs(2000)
    with start(0, dashboard_address=":0") as cluster, distributed.Client(cluster):
        cluster.adapt(minimum=0, maximum=2, interval="200ms")
        with distributed.performance_report(filename=tmp_path / "report.html"):
            model = on_cluster.LDSU(**QUICK).fit(in_blocks(X), y)
        features = model.transform(in_blocks(X)).compute()
    np.testing.assert_allclose(features, ldsu.LDSU(**QUICK).fit(X, y).transform(X), rtol=0, atol=1e-7)
    report = (tmp_path / "report.html").read_text()
    assert all(f"ldsu-{stage}" in report for stage in ("search", "piece", "solve"))


def processes(tmp_path, workers=2):
    """A scheduler and workers as `dask scheduler` and `dask worker` start them, and the scheduler's address."""
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([*command, "--port", "0", "--no-dashboard", "--scheduler-file", str(file)], **quiet)]
    for _ in range(workers):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file)]
        more = ["--nthreads", "1", "--memory-limit", "2GiB", "--no-dashboard", "--local-directory", str(tmp_path)]
        started.append(subprocess.Popen([*command, *more], **quiet))
    return file, started


def end(started):
    for process in started:
        process.kill()
    for process in started:
        process.wait()


def test_a_scheduler_that_is_gone_is_one_sentence_and_nothing_is_saved(tmp_path):
    X, y = blobs(4000, 10)
    file, started = processes(tmp_path, workers=1)
    try:
        with distributed.Client(scheduler_file=str(file), timeout=20) as client:
            client.wait_for_workers(1, timeout=60)
            path = tmp_path / "models" / "model.ldsu"

            def kill(name, seconds):
                if name == "solve" and seconds is None:
                    started[0].kill()

            with watching(kill), pytest.raises(on_cluster.ClusterError, match="scheduler was lost during 'solve'"):
                save_model(on_cluster.LDSU(**QUICK).fit(in_blocks(X, 1000), y), path)
            assert not path.parent.exists()
    finally:
        end(started)


@pytest.mark.parametrize("error", [distributed.comm.CommClosedError, ConnectionRefusedError])
def test_a_lost_connection_is_one_sentence_before_the_client_knows(error, client):
    cluster = Cluster(client)
    cluster.set_stage("search")
    with pytest.raises(on_cluster.ClusterError, match="scheduler was lost during 'search'"), cluster.translate_errors():
        raise error("closed")
    with pytest.raises(FileNotFoundError), cluster.translate_errors():
        raise FileNotFoundError("part0.parquet")
    assert client.status == "running"


def test_an_address_where_no_scheduler_is_is_one_sentence(tmp_path, monkeypatch):
    X, y = blobs(60)
    table = tmp_path / "t.csv"
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="a,b,c,d,e,f,kind", comments="", fmt="%.6g")
    monkeypatch.setattr("ldsu.dask.cluster.SECONDS_TO_CONNECT", 1.0)
    done = CliRunner().invoke(cli, ["fit", str(table), "--label", "kind", "--dask", "tcp://127.0.0.1:9"])
    assert done.exit_code == 1
    assert "No Dask scheduler answers at 'tcp://127.0.0.1:9'" in done.output
    assert not list(tmp_path.glob("*.ldsu"))


@pytest.mark.slow
def test_a_table_is_fitted_on_a_cluster_and_predicted_without_one(client, tmp_path):
    X, y = blobs(3200, 4)
    labels = np.array(["", *(f"kind {t}" for t in range(5))])[y + 1]
    rows = "\n".join(
        ",".join([*(f"{value:.6f}" for value in row), label]) for row, label in zip(X, labels, strict=True)
    )
    (tmp_path / "t.csv").write_text(f"a,b,c,d,kind\n{rows}\n")
    predicted = {}
    for name, more in {"there": ["--dask", client.scheduler.address], "here": []}.items():
        model, out = tmp_path / f"{name}.ldsu", tmp_path / f"{name}.csv"
        done = CliRunner().invoke(cli, ["fit", str(tmp_path / "t.csv"), "--label", "kind", "-o", str(model), *more])
        assert done.exit_code == 0, done.output
        done = CliRunner().invoke(cli, ["predict", str(model), str(tmp_path / "t.csv"), "-o", str(out)])
        assert done.exit_code == 0, done.output
        predicted[name] = [line.split(",")[1] for line in out.read_text().splitlines()]
    agree = np.mean(np.array(predicted["here"]) == np.array(predicted["there"]))
    assert agree > 0.999
    assert distributed.get_client() is client  # that of the command is gone


def test_an_experiment_on_a_cluster_has_the_rows_of_one_here(client, tmp_path, monkeypatch):
    here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
    helpers = str(Path(__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([helpers, os.environ.get("PYTHONPATH", "")]))
    client.run(lambda path: sys.path.insert(0, path), helpers)
    for path, more in ((here, {"jobs": 1}), (there, {"dask": client.scheduler.address})):
        done = runner.run(fake_engine.experiment(), path, engine="fake_engine", quiet=True, **more)
        assert done.exit_code == 0
    rows = []
    for path in (here, there):
        with Store(path, read_only=True) as store:
            assert store.check() == []
            assert store.claims() == []
            rows.append({(row["data"], row["split"], row["method"], row["labels"], row["map"]) for row in store.rows()})
    assert rows[0] == rows[1]


# Real data, real processes.


@pytest.fixture(scope="module")
def covertype(real_data):
    """200,000 rows in units of their columns, two labels per class, parameters, and the model of one machine."""
    X, y = real_data("covtype.npz")
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(X), 200_000, replace=False))
    X, y = X[rows].astype(np.float64), y[rows]
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-6) + 0.01 * rng.standard_normal(X.shape)  # no ties
    few = np.full(y.size, -1)
    for t in np.unique(y):
        few[np.flatnonzero(y == t)[:2]] = t
    # A tolerance below 1e-5 is worked on in double precision; a large nugget makes solves short.
    parameters = {"tol": 9e-6, "strength": 1.0, "n_landmarks": 30, "min_anchors": 1, "nugget": 1.0}
    parameters["store_graphs"] = True
    return X, few, parameters, ldsu.LDSU(**parameters).fit(X, few)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_200_000_rows_of_covertype_on_workers(workers, covertype):
    X, few, parameters, one = covertype
    with start(workers) as cluster, distributed.Client(cluster):
        model = on_cluster.LDSU(**parameters).fit(in_blocks(X, 50_000), few)
        check_same(model, one, X[:2000])


@pytest.mark.slow
def test_exact_shards_find_every_neighbor_of_200_000_rows(covertype):
    X, few, parameters, _ = covertype
    parameters = {**parameters, "tol": 1e-2, "neighbor_search": "exact"}
    with start(2) as cluster, distributed.Client(cluster):
        found = on_cluster.LDSU(**parameters).fit(in_blocks(X, 50_000), few).neighbors_
    rows = np.random.default_rng(1).choice(len(X), 1000, replace=False)
    distance = np.linalg.norm(X[found[rows]] - X[rows][:, None], axis=2)
    true, _ = NearestNeighbors(n_neighbors=found.shape[1] + 1, algorithm="brute").fit(X).kneighbors(X[rows])
    # As sets: distances in single precision, in which the work is done, do not tell the nearest of equals.
    np.testing.assert_allclose(np.sort(distance, axis=1), true[:, 1:], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_usps_on_workers_of_their_own_processes(workers, tmp_path, real_data):
    X, y = real_data("usps.npz")
    few = np.full(y.size, -1)
    for t in np.unique(y):
        few[np.flatnonzero(y == t)[:2]] = t
    parameters = {"neighbor_search": "exact", "tol": 1e-6, "store_graphs": True, "n_landmarks": 20, "min_anchors": 1}
    parameters["strength"] = 10.0
    one = ldsu.LDSU(solver="sparse", **parameters).fit(X, few)
    file, started = processes(tmp_path, workers)
    try:
        with distributed.Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(workers, timeout=60)
            model = on_cluster.LDSU(solver="sparse", **parameters).fit(in_blocks(X, 2000), few)
            check_same(model, one, X[:1000])
    finally:
        end(started)
