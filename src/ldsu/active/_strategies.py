"""Which rows to label next: batches from features, probabilities and the labels so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ldsu.active._coverage import herd, similarity, unit_rows
from ldsu.active._posterior import Posterior, expected_errors, posterior_mean

# Largest numbers of rows that coverage chooses from, and that it covers; and of rows that posteriors are computed for.
COVERAGE_CANDIDATES, COVERAGE_TARGETS, POSTERIOR_ROWS = 10_000, 2000, 100_000
# Power of the cosine between features in the coverage: docs/decisions.md.
POWER = 8
# Look-ahead: candidates per suggestion and at least, rows whose error is expected, and labels per candidate.
SHORTLIST, MIN_SHORTLIST, LOOK_AHEAD_ROWS, LOOK_AHEAD_LABELS = 3, 30, 1000, 5


class Pool(NamedTuple):
    """The rows as strategies see them.

    Attributes
    ----------
    features : ndarray of shape (n, r)
        Features, as of a `TrainingView`.
    codes : ndarray of int, shape (n,)
        Class numbers, -1 where unlabelled.
    candidates : ndarray of bool, shape (n,)
        Rows that may be suggested.
    noise : float
        As of a `TrainingView`.
    rng : numpy.random.Generator
    probabilities : ndarray of shape (n, c), optional
        Class probabilities; None while there is no model.
    gain : ndarray of shape (c,), optional
        As of a `TrainingView`.
    """

    features: np.ndarray
    codes: np.ndarray
    candidates: np.ndarray
    noise: float
    rng: np.random.Generator
    probabilities: np.ndarray | None = None
    gain: np.ndarray | None = None

    @property
    def labelled(self) -> np.ndarray:
        """Labelled rows."""
        return np.flatnonzero(self.codes >= 0)

    def posterior(self) -> Posterior:
        """Gaussian process on the features, given the labelled rows."""
        return Posterior.of(self.features, self.labelled, self.noise)

    def means(self, low: float) -> np.ndarray:
        """Posterior means (n, c) for targets of 1 for the given label and `low` for the others; 0 far from labels."""
        classes = np.unique(self.codes[self.labelled])
        targets = np.where(self.codes[self.labelled][:, None] == classes, 1.0, low)
        return posterior_mean(self.features, self.labelled, targets, self.noise)

    def uncertainty(self) -> np.ndarray:
        """Margin uncertainty (n,); 1 everywhere while there is no model."""
        return np.ones(self.codes.size) if self.probabilities is None else margin_uncertainty(self.probabilities)

    def some(self, most: int) -> tuple[Pool, np.ndarray]:
        """The pool of the labelled rows and at most `most` others, candidates first, and their numbers."""
        if self.codes.size <= most + self.labelled.size:
            return self, np.arange(self.codes.size)
        order = self.rng.permutation(np.flatnonzero(self.codes < 0))
        order = order[np.argsort(~self.candidates[order], kind="stable")]
        rows = np.sort(np.concatenate([self.labelled, order[:most]]))
        probabilities = None if self.probabilities is None else self.probabilities[rows]
        some = self._replace(
            features=self.features[rows],
            codes=self.codes[rows],
            candidates=self.candidates[rows],
            probabilities=probabilities,
        )
        return some, rows


def margin_uncertainty(probabilities: np.ndarray) -> np.ndarray:
    """1 minus the difference of the two largest probabilities (n, c) of each row."""
    largest = np.partition(probabilities, -2, axis=1)[:, -2:]
    return np.asarray(1 - (largest[:, 1] - largest[:, 0]))


def random_rows(pool: Pool, n: int) -> np.ndarray:
    """Candidates at random."""
    return pool.rng.permutation(np.flatnonzero(pool.candidates))[:n]


def covering_rows(pool: Pool, n: int, weights: np.ndarray) -> np.ndarray:
    """Candidates whose gain in coverage of all rows, beside what labelled rows cover, times their weight is largest.

    Of many rows a sample is covered, and candidates are a sample.
    """
    rows = _sample(np.flatnonzero(pool.candidates), max(COVERAGE_CANDIDATES, n), pool.rng)
    U = unit_rows(pool.features[_sample(np.arange(pool.codes.size), COVERAGE_TARGETS, pool.rng)])
    covered = similarity(unit_rows(pool.features[pool.labelled]), U, POWER).max(axis=0, initial=0)
    S = similarity(unit_rows(pool.features[rows]), U, POWER)
    return rows[herd(S, covered, weights[rows], n)]


def typical_rows(pool: Pool, n: int) -> np.ndarray:
    """Rows that cover all rows best."""
    return covering_rows(pool, n, np.ones(pool.codes.size))


def herded_rows(pool: Pool, n: int) -> np.ndarray:
    """Uncertain rows that cover all rows best: gains in coverage times the root of the margin uncertainty."""
    return covering_rows(pool, n, np.sqrt(pool.uncertainty()))


def greedy_rows(pool: Pool, n: int, score: Callable[[Posterior], np.ndarray]) -> np.ndarray:
    """Rows with the largest scores, each after labels of the rows before."""
    posterior, left = pool.posterior(), pool.candidates.copy()
    chosen: list[int] = []
    for number in range(n):
        chosen.append(int(np.where(left, score(posterior), -np.inf).argmax()))
        left[chosen[-1]] = False
        if number < n - 1:
            posterior = posterior.given(chosen[-1])
    return np.array(chosen, dtype=np.int64)


def by_posterior(score: Callable[[Posterior], np.ndarray]) -> Callable[[Pool, int], np.ndarray]:
    """The strategy of a score of rows under the posterior."""

    def strategy(pool: Pool, n: int) -> np.ndarray:
        some, rows = pool.some(POSTERIOR_ROWS)
        return rows[greedy_rows(some, n, score)]

    return strategy


def uncertain_rows(pool: Pool, n: int, uncertainty: np.ndarray) -> np.ndarray:
    """The most uncertain rows, each times the share of its variance that the rows before in the batch leave."""
    if n == 1:
        return np.array([np.where(pool.candidates, uncertainty, -np.inf).argmax()])
    some, rows = pool.some(POSTERIOR_ROWS)
    before = some.posterior().variance()
    before[before == 0] = 1.0
    return rows[greedy_rows(some, n, lambda posterior: uncertainty[rows] * posterior.variance() / before)]


def margin_rows(pool: Pool, n: int) -> np.ndarray:
    """Rows with the smallest margins."""
    return uncertain_rows(pool, n, pool.uncertainty())


def norm_rows(pool: Pool, n: int) -> np.ndarray:
    """Rows with the smallest norm of the scores of the Gaussian process, which are 0 far from all labels."""
    lengths = np.sqrt((pool.means(low=0.0) ** 2).sum(axis=1))
    return uncertain_rows(pool, n, np.maximum(1 - lengths, 0))


def look_ahead_rows(pool: Pool, n: int) -> np.ndarray:
    """Of rows that cover the uncertain ones, those whose labels leave the smallest expected error."""
    if pool.probabilities is None or pool.gain is None:
        return typical_rows(pool, n)
    shortlist = herded_rows(pool, min(max(SHORTLIST * n, MIN_SHORTLIST), int(pool.candidates.sum())))
    return shortlist[np.argsort(shortlist_errors(pool, shortlist), kind="stable")[:n]]


def shortlist_errors(pool: Pool, shortlist: np.ndarray) -> np.ndarray:
    """Expected error after a label of each row of the shortlist."""
    assert pool.probabilities is not None
    assert pool.gain is not None
    targets = _sample(np.arange(pool.codes.size), LOOK_AHEAD_ROWS, pool.rng)
    rows = np.concatenate([pool.labelled, targets, shortlist])
    W = Posterior.of(pool.features[rows], np.arange(pool.labelled.size), pool.noise).W[pool.labelled.size :]
    W_targets, W_shortlist = W[: targets.size], W[targets.size :]
    return expected_errors(
        W_targets @ W_shortlist.T,
        np.einsum("ij,ij->i", W_shortlist, W_shortlist),
        pool.means(low=-1.0)[shortlist],
        pool.probabilities[targets],
        pool.probabilities[shortlist],
        pool.noise,
        pool.gain,
        LOOK_AHEAD_LABELS,
    )


def _sample(rows: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    return rows if rows.size <= most else np.sort(rng.choice(rows, most, replace=False))


NEEDS_MODEL = {"margin": margin_rows, "norm": norm_rows, "expected_error": look_ahead_rows}
RULES: dict[str, Callable[[Pool, int], np.ndarray]] = {
    "typical": typical_rows,
    "herding": herded_rows,
    **NEEDS_MODEL,
    "variance": by_posterior(Posterior.variance),
    "vopt": by_posterior(Posterior.vopt),
    "sigmaopt": by_posterior(Posterior.sigmaopt),
    "random": random_rows,
}


def choose_rows(pool: Pool, n: int, strategy: str) -> np.ndarray:
    """At most n of the candidates, best first; strategies that need a model begin with typical rows."""
    n = min(n, int(pool.candidates.sum()))
    if n == 0:
        return np.empty(0, dtype=np.int64)
    if pool.probabilities is None and strategy in NEEDS_MODEL:
        strategy = "typical"
    return np.asarray(RULES[strategy](pool, n), dtype=np.int64)
