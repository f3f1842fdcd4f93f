"""One model in many threads, and many fits at once: the same numbers as alone, and nothing left changed."""

import copy
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from threadpoolctl import threadpool_limits

from ldsu import KDA, KPCA, LDSU, LabelledOnly, LDSUClassifier, load_model, save_model

THREADS = 8


@pytest.fixture(autouse=True)
def often_switched():
    """Let threads take turns fifty times as often as usual, so that they meet."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True, scope="module")
def one_thread_a_product():
    """Products divided among threads of BLAS would be summed in another order each time."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture(scope="module")
def samples():
    """200 digits with three labels per class, and 100 others."""
    X, y = load_digits(return_X_y=True)
    few = np.full(200, -1)
    for label in range(10):
        few[np.flatnonzero(y[30:230] == label)[:3]] = label
    return X[30:230] / 16, few, X[400:500] / 16


@pytest.fixture(scope="module")
def table_model(samples, tmp_path_factory):
    """File of a model of a table with numbers and categories, and the table."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from ldsu.tables.model import fit_task, prepare
    from ldsu.tables.readers import read_table

    folder = tmp_path_factory.mktemp("table")
    X, few, _ = samples
    columns = {f"p{j}": pa.array(X[:, j]) for j in range(20, 44)}
    columns["shape"] = pa.array(["round" if x[20] > 0.5 else "long" for x in X])
    columns["digit"] = pa.array([None if label < 0 else f"d{label}" for label in few])
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns), folder / "table.parquet")
    table = read_table(folder / "table.parquet")
    model, _ = fit_task(prepare(table, "digit"))
    save_model(model, folder / "table.ldsu")
    return folder / "table.ldsu", table


def at_once(work, n=THREADS):
    """Results of `work(i)` in n threads that start together."""
    together = threading.Barrier(n)

    def begin(i):
        together.wait(30)
        return work(i)

    with ThreadPoolExecutor(n) as threads:
        return list(threads.map(begin, range(n)))


def assert_same(found, alone):
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-12 * max(np.abs(alone).max(), 1.0))


MODELS = {
    "exact": (LDSU(solver="exact"), "transform"),
    "sparse": (LDSU(solver="sparse"), "transform"),
    "kpca": (KPCA(n_components=20), "transform"),
    "classifier": (LDSUClassifier(), "predict_proba"),
    "classifier, sparse": (LDSUClassifier(LDSU(solver="sparse")), "predict_proba"),
}


@pytest.fixture(scope="module")
def fitted(samples):
    X, few, _ = samples
    return {name: model.fit(X, few) for name, (model, _) in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_many_threads_as_it_answers_one(name, fitted, samples):
    new, method = samples[2], MODELS[name][1]
    # What a model works out when it is first asked, it works out here in several threads at once.
    model = copy.deepcopy(fitted[name])
    alone = getattr(fitted[name], method)(new)
    before = repr(model.get_params())
    for found in at_once(
        lambda i: [getattr(model, method)(new[k::4]) for k in range(4)] + [getattr(model, method)(new)]
    ):
        for k in range(4):
            assert_same(found[k], alone[k::4])
        assert_same(found[4], alone)
    assert repr(model.get_params()) == before


def test_a_model_of_a_table_answers_many_threads_as_it_answers_one(table_model):
    path, table = table_model
    alone = load_model(path).predict(table)
    model = load_model(path)
    for found in at_once(lambda i: model.predict(table)):
        assert list(found.label) == list(alone.label)
        assert list(found.runner_up) == list(alone.runner_up)
        for name in ("probability", "confidence", "familiarity"):
            assert_same(getattr(found, name), getattr(alone, name))


def test_many_threads_load_one_file(table_model):
    path, table = table_model
    alone = load_model(path).transform(table)
    models = at_once(lambda i: load_model(path))
    assert len({id(model) for model in models}) == THREADS
    for features in at_once(lambda i: models[i].transform(table)):
        assert_same(features, alone)


def test_many_threads_save_one_model_each_to_its_file_and_all_to_one(fitted, samples, tmp_path):
    model, new = fitted["classifier"], samples[2]
    alone = model.predict_proba(new)

    def save(i):
        for _ in range(3):
            save_model(model, tmp_path / "one.ldsu")
        save_model(model, tmp_path / f"{i}.ldsu")

    at_once(save)
    for path in tmp_path.iterdir():
        assert path.suffix == ".ldsu", "nothing else is left"
        assert_same(load_model(path).predict_proba(new), alone)


FITS = {
    "exact": LDSU(solver="exact"),
    "sparse": LDSU(solver="sparse"),
    "kda": KDA(),
    "classifier": LDSUClassifier(),
}


@pytest.mark.parametrize("name", FITS)
def test_fits_in_many_threads_are_those_alone(name, samples):
    X, few, new = samples
    parts = [(X[k:], few[k:]) for k in (0, 3, 7, 11)]
    method = "predict_proba" if name == "classifier" else "transform"

    def fit(k):
        model = copy.deepcopy(FITS[name]).fit(*parts[k])
        return getattr(model, method)(new)

    alone = [fit(k) for k in range(4)]
    for found, expected in zip(at_once(fit, 4), alone, strict=True):
        assert_same(found, expected)


def test_warning_filters_are_restored_after_many_threads_have_loaded_fitted_and_predicted(table_model, samples, fitted):
    path, table = table_model
    X, few, new = samples
    before = list(warnings.filters), np.geterr()

    def work(i):
        for _ in range(3):
            load_model(path).predict(table)
            LabelledOnly(RidgeClassifier()).fit(X, few)
            fitted["classifier, sparse"].predict(new)

    at_once(work)
    # scikit-learn's own filters may stay behind; they are about other warnings.
    new = [kind for kind in warnings.filters if kind not in before[0]]
    assert not [kind for kind in new if kind[0] == "ignore" and kind[1] is None]
    assert np.geterr() == before[1]


BLAS = """
import copy, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from threadpoolctl import threadpool_info
from ldsu import KPCA, LDSU, LDSUClassifier
from ldsu._utils.arrays import one_blas_thread

def threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

def at_once(work):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

def enter_and_leave(i):
    for k in range(15):
        try:
            with one_blas_thread():
                assert threads() == {1}, threads()
                if (i + k) % 3 == 0:
                    raise ValueError
        except ValueError:
            pass

rng = np.random.default_rng(0)
X, y = rng.standard_normal((150, 5)), np.full(150, -1)
X[:75] += 3
y[:5], y[-5:] = 0, 1
models = [LDSU(solver="sparse"), LDSUClassifier(), KPCA(n_components=5), LDSU(solver="exact")]
before = threads()
at_once(enter_and_leave)
assert threads() == before, threads()
at_once(lambda i: copy.deepcopy(models[i % 4]).fit(X, y))
assert threads() == before, threads()
print(before)
"""


def test_threads_of_blas_come_back_whoever_leaves_last_and_however():
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", BLAS], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "{" in done.stdout


FORKED = """
import multiprocessing, sys
import numpy as np
from ldsu import LDSU, load_model

X = np.random.default_rng(0).normal(size=(600, 200))
y = np.where(np.arange(600) < 10, np.arange(600) % 2, -1)
if sys.argv[1] == "load":
    model = load_model(sys.argv[2])
else:
    model = LDSU(solver="sparse").fit(X, y)
for rows in (1, 600):
    child = multiprocessing.get_context("fork").Process(target=model.transform, args=(X[:rows],))
    child.start()
    child.join(60)  # it takes a fraction of a second, or for ever
    if child.exitcode is None:
        child.kill()
        sys.exit(f"a forked process hangs in transform of {rows} row(s)")
    assert child.exitcode == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked on this system")
@pytest.mark.parametrize("before", ["fit", "load"])
def test_a_process_forked_after_fit_or_load_transforms(before, tmp_path):
    X = np.random.default_rng(0).normal(size=(600, 200))
    y = np.where(np.arange(600) < 10, np.arange(600) % 2, -1)
    path = tmp_path / "model.ldsu"
    save_model(LDSU(solver="sparse").fit(X, y), path)
    environment = os.environ | {"OMP_NUM_THREADS": "2"}  # one thread would never wait for another
    done = subprocess.run(
        [sys.executable, "-c", FORKED, before, path], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
