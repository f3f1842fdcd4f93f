import numpy as np
import pandas as pd
import polars as pl
import pytest

from ldsu import encode_labels, unlabelled_mask

MISSING = {
    "ints": np.array([3, -1, 5, 3]),
    "floats with NaN": np.array([3.0, np.nan, 5.0, 3.0]),
    "floats with -1": np.array([3.0, -1.0, 5.0, 3.0]),
    "list with None": ["a", None, "b", "a"],
    "list with NaN": ["a", float("nan"), "b", "a"],
    "list with -1": ["a", -1, "b", "a"],
    "object array with pd.NA": np.array(["a", pd.NA, "b", "a"], dtype=object),
    "pandas object": pd.Series(["a", None, "b", "a"], dtype=object),
    "pandas string": pd.Series(["a", None, "b", "a"], dtype="string"),
    "pandas Int64": pd.Series([3, None, 5, 3], dtype="Int64"),
    "pandas categorical": pd.Series(["a", None, "b", "a"], dtype="category"),
    "pandas nullable boolean": pd.Series([False, None, True, False], dtype="boolean"),
    "polars strings": pl.Series(["a", None, "b", "a"]),
    "polars ints": pl.Series([3, None, 5, 3]),
    "list with an empty string": ["a", "", "b", "a"],
    "strings with a blank one": np.array(["a", " \t", "b", "a"]),
    "bytes with an empty one": np.array([b"a", b"", b"b", b"a"]),
    "objects with a blank string": np.array(["a", "  ", "b", "a"], dtype=object),
    "pandas strings with an empty one": pd.Series(["a", "", "b", "a"], dtype="string"),
    "masked ints": np.ma.masked_array([3, 9, 5, 3], [False, True, False, False]),
    "masked floats": np.ma.masked_array([3.0, 5.0, 5.0, 3.0], [False, True, False, False]),
    "masked strings": np.ma.masked_array(["a", "b", "b", "a"], [False, True, False, False]),
    "masked booleans": np.ma.masked_array([False, True, True, False], [False, True, False, False]),
}


@pytest.mark.parametrize("y", MISSING.values(), ids=MISSING.keys())
def test_every_kind_of_missing_label_is_read_alike(y):
    codes, classes = encode_labels(y, 4)
    assert codes.tolist() == [0, -1, 1, 0]
    assert len(classes) == 2
    assert unlabelled_mask(y).tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    "y",
    [
        [True, False, True],
        np.array(["x", "-1", "nan"]),
        ["x", "-1", "None"],
        np.ma.masked_array([1, 2, 3]),
    ],
)
def test_booleans_and_strings_that_are_not_blank_are_labels_whatever_they_say(y):
    assert not unlabelled_mask(y).any()
    assert encode_labels(y, 3)[0].min() == 0


def test_no_labels_at_all():
    for y in (None, [-1, -1], [None, None], [np.nan, np.nan], pd.Series([None, None], dtype="string")):
        codes, classes = encode_labels(y, 2)
        assert codes.tolist() == [-1, -1]
        assert classes.size == 0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1], "X has 3 rows but y has 2"),
        ([0.5, 1.2, 3.3], "Unknown label type"),
        ([0.0, np.inf, 1.0], "infinite"),
        (["a", 1, "b"], "mixes int, str"),
        (np.array([0, [1, 2], 1], dtype=object), "Unknown label type"),
        (np.zeros((3, 2)), "1d array"),
    ],
)
def test_labels_that_are_none_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        encode_labels(y, 3)
