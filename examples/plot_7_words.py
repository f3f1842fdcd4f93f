"""
Kernels for word counts
=======================

For word counts use ``kernel="cosine"``, or ``kernel="chi2"`` on shares: with five labels per topic both recognize many
more documents than the default kernel, because the Euclidean distance between counts depends mostly on the lengths of
the documents. ``"chi2"`` compares shares of counts, ``"cosine"`` directions, and neighbors are searched accordingly.

The documents are generated: topics are word distributions that overlap, and lengths vary.
"""

import matplotlib.pyplot as plt
import numpy as np

from ldsu import LDSU, LDSUClassifier

rng = np.random.default_rng(0)
TOPICS, WORDS, DOCUMENTS = 4, 400, 400

# %%
# A topic prefers a few words, and all topics share the common ones. A document draws its length from a wide
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
# The same rows and labels with three kernels. ``"chi2"`` gets shares, so that long documents count no more than short
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

fig, ax = plt.subplots(figsize=(7, 3))
bars = ax.barh(list(accuracy), list(accuracy.values()))
ax.bar_label(bars, [f"{value:.2f}" for value in accuracy.values()], padding=3)
ax.axvline(1 / TOPICS, color="C1", linestyle=":", label="guessing")
ax.set(xlabel="accuracy on unlabelled documents", xlim=(0, 1), title=f"{TOPICS} topics, five labels per topic")
ax.legend(loc="upper right", bbox_to_anchor=(1, 1.28))

assert accuracy["cosine"] > accuracy["rbf on counts"] + 0.1
assert accuracy["chi2 on shares"] > accuracy["rbf on counts"] + 0.1

# %%
# The reason: the share of a document's five nearest neighbors that are of the same topic.

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
