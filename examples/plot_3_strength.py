"""
What strength does
==================

``strength`` says how much the graph of neighbors counts against the kernel. Two moons, one label each: with strength
0 only the distance to the two labels matters, and the border between the classes runs straight between them. The
larger the strength, the more a label spreads along its moon.
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
# Colour is the probability of the second class, the line where it is one half.

xs, ys = np.linspace(-1.6, 2.6, 140), np.linspace(-1.1, 1.6, 90)
grid = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
accuracy = {}
fig, axes = plt.subplots(1, 3, figsize=(12, 3.4))
for ax, strength in zip(axes, (0, 100, 10_000), strict=True):
    model = LDSUClassifier(LDSU(strength=strength, gamma_scale=8)).fit(X, few)
    accuracy[strength] = model.score(X[unlabelled], y[unlabelled])
    shares = model.predict_proba(grid)[:, 1].reshape(ys.size, xs.size)
    ax.pcolormesh(xs, ys, shares, cmap="RdBu", vmin=0, vmax=1, alpha=0.7)
    ax.contour(xs, ys, shares, levels=[0.5], colors="black")
    ax.scatter(*X.T, c=y, cmap="RdBu", s=9, edgecolors="black", linewidths=0.2)
    ax.scatter(*X[~unlabelled].T, c=few[~unlabelled], cmap="RdBu", s=220, marker="*", edgecolors="black")
    ax.set(title=f"strength {strength:,}: {accuracy[strength]:.0%} right", xticks=[], yticks=[], aspect="equal")

assert accuracy[0] < accuracy[100] < accuracy[10_000]
assert accuracy[10_000] > 0.95

# %%
# More is not always better: where neighbors are often of another class the graph misleads, and strength must fall.
# With two labels per class or more ``strength="auto"``, the default, finds out by itself: see the example on the
# choice.
