"""Ridge classifiers with other labels: those of scikit-learn, wherever the features are."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import RidgeClassifier

from ldsu import LDSU, LDSUClassifier, Problem
from ldsu._utils.arrays import arrays_on
from ldsu.classifier._ridge import RidgeFits, linear_scores, row_lengths


def features(kind, n_classes, n=60):
    """Features of rows whose class numbers include all, other class numbers, and weights."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((n, 90 if kind == "wide" else 12)) + 3
    codes = [np.append(np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)) for _ in range(2)]
    return scipy.sparse.csr_array(np.where(Z > 3, Z, 0)) if kind == "sparse" else Z, codes, rng.random(n) + 0.1


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("kind", ["long", "wide", "sparse"])
@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_fits_to_any_labels_are_those_of_scikit_learn(kind, n_classes, device, dtype):
    if device == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    Z, several, weights = features(kind, n_classes)
    Z = Z.astype(dtype)
    on_device = Z if kind == "sparse" else arrays_on(device).put(Z)
    fits = RidgeFits(on_device, 0.5, weights)
    for codes in several:
        found = fits.fit(codes)
        expected = RidgeClassifier(alpha=0.5).fit(Z, codes, sample_weight=weights)
        assert found.get_params() == expected.get_params()
        assert vars(found).keys() == vars(expected).keys()
        assert found.coef_.dtype == expected.coef_.dtype
        assert found.coef_.shape == expected.coef_.shape
        assert np.shape(found.intercept_) == np.shape(expected.intercept_)
        tolerance = 1e-8 if dtype == "float64" else 2e-5
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=tolerance)
        np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=10 * tolerance)
        np.testing.assert_array_equal(found.predict(Z), expected.predict(Z))
        scores = expected.decision_function(Z).reshape(len(codes), -1)
        np.testing.assert_allclose(linear_scores(on_device, found), scores, atol=20 * tolerance)
    lengths = np.sqrt((Z.multiply(Z) if kind == "sparse" else Z * Z).sum(axis=1))
    np.testing.assert_allclose(row_lengths(on_device), np.ravel(lengths), rtol=1e-6)


def test_a_singular_system_is_solved_again_and_again():
    Z, (codes, _), weights = features("long", 3)
    fits = RidgeFits(np.hstack([Z, Z]), 1e-30, weights)
    first, second = (fits.fit(codes).coef_ for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()


@pytest.mark.parametrize("reusable", [False, True])
def test_the_classifier_of_features_on_a_device_is_that_of_numpy(digits_rows, reusable):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    X, few = digits_rows
    models = []
    for device in ("cpu", "torch"):
        reused = {"problem": Problem(X, device=device)} if reusable else {}
        models.append(LDSUClassifier(LDSU(solver="sparse", tol=1e-10, device=device)).fit(X, few, **reused))
    cpu, other = models
    np.testing.assert_array_equal(other.transduction_, cpu.transduction_)
    assert other.scaler_.scale_ == pytest.approx(cpu.scaler_.scale_)
    assert other.scaler_.n_features_in_ == cpu.scaler_.n_features_in_
    assert other.expected_accuracy_ == pytest.approx(cpu.expected_accuracy_, abs=1e-6)
    np.testing.assert_allclose(other.predict_proba(X), cpu.predict_proba(X), atol=1e-6)
    for name in ("features", "probabilities", "gain"):
        value = getattr(other.training_view(X), name)
        assert type(value) is np.ndarray
        expected = getattr(cpu.training_view(X), name)
        value, expected = (v @ v.T if name == "features" else v for v in (value, expected))
        np.testing.assert_allclose(value, expected, atol=1e-6)


@pytest.fixture
def digits_rows():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    return X[:400] / 16 + 1e-3 * rng.standard_normal((400, 64)), np.where(np.arange(400) % 10 < 1, y[:400], -1)
