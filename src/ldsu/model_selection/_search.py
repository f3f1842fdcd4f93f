"""Grid search over `LDSUClassifier` in which settings share kernels, graphs and decompositions."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, _fit_context, clone
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import get_scorer_names
from sklearn.metrics._scorer import _BaseScorer, _MultimetricScorer, _PassthroughScorer
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.model_selection._validation import (
    _fit_and_score,
    _insert_error_scores,
    _warn_or_raise_about_fit_failures,
)
from sklearn.utils import get_tags, indexable
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.metaestimators import _safe_split, available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from ldsu._utils.fitting import atomic
from ldsu._utils.memory import available_memory, require_memory
from ldsu._utils.parameters import parameters
from ldsu._utils.protocols import MatrixLike
from ldsu._utils.stages import Stages, sharing_order
from ldsu.classifier import BlockScaler, LabelledOnly, LDSUClassifier, resolve_shares
from ldsu.kernels import check_magnitude, dense, samples_memory, validate_new
from ldsu.labels import class_counts, encode_labels
from ldsu.methods import LDSU
from ldsu.methods.ldsu import graph_weight_error, resolve_strength
from ldsu.model_selection._scoring import FewLabelKFold, LabelledScorer, mean_average_precision_scorer
from ldsu.solvers import Problem, graph_key, rounded_product, smooth_features, truncated_directions
from ldsu.spectrum import fix_signs, resolve_n_components, symmetric_eigh

DEFAULT_GRID: dict[str, list[Any]] = {"features__strength": [1.0, 10.0, 100.0, 1000.0], "features__clique_size": [3, 5]}
DEFAULT_SPLITS = 5
# n x n arrays alive at the peak: kernel, coordinates, projected graph, its eigenvectors, the coordinates rotated by
# them, LAPACK's workspace of two, and one more while the kernel is decomposed.
MATRICES = 8
SECONDS_BETWEEN_LINES = 5.0
Scoring = Annotated[Any, StrOptions({"map", *get_scorer_names()}), callable, list, tuple, dict, None]


@dataclass(frozen=True)
class LinearScores:
    """Scores ``Z @ coefficients + intercept`` of rows Z of features."""

    coefficients: np.ndarray
    intercept: np.ndarray

    def decision_function(self, Z: np.ndarray) -> np.ndarray:
        """The scores, one column per class (a single one for two classes)."""
        return Z @ self.coefficients + self.intercept


class RidgePath:
    """``min_W ||Z W + b - Y||^2 + alpha ||W||^2`` for any alpha, from one decomposition of ``Z_c Z_c^T = Q D Q^T``.

    ``W = Z_c^T Q (D + alpha I)^-1 Q^T Y_c``, Z_c and Y_c centered; b makes up for the centering. Y is 1 for the class
    of a column and -1 elsewhere; for two classes it has one column.
    """

    def __init__(self, Z: np.ndarray, codes: np.ndarray) -> None:
        c = int(codes.max()) + 1
        Y = np.where(codes[:, None] == (np.arange(c) if c > 2 else np.array([1])), 1.0, -1.0)
        self.Z_mean, self.Y_mean = Z.mean(axis=0), Y.mean(axis=0)
        Z_c = Z - self.Z_mean
        D, Q = symmetric_eigh(Z_c @ Z_c.T)
        self.D = np.maximum(D, 0)
        self.ZQ = Z_c.T @ Q
        self.QY = Q.T @ (Y - self.Y_mean)

    def solve(self, alpha: float) -> LinearScores:
        """The solution for an alpha > 0."""
        W = self.ZQ @ (self.QY / (self.D + alpha)[:, None])
        return LinearScores(W, self.Y_mean - self.Z_mean @ W)


def plain_ridge(classifier: Any) -> bool:
    """Whether `RidgePath` gives what this classifier gives."""
    if type(classifier) is not RidgeClassifier or not classifier.alpha > 0:
        return False
    return vars(classifier) == vars(RidgeClassifier(alpha=classifier.alpha))


@dataclass(frozen=True)
class FoldFeatures:
    """Features of a fold, scaled as one block: of the training rows, with their class numbers, and of the test rows."""

    train: np.ndarray
    test: np.ndarray
    codes: np.ndarray
    classes: np.ndarray

    @cached_property
    def ridge(self) -> RidgePath:
        """Ridge regressions of the classes on the labelled rows."""
        labelled = self.codes >= 0
        return RidgePath(self.train[labelled].astype(np.float64, copy=False), self.codes[labelled])


@dataclass
class Fold:
    """The rows of one fold of the samples, as `LDSU` reads them, and the problem of its training rows."""

    X: Any
    y: Any
    train: np.ndarray
    test: np.ndarray
    kernel: str  # its name: a precomputed one is split by rows and columns
    stages: Stages

    @cached_property
    def positions(self) -> np.ndarray:
        """Stand for all samples: those of the test rows are the rows of `FoldFeatures.test`."""
        positions = np.zeros(_num_samples(self.X), dtype=np.int64)
        positions[self.test] = np.arange(positions[self.test].size)
        return positions

    @cached_property
    def _training(self) -> tuple[Problem, np.ndarray, np.ndarray]:
        """The problem of the training rows, their class numbers, and the classes."""
        reader = LDSU(kernel=self.kernel)
        X_train, y_train = _safe_split(reader, self.X, self.y, self.train)
        X_test, _ = _safe_split(reader, self.X, self.y, self.test, self.train)
        X_train, codes = reader._validate(X_train, y_train)
        X_test = validate_new(reader, X_test)
        check_magnitude(X_test, also_small=False)
        X_test = dense(X_test) if self.kernel == "precomputed" else X_test
        problem = Problem.once_for(X_train, X_test, keep=1, stages=self.stages, reusable=True)
        return problem, codes, reader.classes_

    def features(self, ldsu: LDSU) -> FoldFeatures | None:
        """Scaled features of the fold's rows, equal to those of an ordinary fit to rounding; None if inaccurate."""
        return self._training[0].once("features", feature_key(ldsu), lambda: self._scaled_features(ldsu))

    def _scaled_features(self, ldsu: LDSU) -> FoldFeatures | None:
        problem, codes, classes = self._training
        n = problem.n
        settings = ldsu._settings(n)
        if classes.size < 2 or graph_weight_error(ldsu.lam, ldsu.strength) or not uses_exact_solver(ldsu, problem.X):
            return None  # an ordinary fit raises the error
        ldsu._clip_parameter(ldsu.clique_size, n, "clique_size")
        kernel = ldsu._resolve_kernel(problem, ldsu.gamma_scale)
        if settings.filter == "truncate":

            def every_component() -> np.ndarray:
                _, directions = truncated_directions(problem, codes, kernel, replace(settings, n_components=None))
                with problem.stages("features"):
                    coefficients = fix_signs(problem.basis(kernel).coefficients(directions))
                    rows = (problem.kernel_matrix(kernel), problem.new_kernel_values(kernel))
                    return np.vstack([values @ coefficients for values in rows])

            Z = problem.once("truncated", (graph_key(kernel, settings), settings.lam), every_component)
            Z = Z[:, : resolve_n_components(settings.n_components, problem.basis(kernel).rank)]
        else:
            features = smooth_features(problem, codes, kernel, settings)
            if features is None:
                return None
            Z = features[:]
        Z = Z.astype(problem.X.dtype, copy=False)
        scaler = BlockScaler().fit(Z[:n])
        return FoldFeatures(scaler.transform(Z[:n]), scaler.transform(Z[n:]), codes, classes)

    def classifier(self, model: LDSUClassifier) -> FoldClassifier | None:
        """A model that reads shared features at `positions`; None if they are inaccurate, or cannot be computed."""
        try:
            features = self.features(model.features)
        except Exception:  # an ordinary fit reports it
            return None
        if features is None:
            return None
        classifier = FoldClassifier(**{**model.get_params(deep=False), "features": None})
        classifier.shared = features
        return classifier


def feature_key(ldsu: LDSU) -> tuple[Hashable, ...]:
    """What the features depend on, beside samples and labels, the most expensive parts first."""
    strength = resolve_strength(ldsu.strength)
    kernel = (ldsu.kernel, ldsu.gamma, ldsu.gamma_scale, ldsu.degree, ldsu.coef0)
    graph = (ldsu.clique_size, ldsu.cliques, ldsu.scaling)
    joint = None if ldsu.filter == "tikhonov" else ldsu.lam
    count = type(ldsu.n_components).__name__  # 1 is one feature, 1.0 all of them
    last = (ldsu.min_anchors, ldsu.lam, strength, count, ldsu.n_components)
    return (kernel, graph, ldsu.theta, joint, ldsu.filter, rounded_product(ldsu.lam, strength), *last)


class FoldClassifier(LDSUClassifier):
    """The part of an `LDSUClassifier` behind the features: a sample is its position among the features of a fold."""

    shared: FoldFeatures

    def fit(self, X: Any, y: Any, *, problem: Problem | None = None) -> Self:
        """Fit classifier and standardization to the shared features of the training rows."""
        codes, self.classes_ = self.shared.codes, self.shared.classes
        self.class_shares_ = resolve_shares(self.class_shares, codes, self.classes_)
        if plain_ridge(self.classifier):
            self.classifier_: Any = self.shared.ridge.solve(self.classifier.alpha)
        else:
            self.classifier_ = LabelledOnly(self.classifier).fit(self.shared.train, codes)
        self._lengths = np.zeros(1)  # isolated rows are not needed
        unlabelled = codes < 0
        power = self._power(class_counts(codes), int(unlabelled.sum()))
        raw = self._raw_scores(self.shared.train)
        self.score_center_, self.score_scale_ = self._standardization(raw[unlabelled], power)
        return self

    def _scaled_features(self, X: Any) -> Any:
        return self.shared.test[X]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy over the labelled rows, without scikit-learn's checks, which take longer than all the rest."""
        codes, classes = encode_labels(y, X.shape[0])
        if sample_weight is not None or classes.size == 0:
            return super().score(X, y, sample_weight)
        labelled = codes >= 0
        return float(np.mean(self.predict(X[labelled]) == classes[codes[labelled]]))


def shareable(model: Any) -> bool:
    """Whether a classifier's features may be made from shared pieces: `LDSU` itself with a named kernel."""
    if type(model) is not LDSUClassifier or type(model.features) is not LDSU or model.classifier is None:
        return False  # without a classifier the rows without label are learned from, too
    features = model.features
    if features.strength == "auto" and features.filter == "tikhonov" and features.scaling == "relative":
        return False  # chosen anew on every fold
    return features.solver in ("auto", "exact") and features.device == "cpu" and isinstance(features.kernel, str)


def uses_exact_solver(ldsu: LDSU, X: Any) -> bool:
    """Whether a fit to X (n x d) would take the exact solver, whose stages are shared."""
    return ldsu._choose_solver(X, ldsu._settings(X.shape[0])) == "exact"


def reads_scores_only(scorer: Any) -> bool:
    """Whether a scorer asks a classifier for predictions and scores and looks at nothing else, nor at its samples."""
    if isinstance(scorer, _MultimetricScorer):
        return all(reads_scores_only(inner) for inner in scorer._scorers.values())
    if type(scorer) is LabelledScorer:
        return isinstance(scorer.scoring, str) or reads_scores_only(scorer.scoring)
    return scorer is mean_average_precision_scorer or isinstance(scorer, (_BaseScorer, _PassthroughScorer))


def check_grid(estimator: Any, grid: Any) -> ParameterGrid:
    """Raise a ValueError for a grid with an empty list, an unknown parameter, or an invalid value."""
    combinations = ParameterGrid(grid)
    for part in combinations.param_grid:
        first = {name: values[0] for name, values in part.items()}
        for name, values in part.items():
            for value in values:
                setting = {**first, name: value}
                try:
                    candidate = clone(estimator).set_params(**clone(setting, safe=False))
                except (ValueError, AttributeError) as error:
                    raise ValueError(f"param_grid: {name} = {value!r} cannot be set. {error}") from error
                for step in (candidate, *candidate.get_params(deep=True).values()):
                    if hasattr(step, "_parameter_constraints"):
                        try:
                            step._validate_params()
                        except ValueError as error:
                            raise ValueError(f"param_grid: {name} = {value!r} is not allowed. {error}") from error
    return combinations


def _delegates(method: str) -> Callable[[Any], bool]:
    def check(self: Any) -> bool:
        getattr(getattr(self, "best_estimator_", None) or self._estimator(), method)
        return True

    return check


@parameters
class LDSUSearch(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Grid search over the parameters of an `LDSUClassifier` that shares computation between settings.

    The scores equal those of ``GridSearchCV(LDSUClassifier(...), param_grid, cv=FewLabelKFold())`` up to rounding, in a
    fraction of the time if settings differ in few parameters. Within a fold

    - the kernel matrix and its decomposition are shared by all settings with the same kernel and bandwidth,
    - cliques and their Gram matrices by all with the same `clique_size`,
    - the local graph and, with ``filter="tikhonov"``, its decomposition by all with the same `clique_size` and `theta`
      beside: any `lam` and `strength` then costs a few thin matrix products,
    - with "heat" and "truncate" there is a decomposition for each `lam` too (one for all of them where no class has
      two labels, with "heat"), shared by all `strength` and `n_components`,
    - the features by all settings that differ in the classifier or in `standardize_scores`, and one decomposition of
      them by every `alpha` of a ridge classifier.

    Nothing is shared between folds: held-out rows do not affect training samples, neighbors or bandwidth. Other
    settings are fitted separately, with the same scores in more time: a solver other than "exact" (``solver="auto"``
    uses "sparse" for many samples), a callable kernel, features other than `LDSU`, an estimator other than
    `LDSUClassifier`, a custom scorer function (it may use more than predictions), and settings whose shared solution
    is inaccurate.

    Parameters
    ----------
    estimator : classifier, default=None
        None is ``LDSUClassifier(LDSU(), RidgeClassifier(alpha=0.1))``. ``features=None`` of an `LDSUClassifier` is
        replaced by ``LDSU()``, so that the grid can set its parameters. With ``classifier=None`` (self-training)
        nothing is shared.
    param_grid : dict or list of dicts, default=None
        Values by parameter, as in `GridSearchCV`: `features__lam`, `classifier__alpha`,
        `standardize_scores`. None tries four values of `features__strength` and two of `features__clique_size`.
    cv : int, splitter or iterable, default=None
        An integer n is ``FewLabelKFold(n)``; None is 5 folds, or fewer if a class has fewer labels.
    scoring : str, callable, list, tuple or dict, default=None
        None is the accuracy over held-out labelled rows, "map" their mean average precision; otherwise as in
        `GridSearchCV`.
    refit : bool, str or callable, default=True
        Whether to fit the best setting to all rows. With several scores, the name of the score to select by.
    error_score : "raise" or number, default=nan
        Score of a setting that fails, with a warning; if all settings fail, an error is raised.
    verbose : bool, default=False
        Whether to print progress to standard error every few seconds.

    Attributes
    ----------
    cv_results_ : dict of str to array
        As in `GridSearchCV`. The time of shared results counts for the setting that computes them.
    best_estimator_ : classifier
        The best setting, fitted to all rows. Only with `refit`.
    best_params_ : dict
        The best setting.
    best_score_ : float
        Mean score of the best setting over the folds.
    best_index_ : int
        Index of the best setting in `cv_results_`.
    n_splits_ : int
        Number of folds.
    n_shared_ : int
        Number of settings with shared computation; the others are fitted separately.
    scorer_ : callable or dict
        Scorer.
    multimetric_ : bool
        Whether there are several scores.
    refit_time_ : float
        Seconds of the final fit. Only with `refit`.
    classes_ : ndarray of shape (c,)
        Class labels.
    timings_ : dict of str to float
        Seconds of each stage of the shared computation.

    See Also
    --------
    FewLabelKFold : The folds.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ldsu import LDSUSearch
    >>> X, y = load_digits(return_X_y=True)
    >>> few = y.copy()
    >>> few[100:] = -1
    >>> grid = {"features__lam": [0.01, 1, 100], "features__strength": [1, 10, 100], "classifier__alpha": [0.01, 0.1]}
    >>> search = LDSUSearch(param_grid=grid).fit(X, few)
    >>> len(search.cv_results_["params"]), search.score(X[100:], y[100:]) > 0.9
    (18, True)
    """

    estimator: Annotated[Any, HasMethods(["fit", "predict"]), None] = field(default=None, kw_only=False)
    param_grid: dict[str, Any] | list[dict[str, Any]] | None = field(default=None, kw_only=False)
    cv: Annotated[Any, "cv_object"] = None
    scoring: Scoring = None
    refit: bool | str | Callable[..., int] = True
    error_score: Annotated[Any, StrOptions({"raise"}), Real] = np.nan
    verbose: bool = False

    @atomic
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Score every setting on every fold, and fit the best to all rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Samples, labelled and unlabelled.
        y : array-like of shape (n,)
            Labels of at least two classes; -1, None, NaN or pandas.NA for unlabelled rows.

        Returns
        -------
        self : object
        """
        if y is None:
            raise ValueError("LDSUSearch requires y to be passed, but the target y is None.")
        estimator = self._estimator()
        settings = list(check_grid(estimator, DEFAULT_GRID if self.param_grid is None else self.param_grid))
        # scikit-learn's search resolves the scorers and formats the results; it is not fitted.
        by_map = isinstance(self.scoring, str) and self.scoring == "map"
        scoring = mean_average_precision_scorer if by_map else self.scoring
        table = GridSearchCV(estimator, {}, scoring=scoring, refit=self.refit, error_score=self.error_score)
        scorer, metric = table._get_scorers()
        models = [clone(estimator).set_params(**clone(setting, safe=False)) for setting in settings]
        shared = [reads_scores_only(scorer) and shareable(model) for model in models]

        X, y = indexable(X, y)
        if any(shared):  # validate the samples once, before any computation
            checked = clone(models[shared.index(True)].features)._validate(X, y)[0]
            shared = [
                share and uses_exact_solver(model.features, checked)
                for share, model in zip(shared, models, strict=True)
            ]
        self.n_shared_ = sum(shared)
        codes, classes = encode_labels(y, _num_samples(X))
        if classes.size < 2:
            raise ValueError(
                f"LDSUSearch needs labels of at least 2 classes, but y has {classes.size} class(es): "
                f"{classes.tolist()}."
            )
        if self.n_shared_:
            features = [model.features for share, model in zip(shared, models, strict=True) if share]
            self._require_memory(checked, codes, features)
        cv = self.cv
        if cv is None:
            cv = int(np.clip(class_counts(codes).min(), 2, DEFAULT_SPLITS))
        if isinstance(cv, Integral):  # scikit-learn's folds would treat unlabelled rows as a class
            cv = FewLabelKFold(int(cv))
        folds = list(check_cv(cv, y, classifier=True).split(X, y))
        self.n_splits_ = len(folds)
        stages = Stages(type(self).__name__)
        out = self._evaluate(X, y, folds, models, shared, scorer, stages)
        self.timings_ = stages.seconds
        _warn_or_raise_about_fit_failures(out, self.error_score)
        if callable(scoring):
            _insert_error_scores(out, self.error_score)
        self.cv_results_ = table._format_results(settings, len(folds), out)
        self.multimetric_ = isinstance(out[0]["test_scores"], dict)
        self.scorer_ = scorer._scorers if isinstance(scorer, _MultimetricScorer) else scorer
        if callable(scoring) and self.multimetric_:
            table._check_refit_for_multimetric(out[0]["test_scores"])
            metric = self.refit
        if self.refit or not self.multimetric_:
            self.best_index_ = table._select_best_index(self.refit, metric, self.cv_results_)
            self.best_params_ = settings[self.best_index_]
            if not callable(self.refit):
                self.best_score_ = self.cv_results_[f"mean_test_{metric}"][self.best_index_]
        if self.refit:
            self._print("refitting the best setting to all rows")
            start = time.perf_counter()
            self.best_estimator_ = clone(models[self.best_index_]).fit(X, y)
            self.refit_time_ = time.perf_counter() - start
            for name in ("classes_", "n_features_in_", "feature_names_in_"):
                if hasattr(self.best_estimator_, name):
                    setattr(self, name, getattr(self.best_estimator_, name))
        return self

    def _evaluate(
        self,
        X: Any,
        y: Any,
        folds: list[tuple[np.ndarray, np.ndarray]],
        models: list[Any],
        shared: list[bool],
        scorer: Any,
        stages: Stages,
    ) -> list[dict[str, Any]]:
        """Results of scikit-learn's `_fit_and_score` for every setting and fold, fold by fold to hold one at a time."""
        together = [i for i, share in enumerate(shared) if share]
        order = [together[i] for i in sharing_order([feature_key(models[i].features) for i in together])]
        order += [i for i, share in enumerate(shared) if not share]
        out = [dict[str, Any]() for _ in range(len(models) * len(folds))]
        self._print(f"{len(models)} settings ({len(together)} with shared computation), {len(folds)} folds")
        started = reported = time.perf_counter()
        for k, (train, test) in enumerate(folds):
            fold: Fold | None = None
            for done, i in enumerate(order, start=k * len(order)):
                start = time.perf_counter()
                if start - reported > SECONDS_BETWEEN_LINES:
                    reported = start
                    left = (start - started) * (len(out) - done) / max(done, 1)
                    self._print(f"{done} of {len(out)} scores, {start - started:.0f} s, about {left:.0f} s left")
                if fold is not None and not (shared[i] and fold.kernel == models[i].features.kernel):
                    fold = None  # free its memory
                if fold is None and shared[i]:
                    fold = Fold(X, y, train, test, models[i].features.kernel, stages)
                model = fold and fold.classifier(models[i])
                with stages("classify and score") if model else nullcontext():
                    result = _fit_and_score(
                        model or clone(models[i]),
                        fold.positions if fold and model else X,
                        y,
                        scorer=scorer,
                        train=train,
                        test=test,
                        verbose=0,
                        parameters=None,
                        fit_params=None,
                        score_params=None,
                        return_times=True,
                        error_score=self.error_score,
                    )
                # scikit-learn reads the system clock, which may be set back, and does not know of the shared stages.
                elapsed = time.perf_counter() - start
                result["score_time"] = float(np.clip(result["score_time"], 0, elapsed))
                result["fit_time"] = elapsed - result["score_time"]
                out[i * len(folds) + k] = result
        return out

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Predict labels for X (q, d) with the best setting."""
        return self._best().predict(X)

    @available_if(_delegates("decision_function"))
    def decision_function(self, X: MatrixLike) -> NDArray[Any]:
        """Compute scores for X (q, d) with the best setting."""
        return self._best().decision_function(X)

    @available_if(_delegates("predict_proba"))
    def predict_proba(self, X: MatrixLike) -> NDArray[Any]:
        """Predict class probabilities for X (q, d) with the best setting."""
        return self._best().predict_proba(X)

    def score(self, X: MatrixLike, y: ArrayLike) -> float:
        """Score the best setting on X (q, d) and y (q,) with the scorer of the search."""
        best = self._best()
        scorer = self.scorer_[self.refit] if isinstance(self.scorer_, dict) else self.scorer_
        score = scorer(best, X, y)
        return float(score[self.refit] if self.multimetric_ and not isinstance(self.scorer_, dict) else score)

    def _estimator(self) -> Any:
        """The estimator with defaults for None."""
        if self.estimator is None:
            return LDSUClassifier(LDSU(), RidgeClassifier(alpha=0.1))
        estimator = clone(self.estimator)
        if type(estimator) is LDSUClassifier and estimator.features is None:
            estimator.features = LDSU()
        return estimator

    def _best(self) -> Any:
        check_is_fitted(self, "cv_results_")
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(
                f"This LDSUSearch has refit={self.refit!r}: the best setting is not fitted to all rows."
            )
        return self.best_estimator_

    def _require_memory(self, X: Any, codes: np.ndarray, features: list[LDSU]) -> None:
        n = X.shape[0]
        anchors = max(int(np.sum(codes >= 0)), *(min(ldsu.min_anchors, n) for ldsu in features), 0)
        k = min(max(ldsu.clique_size for ldsu in features), n)
        # Of the cliques: Gram matrices, their decomposition, and the graph with its indices.
        needed = 8 * n * (MATRICES * n + 4 * anchors + 6 * k * k) + samples_memory(X, features[0].kernel)
        fits = int(n * np.sqrt(min(1.0, available_memory() / needed)))
        require_memory(
            needed,
            f"LDSUSearch for {n} samples",
            f"Search on a subset of at most {fits} rows that contains the labelled rows.",
        )

    def _print(self, text: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {text}", file=sys.stderr, flush=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._estimator())
        tags.input_tags = inner.input_tags
        tags.classifier_tags = inner.classifier_tags
        tags.target_tags.required = True
        return tags
