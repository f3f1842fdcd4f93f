"""What people feel: imports without what is not needed yet, single rows without repeated checks, and no check less."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.validation import validate_data

from conftest import few_labels
from ldsu import KDA, LDSU, BlockScaler, LDSUClassifier
from ldsu.kernels import CenteredPoints, Kernel, validate_new

# A public call may run this many functions: 2,000 and more if each layer of scikit-learn validates the row again.
MOST_FUNCTIONS = 300
X, Y = load_digits(return_X_y=True)
X, Y = X[:300] / 16, few_labels(Y[:300], 5)


def functions_run(function, *arguments):
    """Number of Python functions that a call runs, after a first call."""
    function(*arguments)
    count = 0

    def profile(_, event, __):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def digits_model():
    return LDSUClassifier().fit(X, Y)


def test_the_classifier_is_imported_without_what_only_fits_need():
    code = "import sys; from ldsu import LDSUClassifier; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.split()
    parts = ("ensemble", "feature_selection", "linear_model", "metrics", "model_selection", "neighbors")
    assert "ldsu.classifier" in loaded
    assert not {f"sklearn.{part}" for part in parts} & set(loaded)


def test_a_command_does_without_pandas(tmp_path):
    (tmp_path / "table.csv").write_text("a,b,kind\n" + "".join(f"{i},{i % 7},{'xy'[i > 9]}\n" for i in range(20)))
    code = "import sys; from ldsu.__main__ import main\ntry: main()\nfinally: print('pandas' in sys.modules)"
    command = [sys.executable, "-c", code, "fit", "table.csv", "--label", "kind", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=os.environ)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert (tmp_path / "table.ldsu").exists()


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_a_single_row_is_validated_once(digits_model, method):
    assert functions_run(getattr(digits_model, method), X[:1]) < MOST_FUNCTIONS
    assert functions_run(digits_model.features_.transform, X[:1]) < MOST_FUNCTIONS / 2


def test_a_pooled_row_is_validated_once():
    # Columns that matter one by one, as in tables.
    table = np.random.default_rng(0).integers(0, 4, (80, 6)).astype(float)
    labels = few_labels((table[:, 0] > 1).astype(int) + (table[:, 1] > 2), 6)
    model = LDSUClassifier().fit(table, labels)
    assert model.supervised_ is not None
    assert functions_run(model.predict_proba, table[:1]) < MOST_FUNCTIONS


@pytest.mark.parametrize("features", [LDSU(), LDSU(solver="sparse", n_landmarks=50), KDA()], ids=repr)
def test_what_is_kept_for_later_rows_is_not_in_the_pickle(features):
    model = features.fit(X, Y)
    fresh = pickle.dumps(model)
    first = model.transform(X[:1])
    assert len(pickle.dumps(model)) == len(fresh)
    for other in (pickle.loads(fresh), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.transform(X[:1]), first)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_centered_points_give_scikit_learns_kernel(dtype):
    rows, points = X[:7].astype(dtype), X[7:40].astype(dtype)
    kernel = Kernel("rbf", gamma=0.3)
    ours = kernel(rows, CenteredPoints.of(points))
    np.testing.assert_array_equal(ours, kernel(rows.astype(np.float64), points.astype(np.float64)))
    np.testing.assert_allclose(ours, rbf_kernel(rows.astype(np.float64), points.astype(np.float64), gamma=0.3))


def validated(validate, estimator, samples):
    try:
        return validate(estimator, samples)
    except (ValueError, TypeError) as error:
        return str(error)


def scikit_learns(estimator, samples):
    return validate_data(estimator, samples, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)


class Columns(BaseEstimator):
    """Fitted to three columns."""

    n_features_in_ = 3


ROW = np.array([[1.0, 2.0, 3.0]])
SAMPLES = {
    "row": ROW,
    "single precision": ROW.astype(np.float32),
    "half precision": ROW.astype(np.float16),
    "integers": ROW.astype(int),
    "big endian": ROW.astype(">f8"),
    "objects": ROW.astype(object),
    "list": ROW.tolist(),
    "NaN": ROW * [1, np.nan, 1],
    "infinite": ROW * [1, np.inf, 1],
    "both infinities": np.array([[np.inf, -np.inf, 0.0]]),
    "sum overflows": np.full((2, 3), 1e308),
    "sum overflows in single precision": np.full((2, 3), 3e38, dtype=np.float32),
    "a column more": np.ones((2, 4)),
    "one dimension": ROW[0],
    "three dimensions": ROW[None],
    "no rows": ROW[:0],
    "complex": ROW + 1j,
    "matrix": ROW.view(np.matrix),
    "read-only, in Fortran order": np.asfortranarray(np.ones((4, 3))),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.filterwarnings("ignore:invalid value encountered")  # scikit-learn sums infinities
def test_new_samples_are_validated_as_scikit_learn_does(name):
    ours, theirs = (validated(validate, Columns(), SAMPLES[name]) for validate in (validate_new, scikit_learns))
    assert type(ours) is type(theirs)
    if isinstance(ours, str):
        assert ours == theirs
    else:
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_missing_names_of_columns_are_still_reported():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    scaler = BlockScaler().fit(pd.DataFrame(ROW, columns=["a", "b", "c"]))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        scaler.transform(ROW)
