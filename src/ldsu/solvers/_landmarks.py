"""The global part of the kernel: the features of landmarks, and the residual kernel that they leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ldsu._utils.arrays import Arrays
from ldsu._utils.sizes import HoldsArrays
from ldsu.kernels import stacked
from ldsu.labels import sample_labelled_balanced, sample_others
from ldsu.sample_kernels import PRODUCT_KERNELS, SampleKernel, in_double, row_width, rows_of, take_sets
from ldsu.solvers._residual_factor import conditional, conditioning_sets, random_ranks, residual_factor
from ldsu.solvers._types import Settings

# Maximum number of labelled points used as anchors, balanced over classes; with more the system contains their graph.
MAX_LABELLED = 1000
# Additional landmarks: 500 for a few thousand samples, down to 100 for many.
MAX_LANDMARKS, MIN_LANDMARKS, LANDMARK_BUDGET = 500, 100, 2_000_000
# Minimum number of directions of the landmark features.
MIN_DIRECTIONS = 50


def labels_in_system(codes: np.ndarray, settings: Settings) -> bool:
    """Whether the sparse system contains the same-class graph: with "truncate", or if not all labels are anchors."""
    return settings.filter == "truncate" or int(np.sum(codes >= 0)) > MAX_LABELLED


def resolve_n_landmarks(n_landmarks: int | None, n: int) -> int:
    """Number of landmarks in addition to the labelled points: as given, or by the number n of samples."""
    if n_landmarks is not None:
        return min(n_landmarks, n)
    return int(np.clip(LANDMARK_BUDGET // n, MIN_LANDMARKS, MAX_LANDMARKS))


def resolve_n_directions(n: int) -> int:
    """Number of directions of the landmark features to keep, and at most of labelled landmarks: 50 of many samples."""
    return max(MIN_DIRECTIONS, LANDMARK_BUDGET // n)


def choose_landmarks(
    codes: np.ndarray, n_added: int, rng: np.random.Generator, n_drawn: int | None = None
) -> tuple[np.ndarray, int, np.ndarray]:
    """Rows of landmarks: m labelled points, at most 1,000, balanced over classes, and random others; m; a selection.

    Selected are the `n_added` rows (or 1, if 0) that are drawn whatever the labels, some of which may be labelled: of
    the first `n_drawn` rows, or of all.
    """
    drawn = sample_others(n_drawn or codes.size, np.arange(0), max(n_added, 1), rng)
    labelled = sample_labelled_balanced(codes, MAX_LABELLED, rng)
    chosen = np.concatenate([labelled, drawn[~np.isin(drawn, labelled)]])
    order = np.argsort(chosen)
    return chosen, labelled.size, order[np.searchsorted(chosen, drawn, sorter=order)]


def landmark_transform(Z: Any, kernel: SampleKernel, noise: float, arrays: Arrays) -> Any:
    """T (p x p) such that ``P = k(X, Z) T`` satisfies ``P P^T = k(X, Z) (k(Z, Z) + noise I)^-1 k(Z, X)``.

    The residual ``K - P P^T`` is positive semi-definite for any noise.
    """
    xp = arrays.xp
    Z = in_double(Z, arrays)
    S, U = xp.linalg.eigh(kernel.cross(Z, Z, arrays))
    floor = S.shape[0] * float(np.finfo(np.float64).eps) * float(S[-1])  # for duplicate landmarks without noise
    # The smallest normal number, if all landmarks are zero.
    return U / xp.sqrt(xp.clip(S, max(floor, float(np.finfo(np.float64).tiny)), None) + noise)


@dataclass(frozen=True)
class Landmarks(HoldsArrays):
    """Global part of the kernel: points (p x d), and the transform (p x q) from kernel values at them to features.

    The last `n_labelled` points are labelled, and as many features the columns of the residual kernel at them: they do
    not change the residual.
    """

    points: Any
    transform: np.ndarray
    kernel: SampleKernel
    n_labelled: int = 0

    @property
    def n_global(self) -> int:
        """Number of features that define the residual kernel, the first ones."""
        return self.transform.shape[1] - self.n_labelled

    def with_labelled(self, points: Any, arrays: Arrays) -> Landmarks:
        """The same with labelled points (b x d): the residual kernel ``R = k - p p^T`` at them."""
        b, (p, q) = points.shape[0], self.transform.shape
        transform = np.zeros((p + b, q + b))
        transform[:p, :q] = self.transform
        transform[:p, q:] = -self.transform @ arrays.get(self.features(in_double(points, arrays), arrays)[0]).T
        transform[p:, q:] = np.eye(b)
        return Landmarks(stacked(self.points, points), transform, self.kernel, b)

    def without_labelled(self) -> Landmarks:
        """Only the points that do not depend on labels."""
        p = self.points.shape[0] - self.n_labelled
        return Landmarks(self.points[:p], self.transform[:p, : self.n_global], self.kernel)

    def features(self, X: Any, arrays: Arrays) -> tuple[Any, Any]:
        """P (n x q), ``k(X, points) @ transform`` for the rows of X, in blocks, and the nearest landmark of each."""
        dtype = arrays.dtype_of(X)
        # Double precision: products lose digits of small distances between samples far from the origin.
        Z, transform = in_double(self.points, arrays), arrays.put(self.transform, "float64")
        # Half the squared distance in feature space is a constant of each row minus these kernel values.
        offsets = arrays.put(self.kernel.diagonal(self.points) / 2 if self.kernel.name in PRODUCT_KERNELS else 0.0)
        P = arrays.stored((X.shape[0], transform.shape[1]), dtype)
        nearest = arrays.zeros((X.shape[0],), arrays.dtype_of(arrays.integers(1)))

        def fill(block: slice) -> None:
            K = self.kernel.cross(in_double(X[block], arrays), Z, arrays)
            P[block] = arrays.put(K @ transform, dtype)
            nearest[block] = (K - offsets)[:, : Z.shape[0] - self.n_labelled].argmax(axis=1)

        arrays.each(fill, X.shape[0], 8 * (4 * Z.shape[0] + row_width(X)))
        return P, nearest

    def split_kernel(
        self, X: Any, rows: np.ndarray, neighbors: Any, settings: Settings, arrays: Arrays
    ) -> tuple[Any, Any, tuple[Any, Any, Any]]:
        """``K = P P^T + R``: landmark features and nearest landmarks of samples X, and the `residual_factor` of R.

        `rows` are the rows of the samples in the input, which give their random order. The neighbors (n x l) are those
        of the first n samples, and may be among the others.
        """
        P, groups = self.features(X, arrays)
        rank = arrays.put(random_ranks(rows, settings.random_state))
        sets = conditioning_sets(neighbors, rank, settings.n_conditioning, arrays)
        return P, groups, residual_factor(X, P[:, : self.n_global], sets, self.kernel, settings.nugget, arrays)

    def local_weights(self, new: Any, P_new: Any, near: Any, points: Any, P: Any, nugget: float, arrays: Arrays) -> Any:
        """Weights (b, k) of the training samples `near` (indices into points and P) in the features of new samples.

        P are the features that define the residual kernel, the first ones of P_new.
        """
        xp, dtype = arrays.xp, arrays.dtype_of(new)
        Y = take_sets(points, near, arrays, new)
        P_all = xp.concatenate([arrays.put(P[near], dtype), P_new[:, None, : P.shape[1]]], axis=1)
        return conditional(Y, P_all, near < 0, self.kernel, nugget, arrays)[0]


def fill_residual_columns(
    columns: Any, X: Any, P: Any, places: np.ndarray, kernel: SampleKernel, arrays: Arrays
) -> None:
    """Set columns (n, b) to those of the residual kernel ``R = k - P P^T`` of samples X (n x d) at some places."""
    if not places.size:
        return
    # Double precision, as in `Landmarks.features`.
    Z, P_Z = in_double(rows_of(X, places, arrays), arrays), arrays.put(P[arrays.put(places)], "float64")

    def fill(block: slice) -> None:
        K = kernel.cross(in_double(X[block], arrays), Z, arrays)
        columns[block] = arrays.put(K - arrays.put(P[block], "float64") @ P_Z.T, arrays.dtype_of(X))

    arrays.each(fill, X.shape[0], 8 * (4 * places.size + row_width(X) + P.shape[1]))
