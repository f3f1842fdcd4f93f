"""Every public estimator keeps scikit-learn's contract; they are found by discovery, not from a list."""

import inspect
import re

import pytest
from sklearn.base import BaseEstimator, is_classifier
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import ldsu


def public_estimators():
    classes = (getattr(ldsu, name) for name in ldsu.__all__)
    return [cls for cls in classes if inspect.isclass(cls) and issubclass(cls, BaseEstimator)]


def instance(cls):
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
