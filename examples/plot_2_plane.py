"""
Features in the plane
=====================

Fifteen labels are enough to separate five similar digits. In the features of :class:`~ldsu.LDSU` the classes are apart,
and most rows are nearest to the labelled mean of their own class; in the pixels and in the features of kernel PCA the
classes overlap.

Each panel shows the first two principal components. Rings mark the fifteen digits that have a label.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from ldsu import KPCA, LDSU

DIGITS = (1, 3, 5, 8, 9)
X, y = load_digits(return_X_y=True)
rows = np.isin(y, DIGITS)
X, y = X[rows], y[rows]

rng = np.random.default_rng(0)
few = np.full_like(y, -1)
for digit in DIGITS:
    few[rng.choice(np.flatnonzero(y == digit), 3, replace=False)] = digit
labelled = few >= 0

# %%
# All methods get the same rows. Kernel PCA uses no label, LDSU fifteen.

features = {
    "pixels": X,
    "kernel PCA": KPCA(100).fit(X).transform(X),
    "LDSU": LDSU().fit(X, few).transform(X),
}

# %%
# A simple test of features: is a row nearest to the mean of the labelled rows of its own class?


def nearest_mean(Z):
    """Share of the unlabelled rows that are nearest to the labelled mean of their class."""
    means = np.array([Z[few == digit].mean(axis=0) for digit in DIGITS])
    distances = np.linalg.norm(Z[:, None] - means, axis=2)
    return float(np.mean(np.array(DIGITS)[distances.argmin(axis=1)] == y, where=~labelled))


fig, axes = plt.subplots(1, 3, figsize=(9.5, 3.6))
for ax, (name, Z) in zip(axes, features.items(), strict=True):
    plane = PCA(2).fit_transform(Z)
    for digit in DIGITS:
        ax.scatter(*plane[y == digit].T, s=22, marker=f"${digit}$", linewidths=0.3)
    ax.scatter(*plane[labelled].T, s=140, facecolors="none", edgecolors="black")
    ax.set(title=f"{name}\n{nearest_mean(Z):.0%} nearest to their class", xticks=[], yticks=[])

assert nearest_mean(features["LDSU"]) > nearest_mean(features["kernel PCA"]) + 0.1
assert nearest_mean(features["LDSU"]) > nearest_mean(features["pixels"]) + 0.1
