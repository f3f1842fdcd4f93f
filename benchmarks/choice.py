"""What the choice of strength, bandwidth and pooled classifiers costs: a fit that chooses against one that does not.

python benchmarks/choice.py [--sizes 500 1000 2000 4649] [--repeats 5] [--kept]
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

MODELS = ("LDSU()", "LDSUClassifier()")


def table(rows: Rows) -> None:
    """Print how many times as long a fit takes that chooses."""
    print(f"| n | {' | '.join(MODELS)} |\n|---|{'---|' * len(MODELS)}")
    for n in sorted({int(str(row["n"])) for row in rows.rows}):
        ratios = [rows.median(f"{model} chooses", n) / rows.median(f"{model} fixed", n) for model in MODELS]
        print(f"| {n:,} | {' | '.join(f'{ratio:.1f} times' for ratio in ratios)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="usps")
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 1000, 2000, 4649])
    parser.add_argument("--labels", type=int, default=10, help="labels per class")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kept", action="store_true", help="measure nothing: print the table of the kept rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.kept:
        table(Rows.kept("choice", options.out))
        return
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
        for repeat in range(options.repeats):
            for name, model in models.items():
                rows.add(options.data, n, name, repeat, seconds(partial(model.fit, X, few)), "s")
    table(rows)
    print(rows.write(options.out))


if __name__ == "__main__":
    main()
