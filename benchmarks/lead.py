"""What LDSUClassifier() leads by, or lacks, on tables, as Markdown, from the kept results. Measures nothing.

ldsu bench run experiments/tables.toml && ldsu bench report experiments/tables.toml --out results/tables
python benchmarks/lead.py [results/tables/table.csv]        # and updates.csv beside it, if there is one

A cell is a table, a way of drawing labels and a number of labels. Peers have their fixed settings, or those chosen by
cross-validation where these were computed.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "tables" / "table.csv"
UPDATES = "updates.csv"  # beside the table: rows of methods that were computed again later
OURS, FOREST = "LDSU auto", "RandomForest"
FINDING = [
    "anneal",
    "audiology",
    "breast-w",
    "cmc",
    "column3c",
    "cylinder-bands",
    "hypothyroid",
    "letter",
    "nursery",
    "page-blocks",
    "sick",
    "spambase",
    "vote",
    "zoo",
]
METRICS = ("map", "accuracy")
BEHIND, FAR_BEHIND = 0.02, 0.05
Cell = tuple[str, int]


def read(path: Path) -> dict[Cell, dict[str, np.ndarray]]:
    """Scores (splits, 2) by cell and method, with honest choices, of methods that have every split that ours has."""
    cells: dict[Cell, dict[str, np.ndarray]] = {}
    for part in (path, path.with_name(UPDATES)):
        if not part.exists():
            continue
        with part.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["selection"] == "honest":
                    scores = np.array([json.loads(row[f"{metric}_splits"]) for metric in METRICS]).T
                    cells.setdefault((row["data"], int(row["labels"])), {})[row["method"]] = scores
    whole = {
        cell: {name: scores for name, scores in methods.items() if len(scores) == len(methods[OURS])}
        for cell, methods in cells.items()
        if OURS in methods
    }
    return {cell: methods for cell, methods in whole.items() if len(methods) > 1}


def behind(methods: dict[str, np.ndarray], metric: int) -> tuple[float, float, str]:
    """By how much ours is behind the best peer of a cell, the standard error of that, and the peer's name."""
    peers = {name: scores for name, scores in methods.items() if name != OURS}
    best = max(peers, key=lambda name: float(peers[name][:, metric].mean()))
    differences = peers[best][:, metric] - methods[OURS][:, metric]
    return float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(differences.size)), best


def lead(cells: dict[Cell, dict[str, np.ndarray]], peer: str) -> str:
    """Mean lead over one peer, MAP and accuracy."""
    both = [(methods[OURS] - methods[peer]).mean(axis=0) for methods in cells.values() if peer in methods]
    return " / ".join(f"{value:+.3f}" for value in np.mean(both, axis=0)) if both else ""


def main() -> None:
    cells = read(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
    halves = {
        "finding": {cell: found for cell, found in cells.items() if cell[0].split("/")[0] in FINDING},
        "checking": {cell: found for cell, found in cells.items() if cell[0].split("/")[0] not in FINDING},
        "all": cells,
    }
    peers = sorted({name for methods in cells.values() for name in methods} - {OURS})
    print("Mean lead of LDSUClassifier(), MAP / accuracy:\n")
    print(f"| over | {' | '.join(f'{name} ({len(part)} cells)' for name, part in halves.items())} |\n|---|---|---|---|")
    for peer in peers:
        print(f"| {peer} | {' | '.join(lead(part, peer) for part in halves.values())} |")
    print(f"\nMean lead over {FOREST} by labels, MAP / accuracy:\n")
    print("| labels | finding | checking | all |\n|---|---|---|---|")
    for drawn in (False, True):
        for labels in sorted({cell[1] for cell in cells if cell[0].endswith("/rows") == drawn}):
            parts = (
                {
                    cell: found
                    for cell, found in part.items()
                    if cell[0].endswith("/rows") == drawn and cell[1] == labels
                }
                for part in halves.values()
            )
            name = f"{labels} in all" if drawn else f"{labels} per class"
            print(f"| {name} | {' | '.join(lead(part, FOREST) for part in parts)} |")
    for number, metric in enumerate(METRICS):
        print(f"\nCells behind the best peer of the cell, {metric}:\n")
        print(f"| cells | by more than {BEHIND} and a standard error | by more than {FAR_BEHIND} |\n|---|---|---|")
        for name, part in halves.items():
            found = {cell: behind(methods, number) for cell, methods in part.items()}
            clearly = [cell for cell, (by, error, _) in found.items() if by > max(BEHIND, error)]
            far = {cell: found[cell] for cell in clearly if found[cell][0] > FAR_BEHIND}
            listed = ", ".join(f"{data} {labels} ({by:.2f}, {best})" for (data, labels), (by, _, best) in far.items())
            share = len(clearly) / max(len(part), 1)
            names = f": {listed}" if name != "all" else ""
            print(f"| {name} | {len(clearly)} of {len(part)} ({share:.0%}) | {len(far)}{names} |")


if __name__ == "__main__":
    main()
