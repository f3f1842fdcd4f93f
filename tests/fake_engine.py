"""An engine that computes nothing, quickly and always the same: for tests of the runner.

What is to go wrong is told in environment variables, which workers inherit.
"""

import os
import signal
import time
from pathlib import Path

from ldsu.bench.cells import Cell, Row, Task, canonical
from ldsu.bench.spec import DataSpec, Experiment, MethodSpec

LABELS = (1, 3)


def experiment(name="fake", data=("a", "b"), repetitions=3, settings=10, methods=("X",), seed=0):
    return Experiment(
        name=name,
        title=name,
        description="",
        path=Path(f"{name}.toml"),
        data=tuple(DataSpec(key, "digits", None, key, "rbf", LABELS, None, None) for key in data),
        methods=tuple(MethodSpec(key, "KPCA", ({"k": tuple(range(settings))},), (), {"k": 0}) for key in methods),
        repetitions=repetitions,
        seed=seed,
        test_fraction=0.5,
        C=(0.1, 1.0, 10.0),
        folds=3,
    )


def split_tasks(experiment):
    return [Task(spec.key, split) for spec in experiment.data for split in range(experiment.repetitions)]


def count_cells(experiment, task):
    return len(LABELS) * sum(len(m.grids[0]["k"]) for m in experiment.methods) * len(experiment.C)


def cost_weight(experiment, task):
    return 2.0 if task.data == "b" else 1.0


def run_task(experiment, task, done, progress):
    pause = float(os.environ.get("FAKE_PAUSE", 0.0))
    trouble = os.environ.get("FAKE_TROUBLE", "").split(" ")
    for labels in LABELS:
        for method in experiment.methods:
            progress(f"{task.data} split {task.split}, {labels} labels, {method.key}")
            for k in method.grids[0]["k"]:
                cells = [
                    Cell(task.data, task.split, labels, method.key, canonical({"k": k}), C, -1) for C in experiment.C
                ]
                if all(map(done, cells)):
                    continue
                time.sleep(pause)
                if trouble == ["raise", task.data]:
                    raise ArithmeticError("three is not four")
                if trouble == ["die", task.data]:
                    os.kill(os.getpid(), signal.SIGSEGV)
                if trouble == ["error", str(k)]:
                    yield [Row(cell, None, None, 0, error="no score") for cell in cells]
                    continue
                if trouble == ["silent", task.data]:
                    return
                print("chatter on standard output")
                yield [
                    Row(cell, score(cell), 0.5, k + 1, {"shared": 0.1, "score": pause}, 12.5, task.split)
                    for cell in cells
                ]


def score(cell):
    return hash_of(cell) % 1000 / 1000


def hash_of(cell):
    return sum(ord(character) * (place + 7) for place, character in enumerate(repr(cell)))


def cost_tasks(experiment):
    if "FAKE_COSTS" not in os.environ:
        return []
    return [(spec.key, method.key, 3) for spec in experiment.data for method in experiment.methods]


def measure_cost(experiment, item):
    if os.environ.get("FAKE_TROUBLE") == "cost":
        raise ArithmeticError("too dear")
    return {"seconds_fit": 1.5, "seconds_transform": 0.5, "peak_mib": float(os.getpid())}
