"""Every public estimator keeps scikit-learn's contract; they are found by discovery, not from a list."""

import inspect

import pytest
from sklearn.base import BaseEstimator, is_classifier
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
    assert len(public_estimators()) == 10


@parametrize_with_checks(instances(), expected_failed_checks=expected_failed_checks)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cls", public_estimators())
def test_every_parameter_and_fitted_attribute_is_documented(cls):
    text = inspect.getdoc(cls)
    for name in inspect.signature(cls).parameters:
        assert f"{name} :" in text or f"{name}," in text, f"{cls.__name__} does not document {name}"
