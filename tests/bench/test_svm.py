"""The machines of a path are those that LIBSVM gives one by one."""

import numpy as np
import pytest
from sklearn.svm import SVC

from ldsu.bench import svm
from ldsu.bench.svm import binary_svm, public_binary_svm, svm_path

C = (1e-4, 1e-3, 1e-2, 1.0, 1e2, 1e3, 1e4)


def points(c, per_class, d, spread, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(c), per_class)
    F = spread * rng.standard_normal((c * per_class, d)) + np.eye(c, d)[codes]
    return F / np.sqrt(np.mean(np.sum(F**2, axis=1))), codes


def ranks(scores):
    return np.argsort(np.argsort(scores, axis=0), axis=0)


def test_two_classes_of_unequal_size_decide_as_their_own_machines_do():
    F, codes = points(2, 9, 6, 0.7)
    F, codes = F[:13], codes[:13]  # nine and four
    F_new, _ = points(2, 40, 6, 0.7, seed=1)
    for machine, values in svm_path(F @ F.T, codes, C, tol=1e-9, max_iter=-1):
        for value in values:
            model = SVC(kernel="linear", C=value, tol=1e-9).fit(F, codes)
            decided = (F_new @ F.T @ machine.weights + machine.intercepts).argmax(axis=1)
            assert np.mean(decided == model.predict(F_new)) > 0.98


@pytest.mark.parametrize(
    ("c", "per_class", "d", "spread"), [(5, 1, 30, 0.2), (5, 4, 30, 0.2), (3, 8, 4, 1.0), (2, 6, 9, 0.7)]
)
def test_every_C_ranks_new_points_as_its_own_machine_does(c, per_class, d, spread):
    F, codes = points(c, per_class, d, spread)
    F_new, _ = points(c, 20, d, spread, seed=1)
    served = {
        value: machine for machine, values in svm_path(F @ F.T, codes, C, tol=1e-9, max_iter=-1) for value in values
    }
    assert sorted(served) == sorted(C)
    for value in C:
        scores = F_new @ F.T @ served[value].weights + served[value].intercepts
        alone = []
        for t in range(c):
            # Tolerances far below C: with its own LIBSVM would stop before it starts where C is tiny.
            model = SVC(kernel="linear", C=value, tol=1e-9).fit(F, codes == t)
            alone.append(model.decision_function(F_new))
        alone = np.column_stack(alone)
        assert np.mean(np.abs(ranks(scores) - ranks(alone)) <= 1) > 0.99
        assert np.mean(scores.argmax(axis=1) == alone.argmax(axis=1)) > 0.98


def test_separable_points_need_few_machines():
    F, codes = points(5, 3, 40, 0.1)
    assert len(svm_path(F @ F.T, codes, C)) <= 3


def test_the_fast_call_and_the_public_class_agree():
    F, codes = points(4, 5, 6, 0.8)
    for value in (0.01, 1.0, 100.0):
        fast, public = binary_svm(F @ F.T, codes == 1, value), public_binary_svm(F @ F.T, codes == 1, value)
        np.testing.assert_allclose(fast[0], public[0])
        assert fast[1] == pytest.approx(public[1])


def test_the_public_class_takes_over_where_the_fast_call_is_gone(monkeypatch):
    F, codes = points(4, 5, 6, 0.8)
    before = binary_svm(F @ F.T, codes == 1, 1.0)
    monkeypatch.setattr(svm, "_libsvm", None)
    np.testing.assert_allclose(binary_svm(F @ F.T, codes == 1, 1.0)[0], before[0])
