"""An engine that computes nothing, quickly and always the same: for tests of the runner.

Environment variables say what is to go wrong, which workers inherit.
"""

import os
import signal
import time
from pathlib import Path

from ldsu.bench.spec import DataSpec, Experiment, MethodSpec
from ldsu.bench.tasks import Cell, Row, canonical

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


def cost_weight(experiment, task):
    return 2.0 if task.data == "b" else 1.0


def cells_of(experiment, task, labels, method, k):
    return [Cell(task.data, task.split, labels, method.key, canonical({"k": k}), C, -1) for C in experiment.C]


def wanted_cells(experiment, task):
    for labels in LABELS:
        for method in experiment.methods:
            for k in method.grids[0]["k"]:
                yield from cells_of(experiment, task, labels, method, k)


def run_task(experiment, task, done, progress):
    pause = float(os.environ.get("FAKE_PAUSE", 0.0))
    gate = os.environ.get("FAKE_GATE")
    trouble = os.environ.get("FAKE_TROUBLE", "").split(" ")
    for labels in LABELS:
        for method in experiment.methods:
            progress(f"{task.data} split {task.split}, {labels} labels, {method.key}")
            for k in method.grids[0]["k"]:
                cells = cells_of(experiment, task, labels, method, k)
                if all(map(done, cells)):
                    continue
                time.sleep(pause)
                if trouble == ["raise", task.data]:
                    raise ArithmeticError("three is not four")
                if trouble == ["die", task.data]:
                    os.kill(os.getpid(), signal.SIGSEGV)
                if trouble == ["orphan", task.data] and not os.path.exists(os.environ["FAKE_ORPHAN"]):
                    leave_a_child_behind()
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
                # The first batch comes through, the others when the file is there.
                while gate and not os.path.exists(gate):
                    time.sleep(0.01)


def leave_a_child_behind():
    """End this process, but not a child that holds the pipe to its parent."""
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    Path(os.environ["FAKE_ORPHAN"]).write_text(str(child))
    os._exit(3)


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
    gate = os.environ.get("FAKE_COST_GATE")
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    return {"seconds_fit": 1.5, "seconds_transform": 0.5, "peak_mib": float(os.getpid())}
