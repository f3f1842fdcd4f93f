"""A person's way through the page, in a real browser: label, select, undo, reload, a crash, export."""

import csv
import json
import os
import subprocess
import sys

import pytest

from chromium import Chromium, needs_browser
from studio_data import HOSTILE, make_points, make_table

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
NAMES = make_points()[1].tolist()
READY = "window.studio?.state && studio.current != null && !studio.state.fitting"
# A polygon on the screen around all rows of the class of a row that is given in its place.
AROUND = """(() => {
  const { map } = studio, box = map.canvas.getBoundingClientRect(), corners = [];
  for (let row = 0; row < map.n; row++) if (map.classes[row] === map.classes[ROW]) corners.push(map.toPixels(row));
  const [xs, ys] = [0, 1].map((axis) => corners.map((corner) => corner[axis]));
  const [left, right] = [Math.min(...xs) - 8 + box.x, Math.max(...xs) + 8 + box.x];
  const [top, bottom] = [Math.min(...ys) - 8 + box.y, Math.max(...ys) + 8 + box.y];
  return [[left, top], [right, top], [right, bottom], [left, bottom], [left, top + 4], [left, top + 4]];
})()"""
# Whether the map has a pixel that is not empty.
DRAWN = """(() => {
  const copy = Object.assign(document.createElement("canvas"), { width: 300, height: 300 }).getContext("2d");
  studio.map.render();
  copy.drawImage(studio.map.canvas, 0, 0, 300, 300);
  return copy.getImageData(0, 0, 300, 300).data.some((value) => value > 0);
})()"""


def start(folder, *options):
    command = [sys.executable, "-m", "ldsu", "label", "table.csv", "--ignore", "comment", "--ignore", "kind"]
    process = subprocess.Popen(
        [*command, "--no-browser", "--json", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COVERAGE_PROCESS_START": ""},
    )
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return process, json.loads(line)


@pytest.fixture
def studio(tmp_path):
    make_table(tmp_path / "table.csv")
    processes = []

    def begin(*options):
        process, found = start(tmp_path, *options)
        processes.append(process)
        return process, found["address"]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def browser(tmp_path):
    opened = Chromium(tmp_path / "profile", 1024, 768)
    yield opened
    opened.close()


@needs_browser
def test_a_person_labels_by_keyboard_and_lasso_undoes_reloads_survives_a_crash_and_exports(studio, browser, tmp_path):
    process, address = studio()
    page = browser
    page.open(address)
    page.wait_for(READY)
    assert page.evaluate("[location.href, document.cookie]") == [address.partition("#")[0], ""]
    assert page.evaluate("document.querySelector('#expected').textContent") == "\N{EN DASH}"

    # Label what is suggested, by keyboard alone: a number, or a name that is typed.
    for done in range(9):
        row = page.evaluate("studio.current")
        known = page.evaluate("studio.state.classes.map(({ name }) => name)")
        if NAMES[row] in known:
            page.press(str(known.index(NAMES[row]) + 1))
        else:
            page.press("Enter")
            page.type(NAMES[row])
            page.press("Enter")
        page.wait_for(f"studio.state.labelled === {done + 1} && studio.current !== {row}")
    page.wait_for("studio.state.classes.length === 3 && studio.state.curve.length && !studio.state.fitting")
    first = page.evaluate("document.querySelector('#accuracy .figure').textContent")
    assert first.count("%") == 3

    # A cell with markup is text.
    page.press("/")
    page.type("ONERROR")
    page.press("Enter")
    page.wait_for("studio.selection.length === 1 && document.querySelectorAll('#grid button').length === 1")
    page.click("#grid button")
    page.wait_for("studio.current === 7 && document.querySelectorAll('#current dd').length")
    assert HOSTILE in page.evaluate("[...document.querySelectorAll('#current dd')].map((cell) => cell.textContent)")
    assert page.evaluate("[document.title, document.querySelectorAll('#current img').length]") == [
        "table.csv \N{EN DASH} ldsu label",
        0,
    ]

    # A lasso around a class, which has a few rows of which the model says something else or that have a label.
    page.wait_for("studio.map.progress() === 1")
    page.press("l")
    page.drag(page.evaluate(AROUND.replace("ROW", "7")))
    selected = page.wait_for("studio.selection.length > 20 && studio.selection.length")
    key = page.evaluate("studio.state.classes.findIndex(({ name }) => name === 'bee')") + 1
    before = page.evaluate("studio.state.labelled")
    page.press(str(key))
    page.wait_for(f"studio.state.labelled > {before} || !document.querySelector('#confirm').hidden")
    if page.evaluate("!document.querySelector('#confirm').hidden"):
        assert "disagree with the model" in page.evaluate("document.querySelector('#question').textContent")
        page.press("Enter")
    page.wait_for(f"studio.state.labelled > {before + 15} && studio.state.labelled <= {before + selected}")
    page.wait_for("!studio.state.fitting")
    assert page.evaluate("document.querySelector('#accuracy .figure').textContent") != first

    # The other class in its place is a question first, and Escape is no.
    page.drag(page.evaluate(AROUND.replace("ROW", "7")))
    page.wait_for("studio.selection.length > 20")
    count = page.evaluate("studio.state.labelled")
    page.press(str(key % 3 + 1))
    page.wait_for("!document.querySelector('#confirm').hidden")
    assert "would change" in page.evaluate("document.querySelector('#question').textContent")
    page.press("Escape")
    page.press("Escape")
    assert page.evaluate("[studio.selection.length, studio.state.labelled]") == [0, count]

    page.press("u")
    page.wait_for(f"studio.state.labelled === {before}")
    page.evaluate("location.reload()")
    page.wait_for(f"{READY} && studio.state.labelled === {before}")
    assert page.errors == []

    process.kill()  # SIGKILL on POSIX
    process.wait()
    page.wait_for("document.querySelector('#message').textContent.includes('connection is lost')")
    page.open("about:blank")
    page.errors.clear()
    _, address = studio()
    page.open(address)
    page.wait_for(f"{READY} && studio.state.labelled === {before} && studio.state.curve.length > 1")

    page.press("e")
    for what in ("labels", "model", "predictions"):
        page.click(f"[data-export={what}]")
        page.wait_for(f"document.querySelector('#written').textContent.includes('.labels') && '{what}'")
        page.wait_for("!document.querySelector('#written').textContent.includes('…')")
    with (tmp_path / "table.labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["given"] != "" for row in rows) == before
    assert all(row["given"] in ("", name) for row, name in zip(rows, NAMES, strict=True))
    assert sum(row["predicted"] == name for row, name in zip(rows, NAMES, strict=True)) > 80
    assert (tmp_path / "table.labels.ldsu").stat().st_size > 1000
    assert (tmp_path / "table.labels-predicted.csv").exists()
    assert page.errors == []


@needs_browser
def test_without_the_token_the_page_says_what_to_do_and_shows_nothing(studio, browser):
    _, address = studio()
    for wrong in (address.partition("#")[0], address[:-1] + ("a" if address[-1] != "a" else "b")):
        browser.open("about:blank")
        browser.open(wrong)
        browser.wait_for("document.querySelector('#message')?.textContent.includes('Open the address')")
        assert browser.evaluate("[studio.state, studio.map.n]") == [None, 0]


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_1024_pixels_and_draws_in_both_themes(studio, tmp_path, dark):
    browser = Chromium(tmp_path / "themes", 1024, 768, dark)
    try:
        browser.open(studio()[1])
        browser.wait_for(READY)
        assert browser.evaluate("[document.documentElement.scrollWidth, document.body.scrollHeight]") == [1024, 768]
        inside = "[...document.querySelectorAll('header > *, aside button')].every((item) => "
        inside += "{ const b = item.getBoundingClientRect(); return b.left >= 0 && b.right <= 1024; })"
        assert browser.evaluate(inside)
        assert browser.evaluate(DRAWN)
        background = browser.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert background == ("rgb(21, 23, 26)" if dark else "rgb(247, 247, 245)")
        assert browser.errors == []
    finally:
        browser.close()


def test_a_second_studio_on_one_journal_and_a_journal_of_other_data_are_refused(studio, tmp_path):
    studio()
    command = [sys.executable, "-m", "ldsu", "label", "table.csv", "--no-browser"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "is open in another `ldsu label`" in done.stderr
    (tmp_path / "table.csv").write_text((tmp_path / "table.csv").read_text().replace("says 9", "says 10"))
    (tmp_path / "other.jsonl").write_bytes((tmp_path / "table.labels.jsonl").read_bytes())
    done = subprocess.run(
        [*command, "--journal", "other.jsonl"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "belongs to other data" in done.stderr
