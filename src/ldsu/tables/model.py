"""Fit a model to a table with a few labels and predict the others: the Python API of the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ldsu.classifier import LDSUClassifier
from ldsu.labels import class_counts, encode_labels
from ldsu.methods import LDSU
from ldsu.tables.columns import Kind, labels_of, require_column
from ldsu.tables.embedded import resolve_encoders
from ldsu.tables.encoder import Scaling, TableEncoder
from ldsu.tables.formats.separated import NUMBER
from ldsu.tables.readers import read_table
from ldsu.tables.table import Table, TableError

# More distinct numbers than this may be a quantity, or the wrong column.
MANY_CLASSES = 20


class Predictions(NamedTuple):
    """Predictions of each row.

    Attributes
    ----------
    label : ndarray of str, shape (n,)
    probability : ndarray of shape (n,)
        Of the predicted label.
    confidence : ndarray of shape (n,)
        Margin to the probability of the second label: 0 between two labels, and for rows far from all training rows.
    runner_up : ndarray of str, shape (n,)
        The second most probable label.
    familiarity : ndarray of shape (n,)
        Share of the training rows that are at least as far from the others: 0 far from all of them.
    n_isolated : int
        Number of rows so far from all training rows that their labels are guesses.
    """

    label: np.ndarray
    probability: np.ndarray
    confidence: np.ndarray
    runner_up: np.ndarray
    familiarity: np.ndarray
    n_isolated: int

    def columns(self) -> dict[str, np.ndarray]:
        """The columns that `ldsu predict` writes; numbers have six digits."""
        named = self._asdict()
        del named["n_isolated"]
        return {name: values.round(6) if values.dtype.kind == "f" else values for name, values in named.items()}


@dataclass(frozen=True, eq=False)
class Task:
    """A learning task: the rows of a table as points, and their labels.

    Attributes
    ----------
    table : Table
    encoder : TableEncoder
    label : str
        Name of the label column.
    labels : ndarray of object, shape (n,)
        A string, or None if unlabelled.
    X : ndarray of shape (n, d)
    notes : tuple of str
        Decisions about labels and rows.
    unlabelled : tuple of str
        Values of the label column that mean unlabelled.
    warnings : tuple of str
        Possible problems with the labels.
    """

    table: Table
    encoder: TableEncoder
    label: str
    labels: np.ndarray
    X: np.ndarray
    notes: tuple[str, ...]
    unlabelled: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of labelled rows per class."""
        codes, classes = encode_labels(self.labels, len(self.labels))
        return dict(zip(classes.tolist(), class_counts(codes).tolist(), strict=True))


def prepare(
    table: Table,
    label: str | None,
    *,
    kinds: Mapping[str, Kind] | None = None,
    scaling: Scaling | Literal["auto"] = "auto",
    unlabelled: Collection[str] | None = None,
    kernel: str = "rbf",
    encoder: str | Sequence[str] = "auto",
) -> Task:
    """Detect the kinds of the columns of a table, and encode its rows as points.

    Parameters
    ----------
    table : Table
    label : str or None
        The label column; None uses the one that the file format names.
    kinds : dict, optional
        Kinds that override the detection, by column.
    scaling : {"auto", "each", "common", "counts", "none"}, default="auto"
        How numbers are scaled, see `TableEncoder`.
    unlabelled : collection of str, optional
        Labels that mean unlabelled. Default: markers of missing values, and -1 as described in `labels_of`.
    kernel : {"rbf", "cosine", "linear"}, default="rbf"
        Kernel of the encoded rows. Encoded texts have unit norm, so that the RBF kernel uses cosine distances.
    encoder : str or sequence of str, default="auto"
        Pretrained encoders of text columns and of folders of images, by name (`ldsu.encoders.find_encoder`), at most
        one of each kind; "auto" uses those that are installed with their weights, "none" TF-IDF and pixels.

    Raises
    ------
    TableError
        If there is no such column, or fewer than two classes have a label.
    """
    label = label or table.label_name
    if label is None and table.row_names is not None:
        raise TableError(
            f"{table.source.name} has images without labels. Move them into one sub-folder per class, and the others "
            "into `unlabelled`; or provide a file of names and labels: --labels FILE."
        )
    if label is None:
        raise TableError(f"{table.source.name} does not name a label column. Name it: --label COLUMN.")
    require_column(table, label)
    labels, found = labels_of(table, label, unlabelled)
    notes = [f"{value!r} in {label!r} is read as unlabelled (to keep it, use --unlabelled '')." for value in found]
    if "-1" in labels:
        notes.append(f"'-1' in {label!r} is read as a label (to change this, use --unlabelled -1).")
    classes = sorted({value for value in labels if value is not None})
    if len(classes) < 2:
        actual = f"has only {classes[0]!r}" if classes else "is empty in every row"
        raise TableError(f"{table.source.name}: column {label!r} must have at least two labels, but {actual}.")
    labelled = sum(value is not None for value in labels)
    hint = (
        f"If {label!r} is a quantity, this is regression, which is not supported: group its values into a few classes."
    )
    quantity = _looks_like_quantity(classes)
    if len(classes) > 0.9 * labelled and len(classes) > MANY_CLASSES and labelled > 0.9 * len(labels):
        raise TableError(
            f"{table.source.name}: column {label!r} has {len(classes):,} different labels in {labelled:,} labelled "
            f"rows. {hint if quantity else 'Is it the label column?'}"
        )
    problems = (f"{label!r} has {len(classes):,} different numbers, each of them a class. {hint}",) if quantity else ()
    learned = TableEncoder.learn(
        table, label=label, kinds=kinds, scaling=scaling, kernel=kernel, encoders=resolve_encoders(encoder)
    )
    return Task(table, learned, label, labels, learned.transform(table), tuple(notes), found, problems)


def _looks_like_quantity(classes: Sequence[str]) -> bool:
    """Whether labels are many numbers that are not consecutive integers, as class numbers are.

    Examples
    --------
    >>> _looks_like_quantity([str(i) for i in range(1, 69)]), _looks_like_quantity([str(i * i) for i in range(30)])
    (False, True)
    """
    if len(classes) <= MANY_CLASSES or not all(NUMBER.fullmatch(label) for label in classes):
        return False
    numbers = np.sort([float(label.replace(",", ".")) for label in classes])
    return bool(numbers[0] % 1 or np.any(np.diff(numbers) != 1))


@dataclass(frozen=True, eq=False)
class TableModel:
    """A model of a table: the encoder of its columns, and the classifier of the encoded points.

    Attributes
    ----------
    encoder : TableEncoder
    classifier : LDSUClassifier
        Fitted to the encoded points.
    label : str
        Name of the label column.
    about : dict
        Information on the fit: file, rows, labels per class, seconds.
    unlabelled : tuple of str
        Values of the label column that mean unlabelled.
    """

    encoder: TableEncoder
    classifier: LDSUClassifier
    label: str
    about: dict[str, Any] = field(default_factory=dict)
    unlabelled: tuple[str, ...] = ()

    def read(self, path: str | Path, progress: Callable[[int, int], None] | None = None) -> Table:
        """Read a file in the form that the model needs: images in the size of the fit."""
        shape = self.encoder.image_shape
        size = None if shape is None else (*shape[:2], 1 if len(shape) == 2 else 3)
        first, width = self.encoder.first_index, self.encoder.matrix_columns
        return read_table(
            path,
            image_size=size,
            first_index=first,
            n_columns=None if first is None else width,
            progress=progress,
            pixels=self.encoder.photos is None,
        )

    def predict(self, table: Any) -> Predictions:
        """Predict the label of each row of a table or a file.

        Parameters
        ----------
        table : Table, str, Path, or frame
            A pandas, polars or pyarrow frame must have the columns of the table that the model was fitted to.

        Returns
        -------
        predictions : Predictions
        """
        return self.predict_points(self._points(table))

    def predict_points(self, X: np.ndarray) -> Predictions:
        """`predict` for encoded rows X (n, d)."""
        classes = self.classifier.classes_
        probabilities, sure, n_isolated = self.classifier._predict_with_confidence(X)
        order = np.argsort(-probabilities, axis=1, kind="stable")
        rows = np.arange(len(X))
        return Predictions(
            label=classes[order[:, 0]],
            probability=probabilities[rows, order[:, 0]],
            confidence=sure.margin,
            runner_up=classes[order[:, 1]],
            familiarity=sure.familiarity,
            n_isolated=n_isolated,
        )

    def transform(self, table: Any) -> np.ndarray:
        """Features (n, r) of the rows of a table, file or frame, for use in another linear model."""
        return np.asarray(self.classifier.features_.transform(self._points(table)))

    def _points(self, table: Any) -> np.ndarray:
        if hasattr(table, "__arrow_c_stream__"):
            import pyarrow as pa

            table = Table(Path("the frame"), pa.table(table))
        return self.encoder.transform(table if isinstance(table, Table) else self.read(table))


def fit_task(
    task: Task,
    *,
    unequal: bool = False,
    class_shares: str | Mapping[str, float] = "auto",
    dask: str | None = None,
    about: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> tuple[TableModel, list[str]]:
    """Fit a model to the task that `prepare` returns.

    Parameters
    ----------
    task : Task
    unequal : bool
        Whether class sizes are very unequal although label counts are not: scores are not standardized.
    class_shares : {"auto", "equal", "labels"} or dict of float, default="auto"
        Shares of the classes among the unlabelled rows, as in `LDSUClassifier`.
    dask : str, optional
        Address of the scheduler of a Dask cluster to fit on.
    about : dict, optional
        Information to store besides rows, labels and settings.
    **parameters
        Of `LDSU`: solver, device.

    Returns
    -------
    model : TableModel
    warnings : list of str
        Warnings of the fit.
    """
    classifier = estimator_for(task, unequal=unequal, class_shares=class_shares, **parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        classifier = _fit_on_cluster(classifier, task, dask) if dask else classifier.fit(task.X, task.labels)
    features, shares = classifier.features_, classifier.class_shares_
    assert shares is not None
    information = {
        "source": task.table.source.name,
        "rows": int(task.X.shape[0]),
        "encoded_columns": int(task.X.shape[1]),
        "labelled": task.counts,
        "kernel": task.encoder.kernel,
        "solver": features.solver_,
        "strength": features.strength_,
        "gamma": features.gamma_,
        "expected_accuracy": classifier.expected_accuracy_,
        "leave_one_out_accuracy": classifier.leave_one_out_accuracy_,
        "pooled": classifier.selection_,
        "class_shares": {str(name): float(share) for name, share in zip(classifier.classes_, shares, strict=True)},
        **(about or {}),
    }
    model = TableModel(task.encoder, classifier, task.label, information, task.unlabelled)
    return model, list(dict.fromkeys(str(warning.message) for warning in caught))


def _fit_on_cluster(classifier: LDSUClassifier, task: Task, address: str) -> LDSUClassifier:
    """Fit a classifier on a Dask cluster, and convert it to a local one."""
    from ldsu.dask.cluster import connect

    with connect(address):
        from ldsu import dask

        features = dask.LDSU(**classifier.features.get_params())
        estimator = dask.LDSUClassifier(**{**classifier.get_params(deep=False), "features": features})
        return estimator.fit(task.X, task.labels).to_local()


def estimator_for(
    task: Task, *, unequal: bool = False, class_shares: str | Mapping[str, float] = "auto", **parameters: Any
) -> LDSUClassifier:
    """The unfitted classifier of `fit_task`."""
    features = LDSU(kernel=task.encoder.kernel, **parameters)
    return LDSUClassifier(features, standardize_scores=False if unequal else "auto", class_shares=class_shares)
