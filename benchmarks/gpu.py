"""LDSU on a GPU: the exact solver beside two eigendecompositions alone, the sparse one at 60,000 and 1,000,000 samples.

python benchmarks/gpu.py [--parts exact sparse classifier tiled] [--exact-rows 9298] [--sparse-rows 60000]
    [--tiled-rows 1000000]

Times are those of the whole call, NumPy in and NumPy out, after a call at small size. Without a GPU it says so and
ends; ``--device torch`` tries the same code on the CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from exact import samples
from rows import RESULTS, Rows, load, seconds

from ldsu import LDSU, LDSUClassifier
from ldsu._utils.arrays import Arrays, arrays_on
from ldsu._utils.stages import Stages
from ldsu.kernels import resolve_kernel
from ldsu.methods import _base
from ldsu.solvers import Problem, Settings

PARTS = ("exact", "sparse", "classifier", "tiled")
CLASSIFIER_LABELS = (10, 100)
FLOOR = "two eigendecompositions"
WARM_UP_ROWS = 500


class Bench:
    """Measures on one device and collects the rows."""

    def __init__(self, device: str, repeats: int) -> None:
        self.device = device
        self.repeats = repeats
        self.arrays: Arrays = arrays_on(device)
        self.rows = Rows("gpu")

    def wait(self) -> None:
        if self.device.startswith("cuda"):
            self.arrays.xp.cuda.synchronize()

    def measure(
        self, case: str, n: int, timed: dict[str, Callable[[], object]], stages: Callable[[str], dict[str, float]]
    ) -> None:
        """Time each function, side by side; `stages` tells how long the parts of the one just run took."""
        if self.device.startswith("cuda"):
            case = f"{case} on {self.arrays.xp.cuda.get_device_name()}"
        for repeat in range(self.repeats):
            for what, function in timed.items():
                if self.device.startswith("cuda"):
                    self.arrays.xp.cuda.reset_peak_memory_stats()
                self.wait()
                taken = seconds(lambda function=function: (function(), self.wait()))
                self.rows.add(case, n, what, repeat, taken, "s")
                for stage, value in stages(what).items():
                    self.rows.add(case, n, f"{what}: {stage}", repeat, value, "s")
                if self.device.startswith("cuda"):
                    peak = self.arrays.xp.cuda.max_memory_allocated() / 2**30
                    self.rows.add(case, n, f"{what}: peak GPU memory", repeat, peak, "GiB")
        print(f"{case}, n = {n}, device {self.device!r}, medians of {self.repeats}")
        for what, unit in dict.fromkeys((row["what"], row["unit"]) for row in self.rows.rows if row["n"] == n):
            print(f"  {what:56s} {self.rows.median(str(what), n):9.3f} {unit}")


def images(n: int, skip: int = 0) -> tuple[np.ndarray, np.ndarray, str]:
    """Float32 rows of MNIST, in its order, and labels; random ones where the data set is not there."""
    mnist = load("mnist.npz")
    if mnist is not None:
        return mnist[0][skip : skip + n].astype(np.float32), mnist[1][skip : skip + n], "mnist"
    rng = np.random.default_rng(skip)
    y = rng.integers(0, 10, n)
    centres = np.random.default_rng(0).standard_normal((10, 784))
    return (centres[y] + rng.standard_normal((n, 784))).astype(np.float32), y, "random"


def few(y: np.ndarray, per_class: int = 10) -> np.ndarray:
    labels = np.full(len(y), -1)
    for label in np.unique(y):
        labels[np.flatnonzero(y == label)[:per_class]] = label
    return labels


def tiled(n: int) -> tuple[np.ndarray, np.ndarray, str]:
    """As many rows as asked for: MNIST over and over, each copy jittered by a tenth of the pixels' spread."""
    X, y, name = images(60_000)
    rng = np.random.default_rng(0)
    spread = np.float32(0.1 * X.std())
    out = np.empty((n, X.shape[1]), dtype=np.float32)
    for start in range(0, n, len(X)):
        block = out[start : start + len(X)]
        rng.random(out=block, dtype=np.float32)
        block -= np.float32(0.5)
        block *= 2 * spread
        block += X[: len(block)]
    return out, np.resize(y, n), f"tiled {name}"


def exact(bench: Bench, n: int) -> None:
    def prepare(n: int) -> tuple[dict[str, Callable[[], object]], str, list[LDSU]]:
        X, y, name = samples(n)
        arrays = bench.arrays
        kernel = resolve_kernel(X)
        problem = Problem(X, device=bench.device)
        K = problem.kernel_matrix(kernel)
        S = problem.project(kernel, "cliques", lambda: problem.clique_graph(kernel, Settings())[0])
        problem.drop("coordinates")
        truncate, tikhonov = (
            LDSU(filter=filter, solver="exact", device=bench.device) for filter in ("truncate", "tikhonov")
        )
        timed: dict[str, Callable[[], object]] = {
            FLOOR: lambda: [arrays.eigh(A) for A in (K, S)],
            "exact truncate, fit": lambda: truncate.fit(X, y),
            "exact truncate, transform": lambda: truncate.transform(X),
            "exact tikhonov, fit": lambda: tikhonov.fit(X, y),
            "exact tikhonov, transform": lambda: tikhonov.transform(X),
        }
        return timed, name, [truncate, tikhonov]

    warm_up(prepare(min(n, WARM_UP_ROWS))[0])
    timed, name, models = prepare(n)
    fitted = {"exact truncate, fit": models[0], "exact tikhonov, fit": models[1]}
    bench.measure(name, n, timed, lambda what: fitted[what].timings_ if what in fitted else {})
    print(f"  fit / {FLOOR}: {bench.rows.median('exact truncate, fit', n) / bench.rows.median(FLOOR, n):.2f}")


def sparse(bench: Bench, n: int, new: int) -> None:
    small, small_y, _ = images(min(n, WARM_UP_ROWS))
    warm = LDSU(solver="sparse", device=bench.device)
    warm_up({"fit": lambda: warm.fit(small, few(small_y)), "transform": lambda: warm.transform(small)})
    X, y, name = images(n)
    X_new = images(new, skip=60_000)[0]
    model = LDSU(solver="sparse", device=bench.device)
    y = few(y)
    timed: dict[str, Callable[[], object]] = {
        "sparse, fit": lambda: model.fit(X, y),
        f"sparse, transform of {new}": lambda: model.transform(X_new),
    }
    bench.measure(name, n, timed, lambda what: model.timings_ if what == "sparse, fit" else {})


def classifier(bench: Bench, n: int) -> None:
    """`LDSUClassifier` with ten and a hundred labels per class."""
    small, small_y, _ = images(min(n, WARM_UP_ROWS))
    features = LDSU(solver="sparse", device=bench.device)
    warm_up({"fit": lambda: LDSUClassifier(features).fit(small, few(small_y))})
    X, y, name = images(n)
    timed: dict[str, Callable[[], object]] = {
        f"LDSUClassifier, {labels} per class": partial(LDSUClassifier(features).fit, X, few(y, labels))
        for labels in CLASSIFIER_LABELS
    }
    bench.measure(name, n, timed, lambda what: {})


def many(bench: Bench, n: int) -> None:
    small, small_y, _ = tiled(min(n, WARM_UP_ROWS))
    warm_up({"fit": lambda: LDSU(solver="sparse", device=bench.device).fit(small, few(small_y))})
    X, y, name = tiled(n)
    y = few(y)
    model = LDSU(solver="sparse", device=bench.device)
    bench.measure(name, n, {"sparse tiled, fit": lambda: model.fit(X, y)}, lambda what: model.timings_)


def warm_up(timed: dict[str, Callable[[], object]]) -> None:
    for function in timed.values():
        function()


def waiting_stages(wait: Callable[[], None]) -> type[Stages]:
    """Stages that end when the device has done their work, so that their times are their own."""

    class WaitingStages(Stages):
        @contextmanager
        def __call__(self, name: str) -> Iterator[None]:
            with super().__call__(name):
                yield
                wait()

    return WaitingStages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--exact-rows", type=int, default=9298)
    parser.add_argument("--sparse-rows", type=int, default=60_000)
    parser.add_argument("--transform-rows", type=int, default=10_000)
    parser.add_argument("--tiled-rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    try:
        bench = Bench(options.device, options.repeats)
    except ValueError as error:
        if not options.device.startswith("cuda"):
            raise
        print(f"nothing measured: {error}", file=sys.stderr)
        return
    _base.Stages = waiting_stages(bench.wait)
    if "exact" in options.parts:
        exact(bench, options.exact_rows)
    if "sparse" in options.parts:
        sparse(bench, options.sparse_rows, options.transform_rows)
    if "classifier" in options.parts:
        classifier(bench, options.sparse_rows)
    if "tiled" in options.parts:
        many(bench, options.tiled_rows)
    print(f"rows in {bench.rows.write(options.out)}")


if __name__ == "__main__":
    main()
