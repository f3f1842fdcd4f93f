"""`LDSUClassifier` for samples on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import _fit_context, clone
from sklearn.utils.validation import _num_samples, check_is_fitted

import ldsu
from ldsu._utils.fitting import atomic
from ldsu.classifier import ISOLATED, RAW_ODDS, STANDARDIZED_ODDS, LabelledOnly, max_probabilities, row_lengths
from ldsu.dask.blocks import is_collection, take
from ldsu.dask.cluster import Cluster
from ldsu.dask.estimators import LDSU, computed, to_blocks
from ldsu.labels import class_counts, encode_labels

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
    classifier, standardize_scores, n_refinements
        Same as in `ldsu.LDSUClassifier`.

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
        if y is None:
            raise ValueError("LDSUClassifier requires y to be passed, but the target y is None.")
        y = computed(y)
        if not is_collection(X):
            X = to_blocks(X)
        codes, self.classes_ = encode_labels(y, _num_samples(y))
        if self.classes_.size < 2:
            raise ValueError(
                f"LDSUClassifier needs labels of at least 2 classes, but y has {self.classes_.size} class(es): "
                f"{self.classes_.tolist()}."
            )
        self.features_ = features.fit(X, y)
        self.n_features_in_ = self.features_.n_features_in_
        cluster = Cluster(verbose=self.features_.verbose)
        cluster.set_stage("features of the training rows")
        blocks = self.features_.feature_blocks(X, cluster)
        lengths = np.concatenate(cluster.collect([cluster.submit("lengths", row_lengths, Z) for Z in blocks]))
        n = lengths.size
        scale = float(np.sqrt(np.sum(lengths**2) / n)) or 1.0
        self.scaler_ = ldsu.BlockScaler()
        self.scaler_.scale_, self.scaler_.n_features_in_ = scale, self.features_._n_features_out
        self._lengths = np.sort(lengths / scale)
        feature_rows = _FeatureRows(blocks, self.features_._n_features_out, scale, cluster)
        if self.classifier is None:
            power, asked, first = self._fit_self_training(feature_rows, codes)
        else:
            labelled = np.flatnonzero(codes >= 0)
            self.classifier_ = LabelledOnly(self.classifier).fit(feature_rows[labelled], codes[labelled])
            power = self._power(class_counts(codes), codes.size - labelled.size)
        cluster.set_stage("scores of the training rows")
        width = 1 if self.classes_.size == 2 else self.classes_.size
        self.score_center_, self.score_scale_ = np.zeros(width), np.ones(width)
        model = cluster.put("classifier", self._without_rows())
        raw = [cluster.submit("scores", raw_scores, model, Z) for Z in blocks]
        free = [np.flatnonzero(some < 0) for some in np.split(codes, feature_rows.starts[1:-1])]
        unlabelled = codes < 0
        self._standardize_on_cluster(raw, free, power, cluster)
        model = cluster.put("classifier", self._without_rows())
        scores = [cluster.submit("scores", standardized_scores, model, block) for block in raw]
        decided = cluster.collect([cluster.submit("decide", decide, model, block) for block in scores])
        predicted = np.concatenate(decided)
        if self.classifier is None:
            kept = float(np.mean(predicted[asked] == first)) if asked.size else 1.0
            used = free if unlabelled.any() else [np.arange(some.size) for some in decided]
            self._scale_probabilities(_mean_max_probability(scores, used, cluster), codes, kept)
        isolated = (lengths < ISOLATED * scale * float(np.median(self._lengths))) & unlabelled
        self._warn_isolated_count(int(isolated.sum()), "unlabelled training row(s)")
        self.transduction_ = self.classes_[np.where(unlabelled, predicted, codes)]
        return self

    def _standardize_on_cluster(
        self, raw: list[Any], free: list[np.ndarray], power: float | None, cluster: Cluster
    ) -> None:
        """`_standardization` from scores on the cluster: means first, then mean deviations."""
        count = sum(rows.size for rows in free)
        self._odds = RAW_ODDS if power is None else STANDARDIZED_ODDS[power]
        if power is None:
            return

        def mean_of(function: Callable[..., Any], *arguments: Any) -> np.ndarray:
            tasks = [
                cluster.submit("sums", function, block, rows, *arguments) for block, rows in zip(raw, free, strict=True)
            ]
            return np.asarray(np.sum(cluster.collect(tasks), axis=0) / count)

        self.score_center_ = mean_of(_sums)
        scale = mean_of(_deviations, self.score_center_) ** power
        self.score_scale_ = np.where(scale > 0, scale, 1.0)

    def predict(self, X: Any) -> Any:
        """Labels for new samples; a Dask array, computed when it is asked for, where X is a collection.

        Of collections no warning counts the rows that lie far from all training rows: `confidence` tells.
        """
        if not is_collection(X):
            return super().predict(X)
        return self._map_blocks(X, labels_of, None, self.classes_.dtype)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes; a Dask array where X is a collection. Only with ``classifier=None``."""
        if not is_collection(X):
            return super().predict_proba(X)
        if self.classifier is not None:
            raise AttributeError("predict_proba is available only with classifier=None.")
        return self._map_blocks(X, probabilities_of, self.classes_.size, np.float64)

    def decision_function(self, X: Any) -> Any:
        """Scores of the classes; a Dask array where X is a collection."""
        if not is_collection(X):
            return super().decision_function(X)
        return self._map_blocks(X, decisions_of, None if self.classes_.size == 2 else self.classes_.size, np.float64)

    def _map_blocks(self, X: Any, function: Callable[..., Any], columns: int | None, dtype: Any) -> Any:
        check_is_fitted(self)
        return self.features_.map_blocks(X, _FeaturesFunction(function, self._without_rows()), columns, dtype)

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
        model = ldsu.LDSUClassifier(
            None, self.classifier, standardize_scores=self.standardize_scores, n_refinements=self.n_refinements
        )
        for name, value in vars(self).items():
            if (name.startswith("_") or name.endswith("_")) and name not in ("features_", *ROW_ATTRIBUTES):
                setattr(model, name, value)
        model._lengths = np.median(self._lengths, keepdims=True)  # probabilities only need the median
        return model


class _FeaturesFunction:
    """A picklable function of features, with the classifier bound."""

    def __init__(self, function: Callable[..., Any], model: ldsu.LDSUClassifier) -> None:
        self.function, self.model = function, model

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        return np.asarray(self.function(self.model, self.model.scaler_.transform(Z)))


class _FeatureRows:
    """Access to the scaled features of a few training rows on the cluster."""

    def __init__(self, blocks: list[Any], columns: int, scale: float, cluster: Cluster) -> None:
        self.blocks, self.columns, self.scale, self.cluster = blocks, columns, scale, cluster
        sizes = cluster.collect([cluster.submit("size", len, Z) for Z in blocks])
        self.starts = np.cumsum([0, *sizes])
        self.cache: dict[bytes, np.ndarray] = {}

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        key = rows.tobytes()
        if key not in self.cache:
            cuts = np.searchsorted(rows, self.starts)  # rows ascend
            parts = [
                self.cluster.submit("take", take, Z, rows[a:b] - start)
                for Z, a, b, start in zip(self.blocks, cuts[:-1], cuts[1:], self.starts[:-1], strict=True)
                if b > a
            ]
            empty = np.empty((0, self.columns))  # for an empty selection, where every row is labelled
            self.cache[key] = np.concatenate([*self.cluster.collect(parts), empty]) / self.scale
        return self.cache[key]


def raw_scores(model: ldsu.LDSUClassifier, Z: np.ndarray) -> np.ndarray:
    """Scores of features before standardization."""
    return model._raw_scores(model.scaler_.transform(Z)) if len(Z) else np.empty((0, model.score_center_.size))


def standardized_scores(model: ldsu.LDSUClassifier, raw: np.ndarray) -> np.ndarray:
    """Standardize scores."""
    return np.asarray((raw - model.score_center_) / model.score_scale_)


def decide(model: ldsu.LDSUClassifier, scores: np.ndarray) -> np.ndarray:
    """Codes of the predicted classes."""
    return model._decide(scores)


def labels_of(model: ldsu.LDSUClassifier, Z: np.ndarray) -> np.ndarray:
    """Labels for scaled features."""
    return np.asarray(model.classes_[model._decide(model._scores(Z))])


def probabilities_of(model: ldsu.LDSUClassifier, Z: np.ndarray) -> np.ndarray:
    """Probabilities for scaled features."""
    return model._probabilities(Z)


def decisions_of(model: ldsu.LDSUClassifier, Z: np.ndarray) -> np.ndarray:
    """Decision values for scaled features."""
    return model._decisions(Z)


def _sums(raw: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(raw[rows].sum(axis=0))


def _deviations(raw: np.ndarray, rows: np.ndarray, center: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(raw[rows] - center).sum(axis=0))


def _mean_max_probability(scores: list[Any], rows: list[np.ndarray], cluster: Cluster) -> Callable[[float], float]:
    """Mean probability of the predicted class over some rows of each block, as a function of the score factor."""
    count = sum(selected.size for selected in rows)

    def mean_max_probability(sharpness: float) -> float:
        tasks = [
            cluster.submit("certainty", _sum_max_probabilities, block, selected, sharpness)
            for block, selected in zip(scores, rows, strict=True)
        ]
        return float(sum(cluster.collect(tasks))) / count

    return mean_max_probability


def _sum_max_probabilities(scores: np.ndarray, rows: np.ndarray, sharpness: float) -> float:
    return float(max_probabilities(scores[rows], sharpness).sum()) if rows.size else 0.0
