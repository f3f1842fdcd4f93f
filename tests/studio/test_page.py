"""A person's way through the page, in a real browser: label, select, undo, reload, a crash, export."""

import csv
import http.client
import json
import os
import random
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from chromium import Chromium, needs_browser
from ldsu.studio.journal import read_journal
from studio_data import HOSTILE, answer_suggestion, make_points, make_table

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
    command = [sys.executable, "-m", "ldsu", "label", "table.csv", "--ignore", "comment"]
    if "--label" not in options:
        command += ["--ignore", "kind"]
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


class Client:
    """The requests of a page, without one."""

    def __init__(self, address):
        parts = urlsplit(address)
        own = f"{parts.hostname}:{parts.port}"
        self.connection = http.client.HTTPConnection(own, timeout=30)
        self.headers = {"Origin": f"http://{own}", "Content-Type": "application/json", "X-LDSU-Studio": "1"}
        self.headers["Cookie"] = self.ask("POST", "/login", {"token": parts.fragment.partition("=")[2]})[1]

    def ask(self, method, path, body=None):
        self.connection.request(method, path, body and json.dumps(body), self.headers)
        response = self.connection.getresponse()
        assert response.status == 200
        return json.loads(response.read()), response.getheader("Set-Cookie", "").partition(";")[0]

    def get(self, path):
        return self.ask("GET", path)[0]

    def post(self, action, body):
        return self.ask("POST", f"/{action}", body)[0]

    def state(self):
        return self.get("/state")


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
        row = answer_suggestion(page, NAMES)
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
def test_everything_can_be_done_by_keyboard_and_nothing_is_loaded_from_elsewhere(studio, browser, tmp_path):
    _, address = studio("--label", "kind")  # six labels
    page = browser
    page.open(address)
    page.wait_for(f"{READY} && studio.state.model")

    for key, mark in (("s", "skip"), ("?", "unsure"), ("n", "none")):
        row = page.evaluate("studio.current")
        marked = page.evaluate("studio.state.marked")
        page.press(key)
        page.wait_for(f"studio.state.marked === {marked + 1} && studio.current !== {row}")
        assert page.evaluate(f"fetch('/row/{row}').then((found) => found.json())")["mark"] == mark
    row = page.evaluate("studio.current")
    page.press(" ")
    page.wait_for(f"studio.current !== {row}")

    # Zoom to a part of the map, select what is in view, and label only the rows that agree.
    page.wait_for("!studio.state.fitting && studio.map.progress() === 1")
    for key in ("+", "ArrowLeft", "ArrowUp", "-"):
        page.press(key)
    page.press("v")
    selected = page.wait_for("studio.selection.length")
    page.press("1")
    page.wait_for("!document.querySelector('#confirm').hidden")
    before = page.evaluate("studio.state.labelled")
    page.press("a")
    page.wait_for(f"studio.state.labelled > {before} && studio.state.labelled < {before + selected}")
    page.press("0")
    assert page.evaluate("studio.map.zoom") == 1
    page.press("u")
    page.wait_for(f"studio.state.labelled === {before}")

    # A class by Tab and Enter: the button keeps the focus although it is drawn anew.
    page.wait_for("!studio.state.fitting")
    page.evaluate("document.querySelector('#classes button').focus()")
    labelled = page.evaluate("studio.state.labelled")
    page.press("Enter")
    page.wait_for(f"studio.state.labelled === {labelled + 1} && !studio.state.fitting")
    assert page.evaluate("document.activeElement === document.querySelector('#classes button')")
    page.press("Escape")  # Enter is for names again
    page.press("u")
    page.wait_for(f"studio.state.labelled === {labelled}")

    # A wrong label is named, found by its key, and corrected; a class name with markup is text.
    page.wait_for("!studio.state.fitting")
    for row in (*range(12, 30), 1):
        page.evaluate(f"studio.look({row})")
        page.press("1" if row == 1 else str("abc".index(NAMES[row][0]) + 1))  # row 1 is a bee
        page.wait_for(f"studio.current !== {row}")
    page.wait_for("studio.state.doubtful.length && !document.querySelector('#wrong').hidden")
    page.press("d")
    page.wait_for("studio.current === studio.state.doubtful[0].row")
    page.wait_for("document.querySelector('#current').textContent.includes('without this label the model says')")
    page.press("Enter")
    page.type(HOSTILE[:90])
    page.press("Enter")
    page.wait_for("studio.state.classes.length === 4 && !studio.state.doubtful.some(({ row }) => row === 1)")
    assert page.evaluate("[document.title.includes('taken'), document.querySelectorAll('#classes img').length]") == [
        False,
        0,
    ]
    page.press("u")
    page.wait_for("studio.state.classes.length === 3")

    page.press("e")
    page.press("Enter")  # the first button has the focus
    page.wait_for("document.querySelector('#written').textContent.includes('table.labels.csv')")
    page.press("Escape")
    page.press("h")
    page.wait_for("document.querySelector('#help').open")
    page.press("Escape")
    assert page.errors == []
    own = address.partition("#")[0]
    assert page.requests
    assert [url for url in page.requests if not url.startswith(own)] == []


ATTACKER = """<!doctype html><title>another page</title><iframe id="frame" src="OWN"></iframe>
<form id="form" method="post" action="OWNlabel" enctype="text/plain" target="_blank">
<input name='{"rows":[40],"class":"ant"}'></form>
<script>
const own = "OWN", body = '{"rows":[40],"class":"ant"}', outcome = {};
const tried = async (name, work) => {
  try { outcome[name] = await work(); } catch (error) { outcome[name] = error.constructor.name; }
};
window.attack = async () => {
  const text = async (path, options) => (await fetch(own + path, { credentials: "include", ...options })).text();
  await tried("read", () => text("state"));
  const post = { method: "POST", body };
  const headers = { "Content-Type": "application/json", "X-LDSU-Studio": "1" };
  await tried("write", () => text("label", { ...post, headers }));
  await tried("simple", () => text("label", { ...post, mode: "no-cors", headers: { "Content-Type": "text/plain" } }));
  await tried("image", () => new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done("shown");
    image.onerror = () => failed(new TypeError());
    image.src = own + "icon.svg";
  }));
  await tried("script", () => new Promise((done, failed) => {
    const script = document.createElement("script");
    script.onload = () => done("run");
    script.onerror = () => failed(new TypeError());
    script.src = own + "map.js";
    document.head.append(script);
  }));
  await tried("stream", () => new Promise((done, failed) => {
    const stream = new EventSource(own + "news", { withCredentials: true });
    stream.onmessage = () => done("heard");
    stream.onerror = () => failed(new TypeError());
  }));
  const other = window.open(own);
  await new Promise((done) => setTimeout(done, 1000));
  await tried("window", () => other.document.body.textContent);
  await tried("frame", () => document.querySelector("#frame").contentDocument.body.textContent);
  document.querySelector("#form").submit();
  await new Promise((done) => setTimeout(done, 500));
  return outcome;
};
</script>"""


@needs_browser
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_page_in_the_same_browser_can_neither_read_nor_write_nor_frame_it(studio, browser, host, tmp_path):
    _, address = studio()
    browser.open(address)
    browser.wait_for(READY)
    content = ATTACKER.replace("OWN", address.partition("#")[0]).encode()

    class Attacker(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Attacker) as attacker:
        threading.Thread(target=attacker.serve_forever, daemon=True).start()
        browser.open(f"http://{host}:{attacker.server_port}/")
        browser.wait_for("document.title === 'another page' && typeof window.attack === 'function'")
        outcome = browser.evaluate("attack()")
        attacker.shutdown()
    refused = {"read", "write", "image", "script", "stream"}
    assert {name: outcome[name] for name in refused} == dict.fromkeys(refused, "TypeError")
    assert outcome["simple"] in ("", "TypeError")  # an answer that cannot be read
    assert outcome["window"] in ("SecurityError", "DOMException", "TypeError")
    assert outcome["frame"] in ("SecurityError", "DOMException", "TypeError")  # the page of an error
    browser.open(address.partition("#")[0])
    browser.wait_for(f"{READY} && studio.state.labelled === 0")


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_no_acknowledged_answer_is_lost_when_the_server_is_killed_at_any_moment(studio, tmp_path):
    rng = random.Random(0)
    acknowledged = []
    for start_row in (0, 40):
        process, address = studio()
        found = Client(address)
        assert found.state()["labelled"] >= len(acknowledged)
        if acknowledged:
            labels = [found.get(f"/row/{row}")["given"] for row in acknowledged]
            assert labels == [NAMES[row] for row in acknowledged]
        timer = threading.Timer(rng.uniform(0.05, 0.3), process.kill)
        timer.start()
        for row in range(start_row, start_row + 40):
            try:
                found.post("label", {"rows": [row], "class": NAMES[row]})
            except (OSError, http.client.HTTPException):
                break
            acknowledged.append(row)
        timer.join()
        process.wait()
    assert len(acknowledged) > 2
    _, entries = read_journal(tmp_path / "table.labels.jsonl")
    assert {row for entry in entries if entry["do"] == "label" for row in entry["rows"]} >= set(acknowledged)


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


# What the map draws by a sample of the points, after a move, and later.
SAMPLED = """new Promise((done) => {
  const { map } = studio, drawn = [];
  for (const name of ["drawArrays", "drawElements"]) {
    const own = map.gl[name].bind(map.gl);
    map.gl[name] = (kind, first, count, ...more) => {
      drawn.push(name === "drawArrays" ? ["all", count] : ["some", first]);
      own(kind, first, count, ...more);
    };
  }
  map.share = 0.5;
  map.pan(5, 0);
  map.render();
  setTimeout(() => done([drawn[0], drawn.at(-2)]), 600);
})"""


@needs_browser
def test_a_map_that_draws_slowly_draws_a_sample_while_it_moves_and_all_points_when_it_is_still(studio, browser):
    browser.open(studio()[1])
    browser.wait_for(f"{READY} && studio.map.progress() === 1")
    assert browser.evaluate(SAMPLED) == [["some", 45], ["all", 90]]


@needs_browser
def test_a_map_whose_graphics_were_lost_is_drawn_again(studio, browser):
    browser.open(studio()[1])
    browser.wait_for(READY)
    browser.evaluate("window.lost = studio.map.gl.getExtension('WEBGL_lose_context')")
    browser.evaluate("lost.loseContext()")
    browser.wait_for("studio.map.gl.isContextLost()")
    browser.evaluate("lost.restoreContext()")
    browser.wait_for(f"!studio.map.gl.isContextLost() && {DRAWN}")
    assert browser.evaluate(DRAWN)


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
