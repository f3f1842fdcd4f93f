"""`LDSUClassifier` for samples on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context, clone
from sklearn.utils.validation import _num_samples, check_is_fitted

import ldsu
from ldsu._utils.fitting import atomic
from ldsu.classifier import MeanOf, TrainingRows, row_lengths
from ldsu.dask.blocks import is_collection, rows_by_block, take_rows
from ldsu.dask.cluster import Cluster
from ldsu.dask.estimators import LDSU, computed, to_blocks

# Attributes with a value per training row.
ROW_ATTRIBUTES = ("_lengths", "transduction_")


class LDSUClassifier(ldsu.LDSUClassifier):
    """`ldsu.LDSUClassifier` for samples on a Dask cluster: features from all rows, a linear classifier on them.

    The features of the training rows stay on the cluster; those of the labelled rows and of 5,000 others are brought to
    the client, which fits the classifier as on one machine.

    Parameters
    ----------
    features : ldsu.dask.LDSU, default=None
        None uses ``ldsu.dask.LDSU()``.
    classifier, standardize_scores, class_shares, n_refinements
        Same as in `ldsu.LDSUClassifier`.
    supervised : bool, default=True
        Without effect: on a cluster the features are not pooled with other classifiers.

    See Also
    --------
    ldsu.LDSUClassifier : The same on one machine, with every parameter and attribute explained.
    """

    @atomic
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> Self:
        """Learn features and classifier.

        Parameters
        ----------
        X : dask array or dataframe, or array-like, of shape (n, d)
        y : dask array or series, or array-like, of shape (n,)
            Labels of at least two classes; -1, None, NaN or pandas.NA if unlabelled.

        Returns
        -------
        self : object
        """
        features = LDSU() if self.features is None else clone(self.features)
        if not isinstance(features, LDSU):
            raise ValueError(f"features={features!r}, but on a cluster they must be an ldsu.dask.LDSU.")
        y = None if y is None else computed(y)
        codes = self._encode(y, 0 if y is None else _num_samples(y))
        if not is_collection(X):
            X = to_blocks(X)
        self.features_ = features.fit(X, y)
        self.n_features_in_ = self.features_.n_features_in_
        cluster = Cluster(verbose=self.features_.verbose)
        cluster.set_stage("features of the training rows")
        blocks = self.features_.feature_blocks(X, cluster)
        lengths = np.concatenate(cluster.collect([cluster.submit("lengths", row_lengths, Z) for Z in blocks]))
        self.scaler_ = ldsu.BlockScaler.of_lengths(lengths, self.features_._n_features_out)
        lengths = lengths / self.scaler_.scale_
        self._lengths = np.sort(lengths)
        return self._fit_to_features(_ClusterRows(blocks, lengths, self.scaler_, cluster), codes)

    def predict(self, X: Any) -> Any:
        """Labels for new samples; a Dask array, computed when it is asked for, where X is a collection.

        Of collections no warning counts the rows that lie far from all training rows: `confidence` tells.
        """
        if not is_collection(X):
            return super().predict(X)
        return self._map_blocks(X, "_labels", None, self.classes_.dtype)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes; a Dask array where X is a collection. Only with ``classifier=None``."""
        if not is_collection(X):
            return super().predict_proba(X)
        if self.classifier is not None:
            raise AttributeError("predict_proba is available only with classifier=None.")
        return self._map_blocks(X, "_probabilities", self.classes_.size, np.float64)

    def decision_function(self, X: Any) -> Any:
        """Scores of the classes; a Dask array where X is a collection."""
        if not is_collection(X):
            return super().decision_function(X)
        return self._map_blocks(X, "_decisions", None if self.classes_.size == 2 else self.classes_.size, np.float64)

    def _map_blocks(self, X: Any, method: str, columns: int | None, dtype: Any) -> Any:
        check_is_fitted(self)
        return self.features_.map_blocks(X, _FeaturesFunction(method, self._without_rows()), columns, dtype)

    def to_local(self) -> ldsu.LDSUClassifier:
        """Convert to a local model, for `ldsu.save_model` and for use without a cluster."""
        check_is_fitted(self)
        model = self._without_rows()
        model.features = None if self.features is None else ldsu.LDSU(**self.features.get_params())
        model.features_ = self.features_.to_local()
        for name in ROW_ATTRIBUTES:
            setattr(model, name, getattr(self, name))
        return model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def _without_rows(self) -> ldsu.LDSUClassifier:
        """The classifier without its features and row attributes, sufficient to score features."""
        model = ldsu.LDSUClassifier(**{**self.get_params(deep=False), "features": None})
        for name, value in vars(self).items():
            if (name.startswith("_") or name.endswith("_")) and name not in ("features_", *ROW_ATTRIBUTES):
                setattr(model, name, value)
        model._lengths = np.median(self._lengths, keepdims=True)  # probabilities only need the median
        return model


class _FeaturesFunction:
    """A picklable function of features: a method of the classifier for scaled features."""

    def __init__(self, method: str, model: ldsu.LDSUClassifier) -> None:
        self.method, self.model = method, model

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        return np.asarray(getattr(self.model, self.method)(self.model.scaler_.transform(Z)))


class _ClusterRows(TrainingRows):
    """Features and scores of the training rows in blocks on the cluster."""

    def __init__(self, blocks: list[Any], lengths: np.ndarray, scaler: ldsu.BlockScaler, cluster: Cluster) -> None:
        self.blocks, self.scaler, self.cluster, self._lengths = blocks, scaler, cluster, lengths
        self.starts = np.cumsum([0, *cluster.collect([cluster.submit("size", len, Z) for Z in blocks])])
        self.cache: dict[bytes, np.ndarray] = {}

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        key = rows.tobytes()
        if key not in self.cache:
            self.cache[key] = take_rows(self.blocks, self.starts, rows, self.cluster) / self.scaler.scale_
        return self.cache[key]

    def lengths(self) -> np.ndarray:
        return self._lengths

    def compute_scores(self, model: Any) -> None:
        self.cluster.set_stage("scores of the training rows")
        width = 1 if model.classes_.size == 2 else model.classes_.size
        function = self.cluster.put("classifier", _FeaturesFunction("_raw_scores", model._without_rows()))
        self.score_blocks = [self.cluster.submit("scores", _apply, function, Z, width) for Z in self.blocks]

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.concatenate(
            self.cluster.collect([self.cluster.submit("map", function, Z) for Z in self.score_blocks])
        )

    def mean_over(self, rows: np.ndarray) -> MeanOf:
        selected = [(self.score_blocks[number], local) for number, _, local in rows_by_block(rows, self.starts)]

        def mean_of(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
            tasks = [self.cluster.submit("sums", _sum_of, function, block, at) for block, at in selected]
            return np.asarray(np.sum(self.cluster.collect(tasks), axis=0) / rows.size)

        return mean_of


def _apply(function: _FeaturesFunction, Z: np.ndarray, width: int) -> np.ndarray:
    return function(Z) if len(Z) else np.empty((0, width))


def _sum_of(function: Callable[[np.ndarray], np.ndarray], scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(function(scores[rows]).sum(axis=0))
