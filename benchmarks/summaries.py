"""Write what the benchmarks print of their kept rows into results/summaries, one file per benchmark. Measures nothing.

python benchmarks/summaries.py [NAME ...]

Run it after rows were measured again. The pages of docs copy their tables and figures from these files, and
``docs/check_figures.py`` compares them.
"""

from __future__ import annotations

import argparse
import io
import runpy
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path

FOLDER = Path(__file__).parent
SUMMARIES = FOLDER.parent / "results" / "summaries"
COMMANDS = {
    "active": ["--kept"],
    "agreement": ["--kept"],
    "calibration": ["--kept"],
    "choice": ["--kept"],
    "curves": ["--kept"],
    "encoders": ["--kept"],
    "fewlabels": [],
    "lead": [],
    "parameters": ["--kept"],
    "reproduction": [],
    "robustness": ["--kept"],
    "scaleout_model": [],
    "tables": [],
    "transduction": ["--kept"],
}


def printed(name: str, arguments: list[str]) -> str:
    """What a benchmark prints, in this process: importing scikit-learn for each of them would take longest."""
    script = FOLDER / f"{name}.py"
    before, sys.argv = sys.argv, [str(script), *arguments]
    output = io.StringIO()
    try:
        with redirect_stdout(output), warnings.catch_warnings():
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = before
    return output.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}; default: all")
    parser.add_argument("--out", type=Path, default=SUMMARIES)
    options = parser.parse_args()
    if unknown := set(options.names) - set(COMMANDS):
        parser.error(f"no summary of {', '.join(sorted(unknown))}")
    sys.path.insert(0, str(FOLDER))
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or COMMANDS:
        lines = [line.rstrip() for line in printed(name, COMMANDS[name]).strip().splitlines()]
        command = " ".join(["python", f"benchmarks/{name}.py", *COMMANDS[name]])
        text = "\n".join([f"Printed by `{command}`.", "", *lines, ""])
        (options.out / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
