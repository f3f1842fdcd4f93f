"""
How strength is chosen
======================

``LDSU()`` chooses a large strength where neighbors share a class and a small one where they do not; in both data sets
below its choice is about as accurate as the best fixed strength. With two labels per class or more, it tries a few
bandwidths and strengths and keeps those under which the labelled rows predict each other best, each left out in turn.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from ldsu import LDSU, LDSUClassifier


def few_labels(y, per_class, seed=0):
    """Keep the labels of some rows of each class."""
    rng = np.random.default_rng(seed)
    few = np.full_like(y, -1)
    for label in np.unique(y):
        few[rng.choice(np.flatnonzero(y == label), per_class, replace=False)] = label
    return few


# %%
# In digits, neighbors are of the same class. The second data set imitates faces under changing light: the light moves
# rows along a curve that all classes share, so that the nearest rows are those in the same light, whatever their class.

X, y = load_digits(return_X_y=True)
X, y = X[:500], y[:500]
rng = np.random.default_rng(0)
who = np.repeat(np.arange(8), 60)
faces = np.zeros((who.size, 24))
light = rng.uniform(0, 40, who.size)
faces[:, :4] = 3 * np.stack([np.cos(light / 4), np.sin(light / 4), np.cos(light / 9), np.sin(light / 9)], axis=1)
faces[:, 4:] = (0.16 * rng.standard_normal((8, 20)))[who] + 0.25 * rng.standard_normal((who.size, 20))
problems = {"digits": (X, y, few_labels(y, 5)), "faces, changing light": (faces, who, few_labels(who, 10))}

for name, (samples, truth, _) in problems.items():
    near = NearestNeighbors(n_neighbors=3).fit(samples).kneighbors(return_distance=False)
    print(f"{name}: {np.mean(truth[near] == truth[:, None]):.0%} of the three nearest neighbors are of the same class")

# %%
# The criterion of each setting at its best ridge: mainly the probability of the left-out labels. The bar in another
# color is the chosen setting. ``selection_`` has all of them.

fig, axes = plt.subplots(1, 2, figsize=(9.5, 3.8))
chosen = {}
for ax, (name, (samples, _, few)) in zip(axes, problems.items(), strict=True):
    model = LDSU().fit(samples, few)
    chosen[name] = model.strength_
    best = {}
    for tried in model.selection_:
        setting = (tried["gamma_scale"], tried["strength"])
        best[setting] = max(best.get(setting, -np.inf), tried["criterion"])
    settings = sorted(best)
    names = [f"{scale:g}, {strength:g}" for scale, strength in settings]
    picked = settings.index((model.selection_[0]["gamma_scale"], model.selection_[0]["strength"]))
    bars = ax.barh(names, [best[setting] - min(best.values()) for setting in settings])
    bars[picked].set(color="C1")
    ax.set(title=f"{name}: strength {model.strength_:g}", xlabel="criterion, above the worst")
axes[0].set_ylabel("gamma_scale, strength")

assert chosen["digits"] >= 100
assert chosen["faces, changing light"] < 100

# %%
# Accuracy on the unlabelled rows, with the chosen strength ("auto") and with fixed ones:

for name, (samples, truth, few) in problems.items():
    rest = few < 0
    scores = {
        strength: LDSUClassifier(LDSU(strength=strength)).fit(samples, few).score(samples[rest], truth[rest])
        for strength in ("auto", 0, 100)
    }
    print(name, {strength: round(score, 2) for strength, score in scores.items()})
    assert scores["auto"] > max(scores.values()) - 0.05
