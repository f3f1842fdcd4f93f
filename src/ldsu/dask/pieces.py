"""Contribution of a shard to the sparse system, and the whole system on every worker, joined from all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse

from ldsu._utils.arrays import ONE
from ldsu._utils.sizes import HoldsArrays
from ldsu.dask.cluster import Cluster
from ldsu.dask.shard_search import Neighborhood
from ldsu.dask.shards import Shard, Shards
from ldsu.graphs import clique_grams
from ldsu.neighbors import cliques
from ldsu.solvers import JointSystem, Landmarks, Settings

# Maximum number of right-hand sides that are solved together.
COLUMNS = 40


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
    """Part of the system of a shard; columns and members are places."""

    factor: scipy.sparse.csr_array  # (m, n): rows of G
    members: np.ndarray  # (m, k): of the cliques
    weights: np.ndarray  # (m, k, k): their Laplacians, in the units that lam multiplies
    P: np.ndarray  # (m, q): landmark features
    groups: np.ndarray  # (m,): nearest landmarks
    codes: np.ndarray  # (m,)


def grams_of(shard: Shard, around: Neighborhood, clique_size: int) -> np.ndarray:
    """Gram matrices of the cliques of a shard's samples (m, k, k)."""
    members = cliques(around.neighbors[:, : clique_size - 1].astype(np.int64), ONE)
    return clique_grams(np.concatenate([shard.points, around.points]), members, ONE)


def make_piece(
    shard: Shard,
    around: Neighborhood,
    weights: np.ndarray,
    landmarks: Landmarks,
    labels: Labels,
    n: int,
    settings: Settings,
) -> Piece:
    """The part of the system of a shard, of n samples in total."""
    m, neighbors = len(shard.points), around.neighbors.astype(np.int64)
    places = np.concatenate([shard.places, around.others])
    points, all_rows = np.concatenate([shard.points, around.points]), np.concatenate([shard.rows, around.rows])
    P, groups, (rows, columns, values) = landmarks.split_kernel(points, all_rows, neighbors, settings, ONE)
    members = places[cliques(neighbors[:, : weights.shape[1] - 1], ONE)]
    factor = ONE.sparse(rows, places[columns], values, (m, n))
    # Copies: a view would keep the rows of other shards in memory.
    return Piece(factor, members, weights, P[:m].copy(), groups[:m].copy(), labels.of(shard.rows))


def whole_bytes(n: int, q: int, settings: Settings, dtype: str) -> int:
    """Bytes of the whole system on one worker while it is joined and a block is solved."""
    entries, itemsize = 2 * (settings.n_conditioning + 1) + settings.clique_size**2, np.dtype(dtype).itemsize
    return n * (entries * (itemsize + 12) + 8 * settings.clique_size**2 + itemsize * (q + 8 * COLUMNS))


@dataclass(frozen=True)
class ReplicatedSystem:
    """The system of pieces, a future per shard, joined on every worker; with q columns of landmark features."""

    pieces: list[Any]
    q: int
    shards: Shards
    cluster: Cluster

    def solve(
        self, anchors: np.ndarray, P: list[Any], settings: Settings
    ) -> tuple[list[Any], list[Any], list[Any], int, float]:
        """As `JointSystem.solve`, one task per block of right-hand sides."""
        cluster, directory = self.cluster, self.shards.directory
        # Equally many blocks per thread, each of anchors and of columns, since anchors need more iterations.
        total, threads = anchors.size + self.q, cluster.threads()
        count = min(total, -(-total // (COLUMNS * threads)) * threads)
        ends = [np.round(np.linspace(0, size, count + 1)).astype(int).tolist() for size in (anchors.size, self.q)]
        blocks = [(slice(*first), slice(*second)) for first, second in zip(*map(pairwise, ends), strict=True)]
        workers = cluster.assign_workers(count)
        # Each worker joins it itself, rather than wait for another worker.
        systems = {
            worker: cluster.submit("system", join_pieces, self.pieces, settings, self.shards.frame.dtype, worker=worker)
            for worker in set(workers)
        }
        cuts = directory.first_places[1:-1]
        solved = [
            cluster.submit("solve", solve_block, systems[worker], anchors[a], p, settings, cuts, worker=worker)
            for (a, p), worker in zip(blocks, workers, strict=True)
        ]
        del systems  # each is released with the last block that needs it
        outcomes = cluster.collect([cluster.submit("outcome", itemgetter(1, 2), block) for block in solved])

        def columns(s: int, number: int) -> Any:
            cut = [cluster.submit("cut", _part_of, block, s, number) for block in solved]
            return cluster.submit("columns", np.hstack, cut)

        Z, MP, H = ([columns(s, number) for s in range(directory.n_shards)] for number in range(3))
        cluster.wait([*Z, *MP, *H])
        return Z, MP, H, max(i for i, _ in outcomes), max(r for _, r in outcomes)


@dataclass(frozen=True)
class WholeSystem(HoldsArrays):
    """The whole system on one worker, and all landmark features."""

    system: JointSystem
    P: np.ndarray


def join_pieces(pieces: Sequence[Piece], settings: Settings, dtype: str) -> WholeSystem:
    """Join all parts of the system."""
    factor = scipy.sparse.vstack([piece.factor for piece in pieces], format="coo")
    members, weights, P, codes = (
        np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("members", "weights", "P", "codes")
    )
    triplets = factor.row, factor.col, factor.data
    return WholeSystem(JointSystem.build(triplets, members, weights, codes, settings, ONE, dtype), P)


def solve_block(
    whole: WholeSystem, anchors: np.ndarray, columns: slice, settings: Settings, cuts: np.ndarray
) -> tuple[list[tuple[np.ndarray, np.ndarray, np.ndarray]], int, float]:
    """``B^-1 E_A``, ``eta M P`` and H for some anchors and some columns of P, cut into shards; iterations; residual."""
    *blocks, iterations, residual = whole.system.solve_columns(anchors, whole.P[:, columns], settings)
    by_shard = zip(*(np.split(block, cuts) for block in blocks), strict=True)
    return list(by_shard), iterations, residual


def _part_of(solved: tuple[Any, int, float], s: int, number: int) -> Any:
    return solved[0][s][number]
