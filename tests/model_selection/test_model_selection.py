import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.semi_supervised import LabelSpreading

import references as ref
from conftest import few_labels
from ldsu import (
    LDSU,
    BlockScaler,
    FewLabelKFold,
    LabelledOnly,
    LabelledScorer,
    mean_average_precision,
    mean_average_precision_scorer,
)


def test_every_unlabelled_row_is_in_every_training_set_and_every_label_is_tested_once(digits):
    X, y = digits
    tested = []
    for train, test in FewLabelKFold(3).split(X, y):
        assert set(np.flatnonzero(y < 0)) <= set(train)
        assert not set(train) & set(test)
        assert sorted([*train, *test]) == list(range(len(y)))
        assert np.bincount(y[test], minlength=10).tolist() == [1] * 10
        tested.extend(test)
    assert sorted(tested) == np.flatnonzero(y >= 0).tolist()


def test_repeats_fold_anew_and_the_seed_decides(digits):
    X, y = digits
    splitter = FewLabelKFold(3, n_repeats=2, random_state=1)
    tests = [tuple(test) for _, test in splitter.split(X, y)]
    assert len(tests) == splitter.get_n_splits() == 6
    assert tests[:3] != tests[3:]
    assert tests == [tuple(test) for _, test in splitter.split(X, y)]


@pytest.mark.parametrize(
    ("y", "n_splits", "message"),
    [
        (["a", "a", "b", "b", "b", None], 3, r"'a'.* has 2 labelled point\(s\), fewer than n_splits=3.*n_splits<=2"),
        (["a", "b", "b", "b", None, None], 2, "A single label cannot be held out"),
        ([-1] * 6, 2, "found no label"),
        ([0, 0, 1, 1, 1, 1], 1, "at least 2"),
        (None, 2, "requires y to be passed"),
    ],
)
def test_too_few_labels_are_named(y, n_splits, message):
    with pytest.raises(ValueError, match=message):
        list(FewLabelKFold(n_splits).split(np.zeros((6, 1)), y))


@pytest.mark.parametrize("seed", range(5))
def test_mean_average_precision_is_its_formula(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(-1, 4, 60)
    scores = rng.integers(0, 8, (60, 4)) / 8  # with ties
    assert mean_average_precision(y, scores) == pytest.approx(ref.mean_average_precision(y, scores))
    binary = np.where(y > 1, 1, np.minimum(y, 0))
    both = np.column_stack([-scores[:, 0], scores[:, 0]])
    assert mean_average_precision(binary, scores[:, 0]) == pytest.approx(ref.mean_average_precision(binary, both))


def test_mean_average_precision_follows_the_given_classes():
    scores = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, 0.0]])
    assert mean_average_precision(["b", "a", "b"], scores, classes=["b", "a"]) == 1.0
    assert mean_average_precision(["b", None, "b"], scores, classes=["b", "a"]) == 1.0
    with pytest.raises(ValueError, match="without a column"):
        mean_average_precision(["b", "z", "b"], scores, classes=["b", "a"])
    with pytest.raises(ValueError, match=r"2 column\(s\) for 3 class"):
        mean_average_precision(["b", "z", "a"], scores)
    with pytest.raises(ValueError, match="has no labelled entries"):
        mean_average_precision([None, None, None], scores)


@pytest.mark.parametrize("kind", ["ints", "strings", "pandas"])
@pytest.mark.parametrize("scoring", [mean_average_precision_scorer, LabelledScorer("accuracy")])
def test_grid_search_chooses_as_a_hand_written_loop(digits, kind, scoring):
    X, y = digits
    labels = {
        "ints": y,
        "strings": np.array([f"d{v}" if v >= 0 else None for v in y], dtype=object),
        "pandas": pd.Series([f"d{v}" if v >= 0 else None for v in y], dtype="string"),
    }[kind]
    model = make_pipeline(LDSU(), BlockScaler(), LabelledOnly(RidgeClassifier()))
    grid = {"ldsu__strength": [1.0, 100.0], "labelledonly__estimator__alpha": [0.01, 1.0]}
    search = GridSearchCV(model, grid, scoring=scoring, cv=FewLabelKFold(3), error_score="raise").fit(X, labels)

    by_hand = {}
    for strength in grid["ldsu__strength"]:
        for alpha in grid["labelledonly__estimator__alpha"]:
            scores = []
            for train, test in FewLabelKFold(3).split(X, y):
                Z = LDSU(strength=strength).fit(X[train], y[train])
                scale = np.sqrt(np.mean(np.sum(Z.transform(X[train]) ** 2, axis=1)))
                rows = train[y[train] >= 0]
                ridge = RidgeClassifier(alpha=alpha).fit(Z.transform(X[rows]) / scale, y[rows])
                decisions = ridge.decision_function(Z.transform(X[test]) / scale)
                if scoring is mean_average_precision_scorer:
                    scores.append(ref.mean_average_precision(y[test], decisions))
                else:
                    scores.append(np.mean(decisions.argmax(axis=1) == y[test]))
            by_hand[alpha, strength] = np.mean(scores)
    # scikit-learn's grid runs over alpha first: parameters in alphabetical order
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], [by_hand[key] for key in sorted(by_hand)])
    best = max(sorted(by_hand), key=by_hand.get)
    chosen = search.best_params_["labelledonly__estimator__alpha"], search.best_params_["ldsu__strength"]
    assert chosen == best


def test_label_spreading_is_scored_rightly_where_plain_cross_validation_is_wrong():
    X, y = load_digits(return_X_y=True)
    few = few_labels(y, 30)
    model = LabelSpreading(kernel="knn", n_neighbors=7)
    ours = cross_val_score(model, X, few, cv=FewLabelKFold(5), scoring=LabelledScorer()).mean()
    plain = cross_val_score(model, X, few, cv=5).mean()
    truth = model.fit(X, few).score(X[few < 0], y[few < 0])
    assert plain < 0.3
    assert ours == pytest.approx(truth, abs=0.03)
