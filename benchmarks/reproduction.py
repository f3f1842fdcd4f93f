"""The tables of docs/reproduction.md, as Markdown, from the kept results. Measures nothing.

python benchmarks/reproduction.py
"""

from __future__ import annotations

import csv
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
METHODS = ("KPCA", "KDA", "KSDA", "KSELF", "KLPP", "EnFS", "LDSU truncate", "LDSU")
IMAGES = ("COIL-20", "UMIST", "USPS")
FACES = ("Yale B, log", "Yale B, log, wider kernels", "Yale B, local contrast", "Yale B, pixels")
WITHIN = 0.03
Place = tuple[str, int]
Table = dict[Place, dict[str, dict[str, str]]]


def read(selection: str) -> Table:
    """Rows by (data, labels), then method."""
    table: Table = {}
    for experiment in ("table1", "yaleb"):
        with (RESULTS / experiment / "table.csv").open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                title = row["title"]
                if experiment == "yaleb" and title == "Yale B, log":
                    title += ", wider kernels"
                if row["selection"] == selection:
                    table.setdefault((title, int(row["labels"])), {})[row["method"]] = row
    return table


def cell(row: dict[str, str] | None) -> str:
    if row is None:
        return ""
    difference = float(row["difference"])
    text = f"{float(row['map_mean']):.3f} {difference:+.3f}".replace("0.", ".")
    return f"**{text}**" if abs(difference) <= WITHIN + 1e-9 else text


def above(table: Table, place: Place, methods: tuple[str, ...]) -> bool:
    """Whether one of the methods is at or above the paper's LDSU, in the three decimals that it prints."""
    rows = [table[place][method] for method in methods]
    return max(round(float(row["map_mean"]), 3) for row in rows) >= float(rows[0]["paper_map_mean"])


def main() -> None:
    oracle = read("oracle")
    for selection, table in (("oracle", oracle), ("honest", read("honest"))):
        print(f"\nMAP, {selection}: ours and its difference to the paper, bold within {WITHIN}.\n")
        print(f"| | labels | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}")
        for (data, labels), rows in table.items():
            print(f"| {data} | {labels} | {' | '.join(cell(rows.get(method)) for method in METHODS)} |")
    print("\nCells at or above the paper's LDSU, oracle:\n")
    print("| Yale B prepared as | LDSU truncate | LDSU | the better of the two |\n|---|---|---|---|")
    for faces in FACES:
        places = [place for place in oracle if place[0] in (*IMAGES, faces)]
        counts = []
        for methods in (("LDSU truncate",), ("LDSU",), ("LDSU truncate", "LDSU")):
            short = [f"{data} {labels}" for data, labels in places if not above(oracle, (data, labels), methods)]
            counts.append(
                f"{len(places) - len(short)} of {len(places)}" + (f" (not {', '.join(short)})" if short else "")
            )
        print(f"| {faces} | {' | '.join(counts)} |")


if __name__ == "__main__":
    main()
