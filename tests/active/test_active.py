import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import load_digits, make_blobs

import references
from ldsu import KPCA, LDSUClassifier, Problem
from ldsu.active import STRATEGIES, ActiveLearner, Posterior, doubtful_labels, forecast, posterior_mean, suggest
from ldsu.active._strategies import POWER, Pool, choose_rows, margin_uncertainty, shortlist_errors


@pytest.fixture
def features():
    """40 rows in 6 dimensions, six of them labelled, of three classes."""
    rng = np.random.default_rng(0)
    codes = np.full(40, -1)
    codes[[3, 7, 11, 20, 30, 39]] = [0, 1, 2, 0, 1, 2]
    return rng.standard_normal((40, 6)), codes


def pool_of(Z, codes, probabilities=None, **options):
    gain = None if probabilities is None else np.array([0.5, 1.0, 2.0])
    return Pool(Z, codes, codes < 0, 0.3, np.random.default_rng(0), probabilities, gain)._replace(**options)


@pytest.fixture(scope="module")
def many_digits():
    X, y = load_digits(return_X_y=True)
    return X[:300], y[:300]


@pytest.fixture(scope="module")
def learner(many_digits):
    """A learner with twenty labels that it asked for."""
    X, y = many_digits
    learner = ActiveLearner().fit(X)
    rows = learner.suggest(20)
    return learner.label(rows, y[rows])


def given(learner):
    return np.flatnonzero([label is not None for label in learner.y_])


def test_posterior_is_that_of_a_gaussian_process(features):
    Z, codes = features
    labelled = np.flatnonzero(codes >= 0)
    posterior = Posterior.of(Z, labelled, 0.3)
    expected = references.gaussian_process(Z, labelled, 0.3)
    np.testing.assert_allclose(posterior.covariance(np.arange(40)), expected, atol=1e-12)
    np.testing.assert_allclose(posterior.variance(), expected.diagonal(), atol=1e-12)
    targets = np.eye(3)[codes[labelled]]
    np.testing.assert_allclose(
        posterior_mean(Z, labelled, targets, 0.3),
        references.gaussian_process_mean(Z, labelled, targets, 0.3),
        atol=1e-12,
    )


def test_posterior_without_labels_is_the_prior(features):
    Z, _ = features
    np.testing.assert_allclose(
        Posterior.of(Z, np.array([], dtype=int), 0.3).covariance(np.arange(40)), Z @ Z.T, atol=1e-12
    )


def test_posterior_after_one_more_label_is_that_of_all_labels(features):
    Z, codes = features
    labelled = np.flatnonzero(codes >= 0)
    updated = Posterior.of(Z, labelled, 0.3).given(5).given(12)
    expected = references.gaussian_process(Z, [*labelled, 5, 12], 0.3)
    np.testing.assert_allclose(updated.covariance(np.arange(40)), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["vopt", "sigmaopt"])
def test_optimal_designs_are_decreases_of_the_explicit_covariance(features, name):
    Z, codes = features
    labelled = np.flatnonzero(codes >= 0)
    scores = getattr(Posterior.of(Z, labelled, 0.3), name)()
    np.testing.assert_allclose(scores, getattr(references, name)(Z, labelled, 0.3), atol=1e-10)


@pytest.mark.parametrize("name", ["variance", "vopt", "sigmaopt"])
def test_batches_take_the_best_row_after_labels_of_the_rows_before(features, name):
    Z, codes = features
    chosen, labelled = [], list(np.flatnonzero(codes >= 0))
    for _ in range(4):
        rows = [*labelled, *chosen]
        score = (
            references.gaussian_process(Z, rows, 0.3).diagonal()
            if name == "variance"
            else getattr(references, name)(Z, rows, 0.3)
        )
        chosen.append(int(np.argmax(np.where(np.isin(np.arange(40), rows), -1, score))))
    assert choose_rows(pool_of(Z, codes), 4, name).tolist() == chosen


def test_look_ahead_is_an_explicit_refit_with_each_label(features):
    Z, codes = features
    P = np.random.default_rng(1).dirichlet(np.ones(3), 40)
    pool = pool_of(Z, codes, P)
    shortlist = np.array([0, 5, 33])
    expected = [references.expected_error(Z, codes, np.log(P), pool.gain, 0.3, q) for q in shortlist]
    np.testing.assert_allclose(shortlist_errors(pool, shortlist), expected, rtol=1e-10)


def test_margin_without_a_batch_is_the_smallest_margin(features):
    Z, codes = features
    P = np.random.default_rng(1).dirichlet(np.ones(3), 40)
    top = np.sort(P, axis=1)
    np.testing.assert_allclose(margin_uncertainty(P), 1 - (top[:, 2] - top[:, 1]))
    expected = np.argmax(np.where(codes < 0, margin_uncertainty(P), -1))
    assert choose_rows(pool_of(Z, codes, P), 1, "margin").tolist() == [expected]


def test_batches_of_uncertain_rows_are_diverse():
    Z = np.repeat(np.eye(3), [5, 5, 2], axis=0)
    codes = np.full(12, -1)
    codes[11] = 0
    P = np.tile([0.5, 0.5, 0.0], (12, 1))
    P[5:] = [0.6, 0.4, 0.0]
    assert sorted(choose_rows(pool_of(Z, codes, P), 2, "margin").tolist()) == [0, 5]


@pytest.mark.parametrize("name", ["typical", "herding"])
def test_herding_is_greedy_coverage(features, name):
    Z, codes = features
    P = np.random.default_rng(1).dirichlet(np.ones(3), 40)
    weights = np.ones(40) if name == "typical" else np.sqrt(margin_uncertainty(P))
    labelled, candidates = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
    expected = references.herding(Z, candidates, labelled, weights, POWER, 6)
    assert choose_rows(pool_of(Z, codes, P), 6, name).tolist() == expected


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"random", "auto"}))
def test_suggestions_do_not_depend_on_the_order_of_rows(features, strategy):
    Z, codes = features
    P = np.random.default_rng(1).dirichlet(np.ones(3), 40)
    order = np.random.default_rng(2).permutation(40)
    rows = choose_rows(pool_of(Z, codes, P), 5, strategy)
    shuffled = choose_rows(pool_of(Z[order], codes[order], P[order]), 5, strategy)
    np.testing.assert_array_equal(order[shuffled], rows)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_suggestions_are_new_rows_and_the_same_each_time(learner, strategy):
    rows = learner.suggest(15, strategy=strategy, exclude=[0, 1])
    assert rows.size == np.unique(rows).size == 15
    assert not np.isin(rows, [0, 1, *given(learner)]).any()
    np.testing.assert_array_equal(learner.suggest(15, strategy=strategy, exclude=[0, 1]), rows)


def test_the_first_labels_find_the_classes(many_digits):
    X, y = many_digits
    found = {name: np.unique(y[ActiveLearner().fit(X).suggest(15, strategy=name)]).size for name in ("auto", "vopt")}
    at_random = np.mean([np.unique(np.random.default_rng(seed).permutation(y)[:15]).size for seed in range(50)])
    assert min(found.values()) > at_random


def test_asked_labels_teach_more_than_random_ones(many_digits, learner):
    X, y = many_digits
    scores = []
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(300)[:20]
        few = np.full(300, -1)
        few[rows] = y[rows]
        scores.append(LDSUClassifier(standardize_scores=True).fit(X, few).score(X, y))
    assert learner.model_.score(X, y) > np.max(scores)


def test_a_loop_goes_from_no_labels_over_one_class_to_new_classes():
    X, y = make_blobs([20, 20, 20], cluster_std=0.5, random_state=0)
    names = np.array(["a", "b", "c"])[y]
    learner = ActiveLearner().fit(X)
    assert (learner.phase_, learner.n_labels_, learner.classes_.size) == ("no labels", 0, 0)
    assert learner.probabilities() is None
    assert learner.forecast() is None
    assert learner.doubtful_labels() == []
    np.testing.assert_allclose(learner.variance(), 1)
    first, second = np.flatnonzero(y == 0)[:2]
    learner.label([first, second], ["a", "a"])
    assert (learner.phase_, learner.model_) == ("one class", None)
    assert y[learner.suggest(2)].tolist() != [0, 0]
    assert learner.variance()[first] < 0.1
    for label in (1, 2):
        learner.label([np.flatnonzero(y == label)[0]], [names[y == label][0]])
        assert (learner.phase_, learner.classes_.size) == ("model", label + 1)
        assert learner.probabilities().shape == (60, label + 1)
    assert learner.model_.score(X, names) > 0.9
    learner.label([first], [None])
    assert learner.n_labels_ == 3
    learner.fit(X)
    assert learner.phase_ == "no labels"


def test_every_row_is_suggested_once_and_then_none(blobs):
    X, _ = blobs
    y = np.random.default_rng(0).integers(0, 3, 60)
    learner, seen = ActiveLearner().fit(X), []
    while (rows := learner.suggest(25)).size:
        seen.extend(rows.tolist())
        learner.label(rows, y[rows])
    assert sorted(seen) == list(range(60))


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_matrix, pd.DataFrame])
def test_copies_come_after_all_others(blobs, make):
    X = np.vstack([blobs[0][:20]] * 2)
    y = np.full(40, -1)
    y[[0, 21]] = [0, 1]
    learner = ActiveLearner().fit(make(X), y)
    rows = learner.suggest(40)
    assert sorted(rows[:18] % 20) == list(range(2, 20))
    assert sorted(rows) == sorted(set(range(40)) - {0, 21})


def test_suggestions_for_a_model_are_those_of_the_learner_with_that_model(many_digits, learner):
    X, _ = many_digits
    model = LDSUClassifier(standardize_scores=True).fit(X, learner.y_)
    for strategy in ("auto", "vopt"):
        rows = suggest(model, X, learner.y_, 5, strategy=strategy)
        np.testing.assert_array_equal(rows, learner.suggest(5, strategy=strategy))
    reused = LDSUClassifier(standardize_scores=True).fit(X, learner.y_, problem=Problem(X))
    np.testing.assert_allclose(reused.training_view(X).probabilities, model.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(learner.uncertainty(), 1 - model.predict_proba(X).max(axis=1), atol=1e-6)


def test_variance_is_small_near_labels_only(learner):
    variance, labelled = learner.variance(), given(learner)
    assert variance.min() >= 0
    assert variance.max() <= 1 + 1e-9
    assert np.median(variance[labelled]) < np.median(np.delete(variance, labelled))


def test_a_wrong_label_is_the_most_doubtful(many_digits):
    X, y = many_digits
    few = np.full(300, -1)
    few[:80] = y[:80]
    few[10] = 7  # a 0
    learner = ActiveLearner().fit(X, few)
    first = learner.doubtful_labels()[0]
    assert (first.row, first.given, first.suggested) == (10, 7, 0)
    assert first.probability < 0.05
    assert doubtful_labels(learner.model_, few, threshold=0.0) == []
    assert len(learner.doubtful_labels()) < 8


def test_a_forecast_says_less_with_fewer_labels_and_more_ahead(many_digits):
    X, y = many_digits
    forecasts = []
    for m in (30, 120):
        learner = ActiveLearner().fit(X, np.where(np.arange(300) < m, y, -1))
        soon, late = learner.forecast(10), learner.forecast(100)
        assert soon.accuracy == learner.model_.expected_accuracy_
        assert soon.accuracy <= soon.expected <= late.expected <= 1
        assert soon.low <= soon.expected <= soon.high
        forecasts.append(soon)
    assert forecasts[1].high - forecasts[1].low < forecasts[0].high - forecasts[0].low
    assert forecasts[1].expected - forecasts[1].accuracy < forecasts[0].expected - forecasts[0].accuracy


def test_a_forecast_knows_how_fast_the_error_falls():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    informative, noise = np.eye(2)[y] + 0.5 * rng.standard_normal((200, 2)), rng.standard_normal((200, 2))
    codes = np.where(rng.random(200) < 0.5, y, -1)
    slow = forecast(noise, codes, 0.8, 100)
    many = np.hstack([informative, 1.2 * rng.standard_normal((200, 60))])
    assert forecast(many, codes, 0.8, 100).expected > slow.expected


def test_bad_input_is_named_and_leaves_the_learner_as_it_was(many_digits, learner):
    X, _ = many_digits
    y, model = learner.y_, learner.model_
    with pytest.raises(ValueError, match="row numbers from 0 to 299"):
        learner.suggest(exclude=[300])
    with pytest.raises(ValueError, match="strategy='best' is not known"):
        learner.suggest(strategy="best")
    with pytest.raises(ValueError, match="n=-1 rows"):
        learner.suggest(-1)
    with pytest.raises(ValueError, match="100 entries"):
        learner.fit(X, y[:100])
    with pytest.raises(IndexError):
        learner.label([400], [1])
    with pytest.raises(ValueError, match="features of LDSU"):
        ActiveLearner(LDSUClassifier(KPCA())).fit(X)
    assert learner.y_ is y
    assert learner.model_ is model
    assert learner.suggest(0).size == 0


def test_other_samples_start_anew(many_digits):
    X, y = many_digits
    learner = ActiveLearner().fit(X, np.where(np.arange(300) < 30, y, -1))
    learner.fit(X[:200])
    assert learner.suggest(200).size == 200
    np.testing.assert_array_equal(learner.suggest(5), ActiveLearner().fit(X[:200]).suggest(5))


def test_many_rows_are_covered_by_samples(monkeypatch, many_digits):
    X, y = many_digits
    for name, size in (("COVERAGE_CANDIDATES", 50), ("COVERAGE_TARGETS", 40), ("POSTERIOR_ROWS", 60)):
        monkeypatch.setattr(f"ldsu.active._strategies.{name}", size)
    learner = ActiveLearner().fit(X, np.where(np.arange(300) < 30, y, -1))
    for strategy in STRATEGIES:
        rows = learner.suggest(20, strategy=strategy, exclude=np.arange(30, 100))
        assert np.unique(rows).size == 20
        assert rows.min() >= 100
