"""
A table with numbers, categories and gaps
=========================================

Nothing has to be cleaned first: :func:`~ldsu.tables.read_table` and :func:`~ldsu.tables.prepare` detect the kind of
each column, standardize numbers, encode categories and fill gaps. With five labels per class the whole table gives a
better model than its numbers or its categories alone.

The table is scikit-learn's wine data, with two columns turned into words and a tenth of the values removed.
"""

import csv
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from ldsu.tables import fit_task, prepare, read_table

wine = load_wine(as_frame=True)
rng = np.random.default_rng(0)
numbers = ["alcohol", "malic_acid", "ash", "magnesium", "flavanoids", "proanthocyanins", "proline"]
columns = {name: [f"{value:g}" for value in wine.data[name]] for name in numbers}
columns["color"] = np.array(["pale", "medium", "deep"])[np.digitize(wine.data["color_intensity"], [3.5, 6])].tolist()
columns["hue"] = np.array(["brown", "red", "purple"])[np.digitize(wine.data["hue"], [0.75, 1.05])].tolist()
for values in columns.values():
    for row in np.flatnonzero(rng.random(len(values)) < 0.1):
        values[row] = ""
truth = wine.target_names[wine.target]


def write_table(path, names, per_class, seed):
    """Write some of the columns, and a label for a few rows of each class."""
    rng = np.random.default_rng(seed)
    labels = np.full(len(truth), "", dtype=object)
    for name in wine.target_names:
        labels[rng.choice(np.flatnonzero(truth == name), per_class, replace=False)] = name
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "cultivar"])
        writer.writerows(zip(*(columns[name] for name in names), labels, strict=True))


# %%
# What is decided about the columns can be read before anything is fitted. ``ldsu fit wine.csv --label cultivar`` prints
# the same on the command line.

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "wine.csv"
write_table(path, list(columns), 5, seed=0)
print(*path.read_text().splitlines()[:4], sep="\n")
task = prepare(read_table(path), "cultivar")
print(*task.encoder.notes, sep="\n")
print(task.counts)

# %%
# :func:`~ldsu.tables.fit_task` fits an :class:`~ldsu.LDSUClassifier` to all rows. The model predicts the rows of a
# table, for example of the next file.

model, warnings = fit_task(task)
predictions = model.predict(read_table(path))
for label, probability in zip(predictions.label[:3], predictions.probability[:3], strict=True):
    print(f"{label} with probability {probability:.2f}")
assert model.about["labelled"] == {"class_0": 5, "class_1": 5, "class_2": 5}

# %%
# Which columns bring what? Accuracy on the unlabelled rows, with one, three and five labels per class.

LABELS, DRAWS = (1, 3, 5), 4
kinds = {"categories only": ["color", "hue"], "numbers only": numbers, "whole table": list(columns)}
accuracy = {kind: np.zeros((len(LABELS), DRAWS)) for kind in kinds}
for kind, names in kinds.items():
    for i, per_class in enumerate(LABELS):
        for draw in range(DRAWS):
            write_table(path, names, per_class, seed=draw)
            task = prepare(read_table(path), "cultivar")
            model, _ = fit_task(task)
            unlabelled = np.array([label is None for label in task.labels])
            found = model.predict_points(task.X[unlabelled]).label
            accuracy[kind][i, draw] = np.mean(found == truth[unlabelled])
folder.cleanup()

fig, ax = plt.subplots()
for number, (kind, scores) in enumerate(accuracy.items()):
    bars = ax.bar(np.arange(len(LABELS)) + 0.27 * (number - 1), scores.mean(axis=1), 0.25, label=kind)
    ax.bar_label(bars, fmt="%.2f", padding=2, fontsize=10)
ax.axhline(1 / 3, color="gray", linestyle=":")
ax.set(xlabel="labels per class", ylabel="accuracy on unlabelled rows", ylim=(0, 1.15))
ax.set_xticks(range(len(LABELS)), labels=[str(per_class) for per_class in LABELS])
ax.legend(loc="upper left", ncols=3)

whole = accuracy["whole table"].mean(axis=1)[-1]
assert whole > 0.85
assert whole > accuracy["numbers only"].mean(axis=1)[-1]
assert whole > accuracy["categories only"].mean(axis=1)[-1]
