"""Ridge classifiers of the same rows with other labels, where the features are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import arrays_of

if TYPE_CHECKING:
    from sklearn.linear_model import RidgeClassifier


class RidgeFits:
    """``min_W sum_i w_i |W^T z_i + b - y_i|^2 + alpha |W|^2``, y_i 1 for the class of row i and -1 elsewhere.

    The rows are multiplied once, in double precision, however often their labels change. With many features of few rows
    the system is that of the rows.

    Parameters
    ----------
    Z : array, sparse matrix or tensor of shape (n, r)
        Features; the computation is on their device.
    alpha : float
    weights : ndarray of shape (n,)
    """

    def __init__(self, Z: Any, alpha: float, weights: np.ndarray) -> None:
        self.Z, self.alpha, self.weights = Z, alpha, weights
        if scipy.sparse.issparse(Z):  # which centering would make dense
            return
        arrays = self.arrays = arrays_of(Z)
        rows, shares = arrays.put(Z, "float64"), arrays.put(weights / weights.sum())
        self.mean = shares @ rows
        self.root = arrays.put(np.sqrt(weights))[:, None]
        self.rows = (rows - self.mean) * self.root
        n, r = Z.shape
        self.system = self.rows @ self.rows.T if r > n else self.rows.T @ self.rows
        self.system += alpha * arrays.identity(min(n, r))

    def fit(self, codes: np.ndarray) -> RidgeClassifier:
        """scikit-learn's classifier of rows whose class numbers are 0 ... c - 1, each of them at least once."""
        from sklearn.linear_model import RidgeClassifier  # slow to import, and only for fits

        if scipy.sparse.issparse(self.Z):
            return RidgeClassifier(alpha=self.alpha).fit(self.Z, codes, sample_weight=self.weights)
        arrays, (n, r), c = self.arrays, self.Z.shape, int(codes.max()) + 1
        Y = np.where(codes[:, None] == (np.arange(c) if c > 2 else np.array([1])), 1.0, -1.0)
        mean = np.average(Y, axis=0, weights=self.weights)
        targets = self.root * arrays.put(Y - mean)
        system = arrays.copy(self.system)  # which the solution may overwrite
        if r > n:
            W = self.rows.T @ arrays.solve(system, targets, self.alpha)
        else:
            W = arrays.solve(system, self.rows.T @ targets, self.alpha)
        # The attributes of a fitted classifier, whatever the version: fitted to a row of zeros for each class.
        dtype = arrays.dtype_of(self.Z)
        model = RidgeClassifier().fit(np.zeros((c, r), dtype), np.arange(c)).set_params(alpha=self.alpha)
        model.coef_ = arrays.get(W).T.astype(dtype).reshape(model.coef_.shape)
        model.intercept_ = (mean - arrays.get(self.mean @ W)).astype(dtype)
        return model


def linear_scores(Z: Any, model: RidgeClassifier) -> np.ndarray:
    """Scores (q, c), or (q, 1) for two classes, of features on any device; the model's own validates them again."""
    arrays = arrays_of(Z)
    scores = arrays.get(Z @ arrays.put(model.coef_.T)) + model.intercept_
    return np.asarray(scores.reshape(Z.shape[0], -1))


def row_lengths(Z: Any) -> np.ndarray:
    """Euclidean lengths of the rows of Z (n, r), on any device."""
    if scipy.sparse.issparse(Z):
        return np.asarray(scipy.sparse.linalg.norm(Z, axis=1))
    arrays = arrays_of(Z)
    if arrays.xp is np:
        return np.sqrt(np.einsum("ij,ij->i", Z, Z))
    return arrays.get(arrays.xp.linalg.vector_norm(Z, dim=1))
