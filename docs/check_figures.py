"""Check that the measured figures of README.md and docs occur in kept results.

python docs/check_figures.py [PAGE ...]

A figure is a number with a decimal point, a unit or a percent sign, a signed number in a table, or "N of M". Numbers
in code, in dates and in versions are none: parameters and commands are written as code. A figure is looked up in the
results of the benchmarks that its paragraph names (``python benchmarks/lead.py``, or the kept file,
``benchmarks/results/scale.csv``) or that the sections it links to name; if there are none, of those of its section, or
of the section above. The results of a benchmark are what it prints of its kept rows (``results/summaries``), or without
a summary the mean, median, least and largest value of each measurement. A figure must be one of these numbers, rounded
to the digits that the page shows. A table with the header of a table of a summary must consist of rows of that summary.

A paragraph or list item is not checked if it says "rows not kept", nor is what ``EXCEPTIONS`` lists with a reason.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).parents[1]
ROWS, SUMMARIES = ROOT / "benchmarks" / "results", ROOT / "results" / "summaries"
MARK = "rows not kept"
# (page, text): why the figures in this text of the page are no measurements with kept rows.
EXCEPTIONS: dict[tuple[str, str], str] = {}

NAMED = re.compile(r"(?:benchmarks/(?:results/)?|results/summaries/)([\w-]+)\.(?:py|csv|txt)")
HEADING = re.compile(r"(#+) +(.*)")
LINK = re.compile(r"\]\(([^)\s]*)\)")
# Characters that hold no figure; they are blanked, so that columns and lines stay.
HIDDEN = re.compile(
    r"<!--.*?-->|^```.*?^```|`[^`\n]+`|\]\([^)\s]*\)|\$[^$\n]+\$|https?://\S+|\b\d{4}-\d\d(?:-\d\d)?\b|\b\d+\.\d+\.\d[\w.]*"
    r"|\b(?:CUDA|Dask|MATLAB|NumPy|Python|PyTorch|SciPy|glibc|joblib|ldsu|loky|matplotlib|pandas|polars|scikit-learn|skrub)"
    r" \d+(?:\.\d+)*(?:(?: to |, | and )\d+\.\d+)*|\bCC BY[A-Z-]* \d\.\d",
    re.MULTILINE | re.DOTALL,
)
# By what a value in the unit of the rows (seconds, GiB, a share) is multiplied for each unit of a page.
UNITS = {
    "%": (1, 100),
    "ms": (1, 1e3),
    "s": (1, 1e-3),
    "seconds": (1, 1e-3),
    "min": (1, 1 / 60),
    "minutes": (1, 1 / 60),
    "hours": (1, 1 / 3600),
    "GiB": (1,),
    "GB": (1, 2**30 / 1e9),
    "MiB": (1, 2**10),
    "MB": (1, 2**30 / 1e6),
    "kB": (1,),
    "times": (1,),
}
FIGURE = re.compile(
    r"(?<![\w.])(?<![A-Za-z]-)(?P<sign>(?<![\d)])[+\u2212-])?(?P<number>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?![\w]|[.,]\d)"
    rf"(?:\s?(?P<unit>{'|'.join(UNITS)})(?!\w))?"
)
COUNTS = re.compile(r"(?<![\w.,])(\d+) of (?:the )?(\d+)(?![\w]|[.,]\d)")


@dataclass
class Results:
    """Lines of kept results, and the numbers in them, as they are signed."""

    lines: set[str] = field(default_factory=set)
    values: set[float] = field(default_factory=set)

    def add(self, text: str) -> None:
        """Take up the lines and numbers of a text."""
        self.lines |= {plain(line) for line in text.splitlines()}
        self.values |= {value(found) for found in FIGURE.finditer(text)}


@dataclass
class Section:
    """A heading with the lines up to the next one."""

    level: int
    anchor: str
    first: int  # number of its first line
    lines: list[str]
    above: Section | None


def plain(line: str) -> str:
    """A line of a table without emphasis and with single blanks."""
    return " ".join(line.replace("*", "").split())


def value(found: re.Match[str]) -> float:
    """The number of a match, with its sign."""
    number = float(found["number"].replace(",", ""))
    return -number if found["sign"] in ("-", "\u2212") else number


@cache
def results(name: str) -> Results:
    """What is kept of a benchmark; nothing for one without rows."""
    kept = Results()
    summary, rows = SUMMARIES / f"{name}.txt", ROWS / f"{name}.csv"
    if summary.exists():
        kept.add(summary.read_text(encoding="utf-8").partition("\n")[2])
    elif rows.exists():
        repeats: dict[tuple[str, ...], list[float]] = defaultdict(list)
        with rows.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                repeats[row["case"], row["n"], row["what"], row["unit"], row["date"]].append(float(row["value"]))
        for values in repeats.values():
            kept.values |= {mean(values), median(values), min(values), max(values)}
    return kept


@cache
def sections(page: Path) -> list[Section]:
    """The sections of a page; a "#" within code is no heading."""
    text = page.read_text(encoding="utf-8")
    code = {
        number
        for found in re.finditer(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
        for number in range(text.count("\n", 0, found.start()), text.count("\n", 0, found.end()) + 1)
    }
    found = [Section(0, "", 1, [], None)]
    for number, line in enumerate(text.splitlines()):
        heading = None if number in code else HEADING.fullmatch(line)
        if heading:
            above: Section | None = found[-1]
            while above and above.level >= len(heading[1]):
                above = above.above
            anchor = re.sub(r"[^\w -]", "", heading[2].lower()).strip().replace(" ", "-")
            found.append(Section(len(heading[1]), anchor, number + 1, [], above))
        found[-1].lines.append(line)
    return found


def named(page: Path, text: str) -> list[str]:
    """The benchmarks that a text names, and those that hold for the sections it links to."""
    names = NAMED.findall(text)
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        other = (page.parent / target).resolve() if target else page
        if other.suffix == ".md" and other.exists():
            for part in sections(other):
                above: Section | None = part if not anchor or part.anchor == anchor else None
                while above and not (found := NAMED.findall("\n".join(above.lines))):
                    above = above.above
                names += found if above else []
    return list(dict.fromkeys(names))


def sources(page: Path, section: Section, block: range) -> list[str]:
    """The benchmarks that hold for a paragraph: those it names, else those of its section, else of the one above."""
    names = named(page, "\n".join(section.lines[n] for n in block))
    above: Section | None = section
    while above and not names:
        names = named(page, "\n".join(above.lines))
        above = above.above
    return names


def paragraphs(lines: list[str]) -> list[range]:
    """Line numbers of the blocks between blank lines; each item of a list is a block."""
    starts = [
        n for n, line in enumerate(lines) if n == 0 or not lines[n - 1].strip() or re.match(r"\s*([-*]|\d+\.) ", line)
    ]
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(lines)], strict=False)]


def matches(found: re.Match[str], known: list[Results]) -> bool:
    """Whether a figure is a kept number, rounded to the digits shown; one without a sign is so by its size."""
    shown, digits = value(found), len(found["number"].partition(".")[2])
    slack = 0.5 * 10.0**-digits * (1 + 1e-6)
    return any(
        abs((one if found["sign"] else abs(one)) * factor - shown) <= slack
        for kept in known
        for one in kept.values
        for factor in UNITS.get(found["unit"] or "", (1,))
    )


def counted(found: re.Match[str], known: list[Results]) -> bool:
    """Whether "N of M" are two numbers of one line of the results."""
    pair = [re.compile(rf"(?<![\w.,]){number}(?![\w]|[.,]\d)") for number in found.groups()]
    return any(all(number.search(line) for number in pair) for kept in known for line in kept.lines)


def failures(page: Path) -> list[str]:
    """A line for each figure of a page that is in no kept result, and for each exception without a figure."""
    name = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
    text = page.read_text(encoding="utf-8")
    excepted = [part for where, part in EXCEPTIONS if where == name]
    problems = [f"{name}: EXCEPTIONS lists {part!r}, which is not there" for part in excepted if part not in text]
    for part in excepted:
        text = text.replace(part, re.sub(r"\d", " ", part))
    visible = HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text).splitlines()
    for section in sections(page):
        for block in paragraphs(section.lines):
            names = sources(page, section, block)
            known = [results(one) for one in names]
            where = f"the results of {', '.join(names)}" if names else "any results: no benchmark is named"
            if MARK in " ".join(" ".join(section.lines[n] for n in block).split()):
                continue
            copied = False
            for n in block:
                line, at = section.lines[n], f"{name}:{section.first + n}"
                if line.startswith("|") and not section.lines[n - 1].startswith("|"):
                    copied = any(plain(line) in kept.lines for kept in known)
                if copied and line.startswith("|"):
                    if not any(plain(line) in kept.lines for kept in known):
                        problems.append(f"{at}: this row is not printed: {line}")
                    continue
                shown = visible[section.first - 1 + n]
                for found in COUNTS.finditer(shown):
                    if not counted(found, known):
                        problems.append(f"{at}: {found[0]} is not in {where}")
                for found in FIGURE.finditer(COUNTS.sub(lambda found: " " * len(found[0]), shown)):
                    measured = "." in found["number"] or found["unit"] or (found["sign"] and line.startswith("|"))
                    if measured and not matches(found, known):
                        problems.append(f"{at}: {found[0].strip()} is not in {where}")
    return problems


def main() -> None:
    """Print all failures of the pages."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [page for page in pages if not {"gallery", "generated"} & set(page.parts)]
    if len(sys.argv) > 1:
        pages = [Path(page).resolve() for page in sys.argv[1:]]
    problems = [problem for page in pages for problem in failures(page)]
    print("\n".join(problems))
    sys.exit(f"{len(problems)} figures without a kept result" if problems else 0)


if __name__ == "__main__":
    main()
