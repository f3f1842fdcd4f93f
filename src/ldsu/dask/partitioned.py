"""The sparse system in parts that stay where they are, for systems too large for one worker.

Each part has the rows of the factor and the cliques of its samples: ``A = sum_a S_a A_a S_a^T``, where ``A_a`` acts on
the samples of part a and on those beyond its border that they have for neighbours. A product takes the values at the
border from the other parts, and gives back what it adds to them. The parts are made by tasks, and solved by gangs: one
long task for each part runs the conjugate gradients of one machine on its own rows, with products and sums over all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils import gen_batches, gen_even_slices

from ldsu.arrays import ONE
from ldsu.conjugate import conjugate_gradients
from ldsu.dask.allocation import give_back_freed_memory
from ldsu.dask.cluster import Cluster, even_parts
from ldsu.dask.gang import Peers, places, together
from ldsu.dask.pieces import Piece, outcome
from ldsu.dask.shards import Shards
from ldsu.dask.sizes import HoldsArrays, bytes_held
from ldsu.memory import GIB, require_memory
from ldsu.solvers import Settings
from ldsu.solvers.sparse import coarse_inverse_of, columns_of

# Of a worker's memory a solve takes this share at most: for the process with its libraries, for the system, and for
# arrays of a column for each sample, so many at a time; letters on their way count as one.
SOLVE_SHARE, PROCESS_BYTES, ARRAYS_OF_A_SOLVE = 0.65, GIB // 2, 9
FEWEST_COLUMNS, MOST_COLUMNS = 4, 40
# Of a worker's memory a part of the system takes this share at most; to make it takes twice that.
PART_SHARE = 0.3
# Rows that are multiplied at a time: few enough for small temporary arrays, and not so few that threads would mostly
# wait for each other between two of them.
ROWS_AT_A_TIME = 100_000


class SomeRows(NamedTuple):
    """Rows of a sparse array (k x (m + h)): columns of own samples, and those of samples beyond the border."""

    own: Any  # (k, m)
    which: np.ndarray  # (f,): rows that have any of these
    far: Any  # (f, h)

    @classmethod
    def of(cls, A: Any, m: int) -> SomeRows:
        """Cut so."""
        far = A[:, m:]
        which = np.flatnonzero(np.diff(far.indptr))
        return cls(A[:, :m], which, far[which])

    def times(self, V: np.ndarray, V_far: np.ndarray) -> np.ndarray:
        """The product with V (m x b) above V_far (h x b)."""
        product: np.ndarray = self.own @ V
        if self.which.size:
            product[self.which] += self.far @ V_far
        return product

    def add_transposed_times(self, U: np.ndarray, out: np.ndarray) -> None:
        """Add the product of the transpose with U (k x b) to an array (m + h, b).

        By columns, without a transpose by rows: where samples that are near lie near each other in memory, adding to
        their places is faster than to look for what they are made of.
        """
        m = self.own.shape[1]
        out[:m] += self.own.T @ U
        if self.which.size:
            out[m:] += self.far.T @ U[self.which]


@dataclass(frozen=True)
class Part(HoldsArrays):
    """Samples of one part (m) and those beyond its border (h), and the system between them.

    Attributes
    ----------
    G, L : sparse arrays of shape (m, m + h), (m + h, m + h)
        Rows of the factor, and ``eta lam`` times the Laplacian of its cliques. `scaled` multiplies the columns of G by
        D^-1/2, and L from both sides, and makes `SomeRows` of them: one of G, a list of L.
    labelled, codes : ndarrays of shape (l,)
        Labelled samples, and their classes.
    counts : ndarray of shape (l,)
        eta times the size of the class.
    strength : float
        eta.
    groups : sparse array of shape (m, p)
        ``D^1/2`` times the indicator of the samples that share their nearest landmark.
    near : ndarray of shape (m,)
        Nearest landmarks.
    takes : list of (int, slice)
        Other parts, and which of the h samples beyond the border are theirs.
    lends : list of (int, ndarray)
        Other parts, and which of the m samples they have beyond their border.
    scale : ndarray of shape (m,)
        ``D^-1/2``, ones at first.
    n_classes, n_groups : int
    """

    G: Any
    L: Any
    labelled: np.ndarray
    codes: np.ndarray
    counts: np.ndarray
    strength: float
    near: np.ndarray
    scale: np.ndarray
    n_classes: int
    n_groups: int
    groups: Any = None
    takes: Sequence[tuple[int, slice]] = ()
    lends: Sequence[tuple[int, np.ndarray]] = ()

    @property
    def dtype(self) -> Any:
        """Precision of the work."""
        return self.scale.dtype


class Border(NamedTuple):
    """What a part takes from each of the others: rows of theirs."""

    rows: list[np.ndarray]


def make_part(
    pieces: Sequence[Piece], firsts: np.ndarray, a: int, sizes: np.ndarray, settings: Settings, dtype: str, p: int
) -> tuple[Part, Border, np.ndarray]:
    """Part number a of the parts that start at `firsts`, its border, and its share of the diagonal (m + h,)."""
    give_back_freed_memory()  # of the tasks before: this one needs much
    first, m = int(firsts[a]), int(firsts[a + 1] - firsts[a])
    near, codes = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("groups", "codes"))

    def outside(places: np.ndarray) -> np.ndarray:
        return np.unique(places[(places < first) | (places >= first + m)])

    beyond = np.unique(np.concatenate([outside(some) for one in pieces for some in (one.factor.indices, one.members)]))
    size = m + beyond.size

    def numbered(places: np.ndarray) -> np.ndarray:
        inside = (places >= first) & (places < first + m)
        return np.where(inside, places - first, m + np.searchsorted(beyond, places)).astype(np.int32)

    # Piece by piece: triplets of cliques take several times what they add up to.
    factors, L, diagonal = [], scipy.sparse.csr_array((size, size), dtype=dtype), np.zeros(size)
    for piece in pieces:
        values, columns = piece.factor.data, numbered(piece.factor.indices)
        starts = piece.factor.indptr.astype(np.int32)
        factors.append(scipy.sparse.csr_array((values, columns, starts), shape=(starts.size - 1, size)))
        diagonal += np.bincount(columns, weights=values.astype(np.float64) ** 2, minlength=size)
        members, k = numbered(piece.members), piece.members.shape[1]
        weights = (piece.weights * (settings.strength * settings.lam)).astype(dtype)
        rows, others = np.repeat(members, k, axis=1), np.tile(members, (1, k))
        L = L + ONE.sparse(rows.ravel(), others.ravel(), weights.ravel(), (size, size))
    G = scipy.sparse.vstack(factors, format="csr")
    diagonal += L.diagonal()
    labelled = np.flatnonzero(codes >= 0)
    counts = settings.strength * sizes[codes[labelled]]
    diagonal[labelled] += counts - settings.strength
    cuts = np.searchsorted(beyond, firsts)
    border = Border([beyond[cuts[b] : cuts[b + 1]] - firsts[b] for b in range(firsts.size - 1)])
    part = Part(
        G, L, labelled, codes[labelled], counts.astype(dtype), settings.strength, near, np.ones(m, dtype), sizes.size, p
    )
    return part, border, diagonal


def without_features(piece: Piece) -> Piece:
    """A piece that is smaller to send."""
    return replace(piece, P=np.empty((0, piece.P.shape[1]), piece.P.dtype))


def scale_of(made: tuple[Part, Border, np.ndarray], given: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """``D^-1/2`` of a part's own samples, with what other parts add to the diagonal."""
    part, _, diagonal = made
    own = diagonal[: part.G.shape[0]].copy()
    for rows, values in given:
        own[rows] += values
    return (1 / np.sqrt(own)).astype(part.dtype)


def border_of(made: tuple[Part, Border, np.ndarray]) -> Border:
    """The border of a part."""
    return made[1]


def border_with(border: Border, number: int, b: int) -> tuple[int, np.ndarray]:
    """Its number, and which rows of part b a part has beyond its border."""
    return number, border.rows[b]


def diagonal_beyond(made: tuple[Part, Border, np.ndarray], b: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of part b, and what this part adds to their diagonal."""
    part, border, diagonal = made
    start = part.G.shape[0] + sum(rows.size for rows in border.rows[:b])
    return border.rows[b], diagonal[start : start + border.rows[b].size]


def scaled(
    made: tuple[Part, Border, np.ndarray],
    scale: np.ndarray,
    beyond: Sequence[np.ndarray],
    near: Sequence[np.ndarray],
    lends: Sequence[tuple[int, np.ndarray]],
) -> tuple[Part, np.ndarray, np.ndarray]:
    """A part with its system scaled, its share of the system between groups (p, p), and its groups' classes (c, p)."""
    give_back_freed_memory()
    part, border, _ = made
    every = np.concatenate([scale, *beyond])
    m, size = part.G.shape
    group = np.concatenate([part.near, *near])
    C = scipy.sparse.csr_array((1 / every, group, np.arange(size + 1)), shape=(size, part.n_groups))
    E = np.zeros((part.n_groups, part.n_groups))
    G, L_rows = part.G.copy(), []
    G.sort_indices()
    G.data *= every[G.indices]
    for rows in gen_batches(m, ROWS_AT_A_TIME):
        GC = (G[rows] @ C).astype(np.float64)
        E += (GC.T @ GC).toarray()
    for rows in gen_batches(size, ROWS_AT_A_TIME):
        L = part.L[rows]
        L.data *= every[L.indices]
        L.data *= np.repeat(every[rows], np.diff(L.indptr))
        E += (C[rows].T @ (L @ C)).toarray()
        L_rows.append(SomeRows.of(L, m))
    own = part.near[part.labelled]
    E[np.arange(part.n_groups), np.arange(part.n_groups)] += np.bincount(
        own, weights=part.counts.astype(np.float64), minlength=part.n_groups
    )
    classes = np.zeros((part.n_classes, part.n_groups))
    np.add.at(classes, (part.codes, own), 1.0)
    ends = np.cumsum([0, *(rows.size for rows in border.rows)]).tolist()
    takes = [(b, slice(*ends)) for b, ends in enumerate(pairwise(ends)) if ends[1] > ends[0]]
    done = replace(
        part,
        G=SomeRows.of(G, m),
        L=L_rows,
        scale=scale,
        groups=C[:m],
        takes=takes,
        lends=lends,
    )
    return done, E, classes


def coarse(shares: Sequence[tuple[np.ndarray, np.ndarray]], strength: float, dtype: str) -> np.ndarray:
    """Inverse of the system between groups (p, p) from the parts' shares."""
    E, classes = (np.sum(some, axis=0) for some in zip(*shares, strict=True))
    return np.asarray(coarse_inverse_of(E - strength * (classes.T @ classes), dtype, ONE))


def share_of(done: tuple[Part, np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What a part adds to the system between groups."""
    return done[1], done[2]


def part_of(done: tuple[Part, np.ndarray, np.ndarray]) -> Part:
    """The part alone."""
    return done[0]


def near_of(made: tuple[Part, Border, np.ndarray]) -> np.ndarray:
    """Nearest landmarks of a part's samples."""
    return made[0].near


def rows_for(values: np.ndarray, border: Border, b: int) -> np.ndarray:
    """Values of part b that another part has at its border."""
    return values[border.rows[b]]


class PartsTogether:
    """One part among its peers: ``D^-1/2 B D^-1/2``, its rows of products with it, and sums over all.

    Arrays have the part's own rows.
    """

    def __init__(self, part: Part, inverse: np.ndarray, peers: Peers) -> None:
        self.part, self.inverse, self.peers = part, inverse, peers
        self._space: dict[str, np.ndarray] = {}

    def _array(self, name: str, *shape: int) -> np.ndarray:
        """The same memory again and again: to get so much of it anew takes as long as to fill it."""
        entries = int(np.prod(shape))
        if name not in self._space or self._space[name].size < entries:
            self._space[name] = np.empty(entries, self.part.dtype)
        return self._space[name][:entries].reshape(shape)

    def multiply(self, V: np.ndarray, whole: bool) -> np.ndarray:
        """The system, or its graphs alone, times V (m x b); the next product takes the place of this one."""
        part, peers = self.part, self.peers
        m, width, h = *V.shape, part.takes[-1][1].stop if part.takes else 0
        for b, rows in part.lends:
            peers.send(b, "border", V[rows])
        V_far, Y = self._array("V_far", h, width), self._array("Y", m + h, width)
        for b, beyond in part.takes:
            V_far[beyond] = peers.receive(b, "border")
        for rows, L in zip(gen_batches(m + h, ROWS_AT_A_TIME), part.L, strict=True):
            Y[rows] = L.times(V, V_far)
        if whole:
            part.G.add_transposed_times(part.G.times(V, V_far), Y)
        for b, beyond in part.takes:
            peers.send(b, "back", Y[m:][beyond])
        scale = part.scale[part.labelled, None]
        U = V[part.labelled] * scale
        classes = np.zeros((part.n_classes, V.shape[1]))
        np.add.at(classes, part.codes, U)
        sums = peers.total(classes)[part.codes].astype(part.dtype)
        Y[part.labelled] += scale * (part.counts[:, None] * U - part.dtype.type(part.strength) * sums)
        for b, rows in part.lends:
            Y[rows] += peers.receive(b, "back")
        return Y[:m]

    def apply(self, V: np.ndarray) -> np.ndarray:
        """The system times V."""
        return self.multiply(V, whole=True)

    def precondition(self, R: np.ndarray) -> np.ndarray:
        """What the scaled diagonal cannot see, a correction of whole groups, added to the residual."""
        by_groups = self.peers.total(np.asarray(self.part.groups.T @ R, dtype=np.float64))
        correction: np.ndarray = self.part.groups @ (self.inverse @ by_groups).astype(R.dtype)
        correction += R
        return correction

    def inner_products(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """Of each column of A with that of B, over the rows of all parts."""
        own = np.zeros(A.shape[1])
        for rows in gen_batches(A.shape[0], ROWS_AT_A_TIME):  # few enough for single precision
            own += np.einsum("ij,ij->j", A[rows], B[rows])
        return self.peers.total(own).astype(A.dtype)


def solve_rows(
    peers: Peers,
    part: Part,
    inverse: np.ndarray,
    V: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    width: int,
    settings: Settings,
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], int, float]:
    """A part's rows of ``B^-1 E_A``, of ``eta M P`` and of ``H = P - B^-1 eta M P``; iterations; residual.

    Parameters
    ----------
    peers : Peers
        The other parts.
    V : ndarray of shape (m, b)
        ``D^1/2 P`` for some columns of P.
    rows, columns : ndarrays of int
        Which of the part's rows are anchors, and which of the columns of E_A have their ones there.
    width : int
        Columns of E_A.
    """
    give_back_freed_memory()  # of the tasks before: this one is long, and needs all there is
    system, scale = PartsTogether(part, inverse, peers), part.scale[:, None]
    B = np.zeros((part.scale.size, width + V.shape[1]), dtype=part.dtype)
    B[rows, columns] = part.scale[rows]
    if V.shape[1]:
        B[:, width:] = system.multiply(V, whole=False)
    X, iterations, residual = conjugate_gradients(
        system.apply, system.precondition, B, settings.tol, settings.max_iter, np, system.inner_products
    )
    solved = scale * X[:, :width], B[:, width:] / scale, scale * (V - X[:, width:])
    return solved, iterations, residual


def unscaled_columns(part: Part, pieces: Sequence[np.ndarray], columns: slice) -> np.ndarray:
    """``D^1/2 P`` for some columns of the landmark features of a part's shards."""
    return np.concatenate([P[:, columns] for P in pieces]) / part.scale[:, None]


def rows_between(solved: tuple[Sequence[np.ndarray], int, float], number: int, start: int, stop: int) -> np.ndarray:
    """Rows of one of the arrays that were solved for."""
    return solved[0][number][start:stop]


@dataclass(frozen=True)
class PartitionedSystem:
    """The parts on the cluster (futures), and the inverse of the system between groups."""

    parts: list[Any]
    inverse: Any


def build(
    pieces: list[list[Any]],
    firsts: np.ndarray,
    sizes: np.ndarray,
    n_groups: int,
    settings: Settings,
    dtype: str,
    cluster: Cluster,
) -> PartitionedSystem:
    """Parts of the shards' pieces that belong together, their borders and scales."""
    submit, every = cluster.submit, range(len(pieces))
    where = places(cluster.client, len(pieces))
    made = [
        submit("part", make_part, pieces[a], firsts, a, sizes, settings, dtype, n_groups, place=where[a]) for a in every
    ]
    borders = [submit("border", border_of, one) for one in made]
    # Of each part, those from which it takes values, and those to which it lends.
    takes = [[b for b in every if border.rows[b].size] for border in cluster.collect(borders)]
    lends = [[b for b in every if a in takes[b]] for a in every]
    scales, done = [], []
    for a in every:
        given = [submit("back", diagonal_beyond, made[b], a) for b in lends[a]]
        scales.append(submit("scale", scale_of, made[a], given))
    near = [submit("near", near_of, one) for one in made]
    for a in every:
        beyond = [[submit("border", rows_for, values[b], borders[a], b) for b in takes[a]] for values in (scales, near)]
        lent = [submit("border", border_with, borders[b], b, a) for b in lends[a]]
        done.append(submit("scaled", scaled, made[a], scales[a], *beyond, lent, place=where[a]))
    inverse = submit("coarse", coarse, [submit("share", share_of, one) for one in done], settings.strength, dtype)
    parts = [submit("part", part_of, one) for one in done]
    cluster.wait([inverse, *parts])
    return PartitionedSystem(parts, inverse)


def solve(
    pieces: list[Any],
    P: list[Any],
    anchors: np.ndarray,
    q: int,
    sizes: np.ndarray,
    n_groups: int,
    settings: Settings,
    dtype: str,
    shards: Shards,
    cluster: Cluster,
) -> tuple[list[Any], list[Any], list[Any], int, float]:
    """``B^-1 E_A``, ``eta M P`` and H by shards, iterations and residual, with the system in parts.

    Parameters
    ----------
    pieces, P : lists of Future
        Of each shard.
    anchors : ndarray of int
        Places.
    q : int
        Columns of P.
    sizes : ndarray of shape (c,)
        Labelled samples of each class.
    n_groups : int
        Landmarks there are.
    """
    submit = cluster.submit
    pieces[:] = [submit("piece", without_features, one) for one in pieces]
    cluster.wait(pieces)
    places_of = shards.directory.first_places
    n, S = int(places_of[-1]), places_of.size - 1
    threads = cluster.threads()
    most = int(PART_SHARE * cluster.memory()) // row_bytes(settings, dtype)
    count = min(S, -(-even_parts(n, most, threads) // threads) * threads)  # as many for each thread
    cuts = np.round(np.linspace(0, S, count + 1)).astype(int)
    firsts = places_of[cuts]
    by_part = [range(a, b) for a, b in pairwise(cuts.tolist())]
    system = build([[pieces[s] for s in some] for some in by_part], firsts, sizes, n_groups, settings, dtype, cluster)
    pieces.clear()
    sizes_held = cluster.collect([submit("size", bytes_held, part) for part in system.parts])
    each = -(-count // threads)
    width = columns_at_a_time(int(np.diff(firsts).max()) * each, max(sizes_held) * each, dtype, cluster)
    blocks_of: list[list[list[Any]]] = [[[] for _ in range(S)] for _ in range(3)]
    outcomes = []
    owner = np.searchsorted(firsts, anchors, side="right") - 1
    for block in gen_even_slices(anchors.size + q, -(-(anchors.size + q) // width)):
        first, second = columns_of(block, anchors.size)
        inputs, constants = [], []
        for a, (part, some) in enumerate(zip(system.parts, by_part, strict=True)):
            V = submit("columns", unscaled_columns, part, [P[s] for s in some], second)
            inputs.append([part, system.inverse, V])
            which = np.flatnonzero(owner[first] == a)
            constants.append((anchors[first][which] - firsts[a], which, first.stop - first.start, settings))
        cluster.tell(f"columns {block.start + 1} to {block.stop} of {anchors.size + q}")
        solved = together(cluster, "solve", solve_rows, inputs, constants)
        for some, begin, one in zip(by_part, firsts[:-1], solved, strict=True):
            for s in some:
                between = int(places_of[s] - begin), int(places_of[s + 1] - begin)
                for number, blocks in enumerate(blocks_of):
                    blocks[s].append(submit("rows", rows_between, one, number, *between))
        outcomes += cluster.collect([submit("outcome", outcome, one) for one in solved])
        # All so far: what was lost with a worker is solved again before the next, and not beside it.
        cluster.wait([*chain(*chain(*blocks_of))])
        del inputs, V, solved, one
    joined = [[submit("columns", np.hstack, block) for block in blocks] for blocks in blocks_of]
    for blocks in joined:
        cluster.wait(blocks)
    iterations, residual = (max(some) for some in zip(*outcomes, strict=True))
    return joined[0], joined[1], joined[2], int(iterations), float(residual)


def columns_at_a_time(rows: int, held: int, dtype: str, cluster: Cluster) -> int:
    """Right-hand sides that are solved together, where a thread has so many rows and so many bytes of the system."""
    memory = cluster.memory()
    held += PROCESS_BYTES
    column = rows * np.dtype(dtype).itemsize * ARRAYS_OF_A_SOLVE
    require_memory(
        held + FEWEST_COLUMNS * column,
        f"To solve for {rows:,} rows a thread of a worker",
        "Give workers more memory, or the cluster more of them.",
        memory,
    )
    return int(np.clip((SOLVE_SHARE * memory - held) // column, FEWEST_COLUMNS, MOST_COLUMNS))


def row_bytes(settings: Settings, dtype: str) -> int:
    """Bytes that a row of a part takes: its entries of G, of G once more, and of L, each with its column."""
    entries = 2 * (settings.n_conditioning + 1) + settings.clique_size**2
    return entries * (np.dtype(dtype).itemsize + 4)
