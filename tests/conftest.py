"""Small data for every test, and the real data where it is found."""

import os
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs

DATA_FOLDERS = (os.environ.get("LDSU_DATA"), Path(__file__).parents[2] / "shared" / "data")


@pytest.fixture
def blobs():
    """60 points of 3 classes in 5 dimensions, 12 of them labelled; no two distances are equal."""
    X, y = make_blobs(60, n_features=5, centers=3, cluster_std=2.0, random_state=0)
    return X, few_labels(y, 4)


@pytest.fixture
def digits():
    """120 digits with 3 labels a class, noise added so that no two distances are equal."""
    X, y = load_digits(return_X_y=True)
    X = X[:120] / 16 + 1e-3 * np.random.default_rng(0).standard_normal((120, 64))
    return X, few_labels(y[:120], 3)


@pytest.fixture
def real_data():
    """A function that loads a data set by file name, or skips."""
    return load_real_data


def few_labels(y, per_class, seed=0):
    rng = np.random.default_rng(seed)
    few = np.full_like(y, -1)
    for label in np.unique(y):
        chosen = rng.choice(np.flatnonzero(y == label), per_class, replace=False)
        few[chosen] = label
    return few


def refusal(call, *arguments, **options):
    """The message of the `TableError` that a call raises, which is one line."""
    from ldsu.tables.table import TableError

    with pytest.raises(TableError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


@contextmanager
def peak_memory():
    """A function that gives the bytes allocated at the peak of the block."""
    tracemalloc.start()
    try:
        peak = []
        yield lambda: peak[0]
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        if not peak:
            peak.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def load_real_data(name):
    for folder in DATA_FOLDERS:
        if folder and (Path(folder) / name).exists():
            with np.load(Path(folder) / name) as arrays:
                return arrays["X"], arrays["y"]
    pytest.skip(f"{name} is neither in LDSU_DATA nor in ../shared/data")
