"""The things around the library: demo, benchmarks, versions."""

import csv
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ldsu
from chromium import CHROMIUM

ROOT = Path(__file__).parents[1]

unix = pytest.mark.skipif(sys.platform == "win32", reason="benchmarks measure memory with the module resource of Unix")
TINY_GPU = ["--exact-rows", 60, "--sparse-rows", 200, "--transform-rows", 20, "--tiled-rows", 150]


def run(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # a minute, and .ci/run runs the demo itself
def test_demo_ends_with_a_table_and_a_report(tmp_path):
    # The file of the demo with fewer digits and repetitions.
    small = tmp_path / "digits.toml"
    text = (ROOT / "experiments" / "digits.toml").read_text()
    text = text.replace("repetitions = 3", "repetitions = 2").replace("labels = [1, 3, 5, 10]", "labels = [3]")
    small.write_text(text.replace('name = "digits"', 'name = "digits"\nrows = 200'))
    store = tmp_path / "digits.sqlite"
    run("-m", "ldsu", "bench", "run", small, "--store", store, "--quiet")
    output = run("-m", "ldsu", "bench", "report", small, "--store", store, "--out", tmp_path / "demo")
    assert all(name in output for name in ldsu.METHODS)
    assert str(tmp_path / "demo" / "index.html") in output.replace("\n", "")
    page = (tmp_path / "demo" / "index.html").read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)


@unix
@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("exact", ["--sizes", 60, "--repeats", 1]),
        ("cliques", ["--n", 200]),
        ("choices", ["--sets", "digits-unequal", "--labels", 1, "--splits", 1, "--settings", "default", "raw scores"]),
        ("scores", ["--sets", "digits-unequal", "--labels", 1, "--splits", 1]),
        ("refit", ["--rows", 240, "--labels", 20, "--repeats", 1]),
        ("sharing", ["--rows", 120, "--sample", 2, "--methods", "KDA", "KPCA"]),
        ("svm", ["--repeats", 2]),
        ("gpu", ["--device", "torch", "--repeats", 1, *TINY_GPU]),
        ("neighbors", ["--data", "digits", "--sizes", 300, "--methods", "cells", "brute"]),
        ("agreement", ["--sets", "digits", "--splits", 1, "--labels", 3, "--variants", "exact", "sparse"]),
        ("scale", ["--tiny", "--parts", "usps", "kpca", "mnist", "covertype", "growth"]),
        ("choice", ["--data", "digits", "--sizes", 150, "--labels", 3, "--repeats", 1]),
        ("transduction", ["--tiny"]),
        ("curves", ["--sets", "digits", "--labels", 1, 3, "--splits", 1, "--rows", 200]),
        ("parameters", ["--tiny"]),
        ("robustness", ["--tiny"]),
        ("encoding", ["--tiny", "--splits", 1, "--labels", 3]),
        ("encoders", ["--made", "--splits", 1, "--labels", 3]),
        ("readers", ["--tiny"]),
        ("own", ["--draws", 1, "--tables", "tickets (made up), CSV with text"]),
        ("load", ["--rows", 100, "--transforms", 20, "--model-rows", 60, "--fits", 10]),
        ("scaleout", ["--sizes", 1200, "--workers", 1, "--memory", "2GiB", "--min-anchors", 10]),
        pytest.param("killed_worker", ["--rows", 4000, "--repeats", 1, "--stages", "solve"], marks=pytest.mark.slow),
        (
            "active",
            ["--sets", "digits", "--rows", 60, "--draws", 1, "--strategies", "random", "herding", "--no-others"],
        ),
        ("studio", ["--points", 2000, "--rows", 300, "--repeats", 1, "--seconds", 0.3]),
        ("search", ["--rows", 200, "--grid-part", 0.0005, "--sample", 2]),
    ],
)
def test_benchmark_runs_at_tiny_size_and_writes_rows(script, arguments, tmp_path):
    if script == "gpu":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if script == "studio" and CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    run(f"benchmarks/{script}.py", *arguments, "--out", tmp_path)
    with (tmp_path / f"{script}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(float(row["value"]) > 0 and row["versions"].startswith("python") for row in rows)


@unix
def test_calibration_benchmark_runs_at_tiny_size_and_writes_shares_and_scores(tmp_path):
    run("benchmarks/calibration.py", "--tiny", "--out", tmp_path)
    with (tmp_path / "calibration.csv").open() as file:
        rows = list(csv.DictReader(file))
    # Some of its figures are truly 0: the familiarity of rows far from everything.
    assert all(float(row["value"]) >= 0 for row in rows)
    errors = [float(row["value"]) for row in rows if row["unit"] == "calibration error"]
    assert errors
    assert all(0 < error < 1 for error in errors)


@unix
def test_the_model_of_a_cluster_repeats_the_kept_measurements():
    output = run("benchmarks/scaleout_model.py")
    rows = [
        line.split("|")[1:-1] for line in output.splitlines() if re.fullmatch(r"(\| [\d,]+ ){2}(\| \d+ s ){2}\|", line)
    ]
    assert len(rows) >= 3
    for _, _, measured, model in rows:
        assert 0.5 < float(model.split()[0]) / float(measured.split()[0]) < 2


@unix
def test_kept_summaries_are_what_the_benchmarks_print_of_their_kept_rows(tmp_path):
    run("benchmarks/summaries.py", "--out", tmp_path)
    kept = {path.name: path.read_text() for path in (ROOT / "results" / "summaries").iterdir()}
    assert kept == {path.name: path.read_text() for path in tmp_path.iterdir()}


def figures_without_a_result(*pages):
    command = [sys.executable, ROOT / "docs" / "check_figures.py", *pages]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()


def test_measured_figures_of_the_documents_occur_in_kept_results():
    failed = figures_without_a_result()
    assert not failed, failed


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("`python benchmarks/lead.py`: +.017 of MAP, .0163 s.", ["0163 s"]),
        ("`python benchmarks/lead.py`: a lead of .0161, -.026, 29 of 216 cells.", ["0161", "-.026"]),
        ("`python benchmarks/lead.py`: 34 of 216 cells.", ["34 of 216"]),
        ("`python benchmarks/scale.py`: 15.4 s, 0.26 min, 1,050 MiB.", []),
        ("`python benchmarks/scale.py`: 15.3 s and 26 times.", ["15.3 s"]),
        ("A lead of .016.", ["no benchmark is named"]),
        ("A lead of .987 (prototype, rows not kept), `delta=0.987`, 2026-11-18, Python 3.11.", []),
        ("## Up\n`python benchmarks/lead.py`\n### Down\nA lead of .017.\n## Next\nA lead of .017.", ["7: .017"]),
        ("`python benchmarks/choice.py`\n\n| n | LDSU() | LDSUClassifier() |\n|---|---|---|\n| 500 | 2 | 3 |", ["row"]),
    ],
)
def test_a_figure_that_no_kept_result_has_is_reported(text, failed, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n{text}\n")
    lines = figures_without_a_result(page).splitlines()
    assert len(lines) == len(failed)
    assert all(part in line for part, line in zip(failed, lines, strict=True))


def test_documents_have_no_blanks_left_and_link_to_files_that_exist():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        assert "@@" not in text, page.name
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            assert "://" in link or (page.parent / link).exists(), f"{page.name} links to {link}"


def test_versions_agree():
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]
    assert f"version: {ldsu.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## {re.escape(ldsu.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_importing_the_package_does_not_import_its_extras():
    # scikit-learn itself imports pandas and rich where they are installed, so they say nothing here.
    loaded = run(
        "-c",
        "import ldsu, sys; print(sorted({'click', 'PIL', 'polars', 'pytest', 'torch', 'umap'} & set(sys.modules)))",
    )
    assert loaded.strip() == "[]"
