"""
Features in the plane
=====================

What do features learned from three labels per class look like? Five digits that are easily taken for each other are
drawn by the first two principal components of their pixels, of kernel PCA, and of :class:`~ldsu.LDSU`'s features.
Rings mark the fifteen digits that have a label.
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
# Every method gets the same rows. Kernel PCA reads no label; LDSU reads fifteen.

features = {
    "pixels": X,
    "kernel PCA": KPCA(100).fit(X).transform(X),
    "LDSU": LDSU().fit(X, few).transform(X),
}

# %%
# A simple question to features: is each row nearest to the mean of the labelled rows of its own class?


def nearest_mean(Z):
    """Share of the unlabelled rows that are nearest to the labelled mean of their class."""
    means = np.array([Z[few == digit].mean(axis=0) for digit in DIGITS])
    distances = np.linalg.norm(Z[:, None] - means, axis=2)
    return float(np.mean(np.array(DIGITS)[distances.argmin(axis=1)] == y, where=~labelled))


fig, axes = plt.subplots(1, 3, figsize=(12, 4.4))
for ax, (name, Z) in zip(axes, features.items(), strict=True):
    plane = PCA(2).fit_transform(Z)
    for digit in DIGITS:
        ax.scatter(*plane[y == digit].T, s=26, marker=f"${digit}$", linewidths=0.3)
    ax.scatter(*plane[labelled].T, s=140, facecolors="none", edgecolors="black")
    ax.set(title=f"{name}: nearest mean is right in {nearest_mean(Z):.0%}", xticks=[], yticks=[])

assert nearest_mean(features["LDSU"]) > nearest_mean(features["kernel PCA"]) + 0.1
assert nearest_mean(features["LDSU"]) > nearest_mean(features["pixels"]) + 0.1
