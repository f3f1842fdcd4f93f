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
    """120 digits with 3 labels per class, noise added so that no two distances are equal."""
    X, y = load_digits(return_X_y=True)
    X = X[:120] / 16 + 1e-3 * np.random.default_rng(0).standard_normal((120, 64))
    return X, few_labels(y[:120], 3)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items):
    for item in items:
        if "data_folder" in getattr(item, "fixturenames", ()):
            item.add_marker("data")


@pytest.fixture(scope="session")
def data_folder():
    """A function that returns the folder with these files of the data sets, or skips; its tests are marked `data`."""

    def find(*files):
        for folder in map(Path, filter(None, DATA_FOLDERS)):
            if all((folder / file).exists() for file in files):
                return folder
        pytest.skip(f"{', '.join(files)}: neither in LDSU_DATA nor in ../shared/data")

    return find


@pytest.fixture(scope="session")
def real_data(data_folder):
    """A function that loads a data set by file name, or skips."""

    def load(name):
        with np.load(data_folder(name) / name) as arrays:
            return arrays["X"], arrays["y"]

    return load


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
