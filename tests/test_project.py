"""The things around the library: demo, report, benchmarks, versions."""

import csv
import html.parser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ldsu

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def run(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    output = run("examples/demo.py", "--out", folder, "--repeats", 1, "--labels", 3)
    return folder, output


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.addresses = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for key, value in attrs if key in ("src", "href")]


def test_demo_shows_a_table_and_writes_rows_picture_and_report(demo):
    folder, output = demo
    assert all(name in output for name in ldsu.METHODS)
    with (folder / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {*ldsu.METHODS, "LDSU truncate"}
    assert all(0 < float(row["MAP"]) <= 1 and 0 < float(row["accuracy"]) <= 1 for row in rows)
    assert (folder / "features.png").read_bytes().startswith(b"\x89PNG")
    assert not list(folder.glob("*.part*"))


def test_report_is_one_page_that_needs_no_network(demo):
    folder, _ = demo
    page = Page()
    page.feed((folder / "report.html").read_text())
    assert page.tags.count("tr") == len(ldsu.METHODS) + 2
    assert page.addresses
    assert all(address.startswith("data:") for address in page.addresses)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_report_opens_in_a_browser_without_complaint(demo, tmp_path):
    folder, _ = demo
    picture = tmp_path / "page.png"
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1300,1100", f"--screenshot={picture}",
         (folder / "report.html").as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    assert picture.stat().st_size > 50_000


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("exact", ["--sizes", 60, "--repeats", 1]),
        ("cliques", ["--n", 200]),
        ("choices", ["--sets", "digits-unequal", "--labels", 1, "--splits", 1, "--settings", "default", "raw scores"]),
        ("scores", ["--sets", "digits-unequal", "--labels", 1, "--splits", 1]),
    ],
)
def test_benchmark_runs_at_tiny_size_and_writes_rows(script, arguments, tmp_path):
    run(f"benchmarks/{script}.py", *arguments, "--out", tmp_path)
    with (tmp_path / f"{script}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(float(row["value"]) > 0 and row["versions"].startswith("python") for row in rows)


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ldsu.__version__ == project["version"]
    assert f"version: {ldsu.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## {re.escape(ldsu.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_importing_the_package_does_not_import_its_extras():
    # scikit-learn itself imports pandas and rich where they are installed, so they say nothing here.
    loaded = run("-c", "import ldsu, sys; print(sorted({'matplotlib', 'polars', 'pytest'} & set(sys.modules)))")
    assert loaded.strip() == "[]"
