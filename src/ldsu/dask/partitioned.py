"""The sparse system in parts that stay where they are, for systems too large for one worker.

Each part has the rows of the factor and the cliques of its samples: ``A = sum_a S_a A_a S_a^T``, where ``A_a`` acts on
the samples of part a and on those beyond its border that they have for neighbours. A product takes the values at the
border from the other parts, and gives back what it adds to them. Conjugate gradients then need two sums over the parts
for each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils import gen_even_slices

from ldsu.arrays import ONE
from ldsu.dask.cluster import Cluster, even_parts
from ldsu.dask.pieces import Piece
from ldsu.dask.shards import Shards
from ldsu.dask.sizes import HoldsArrays
from ldsu.solvers import Settings
from ldsu.solvers.sparse import coarse_inverse_of, columns_of

# Bytes of a part's arrays that conjugate gradients hold at a time, in columns of its samples, and the share of a
# worker's memory that they may take.
ARRAYS_OF_A_SOLVE, SOLVE_SHARE = 10, 0.3
FEWEST_COLUMNS, MOST_COLUMNS = 4, 32
# Iterations that are submitted before the first of them is known not to be the last.
ROUNDS_AHEAD = 2


@dataclass(frozen=True)
class Part(HoldsArrays):
    """Samples of one part (m) and those beyond its border (h), and the system between them.

    Attributes
    ----------
    G, G_T : sparse arrays of shape (m, m + h), (m + h, m)
        Rows of the factor; `scaled` multiplies its columns by D^-1/2, and L from both sides. The transpose is kept
        beside it: products with it by rows take half the time.
    L : sparse array of shape (m + h, m + h)
        ``eta lam`` times the Laplacian of its cliques.
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
    G_T: Any = None

    @property
    def dtype(self) -> Any:
        """Precision of the work."""
        return self.G.dtype


class Border(NamedTuple):
    """What a part takes from each of the others: rows of theirs."""

    rows: list[np.ndarray]


class Product(NamedTuple):
    """A product of one part: at its own samples, and what it adds to those of each other part."""

    own: np.ndarray
    others: list[np.ndarray]
    energy: np.ndarray
    classes: np.ndarray


class State(NamedTuple):
    """Solution, residual and direction of conjugate gradients, each (m x b)."""

    X: np.ndarray
    R: np.ndarray
    D: np.ndarray


class Half(NamedTuple):
    """A state between the two halves of an iteration, with its share of two sums."""

    state: State
    squares: np.ndarray
    coarse: np.ndarray


class Totals(NamedTuple):
    """Sums over all parts, at the end of an iteration."""

    unit: np.ndarray  # (b,): squares of the right-hand sides
    squares: np.ndarray  # (b,): of the residuals
    inner: np.ndarray  # (b,): residual times preconditioned residual
    turn: np.ndarray  # (b,): how much of the direction is kept
    coarse: np.ndarray  # (p, b): correction of the groups
    iterations: int
    going: bool


class Step(NamedTuple):
    """How far each column goes, and what its samples of each class sum up to."""

    length: np.ndarray  # (b,)
    classes: np.ndarray  # (c, b)


def make_part(
    pieces: Sequence[Piece], firsts: np.ndarray, a: int, sizes: np.ndarray, settings: Settings, dtype: str, p: int
) -> tuple[Part, Border, np.ndarray]:
    """Part number a of the parts that start at `firsts`, its border, and its share of the diagonal (m + h,)."""
    first, m = int(firsts[a]), int(firsts[a + 1] - firsts[a])
    members, weights, near, codes = (
        np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("members", "weights", "groups", "codes")
    )
    factor = scipy.sparse.vstack([piece.factor for piece in pieces], format="csr")
    used = np.unique(np.concatenate([np.unique(factor.indices), members.ravel()]))
    beyond = used[(used < first) | (used >= first + m)]

    def numbered(places: np.ndarray) -> np.ndarray:
        inside = (places >= first) & (places < first + m)
        return np.where(inside, places - first, m + np.searchsorted(beyond, places))

    size = m + beyond.size
    columns = numbered(factor.indices)
    G = scipy.sparse.csr_array((factor.data, columns.astype(np.int32), factor.indptr), shape=(m, size))
    members = numbered(members)
    weights = (weights * (settings.strength * settings.lam)).astype(dtype)
    k = members.shape[1]
    rows, others = np.repeat(members, k, axis=1).ravel(), np.tile(members, (1, k)).ravel()
    L = ONE.sparse(rows.astype(np.int32), others.astype(np.int32), weights.ravel(), (size, size))
    diagonal = np.bincount(columns, weights=factor.data.astype(np.float64) ** 2, minlength=size) + L.diagonal()
    labelled = np.flatnonzero(codes >= 0)
    counts = settings.strength * sizes[codes[labelled]]
    diagonal[labelled] += counts - settings.strength
    cuts = np.searchsorted(beyond, firsts)
    border = Border([beyond[cuts[b] : cuts[b + 1]] - firsts[b] for b in range(firsts.size - 1)])
    part = Part(
        G, L, labelled, codes[labelled], counts.astype(dtype), settings.strength, near, np.ones(m, dtype), sizes.size, p
    )
    return part, border, diagonal


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


def diagonal_beyond(made: tuple[Part, Border, np.ndarray], b: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of part b, and what this part adds to their diagonal."""
    part, border, diagonal = made
    start = part.G.shape[0] + sum(rows.size for rows in border.rows[:b])
    return border.rows[b], diagonal[start : start + border.rows[b].size]


def scaled(
    made: tuple[Part, Border, np.ndarray], scale: np.ndarray, beyond: Sequence[np.ndarray], near: Sequence[np.ndarray]
) -> tuple[Part, np.ndarray, np.ndarray]:
    """A part with its system scaled, its share of the system between groups (p, p), and its groups' classes (c, p)."""
    part = made[0]
    every = np.concatenate([scale, *beyond])
    G, L = part.G @ scipy.sparse.diags_array(every), part.L
    L = scipy.sparse.diags_array(every) @ L @ scipy.sparse.diags_array(every)
    m, size = part.G.shape
    group = np.concatenate([part.near, *near])
    C = scipy.sparse.csr_array((1 / every, group, np.arange(size + 1)), shape=(size, part.n_groups))
    GC = (G @ C).astype(np.float64)
    E = (GC.T @ GC + C.T @ (L @ C)).toarray()
    own = part.near[part.labelled]
    E[np.arange(part.n_groups), np.arange(part.n_groups)] += np.bincount(
        own, weights=part.counts.astype(np.float64), minlength=part.n_groups
    )
    classes = np.zeros((part.n_classes, part.n_groups))
    np.add.at(classes, (part.codes, own), 1.0)
    G, L = G.tocsr(), L.tocsr()
    G.sort_indices()
    done = replace(part, G=G, G_T=G.T.tocsr(), L=L, scale=scale, groups=C[:m])
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


def rows_for(values: Any, border: Border, b: int) -> np.ndarray:
    """Values of part b that another part has at its border; of a state, those of its direction."""
    array = values.D if isinstance(values, State) else values
    return array[border.rows[b]]


def multiply(part: Part, values: Any, beyond: Sequence[np.ndarray], whole: bool) -> Product:
    """``A_a`` times values at own samples and beyond the border; without the factor unless `whole`."""
    V_own = values.D if isinstance(values, State) else values
    m = V_own.shape[0]
    V = np.concatenate([V_own, *beyond])
    Y = part.L @ V
    if whole:
        Y += part.G_T @ (part.G @ V)
    energy = np.einsum("ij,ij->j", V, Y, dtype=np.float64)
    U = V_own[part.labelled] * part.scale[part.labelled, None]
    energy += (part.counts[:, None] * U.astype(np.float64) ** 2).sum(axis=0)
    classes = np.zeros((part.n_classes, V.shape[1]))
    np.add.at(classes, part.codes, U)
    cuts = np.cumsum([one.shape[0] for one in beyond])[:-1]
    return Product(Y[:m], np.split(Y[m:], cuts) if len(beyond) else [], energy, classes)


def sums_of(product: Product) -> tuple[np.ndarray, np.ndarray]:
    """A product's share of the energy and of the classes' sums."""
    return product.energy, product.classes


def added_to(product: Product, number: int) -> np.ndarray:
    """What a product adds to one of the other parts."""
    return product.others[number]


def completed(
    part: Part,
    V: np.ndarray,
    product: Product,
    given: Sequence[np.ndarray],
    borders: Sequence[Border],
    a: int,
    step: Step,
) -> np.ndarray:
    """The product at own samples, with what others add to it and the same-class graph, times the steps' lengths."""
    length = step.length.astype(part.dtype)
    Y = product.own * length
    for border, values in zip(borders, given, strict=True):
        Y[border.rows[a]] += values * length
    scale = part.scale[part.labelled, None]
    U = V[part.labelled] * scale
    sums = step.classes[part.codes].astype(part.dtype)
    Y[part.labelled] += length * scale * (part.counts[:, None] * U - part.dtype.type(part.strength) * sums)
    return Y


def begin(part: Part, B: np.ndarray) -> Half:
    """Conjugate gradients at zero."""
    return Half(State(np.zeros_like(B), B, B), _squares(B), _by_groups(part, B))


def _squares(R: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->j", R, R, dtype=np.float64)


def _by_groups(part: Part, R: np.ndarray) -> np.ndarray:
    return np.asarray(part.groups.T @ R, dtype=np.float64)


def half_sums(half: Half) -> tuple[np.ndarray, np.ndarray]:
    """A half's share of the sums."""
    return half.squares, half.coarse


def total(
    shares: Sequence[tuple[np.ndarray, np.ndarray]],
    inverse: np.ndarray,
    before: Totals | None,
    tol: float,
    max_iter: int,
) -> Totals:
    """Sums over the parts, the groups' correction, and whether to go on."""
    squares, residuals = (np.sum(some, axis=0) for some in zip(*shares, strict=True))
    correction = inverse.astype(np.float64) @ residuals
    inner = squares + (residuals * correction).sum(axis=0)
    unit = np.where(squares > 0, squares, 1.0) if before is None else before.unit
    iterations = 0 if before is None else before.iterations + before.going
    turn = np.zeros_like(inner) if before is None else inner / np.where(before.inner > 0, before.inner, 1.0)
    going = bool((squares > tol**2 * unit).any()) and iterations < max_iter
    return Totals(unit, squares, inner, turn, correction, iterations, going)


def direct(part: Part, half: Half, totals: Totals) -> State:
    """The next direction: the preconditioned residual, and some of the one before."""
    X, R, D = half.state
    Z = D * totals.turn.astype(part.dtype)
    Z += R
    Z += part.groups @ totals.coarse.astype(part.dtype)
    return State(X, R, Z)


def step_of(
    shares: Sequence[tuple[np.ndarray, np.ndarray]], totals: Totals | None, strength: float, tol: float
) -> Step:
    """How far to go, from the parts' energies."""
    energy, classes = (np.sum(some, axis=0) for some in zip(*shares, strict=True))
    if totals is None:
        return Step(np.ones_like(energy), classes)
    energy = energy - strength * (classes**2).sum(axis=0)
    # A column that is solved, or zero, stays as it is.
    going = (totals.squares > tol**2 * totals.unit) & (energy > 0) & totals.going
    return Step(np.where(going, totals.inner / np.where(going, energy, 1.0), 0.0), classes)


def advance(
    part: Part,
    state: State,
    product: Product,
    given: Sequence[np.ndarray],
    borders: Sequence[Border],
    a: int,
    step: Step,
) -> Half:
    """One step along the direction."""
    # What is new is worked on in place: arrays of this size cost as much to make as to fill.
    R = completed(part, state.D, product, given, borders, a, step)
    np.subtract(state.R, R, out=R)
    X = state.D * step.length.astype(part.dtype)
    X += state.X
    return Half(State(X, R, state.D), _squares(R), _by_groups(part, R))


def with_unit_columns(part: Part, rows: np.ndarray, columns: np.ndarray, width: int, others: np.ndarray) -> np.ndarray:
    """``D^-1/2 E``, columns of the identity at some rows, and other columns to the right of them."""
    E = np.zeros((part.scale.size, width), dtype=part.dtype)
    E[rows, columns] = part.scale[rows]
    return np.hstack([E, others])


def unscaled_columns(part: Part, pieces: Sequence[np.ndarray], columns: slice) -> np.ndarray:
    """``D^1/2 P`` for some columns of the landmark features of a part's shards."""
    return np.concatenate([P[:, columns] for P in pieces]) / part.scale[:, None]


def results(
    part: Part, state: State, rhs: np.ndarray, V: np.ndarray, anchors: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``B^-1 E_A`` for the columns of anchors, ``eta M P`` and ``H = P - B^-1 eta M P`` for those of P."""
    scale = part.scale[:, None]
    return scale * state.X[:, :anchors], rhs[:, anchors:] / scale, scale * (V - state.X[:, anchors:])


def leftover(B: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squares of a residual computed anew, and of the right-hand side."""
    return _squares(B - product), _squares(B)


def rows_between(values: Sequence[np.ndarray], number: int, start: int, stop: int) -> np.ndarray:
    """Rows of one of several arrays."""
    return values[number][start:stop]


def solution_of(state: State) -> np.ndarray:
    """X of a state."""
    return state.X


@dataclass(frozen=True)
class PartitionedSystem:
    """The parts on the cluster, and which of them meet.

    Attributes
    ----------
    parts, borders : lists of Future
    meets : list of list of int
        Of each part, those from which it takes values.
    inverse : Future
        Of the system between groups.
    """

    cluster: Cluster
    parts: list[Any]
    borders: list[Any]
    meets: list[list[int]]
    inverse: Any
    settings: Settings

    def _beyond(self, values: list[Any]) -> list[list[Any]]:
        """For each part, what it has beyond its border."""
        submit = self.cluster.submit
        return [
            [submit("border", rows_for, values[b], self.borders[a], b) for b in meets]
            for a, meets in enumerate(self.meets)
        ]

    def _givers(self, a: int) -> list[tuple[int, int]]:
        """Parts that add to part a, and the number that it has among those that they meet."""
        return [(b, meets.index(a)) for b, meets in enumerate(self.meets) if a in meets]

    def products(self, values: list[Any], whole: bool) -> list[Any]:
        """Products of all parts with values that lie by parts."""
        beyond = self._beyond(values)
        return [
            self.cluster.submit("multiply", multiply, part, values[a], beyond[a], whole)
            for a, part in enumerate(self.parts)
        ]

    def complete(
        self, name: str, function: Callable[..., Any], values: list[Any], products: list[Any], step: Any
    ) -> list[Any]:
        """Finish products with what the parts give each other."""
        submit, done = self.cluster.submit, []
        for a, part in enumerate(self.parts):
            givers = self._givers(a)
            given = [submit("back", added_to, products[b], number) for b, number in givers]
            borders = [self.borders[b] for b, _ in givers]
            done.append(submit(name, function, part, values[a], products[a], given, borders, a, step))
        return done

    def apply(self, values: list[Any], whole: bool) -> list[Any]:
        """The system, or its graphs alone, times values that lie by parts."""
        submit = self.cluster.submit
        products = self.products(values, whole)
        step = submit("sums", step_of, [submit("share", sums_of, one) for one in products], None, 0.0, 0.0)
        return self.complete("apply", completed, values, products, step)

    def conjugate(self, rhs: list[Any]) -> tuple[list[Any], int, float]:
        """Conjugate gradients for right-hand sides that lie by parts: states, iterations, residual."""
        submit, settings = self.cluster.submit, self.settings
        halves = [submit("begin", begin, part, B) for part, B in zip(self.parts, rhs, strict=True)]
        totals = self._total(halves, None)
        states = self._direct(halves, totals)
        ahead: list[Any] = []
        while True:
            products = self.products(states, whole=True)
            shares = [submit("share", sums_of, one) for one in products]
            step = submit("step", step_of, shares, totals, settings.strength, settings.tol)
            halves = self.complete("advance", advance, states, products, step)
            totals = self._total(halves, totals)
            states = self._direct(halves, totals)
            ahead.append(totals)
            # A few iterations are on their way before the first is known to have been the last: such change nothing.
            if len(ahead) >= ROUNDS_AHEAD:
                (latest,) = self.cluster.collect([ahead.pop(0)])
                if not latest.going:
                    break
        (latest,) = self.cluster.collect([totals])
        solutions = [submit("solution", solution_of, state) for state in states]
        left = [
            submit("leftover", leftover, B, product)
            for B, product in zip(rhs, self.apply(solutions, whole=True), strict=True)
        ]
        squares, unit = (np.sum(some, axis=0) for some in zip(*self.cluster.collect(left), strict=True))
        residual = float((squares / np.where(unit > 0, unit, 1.0)).max()) ** 0.5
        return states, latest.iterations, residual

    def _total(self, halves: list[Any], before: Any) -> Any:
        submit, settings = self.cluster.submit, self.settings
        shares = [submit("share", half_sums, one) for one in halves]
        return submit("total", total, shares, self.inverse, before, settings.tol, settings.max_iter)

    def _direct(self, halves: list[Any], totals: Any) -> list[Any]:
        return [
            self.cluster.submit("direct", direct, part, half, totals)
            for part, half in zip(self.parts, halves, strict=True)
        ]


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
    made = [submit("part", make_part, pieces[a], firsts, a, sizes, settings, dtype, n_groups) for a in every]
    borders = [submit("border", border_of, one) for one in made]
    meets = [[b for b in every if border.rows[b].size] for border in cluster.collect(borders)]
    system = PartitionedSystem(cluster, made, borders, meets, None, settings)
    scales = []
    for a in every:
        given = [submit("back", diagonal_beyond, made[b], a) for b, _ in system._givers(a)]
        scales.append(submit("scale", scale_of, made[a], given))
    beyond = system._beyond(scales)
    near = system._beyond([submit("near", near_of, one) for one in made])
    done = [submit("scaled", scaled, made[a], scales[a], beyond[a], near[a]) for a in every]
    inverse = submit("coarse", coarse, [submit("share", share_of, one) for one in done], settings.strength, dtype)
    parts = [submit("part", part_of, one) for one in done]
    cluster.wait([inverse, *parts])
    return replace(system, parts=parts, inverse=inverse)


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
    places = shards.directory.first_places
    n, S = int(places[-1]), places.size - 1
    count = min(S, even_parts(n, cluster.rows_of_a_part(20 * 12), cluster.threads()))
    cuts = np.round(np.linspace(0, S, count + 1)).astype(int)
    firsts = places[cuts]
    by_part = [range(a, b) for a, b in pairwise(cuts.tolist())]
    system = build([[pieces[s] for s in some] for some in by_part], firsts, sizes, n_groups, settings, dtype, cluster)
    pieces.clear()
    rows = int(np.diff(firsts).max()) * -(-count // cluster.threads())  # that a thread has to do with
    width = int(SOLVE_SHARE * cluster.memory()) // (rows * np.dtype(dtype).itemsize * ARRAYS_OF_A_SOLVE)
    width = int(np.clip(width, FEWEST_COLUMNS, MOST_COLUMNS))
    blocks_of: list[list[list[Any]]] = [[[] for _ in range(S)] for _ in range(3)]
    outcomes = []
    owner = np.searchsorted(firsts, anchors, side="right") - 1
    for block in gen_even_slices(anchors.size + q, -(-(anchors.size + q) // width)):
        first, second = columns_of(block, anchors.size)
        V = [
            submit("columns", unscaled_columns, part, [P[s] for s in some], second)
            for part, some in zip(system.parts, by_part, strict=True)
        ]
        rhs = []
        for a, (part, smooth) in enumerate(zip(system.parts, system.apply(V, whole=False), strict=True)):
            which = np.flatnonzero(owner[first] == a)
            at = anchors[first][which] - firsts[a]
            rhs.append(submit("columns", with_unit_columns, part, at, which, first.stop - first.start, smooth))
        states, *outcome = system.conjugate(rhs)
        outcomes.append(outcome)
        for some, start, *solved in zip(by_part, firsts[:-1], system.parts, states, rhs, V, strict=True):
            done = submit("solution", results, *solved, first.stop - first.start)
            for s in some:
                between = int(places[s] - start), int(places[s + 1] - start)
                for number, blocks in enumerate(blocks_of):
                    blocks[s].append(submit("rows", rows_between, done, number, *between))
        del V, rhs, states, solved
        cluster.wait([blocks[-1] for blocks in chain(*blocks_of)])
    joined = [[submit("columns", np.hstack, block) for block in blocks] for blocks in blocks_of]
    for blocks in joined:
        cluster.wait(blocks)
    iterations, residual = (max(some) for some in zip(*outcomes, strict=True))
    return joined[0], joined[1], joined[2], int(iterations), float(residual)
