"""Contribution of a shard to the sparse system: cliques, landmark features and rows of the factor of its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import ONE
from ldsu.dask.shard_search import Neighborhood
from ldsu.dask.shards import Shard
from ldsu.dask.sizes import HoldsArrays
from ldsu.graphs import clique_grams, clique_weights
from ldsu.neighbors import cliques
from ldsu.solvers import (
    JointSystem,
    Settings,
    conditioning_sets,
    landmark_directions,
    landmark_features,
    random_ranks,
    residual_factor,
)


@dataclass(frozen=True)
class Landmarks(HoldsArrays):
    """Points (p x d), and the transform from kernel values at them to features (p x q)."""

    points: np.ndarray
    transform: np.ndarray
    gamma: float

    def features(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Landmark features of samples (n x q), and the nearest landmark of each."""
        P, nearest = landmark_features(samples, self.points, self.transform, self.gamma, ONE)
        return P, nearest


@dataclass(frozen=True)
class Labels(HoldsArrays):
    """Labelled rows of X, ascending, and their class codes."""

    rows: np.ndarray
    codes: np.ndarray

    def of(self, rows: np.ndarray) -> np.ndarray:
        """Class code of each of these rows, -1 if unlabelled."""
        codes = np.full(rows.size, -1)
        if self.rows.size:
            at = np.minimum(np.searchsorted(self.rows, rows), self.rows.size - 1)
            known = self.rows[at] == rows
            codes[known] = self.codes[at[known]]
        return codes


@dataclass(frozen=True)
class Piece(HoldsArrays):
    """Part of the system of a shard; columns and members are places.

    Attributes
    ----------
    factor : sparse array of shape (m, n)
        Rows of G.
    members, weights : arrays of shape (m, k), (m, k, k)
        Of the cliques; the weights in the units that lam multiplies.
    P : ndarray of shape (m, q)
        Landmark features.
    groups : ndarray of shape (m,)
        Nearest landmarks.
    codes : ndarray of shape (m,)
    """

    factor: scipy.sparse.csr_array
    members: np.ndarray
    weights: np.ndarray
    P: np.ndarray
    groups: np.ndarray
    codes: np.ndarray


def make_landmarks(points: np.ndarray, n: int, gamma: float, settings: Settings) -> Landmarks:
    """Landmarks at these points of n samples."""
    return Landmarks(points, landmark_directions(points, n, gamma, settings, ONE), gamma)


def grams_of(shard: Shard, around: Neighborhood, clique_size: int) -> np.ndarray:
    """Gram matrices of the cliques of a shard's samples (m, k, k)."""
    members = cliques(around.neighbors[:, : clique_size - 1].astype(np.int64), ONE)
    return clique_grams(np.concatenate([shard.points, around.points]), members, ONE)


def scatter(grams: np.ndarray) -> float:
    """Sum of the squared distances of samples from the mean of their clique."""
    return float(np.trace(grams, axis1=1, axis2=2).sum())


def weights_of(grams: np.ndarray, theta: float) -> np.ndarray:
    """Laplacians of cliques from their Gram matrices."""
    return clique_weights(grams, theta)


def make_piece(
    shard: Shard,
    around: Neighborhood,
    first_place: int,
    n: int,
    weights: np.ndarray,
    scale: float,
    landmarks: Landmarks,
    labels: Labels,
    settings: Settings,
) -> Piece:
    """The part of the system of a shard, of n samples in total."""
    m, k = len(shard.points), weights.shape[1]
    places = np.concatenate([np.arange(first_place, first_place + m), around.others])
    points = np.concatenate([shard.points, around.points])
    P, groups = landmarks.features(points)
    rank = random_ranks(np.concatenate([shard.rows, around.rows]), settings.random_state)
    sets = conditioning_sets(around.neighbors.astype(np.int64), rank, settings.n_conditioning, ONE)
    rows, columns, values = residual_factor(points, P, sets, landmarks.gamma, settings.nugget, ONE)
    members = places[cliques(around.neighbors[:, : k - 1].astype(np.int64), ONE)]
    factor = ONE.sparse(rows, places[columns], values, (m, n))
    # Copies: a view would keep the rows of other shards in memory.
    return Piece(factor, members, weights * scale, P[:m].copy(), groups[:m].copy(), labels.of(shard.rows))


@dataclass(frozen=True)
class WholeSystem(HoldsArrays):
    """The whole system on one worker, and all landmark features."""

    system: JointSystem
    P: np.ndarray


def join_pieces(pieces: Sequence[Piece], settings: Settings, dtype: str) -> WholeSystem:
    """Join all parts of the system."""
    factor = scipy.sparse.vstack([piece.factor for piece in pieces], format="coo")
    members, weights, P, groups, codes = (
        np.concatenate([getattr(piece, name) for piece in pieces])
        for name in ("members", "weights", "P", "groups", "codes")
    )
    triplets = factor.row, factor.col, factor.data
    system = JointSystem.build(triplets, members, weights, groups, codes, settings, ONE, dtype)
    return WholeSystem(system, P)


def solve_block(
    whole: WholeSystem, anchors: np.ndarray, columns: slice, settings: Settings, first_places: np.ndarray
) -> tuple[list[tuple[np.ndarray, np.ndarray, np.ndarray]], int, float]:
    """``B^-1 E_A``, ``eta M P`` and H for some anchors and some columns of P, by shards; iterations; residual."""
    *blocks, iterations, residual = whole.system.solve_columns(anchors, whole.P[:, columns], settings)
    by_shard = zip(*(np.split(block, first_places[1:-1]) for block in blocks), strict=True)
    return list(by_shard), iterations, residual


def outcome(solved: tuple[Any, int, float]) -> tuple[int, float]:
    """Iterations and residual of a solve."""
    return solved[1], solved[2]
