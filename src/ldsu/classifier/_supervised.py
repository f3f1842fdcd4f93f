"""Classifiers of the labelled rows alone, a random forest and two kernels, and their weights beside LDSU.

On tables whose columns matter one by one, the graph adds little and these are more accurate; on images the graph is
far ahead with few labels, and the kernels add to it with more. The pooled log-odds are ``sum_j w_j s_j``, with weights
that maximize the leave-one-out likelihood under a prior from the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize
import scipy.sparse
from scipy.spatial.distance import cdist
from scipy.special import log_softmax

from ldsu._utils.arrays import ignoring_warnings, row_blocks
from ldsu.kernels import dense
from ldsu.labels import class_counts, sample_labelled_balanced
from ldsu.methods import SampleKinds, choose, leave_one_out

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

NAMES = ("graph", "forest", "laplacian", "linear")
# Prior weights of `NAMES` by kind of samples, and the deviation of their logarithms.
TABLE_WEIGHTS = (0.05, 0.8, 0.25, 0.1)
IMAGE_WEIGHTS = (1.0, 0.01, 0.25, 0.1)
CLUSTERED_WEIGHTS = (0.3, 0.5, 0.25, 0.1)
EMBEDDING_WEIGHTS = (0.5, 0.1, 0.25, 0.25)
WEIGHT_DEVIATION = 1.0
# Rows of images up to which left-out labels show what their graph knows: the more rows, the more self-training adds.
FEW_IMAGES = 2000
# Median and deviation of the logarithm of the factor of pooled log-odds in probabilities, and its lower bound.
SHARPNESS, SHARPNESS_DEVIATION, MIN_SHARPNESS = 0.9, 0.5, 0.01
# Supervised classifiers with less weight than this are dropped.
MIN_WEIGHT = 0.05
# Share of the uniform distribution in frequencies, whose logarithms would otherwise be infinite.
SMOOTHING = 1e-3
# Rows drawn for a tree, and rows evaluated at once.
N_TREES, MAX_SAMPLES, BLOCK = 200, 2000, 2000
# Trees of fewer values are grown faster than threads are started and asked for them.
FEW_VALUES = 2**13
# Of the two kernels: bandwidth over the median distance of some rows, the ridge if no class has two labels, the factor
# from scores to log-odds, and the largest number of labelled rows.
GAMMA_SCALE, GAMMA_ROWS, RIDGE, ODDS, MAX_POINTS = 0.25, 400, 0.1, 4.0, 1000


@dataclass(frozen=True)
class Forest:
    """Decision trees as arrays: no code and no library objects, so that model files can hold them.

    Attributes
    ----------
    columns : ndarray of int, shape (u,)
        Columns of X that the trees read, ascending.
    roots : ndarray of int, shape (t,)
        The first node of each tree.
    feature, threshold, left, right : ndarrays of shape (nodes,)
        A row goes to `left` if its value in ``columns[feature]`` is at most `threshold`. Children come after their
        parent; a leaf is its own child.
    leaf : ndarray of int, shape (nodes,)
        Row of `values` of a leaf; 0 for other nodes.
    values : ndarray of shape (leaves, c)
        Class frequencies.
    """

    columns: np.ndarray
    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray
    values: np.ndarray

    @classmethod
    def from_sklearn(cls, model: RandomForestClassifier) -> Forest:
        """Take the trees of a fitted forest of codes 0 to c - 1."""
        trees = [estimator.tree_ for estimator in model.estimators_]
        sizes = np.array([tree.node_count for tree in trees])
        roots = np.cumsum(sizes) - sizes

        def joined(attribute: str) -> np.ndarray:
            return np.concatenate([getattr(tree, attribute) for tree in trees])

        is_leaf = joined("children_left") < 0
        own, offset = np.arange(sizes.sum()), np.repeat(roots, sizes)
        left, right = (
            np.where(is_leaf, own, joined(name) + offset).astype(np.int32)
            for name in ("children_left", "children_right")
        )
        feature = joined("feature")
        columns, positions = np.unique(feature[~is_leaf], return_inverse=True)
        numbers = np.zeros(own.size, dtype=np.int32)
        numbers[~is_leaf] = positions
        # scikit-learn compares values in single with thresholds in double precision. The largest single below decides
        # equally.
        threshold = joined("threshold").astype(np.float32)
        above = threshold > joined("threshold")
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        values = np.concatenate([tree.value[:, 0] for tree in trees])[is_leaf]
        values = (values / values.sum(axis=1, keepdims=True)).astype(np.float32)
        if columns.size == 0:  # nothing to split by: every tree is a leaf
            columns = np.zeros(1, dtype=np.int64)
        leaf = np.where(is_leaf, np.cumsum(is_leaf) - 1, 0).astype(np.int32)
        return cls(columns.astype(np.int64), roots.astype(np.int32), numbers, threshold, left, right, leaf, values)

    @classmethod
    def constant(cls, n_classes: int) -> Forest:
        """A single leaf with equal frequencies."""
        zero = np.zeros(1, dtype=np.int32)
        values = np.full((1, n_classes), 1 / n_classes, dtype=np.float32)
        return cls(zero.astype(np.int64), zero, zero, np.zeros(1, np.float32), zero, zero, zero, values)

    def leaves(self, X: Any) -> np.ndarray:
        """Rows of `values` (q, t) that the rows of X (q, d) reach."""
        values = dense(X[:, self.columns]).astype(np.float32)
        rows = np.arange(values.shape[0])[:, None]
        nodes = np.broadcast_to(self.roots, (values.shape[0], self.roots.size))
        while True:
            goes_left = values[rows, self.feature[nodes]] <= self.threshold[nodes]
            following = np.where(goes_left, self.left[nodes], self.right[nodes])
            if np.array_equal(following, nodes):
                return self.leaf[nodes]
            nodes = following

    def predict_proba(self, X: Any) -> np.ndarray:
        """Mean class frequencies (q, c) over the trees."""
        parts = [_mean_values(self.values, self.leaves(X[rows])) for rows in row_blocks(X.shape[0], BLOCK)]
        return np.concatenate(parts) if parts else np.empty((0, self.values.shape[1]))

    def out_of_bag(self, X: Any, codes: np.ndarray, samples: list[np.ndarray]) -> np.ndarray:
        """Probabilities (m, c) of the training rows, each from the trees that did not see it; 0 if there are none.

        These trees saw fewer labels of its class. Probabilities are weighted as if class counts were those of all rows.
        """
        left_out = np.ones((X.shape[0], len(samples)))
        for tree, seen in enumerate(samples):
            left_out[seen, tree] = 0
        weights = left_out / np.maximum(left_out.sum(axis=1, keepdims=True), 1)
        parts = [
            _mean_values(self.values, self.leaves(X[rows]), weights[rows]) for rows in row_blocks(X.shape[0], BLOCK)
        ]
        found = np.concatenate(parts)
        counts = np.broadcast_to(class_counts(codes), found.shape)
        seen = counts - (codes[:, None] == np.arange(found.shape[1]))
        found *= np.where(seen > 0, counts / np.maximum(seen, 1), 1.0)
        return found / np.maximum(found.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)


def _mean_values(values: np.ndarray, leaves: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Weighted mean over trees of ``values[leaves]``, one class at a time to save memory."""
    weights = np.full(leaves.shape, 1 / leaves.shape[1]) if weights is None else weights
    columns = [np.einsum("qt,qt->q", weights, column[leaves].astype(np.float64)) for column in values.T]
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class LaplacianRidge:
    """Ridge regression of class indicators with the kernel ``exp(-gamma |x - x'|_1)``.

    Attributes
    ----------
    points : ndarray or CSR matrix of shape (b, d)
        Labelled rows.
    gamma : float
    coefficients : ndarray of shape (b, c)
    intercept : ndarray of shape (c,)
    """

    points: Any
    gamma: float
    coefficients: np.ndarray
    intercept: np.ndarray

    def scores(self, X: Any) -> np.ndarray:
        """Scores (q, c), from -1 to 1 at the labelled rows."""
        parts = [
            np.exp(-self.gamma * _l1_distances(X[rows], self.points)) @ self.coefficients + self.intercept
            for rows in row_blocks(X.shape[0], BLOCK)
        ]
        return np.concatenate(parts) if parts else np.empty((0, self.intercept.size))


def _l1_distances(X: Any, Y: Any) -> np.ndarray:
    """Distances (q, b) between rows of X and Y."""
    if scipy.sparse.issparse(X) or scipy.sparse.issparse(Y):
        from sklearn.metrics.pairwise import manhattan_distances  # slow to import, and only for sparse samples

        return np.asarray(manhattan_distances(scipy.sparse.csr_matrix(X), scipy.sparse.csr_matrix(Y)))
    return cdist(X, Y, "cityblock")


@dataclass(frozen=True)
class LinearRidge:
    """Ridge regression of class indicators, ``X @ coefficients + intercept``.

    Attributes
    ----------
    coefficients : ndarray of shape (d, c)
    intercept : ndarray of shape (c,)
    """

    coefficients: np.ndarray
    intercept: np.ndarray

    def scores(self, X: Any) -> np.ndarray:
        """Scores (q, c), about -1 to 1 at the labelled rows."""
        return np.asarray(X @ self.coefficients) + self.intercept


@dataclass(frozen=True)
class Supervised:
    """A forest, a Laplacian kernel machine and a linear classifier of the labelled rows, with weights.

    Attributes
    ----------
    scaling : Scaling
    forest : Forest
    laplacian : LaplacianRidge
    linear : LinearRidge
    weights : ndarray of shape (3,)
        Weights of their log-odds.
    """

    scaling: Scaling
    forest: Forest
    laplacian: LaplacianRidge
    linear: LinearRidge
    weights: np.ndarray

    def log_odds(self, X: Any) -> np.ndarray:
        """Weighted sum (q, c) of log-odds, up to a constant per row."""
        parts = [np.empty((0, self.laplacian.intercept.size))]
        for rows in row_blocks(X.shape[0], BLOCK):
            samples = self.scaling(X[rows])
            trees = smoothed_log(self.forest.predict_proba(samples))
            kernels = self.weights[1] * self.laplacian.scores(samples) + self.weights[2] * self.linear.scores(samples)
            parts.append(self.weights[0] * trees + ODDS * kernels)
        return np.concatenate(parts)


@dataclass(frozen=True)
class Scaling:
    """Rows relative to the column means, in units of the largest deviation: trees read them in single precision.

    Attributes
    ----------
    center : ndarray of shape (d,)
        Column means; 0 for sparse samples, which remain sparse.
    scale : float
    """

    center: np.ndarray
    scale: float

    @classmethod
    def of(cls, X: Any) -> Scaling:
        """The scaling of samples X (n, d)."""
        if scipy.sparse.issparse(X):
            variances = np.asarray(X.multiply(X).mean(axis=0)) - np.asarray(X.mean(axis=0)) ** 2
            center = np.zeros(X.shape[1])
        else:
            center = X.mean(axis=0, dtype=np.float64)
            variances = X.var(axis=0, dtype=np.float64)
        return cls(center, float(np.sqrt(max(variances.max(initial=0.0), 0.0))) or 1.0)

    def __call__(self, X: Any) -> Any:
        """Scale rows (q, d)."""
        if scipy.sparse.issparse(X) and not self.center.any():
            return X / self.scale
        return (dense(X) - self.center) / self.scale


def smoothed_log(probabilities: np.ndarray) -> np.ndarray:
    """Logarithms of class frequencies (q, c), bounded from below."""
    return np.log((1 - SMOOTHING) * probabilities + SMOOTHING / probabilities.shape[1])


def fit_forest(X: Any, codes: np.ndarray) -> tuple[Forest, np.ndarray]:
    """Fit a random forest to labelled rows; also return its out-of-bag probabilities (m, c)."""
    from sklearn.ensemble import RandomForestClassifier  # slow to import, and predictions do without

    drawn = min(codes.size, MAX_SAMPLES)
    n_jobs = -1 if X.shape[0] * X.shape[1] > FEW_VALUES else 1
    model = RandomForestClassifier(N_TREES, max_samples=drawn, n_jobs=n_jobs, random_state=0)
    with ignoring_warnings("The number of unique classes is greater than 50%"):
        model.fit(X, codes)
    forest = Forest.from_sklearn(model)
    return forest, forest.out_of_bag(X, codes, model.estimators_samples_)


def no_forest(codes: np.ndarray) -> tuple[Forest, np.ndarray]:
    """What `fit_forest` returns, without trees and with equal probabilities."""
    c = int(codes.max()) + 1
    return Forest.constant(c), np.full((codes.size, c), 1 / c)


LeftOut = Callable[[np.ndarray], np.ndarray]  # leave-one-out scores (len(rows), c) of some labelled rows


def fit_laplacian(X: Any, codes: np.ndarray, some: Any) -> tuple[LaplacianRidge, LeftOut]:
    """Fit a Laplacian kernel machine to labelled rows.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (m, d)
    codes : ndarray of shape (m,)
    some : ndarray or CSR matrix of shape (k, d)
        Rows, labelled or not, from whose distances the bandwidth follows.

    Returns
    -------
    model : LaplacianRidge
    left_out : callable
        Leave-one-out scores (len(rows), c) of some rows of X.
    """
    distances = _l1_distances(some, some)
    median = float(np.median(distances[distances > 0])) if distances.any() else 1.0
    chosen = _kernel_rows(codes)
    points, gamma = X[chosen], GAMMA_SCALE / median
    coefficients, intercept, left_out = _kernel_ridge(np.exp(-gamma * _l1_distances(points, points)), codes[chosen])
    model = LaplacianRidge(points, gamma, coefficients, intercept)
    return model, _left_out_scores(model.scores, X, chosen, left_out)


def fit_linear(X: Any, codes: np.ndarray) -> tuple[LinearRidge, LeftOut]:
    """Fit a linear classifier to labelled rows, with the arguments and results of `fit_laplacian`."""
    chosen = _kernel_rows(codes)
    points = X[chosen]
    # Centered for precision. With an intercept, scores are those of the products themselves.
    products = dense(points @ points.T)
    products -= products.mean(axis=0)
    products -= products.mean(axis=1)[:, None]
    dual, offset, left_out = _kernel_ridge(products, codes[chosen])
    coefficients = np.asarray(points.T @ dual)
    model = LinearRidge(coefficients, offset - np.asarray(points.mean(axis=0)).ravel() @ coefficients)
    return model, _left_out_scores(model.scores, X, chosen, left_out)


def _kernel_rows(codes: np.ndarray) -> np.ndarray:
    """At most `MAX_POINTS` labelled rows, balanced over classes, ascending."""
    return sample_labelled_balanced(codes, MAX_POINTS, np.random.default_rng(0))


def _kernel_ridge(G: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients (m, c), intercept (c,) and leave-one-out scores (m, c) for kernel values G (m, m)."""
    if class_counts(codes).max() > 1:
        best = choose([(0, G, 0.0)], codes)[0]
        noise, left_out = best.noise, best.scores
    else:
        noise = RIDGE
        left_out = next(leave_one_out(G, codes, [noise]))[0]
    m = codes.size
    system = np.ones((m + 1, m + 1))
    system[:m, :m] = G + noise * (np.trace(G) / m or 1.0) * np.eye(m)
    system[m, m] = 0
    targets = np.where(codes[:, None] == np.arange(codes.max() + 1), 1.0, -1.0)
    solution = np.linalg.solve(system, np.vstack([targets, np.zeros(targets.shape[1])]))
    return solution[:m], solution[m], left_out


def _left_out_scores(scores: Callable[[Any], np.ndarray], X: Any, chosen: np.ndarray, left_out: np.ndarray) -> LeftOut:
    """Leave-one-out scores of labelled rows X (m, d), of which those `chosen` were learned from."""

    def of(rows: np.ndarray) -> np.ndarray:
        found = scores(X[rows])  # rows that were not learned from are left out anyway
        places = np.searchsorted(chosen, rows)
        learned = chosen[np.minimum(places, chosen.size - 1)] == rows
        found[learned] = left_out[places[learned]]
        return found

    return of


def weight_prior(kinds: SampleKinds, labels_per_class: float, n: int) -> np.ndarray:
    """Prior weights of `NAMES` for n samples.

    Where neighbors are near, labelled rows count by the fraction of the labels that left-out predictions have seen; in
    images they count less with many rows.
    """
    image, clustered = np.array(IMAGE_WEIGHTS), np.array(CLUSTERED_WEIGHTS)
    seen = max(1 - 1 / labels_per_class, SMOOTHING)
    image[1:] *= seen * min(1.0, FEW_IMAGES / n) ** 3
    clustered[1:] *= seen
    weights = [image, clustered, EMBEDDING_WEIGHTS, TABLE_WEIGHTS]
    return np.asarray(np.exp(np.array([*kinds, 1 - sum(kinds)]) @ np.log(np.array(weights))))


def evidence_weights(log_scores: np.ndarray, codes: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Weights that maximize the likelihood of the labels times a log-normal prior.

    Parameters
    ----------
    log_scores : ndarray of shape (k, m, c)
        Leave-one-out log-probabilities of k classifiers, up to a constant per row.
    codes : ndarray of shape (m,)
    prior : ndarray of shape (k,)
        Medians of the prior.

    Returns
    -------
    weights : ndarray of shape (k,)
    """
    rows = np.arange(codes.size)
    center = np.log(prior)

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = log_softmax(np.tensordot(np.exp(v), log_scores, 1), axis=1)
        residual = np.exp(log_p)
        residual[rows, codes] -= 1
        value = -log_p[rows, codes].sum() + ((v - center) ** 2).sum() / (2 * WEIGHT_DEVIATION**2)
        gradient = np.einsum("mc,kmc->k", residual, log_scores) * np.exp(v) + (v - center) / WEIGHT_DEVIATION**2
        return float(value), gradient

    bounds = [(value - 6, value + 6) for value in center]
    return np.exp(scipy.optimize.minimize(objective, center, jac=True, method="L-BFGS-B", bounds=bounds).x)


def sharpness(log_odds: np.ndarray, codes: np.ndarray) -> float:
    """Factor of pooled log-odds (m, c) in probabilities: maximizes their likelihood times a log-normal prior.

    The weights were fitted to the same labels, so that the factor is at most the median of its prior.
    """
    rows = np.arange(codes.size)

    def objective(v: float) -> float:
        log_p = log_softmax(np.exp(v) * log_odds, axis=1)
        return float(-log_p[rows, codes].sum() + (v - np.log(SHARPNESS)) ** 2 / (2 * SHARPNESS_DEVIATION**2))

    bounds = np.log(MIN_SHARPNESS), np.log(SHARPNESS)
    return float(np.exp(scipy.optimize.minimize_scalar(objective, bounds=bounds, method="bounded").x))
