"""Table 1 of the paper: mean average precision of seven methods, five repetitions."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

REPETITIONS = 5
IMAGE_SETS = ("coil20", "umist", "usps", "yaleb")
TOLERANCE = 0.03  # two figures within this agree


class PaperScore(NamedTuple):
    """Mean and standard deviation over the paper's repetitions."""

    mean: float
    std: float


@cache
def table1() -> dict[tuple[str, int, str], PaperScore]:
    """The paper's Table 1, by data set, labels per class and method.

    >>> table1()["umist", 3, "LDSU"]
    PaperScore(mean=0.889, std=0.001)
    """
    text = (resources.files("ldsu.bench") / "table1.csv").read_text(encoding="utf-8")
    return {
        (row["dataset"], int(row["labels_per_class"]), row["method"]): PaperScore(
            float(row["map_mean"]), float(row["map_std"])
        )
        for row in csv.DictReader(text.splitlines())
    }


def paper_score(data: str | None, labels: int, family: str) -> PaperScore | None:
    """The paper's score of a family (its LDSU for any filter of LDSU) on its data set `data`; None if it has none."""
    return None if data is None else table1().get((data, labels, "LDSU" if is_ldsu(family) else family))


def is_ldsu(family: str) -> bool:
    """Whether a family is LDSU, with any filter."""
    return family.split()[0] == "LDSU"


def is_papers_method(family: str) -> bool:
    """Whether a family is the same algorithm as in the paper, whose LDSU truncates."""
    return family == "LDSU truncate" or (not is_ldsu(family) and any(name == family for _, _, name in table1()))
