"""A made-up experiment and its rows, for the tests of selection and report."""

from pathlib import Path

import numpy as np

from ldsu.bench.families import FAMILIES
from ldsu.bench.spec import DataSpec, Experiment, MethodSpec
from ldsu.bench.store import Store
from ldsu.bench.tasks import Cell, Row, canonical

C_VALUES = (0.01, 1.0, 100.0)
GRIDS = {
    "KPCA": {"n_components": (0.5, 1.0)},
    "KDA": {"delta": (0.01, 1.0)},
    "LDSU truncate": {
        "n_components": (0.3, 0.5, 0.7, 1.0),
        "lam": (0.01, 1.0, 100.0),
        "theta": (0.1, 1.0),
        "clique_size": (3, 5),
    },
    "LDSU": {"strength": (1.0, 10.0, 100.0)},
    "LabelSpreading": {"n_neighbors": (7, 15)},
}
DEFAULTS = {method: dict(FAMILIES[method].defaults) for method in GRIDS}

# A small experiment as its file has it.
EXPERIMENT = """
[protocol]
repetitions = 1
labels = [3]
C = [1.0]

[[data]]
name = "digits"
rows = 120

[[method]]
family = "KPCA"
"""


def row(data="umist", split=0, labels=3, method="KPCA", params="{}", C=1.0, fold=-1, score=0.5, **others):
    """One row of the `cells` table."""
    return {
        "data": data, "split": split, "labels": labels, "method": method, "params": params, "C": C, "fold": fold,
        "map": score, "accuracy": None if score is None else score - 0.05, "n_features": 10,
        "seconds_shared": 2.0, "seconds_features": 0.4, "seconds_classifier": 0.1, "seconds_score": 0.02,
        "peak_mib": 300.0, "seed": split, "error": None, "run": 1, "written_at": 1.76e9, **others,
    }  # fmt: skip


def make_experiment(data=("umist", "coil20"), labels=(1, 3, 5, 10), methods=tuple(GRIDS), repetitions=3, figures=None):
    return Experiment(
        name="made-up",
        title="A made-up experiment",
        description="Rows without a computation behind them.",
        path=Path("experiments/made-up.toml"),
        data=tuple(
            DataSpec(name, name, None, name.upper(), "rbf", labels, name if name != "digits" else None, None)
            for name in data
        ),
        methods=tuple(
            MethodSpec(key, key, (GRIDS[key],), (GRIDS[key],), DEFAULTS[key], FAMILIES[key].one_label)
            for key in methods
        ),
        repetitions=repetitions, seed=0, test_fraction=0.5, C=C_VALUES, folds=2, figures=figures or {},
    )  # fmt: skip


def make_rows(experiment=None, seed=0):
    """Rows of every setting of every method; folds only where a class has enough labels."""
    experiment = experiment or make_experiment()
    rng = np.random.default_rng(seed)
    rows = []
    for spec in experiment.data:
        for labels in spec.labels:
            for method in experiment.methods:
                lift = 0.06 if method.key.startswith("LDSU") else 0.0
                base = 0.55 + 0.12 * np.log(labels) + lift + 0.01 * len(spec.key)
                for split in range(experiment.repetitions):
                    for setting in method.settings(labels):
                        bent = base - 0.002 * sum(abs(np.log10(v)) for v in setting.values() if isinstance(v, float))
                        for C in experiment.C if "C" in method.default else (0.0,):
                            for fold in range(-1, experiment.folds if labels >= 3 else 0):
                                score = float(np.clip(bent + 0.01 * rng.standard_normal(), 0, 1))
                                params = canonical(setting)
                                rows.append(row(spec.key, split, labels, method.key, params, C, fold, score))
    return rows


def make_store(path, experiment, rows):
    """A store that holds these rows, the costs of one fit of each method, and one finished run."""
    store = Store(path)
    run = store.begin_run("ldsu bench run experiments/made-up.toml", jobs=1, threads=1)
    stages = ("shared", "features", "classifier", "score")
    store.add(
        (
            Row(
                Cell(*(one[name] for name in ("data", "split", "labels", "method", "params", "C", "fold"))),
                map=one["map"],
                accuracy=one["accuracy"],
                n_features=one["n_features"],
                seconds={stage: one[f"seconds_{stage}"] for stage in stages},
                peak_mib=one["peak_mib"],
                seed=one["seed"],
                error=one["error"],
            )
            for one in rows
        ),
        run,
    )
    for spec in experiment.data:
        for number, method in enumerate(experiment.methods):
            cost = {"seconds_fit": 0.5 + number, "seconds_transform": 0.1, "peak_mib": 200 + 50 * number}
            store.add_cost(spec.key, method.key, 3, cost, run)
    store.end_run(run)
    return store
