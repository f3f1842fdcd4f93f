"""Linear one-vs-rest support vector machines for every C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.svm import SVC

try:
    from sklearn.svm import _libsvm
except ImportError:  # private module: fall back to the slower public class
    _libsvm = None

# Maximum steps of the SVM solver. Inseparable points with a huge C need more, without benefit.
MAX_ITER = 10_000
# LIBSVM's default.
TOLERANCE = 1e-3
# Relative tolerance for a coefficient to be at the bound C.
AT_BOUND = 1e-6


@dataclass(frozen=True)
class Machine:
    """Scores of a point are its inner products with the labelled points times `weights`, plus `intercepts`."""

    weights: np.ndarray  # (m, c)
    intercepts: np.ndarray  # (c,)


def svm_path(
    gram: np.ndarray, codes: np.ndarray, C: Sequence[float], *, tol: float = TOLERANCE, max_iter: int = MAX_ITER
) -> list[tuple[Machine, list[float]]]:
    """Train one machine for each C, hinge loss, from inner products alone.

    A classifier trained on m points sees nothing of the features but the span of those points: `gram` is all it needs,
    however many features there are. Two facts save most of the work. A machine none of whose coefficients reaches C
    is the same for every larger C. A machine all of whose positive examples have the coefficient C turns, for a smaller
    C' = t C, into one with the scores ``t (f + 1) - 1``: the same order within a class and, when all classes are in
    that state, between classes. Such a C' shares the machine of C. (Where two classes are of equal size and every
    example has the coefficient C, the scores are just ``t f``.)

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        Inner products of the labelled points.
    codes : ndarray of shape (m,)
        Their classes, 0 .. c-1, none missing.
    C : sequence of float
    tol, max_iter : float, int
        When LIBSVM stops.

    Returns
    -------
    machines : list of (Machine, list of float)
        Each machine with the values of C it is valid for.
    """
    ascending = sorted(float(value) for value in C)
    middle = min(range(len(ascending)), key=lambda i: abs(np.log(ascending[i])))
    machines: list[tuple[Machine, list[float]]] = []
    for i in range(middle, len(ascending)):
        machine, free, saturated = _train(gram, codes, ascending[i], tol, max_iter)
        machines.append((machine, [ascending[i]]))
        if free:
            machines[-1][1].extend(ascending[i + 1 :])
            break
        if i == middle and saturated:
            machines[0][1].extend(ascending[:middle])
            middle = 0
    for i in range(middle - 1, -1, -1):
        machine, _, saturated = _train(gram, codes, ascending[i], tol, max_iter)
        machines.append((machine, [ascending[i]]))
        if saturated:
            machines[-1][1].extend(ascending[:i])
            break
    return machines


def _train(gram: np.ndarray, codes: np.ndarray, C: float, tol: float, max_iter: int) -> tuple[Machine, bool, bool]:
    """The machine, whether no coefficient is at C, and whether that of every positive example is."""
    m = gram.shape[0]
    c = int(codes.max()) + 1
    weights, intercepts = np.zeros((m, c)), np.zeros(c)
    free, saturated = True, True
    for t in range(1 if c == 2 else c):
        positive = codes == (1 if c == 2 else t)
        column, intercepts[t] = binary_svm(gram, positive, C, tol, max_iter)
        weights[:, t] = column
        free &= bool(np.abs(column).max() < C * (1 - AT_BOUND))
        # With two classes the decision is the sign of one score, which a shift would change: both must be at C.
        saturated &= bool(np.abs(column[positive | (c == 2)]).min() >= C * (1 - AT_BOUND))
    if c == 2:  # one machine, positive for the second class
        weights = np.column_stack([-weights[:, 0], weights[:, 0]])
        intercepts = np.array([-intercepts[0], intercepts[0]])
    return Machine(weights, intercepts), free, saturated


def binary_svm(
    gram: np.ndarray, positive: np.ndarray, C: float, tol: float = TOLERANCE, max_iter: int = MAX_ITER
) -> tuple[np.ndarray, float]:
    """Coefficients (m,), signed, and intercept of one machine, by LIBSVM.

    Checking and converting its arguments takes scikit-learn's public class ten times as long as LIBSVM takes to train
    on a few hundred points, and an experiment trains millions of machines. So LIBSVM is called as that class calls it.
    """
    if _libsvm is None:
        return public_binary_svm(gram, positive, C, tol, max_iter)
    _libsvm.set_verbosity_wrap(0)
    support, _, _, dual, intercept, *_ = _libsvm.fit(
        np.ascontiguousarray(gram, dtype=np.float64),
        positive.astype(np.float64),
        svm_type=0,
        kernel="precomputed",
        C=C,
        tol=tol,
        max_iter=max_iter,
    )
    coefficients = np.zeros(gram.shape[0])
    coefficients[support] = -dual[0]  # LIBSVM's first class is the smaller value: the negative one
    return coefficients, -float(intercept[0])


def public_binary_svm(
    gram: np.ndarray, positive: np.ndarray, C: float, tol: float = TOLERANCE, max_iter: int = MAX_ITER
) -> tuple[np.ndarray, float]:
    """The same by scikit-learn's public class."""
    model = SVC(kernel="precomputed", C=C, tol=tol, max_iter=max_iter).fit(gram, positive)
    coefficients = np.zeros(gram.shape[0])
    coefficients[model.support_] = model.dual_coef_[0]
    return coefficients, float(model.intercept_[0])
