import math
import time

import numpy as np
import pytest
from scipy import stats

from bench_rows import DEFAULTS, make_experiment, make_rows, row
from ldsu.bench.paper import is_papers_method, paper_score, table1
from ldsu.bench.selection import (
    Choice,
    Setting,
    group_rows,
    holm,
    honest,
    oracle,
    paired_test,
    sweep,
    sweep_pair,
    verdict,
    welch_test,
)
from ldsu.bench.tasks import canonical

DEFAULT = {"k": 5, "C": 1.0}


def rows_of(table, fold=-1):
    """Rows from {(k, C): [score of split 0, 1, ...]}."""
    return [
        row(params=canonical({"k": k}), C=C, split=split, fold=fold, score=score)
        for (k, C), scores in table.items()
        for split, score in enumerate(scores)
        if score is not None
    ]


def only(rows):
    (group,) = group_rows(rows).values()
    return group


def scramble(rows, seed=0):
    """The same rows with other test scores."""
    rng = np.random.default_rng(seed)
    return [one | {"map": rng.random(), "accuracy": rng.random()} if one["fold"] < 0 else one for one in rows]


def test_oracle_is_the_best_mean_over_the_splits():
    choice = oracle(only(rows_of({(3, 1.0): [0.9, 0.1], (5, 1.0): [0.6, 0.7], (5, 10.0): [0.6, 0.5]})), DEFAULT)
    assert set(choice.settings) == {Setting('{"k":5}', 1.0)}
    assert choice.map == (0.6, 0.7)
    assert choice.accuracy == pytest.approx((0.55, 0.65))
    assert choice.mean() == pytest.approx(0.65)
    assert choice.std() == pytest.approx(0.1 / math.sqrt(2))  # n - 1
    assert choice.how == ("test", "test")


def test_oracle_is_that_of_a_slow_loop_on_every_group():
    rows = make_rows(make_experiment(data=("umist",), methods=("KPCA", "LDSU truncate", "LabelSpreading")))
    for (data, labels, method), group in group_rows(rows).items():
        scores = {}
        for one in rows:
            if (one["data"], one["labels"], one["method"], one["fold"]) == (data, labels, method, -1):
                scores.setdefault((one["params"], one["C"]), []).append(one["map"])
        best = max(scores, key=lambda setting: np.mean(scores[setting]))
        choice = oracle(group, DEFAULTS[method])
        assert choice.settings[0] == best
        assert list(choice.map) == scores[best]


def test_oracle_leaves_out_settings_that_failed_or_lack_a_split():
    rows = rows_of({(3, 1.0): [0.9, 0.9], (5, 1.0): [0.8, 0.8], (10, 1.0): [0.7, 0.7], (15, 1.0): [0.6, 0.6]})
    rows[0] |= {"map": None, "accuracy": None, "error": "too little memory"}
    del rows[3]  # (5, 1.0) in split 1
    group = only(rows)
    assert group.failures == 1
    assert oracle(only(rows[:1]), DEFAULT) is None
    # Split 1 lacks a setting that split 0 has, so only split 0 is whole, and there (3, 1.0) failed.
    assert oracle(group, DEFAULT).settings == (Setting('{"k":5}', 1.0),)
    rows.append(row(params='{"k":5}', C=1.0, split=1, score=None, error="failed"))
    assert set(oracle(only(rows), DEFAULT).settings) == {Setting('{"k":10}', 1.0)}


def test_a_split_still_being_run_does_not_hide_the_others():
    rows = rows_of({(3, 1.0): [0.9, 0.9, None], (5, 1.0): [0.6, 0.7, 0.7]})
    choice = oracle(only(rows), DEFAULT)
    assert choice.settings[0].params == '{"k":3}'
    assert choice.splits == (0, 1)
    assert choice.missing == (2,)


def test_honest_takes_the_best_cross_validation_score_of_each_split():
    test = rows_of({(3, 1.0): [0.9, 0.8], (5, 1.0): [0.5, 0.6]})
    folds = rows_of({(3, 1.0): [0.1, 0.9], (5, 1.0): [0.3, 0.7]}, fold=0)
    folds += rows_of({(3, 1.0): [0.3, 0.5], (5, 1.0): [0.3, 0.5]}, fold=1)
    choice = honest(only(test + folds), DEFAULT)
    assert [setting.params for setting in choice.settings] == ['{"k":5}', '{"k":3}']
    assert choice.map == (0.5, 0.8)
    assert choice.how == ("cross-validation",) * 2


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("method", list(DEFAULTS))
def test_no_test_score_has_a_part_in_the_honest_choice(method, labels):
    rows = make_rows(make_experiment(data=("umist",), labels=(labels,), methods=(method,)))
    chosen = honest(only(rows), DEFAULTS[method])
    for seed in range(5):
        again = honest(only(scramble(rows, seed)), DEFAULTS[method])
        assert again.settings == chosen.settings
        assert again.how == chosen.how
        assert again.map != chosen.map
    # The same scrambling does move the oracle: the test above can fail.
    moved = {oracle(only(scramble(rows, seed)), DEFAULTS[method]).settings[0] for seed in range(20)}
    assert len(moved) > 1


def test_without_folds_honest_is_the_default():
    choice = honest(only(rows_of({(3, 1.0): [0.9, 0.9], (5, 1.0): [0.1, 0.2], (5, 10.0): [0.9, 0.9]})), DEFAULT)
    assert choice.map == (0.1, 0.2)
    assert choice.how == ("default", "default")
    assert honest(only(rows_of({(3, 1.0): [0.9, 0.9]})), DEFAULT) is None  # the default was not run


def test_a_default_matches_by_value_not_by_text_and_a_method_without_C_has_one():
    rows = [row(params='{"a":1.0,"n":null}', C=0.0, score=0.3), row(params='{"a":2.0,"n":null}', C=0.0, score=0.9)]
    assert honest(only(rows), {"a": 1, "n": None, "C": 1.0}).map == (0.3,)


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([(20, 1.0), (3, 1.0)], (3, 1.0)),  # two steps of the grid against one
        ([(3, 0.1), (5, 1.0)], (5, 1.0)),  # the default itself
        ([(20, 1.0), (3, 0.1)], (3, 0.1)),  # two steps each: the smaller C
        ([(3, 1.0), (10, 1.0)], (10, 1.0)),  # a step each, the same C: the first as text
    ],
)
def test_ties_go_to_the_nearest_to_the_default_then_the_smaller_C_then_the_text(candidates, expected):
    grid = [(k, C) for k in (3, 5, 10, 20) for C in (0.1, 1.0, 10.0)]
    folds = rows_of({setting: [0.8 if setting in candidates else 0.5] for setting in grid}, fold=0)
    test = rows_of({setting: [0.5] for setting in grid})
    chosen = honest(only(test + folds), DEFAULT).settings[0]
    assert chosen == Setting(canonical({"k": expected[0]}), expected[1])


def test_a_setting_without_all_its_folds_is_not_chosen():
    test = rows_of({(3, 1.0): [0.5], (5, 1.0): [0.5]})
    folds = [*rows_of({(3, 1.0): [0.9], (5, 1.0): [0.4]}, fold=0), *rows_of({(5, 1.0): [0.4]}, fold=1)]
    assert honest(only(test + folds), DEFAULT).settings[0].params == '{"k":5}'
    folds.append(row(params='{"k":3}', C=1.0, fold=1, score=None, error="failed"))
    assert honest(only(test + folds), DEFAULT).settings[0].params == '{"k":5}'


def test_a_chosen_setting_without_a_test_score_is_missing_not_replaced():
    test = rows_of({(3, 1.0): [None, 0.7], (5, 1.0): [0.5, 0.6]})
    folds = rows_of({(3, 1.0): [0.9, 0.9], (5, 1.0): [0.4, 0.4]}, fold=0)
    choice = honest(only(test + folds), DEFAULT)
    assert (choice.splits, choice.map, choice.missing) == ((1,), (0.7,), (0,))


def test_sweep_gives_the_best_and_the_otherwise_default():
    group = only(rows_of({(3, 1.0): [0.5, 0.7], (3, 10.0): [0.8, 0.8], (5, 1.0): [0.4, 0.4], (5, 10.0): [0.3, 0.3]}))
    three, five = sweep(group, "k", DEFAULT)
    assert (three.value, five.value) == (3, 5)
    assert (three.best, three.default) == pytest.approx((0.8, 0.6))
    assert (five.best, five.default) == pytest.approx((0.4, 0.4))
    assert three.default_std == pytest.approx(0.2 / math.sqrt(2))
    assert [point.best for point in sweep(group, "C", DEFAULT)] == pytest.approx([0.6, 0.8])
    assert sweep(group, "absent", DEFAULT) == []


def test_sweep_orders_numbers_then_none():
    rows = [row(params=canonical({"n": n}), score=0.5) for n in (None, 1, 0.25, 0.5)]
    assert [point.value for point in sweep(only(rows), "n", {"n": 1, "C": 1.0})] == [0.25, 0.5, 1, None]


def test_a_value_tried_in_more_settings_than_others_gains_nothing_by_it():
    # A grid over k and b, and k = 5 tried with b = 3 besides, where the score is best.
    settings = [(3, 1, 0.5), (3, 2, 0.6), (5, 1, 0.4), (5, 2, 0.5), (5, 3, 0.9)]
    rows = [row(params=canonical({"k": k, "b": b}), score=score) for k, b, score in settings]
    assert [point.best for point in sweep(only(rows), "k", {"k": 3, "b": 1, "C": 1.0})] == [0.6, 0.5]


def test_sweep_of_two_is_the_best_over_the_rest():
    rows = [
        row(params=canonical({"theta": theta, "k": k}), C=C, score=theta + 0.01 * k - 0.1 * (C > 1))
        for theta in (0.1, 0.2)
        for k in (3, 5)
        for C in (1.0, 10.0)
        if (theta, k) != (0.2, 5)
    ]
    first, second, best = sweep_pair(only(rows), "theta", "k")
    assert (first, second) == ([0.1, 0.2], [3, 5])
    np.testing.assert_allclose(best, [[0.13, 0.15], [0.23, np.nan]])


def choice_of(scores, splits=None):
    n = len(scores)
    splits = tuple(range(n)) if splits is None else splits
    scores = tuple(scores)
    return Choice("umist", 3, "KPCA", "oracle", splits, scores, scores, (Setting("{}", 1.0),) * n, ("test",) * n)


def test_tests_are_scipys():
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = rng.random(5), rng.random(5)
        assert paired_test(choice_of(a), choice_of(b)) == pytest.approx(stats.ttest_rel(a, b).pvalue)
        welch = welch_test(a.mean(), a.std(ddof=1), 5, b.mean(), b.std(ddof=1), 5)
        assert welch == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)


def test_paired_test_uses_the_splits_both_have():
    a, b = choice_of([0.1, 0.5, 0.9], (0, 1, 2)), choice_of([0.4, 0.7, 0.3], (1, 2, 3))
    assert paired_test(a, b) == pytest.approx(stats.ttest_rel([0.5, 0.9], [0.4, 0.7]).pvalue)
    assert math.isnan(paired_test(a, choice_of([0.4], (1,))))


def test_equal_scores_are_no_difference_and_a_constant_difference_is_a_sure_one():
    a = choice_of([0.5, 0.6, 0.7])
    assert paired_test(a, a) == 1.0
    assert paired_test(a, choice_of([0.4, 0.5, 0.6])) == 0.0
    assert welch_test(0.5, 0.0, 5, 0.5, 0.0, 5) == 1.0
    assert math.isnan(welch_test(0.5, math.nan, 1, 0.5, 0.1, 5))
    assert verdict(-0.1, 0.0) == "behind"
    assert verdict(0.1, 0.01) == "ahead"
    assert verdict(0.1, 0.2) == verdict(0.1, math.nan) == "no clear difference"


def test_holm_is_the_step_down_procedure_and_passes_nan():
    corrected = holm([0.02, math.nan, 0.001, 0.8])
    assert corrected[0] == pytest.approx(0.04)
    assert math.isnan(corrected[1])
    assert corrected[2:] == pytest.approx([0.003, 0.8])
    assert holm([]) == []


def test_papers_table_is_whole():
    assert len(table1()) == 5 * 4 * 7
    assert paper_score("umist", 3, "LDSU truncate") == paper_score("umist", 3, "LDSU") == (0.889, 0.001)
    assert paper_score("mimicii", 100, "KPCA") == (0.757, 0.021)
    assert paper_score("umist", 3, "SelfTraining") is None
    assert paper_score(None, 3, "KPCA") is None
    assert is_papers_method("LDSU truncate")
    assert not is_papers_method("LDSU")


def test_a_quarter_of_a_million_rows_take_seconds():
    params = [canonical({"k": k, "theta": theta}) for k in range(20) for theta in range(25)]
    base = row()
    rows = (
        base | {"method": method, "split": split, "labels": labels, "params": text, "C": C, "map": 0.5 + 0.001 * C}
        for method in ("A", "B", "D")
        for labels in (1, 10)
        for split in range(5)
        for text in params
        for C in range(1, 18)
    )
    start = time.perf_counter()
    groups = group_rows(rows)
    choices = [select(group, {"k": 3, "theta": 1, "C": 1}) for group in groups.values() for select in (oracle, honest)]
    assert sum(group.present.sum() for group in groups.values()) == 255_000
    assert len(choices) == 12
    assert time.perf_counter() - start < 15
