"""Tables of exact, cliques, scores and choices, as Markdown, from the kept rows. Measures nothing.

python benchmarks/tables.py
"""

from __future__ import annotations

import csv
from collections import defaultdict
from statistics import mean, median

from rows import RESULTS

IMAGES_AND_TEXTS = ("digits", "digits-unequal", "umist", "coil20", "usps", "yaleb", "pcmac", "pcmac-unequal")


def read(benchmark: str) -> list[dict[str, str]]:
    with (RESULTS / f"{benchmark}.csv").open() as file:
        return list(csv.DictReader(file))


def table(rows: list[dict[str, str]], unit: str, title: str) -> None:
    """Mean over splits: a line a setting, a column a data set with its label counts joined by blanks."""
    values: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        if row["unit"] == unit:
            name, labels = row["case"].split(", ")
            values[row["what"]][name][int(labels.split()[0])].append(float(row["value"]))
    sets = list(next(iter(values.values())))
    print(f"\n{title}\n\n| | {' | '.join(sets)} |\n|---|{'---|' * len(sets)}")
    for what, by_set in values.items():
        cells = [" ".join(f"{mean(v):.3f}".lstrip("0") for _, v in sorted(by_set[name].items())) for name in sets]
        print(f"| {what} | {' | '.join(cells)} |")


def pooled(row: dict[str, str]) -> dict[str, str]:
    """A row of one of many tables, to be averaged with those of the others."""
    return {**row, "case": f"tables, {row['case'].split(', ')[1]}"}


def times() -> None:
    rows = read("exact")
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        seconds[row["what"], row["n"]].append(float(row["value"]))
    sizes = sorted({row["n"] for row in rows}, key=int)
    print("\nSeconds, and times the two eigendecompositions\n")
    print("| | " + " | ".join(f"n = {n}" for n in sizes) + " |\n|---|" + "---|" * len(sizes))
    for what in dict.fromkeys(row["what"] for row in rows):
        ratios = [median(seconds[what, n]) / median(seconds["two eigendecompositions", n]) for n in sizes]
        cells = [f"{median(seconds[what, n]):.2f} ({r:.2f})" for n, r in zip(sizes, ratios, strict=True)]
        print(f"| {what} | {' | '.join(cells)} |")
    print(f"\n{rows[0]['date']}, {rows[0]['machine']}, {rows[0]['versions']}")


if __name__ == "__main__":
    times()
    print(
        "\nCliques:",
        "; ".join(f"{r['case']} n = {r['n']} {r['what']}: {r['value']} {r['unit']}" for r in read("cliques")),
    )
    scores = [row if row["case"].split(", ")[0] in IMAGES_AND_TEXTS else pooled(row) for row in read("scores")]
    table(scores, "accuracy", "Accuracy with raw, standardized and default scores, 1 / 3 / 10 labels per class")
    table(read("choices"), "MAP", "MAP, 1 / 3 / 10 labels per class")
    table(read("choices"), "accuracy", "Accuracy, 1 / 3 / 10 labels per class")
