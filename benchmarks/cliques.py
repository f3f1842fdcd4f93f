"""Time and memory of the clique Laplacian at a size where an n x n matrix would be out of reach.

python benchmarks/cliques.py [--n 60000] [--k 5]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows, load, peak_gib, seconds

from ldsu.graphs import clique_laplacian, clique_scatter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    mnist = load("mnist.npz")
    if mnist is not None:
        X, name = mnist[0][: options.n].astype(np.float32), "mnist"
    else:
        X, name = np.random.default_rng(0).standard_normal((options.n, 784), dtype=np.float32), "random"
    del mnist
    rows = Rows("cliques")
    elapsed = seconds(lambda: clique_laplacian(*clique_scatter(X, None, options.k), theta=0.1, relative=True))
    rows.add(name, len(X), f"clique Laplacian, k = {options.k}", 0, elapsed, "s")
    rows.add(name, len(X), "peak resident memory of the process", 0, peak_gib(), "GiB")
    print(f"{name}, n = {len(X)}, k = {options.k}: {elapsed:.1f} s, peak {peak_gib():.2f} GiB")
    print(f"rows in {rows.write(options.out)}")


if __name__ == "__main__":
    main()
