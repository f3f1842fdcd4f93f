"""
Few labels: LDSUClassifier and an SVM
=====================================

Unlabelled rows help most where labels are fewest. With one label per class, :class:`~ldsu.LDSUClassifier` recognizes
far more unseen digits than a support vector machine on the same labels; with ten per class the two come closer.

Half of 1,400 of scikit-learn's digits are held out. In the other half one, three or ten digits per class keep their
label. The SVM learns from those alone; the classifier also uses the rows without a label.
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
# ``-1`` marks a row without a label. With :class:`~ldsu.LabelledOnly` the SVM is fitted to the other rows.


def few_labels(y, per_class, seed):
    """Keep the labels of some rows of each class."""
    rng = np.random.default_rng(seed)
    few = np.full_like(y, -1)
    for label in np.unique(y):
        few[rng.choice(np.flatnonzero(y == label), per_class, replace=False)] = label
    return few


X, y = load_digits(return_X_y=True)
X, y = X[:1400], y[:1400]
accuracy = {name: np.zeros((len(LABELS), DRAWS)) for name in METHODS}
for draw in range(DRAWS):
    X_fit, X_new, y_fit, y_new = train_test_split(X, y, test_size=0.5, stratify=y, random_state=draw)
    for i, per_class in enumerate(LABELS):
        few = few_labels(y_fit, per_class, seed=draw)
        for name, model in METHODS.items():
            accuracy[name][i, draw] = model.fit(X_fit, few).score(X_new, y_new)

# %%
# Small points are single draws of the labels: with one label per class it matters which rows are labelled.

fig, ax = plt.subplots()
for number, (name, scores) in enumerate(accuracy.items()):
    (line,) = ax.plot(LABELS, scores.mean(axis=1), marker="os"[number], label=name)
    for i, per_class in enumerate(LABELS):
        ax.scatter(np.full(DRAWS, per_class), scores[i], s=14, color=line.get_color(), alpha=0.5)
ax.set(
    xscale="log",
    xlabel="labels per class",
    ylabel="accuracy on unseen digits",
    title="Unlabelled rows help most with few labels",
)
ax.set_xticks(LABELS, labels=[str(per_class) for per_class in LABELS])
ax.minorticks_off()
ax.legend()

ours, svm = accuracy["LDSUClassifier()"].mean(axis=1), accuracy["SVM on the labels"].mean(axis=1)
assert ours[0] > svm[0] + 0.1
assert all(ours > svm)

# %%
# Eight data sets and ten other methods: :doc:`/results`.
