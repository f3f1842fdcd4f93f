"""
Choose which rows to label
==========================

Twenty labels that :class:`~ldsu.active.ActiveLearner` asks for are worth more than forty drawn at random. It starts
without any label, with rows that cover the others, and so sees all ten digits in its first ten rows. Random rows miss
some of the classes for much longer, and a class without a label cannot be predicted.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ldsu.active import ActiveLearner

X, y = load_digits(return_X_y=True)
X, y = X[:600], y[:600]
BATCH, ROUNDS, DRAWS = 10, 6, 3
n_labels = BATCH * np.arange(1, ROUNDS + 1)

# %%
# One round: the learner suggests ten rows, somebody labels them (here the known labels stand in), and the model is
# fitted again. Accuracy is measured on the rows that are still unlabelled.


def learning_curve(strategy, seed=0):
    """Accuracy on the unlabelled rows and number of classes seen, after each round; and the learner."""
    learner = ActiveLearner(strategy=strategy, random_state=seed).fit(X)
    accuracy, classes = [], []
    for _ in range(ROUNDS):
        rows = learner.suggest(BATCH)
        learner = learner.label(rows, y[rows])
        unlabelled = np.array([label is None for label in learner.y_])
        accuracy.append(learner.model_.score(X[unlabelled], y[unlabelled]))
        classes.append(len(learner.classes_))
    return accuracy, classes, learner


accuracy, classes, learner = learning_curve("auto")
drawn = [learning_curve("random", seed) for seed in range(DRAWS)]
random_accuracy = np.array([curve for curve, _, _ in drawn])
random_classes = np.array([seen for _, seen, _ in drawn])

# %%
# The learning curves. Thin lines are single random draws.

fig, ax = plt.subplots()
ax.plot(n_labels, accuracy, marker="o", label="ActiveLearner()")
ax.plot(n_labels, random_accuracy.mean(axis=0), marker="s", label="random rows, mean")
ax.plot(n_labels, random_accuracy.T, color="C1", linewidth=0.8, alpha=0.6)
ax.set(xlabel="labels", ylabel="accuracy on the other rows", ylim=(0.4, 1.01), title="Digits, from no label on")
ax.legend(loc="lower right")

print("classes seen after 10, 20, ... labels")
print("ActiveLearner():", classes)
for seen in random_classes:
    print("random rows:    ", seen.tolist())

assert classes[0] == 10
assert random_classes[:, 0].max() < 10
assert accuracy[1] > random_accuracy[:, 3].mean()

# %%
# Is it worth labelling ten more? :meth:`~ldsu.active.ActiveLearner.forecast` extrapolates from the labels so far.

forecast = learner.forecast(10)
print(f"expected accuracy now {forecast.accuracy:.2f}, with ten more labels {forecast.expected:.2f}")

# %%
# Other strategies, and how to label in a page: :doc:`/guide/active`, :doc:`/guide/label`.
