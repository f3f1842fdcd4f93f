"""
What strength does
==================

The larger ``strength``, the further a label spreads along neighboring rows. On two moons with one label each, strength
0 looks only at the distance to the two labels and gets about two thirds right; strength 10,000 follows the moons and
gets nearly all right.

``strength`` weighs the graph of neighbors against the kernel.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from ldsu import LDSU, LDSUClassifier

X, y = make_moons(300, noise=0.07, random_state=0)
few = np.full_like(y, -1)
few[np.argmin(X[:, 0])] = 0  # the left end of the upper moon
few[np.argmax(X[:, 0])] = 1  # the right end of the lower one
unlabelled = few < 0

# %%
# Color is the probability of the second class, the line where it is one half.

xs, ys = np.linspace(-1.6, 2.6, 140), np.linspace(-1.1, 1.6, 90)
grid = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
accuracy = {}
fig, axes = plt.subplots(1, 3, figsize=(9.5, 2.4))
for ax, strength in zip(axes, (0, 100, 10_000), strict=True):
    model = LDSUClassifier(LDSU(strength=strength, gamma_scale=8)).fit(X, few)
    accuracy[strength] = model.score(X[unlabelled], y[unlabelled])
    shares = model.predict_proba(grid)[:, 1].reshape(ys.size, xs.size)
    ax.pcolormesh(xs, ys, shares, cmap="RdBu", vmin=0, vmax=1, alpha=0.7)
    ax.contour(xs, ys, shares, levels=[0.5], colors="black")
    ax.scatter(*X.T, c=y, cmap="RdBu", s=9, edgecolors="black", linewidths=0.2)
    ax.scatter(*X[~unlabelled].T, c=few[~unlabelled], cmap="RdBu", s=180, marker="*", edgecolors="black")
    ax.set(title=f"strength {strength:,}: {accuracy[strength]:.0%} right", xticks=[], yticks=[], aspect="equal")

assert 0.6 < accuracy[0] < 0.75
assert accuracy[0] < accuracy[100] < accuracy[10_000]
assert accuracy[10_000] > 0.95

# %%
# A large strength is not always better: where neighbors are often of another class, the graph misleads. With two labels
# per class or more ``strength="auto"``, the default, chooses it: :doc:`/gallery/plot_5_choice`.
