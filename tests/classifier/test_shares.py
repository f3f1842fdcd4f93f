"""Estimated shares of the classes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from ldsu import LDSUClassifier
from ldsu.classifier._shares import MODEL_VARIANCE, designed, estimate_shares


def predictions(rng, shares, n, accuracy):
    """Codes of n rows and probabilities that are right with some accuracy."""
    c = shares.size
    codes = rng.choice(c, n, p=shares)
    said = np.where(rng.random(n) < accuracy, codes, rng.integers(0, c, n))
    return codes, 0.2 / c + 0.8 * np.eye(c)[said]


def test_many_labels_and_good_predictions_give_the_shares():
    rng = np.random.default_rng(0)
    shares = np.array([0.8, 0.15, 0.05])
    codes, left_out = predictions(rng, np.full(3, 1 / 3), 3000, 0.9)
    _, unlabelled = predictions(rng, shares, 20000, 0.9)
    np.testing.assert_allclose(estimate_shares(left_out, codes, unlabelled.mean(axis=0)), shares, atol=0.12)


def test_predictions_without_information_leave_shares_equal():
    left_out = np.tile([0.1, 0.2, 0.3, 0.4], (40, 1))  # whatever the row
    np.testing.assert_allclose(estimate_shares(left_out, np.arange(40) % 4, left_out[0]), 0.25, atol=1e-3)


def test_fewer_labels_shrink_the_estimate():
    rng = np.random.default_rng(0)
    shares, largest = np.array([0.9, 0.1]), []
    for m in (6, 20, 200):
        found = []
        for _ in range(20):
            codes = np.arange(m) % 2
            left_out = 0.1 + 0.8 * np.eye(2)[np.where(rng.random(m) < 0.8, codes, 1 - codes)]
            _, unlabelled = predictions(rng, shares, 2000, 0.6)
            found.append(estimate_shares(left_out, codes, unlabelled.mean(axis=0))[0])
        largest.append(np.mean(found))
    assert 0.5 < largest[0] < largest[2] <= 0.95


def test_the_estimate_maximizes_its_posterior():
    rng = np.random.default_rng(1)
    codes, left_out = predictions(rng, np.full(3, 1 / 3), 30, 0.7)
    mean = predictions(rng, np.array([0.6, 0.3, 0.1]), 500, 0.7)[1].mean(axis=0)
    counts = np.bincount(codes)
    C = np.array([left_out[codes == t].mean(axis=0) for t in range(3)])
    within = sum((left_out[codes == t] - C[t]).T @ (left_out[codes == t] - C[t]) for t in range(3))
    covariance = (within + 2 * (np.eye(3) / 3 - 1 / 9)) / (30 - 3 + 2)

    def value(pi):  # written from the formula
        S = ((pi**2 / counts).sum() + MODEL_VARIANCE) * covariance[:2, :2] + 1e-6 * np.eye(2)
        r = (mean - C.T @ pi)[:2]
        return -0.5 * r @ np.linalg.solve(S, r) - 0.5 * np.linalg.slogdet(S)[1] + np.log(pi).sum()

    found = estimate_shares(left_out, codes, mean)
    grid = rng.dirichlet(np.ones(3), 4000)
    assert value(found) >= max(map(value, grid)) - 1e-4


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5, 5, 5], True),
        ([5, 5, 2], True),
        ([5, 2, 1], False),
        ([9, 1], False),
        ([3, 3], True),
        ([5, 5, 2, 1], False),
        ([9, 9, 9, 7, 4, 2], True),
    ],
)
def test_equal_counts_are_taken_as_chosen(counts, expected):
    assert designed(np.array(counts)) == expected


def test_equal_labels_of_unequal_classes_are_noticed():
    X, y = make_blobs([900, 60, 40], centers=[[0, 0], [3, 0], [0, 3]], random_state=0)
    few = np.full(y.size, -1)
    for label in range(3):
        few[np.flatnonzero(y == label)[:8]] = label
    auto, equal = (LDSUClassifier(class_shares=shares).fit(X, few) for shares in ("auto", "equal"))
    rows = few < 0
    assert auto.score(X[rows], y[rows]) > equal.score(X[rows], y[rows]) + 0.1
    assert auto.class_shares_[0] > 0.7
    np.testing.assert_allclose(auto.class_shares_.sum(), 1)
