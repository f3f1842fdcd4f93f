"""The methods of an experiment: each computed from a shared problem, and as a stand-alone estimator.

A family maps (problem, labels, setting) to features of the labelled and the test points, or directly to scores.
`estimator` returns the same method as a scikit-learn estimator, against which the tests compare the shared computation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC

from ldsu.classifier import LDSUClassifier
from ldsu.graphs import graph_laplacian, neighbor_weights
from ldsu.kernels import INPUT_SPACE_KERNELS, Kernel, median_gamma, resolve_kernel
from ldsu.methods import KDA, KLPP, KPCA, KSDA, KSELF, LDSU, EnFS
from ldsu.methods.kda import kda_coefficients
from ldsu.methods.klpp import klpp_directions
from ldsu.methods.ksda import ksda_directions
from ldsu.methods.kself import kself_directions, local_fisher_weights
from ldsu.solvers import Problem, Settings, smooth_features, truncated_directions

Params = Mapping[str, Any]


@dataclass(frozen=True)
class FeatureSet:
    """Features of a setting with all components; fewer components are the first columns.

    Attributes
    ----------
    at : callable
        ``at(rows)`` are the features (rows, r) of training points.
    test : callable
        ``test()`` are the features (q, r) of the test half.
    power : ndarray of shape (r,)
        Mean square of each feature over the training half: the unit for the classifier.
    """

    at: Callable[[np.ndarray], np.ndarray]
    test: Callable[[], np.ndarray]
    power: np.ndarray


@dataclass(frozen=True)
class Family:
    """A method with its parameters.

    Attributes
    ----------
    name : str
    defaults : dict
        Parameters and their defaults, including "C" of the classifier if it has one.
    features : callable or None
        ``features(problem, codes, params) -> FeatureSet``; `params` also holds the "kernel" of the data set and the
        "seed" of the split.
    scores : callable or None
        ``scores(X, codes, X_new, params, seed) -> (len(X_new), c)``, for methods that are classifiers; `params`
        also holds the "kernel" of the data set.
    estimator : callable
        ``estimator(params, kernel)`` is the method as a scikit-learn estimator: a transformer if `features` is
        set, else a classifier.
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
    features: Callable[[Problem, np.ndarray, Params], FeatureSet] | None = None
    scores: Callable[[np.ndarray, np.ndarray, np.ndarray, Params, int], np.ndarray] | None = None
    uses_labels: bool = True
    one_label: tuple[str, ...] = ()
    shares: tuple[str, ...] = field(default=("gamma_scale",))


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


def _ldsu(filter: Literal["tikhonov", "heat", "truncate"]) -> Callable[[Problem, np.ndarray, Params], FeatureSet]:
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


def _svm_estimator(params: Params, kernel: str) -> KernelSVC:
    return KernelSVC(params["gamma_scale"], kernel=kernel, C=params.get("C", 1.0))


class KernelSVC(ClassifierMixin, BaseEstimator):
    """A one-vs-rest SVM on the raw features of the labelled rows; the bandwidth is set from all rows.

    Parameters
    ----------
    gamma_scale : float
    kernel : str
    C : float
    """

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


def _enfs(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    scaler = MaximumScaler().fit(problem.X)
    X, X_test = scaler.transform(problem.X), scaler.transform(problem.X_new)
    best_first = np.argsort(_selector(params).fit(X, codes).ranking_)
    power = (X[:, best_first] ** 2).mean(axis=0)
    return FeatureSet(lambda rows: X[rows][:, best_first], lambda: X_test[:, best_first], power)


def _enfs_estimator(params: Params, kernel: str) -> Any:
    return make_pipeline(MaximumScaler(), _selector(params))


class MaximumScaler(TransformerMixin, BaseEstimator):
    """Divide all of X by its largest absolute value: the penalties of EnFS are in the units of X."""

    def fit(self, X: np.ndarray, y: Any = None) -> MaximumScaler:
        """Find the largest value of X (n, d)."""
        self.scale_ = float(np.abs(X).max()) or 1.0
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Divide X (q, d) by it."""
        return X / self.scale_


def _selector(params: Params) -> EnFS:
    return EnFS(
        params["n_components"],
        alpha=params["alpha"],
        beta=params["beta"],
        max_iter=params["max_iter"],
        tol=params["tol"],
    )


def _umap(problem: Problem, codes: np.ndarray, params: Params) -> FeatureSet:
    # umap-learn reads -1 as unlabelled. The embedding is fitted to the training points only.
    model = _umap_estimator(params, "", seed=params["seed"]).fit(problem.X, codes)
    Z = np.asarray(model.embedding_, dtype=np.float64)
    mean = Z.mean(axis=0)
    return FeatureSet(
        lambda rows: Z[rows] - mean,
        lambda: np.asarray(model.transform(problem.X_new), dtype=np.float64) - mean,
        ((Z - mean) ** 2).mean(axis=0),
    )


def _umap_estimator(params: Params, kernel: str, seed: int = 0) -> Any:
    try:
        from umap import UMAP
    except ImportError as error:
        raise ValueError("The family 'UMAP' needs umap-learn. Install it with: pip install 'ldsu[umap]'") from error
    return UMAP(
        n_neighbors=params["n_neighbors"],
        n_components=params["dimensions"],
        metric=params["metric"],
        random_state=seed,
        n_jobs=1,
    )


class SoftmaxSVC(ClassifierMixin, BaseEstimator):
    """scikit-learn's SVM with the softmax of its one-vs-one scores as probabilities.

    Self-training ranks points by them. Calibrated probabilities need several labels per class; a ranking does not.

    Parameters
    ----------
    C : float
    gamma : float
    """

    def __init__(self, C: float = 1.0, gamma: float = 1.0) -> None:
        self.C = C
        self.gamma = gamma

    def fit(self, X: np.ndarray, y: np.ndarray) -> SoftmaxSVC:
        """Fit on X (n, d) and y (n,)."""
        self.classes_ = np.unique(y)
        self.model_ = SVC(C=self.C, gamma=self.gamma, decision_function_shape="ovr").fit(X, y)
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Scores (len(X), c)."""
        scores = self.model_.decision_function(X)
        return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Softmax of the scores."""
        scores = self.decision_function(X)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The class with the largest score."""
        return self.classes_[self.decision_function(X).argmax(axis=1)]


def _label_spreading(X: np.ndarray, codes: np.ndarray, X_new: np.ndarray, params: Params, seed: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        probabilities = _label_spreading_estimator(params, "").fit(X, codes).predict_proba(X_new)
    # scikit-learn divides 0 by 0 for points that no label reaches: they get score 0 for all classes.
    return np.nan_to_num(probabilities)


def _label_spreading_estimator(params: Params, kernel: str) -> LabelSpreading:
    return LabelSpreading(
        kernel="knn", n_neighbors=params["n_neighbors"], alpha=params["spread"], max_iter=200, tol=1e-3
    )


def _self_training(X: np.ndarray, codes: np.ndarray, X_new: np.ndarray, params: Params, seed: int) -> np.ndarray:
    return _self_training_estimator(params, "").fit(X, codes).decision_function(X_new)


def _self_training_estimator(params: Params, kernel: str) -> SelfTraining:
    return SelfTraining(**{name: params[name] for name in ("gamma_scale", "svm_C", "k_best", "max_iter")})


class SelfTraining(ClassifierMixin, BaseEstimator):
    """scikit-learn's self-training around an RBF SVM whose bandwidth is set from all rows.

    Parameters
    ----------
    gamma_scale, svm_C : float
        Bandwidth, in units of the median distance, and penalty of the SVM.
    k_best, max_iter : int
        Points labelled per round, and number of rounds.
    """

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
        return self.model_.decision_function(X)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The class with the largest score."""
        return self.model_.predict(X)


def _automatic(X: np.ndarray, codes: np.ndarray, X_new: np.ndarray, params: Params, seed: int) -> np.ndarray:
    scores = _automatic_estimator(params, params["kernel"]).fit(X, codes).decision_function(X_new)
    return np.column_stack([-scores, scores]) if scores.ndim == 1 else scores


def _automatic_estimator(params: Params, kernel: str) -> LDSUClassifier:
    return LDSUClassifier(LDSU(kernel=kernel))


# Maximum number of components for methods whose later components are not useful.
MAX_COMPONENTS = 200


def _estimator_factory(estimator: Callable[..., Any], **fixed: Any) -> Callable[[Params, str], Any]:
    """A function that builds an estimator of this package from the parameters of a setting."""

    def make(params: Params, kernel: str) -> Any:
        return estimator(kernel=kernel, **fixed, **{name: value for name, value in params.items() if name != "C"})

    return make


_GRAPH = ("gamma_scale", "clique_size", "theta")
_ALL = (
    Family(
        "LDSU truncate",
        {
            "gamma_scale": 2.0,
            "clique_size": 3,
            "theta": 0.1,
            "lam": 1.0,
            "n_components": 0.5,
            "C": 1.0,
        },
        _estimator_factory(LDSU, filter="truncate"),
        features=_ldsu("truncate"),
        one_label=("lam",),
        shares=_GRAPH,
    ),
    Family(
        "LDSU",
        {"gamma_scale": 2.0, "clique_size": 3, "theta": 0.1, "lam": 1.0, "strength": 100.0, "C": 1.0},
        _estimator_factory(LDSU, filter="tikhonov"),
        features=_ldsu("tikhonov"),
        one_label=("lam",),
        shares=_GRAPH,
    ),
    Family(
        "LDSU heat",
        {"gamma_scale": 2.0, "clique_size": 3, "theta": 0.1, "lam": 1.0, "strength": 10.0, "C": 1.0},
        _estimator_factory(LDSU, filter="heat"),
        features=_ldsu("heat"),
        one_label=("lam",),
        shares=_GRAPH,
    ),
    Family("LDSU auto", {}, _automatic_estimator, scores=_automatic, shares=()),
    Family("KDA", {"gamma_scale": 2.0, "delta": 0.01, "C": 1.0}, _estimator_factory(KDA), features=_kda),
    Family(
        "KPCA",
        {"gamma_scale": 2.0, "n_components": 1.0, "C": 1.0},
        _estimator_factory(KPCA),
        features=_kpca,
        uses_labels=False,
    ),
    Family(
        "KSDA",
        {"gamma_scale": 2.0, "n_neighbors": 5, "alpha": 0.01, "beta": 0.01, "C": 1.0},
        _estimator_factory(KSDA),
        features=_ksda,
        shares=("gamma_scale", "n_neighbors"),
    ),
    Family(
        "KSELF",
        {"gamma_scale": 2.0, "beta": 0.1, "n_components": 100, "C": 1.0},
        _estimator_factory(KSELF),
        features=_kself,
    ),
    Family(
        "KLPP",
        {"gamma_scale": 2.0, "n_neighbors": 5, "ridge": 0.001, "n_components": 50, "C": 1.0},
        _estimator_factory(KLPP),
        features=_klpp,
        uses_labels=False,
        shares=("gamma_scale", "n_neighbors"),
    ),
    Family(
        "EnFS",
        {"alpha": 1.0, "beta": 1.0, "n_components": 0.5, "max_iter": 300, "tol": 1e-4, "C": 1.0},
        _enfs_estimator,
        features=_enfs,
        shares=(),
    ),
    Family("SVM-RBF", {"gamma_scale": 2.0, "C": 1.0}, _svm_estimator, features=_plain_kernel, uses_labels=False),
    Family(
        "LabelSpreading",
        {"n_neighbors": 7, "spread": 0.2},
        _label_spreading_estimator,
        scores=_label_spreading,
        shares=(),
    ),
    Family(
        "SelfTraining",
        {"gamma_scale": 2.0, "svm_C": 10.0, "k_best": 50, "max_iter": 10},
        _self_training_estimator,
        scores=_self_training,
        shares=(),
    ),
    Family(
        "UMAP",
        {"n_neighbors": 15, "dimensions": 10, "metric": "euclidean", "C": 1.0},
        _umap_estimator,
        features=_umap,
        shares=(),
    ),
)
FAMILIES = {family.name: family for family in _ALL}
