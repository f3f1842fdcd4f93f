import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from conftest import few_labels
from ldsu import KPCA, LDSU, METHODS, BlockScaler, LabelledOnly, LDSUClassifier, mean_average_precision
from ldsu.classifier import _classifier


@pytest.fixture(scope="module")
def split_digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    return X[:900], y[:900], X[900:], y[900:]


def test_labelled_only_trains_on_labelled_rows(digits):
    X, y = digits
    rows = y >= 0
    ours = LabelledOnly(LogisticRegression()).fit(X, y)
    theirs = LogisticRegression().fit(X[rows], y[rows])
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X))
    np.testing.assert_allclose(ours.predict_log_proba(X), theirs.predict_log_proba(X))
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X))
    assert -1 not in ours.classes_


def test_labelled_only_passes_weights_of_labelled_rows(digits):
    X, y = digits
    weight = np.random.default_rng(0).random(len(y))
    rows = y >= 0
    ours = LabelledOnly(LogisticRegression()).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(ours.estimator_.coef_, LogisticRegression().fit(X[rows], y[rows], weight[rows]).coef_)


def test_labelled_only_has_the_methods_of_its_estimator():
    assert not hasattr(LabelledOnly(LinearSVC()), "predict_proba")
    assert hasattr(LabelledOnly(LinearSVC()), "decision_function")
    assert hasattr(LabelledOnly(LogisticRegression()), "predict_proba")


@pytest.mark.parametrize("wrap", [np.asarray, pd.DataFrame, scipy.sparse.csr_array])
def test_labelled_only_reads_every_container(digits, wrap):
    X, y = digits
    names = np.array([f"d{v}" if v >= 0 else None for v in y], dtype=object)
    model = LabelledOnly(LogisticRegression()).fit(wrap(X), names)
    assert set(model.predict(wrap(X))) <= {f"d{v}" for v in range(10)}


def test_no_labels_are_an_error():
    for model in (LabelledOnly(LinearSVC()), LDSUClassifier()):
        with pytest.raises(ValueError, match=r"no label|at least 2 classes"):
            model.fit(np.eye(4), [-1] * 4)
        with pytest.raises(ValueError, match="requires y"):
            model.fit(np.eye(4), None)


def test_pipeline_with_missing_labels_equals_its_steps(digits):
    X, y = digits
    pipeline = make_pipeline(LDSU(), BlockScaler(), LabelledOnly(LinearSVC(C=10.0, random_state=0))).fit(X, y)
    Z = LDSU().fit(X, y).transform(X)
    Z = Z / np.sqrt(np.mean(np.sum(Z**2, axis=1)))
    svm = LinearSVC(C=10.0, random_state=0).fit(Z[y >= 0], y[y >= 0])
    np.testing.assert_allclose(pipeline.decision_function(X), svm.decision_function(Z), atol=1e-8)


def test_one_label_per_class_is_not_called_a_regression_problem(recwarn):
    X, y = load_digits(return_X_y=True)
    few = few_labels(y[:300], 1)
    LDSUClassifier().fit(X[:300], few)
    LabelledOnly(LinearSVC()).fit(X[:300], few)
    assert not [w for w in recwarn if "regression" in str(w.message)]


def test_classifier_is_its_steps_and_standardization(digits):
    X, y = digits
    model = LDSUClassifier(KPCA(20), RidgeClassifier(alpha=0.5)).fit(X, y)
    Z = KPCA(20).fit(X).transform(X)
    Z /= np.sqrt(np.mean(np.sum(Z**2, axis=1)))
    raw = RidgeClassifier(alpha=0.5).fit(Z[y >= 0], y[y >= 0]).decision_function(Z)
    center = raw[y < 0].mean(axis=0)
    expected = (raw - center) / np.mean(np.abs(raw[y < 0] - center), axis=0)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-8)
    np.testing.assert_array_equal(model.predict(X), expected.argmax(axis=1))


def test_standardizing_changes_no_ranking_and_improves_decisions(split_digits):
    X, y, X_new, y_new = split_digits
    accuracy = {True: [], False: []}
    for seed in range(5):
        few = few_labels(y, 1, seed)
        ridge = RidgeClassifier(alpha=0.1)
        models = {s: LDSUClassifier(classifier=ridge, standardize_scores=s).fit(X, few) for s in (True, False)}
        maps = [mean_average_precision(y_new, m.decision_function(X_new)) for m in models.values()]
        assert maps[0] == pytest.approx(maps[1], abs=1e-12)
        for s, model in models.items():
            accuracy[s].append(model.score(X_new, y_new))
    assert np.mean(accuracy[True]) > np.mean(accuracy[False]) + 0.05


def test_auto_standardizes_where_labels_are_few():
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    binary = np.where(few_labels(y, 3) < 0, -1, y % 2)
    cases = {
        "three labels per class": (few_labels(y, 3), True),
        "ten labels per class": (few_labels(y, 10), True),
        "twenty labels per class": (few_labels(y, 20), False),
        "two classes": (binary, True),
        "no unlabelled rows": (y, False),
        "labels as unequal as their classes": (np.where(few_labels(y, 15) == 0, 0, few_labels(y, 3)), False),
    }
    for name, (labels, expected) in cases.items():
        model = LDSUClassifier(classifier=RidgeClassifier()).fit(X, labels)  # no evidence that classes are unequal
        assert np.any(model.score_scale_ != 1) == expected, name
    assert LDSUClassifier(standardize_scores=True).fit(X, binary).score_center_.item() != 0


def test_standardization_changes_gradually_from_three_to_five_labels():
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    deviations = {}
    for labels in (2, 3, 4, 5, 15):
        ridge = LDSUClassifier(LDSU(strength=100.0), RidgeClassifier()).fit(X, few_labels(y, labels))
        raw = ridge.classifier_.decision_function(ridge.scaler_.transform(ridge.features_.transform(X)))
        deviation = np.abs(raw - ridge.score_center_).mean(axis=0)
        deviations[labels] = float(np.median(np.log(ridge.score_scale_) / np.log(deviation)))
    assert deviations == pytest.approx({2: 1, 3: 1, 4: 0.75, 5: 0.5, 15: 0.5}, abs=0.03)


@pytest.mark.parametrize(
    ("explained", "gain", "raw"),
    [(1.0, 0.3, False), (1.0, 0.4, True), (0.5, 0.6, False), (0.5, 0.8, True), (-0.1, 9.0, False)],
)
def test_raw_scores_must_make_left_out_labels_likelier_and_explain_them(monkeypatch, explained, gain, raw):
    X, y = load_digits(return_X_y=True)
    X, few = X[:400], few_labels(y[:400], 3)
    monkeypatch.setattr(_classifier, "MAX_CHANGED", -1.0)  # ask always
    likelihood = (explained - 1) * 30 * np.log(10)
    likelihoods = iter([np.full(30, likelihood / 30), np.full(30, (likelihood - gain) / 30)])
    monkeypatch.setattr(_classifier, "log_likelihoods", lambda scores, codes: next(likelihoods))
    assert np.all(LDSUClassifier(supervised=False).fit(X, few).score_scale_ == 1) == raw


def test_unequal_classes_are_decided_well_from_ten_labels():
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    kept = np.concatenate([rng.permutation(np.flatnonzero(y == t))[: max(12, int(178 * 0.7**t))] for t in range(10)])
    few = few_labels(y[kept], 10)
    assert LDSUClassifier().fit(X[kept], few).score(X, y) > 0.9


def test_two_classes_give_one_score_and_predict_follows_its_sign(digits):
    X, y = digits
    binary = np.where(y < 0, -1, y % 2)
    names = np.array([None, "even", "odd"], dtype=object)[binary + 1]
    model = LDSUClassifier().fit(X, names)
    scores = model.decision_function(X)
    assert scores.shape == (len(X),)
    np.testing.assert_array_equal(model.predict(X), np.where(scores > 0, "odd", "even"))


def test_scores_that_are_not_one_for_each_class_are_refused(digits):
    X, y = digits
    three = np.where(y > 2, -1, y)
    with pytest.raises(ValueError, match="requires one-vs-rest scores"):
        LDSUClassifier(classifier=SVC(kernel="linear", decision_function_shape="ovo")).fit(X, three)


def test_sparse_features_can_be_classified(digits):
    X, y = digits
    sparse_X = scipy.sparse.csr_array(X)
    model = LDSUClassifier(METHODS["EnFS"](), SVC(kernel="linear"))
    dense, sparse = (clone(model).fit(Z, y) for Z in (X, sparse_X))
    np.testing.assert_allclose(sparse.decision_function(sparse_X), dense.decision_function(X), atol=1e-6)


def test_labelled_only_selects_the_columns_of_a_kernel_matrix(digits):
    X, y = digits
    rows = y >= 0
    ours = LabelledOnly(SVC(kernel="precomputed")).fit(X @ X.T, y)
    theirs = SVC(kernel="linear").fit(X[rows], y[rows])
    np.testing.assert_allclose(ours.decision_function(X @ X.T), theirs.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e15])
def test_block_scaler_works_at_the_ends_of_single_precision(size):
    X = (size * np.random.default_rng(0).standard_normal((20, 3))).astype(np.float32)
    assert np.mean(np.sum(BlockScaler().fit_transform(X).astype(float) ** 2, axis=1)) == pytest.approx(1, rel=1e-5)


def test_score_weighs_rows(digits):
    X, y = digits
    model = LDSUClassifier().fit(X, y)
    wrong = np.where(np.arange(len(y)) < 60, (y + 1) % 10, y)
    wrong[y < 0] = -1
    weight = np.where(np.arange(len(y)) < 60, 0.0, 1.0)
    assert model.score(X, wrong) < model.score(X, wrong, sample_weight=weight) == model.score(X[60:], y[60:])


def test_transduction_keeps_given_labels_and_predicts_the_rest(digits):
    X, y = digits
    model = LDSUClassifier().fit(X, y)
    np.testing.assert_array_equal(model.transduction_[y >= 0], y[y >= 0])
    np.testing.assert_array_equal(model.transduction_[y < 0], model.predict(X)[y < 0])


def test_score_ignores_unlabelled_rows(digits):
    X, y = digits
    model = LDSUClassifier().fit(X, y)
    rows = y >= 0
    assert model.score(X, y) == np.mean(model.predict(X[rows]) == y[rows])
    with pytest.raises(ValueError, match="a score cannot be computed"):
        model.score(X, np.full(len(X), -1))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_serves_as_features(digits, name):
    X, y = digits
    model = LDSUClassifier(METHODS[name](), SVC(kernel="linear", decision_function_shape="ovr")).fit(X, y)
    assert model.decision_function(X).shape == (len(X), 10)


def test_few_labels_suffice_on_digits(split_digits):
    X, y, X_new, y_new = split_digits
    accuracy = np.mean([LDSUClassifier().fit(X, few_labels(y, 5, s)).score(X_new, y_new) for s in range(3)])
    plain = np.mean([LabelledOnly(SVC(C=10.0)).fit(X, few_labels(y, 5, s)).score(X_new, y_new) for s in range(3)])
    assert accuracy > 0.93
    assert accuracy > plain + 0.03


@pytest.mark.parametrize("labels", [1, 5, 25])
def test_refinement_is_ridge_regression_on_all_rows_with_their_predicted_labels(split_digits, labels):
    X, y, _, _ = split_digits
    few = few_labels(y, labels)
    model = LDSUClassifier(LDSU(strength=100.0), n_refinements=2, supervised=False).fit(X, few)
    Z = BlockScaler().fit_transform(model.features_.transform(X))
    known = few >= 0
    noise = model.features_.noise_
    alpha = noise * np.mean(np.sum(Z[known] ** 2, axis=1))

    def standardized(scores):
        if labels >= 20:
            return scores
        center = scores[~known].mean(axis=0)
        power = np.interp(labels, (3, 5), (1.0, 0.5))
        return (scores - center) / np.mean(np.abs(scores[~known] - center), axis=0) ** power

    fitted = RidgeClassifier(alpha=alpha).fit(Z[known], few[known])
    for _ in range(2):
        targets = np.where(known, few, standardized(fitted.decision_function(Z)).argmax(axis=1))
        fitted = RidgeClassifier(alpha=alpha).fit(Z, targets, sample_weight=np.where(known, 1.0, noise / 10.0))
    expected = standardized(fitted.decision_function(Z)).argmax(axis=1)
    np.testing.assert_array_equal(model.transduction_, np.where(known, few, expected))


@pytest.mark.parametrize(("n_unlabelled", "power"), [(9_900, 0.5), (17_220, 0.75), (29_900, 1.0), (10**6, 1.0)])
def test_scores_are_divided_by_the_full_deviation_where_rows_are_many_per_label(n_unlabelled, power):
    model = LDSUClassifier()
    model.class_shares_ = None
    counts = np.full(10, 10)
    assert model._power(counts, n_unlabelled) == pytest.approx(power, abs=1e-3)
    assert model._power(np.full(10, 3), 100) == 1


def test_refinement_helps_where_labels_are_few(split_digits):
    X, y, X_new, y_new = split_digits
    scores = {n: [] for n in (0, 4)}
    for seed in range(5):
        few = few_labels(y, 1, seed)
        for n, found in scores.items():
            found.append(LDSUClassifier(n_refinements=n).fit(X, few).score(X_new, y_new))
    assert np.mean(scores[4]) > np.mean(scores[0]) + 0.01


def test_scores_are_logarithms_of_odds_of_the_softmax(split_digits):
    X, y, X_new, _ = split_digits
    model = LDSUClassifier(supervised=False).fit(X, few_labels(y, 3))
    Z = model.scaler_.transform(model.features_.transform(X_new))
    raw = (model.classifier_.decision_function(Z) - model.score_center_) / model.score_scale_
    p = np.exp(raw / 2) / np.exp(raw / 2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.decision_function(X_new), np.log(p / (1 - p)), atol=1e-8)


@pytest.mark.parametrize("classes", [2, 10])
def test_probabilities_agree_with_labels_and_are_as_sure_as_expected(split_digits, classes):
    X, y, X_new, _ = split_digits
    few = few_labels(np.where(y < classes, y, 0), 5)
    model = LDSUClassifier().fit(X, few)
    probabilities = model.predict_proba(X_new)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X_new))
    sure = model.predict_proba(X[few < 0]).max(axis=1).mean()
    assert sure == pytest.approx(model.expected_accuracy_, abs=1e-3)


def test_confidence_tells_far_from_everything_from_between_two_classes():
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [6.0, 0.0]])
    y = np.repeat([0, 1], 200)
    X = centers[y] + rng.normal(size=(400, 2))
    bridge = np.column_stack([np.linspace(0, 6, 60), 0.2 * rng.normal(size=60)])
    few = np.full(460, -1)
    few[[0, 1, 2, 200, 201, 202]] = [0, 0, 0, 1, 1, 1]
    model = LDSUClassifier().fit(np.vstack([X, bridge]), few)
    margin, familiarity = model.confidence([[500.0, 500.0], [3.0, 0.0], [0.0, 0.0]])
    assert familiarity[0] == 0
    assert familiarity[1] > 0
    assert familiarity[2] > 0.5
    assert margin[1] < margin[2]
    assert margin[0] < 1e-3  # equal probabilities


def test_isolated_rows_are_counted_in_a_warning_and_get_equal_probabilities(split_digits):
    X, y, X_new, _ = split_digits
    model = LDSUClassifier().fit(X, few_labels(y, 3))
    far = np.vstack([X_new[:3], X_new[:2] + 1e4])
    with pytest.warns(UserWarning, match=r"2 row\(s\) lie far from all training rows"):
        model.predict(far)
    probabilities = model.predict_proba(far)
    np.testing.assert_allclose(probabilities[3:], 0.1, atol=1e-5)
    assert probabilities[:3].max(axis=1).min() > 0.2


def test_probabilities_are_there_with_the_default_classifier_alone(split_digits):
    X, y, _, _ = split_digits
    assert hasattr(LDSUClassifier(), "predict_proba")
    other = LDSUClassifier(classifier=RidgeClassifier()).fit(X, few_labels(y, 3))
    for name in ("predict_proba", "confidence"):
        assert not hasattr(other, name)


def test_probabilities_are_scaled_with_many_classes_and_large_scores():
    X, y = make_blobs(900, 10, centers=30, cluster_std=3.0, center_box=(-8, 8), random_state=0)
    few = few_labels(y, 1)
    model = LDSUClassifier().fit(X, few)
    sure = model.predict_proba(X[few < 0]).max(axis=1).mean()
    assert sure == pytest.approx(model.expected_accuracy_, abs=1e-3)


@pytest.mark.parametrize("labels", [5, 10])
def test_default_does_not_make_unequal_classes_equal(labels):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [900, 60, 40])
    X = rng.normal(size=(1000, 5))
    X[y == 1, 0] += 3
    X[y == 2, 1] += 3
    few = np.full(1000, -1)
    for label in range(3):
        few[rng.permutation(np.flatnonzero(y == label))[:labels]] = label
    equal = LDSUClassifier(standardize_scores=True, class_shares="equal", supervised=False)
    assert equal.fit(X, few).score(X[few < 0], y[few < 0]) < 0.6  # what has to be avoided
    for supervised in (True, False):
        assert LDSUClassifier(supervised=supervised).fit(X, few).score(X[few < 0], y[few < 0]) > 0.9


@pytest.mark.parametrize("shares", [[0.5, 0.3, 0.2], {0: 0.5, 1: 0.3, 2: 0.2}, "equal", "labels"])
@pytest.mark.parametrize("per_class", [1, 5])
def test_unlabelled_rows_have_the_given_class_shares(shares, per_class):
    X, y = make_blobs(400, centers=3, cluster_std=3.0, random_state=0)
    few = few_labels(y, per_class)
    model = LDSUClassifier(class_shares=shares).fit(X, few)
    expected = [0.5, 0.3, 0.2] if not isinstance(shares, str) else [1 / 3] * 3
    np.testing.assert_allclose(model.class_shares_, expected)
    np.testing.assert_allclose(model.predict_proba(X[few < 0]).mean(axis=0), expected, atol=0.005)
    np.testing.assert_array_equal(model.predict(X[few < 0]), model.transduction_[few < 0])


def test_class_shares_move_the_border_of_two_classes():
    X, y = make_blobs(400, centers=2, cluster_std=4.0, random_state=0)
    few = few_labels(y, 5)
    for share in (0.2, 0.5, 0.8):
        model = LDSUClassifier(class_shares=[1 - share, share]).fit(X, few)
        assert model.predict_proba(X[few < 0])[:, 1].mean() == pytest.approx(share, abs=0.005)
        np.testing.assert_array_equal(model.predict(X) == 1, model.decision_function(X) > 0)


@pytest.mark.parametrize("classifier", [None, RidgeClassifier()])
def test_known_class_shares_help_where_classes_are_unequal(classifier):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1, 2], [450, 30, 20]))
    X = 2.5 * np.eye(3)[y] + rng.standard_normal((500, 3))
    few = few_labels(y, 3)
    rows = few < 0
    models = {shares: LDSUClassifier(classifier=classifier, class_shares=shares) for shares in ("equal", "auto")}
    known = LDSUClassifier(classifier=classifier, class_shares=[0.9, 0.06, 0.04]).fit(X, few)
    accuracy = {shares: model.fit(X, few).score(X[rows], y[rows]) for shares, model in models.items()}
    assert known.score(X[rows], y[rows]) >= max(accuracy["auto"], accuracy["equal"] + 0.1)
    assert (models["auto"].class_shares_ is None) == (classifier is not None)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([0.5, 0.5], "must be 3 positive numbers that sum to 1"),
        ([0.5, 0.5, 0.5], "sum to 1"),
        ([1.0, 0.0, 0.0], "positive"),
        ([np.nan, 0.5, 0.5], "positive"),
        ({0: 0.5, 1: 0.5}, r"names \[0, 1\], but the classes with a label are \[0, 1, 2\]"),
        ("even", "class_shares"),
    ],
)
def test_class_shares_that_are_none_are_refused(shares, message):
    X, y = make_blobs(60, centers=3, random_state=0)
    with pytest.raises(ValueError, match=message):
        LDSUClassifier(class_shares=shares).fit(X, few_labels(y, 3))


@pytest.mark.parametrize(
    ("counts", "standardized"), [((1, 4, 3, 2), True), ((3, 3, 3, 2), True), ((1, 40, 3, 2), False)]
)
def test_label_counts_that_differ_by_chance_do_not_make_classes_unequal(counts, standardized):
    X, y = load_digits(n_class=4, return_X_y=True)
    ranks = np.array([np.sum(y[:row] == label) for row, label in enumerate(y)])
    model = LDSUClassifier(supervised=False).fit(X, np.where(ranks < np.array(counts)[y], y, -1))
    assert (np.abs(model.score_center_).max() > 0) == standardized


def test_rows_without_structure_are_not_all_given_one_label():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 8)), rng.integers(0, 2, 400)  # left-out labels are predicted worse than by chance
    for seed in range(4):
        few = few_labels(y, 3, seed)
        labels = LDSUClassifier(supervised=False).fit(X, few).predict(X[few < 0])
        assert 0.3 < np.mean(labels) < 0.7


def test_intercepts_of_pooled_scores_are_corrected_as_far_as_they_are_uncertain(monkeypatch):
    # Two classes that one weak column separates: a few labels leave the intercept far from the middle.
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    X = np.column_stack([y + 2 * rng.normal(size=600), rng.integers(0, 4, (600, 6))])
    few = few_labels(y, 3)

    def share(max_shift):
        monkeypatch.setattr(_classifier, "MAX_SHIFT", max_shift)
        model = LDSUClassifier().fit(X, few)
        assert model.supervised_ is not None
        return model.class_shares_

    none, default, whole = share(1e-9), share(0.1), share(10.0)
    np.testing.assert_allclose(whole, 0.5, atol=0.02)
    assert abs(whole[0] - 0.5) <= abs(default[0] - 0.5) < abs(none[0] - 0.5)


def test_chosen_label_counts_of_small_classes_are_not_taken_for_chance():
    X, y = load_digits(return_X_y=True)
    rows = np.concatenate([np.flatnonzero(y == digit)[:size] for digit, size in enumerate([170] * 5 + [9, 5, 4, 3, 2])])
    X, y = X[rows], y[rows]
    rank = np.array([np.count_nonzero(y[:row] == y[row]) for row in range(y.size)])
    few = np.where(rank < 10, y, -1)  # small classes are labelled whole
    assert np.all(LDSUClassifier(supervised=False).fit(X, few).score_scale_ == 1)
