"""The paper's protocol: half of the samples held out, a few labels in the other half, repeated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import train_test_split

from ldsu.bench.sources import load_data
from ldsu.bench.spec import Experiment
from ldsu.datasets import bag_of_words
from ldsu.labels import class_counts
from ldsu.model_selection import FewLabelKFold


@dataclass(frozen=True)
class Split:
    """One repetition: the training half, the test half, and the order in which training points are labelled."""

    X_train: np.ndarray  # (n, d)
    X_test: np.ndarray  # (q, d)
    y_train: np.ndarray  # class numbers, -1 for unlabelled rows; methods see them only through `few_labels`
    y_test: np.ndarray
    order: np.ndarray  # rank of a training row, see `label_order`: with m labels, rows of rank below m have one
    classes: tuple[str, ...]
    image_shape: tuple[int, int] | None
    seed: int  # of this repetition


def load_split(experiment: Experiment, key: str, split: int) -> Split:
    """Load a data set of an experiment and split it for repetition `split`."""
    spec = experiment.data_spec(key)
    dataset = load_data(spec)
    seed = experiment.seed + split
    rows = np.arange(dataset.y.shape[0])
    if spec.rows is not None and spec.rows < rows.size:
        chosen = train_test_split(rows, train_size=spec.rows, stratify=dataset.y, random_state=experiment.seed)
        rows = np.sort(chosen[0])
    labelled = rows[dataset.y[rows] >= 0]
    try:
        train, test = train_test_split(
            labelled, test_size=experiment.test_fraction, stratify=dataset.y[labelled], random_state=seed
        )
    except ValueError as error:
        raise ValueError(f"Data set {key!r} cannot be split with stratified classes: {error}") from error
    # Unlabelled rows cannot be tested on.
    train = np.concatenate([train, rows[dataset.y[rows] < 0]])
    X = dataset.X if dataset.documents is None else bag_of_words(dataset.documents, train)
    y_train = dataset.y[train]
    return Split(
        X_train=np.ascontiguousarray(X[train], dtype=np.float64),
        X_test=np.ascontiguousarray(X[test], dtype=np.float64),
        y_train=y_train,
        y_test=dataset.y[test],
        order=label_order(y_train, seed, spec.draw),
        classes=dataset.classes,
        image_shape=dataset.image_shape,
        seed=seed,
    )


def label_order(y: np.ndarray, seed: int, draw: str = "class") -> np.ndarray:
    """A random rank for each row, so that the rows labelled with m labels are nested in m.

    The rank is within the class. With ``draw="rows"`` it is among all rows, where the first row of each class has rank
    0: m labels are those of m random rows, and one of each class that these lack. Unlabelled rows (-1) have the highest
    rank.
    """
    rng = np.random.default_rng(seed)
    order = np.full(y.shape[0], y.shape[0], dtype=np.int64)
    if draw == "rows":
        shuffled = rng.permutation(np.flatnonzero(y >= 0))
        order[shuffled] = np.arange(shuffled.size)
        order[shuffled[np.unique(y[shuffled], return_index=True)[1]]] = 0
        return order
    for label in np.unique(y[y >= 0]):
        members = np.flatnonzero(y == label)
        order[rng.permutation(members)] = np.arange(members.size)
    return order


def few_labels(split: Split, labels: int) -> np.ndarray:
    """Training labels with all but `labels` (per class, or in all) replaced by -1.

    A class with fewer rows is fully labelled.
    """
    return np.where(split.order < labels, split.y_train, -1)


def n_folds(labels: int, max_folds: int) -> int:
    """Number of cross-validation folds for a number of labels; 0 below three labels."""
    return min(max_folds, labels) if labels >= 3 else 0


def folds(y: np.ndarray, labels: int, max_folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Cross-validation on the labelled rows: (y without the held-out labels, held-out rows) for each fold.

    Only labels of classes with at least one for each fold are held out; without such a class there are no folds.
    """
    count = n_folds(labels, max_folds)
    foldable = np.where((y >= 0) & (class_counts(y)[y] >= count), y, -1)
    if not count or foldable.max() < 0:
        return []
    result = []
    for _, held_out in FewLabelKFold(n_splits=count, random_state=seed).split(y, foldable):
        partial = y.copy()
        partial[held_out] = -1
        result.append((partial, held_out))
    return result
