"""The methods of an experiment: each computed from a shared problem, and as a stand-alone estimator.

A family maps (problem, labels, setting) to features of the labelled and the test points. `estimator` returns the same
method as a scikit-learn estimator, against which the tests compare the shared computation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from ldsu.classifier import LabelledOnly, LDSUClassifier
from ldsu.graphs import graph_laplacian, neighbor_weights
from ldsu.kernels import INPUT_SPACE_KERNELS, Kernel, median_gamma, resolve_kernel
from ldsu.methods import KDA, KLPP, KPCA, KSDA, KSELF, LDSU, EnFS
from ldsu.methods.kda import kda_coefficients
from ldsu.methods.klpp import klpp_directions
from ldsu.methods.ksda import ksda_directions
from ldsu.methods.kself import kself_directions, local_fisher_weights
from ldsu.solvers import Problem, Settings, smooth_features, truncated_directions

Params = Mapping[str, Any]
# Maximum number of components for methods whose later components are not useful.
MAX_COMPONENTS = 200


@dataclass(frozen=True)
class FeatureSet:
    """Features of a setting with all r components; fewer components are the first columns."""

    at: Callable[[np.ndarray], np.ndarray]  # the features (rows, r) of training points
    test: Callable[[], np.ndarray]  # the features (q, r) of the test half
    power: np.ndarray  # mean square (r,) of each feature over the training half: the unit for the classifier


Features = Callable[[Problem, np.ndarray, Params], FeatureSet]


@dataclass(frozen=True)
class Family:
    """A method with its parameters.

    Attributes
    ----------
    name : str
    defaults : dict
        Parameters and their defaults, including "C" of the classifier if it has one.
    estimator : callable
        ``estimator(params, kernel)`` is the method as a scikit-learn estimator: a transformer if `features` is
        set, else a classifier.
    features : callable or None
        ``features(problem, codes, params)``; `params` also holds the "kernel" of the data set and the "seed" of the
        split. None for methods that are classifiers.
    uses_labels : bool
        Whether features depend on labels; if not, one solution is used for every number of labels and every fold.
    one_label : tuple of str
        Parameters that are redundant if every class has one label: without a same-class graph lam only multiplies all
        eigenvalues, which truncation ignores and strength does as well.
    shares : tuple of str
        Parameters that identify the shared stages, most expensive first: settings are run in this order.
    """

    name: str
    defaults: Params
    estimator: Callable[[Params, str], Any]
    features: Features | None = None
    uses_labels: bool = True
    one_label: tuple[str, ...] = ()
    shares: tuple[str, ...] = ("gamma_scale",)


def class_scores(model: Any, X: np.ndarray) -> np.ndarray:
    """Scores (len(X), c) of a fitted classifier: of its decision function, or else its probabilities."""
    if not hasattr(model, "decision_function"):
        # LabelSpreading divides 0 by 0 for points that no label reaches: they get score 0 for all classes.
        return np.nan_to_num(model.predict_proba(X))
    scores = model.decision_function(X)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def _kernel(problem: Problem, params: Params) -> Kernel:
    return problem.kernel(kernel=params["kernel"], gamma_scale=params["gamma_scale"])


def _space(kernel: Kernel) -> Literal["input", "kernel"]:
    return "input" if kernel.name in INPUT_SPACE_KERNELS else "kernel"


def _in_coordinates(
    problem: Problem, kernel: Kernel, T: np.ndarray | None, offset: np.ndarray | None = None
) -> FeatureSet:
    """Features ``B @ T - offset`` of both halves; T is None for the identity."""
    basis, stacked = problem.coordinates(kernel)
    n = problem.n
    shift: Any = 0.0 if offset is None else offset
    if T is None:
        return FeatureSet(lambda rows: stacked[rows], lambda: stacked[n:], basis.eigenvalues / n)
    # Training features have the column sums of squares of diag(eigenvalues)^1/2 T, less n times the squared mean.
    power = (basis.eigenvalues @ T**2) / n
    if offset is not None:
        power = power - offset**2
    return FeatureSet(
        lambda rows: stacked[rows] @ T - shift,
        lambda: problem.arrays.dot(stacked[n:], T) - shift,
        np.maximum(power, 0),
    )


def _ldsu(filter: Literal["tikhonov", "heat", "truncate"]) -> Features:
    def features(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
        kernel, n = _kernel(problem, params), problem.n
        settings = Settings(
            filter=filter,
            strength=params.get("strength", 0.0),
            lam=params["lam"],
            clique_size=params["clique_size"],
            theta=params["theta"],
            cliques=_space(kernel),
            min_anchors=min(LDSU.min_anchors, n),
        )
        if filter == "truncate":
            return _in_coordinates(problem, kernel, truncated_directions(problem, codes, kernel, settings)[1])
        solved = smooth_features(problem, codes, kernel, settings)
        solved = solved or smooth_features(problem, codes, kernel, settings, joint=True)
        assert solved is not None
        return FeatureSet(solved.__getitem__, lambda: solved[n:], (solved[:n] ** 2).mean(axis=0))

    return features


def _kpca(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    # In coordinates B the covariance is diag(eigenvalues) less a rank-one term, and its eigenvectors are KPCA's.
    kernel = _kernel(problem, params)
    basis = problem.basis(kernel)
    mean = basis.coordinates.mean(axis=0)

    def make() -> np.ndarray:
        scatter = -problem.n * np.outer(mean, mean)
        scatter.flat[:: basis.rank + 1] += basis.eigenvalues
        variances, T = problem.arrays.eigh(scatter)
        kept = variances[::-1] > problem.n * np.finfo(float).eps * variances[-1]
        return np.ascontiguousarray(T[:, ::-1][:, kept])

    T = problem.once("kpca", kernel.key, make)
    return _in_coordinates(problem, kernel, T, mean @ T)


def _kda(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    kernel = _kernel(problem, params)
    B_l = problem.basis(kernel).coordinates[codes >= 0]
    alpha = kda_coefficients(B_l @ B_l.T, codes[codes >= 0], params["delta"])
    return _in_coordinates(problem, kernel, B_l.T @ alpha)


def _ksda(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    kernel, k = _kernel(problem, params), params["n_neighbors"]

    def laplacian() -> scipy.sparse.csr_array:
        return graph_laplacian(neighbor_weights(_neighbors(problem, kernel, k)[1]))

    BLB = _symmetric(problem.project(kernel, ("neighbors", k), laplacian))
    B = problem.basis(kernel).coordinates
    _, T = ksda_directions(B, BLB, codes, params["alpha"], params["beta"], solve=problem.arrays.solve)
    return _in_coordinates(problem, kernel, T)


def _kself(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    kernel = _kernel(problem, params)
    basis = problem.basis(kernel)
    labelled = np.flatnonzero(codes >= 0)
    B_l = basis.coordinates[labelled]
    weights = local_fisher_weights(B_l @ B_l.T, codes[labelled], KSELF.local_neighbor)
    eigh = problem.arrays.generalized_eigh
    _, T = kself_directions(basis, labelled, *weights, params["beta"], KSELF.ridge, MAX_COMPONENTS, eigh=eigh)
    return _in_coordinates(problem, kernel, T)


def _klpp(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    kernel, k, ridge = _kernel(problem, params), params["n_neighbors"], params["ridge"]

    def weights() -> scipy.sparse.csr_array:
        D2, indices = _neighbors(problem, kernel, k)
        return neighbor_weights(indices, np.exp(-D2 / (KLPP.heat_scale * (D2.mean() or 1.0))))

    def make() -> np.ndarray:
        BLB = _symmetric(problem.project(kernel, ("heat graph", k), lambda: graph_laplacian(weights())))
        degrees = problem.project(kernel, ("degrees", k), lambda: scipy.sparse.diags_array(weights().sum(axis=1)))
        basis, eigh = problem.basis(kernel), problem.arrays.generalized_eigh
        return np.ascontiguousarray(klpp_directions(basis, BLB, _symmetric(degrees), ridge, MAX_COMPONENTS, eigh)[1])

    return _in_coordinates(problem, kernel, problem.once("klpp", (kernel.key, k, ridge), make))


def _neighbors(problem: Problem, kernel: Kernel, n_neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    if n_neighbors > problem.n - 1:
        raise ValueError(f"n_neighbors = {n_neighbors}, but it must be at most {problem.n - 1}.")
    return problem.neighbors(kernel, n_neighbors, _space(kernel))


def _symmetric(lower: np.ndarray) -> np.ndarray:
    """A symmetric matrix from its lower triangle."""
    return np.tril(lower) + np.tril(lower, -1).T


def _plain_kernel(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    return _in_coordinates(problem, _kernel(problem, params), None)


def _enfs(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    scaler = MaximumScaler().fit(problem.X)
    X, X_test = scaler.transform(problem.X), scaler.transform(problem.X_new)
    best_first = np.argsort(_selector(params).fit(X, codes).ranking_)
    power = (X[:, best_first] ** 2).mean(axis=0)
    return FeatureSet(lambda rows: X[rows][:, best_first], lambda: X_test[:, best_first], power)


def _selector(params: Params) -> EnFS:
    values = _own(params)
    return EnFS(values.pop("n_components"), **values)


def _umap(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    # umap-learn reads -1 as unlabelled. The embedding is fitted to the training points only.
    model = _umap_estimator(params, "").fit(problem.X, codes)
    Z = np.asarray(model.embedding_, dtype=np.float64)
    mean = Z.mean(axis=0)
    return FeatureSet(
        lambda rows: Z[rows] - mean,
        lambda: np.asarray(model.transform(problem.X_new), dtype=np.float64) - mean,
        ((Z - mean) ** 2).mean(axis=0),
    )


def _umap_estimator(params: Params, kernel: str) -> Any:
    try:
        from umap import UMAP
    except ImportError as error:
        raise ValueError("The family 'UMAP' needs umap-learn. Install it with: pip install 'ldsu[umap]'") from error
    return UMAP(
        n_neighbors=params["n_neighbors"],
        n_components=params["dimensions"],
        metric=params["metric"],
        random_state=params.get("seed", 0),
        n_jobs=1,
    )


class MaximumScaler(TransformerMixin, BaseEstimator):
    """Divide all of X by its largest absolute value: the penalties of EnFS are in the units of X."""

    def fit(self, X: np.ndarray, y: Any = None) -> MaximumScaler:
        """Find the largest value of X (n, d)."""
        self.scale_ = float(np.abs(X).max()) or 1.0
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Divide X (q, d) by it."""
        return X / self.scale_


class KernelSVC(ClassifierMixin, BaseEstimator):
    """A one-vs-rest SVM on the raw features of the labelled rows; the bandwidth is set from all rows."""

    def __init__(self, gamma_scale: float = 2.0, *, kernel: str = "rbf", C: float = 1.0) -> None:
        self.gamma_scale = gamma_scale
        self.kernel = kernel
        self.C = C

    def fit(self, X: np.ndarray, y: np.ndarray) -> KernelSVC:
        """Fit on the rows of X (n, d) whose y (n,) is not -1."""
        self.classes_ = np.unique(y[y >= 0])
        self.kernel_ = resolve_kernel(X, kernel=self.kernel, gamma_scale=self.gamma_scale)
        self.support_ = X[y >= 0]
        svm = OneVsRestClassifier(SVC(kernel="precomputed", C=self.C))
        self.model_ = svm.fit(self.kernel_(self.support_), y[y >= 0])
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Scores of the rows of X."""
        return self.model_.decision_function(self.kernel_(X, self.support_))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The class with the largest score."""
        return self.model_.predict(self.kernel_(X, self.support_))


class SoftmaxSVC(SVC):
    """scikit-learn's SVM with the softmax of its one-vs-one scores as probabilities.

    Self-training ranks points by them. Calibrated probabilities need several labels per class; a ranking does not.
    """

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Softmax of the scores."""
        return softmax(class_scores(self, X), axis=1)


class SelfTraining(ClassifierMixin, BaseEstimator):
    """Self-training with `k_best` points per round around an RBF SVM whose bandwidth is set from all rows."""

    def __init__(self, gamma_scale: float = 2.0, svm_C: float = 10.0, k_best: int = 50, max_iter: int = 10) -> None:
        self.gamma_scale = gamma_scale
        self.svm_C = svm_C
        self.k_best = k_best
        self.max_iter = max_iter

    def fit(self, X: np.ndarray, y: np.ndarray) -> SelfTraining:
        """Fit on X (n, d) and y (n,), -1 where there is no label."""
        svm = SoftmaxSVC(C=self.svm_C, gamma=median_gamma(X, "rbf", self.gamma_scale))
        model = SelfTrainingClassifier(svm, criterion="k_best", k_best=self.k_best, max_iter=self.max_iter)
        self.model_ = model.fit(X, y)
        self.classes_ = model.classes_
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Scores (len(X), c)."""
        return class_scores(self.model_, X)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The class with the largest score."""
        return self.model_.predict(X)


class Supervised(ClassifierMixin, BaseEstimator):
    """Any classifier on the labelled rows; its scores are probabilities."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: np.ndarray, y: np.ndarray) -> Supervised:
        """Fit on the rows of X (n, d) whose y (n,) is not -1."""
        self.model_ = LabelledOnly(self.estimator).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Probabilities (len(X), c)."""
        return self.model_.predict_proba(X)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The most probable class."""
        return self.model_.predict(X)


class NearestLabels(KNeighborsClassifier):
    """k nearest neighbors, weighted by the inverse of their distances; all rows where there are fewer than k."""

    def __init__(self, n_neighbors: int = 5) -> None:
        super().__init__(n_neighbors, weights="distance")

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Distances and rows of at most as many neighbors as there are."""
        return super().kneighbors(X, min(n_neighbors or self.n_neighbors, self.n_samples_fit_), return_distance)


def _own(params: Params) -> dict[str, Any]:
    """The parameters of the method itself."""
    return {name: value for name, value in params.items() if name not in ("C", "kernel", "seed")}


def _kernel_method(estimator: Callable[..., Any], **fixed: Any) -> Callable[[Params, str], Any]:
    return lambda params, kernel: estimator(kernel=kernel, **fixed, **_own(params))


_GRAPH = {"gamma_scale": 2.0, "clique_size": 3, "theta": 0.1}
_ALL = (
    Family(
        "LDSU truncate",
        {**_GRAPH, "lam": 1.0, "n_components": 0.5, "C": 1.0},
        _kernel_method(LDSU, filter="truncate"),
        _ldsu("truncate"),
        one_label=("lam",),
        shares=tuple(_GRAPH),
    ),
    Family(
        "LDSU",
        {**_GRAPH, "lam": 1.0, "strength": 100.0, "C": 1.0},
        _kernel_method(LDSU, filter="tikhonov"),
        _ldsu("tikhonov"),
        one_label=("lam",),
        shares=tuple(_GRAPH),
    ),
    Family(
        "LDSU heat",
        {**_GRAPH, "lam": 1.0, "strength": 10.0, "C": 1.0},
        _kernel_method(LDSU, filter="heat"),
        _ldsu("heat"),
        one_label=("lam",),
        shares=tuple(_GRAPH),
    ),
    Family("LDSU auto", {}, lambda params, kernel: LDSUClassifier(LDSU(kernel=kernel)), shares=()),
    Family("KDA", {"gamma_scale": 2.0, "delta": 0.01, "C": 1.0}, _kernel_method(KDA), _kda),
    Family("KPCA", {"gamma_scale": 2.0, "n_components": 1.0, "C": 1.0}, _kernel_method(KPCA), _kpca, uses_labels=False),
    Family(
        "KSDA",
        {"gamma_scale": 2.0, "n_neighbors": 5, "alpha": 0.01, "beta": 0.01, "C": 1.0},
        _kernel_method(KSDA),
        _ksda,
        shares=("gamma_scale", "n_neighbors"),
    ),
    Family("KSELF", {"gamma_scale": 2.0, "beta": 0.1, "n_components": 100, "C": 1.0}, _kernel_method(KSELF), _kself),
    Family(
        "KLPP",
        {"gamma_scale": 2.0, "n_neighbors": 5, "ridge": 0.001, "n_components": 50, "C": 1.0},
        _kernel_method(KLPP),
        _klpp,
        uses_labels=False,
        shares=("gamma_scale", "n_neighbors"),
    ),
    Family(
        "EnFS",
        {"alpha": 1.0, "beta": 1.0, "n_components": 0.5, "max_iter": 300, "tol": 1e-4, "C": 1.0},
        lambda params, kernel: make_pipeline(MaximumScaler(), _selector(params)),
        _enfs,
        shares=(),
    ),
    Family(
        "SVM-RBF",
        {"gamma_scale": 2.0, "C": 1.0},
        lambda params, kernel: KernelSVC(kernel=kernel, **params),
        _plain_kernel,
        uses_labels=False,
    ),
    Family(
        "LabelSpreading",
        {"n_neighbors": 7, "spread": 0.2},
        lambda params, kernel: LabelSpreading(
            kernel="knn", n_neighbors=params["n_neighbors"], alpha=params["spread"], max_iter=200, tol=1e-3
        ),
        shares=(),
    ),
    Family(
        "SelfTraining",
        {"gamma_scale": 2.0, "svm_C": 10.0, "k_best": 50, "max_iter": 10},
        lambda params, kernel: SelfTraining(**params),
        shares=(),
    ),
    Family(
        "RandomForest",
        {"n_estimators": 300, "min_samples_leaf": 1, "max_features": "sqrt"},
        lambda params, kernel: Supervised(RandomForestClassifier(**params, random_state=0)),
        shares=(),
    ),
    Family(
        "LogisticRegression",
        {"logistic_C": 1.0},
        lambda params, kernel: Supervised(LogisticRegression(C=params["logistic_C"], max_iter=1000)),
        shares=(),
    ),
    Family(
        # With scikit-learn's leaves of at least 20 rows, up to 39 labels would not be split at all.
        "HistGradientBoosting",
        {"learning_rate": 0.1, "max_iter": 50, "min_samples_leaf": 1},
        lambda params, kernel: Supervised(
            HistGradientBoostingClassifier(**params, early_stopping=False, random_state=0)
        ),
        shares=(),
    ),
    Family("KNN", {"n_neighbors": 5}, lambda params, kernel: Supervised(NearestLabels(**params)), shares=()),
    Family(
        "UMAP",
        {"n_neighbors": 15, "dimensions": 10, "metric": "euclidean", "C": 1.0},
        _umap_estimator,
        _umap,
        shares=(),
    ),
)
FAMILIES = {family.name: family for family in _ALL}
