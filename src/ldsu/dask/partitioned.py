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
from sklearn.utils import gen_batches

from ldsu._utils.arrays import ONE
from ldsu._utils.memory import GIB, require_memory
from ldsu.dask.allocation import FILLED_SHARE, give_back_freed_memory
from ldsu.dask.cluster import Cluster, even_parts
from ldsu.dask.gang import Peers, together
from ldsu.dask.pieces import Piece, outcome
from ldsu.dask.recomputed import fingerprint, require_same
from ldsu.dask.shards import Shards
from ldsu.dask.sizes import HoldsArrays, bytes_held
from ldsu.solvers import Settings, coarse_inverse_of, columns_of, conjugate_gradients

# A solve takes memory for the process with its libraries, for the system, and for so many arrays of a row for each
# sample, and for each sample beyond the border: those of conjugate gradients, of a product and of what is given;
# letters that come, and those that go.
PROCESS_BYTES, ARRAYS_OF_A_SOLVE, ARRAYS_AT_THE_BORDER = GIB // 2, 6, 5
# Columns at a time are a multiple of this, with which the processor's registers are full.
COLUMNS_TOGETHER = 4
FEWEST_COLUMNS, MOST_COLUMNS = 4, 40
# Of a worker's memory a part of the system takes this share at most, and so do the pieces that it is made of.
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
    def of(cls, A: Any, m: int, scale: np.ndarray) -> SomeRows:
        """Cut so, with columns multiplied by a scale (m + h,)."""
        own, far = A[:, :m], A[:, m:]
        own.data *= scale[own.indices]
        far.data *= scale[m + far.indices]
        which = np.flatnonzero(np.diff(far.indptr))
        return cls(own, which, far[which])

    def times(self, V: np.ndarray, V_far: np.ndarray) -> np.ndarray:
        """The product with V (m x b) above V_far (h x b)."""
        product: np.ndarray = self.own @ V
        if self.which.size:
            product[self.which] += self.far @ V_far
        return product

    def transposed_times(self, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The product of the transpose with U (k x b): rows of own samples (m x b), and of those beyond (h x b).

        By columns, without a transpose by rows: where samples that are near lie near each other in memory, adding to
        their places is faster than to look for what they are made of.
        """
        return self.own.T @ U, self.far.T @ U[self.which]


@dataclass(frozen=True)
class Part(HoldsArrays):
    """Samples of one part (m) and those beyond its border (h), and the system between them.

    Attributes
    ----------
    G, L : sparse arrays of shape (m, m + h), (m + h, m + h)
        Rows of the factor, and ``eta lam`` times the Laplacian of its cliques. `scaled` multiplies the columns of G by
        D^-1/2, and L from both sides, and makes `SomeRows` of them: one of G, and a list for the own rows of L.
    L_beyond : SomeRows
        Its other rows, of samples beyond the border.
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
    L_beyond: Any = None
    groups: Any = None
    takes: Sequence[tuple[int, slice]] = ()
    lends: Sequence[tuple[int, np.ndarray]] = ()

    @property
    def dtype(self) -> Any:
        """Precision of the work."""
        return self.scale.dtype

    @property
    def beyond(self) -> int:
        """Samples beyond the border (h)."""
        return self.takes[-1][1].stop if self.takes else 0


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
    starts = np.cumsum(np.concatenate([[0], *(np.diff(piece.factor.indptr) for piece in pieces)]))
    index = np.int32 if max(int(starts[-1]), size) <= np.iinfo(np.int32).max else np.int64
    values, columns = np.empty(starts[-1], dtype), np.empty(starts[-1], index)
    L, diagonal, filled = scipy.sparse.csr_array((size, size), dtype=dtype), np.zeros(size), 0
    for piece in pieces:
        here = slice(filled, filled + piece.factor.nnz)
        values[here], columns[here] = piece.factor.data, numbered(piece.factor.indices)
        diagonal += np.bincount(columns[here], weights=values[here].astype(np.float64) ** 2, minlength=size)
        filled = here.stop
        members, k = numbered(piece.members), piece.members.shape[1]
        weights = (piece.weights * (settings.strength * settings.lam)).astype(dtype)
        rows, others = np.repeat(members, k, axis=1), np.tile(members, (1, k))
        L = L + ONE.sparse(rows.ravel(), others.ravel(), weights.ravel(), (size, size))
    G = scipy.sparse.csr_array((values, columns, starts.astype(index)), shape=(m, size))
    G.sort_indices()
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
    before: int,
) -> tuple[Part, np.ndarray, np.ndarray]:
    """A part with its system scaled, its share of the system between groups (p, p), and its groups' classes (c, p).

    Other parts lend it the values at its border, which must be the one of which `before` is the fingerprint.
    """
    give_back_freed_memory()
    part, border, _ = made
    require_same(border.rows, before)
    every = np.concatenate([scale, *beyond])
    m, size = part.G.shape
    group = np.concatenate([part.near, *near])
    one_each = scipy.sparse.csr_array((np.ones_like(every), group, np.arange(size + 1)), shape=(size, part.n_groups))
    # Scales cancel: it is the scaled system from both sides times the groups' columns, which are ``D^1/2 one_each``.
    E = np.zeros((part.n_groups, part.n_groups))
    L_rows = []
    for rows in gen_batches(m, ROWS_AT_A_TIME):
        GC = (part.G[rows] @ one_each).astype(np.float64)
        E += (GC.T @ GC).toarray()
    for rows in [*gen_batches(m, ROWS_AT_A_TIME), slice(m, size)]:
        L = part.L[rows]
        E += (one_each[rows].T @ (L @ one_each)).toarray()
        L.data *= np.repeat(every[rows], np.diff(L.indptr))
        L_rows.append(SomeRows.of(L, m, every))
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
        G=SomeRows.of(part.G, m, every),
        L=L_rows[:-1],
        L_beyond=L_rows[-1],
        scale=scale,
        groups=scipy.sparse.diags_array(1 / scale, format="csr") @ one_each[:m],
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

    def multiply(self, V: np.ndarray, whole: bool) -> np.ndarray:
        """The system, or its graphs alone, times V (m x b)."""
        part, peers = self.part, self.peers
        for b, rows in part.lends:
            peers.send(b, "border", V[rows])
        V_far = np.empty((part.beyond, V.shape[1]), part.dtype)
        for b, beyond in part.takes:
            V_far[beyond] = peers.receive(b, "border")
        if whole:
            Y, Y_far = part.G.transposed_times(part.G.times(V, V_far))
        else:
            Y, Y_far = np.zeros_like(V), np.zeros_like(V_far)
        Y_far += part.L_beyond.times(V, V_far)
        for b, beyond in part.takes:
            peers.send(b, "back", Y_far[beyond])
        for rows, L in zip(gen_batches(V.shape[0], ROWS_AT_A_TIME), part.L, strict=True):
            Y[rows] += L.times(V, V_far)
        scale = part.scale[part.labelled, None]
        U = V[part.labelled] * scale
        classes = np.zeros((part.n_classes, V.shape[1]))
        np.add.at(classes, part.codes, U)
        sums = peers.total(classes)[part.codes].astype(part.dtype)
        Y[part.labelled] += scale * (part.counts[:, None] * U - part.dtype.type(part.strength) * sums)
        for b, rows in part.lends:
            Y[rows] += peers.receive(b, "back")
        return Y

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

    def right_hand_sides() -> np.ndarray:
        B = np.zeros((part.scale.size, width + V.shape[1]), dtype=part.dtype)
        B[rows, columns] = part.scale[rows]
        if V.shape[1]:
            B[:, width:] = system.multiply(V, whole=False)
        return B

    # Made again when they are needed: for one array less there is room for more columns at a time.
    X, iterations, residual = conjugate_gradients(
        system.apply, system.precondition, right_hand_sides, settings.tol, settings.max_iter, np, system.inner_products
    )
    # In place, for the same reason.
    MP, H = right_hand_sides()[:, width:], X[:, width:]
    MP /= scale
    np.subtract(V, H, out=H)
    X *= scale
    return (X[:, :width], MP, H), iterations, residual


def unscaled_columns(part: Part, pieces: Sequence[np.ndarray], columns: slice) -> np.ndarray:
    """``D^1/2 P`` for some columns of the landmark features of a part's shards."""
    return np.concatenate([P[:, columns] for P in pieces]) / part.scale[:, None]


def rows_between(solved: tuple[Sequence[np.ndarray], int, float], number: int, start: int, stop: int) -> np.ndarray:
    """Rows of one of the arrays that were solved for, a copy: all of them would stay in memory with a few of them."""
    return solved[0][number][start:stop].copy()


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
    """Parts of the shards' pieces that belong together, their borders and scales; the lists of pieces are emptied."""
    submit, every = cluster.submit, range(len(pieces))
    where = cluster.places(len(pieces))
    part_bytes = int(np.diff(firsts).max()) * row_bytes(settings, dtype)
    cluster.make_room(PROCESS_BYTES + part_bytes)
    made = [
        submit("part", make_part, pieces[a], firsts, a, sizes, settings, dtype, n_groups, place=where[a]) for a in every
    ]
    borders = [submit("border", border_of, one) for one in made]
    # Of each part, those from which it takes values, and those to which it lends.
    found = cluster.collect(borders)
    takes = [[b for b in every if border.rows[b].size] for border in found]
    before = [fingerprint(border.rows) for border in found]
    del found
    lends = [[b for b in every if a in takes[b]] for a in every]
    scales, done = [], []
    for a in every:
        given = [submit("back", diagonal_beyond, made[b], a) for b in lends[a]]
        scales.append(submit("scale", scale_of, made[a], given))
    near = [submit("near", near_of, one) for one in made]
    cluster.wait([*scales, *near])
    for some in pieces:
        some.clear()  # nobody needs them any more
    cluster.make_room(PROCESS_BYTES + part_bytes)
    for a in every:
        beyond = [[submit("border", rows_for, values[b], borders[a], b) for b in takes[a]] for values in (scales, near)]
        lent = [submit("border", border_with, borders[b], b, a) for b in lends[a]]
        done.append(submit("scaled", scaled, made[a], scales[a], *beyond, lent, before[a], place=where[a]))
    del made  # each may be forgotten as soon as it is scaled
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
    pieces_of_parts = [[pieces[s] for s in some] for some in by_part]
    pieces.clear()
    system = build(pieces_of_parts, firsts, sizes, n_groups, settings, dtype, cluster)
    extents = np.array(cluster.collect([submit("size", extent, part) for part in system.parts]))
    held, rows, beyond, at_border = (extents.max(axis=0) * -(-count // threads)).tolist()
    column = column_bytes(rows, beyond, at_border, dtype)
    width = columns_at_a_time(anchors.size + q, column, rows, held, cluster)
    blocks_of: list[list[list[Any]]] = [[[] for _ in range(S)] for _ in range(3)]
    outcomes = []
    owner = np.searchsorted(firsts, anchors, side="right") - 1
    for block in gen_batches(anchors.size + q, width):
        first, second = columns_of(block, anchors.size)
        inputs, constants = [], []
        for a, (part, some) in enumerate(zip(system.parts, by_part, strict=True)):
            V = submit("columns", unscaled_columns, part, [P[s] for s in some], second)
            inputs.append([part, system.inverse, V])
            which = np.flatnonzero(owner[first] == a)
            constants.append((anchors[first][which] - firsts[a], which, first.stop - first.start, settings))
        cluster.wait([V for *_, V in inputs])
        given = rows * np.dtype(dtype).itemsize  # is there already
        cluster.make_room(PROCESS_BYTES + width * (column - given))
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


def columns_at_a_time(total: int, column: int, rows: int, held: int, cluster: Cluster) -> int:
    """Right-hand sides, of so many in all, that are solved together, the last block smaller than others.

    Parameters
    ----------
    column : int
        Bytes that each of them takes.
    rows, held : int
        Rows of a thread, and bytes of its parts of the system.
    """
    memory = cluster.memory()
    held += PROCESS_BYTES
    require_memory(
        held + FEWEST_COLUMNS * column,
        f"To solve for {rows:,} rows a thread of a worker",
        "Give workers more memory, or the cluster more of them.",
        memory,
    )
    most = int(np.clip((FILLED_SHARE * memory - held) // column, FEWEST_COLUMNS, MOST_COLUMNS))
    most -= most % COLUMNS_TOGETHER
    even = -(-total // -(-total // most))
    return -(-even // COLUMNS_TOGETHER) * COLUMNS_TOGETHER


def column_bytes(rows: int, beyond: int, at_border: int, dtype: str) -> int:
    """Bytes that a right-hand side takes while it is solved for, with so many rows, as `extent` has them."""
    return (ARRAYS_OF_A_SOLVE * rows + ARRAYS_AT_THE_BORDER * beyond + at_border) * np.dtype(dtype).itemsize


def extent(part: Part) -> tuple[int, int, int, int]:
    """Bytes of a part, its samples, those beyond its border, and those whose rows of the factor reach beyond it."""
    return bytes_held(part), part.scale.size, part.beyond, part.G.which.size


def row_bytes(settings: Settings, dtype: str) -> int:
    """Bytes that a row of a part takes: its entries of G, of G once more, and of L, each with its column."""
    entries = 2 * (settings.n_conditioning + 1) + settings.clique_size**2
    return entries * (np.dtype(dtype).itemsize + 4)
