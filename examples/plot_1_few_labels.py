"""
Few labels on digits, beside an SVM
===================================

How much do rows without a label help? Half of 1,400 of scikit-learn's digits are kept apart as unseen. In the other
half one, three or ten digits of each class keep their label. A support vector machine learns from those alone;
:class:`~ldsu.LDSUClassifier` also reads the rows without a label.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from ldsu import LabelledOnly, LDSUClassifier

LABELS = (1, 3, 10)
DRAWS = 2
METHODS = {
    "LDSUClassifier()": LDSUClassifier(),
    "SVM on the labels": LabelledOnly(SVC(C=10)),
}

# %%
# ``-1`` marks a row without a label. ``LabelledOnly`` keeps the SVM from taking it for one more class.


def few_labels(y, a_class, seed):
    """Keep so many labels of each class."""
    rng = np.random.default_rng(seed)
    few = np.full_like(y, -1)
    for label in np.unique(y):
        few[rng.choice(np.flatnonzero(y == label), a_class, replace=False)] = label
    return few


X, y = load_digits(return_X_y=True)
X, y = X[:1400], y[:1400]
accuracy = {name: np.zeros((len(LABELS), DRAWS)) for name in METHODS}
for draw in range(DRAWS):
    X_fit, X_new, y_fit, y_new = train_test_split(X, y, test_size=0.5, stratify=y, random_state=draw)
    for i, a_class in enumerate(LABELS):
        few = few_labels(y_fit, a_class, seed=draw)
        for name, model in METHODS.items():
            accuracy[name][i, draw] = model.fit(X_fit, few).score(X_new, y_new)

# %%
# The fewer the labels, the more the others say. Points are single draws of the labels: with one label per class, which
# ones you happen to have matters much.

fig, ax = plt.subplots()
for number, (name, scores) in enumerate(accuracy.items()):
    (line,) = ax.plot(LABELS, scores.mean(axis=1), marker="os"[number], label=name)
    for i, a_class in enumerate(LABELS):
        ax.scatter(np.full(DRAWS, a_class), scores[i], s=14, color=line.get_color(), alpha=0.5)
ax.set(xscale="log", xlabel="labels per class", ylabel="accuracy on unseen digits", title="Digits: the others help")
ax.set_xticks(LABELS, labels=[str(a_class) for a_class in LABELS])
ax.minorticks_off()
ax.legend()

ours, svm = accuracy["LDSUClassifier()"].mean(axis=1), accuracy["SVM on the labels"].mean(axis=1)
assert ours[0] > svm[0] + 0.1
assert all(ours > svm)

# %%
# On eight data sets and beside ten methods: :doc:`/results`.
