"""
Classes of unequal size
=======================

Five labels of each class do not show that one class is eleven times as large as another. By default
:class:`~ldsu.LDSUClassifier` estimates the class shares from its predictions, and comes close to the accuracy that it
reaches with the true shares. With ``class_shares="equal"`` it is wrong for four rows in ten.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ldsu import LDSUClassifier

SIZES = {3: 170, 8: 50, 9: 25, 5: 15}
X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
rows = np.concatenate([rng.permutation(np.flatnonzero(y == digit))[:size] for digit, size in SIZES.items()])
X, y = X[rows], y[rows]
true_shares = {digit: size / len(y) for digit, size in SIZES.items()}

# %%
# The three settings of ``class_shares``, over four draws of five labels per class. ``class_shares_`` has the shares
# that the predictions for the unlabelled rows have.

SETTINGS = {'"equal"': "equal", '"auto", the default': "auto", "true shares": true_shares}
DRAWS = 4
accuracy = {name: [] for name in SETTINGS}
predicted = {name: np.zeros(len(SIZES)) for name in SETTINGS}
for draw in range(DRAWS):
    rng = np.random.default_rng(draw)
    few = np.full_like(y, -1)
    for digit in SIZES:
        few[rng.choice(np.flatnonzero(y == digit), 5, replace=False)] = digit
    rest = few < 0
    for name, shares in SETTINGS.items():
        model = LDSUClassifier(class_shares=shares).fit(X, few)
        found = model.predict(X[rest])
        accuracy[name].append(np.mean(found == y[rest]))
        predicted[name] += np.array([np.mean(found == digit) for digit in SIZES]) / DRAWS

# %%
# How often each class is predicted, and how often it occurs:

fig, ax = plt.subplots()
places = np.arange(len(SIZES))
for number, (name, shares) in enumerate(predicted.items()):
    label = f"{name}: accuracy {np.mean(accuracy[name]):.2f}"
    ax.bar(places + 0.27 * (number - 1), shares, 0.25, label=label)
ax.hlines(list(true_shares.values()), places - 0.42, places + 0.42, colors="black", label="share of the class")
ax.set(xlabel="digit", ylabel="share of the predictions", title="Four digits, 260 images, five labels per class")
ax.set_xticks(places, labels=[f"{digit} ({size} images)" for digit, size in SIZES.items()])
ax.legend()

means = {name: np.mean(scores) for name, scores in accuracy.items()}
print({name: round(float(mean), 2) for name, mean in means.items()})
assert means['"equal"'] < 0.65
assert means['"auto", the default'] > means['"equal"'] + 0.2
assert abs(means['"auto", the default'] - means["true shares"]) < 0.03

# %%
# If labels are drawn at random from all rows, use ``class_shares="labels"``. With one or two labels per class nothing
# can be estimated: pass the shares, if you know them. How accurate the estimates are: :doc:`/robustness`.
