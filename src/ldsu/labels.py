"""Partial labels: detect unlabelled entries and encode classes as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d

UNLABELLED = -1


def unlabelled_mask(y: ArrayLike) -> NDArray[np.bool_]:
    """Return a mask of the unlabelled entries of `y`.

    Unlabelled are the number -1 (scikit-learn's convention), the missing values `None`, `NaN` and `pandas.NA`, empty or
    blank strings, and masked entries of a masked array. Everything else, including the string "-1", is a label.

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels: numbers, strings or objects, as a list, an array, or a pandas or polars series.

    Returns
    -------
    mask : ndarray of bool, shape (n,)
        True where `y` is unlabelled.

    Examples
    --------
    >>> unlabelled_mask(["cat", None, "dog", -1])
    array([False,  True, False,  True])
    """
    y = _as_1d(y)
    if y.dtype.kind == "b":
        return np.zeros(y.shape, dtype=bool)
    if y.dtype.kind in "US":
        return np.asarray(np.char.str_len(np.char.strip(y)) == 0)
    if y.dtype.kind in "iuf":
        return np.asarray((y == UNLABELLED) | (y != y))
    return np.fromiter((_is_missing(value) for value in y), dtype=bool, count=y.shape[0])


def encode_labels(y: ArrayLike | None, n_samples: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Encode labels such that ``y = classes[codes]``, with code -1 for unlabelled entries.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or None
        Labels as accepted by `unlabelled_mask`. None means that nothing is labelled.
    n_samples : int
        Required length of `y`.

    Returns
    -------
    codes : ndarray of int64, shape (n_samples,)
        Class numbers 0 .. c-1, or -1.
    classes : ndarray, shape (c,)
        The sorted distinct labels.

    Examples
    --------
    >>> codes, classes = encode_labels(["cat", None, "dog", "cat"], 4)
    >>> codes, [str(name) for name in classes]
    (array([ 0, -1,  1,  0]), ['cat', 'dog'])
    """
    if y is None:
        return np.full(n_samples, UNLABELLED, dtype=np.int64), np.empty(0, dtype=np.int64)
    y = _as_1d(y)
    if y.shape[0] != n_samples:
        raise ValueError(f"X has {n_samples} rows but y has {y.shape[0]} entries: both must have the same length.")
    labelled = ~unlabelled_mask(y)
    values = y[labelled]
    if values.dtype.kind == "O":
        values = _plain_array(values)
    if values.dtype.kind == "f":
        # scikit-learn's check warns of "a regression problem" if most classes have one label: the usual case here.
        if not np.all(np.isfinite(values)):
            raise ValueError(
                "y contains an infinite value, which is not a class. Use NaN or -1 for unlabelled entries."
            )
        fractional = values[values != np.round(values)]
        if fractional.size:
            raise ValueError(
                f"Unknown label type: continuous. y has {fractional[0]:.6g}, "
                "but a class must be an integer or a string."
            )
    codes = np.full(n_samples, UNLABELLED, dtype=np.int64)
    if values.size == 0:
        return codes, np.empty(0, dtype=values.dtype)
    classes, codes[labelled] = np.unique(values, return_inverse=True)
    return codes, classes


def class_counts(codes: np.ndarray) -> np.ndarray:
    """Count the labelled points of each class: shape (c,)."""
    return np.bincount(codes[codes >= 0])


def sample_labelled_balanced(codes: np.ndarray, max_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Labelled rows, ascending; a random class-balanced subset if there are more than `max_samples`.

    Few rows of the subset change with a label, since each row has its place in the random order, labelled or not.
    """
    labelled = np.flatnonzero(codes >= 0)
    if labelled.size <= max_samples:
        return labelled
    labelled = labelled[np.argsort(rng.random(codes.size)[labelled])]
    by_class = np.argsort(codes[labelled], kind="stable")
    starts = np.searchsorted(codes[labelled[by_class]], codes[labelled])
    turn = np.empty(labelled.size, dtype=np.int64)
    turn[by_class] = np.arange(labelled.size) - starts[by_class]
    return np.sort(labelled[np.argsort(turn, kind="stable")[:max_samples]])


def sample_others(n: int, rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `count` random rows (or all, if fewer) of 0 ... n - 1 that are not in `rows`, ascending.

    Time and memory depend on the rows drawn, not on n.
    """
    drawn = rng.choice(n, min(n, count + rows.size), replace=False)
    return np.sort(drawn[~np.isin(drawn, rows)][:count])


def _as_1d(y: Any) -> np.ndarray:
    """Labels as an array of one dimension that keeps missing values."""
    if hasattr(y, "to_numpy") and hasattr(y, "dtype"):  # a series: keep its missing values as objects
        y = y.to_numpy()
    elif not hasattr(y, "__array__") and not np.isscalar(y):
        values = list(y)
        y = np.asarray(values, dtype=object)  # which leaves None, NaN and numbers as they are
        if y.ndim != 1:
            y = np.asarray(values)
        elif y.size and not any(_is_missing(value) for value in y):
            y = _plain_array(y)
    if np.ma.is_masked(y):
        masked, y = y, y.data.astype(object)
        y[masked.mask] = None
    y = np.asarray(y)
    if y.ndim != 1:
        y = column_or_1d(y, warn=True)
    return y


def _plain_array(values: np.ndarray) -> np.ndarray:
    """Convert an object array of only strings or only numbers to the matching dtype."""
    kinds = {str if isinstance(value, str) else type(value) for value in values}
    if all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
        return values.astype(bool)
    if all(issubclass(kind, (int, float, np.number, np.bool_)) for kind in kinds):
        return np.asarray(values.tolist())
    if kinds - {str} and len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            f"Unknown label type: y mixes {names}; use a single label type, with None or NaN for unlabelled entries."
        )
    return values


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, (str, bytes)):
        return not value.strip()
    try:
        return bool(value != value or (value == UNLABELLED and not isinstance(value, (bool, np.bool_))))
    except TypeError:  # pandas.NA: comparing it gives NA, which has no truth value
        return True
    except ValueError as error:
        raise ValueError(
            f"Unknown label type: y contains {type(value).__name__} objects; a label must be a scalar."
        ) from error
