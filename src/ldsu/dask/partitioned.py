"""The sparse system partitioned over workers, for systems too large for one worker.

Each part has the rows of the factor and the cliques of its samples: ``A = sum_a S_a A_a S_a^T``, where ``A_a`` acts on
the samples of part a and on its halo: their neighbors in other parts. A product receives the halo rows from the other
parts, and sends back its contributions to them. Tasks build the parts, and task groups solve them: one long task per
part runs the conjugate gradients of one machine on its rows, with products and sums over all parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils import gen_batches

from ldsu._utils.arrays import ONE
from ldsu._utils.memory import GIB, require_memory
from ldsu._utils.sizes import HoldsArrays, bytes_held
from ldsu.dask.allocation import FILLED_SHARE, trim_freed_memory
from ldsu.dask.cluster import Cluster, even_parts
from ldsu.dask.pieces import Piece
from ldsu.dask.shards import Shards, fingerprint, require_same
from ldsu.dask.task_group import Peers, run_group
from ldsu.solvers import Settings, coarse_inverse_of, columns_of, conjugate_gradients

# Memory of a solve: the process with its libraries, the system, and this many arrays with a row per sample
# (conjugate gradients, products and input) and with a row per halo sample (received and sent messages).
PROCESS_BYTES, SOLVE_ARRAYS, HALO_ARRAYS = GIB // 2, 6, 5
# The number of columns of a solve is a multiple of this, to fill the registers of the processor.
COLUMN_MULTIPLE = 4
MIN_COLUMNS, MAX_COLUMNS = 4, 40
# Maximum share of a worker's memory for a part of the system, and for the pieces it is built from.
PART_SHARE = 0.3
# Rows per block of a product: few enough for small temporary arrays, and enough that threads do not mostly wait for
# each other between blocks.
BLOCK_ROWS = 100_000


class SplitRows(NamedTuple):
    """Rows of a sparse array (k x (m + h)), split into the columns of local samples and those of halo samples."""

    local: Any  # (k, m)
    halo_rows: np.ndarray  # (f,): rows with entries in halo columns
    halo: Any  # (f, h)

    @classmethod
    def split(cls, A: Any, m: int, scale: np.ndarray) -> SplitRows:
        """Split A at column m, with its columns multiplied by `scale` (m + h,)."""
        local, halo = A[:, :m], A[:, m:]
        local.data *= scale[local.indices]
        halo.data *= scale[m + halo.indices]
        halo_rows = np.flatnonzero(np.diff(halo.indptr))
        return cls(local, halo_rows, halo[halo_rows])

    def matmul(self, V: np.ndarray, V_halo: np.ndarray) -> np.ndarray:
        """The product with V (m x b) above V_halo (h x b)."""
        product: np.ndarray = self.local @ V
        if self.halo_rows.size:
            product[self.halo_rows] += self.halo @ V_halo
        return product

    def transposed_matmul(self, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The product of the transpose with U (k x b): local rows (m x b) and halo rows (h x b).

        By columns, without a transposed copy by rows: where close samples are close in memory, scattered additions are
        faster than gathering.
        """
        return self.local.T @ U, self.halo.T @ U[self.halo_rows]


@dataclass(frozen=True)
class Part(HoldsArrays):
    """The system between the samples of one part (m) and its halo samples (h).

    `scaled` multiplies the columns of G by D^-1/2, and L from both sides, and converts them to `SplitRows`: one for G,
    a list for the local rows of L, and one for its halo rows.
    """

    G: Any  # (m, m + h): rows of the factor
    L: Any  # (m + h, m + h): ``eta lam`` times the Laplacian of its cliques
    labelled: np.ndarray  # (l,): labelled samples
    codes: np.ndarray  # (l,): their classes
    counts: np.ndarray  # (l,): eta times the size of their class
    strength: float  # eta
    near: np.ndarray  # (m,): nearest landmarks
    scale: np.ndarray  # (m,): ``D^-1/2``, initially ones
    n_classes: int
    n_groups: int
    L_halo: Any = None
    groups: Any = None  # (m, p): ``D^1/2`` times the indicator of the samples that share their nearest landmark
    recv_from: Sequence[tuple[int, slice]] = ()  # other parts, and which of the h halo samples they own
    send_to: Sequence[tuple[int, np.ndarray]] = ()  # other parts, and which of the m samples are in their halo

    @property
    def dtype(self) -> Any:
        """Working precision."""
        return self.scale.dtype

    @property
    def n_halo(self) -> int:
        """Number of halo samples (h)."""
        return self.recv_from[-1][1].stop if self.recv_from else 0


class Halo(NamedTuple):
    """Halo of a part: its rows in each of the other parts."""

    rows: list[np.ndarray]


def make_part(
    pieces: Sequence[Piece], firsts: np.ndarray, a: int, sizes: np.ndarray, settings: Settings, dtype: str, p: int
) -> tuple[Part, Halo, np.ndarray]:
    """Part a of the parts that start at `firsts`, its halo, and its share of the diagonal (m + h,)."""
    trim_freed_memory()  # of earlier tasks: this task needs much memory
    first, m = int(firsts[a]), int(firsts[a + 1] - firsts[a])
    near, codes = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("groups", "codes"))

    def outside(places: np.ndarray) -> np.ndarray:
        return np.unique(places[(places < first) | (places >= first + m)])

    halo_places = np.unique(
        np.concatenate([outside(some) for piece in pieces for some in (piece.factor.indices, piece.members)])
    )
    size = m + halo_places.size

    def numbered(places: np.ndarray) -> np.ndarray:
        inside = (places >= first) & (places < first + m)
        return np.where(inside, places - first, m + np.searchsorted(halo_places, places)).astype(np.int32)

    # Piece by piece: triplets of cliques take several times the memory of their sum.
    starts = np.cumsum(np.concatenate([[0], *(np.diff(piece.factor.indptr) for piece in pieces)]))
    index = np.int32 if max(int(starts[-1]), size) <= np.iinfo(np.int32).max else np.int64
    values, columns = np.empty(starts[-1], dtype), np.empty(starts[-1], index)
    L, diagonal, filled = scipy.sparse.csr_array((size, size), dtype=dtype), np.zeros(size), 0
    for piece in pieces:
        block = slice(filled, filled + piece.factor.nnz)
        values[block], columns[block] = piece.factor.data, numbered(piece.factor.indices)
        diagonal += np.bincount(columns[block], weights=values[block].astype(np.float64) ** 2, minlength=size)
        filled = block.stop
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
    cuts = np.searchsorted(halo_places, firsts)
    halo = Halo([halo_places[cuts[b] : cuts[b + 1]] - firsts[b] for b in range(firsts.size - 1)])
    part = Part(
        G, L, labelled, codes[labelled], counts.astype(dtype), settings.strength, near, np.ones(m, dtype), sizes.size, p
    )
    return part, halo, diagonal


def without_features(piece: Piece) -> Piece:
    """A piece without landmark features, which is smaller to send."""
    return replace(piece, P=np.empty((0, piece.P.shape[1]), piece.P.dtype))


def scale_of(
    built: tuple[Part, Halo, np.ndarray], received: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """``D^-1/2`` of a part's samples, with the contributions of other parts to the diagonal; and nearest landmarks."""
    part, _, diagonal = built
    total = diagonal[: part.G.shape[0]].copy()
    for rows, values in received:
        total[rows] += values
    return (1 / np.sqrt(total)).astype(part.dtype), part.near


def halo_in(halo: Halo, number: int, b: int) -> tuple[int, np.ndarray]:
    """The number of a part, and the rows of part b in its halo."""
    return number, halo.rows[b]


def halo_diagonal(built: tuple[Part, Halo, np.ndarray], b: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of part b, and the contribution of this part to their diagonal."""
    part, halo, diagonal = built
    start = part.G.shape[0] + sum(rows.size for rows in halo.rows[:b])
    return halo.rows[b], diagonal[start : start + halo.rows[b].size]


def scaled(
    built: tuple[Part, Halo, np.ndarray],
    local: tuple[np.ndarray, np.ndarray],
    in_halo: Sequence[tuple[np.ndarray, np.ndarray]],
    send_to: Sequence[tuple[int, np.ndarray]],
    before: int,
) -> tuple[Part, np.ndarray, np.ndarray]:
    """A part with its system scaled, its share of the system between groups (p, p), and its groups' classes (c, p).

    Scales and nearest landmarks are those of its samples, and of its halo, whose fingerprint must be `before`.
    """
    trim_freed_memory()
    part, halo, _ = built
    require_same(halo.rows, before)
    scales, group = (np.concatenate(values) for values in zip(local, *in_halo, strict=True))
    (m, size), scale = part.G.shape, local[0]
    indicator = scipy.sparse.csr_array((np.ones_like(scales), group, np.arange(size + 1)), shape=(size, part.n_groups))
    # Scales cancel: E is the scaled system times the group columns ``D^1/2 indicator`` from both sides.
    E = np.zeros((part.n_groups, part.n_groups))
    L_rows = []
    for rows in gen_batches(m, BLOCK_ROWS):
        GC = (part.G[rows] @ indicator).astype(np.float64)
        E += (GC.T @ GC).toarray()
    for rows in [*gen_batches(m, BLOCK_ROWS), slice(m, size)]:
        L = part.L[rows]
        E += (indicator[rows].T @ (L @ indicator)).toarray()
        L.data *= np.repeat(scales[rows], np.diff(L.indptr))
        L_rows.append(SplitRows.split(L, m, scales))
    labelled_near = part.near[part.labelled]
    E[np.arange(part.n_groups), np.arange(part.n_groups)] += np.bincount(
        labelled_near, weights=part.counts.astype(np.float64), minlength=part.n_groups
    )
    classes = np.zeros((part.n_classes, part.n_groups))
    np.add.at(classes, (part.codes, labelled_near), 1.0)
    ends = np.cumsum([0, *(rows.size for rows in halo.rows)]).tolist()
    recv_from = [(b, slice(*ends)) for b, ends in enumerate(pairwise(ends)) if ends[1] > ends[0]]
    done = replace(
        part,
        G=SplitRows.split(part.G, m, scales),
        L=L_rows[:-1],
        L_halo=L_rows[-1],
        scale=scale,
        groups=scipy.sparse.diags_array(1 / scale, format="csr") @ indicator[:m],
        recv_from=recv_from,
        send_to=send_to,
    )
    return done, E, classes


def coarse(shares: Sequence[tuple[np.ndarray, np.ndarray]], strength: float, dtype: str) -> np.ndarray:
    """Inverse of the system between groups (p, p) from the parts' shares."""
    E, classes = (np.sum(some, axis=0) for some in zip(*shares, strict=True))
    return np.asarray(coarse_inverse_of(E - strength * (classes.T @ classes), dtype, ONE))


def halo_values(values: tuple[np.ndarray, np.ndarray], halo: Halo, b: int) -> tuple[np.ndarray, ...]:
    """Scales and nearest landmarks of part b in the halo of another part."""
    return tuple(some[halo.rows[b]] for some in values)


class PartOperator:
    """Rows of one part of products with ``D^-1/2 B D^-1/2``, and sums over all parts.

    Arrays have the rows of the part.
    """

    def __init__(self, part: Part, inverse: np.ndarray, peers: Peers) -> None:
        self.part, self.inverse, self.peers = part, inverse, peers

    def multiply(self, V: np.ndarray, whole: bool) -> np.ndarray:
        """The system, or only its graphs, times V (m x b)."""
        part, peers = self.part, self.peers
        halo_rows = [peers.request(b, "halo") for b, _ in part.recv_from]
        for b, rows in part.send_to:
            peers.send(b, "halo", V[rows])
        V_halo = np.empty((part.n_halo, V.shape[1]), part.dtype)
        for (_, halo), received in zip(part.recv_from, halo_rows, strict=True):
            V_halo[halo] = received()
        contributions = [peers.request(b, "back") for b, _ in part.send_to]  # arrive during the products
        if whole:
            Y, Y_halo = part.G.transposed_matmul(part.G.matmul(V, V_halo))
        else:
            Y, Y_halo = np.zeros_like(V), np.zeros_like(V_halo)
        Y_halo += part.L_halo.matmul(V, V_halo)
        for b, halo in part.recv_from:
            peers.send(b, "back", Y_halo[halo])
        for rows, L in zip(gen_batches(V.shape[0], BLOCK_ROWS), part.L, strict=True):
            Y[rows] += L.matmul(V, V_halo)
        scale = part.scale[part.labelled, None]
        U = V[part.labelled] * scale
        classes = np.zeros((part.n_classes, V.shape[1]))
        np.add.at(classes, part.codes, U)
        sums = peers.total(classes)[part.codes].astype(part.dtype)
        Y[part.labelled] += scale * (part.counts[:, None] * U - part.dtype.type(part.strength) * sums)
        for (_, rows), received in zip(part.send_to, contributions, strict=True):
            Y[rows] += received()
        return Y

    def apply(self, V: np.ndarray) -> np.ndarray:
        """The system times V."""
        return self.multiply(V, whole=True)

    def precondition(self, R: np.ndarray) -> np.ndarray:
        """Add a correction of whole groups, which diagonal scaling does not cover, to the residual."""
        by_groups = self.peers.total(np.asarray(self.part.groups.T @ R, dtype=np.float64))
        correction: np.ndarray = self.part.groups @ (self.inverse @ by_groups).astype(R.dtype)
        correction += R
        return correction

    def inner_products(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        """Inner products of the columns of A and B, over the rows of all parts."""
        sums = np.zeros(A.shape[1])
        for rows in gen_batches(A.shape[0], BLOCK_ROWS):  # few enough for single precision
            sums += np.einsum("ij,ij->j", A[rows], B[rows])
        return self.peers.total(sums).astype(A.dtype)


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

    V (m, b) is ``D^1/2 P`` for some columns of P. E_A has `width` columns: those in `columns` are one in these `rows`.
    """
    trim_freed_memory()  # of earlier tasks: this task is long and needs all available memory
    system, scale = PartOperator(part, inverse, peers), part.scale[:, None]

    def right_hand_sides() -> np.ndarray:
        B = np.zeros((part.scale.size, width + V.shape[1]), dtype=part.dtype)
        B[rows, columns] = part.scale[rows]
        if V.shape[1]:
            B[:, width:] = system.multiply(V, whole=False)
        return B

    # Recomputed when needed: one array less leaves memory for more columns at a time.
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
    """A copy of some rows of one of the solved arrays: a view would keep the whole array in memory."""
    return solved[0][number][start:stop].copy()


def build(
    pieces: list[list[Any]],
    firsts: np.ndarray,
    sizes: np.ndarray,
    n_groups: int,
    settings: Settings,
    dtype: str,
    cluster: Cluster,
) -> tuple[list[Any], Any]:
    """Futures of the scaled parts, from the pieces of their shards, and of the inverse of the system between groups.

    The lists of pieces are emptied.
    """
    submit, parts_range = cluster.submit, range(len(pieces))
    workers = cluster.assign_workers(len(pieces))
    part_bytes = int(np.diff(firsts).max()) * row_bytes(settings, dtype)
    cluster.free_memory(PROCESS_BYTES + part_bytes)
    built = [
        submit("part", make_part, pieces[a], firsts, a, sizes, settings, dtype, n_groups, worker=workers[a])
        for a in parts_range
    ]
    halos = [submit("halo", itemgetter(1), part) for part in built]
    # For each part, the parts it receives values from, and those it sends values to.
    collected = cluster.collect(halos)
    recv_from = [[b for b in parts_range if halo.rows[b].size] for halo in collected]
    before = [fingerprint(halo.rows) for halo in collected]
    del collected
    send_to = [[b for b in parts_range if a in recv_from[b]] for a in parts_range]
    scales, done = [], []
    for a in parts_range:
        received = [submit("back", halo_diagonal, built[b], a) for b in send_to[a]]
        scales.append(submit("scale", scale_of, built[a], received))
    cluster.wait(scales)
    for pieces_of_part in pieces:
        pieces_of_part.clear()  # release their memory
    cluster.free_memory(PROCESS_BYTES + part_bytes)
    for a in parts_range:
        in_halo = [submit("halo", halo_values, scales[b], halos[a], b) for b in recv_from[a]]
        sent = [submit("halo", halo_in, halos[b], b, a) for b in send_to[a]]
        done.append(submit("scaled", scaled, built[a], scales[a], in_halo, sent, before[a], worker=workers[a]))
    del built  # each part is released as soon as it is scaled
    inverse = submit(
        "coarse", coarse, [submit("share", itemgetter(1, 2), part) for part in done], settings.strength, dtype
    )
    parts = [submit("part", itemgetter(0), part) for part in done]
    cluster.wait([inverse, *parts])
    return parts, inverse


@dataclass(frozen=True)
class PartitionedSystem:
    """The system of pieces, a future per shard, in parts on the workers; with q columns of landmark features.

    `sizes` (c,) are the numbers of labelled samples per class, `n_groups` is the number of landmarks.
    """

    pieces: list[Any]
    q: int
    shards: Shards
    cluster: Cluster
    sizes: np.ndarray
    n_groups: int

    def solve(
        self, anchors: np.ndarray, P: list[Any], settings: Settings
    ) -> tuple[list[Any], list[Any], list[Any], int, float]:
        """As `JointSystem.solve`, by shards; the pieces are released."""
        cluster, pieces, first_places, q = self.cluster, self.pieces, self.shards.directory.first_places, self.q
        submit, dtype = cluster.submit, self.shards.frame.dtype
        pieces[:] = [submit("piece", without_features, piece) for piece in pieces]
        cluster.wait(pieces)
        n, S = int(first_places[-1]), first_places.size - 1
        threads = cluster.threads()
        max_rows = int(PART_SHARE * cluster.memory()) // row_bytes(settings, dtype)
        count = min(S, -(-even_parts(n, max_rows, threads) // threads) * threads)  # equally many per thread
        cuts = np.round(np.linspace(0, S, count + 1)).astype(int)
        firsts = first_places[cuts]
        shards_of_parts = [range(a, b) for a, b in pairwise(cuts.tolist())]
        pieces_of_parts = [[pieces[s] for s in part_shards] for part_shards in shards_of_parts]
        pieces.clear()
        parts, inverse = build(pieces_of_parts, firsts, self.sizes, self.n_groups, settings, dtype, cluster)
        extents = np.array(cluster.collect([submit("size", extent, part) for part in parts]))
        held, rows, n_halo, n_halo_rows = (extents.max(axis=0) * -(-count // threads)).tolist()
        column = column_bytes(rows, n_halo, n_halo_rows, dtype)
        width = columns_at_a_time(anchors.size + q, column, rows, held, cluster)
        blocks_of: list[list[list[Any]]] = [[[] for _ in range(S)] for _ in range(3)]
        outcomes = []
        owner = np.searchsorted(firsts, anchors, side="right") - 1
        for block in gen_batches(anchors.size + q, width):
            first, second = columns_of(block, anchors.size)
            inputs, constants = [], []
            for a, (part, part_shards) in enumerate(zip(parts, shards_of_parts, strict=True)):
                V = submit("columns", unscaled_columns, part, [P[s] for s in part_shards], second)
                inputs.append([part, inverse, V])
                columns = np.flatnonzero(owner[first] == a)
                constants.append((anchors[first][columns] - firsts[a], columns, first.stop - first.start, settings))
            cluster.wait([V for *_, V in inputs])
            input_bytes = rows * np.dtype(dtype).itemsize  # already in memory
            cluster.free_memory(PROCESS_BYTES + width * (column - input_bytes))
            cluster.show_progress(f"columns {block.start + 1} to {block.stop} of {anchors.size + q}")
            solved = run_group(cluster, "solve", solve_rows, inputs, constants)
            for part_shards, begin, result in zip(shards_of_parts, firsts[:-1], solved, strict=True):
                for s in part_shards:
                    between = int(first_places[s] - begin), int(first_places[s + 1] - begin)
                    for number, blocks in enumerate(blocks_of):
                        blocks[s].append(submit("rows", rows_between, result, number, *between))
            outcomes += cluster.collect([submit("outcome", itemgetter(1, 2), result) for result in solved])
            # Wait for all blocks: results lost with a worker are solved again before the next block, not beside it.
            cluster.wait([*chain(*chain(*blocks_of))])
            del inputs, V, solved, result
        joined = [[submit("columns", np.hstack, block) for block in blocks] for blocks in blocks_of]
        for blocks in joined:
            cluster.wait(blocks)
        iterations, residual = (max(values) for values in zip(*outcomes, strict=True))
        return joined[0], joined[1], joined[2], int(iterations), float(residual)


def columns_at_a_time(total: int, column: int, rows: int, held: int, cluster: Cluster) -> int:
    """Number of right-hand sides, of `total`, that are solved together; the last block may be smaller.

    `column` are the bytes of each, for `rows` rows per thread that holds `held` bytes of the system.
    """
    memory = cluster.memory()
    held += PROCESS_BYTES
    require_memory(
        held + MIN_COLUMNS * column,
        f"Solving for {rows:,} rows per thread of a worker",
        "Give workers more memory, or add workers to the cluster.",
        memory,
    )
    max_columns = int(np.clip((FILLED_SHARE * memory - held) // column, MIN_COLUMNS, MAX_COLUMNS))
    max_columns -= max_columns % COLUMN_MULTIPLE
    even = -(-total // -(-total // max_columns))
    return -(-even // COLUMN_MULTIPLE) * COLUMN_MULTIPLE


def column_bytes(rows: int, n_halo: int, n_halo_rows: int, dtype: str) -> int:
    """Bytes per right-hand side during a solve, for the sizes that `extent` returns."""
    return (SOLVE_ARRAYS * rows + HALO_ARRAYS * n_halo + n_halo_rows) * np.dtype(dtype).itemsize


def extent(part: Part) -> tuple[int, int, int, int]:
    """Bytes of a part, its number of samples, of halo samples, and of rows of the factor with halo entries."""
    return bytes_held(part), part.scale.size, part.n_halo, part.G.halo_rows.size


def row_bytes(settings: Settings, dtype: str) -> int:
    """Bytes per row of a part: its entries of G, of a copy of G, and of L, each with its column index."""
    entries = 2 * (settings.n_conditioning + 1) + settings.clique_size**2
    return entries * (np.dtype(dtype).itemsize + 4)
