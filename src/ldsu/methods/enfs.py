"""Co-regularized ensemble feature selection."""

from __future__ import annotations

import warnings
from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from ldsu._utils.fitting import atomic
from ldsu._utils.memory import require_memory
from ldsu._utils.parameters import Count, Fraction, NonNegative, parameters
from ldsu._utils.protocols import MatrixLike
from ldsu.graphs import class_indicator
from ldsu.kernels import FLOATS, check_magnitude, check_mask, dense, validate_data
from ldsu.labels import encode_labels
from ldsu.spectrum import resolve_n_components, solve_shifted

LOSSES = ("least squares", "squared hinge")
# Reweighting only approaches zero norms: norms below this fraction of the largest count as zero.
WEIGHTLESS = 1e-4


@parameters
class EnFS(SelectorMixin, BaseEstimator):
    """Select columns by ``min sum_v loss_v(W_v) + alpha sum_v ||W_v||_21 + beta ||[W_1 .. W_V]||_21``.

    Each loss (one-vs-rest least squares and squared hinge on the labelled points) has its own weight matrix and
    intercept; the joint norm makes them select the same columns of X. Columns are ranked by the norms of the rows of
    ``[W_1 .. W_V]``. The selector is linear, and unlabelled points are not used.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=0.5
        Number or fraction of columns to keep. None keeps all columns with nonzero weights.
    alpha : float, default=1.0
        Weight of the separate norms.
    beta : float, default=1.0
        Weight of the joint norm. alpha and beta must not both be 0.
    max_iter : int, default=5000
        Maximum number of reweighting steps.
    tol : float, default=1e-6
        Stop when the relative decrease of the objective is below `tol`.

    Attributes
    ----------
    weights_ : ndarray of shape (d, V * c)
        ``[W_1 .. W_V]``.
    scores_ : ndarray of shape (d,)
        Norms of its rows.
    ranking_ : ndarray of shape (d,)
        1 for the column with the largest score, 2 for the next.
    objective_ : ndarray of shape (n_iter_,)
        Objective after each step; nonincreasing.
    n_iter_ : int
        Number of steps.
    classes_ : ndarray of shape (c,)
        Class labels.

    References
    ----------
    Y. Han, Y. Yang, X. Zhou: Co-regularized ensemble for feature selection. IJCAI 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from ldsu import EnFS
    >>> X, y = load_iris(return_X_y=True)
    >>> y[10::3] = -1
    >>> EnFS(n_features_to_select=2).fit(X, y).get_support()
    array([False,  True, False,  True])
    """

    n_features_to_select: Count | Fraction | None = field(default=0.5, kw_only=False)
    alpha: NonNegative = 1.0
    beta: NonNegative = 1.0
    max_iter: Count = 5000
    tol: NonNegative = 1e-6

    @atomic
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Self:
        """Rank the columns of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Samples; unlabelled samples are ignored.
        y : array-like of shape (n,)
            Labels; -1, None, NaN or pandas.NA for unlabelled rows.

        Returns
        -------
        self : object
        """
        if y is None:
            raise ValueError("EnFS requires y to be passed, but the target y is None.")
        if self.alpha + self.beta == 0:
            raise ValueError("EnFS requires alpha > 0 or beta > 0: without a penalty columns cannot be ranked.")
        samples = validate_data(self, X, accept_sparse="csr", dtype=FLOATS, ensure_min_samples=2)
        check_magnitude(samples, also_small=True)
        codes, self.classes_ = encode_labels(y, samples.shape[0])
        if self.classes_.size < 2:
            raise ValueError(f"EnFS needs labels of at least 2 classes, but y has {self.classes_.size} class(es).")
        labelled = np.flatnonzero(codes >= 0)
        m, d = labelled.size, samples.shape[1]
        need = 8 * (4 * m * d + 3 * min(m, d) ** 2)
        require_memory(need, f"EnFS on {m} labelled samples of {d} columns", "Use fewer columns or labelled samples.")
        Y = 2 * class_indicator(codes[labelled]).toarray() - 1
        labelled_X = dense(samples[labelled]).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # overflow is reported below
            self.weights_, self.objective_ = minimize_ensemble(
                labelled_X, Y, self.alpha, self.beta, self.max_iter, self.tol
            )
        if not (np.all(np.isfinite(self.weights_)) and np.all(np.isfinite(self.objective_))):
            raise ValueError(
                f"EnFS has infinite weights with alpha={self.alpha:.3g} and beta={self.beta:.3g} for values of X up to "
                f"{np.abs(labelled_X).max():.3g}. Rescale X, for example with "
                "sklearn.preprocessing.StandardScaler, or use alpha and beta closer to 1."
            )
        self.n_iter_ = self.objective_.size
        if self.n_iter_ == self.max_iter:
            warnings.warn(
                f"EnFS stopped after max_iter={self.max_iter} steps before reaching tol={self.tol}; increase it.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.scores_ = np.linalg.norm(self.weights_, axis=1)
        self.ranking_ = np.empty(d, dtype=np.int64)
        self.ranking_[np.argsort(-self.scores_, kind="stable")] = np.arange(1, d + 1)
        return self

    def transform(self, X: MatrixLike) -> Any:
        """Select columns of X (q, d)."""
        check_is_fitted(self)  # before X is validated
        check_mask(X)
        return super().transform(X)

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        if self.n_features_to_select is None:
            mask: np.ndarray = self.scores_ > WEIGHTLESS * self.scores_.max()
            return mask
        return self.ranking_ <= resolve_n_components(self.n_features_to_select, self.scores_.size)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def minimize_ensemble(
    X: np.ndarray, Y: np.ndarray, alpha: float, beta: float, max_iter: int, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Minimize the EnFS objective for X (m x d), Y in {-1, 1} (m x c) by iterative reweighting.

    Each step replaces a norm ``||w||`` by the quadratic ``||w||^2 / (2 ||w_old||)`` that touches it from above, and
    the squared hinge by the squared distance to targets that move with points beyond the margin, ``Y max(1, Y f)``.
    Both are upper bounds, so that the objective cannot rise. What remains is one ridge regression with a weight per
    column, of size min(m, d). Returns the weights of the two losses side by side (d, 2 c), and the objective after each
    step.
    """
    d, c = X.shape[1], Y.shape[1]
    Xc = X - X.mean(axis=0)
    W = [np.zeros((d, c)) for _ in LOSSES]
    b = [Y.mean(axis=0) for _ in LOSSES]
    slack = [np.full(d, 1 / max(alpha + beta, np.finfo(float).eps)) for _ in LOSSES]  # 1 / penalty of each row
    history: list[float] = []
    while len(history) < max_iter:
        for v, loss in enumerate(LOSSES):
            targets = Y if loss == "least squares" else Y * np.maximum(1, Y * (Xc @ W[v] + b[v]))
            b[v] = targets.mean(axis=0)
            W[v] = _weighted_ridge(Xc, targets - b[v], slack[v])
        norms = [np.linalg.norm(w, axis=1) for w in W]
        joint = np.sqrt(sum(norm**2 for norm in norms))
        slack = [_slack(norm, joint, alpha, beta) for norm in norms]
        residuals = [Xc @ w + intercept - Y for w, intercept in zip(W, b, strict=True)]
        hinge = np.maximum(0, -Y * residuals[1])
        history.append(
            float(np.sum(residuals[0] ** 2) + np.sum(hinge**2) + alpha * np.sum(norms) + beta * np.sum(joint))
        )
        if not np.isfinite(history[-1]):  # reported by the caller
            break
        if len(history) > 1 and history[-2] - history[-1] <= tol * abs(history[-2]):
            break
    return np.hstack(W), np.array(history)


def _weighted_ridge(X: np.ndarray, T: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """``argmin |X W - T|^2 + sum_i |w_i|^2 / slack_i``, from whichever of the m x m and d x d systems is smaller.

    Rows with zero slack stay zero, which avoids division by zero norms.
    """
    root = np.sqrt(slack)
    Z = X * root
    m, d = Z.shape
    if m <= d:
        A = Z @ Z.T
        A.flat[:: m + 1] += 1
        U = Z.T @ solve_shifted(A, T, 1.0)
    else:
        A = Z.T @ Z
        A.flat[:: d + 1] += 1
        U = solve_shifted(A, Z.T @ T, 1.0)
    return root[:, None] * U


def _slack(norms: np.ndarray, joint: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    """``1 / (alpha / (2 norms) + beta / (2 joint))``, 0 where the weights are 0."""
    nonzero = norms > 0
    slack = np.zeros_like(norms)
    slack[nonzero] = 2 / (alpha / norms[nonzero] + beta / joint[nonzero])
    return slack
