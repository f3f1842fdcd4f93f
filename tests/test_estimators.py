"""Every public estimator keeps scikit-learn's contract; they are found by discovery, not from a list."""

import inspect
import os
import re
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import _is_fitted

import ldsu


def public_estimators():
    classes = (getattr(ldsu, name) for name in ldsu.__all__)
    return [cls for cls in classes if inspect.isclass(cls) and issubclass(cls, BaseEstimator)]


def instance(cls):
    if cls is ldsu.LDSUSearch:  # two settings: the default grid of eight takes minutes over all checks
        return cls(param_grid={"features__strength": [1.0, 100.0]}, cv=2)
    required = [p for p in inspect.signature(cls).parameters.values() if p.default is inspect.Parameter.empty]
    return cls(*[LogisticRegression() for _ in required])


def instances():
    variants = [
        ldsu.LDSU(filter="truncate"),
        ldsu.LDSU(filter="heat"),
        ldsu.LDSU(solver="sparse"),
        ldsu.LDSU(5, filter="truncate", solver="sparse"),
        ldsu.LDSU(kernel="poly", degree=2),
        ldsu.LDSU(kernel="cosine"),
        ldsu.LDSU(kernel="chi2"),
        ldsu.KPCA(kernel="linear"),
    ]
    return [instance(cls) for cls in public_estimators()] + variants


def expected_failed_checks(estimator):
    if is_classifier(estimator):
        # The check feeds the classes {-1, 1}; scikit-learn exempts semi-supervised classifiers, for which -1 means
        # "no label", by a fixed list of its own class names.
        return {"check_classifiers_classes": "-1 means unlabelled here, and scikit-learn exempts only its own names"}
    return {}


def test_discovery_finds_every_method():
    assert set(ldsu.METHODS.values()) <= set(public_estimators())
    assert {ldsu.LDSUClassifier, ldsu.LabelledOnly, ldsu.BlockScaler} <= set(public_estimators())


@parametrize_with_checks(instances(), expected_failed_checks=expected_failed_checks)
def test_scikit_learn_contract(estimator, check):
    check(estimator)  # raises where the contract is broken


@pytest.mark.parametrize("cls", public_estimators())
def test_every_parameter_and_fitted_attribute_is_documented(cls):
    documented = set()
    for line in inspect.getdoc(cls).splitlines():
        if re.match(r"\w[\w, ]* : ", line):
            documented |= set(line.split(" : ")[0].split(", "))
    missing = set(inspect.signature(cls).parameters) - documented
    assert not missing, f"{cls.__name__} does not document its parameters {missing}"
    X, y = load_iris(return_X_y=True)
    y[1::2] = -1
    fitted = instance(cls).fit(X, y)
    public = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")}
    missing = public - documented - {"n_features_in_", "feature_map_"}
    assert not missing, f"{cls.__name__} does not document its attributes {missing}"


class InterruptAtLine:
    """Raise KeyboardInterrupt before the `number`-th line of ldsu that runs; count the lines where none is given."""

    source = os.path.dirname(ldsu.__file__)

    def __init__(self, number=None):
        self.number, self.count = number, 0

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, event, _):
        # A signal while settings of the whole process are restored is no matter of the estimator.
        if not frame.f_code.co_filename.startswith(self.source) or frame.f_code.co_filename.endswith("arrays.py"):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.number:
                raise KeyboardInterrupt
        return self.trace


@pytest.mark.parametrize("estimator", instances(), ids=repr)
def test_a_refused_or_interrupted_fit_leaves_the_estimator_as_it_was(estimator):
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]  # fifty rows of three classes
    names = np.array(["ant", "bee", "cat"], dtype=object)[y]
    others = np.array(["dog", "elk", "fox"], dtype=object)[y]
    names[1::2] = others[::2] = None
    damaged = X.copy()
    damaged[3:5, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        estimator.fit(damaged, names)
    assert not _is_fitted(estimator)

    estimator.fit(X, names)
    state = dict(vars(estimator))

    def check_unchanged():
        assert vars(estimator).keys() == state.keys()
        assert all(vars(estimator)[name] is value for name, value in state.items())

    with pytest.raises(ValueError, match="NaN"):
        estimator.fit(damaged, others)
    check_unchanged()
    with InterruptAtLine() as lines:
        clone(estimator).fit(X[::-1], others)
    # What is cached makes the count vary by a line or two.
    for number in np.unique(np.geomspace(1, lines.count - 5, 12).astype(int)):
        with pytest.raises(KeyboardInterrupt), InterruptAtLine(number):
            estimator.fit(X[::-1], others)
        check_unchanged()
