"""The tables of docs/reproduction.md, as Markdown, from the kept results. Measures nothing.

python benchmarks/reproduction.py
"""

from __future__ import annotations

import csv
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
METHODS = ("KPCA", "KDA", "KSDA", "KSELF", "KLPP", "EnFS", "LDSU truncate", "LDSU")
WITHIN = 0.03


def read(experiment: str) -> list[dict[str, str]]:
    with (RESULTS / experiment / "table.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> None:
    rows = [row for name in ("table1", "yaleb") for row in read(name)]
    oracle = {(r["data"], int(r["labels"]), r["method"]): r for r in rows if r["selection"] == "oracle"}
    honest = {(r["data"], int(r["labels"]), r["method"]): r for r in rows if r["selection"] == "honest"}
    places = list(dict.fromkeys((data, labels) for data, labels, _ in oracle))
    for title, table in (("oracle", oracle), ("honest", honest)):
        print(f"\nMAP, {title}: ours, and the difference to the paper; bold within {WITHIN}\n")
        print(f"| | labels | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}")
        for data, labels in places:
            cells = []
            for method in METHODS:
                row = table.get((data, labels, method))
                if row is None:
                    cells.append("")
                    continue
                difference = float(row["difference"])
                text = f"{float(row['mean']):.3f} ({difference:+.3f})".replace("0.", ".")
                cells.append(f"**{text}**" if abs(difference) <= WITHIN + 1e-9 else text)
            print(f"| {data} | {labels} | {' | '.join(cells)} |")
    print("\nLDSU at or above the paper's LDSU, oracle, three decimals:\n")
    image = ("coil20", "umist/distinct", "usps")
    for faces in ("yaleb/log", "yaleb/local-contrast", "yaleb/pixels"):
        counts = []
        for methods in (("LDSU truncate",), ("LDSU",), ("LDSU truncate", "LDSU")):
            cells = [(d, n) for d, n in places if d in (*image, faces)]
            above = [
                max(round(float(oracle[d, n, m]["map_mean"]), 3) for m in methods)
                >= round(float(oracle[d, n, methods[0]]["paper_map_mean"]), 3)
                for d, n in cells
            ]
            short = ", ".join(f"{d} {n}" for (d, n), ok in zip(cells, above, strict=True) if not ok)
            counts.append(f"{' or '.join(methods)}: {sum(above)} of {len(above)} (short: {short or 'none'})")
        print(f"- with {faces}: " + "; ".join(counts))


if __name__ == "__main__":
    main()
