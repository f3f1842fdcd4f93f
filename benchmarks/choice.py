"""What the choice of strength, bandwidth and pooled classifiers costs: a fit that chooses against one that does not.

python benchmarks/choice.py [--sizes 500 1000 2000 4649] [--repeats 5]
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows, seconds

from ldsu import LDSU, LDSUClassifier
from ldsu.bench.protocol import label_order
from ldsu.datasets import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="usps")
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 1000, 2000, 4649])
    parser.add_argument("--labels", type=int, default=10, help="labels per class")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    data = load(options.data)
    rows = Rows("choice")
    for n in options.sizes:
        kept = np.random.default_rng(0).permutation(data.y.size)[:n]
        X, y = data.X[kept], data.y[kept]
        few = np.where(label_order(y, 0) < options.labels, y, -1)
        models = {
            "LDSU() fixed": LDSU(strength=100.0),
            "LDSU() chooses": LDSU(),
            "LDSUClassifier() fixed": LDSUClassifier(LDSU(strength=100.0), supervised=False),
            "LDSUClassifier() chooses": LDSUClassifier(),
        }
        times: dict[str, list[float]] = {name: [] for name in models}
        for repeat in range(options.repeats):
            for name, model in models.items():
                times[name].append(seconds(partial(model.fit, X, few)))
                rows.add(options.data, n, name, repeat, times[name][-1], "s")
        medians = {name: float(np.median(found)) for name, found in times.items()}
        for what in ("LDSU()", "LDSUClassifier()"):
            ratio = medians[f"{what} chooses"] / medians[f"{what} fixed"]
            print(
                f"n = {n:5d}  {what:16s} {medians[f'{what} fixed']:.3f} s, with the choice {ratio:.2f} times",
                flush=True,
            )
    print(rows.write(options.out))


if __name__ == "__main__":
    main()
