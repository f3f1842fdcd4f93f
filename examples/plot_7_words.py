"""
Kernels for word counts
=======================

Rows of word counts are long, mostly zeros, and their Euclidean distance is ruled by how long a document is.
``kernel="chi2"`` compares shares of counts, ``kernel="cosine"`` directions; neighbors are then found in the kernel's
space, too. The documents here are made up by a small generator: topics are word distributions that overlap, lengths
vary, and no real text is involved.
"""

import matplotlib.pyplot as plt
import numpy as np

from ldsu import LDSU, LDSUClassifier

rng = np.random.default_rng(0)
TOPICS, WORDS, DOCUMENTS = 4, 400, 400

# %%
# A topic prefers a few words of its own, and all topics share the common ones. A document draws its length from a wide
# distribution, and its words from its topic.

common = rng.dirichlet(np.full(WORDS, 0.2))
topics = [0.7 * common + 0.3 * rng.dirichlet(np.full(WORDS, 0.2)) for _ in range(TOPICS)]
y = rng.integers(TOPICS, size=DOCUMENTS)
lengths = rng.lognormal(mean=4, sigma=0.8, size=DOCUMENTS).astype(int) + 5
counts = np.array([rng.multinomial(length, topics[topic]) for length, topic in zip(lengths, y, strict=True)])

few = np.full(DOCUMENTS, -1)
for topic in range(TOPICS):
    few[np.flatnonzero(y == topic)[:5]] = topic
rest = few < 0

# %%
# The same rows and labels with three kernels. chi2 is given shares, so that long documents count no more than short
# ones.

shares = counts / counts.sum(axis=1, keepdims=True)
models = {
    "rbf on counts": (LDSU(), counts),
    "cosine": (LDSU(kernel="cosine"), counts),
    "chi2 on shares": (LDSU(kernel="chi2"), shares),
}
accuracy = {}
for name, (features, rows) in models.items():
    accuracy[name] = LDSUClassifier(features, supervised=False).fit(rows, few).score(rows[rest], y[rest])

fig, ax = plt.subplots(figsize=(8, 2.6))
bars = ax.barh(list(accuracy), list(accuracy.values()))
ax.bar_label(bars, [f"{value:.2f}" for value in accuracy.values()], padding=3)
ax.axvline(1 / TOPICS, color="C1", linestyle=":", label="guessing")
ax.set(xlabel="accuracy on documents without a label", xlim=(0, 1), title=f"{TOPICS} topics, five labels each")
ax.legend(loc="lower right")

assert accuracy["cosine"] > accuracy["rbf on counts"] + 0.1
assert accuracy["chi2 on shares"] > accuracy["rbf on counts"] + 0.1

# %%
# Why: how many of a document's five nearest others are of its topic?

squared = (counts**2).sum(axis=1)
distance = squared[:, None] + squared - 2 * counts @ counts.T
cosine = -(counts @ counts.T) / np.sqrt(np.outer(squared, squared))


def same_topic(D):
    """Share of the five nearest documents that are of the same topic."""
    D = D.astype(float)
    np.fill_diagonal(D, np.inf)
    return float(np.mean(y[np.argsort(D, axis=1)[:, :5]] == y[:, None]))


print(f"by Euclidean distance {same_topic(distance):.2f}, by angle {same_topic(cosine):.2f}")
assert same_topic(cosine) > same_topic(distance) + 0.1
