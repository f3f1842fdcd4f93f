"""
How sure is a prediction?
=========================

Two numbers warn of wrong labels, and both work without any further label. ``margin`` is small *between* two classes,
``familiarity`` is near 0 *far* from everything the model has seen. Among the most probable half of the predictions
nearly all labels are right. Rows so far off that their label is a guess get equal probabilities and a warning.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ldsu import LDSUClassifier

X, y = load_digits(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
few = np.full_like(y, -1)
for digit in range(10):
    few[np.flatnonzero(y == digit)[:5]] = digit
model = LDSUClassifier().fit(X, few)

# %%
# Three kinds of new rows: digits, means of two different digits, and digits that are much too bright.

rng = np.random.default_rng(0)
partner = rng.permutation(len(X_new))
different = y_new != y_new[partner]
kinds = {
    "digits": X_new,
    "mean of two digits": (X_new[different] + X_new[partner][different]) / 2,
    "much too bright": X_new[:150] + 30,
}
fig, ax = plt.subplots()
medians = {}
for number, (kind, rows) in enumerate(kinds.items()):
    margin, familiarity = model.confidence(rows)
    medians[kind] = np.median(margin), np.median(familiarity)
    ax.scatter(familiarity, margin, s=14, alpha=0.6, marker="o^s"[number], label=kind)
ax.set(xlabel="familiarity: 0 is far from everything", ylabel="margin: 0 is between classes")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)

assert medians["mean of two digits"][0] < medians["digits"][0] / 2
assert medians["much too bright"][1] < 0.01

# %%
# Some digits have a familiarity of 0 as well: check such rows, do not reject them.
#
# Sort the unseen digits by their largest probability. The fewer of them are kept, the more of the labels are right:

sure = model.predict_proba(X_new).max(axis=1)
right = model.predict(X_new) == y_new
order = np.argsort(-sure)
share = np.arange(1, len(order) + 1) / len(order)
fig, ax = plt.subplots()
ax.plot(share, np.cumsum(right[order]) / np.arange(1, len(order) + 1))
ax.set(xlabel="share of the digits, most probable first", ylabel="accuracy among them", ylim=(0.94, 1.002))

half = order[: len(order) // 2]
assert right[half].mean() > max(right.mean(), 0.98)

# %%
# The digits with the lowest probability, with the predicted and the true label:

fig, axes = plt.subplots(1, 8, figsize=(9, 1.6))
for ax, row in zip(axes, order[::-1][:8], strict=True):
    ax.imshow(X_new[row].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{model.predict(X_new[[row]])[0]} (true: {y_new[row]})", fontsize=9)
    ax.set(xticks=[], yticks=[])

# %%
# Rows far from all training rows are counted in a warning, and their probabilities are equal:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.predict(kinds["much too bright"])
print(caught[0].message)
print(model.predict_proba(kinds["much too bright"][:1]).round(3))
assert "150 row(s)" in str(caught[0].message)
