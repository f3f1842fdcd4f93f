"""Named preprocessing steps: each entry of `PREPROCESSINGS` is a pure function of samples and image shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter, zoom
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler, normalize

Shape = tuple[int, int] | None
BALANCED_ROWS, BALANCED_SEED = 1000, 2012
# Keeps the division by the local contrast from amplifying the noise of flat, dark regions.
CONTRAST_FLOOR = 1e-3


def distinct_rows(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Rows that are not exact copies of earlier rows.

    Examples
    --------
    >>> distinct_rows(np.array([[1, 2], [3, 4], [1, 2]]), np.array([0, 1, 0]))
    array([0, 1])
    """
    _, first = np.unique(X, axis=0, return_index=True)
    return np.sort(first)


def balanced_rows(X: np.ndarray, y: np.ndarray, n: int = BALANCED_ROWS) -> np.ndarray:
    """`n` rows at random with a fixed seed, half of them per class."""
    rng = np.random.default_rng(BALANCED_SEED)
    return np.sort(np.concatenate([rng.choice(np.flatnonzero(y == k), n // 2, replace=False) for k in (0, 1)]))


def resize(X: np.ndarray, image_shape: tuple[int, int], new_shape: tuple[int, int]) -> np.ndarray:
    """Resample images (n, h w) by cubic splines at the centers of the new pixels, clipped to the range of each image.

    Splines keep the fine detail that distinguishes faces; area means lose it (docs/datasets.md).

    Examples
    --------
    >>> resize(np.array([[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]), (1, 8), (1, 4)).round(2)
    array([[0.42, 2.49, 4.51, 6.58]])
    """
    rows, columns = (_spline_weights(old, new) for old, new in zip(image_shape, new_shape, strict=True))
    images = np.asarray(X, dtype=np.float64).reshape(-1, *image_shape)
    resized = (rows @ images @ columns.T).reshape(len(images), -1)
    return np.clip(resized, X.min(axis=1, keepdims=True), X.max(axis=1, keepdims=True))


def _spline_weights(old: int, new: int) -> np.ndarray:
    """Weights (new, old) of the old pixels of a line in each new pixel: a spline is linear in its data."""
    return zoom(np.eye(old), (new / old, 1), order=3, mode="nearest", grid_mode=True)


def _log(X: np.ndarray, image_shape: Shape) -> np.ndarray:
    logs = np.log1p(X)
    return normalize(logs - logs.mean(axis=1, keepdims=True))


def _local_contrast(X: np.ndarray, image_shape: Shape) -> np.ndarray:
    if image_shape is None:
        raise ValueError("local-contrast needs images, but these samples have no image shape.")
    logs = np.log1p(X).reshape(-1, *image_shape)
    detail = logs - gaussian_filter(logs, (0, 2, 2))
    contrast = np.sqrt(gaussian_filter(detail**2, (0, 3, 3)))
    return normalize((detail / (contrast + CONTRAST_FLOOR)).reshape(len(logs), -1))


@dataclass(frozen=True)
class Preprocessing:
    """``transform`` is a pure function ``(X, image_shape) -> X`` of float64 with the same number of rows.

    If rows are dropped before, ``keep`` is a function ``(X, y) -> rows``.
    """

    description: str
    transform: Callable[[np.ndarray, Shape], np.ndarray] = lambda X, image_shape: X
    keep: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    def __call__(self, X: np.ndarray, image_shape: Shape = None) -> tuple[np.ndarray, Shape]:
        """Transform samples."""
        return self.transform(np.asarray(X, dtype=np.float64), image_shape), image_shape


PREPROCESSINGS: dict[str, Preprocessing] = {
    "none": Preprocessing("Values as published."),
    "distinct": Preprocessing("Drops exact copies of earlier rows. Values as published.", keep=distinct_rows),
    "balanced": Preprocessing(
        "Samples 1,000 rows at random with a fixed seed, half of them per class. Values as published.",
        keep=balanced_rows,
    ),
    "pixels": Preprocessing("Pixels divided by 255.", lambda X, image_shape: X / 255),
    "standard": Preprocessing(
        "Columns standardized to mean 0 and variance 1; a constant column becomes 0. Uses all rows, but no labels.",
        lambda X, image_shape: StandardScaler().fit_transform(X),
    ),
    "tf-idf": Preprocessing(
        "Counts times 1 + log((1 + n) / (1 + rows that have the word)), each row of unit norm: rare words have more "
        "weight than common ones. Uses all n rows, but no labels.",
        lambda X, image_shape: TfidfTransformer().fit_transform(X).toarray(),
    ),
    "log": Preprocessing(
        "log(1 + pixel), each image centered and of unit norm: removes the intensity of the light.", _log
    ),
    "local-contrast": Preprocessing(
        "log(1 + pixel) minus its Gaussian blur (sigma 2), divided by the local contrast (root of the blurred square, "
        "sigma 3), each image of unit norm: removes most shadows as well.",
        _local_contrast,
    ),
}
