"""The tables of docs/results.md, as Markdown, from the kept results. Measures nothing.

ldsu bench run experiments/fewlabels.toml && ldsu bench report experiments/fewlabels.toml --out results/fewlabels
python benchmarks/fewlabels.py
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "fewlabels" / "table.csv"
# Rows of methods that were computed again later; they replace those of the table.
UPDATES = RESULTS.with_name("updates.csv")
OURS, CEILING = "LDSU auto", "LDSU"
HELD_BACK = ("MNIST, 10,000 rows", "PCMAC, tf-idf")
FACES = ("Yale B, local contrast", "Yale B, log", "Yale B, pixels")
IMAGES = ("USPS", "COIL-20", "UMIST")
Place = tuple[str, int]


@dataclass(frozen=True)
class Figure:
    """Scores of a method, split by split, and the paper's LDSU where it has one."""

    map: np.ndarray
    accuracy: np.ndarray
    paper: float | None

    def mean(self, metric: str) -> float:
        """Mean over the splits."""
        return float(getattr(self, metric).mean())

    def error(self, metric: str) -> float:
        """Standard error of the mean."""
        scores = getattr(self, metric)
        return float(scores.std(ddof=1) / np.sqrt(scores.size))


def read(path: Path) -> dict[Place, dict[str, Figure]]:
    """Figures by (data, labels), then method: the ceiling by its oracle, every other method by its honest choice."""
    table: dict[Place, dict[str, Figure]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["selection"] != ("oracle" if row["method"] == CEILING else "honest"):
                continue
            paper = float(row["paper_map_mean"]) if row["method"] == CEILING and row["paper_map_mean"] else None
            scores = (np.array(json.loads(row[name])) for name in ("map_splits", "accuracy_splits"))
            table.setdefault((row["title"], int(row["labels"])), {})[row["method"]] = Figure(*scores, paper)
    return table


def short(value: float) -> str:
    """Three decimals without the leading zero."""
    return f"{value:.3f}".replace("0.", ".", 1)


def rivals(rows: dict[str, Figure]) -> list[str]:
    """The methods that ours is compared with."""
    return [name for name in rows if name not in (OURS, CEILING)]


def best_rival(rows: dict[str, Figure], metric: str) -> str:
    """The rival with the best mean."""
    return max(rivals(rows), key=lambda name: rows[name].mean(metric))


def keeps_up(rows: dict[str, Figure], metric: str) -> bool:
    """Whether ours is the best, or within the best rival's standard error of it."""
    best = rows[best_rival(rows, metric)]
    return rows[OURS].mean(metric) >= best.mean(metric) - best.error(metric)


def print_table(table: dict[Place, dict[str, Figure]], metric: str) -> None:
    """All methods, the best in bold, ours marked where it is more than a standard error behind."""
    names = rivals(next(iter(table.values())))
    last = ", oracle" if metric == "map" else " at its oracle for MAP"
    print(f"| | labels | LDSUClassifier() | {' | '.join(names)} | LDSU{last} |")
    print(f"|---|---|---|{'---|' * len(names)}---|")
    for (title, labels), rows in table.items():
        top = max(rows[name].mean(metric) for name in (OURS, *names))
        cells = []
        for name in (OURS, *names):
            text = short(rows[name].mean(metric))
            text = f"**{text}**" if rows[name].mean(metric) == top else text
            if name == OURS:
                text += f" ± {short(rows[name].error(metric))}" + ("" if keeps_up(rows, metric) else " (behind)")
            cells.append(text)
        print(f"| {title} | {labels} | {' | '.join(cells)} | {short(rows[CEILING].mean(metric))} |")


def print_summary(name: str, table: dict[Place, dict[str, Figure]]) -> None:
    """How often ours keeps up, and what it loses against the ceiling."""
    regret = {place: rows[CEILING].mean("map") - rows[OURS].mean("map") for place, rows in table.items()}
    worst = max(regret, key=regret.__getitem__)
    counts = [f"{sum(keeps_up(rows, metric) for rows in table.values())}" for metric in ("map", "accuracy")]
    print(
        f"| {name} | {len(table)} | {' | '.join(counts)} | {np.mean(list(regret.values())):+.4f} "
        f"| {regret[worst]:+.3f} ({worst[0]}, {worst[1]}) |"
    )


def print_changes(before: dict[Place, dict[str, Figure]], after: dict[Place, dict[str, Figure]]) -> None:
    """How ours changed from the table to its updates."""
    print("\nLDSUClassifier() before and after, MAP / accuracy; cells that changed by more than .005:\n")
    print("| | labels | before | after |\n|---|---|---|---|")
    for (title, labels), rows in after.items():
        old, new = before[title, labels][OURS], rows[OURS]
        if max(abs(new.mean(metric) - old.mean(metric)) for metric in ("map", "accuracy")) > 0.005:
            texts = (" / ".join(short(figure.mean(metric)) for metric in ("map", "accuracy")) for figure in (old, new))
            print(f"| {title} | {labels} | {' | '.join(texts)} |")
    change = [
        np.mean([rows[OURS].mean(metric) - before[place][OURS].mean(metric) for place, rows in after.items()])
        for metric in ("map", "accuracy")
    ]
    print(f"\nMean change: {change[0]:+.4f} / {change[1]:+.4f}.")


def main() -> None:
    table, before = read(RESULTS), read(RESULTS)
    for place, rows in read(UPDATES).items():
        table[place] |= {name: figure for name, figure in rows.items() if name in table[place]}
    print_changes(before, table)
    for metric, title in (("map", "MAP"), ("accuracy", "Accuracy")):
        print(f"\n{title}, honest:\n")
        print_table(table, metric)
    print("\n| cells | number | MAP: best, or within a standard error | accuracy: the same | mean regret | largest |")
    print("|---|---|---|---|---|---|")
    print_summary("all", table)
    for faces in FACES:
        others = [other for other in FACES if other != faces]
        print_summary(f"with {faces}", {place: rows for place, rows in table.items() if place[0] not in others})
    print_summary("held back", {place: rows for place, rows in table.items() if place[0] in HELD_BACK})
    print("\n| Yale B prepared as | cells at or above the paper's LDSU |\n|---|---|")
    for faces in FACES:
        places = [place for place in table if place[0] in (*IMAGES, faces)]
        below = []
        for place in places:
            paper = table[place][CEILING].paper
            ours = round(table[place][OURS].mean("map"), 3)
            if paper is not None and ours < paper:
                below.append(f"{place[0]} {place[1]}: {short(ours)} against {short(paper)}")
        note = f" ({'; '.join(below)})" if below else ""
        print(f"| {faces} | {len(places) - len(below)} of {len(places)}{note} |")


if __name__ == "__main__":
    main()
