"""One binary SVM on a precomputed kernel: LIBSVM called directly against scikit-learn's public class.

python benchmarks/svm.py [--repeats 20]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rows import RESULTS, Rows, seconds

from ldsu.bench.svm import binary_svm, public_binary_svm

CASES = ((10, 1), (20, 3), (20, 10), (38, 10))  # classes, labels per class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = Rows("svm")
    rng = np.random.default_rng(0)
    for classes, labels in CASES:
        codes = np.repeat(np.arange(classes), labels)
        F = rng.standard_normal((codes.size, 200)) + rng.standard_normal((classes, 200))[codes]
        F /= np.sqrt(np.mean(np.sum(F**2, axis=1)))
        gram = F @ F.T
        for repeat in range(options.repeats):
            for what, train in (("direct", binary_svm), ("public class", public_binary_svm)):
                positive = codes == repeat % classes
                milliseconds = 1e3 * seconds(lambda: train(gram, positive, 1.0))  # noqa: B023
                rows.add(f"{classes} classes", codes.size, what, repeat, milliseconds, "ms")
        direct, public = (rows.median(what, codes.size) for what in ("direct", "public class"))
        print(
            f"{codes.size:4} points: direct {direct:.3f} ms, public class {public:.3f} ms, {public / direct:.0f} times"
        )
    rows.write(options.out)


if __name__ == "__main__":
    main()
