"""
Save and load a model
=====================

A model that is loaded again predicts the same labels and probabilities. The file holds numbers and texts only. Unlike a
pickle it contains no code, so it is safe to load a file from somebody else; a damaged file is refused.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ldsu import LDSUClassifier, describe_model, load_model, save_model
from ldsu.io import ModelError

X, y = load_digits(return_X_y=True)
few = np.full(1000, -1)
for digit in range(10):
    few[np.flatnonzero(y[:1000] == digit)[:5]] = digit
model = LDSUClassifier().fit(X[:1000], few)

# %%
# Save the model with a note on its origin, and read what is in the file without loading the model.

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "digits.ldsu"
save_model(model, path, about={"data": "scikit-learn's digits, five labels per class"})
description = describe_model(path)
print(description["class"], description["about"], f"{path.stat().st_size / 2**20:.1f} MiB")

# %%
# Load it. Labels and probabilities are the same.

again = load_model(path)
X_new, y_new = X[1000:], y[1000:]
difference = np.abs(again.predict_proba(X_new) - model.predict_proba(X_new)).max()
print(f"largest difference of a probability: {difference:.1e}; accuracy {again.score(X_new, y_new):.3f}")
assert np.array_equal(again.predict(X_new), model.predict(X_new))
assert difference < 1e-12

# %%
# Most of the file are the training rows, with which new rows are compared, and their coefficients, one per feature.

arrays = sorted(description["arrays"].items(), key=lambda entry: -entry[1]["bytes"])[:6]
fig, ax = plt.subplots(figsize=(7.5, 3.2))
ax.barh(
    [f"{name} {tuple(entry['shape'])}" for name, entry in arrays],
    [entry["bytes"] / 2**20 for _, entry in arrays],
)
ax.invert_yaxis()
ax.set(xlabel="MiB", title="The largest arrays of the file")
assert arrays[0][1]["shape"][0] == arrays[1][1]["shape"][0] == 1000

# %%
# A damaged file is refused with a message.

damaged = bytearray(path.read_bytes())
damaged[-1000] ^= 1
path.write_bytes(damaged)
try:
    load_model(path)
except ModelError as error:
    message = str(error).replace(folder.name, "...")
print(message)
assert "damaged" in message
folder.cleanup()
