"""
Many rows
=========

Above 3,000 rows ``LDSU()`` uses the sparse solver, whose time grows about in proportion to the rows: eight times the
rows take well below 32 times the time. The exact solver holds the kernel matrix of all rows. Its time grows with the
third power of their number, its memory with the second.

Both are timed on digits, copied with a little noise.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ldsu import LDSU

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
copies = rng.integers(len(X), size=8000)
rows, truth = X[copies] + rng.normal(scale=1.5, size=(8000, 64)), y[copies]


def seconds(n, solver):
    """Time of a fit on the first n rows with five labels per class, and the model."""
    few = np.full(n, -1)
    for digit in range(10):
        few[np.flatnonzero(truth[:n] == digit)[:5]] = digit
    start = perf_counter()
    model = LDSU(strength=100, min_anchors=50, solver=solver).fit(rows[:n], few)
    return perf_counter() - start, model


# %%
# Strength is fixed, so that only the solvers are compared. Above 3,000 rows ``solver="auto"`` selects the sparse one.

seconds(300, "sparse")  # the first call loads libraries
sizes = {"exact": (500, 1000, 2000, 3000), "sparse": (1000, 3500, 8000)}
fits = {solver: [seconds(n, solver if n <= 3000 else "auto") for n in ns] for solver, ns in sizes.items()}
times = {solver: [time for time, _ in timed] for solver, timed in fits.items()}

fig, ax = plt.subplots()
for (solver, ns), marker in zip(sizes.items(), "os", strict=True):
    ax.loglog(ns, times[solver], marker=marker, label=f"{solver} solver")
ax.axvline(3000, color="gray", linestyle=":")
ax.text(3050, ax.get_ylim()[0] * 1.3, ' solver="auto":\n sparse from here', color="gray")
ax.set(xlabel="rows", ylabel="seconds", title="Time of a fit")
ax.set_xticks([500, 1000, 2000, 4000, 8000], labels=["500", "1,000", "2,000", "4,000", "8,000"])
ax.minorticks_off()
ax.legend()

# Eight times the rows: the exact solver's time would grow 512 times in the end, the sparse one's about 8 times.
print(f"sparse, from 1,000 to 8,000 rows: {times['sparse'][-1] / times['sparse'][0]:.0f} times the time")
assert times["sparse"][-1] < 4 * 8 * times["sparse"][0]

# %%
# ``solver_`` is the solver that was used, and ``residual_`` how accurately the linear systems were solved.

_, model = fits["sparse"][-1]
print(model.solver_, model.n_iter_, model.residual_)
assert model.solver_ == "sparse"
assert model.residual_ < 0.02

# %%
# Half a million rows, and a GPU: :doc:`/scale`.
