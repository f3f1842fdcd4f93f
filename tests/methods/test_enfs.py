import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import references as ref
from ldsu import EnFS
from ldsu.methods.enfs import minimize_ensemble


def problems():
    rng = np.random.default_rng(0)
    yield rng.standard_normal((40, 12)), np.arange(40) % 3
    yield rng.standard_normal((15, 30)), np.arange(15) % 3
    X, y = load_digits(return_X_y=True)
    yield X[:60] / 16, y[:60]
    yield rng.standard_normal((30, 6)) * [100, 10, 1, 1, 0.1, 0.01], np.arange(30) % 2


@pytest.mark.parametrize(("X", "codes"), list(problems()), ids=["m > d", "d > m", "digits", "uneven columns"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (10.0, 0.0), (0.0, 3.0), (0.1, 0.1)])
def test_minimum_is_that_of_an_independent_solver(X, codes, alpha, beta):
    Y = ref.enfs_targets(codes)
    _, _, lowest = ref.enfs_minimize(X, Y, alpha, beta)
    W, objective = minimize_ensemble(X, Y, alpha, beta, max_iter=20_000, tol=1e-10)
    assert objective[-1] == pytest.approx(lowest, rel=1e-6)
    assert np.all(np.diff(objective) <= 1e-12 * objective[:-1]), "a step raised the objective"
    assert W.shape == (X.shape[1], 2 * Y.shape[1])


def test_columns_that_carry_the_classes_come_first(digits):
    _, y = digits
    rng = np.random.default_rng(0)
    signal = np.eye(10)[y] * 3
    X = np.hstack([rng.standard_normal((len(y), 40)), signal + 0.1 * rng.standard_normal((len(y), 10))])
    y[::2] = -1
    model = EnFS(n_features_to_select=8).fit(X, y)
    assert np.all(model.get_support(indices=True) >= 40)
    np.testing.assert_array_equal(model.transform(X), X[:, model.get_support()])
    assert sorted(model.ranking_) == list(range(1, 51))


def test_none_selects_the_columns_with_weight():
    X = np.random.default_rng(0).standard_normal((60, 10))
    y = (X[:, 3] > 0).astype(int)
    support = EnFS(None, alpha=20.0, beta=20.0, max_iter=5000, tol=1e-9).fit(X, y).get_support(indices=True)
    assert support.tolist() == [3]


def test_unlabelled_rows_are_not_read():
    X = np.random.default_rng(0).standard_normal((30, 5))
    y = np.arange(30) % 3
    few = np.append(y, [-1, -1])
    padded = EnFS().fit(np.vstack([X, [[99.0] * 5, [-99.0] * 5]]), few)
    np.testing.assert_array_equal(padded.scores_, EnFS().fit(X, y).scores_)


def test_stopping_early_is_reported():
    X = np.random.default_rng(0).standard_normal((30, 5))
    with pytest.warns(ConvergenceWarning, match="max_iter=2 steps"):
        EnFS(max_iter=2).fit(X, np.arange(30) % 3)


def test_no_penalty_is_an_error():
    with pytest.raises(ValueError, match="alpha > 0 or beta > 0"):
        EnFS(alpha=0.0, beta=0.0).fit(np.eye(4), [0, 1, 0, 1])
