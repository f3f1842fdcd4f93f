"""
Features from an encoder
========================

If neighbors in the data are not of the same class, few labels do not help: first encode the rows. Digits at random
positions of a larger image have pixels that say almost nothing; after an encoder that ignores the position, one label
per class is enough for most of them. On the same embeddings :class:`~ldsu.LDSUClassifier` needs fewer labels than a
logistic regression, because it also uses the unlabelled rows.

The encoder here is a stand-in that needs no download: the spectrum of the image, scaled to length one as embeddings
are. Pretrained encoders of texts and photographs are used in the same way: :doc:`/guide/encoders`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from ldsu import LabelledOnly, LDSUClassifier

X, y = load_digits(return_X_y=True)
X, y = X[:700], y[:700]
rng = np.random.default_rng(0)
images = np.zeros((len(X), 14, 14))
for image, digit, (row, column) in zip(images, X.reshape(-1, 8, 8), rng.integers(7, size=(len(X), 2)), strict=True):
    image[row : row + 8, column : column + 8] = digit

# %%
# Moving an image changes the phases of its Fourier transform and leaves the amplitudes. So the amplitudes are the same
# for a digit wherever it is.


def encode(images):
    """Amplitudes of the Fourier transform of each image, as a row of length one."""
    return normalize(np.abs(np.fft.rfft2(images, s=(16, 16))).reshape(len(images), -1))


rows = {"pixels": images.reshape(len(images), -1), "embeddings": encode(images)}
same_class = {}
for name, Z in rows.items():
    near = NearestNeighbors(n_neighbors=3).fit(Z).kneighbors(return_distance=False)
    same_class[name] = np.mean(y[near] == y[:, None])
    print(f"{name}: {same_class[name]:.0%} of the three nearest neighbors are of the same class")
assert same_class["embeddings"] > 0.9
assert same_class["pixels"] < 0.5

# %%
# Both classifiers on both kinds of rows, with one, three and ten labels per class.

LABELS, DRAWS = (1, 3, 10), 2
MODELS = {
    "LDSUClassifier": LDSUClassifier(),
    "logistic regression": LabelledOnly(LogisticRegression(C=100, max_iter=1000)),
}


def few_labels(per_class, seed):
    """Keep the labels of some rows of each class."""
    rng = np.random.default_rng(seed)
    few = np.full_like(y, -1)
    for label in np.unique(y):
        few[rng.choice(np.flatnonzero(y == label), per_class, replace=False)] = label
    return few


accuracy = {(kind, name): np.zeros((len(LABELS), DRAWS)) for kind in rows for name in MODELS}
for draw in range(DRAWS):
    for i, per_class in enumerate(LABELS):
        few = few_labels(per_class, draw)
        rest = few < 0
        for kind, name in accuracy:
            model = MODELS[name].fit(rows[kind], few)
            accuracy[kind, name][i, draw] = model.score(rows[kind][rest], y[rest])

# %%

fig, ax = plt.subplots()
for (kind, name), scores in accuracy.items():
    color, line = f"C{list(MODELS).index(name)}", {"pixels": ":", "embeddings": "-"}[kind]
    ax.plot(LABELS, scores.mean(axis=1), marker="o", linestyle=line, color=color, label=f"{name}, {kind}")
ax.set(xscale="log", xlabel="labels per class", ylabel="accuracy on unlabelled rows", ylim=(0, 1.01))
ax.set_xticks(LABELS, labels=[str(per_class) for per_class in LABELS])
ax.minorticks_off()
ax.legend(loc="upper left", bbox_to_anchor=(0, 0.62))

ours = accuracy["embeddings", "LDSUClassifier"].mean(axis=1)
assert ours[0] > 0.75
assert all(ours > accuracy["embeddings", "logistic regression"].mean(axis=1))
assert ours[0] > accuracy["pixels", "LDSUClassifier"].mean(axis=1)[-1] + 0.3
