"""Answers: every entry can be undone, and nothing but a person overwrites a label."""

import numpy as np
import pytest

from ldsu.studio.answers import MARKS, MAX_CLASSES, Answers, merged


def after(*entries, n=8):
    answers = Answers(n)
    for entry in entries:
        answers.check(entry)
        answers.apply(entry)
    return answers


def label(rows, name):
    return {"do": "label", "rows": rows, "class": name}


def everything(answers):
    return (
        answers.labels.tolist(),
        answers.marks.tolist(),
        list(answers.classes),
        {row: dict(others) for row, others in answers.conflicts.items()},
    )


def test_each_of_many_random_entries_is_undone_exactly():
    rng = np.random.default_rng(0)
    answers, seen = Answers(8), []
    for _ in range(200):
        rows = rng.choice(8, rng.integers(1, 4), replace=False).tolist()
        entry = [
            label(rows, "abcdef"[rng.integers(6)]),
            {"do": "mark", "rows": rows, "mark": MARKS[rng.integers(3)]},
            {"do": "class", "class": "class " + "abcdef"[rng.integers(6)]},
            {"do": "merge", "from": "x", "labels": {"a": rows[:1]}, "conflicts": [[rows[-1], "b"]]},
        ][rng.integers(4)]
        seen.append(everything(answers))
        answers.check(entry)
        answers.apply(entry)
    for before in reversed(seen):
        answers.apply({"do": "undo"})
        assert everything(answers) == before
    with pytest.raises(ValueError, match="nothing to undo"):
        answers.check({"do": "undo"})


def test_a_mark_removes_the_label_and_a_label_the_mark():
    answers = after(label([1, 2], "a"), {"do": "mark", "rows": [2], "mark": "none"})
    assert answers.labels.tolist()[:3] == [None, "a", None]
    answers.apply(label([2], "b"))
    assert (answers.label(2), answers.marks[2]) == ("b", 0)


def test_merge_takes_new_labels_and_lists_differing_ones_until_a_person_decides():
    answers = after(label([0, 1], "a"), label([2], "b"))
    names = np.array(["a", "b", "b", "c", None, None, None, None], dtype=object)
    entry, counts = merged(answers, names, "anna.csv")
    assert counts == {"added": 1, "agreeing": 2, "conflicts": 1}
    answers.apply(entry)
    assert answers.labels.tolist()[:4] == ["a", "a", "b", "c"]
    assert answers.conflicts == {1: {"anna.csv": "b"}}
    answers.apply(label([1], "b"))
    assert answers.conflicts == {}
    answers.apply({"do": "undo"})
    assert answers.conflicts == {1: {"anna.csv": "b"}}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (label([8], "a"), "There is no row 8"),
        (label([-1], "a"), "There is no row -1"),
        (label([True], "a"), "There is no row True"),
        (label([1.5], "a"), "There is no row 1.5"),
        (label(["1"], "a"), "There is no row '1'"),
        (label([10**30], "a"), "There is no row"),
        (label([], "a"), "not empty"),
        (label("12", "a"), "list of row numbers"),
        (label([1], " "), "not a name"),
        (label([1], "a\x1b[31m"), "not a name"),
        (label([1], "a" * 101), "not a name"),
        (label([1], None), "not a name"),
        ({"do": "mark", "rows": [1], "mark": "maybe"}, "not a mark"),
        ({"do": "drop"}, "not an answer"),
        ({"do": "merge", "from": "x", "labels": {"a": [99]}, "conflicts": []}, "There is no row 99"),
    ],
)
def test_wrong_entries_are_refused_with_the_value(entry, why):
    with pytest.raises(ValueError, match=why):
        Answers(8).check(entry)


def test_there_is_a_limit_on_classes():
    answers = after(*({"do": "class", "class": f"class {i}"} for i in range(MAX_CLASSES)))
    with pytest.raises(ValueError, match="1,000 classes"):
        answers.check(label([1], "one more"))
    answers.check(label([1], "class 3"))
