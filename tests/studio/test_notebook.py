"""The page in a notebook: messages in, state out; what is no message of the page is refused."""

import base64
import json
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import ldsu
from chromium import Chromium, needs_browser
from ldsu.studio import Samples, Session, notebook
from ldsu.tables import TableError
from studio_data import HOSTILE, answer_suggestion, make_photos, make_points, make_table

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
X, NAMES = make_points()
needs_anywidget = pytest.mark.skipif(
    find_spec("anywidget") is None, reason="anywidget is not installed: pip install 'ldsu[notebook]'"
)


@pytest.fixture
def session():
    with Session(Samples.of_points(X)) as session:
        yield session


def ask(session, **message):
    (answer, buffers) = notebook.reply(session, Path("unused"), {"id": "1", **message})
    assert json.dumps(answer)
    assert answer["id"] == "1"
    return answer if not buffers else buffers[0]


def test_messages_label_rows_and_bring_what_the_page_shows(session):
    for row in range(6):
        answer = ask(session, act="label", body={"rows": [row], "class": NAMES[row]})["answer"]
        assert answer["state"]["labelled"] == row + 1
    assert session.wait(60)
    assert session.labels_[:7].tolist() == [*NAMES[:6], None]
    assert np.mean(session.model_.classifier.predict(X) == NAMES) > 0.9
    assert ask(session, read="state")["answer"]["model"]
    assert ask(session, read="row/3")["answer"]["given"] == "ant"
    assert np.frombuffer(ask(session, read="map"), "<f4").shape == (180,)
    assert len(ask(session, read="points")) == 4 * 90
    assert ask(session, act="undo", body={})["answer"]["result"] == "1 row: cat"


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"read": "../../etc/passwd"},
        {"read": "/etc/passwd"},
        {"read": "image/0"},
        {"read": "row/90"},
        {"read": "row/-1"},
        {"read": 5},
        {"read": "state", "more": 1},
        {"act": "label"},
        {"act": "label", "body": []},
        {"act": "label", "body": {}},
        {"act": "label", "body": {"rows": [90], "class": "ant"}},
        {"act": "label", "body": {"rows": [1], "class": ""}},
        {"act": "close", "body": {}},
        {"act": "__init__", "body": {}},
        {"act": "export", "body": {"what": "../labels"}},
        {"act": ["undo"], "body": {}},
        {"act": "label", "body": {"rows": [1], "class": "ant"}, "read": "state"},
    ],
)
def test_what_is_no_message_of_the_page_is_refused_and_changes_nothing(session, message):
    assert ask(session, **message)["error"].endswith((".", ")"))
    assert session.state()["labelled"] == 0


@pytest.mark.parametrize("message", [None, 5, "state", [], {"read": "nothing"}])
def test_a_message_without_a_number_is_answered_too(session, message):
    answer, buffers = notebook.reply(session, Path("unused"), message)
    assert answer["id"] is None
    assert answer["error"]
    assert buffers == []


COLUMNS = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "kind": [*NAMES[:6], *[None] * 84]}
FRAMES = {
    "pyarrow": lambda pyarrow: pyarrow.table(COLUMNS),
    "polars": lambda polars: polars.DataFrame(COLUMNS),
    # The row index is no column, whatever it is.
    "pandas": lambda pandas: pandas.DataFrame(COLUMNS, index=range(630, 0, -7)).astype({"kind": "category"}),
}


@pytest.mark.parametrize("library", FRAMES)
def test_a_frame_is_labelled_as_its_file_would_be(library):
    frame = FRAMES[library](pytest.importorskip(library, reason=f"{library} is not installed"))
    samples = ldsu.studio.read_samples(frame, label="kind")
    assert [column.name for column in samples.encoder.columns] == ["a", "b", "c"]
    assert samples.X.shape == (90, 3)
    assert samples.labels.tolist()[:7] == [*NAMES[:6], None]
    assert ldsu.studio.read_samples(frame, label="kind").checksum == samples.checksum


def test_the_checksum_of_a_frame_is_of_its_values_and_not_of_how_they_are_stored():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": X[:, 0], "text": [None if i == 5 else f"a comment {i}" for i in range(90)]})
    parts = pa.concat_tables([table.slice(0, 7), table.slice(7)])
    large = table.cast(pa.schema([("a", "double"), ("text", "large_string")]))
    others = [
        table.slice(0, 89),
        table.set_column(0, "a", [pa.array([1.0, *X[1:, 0]])]),
        table.rename_columns(["b", "text"]),
    ]
    checksums = [ldsu.studio.read_samples(frame, encoder="none").checksum for frame in (table, parts, large, *others)]
    assert len(set(checksums[:3])) == 1
    assert len(set(checksums[2:])) == 4


@pytest.mark.parametrize("data", [X[:, 0], [["a", "b"]] * 5, X[None], np.array(["a", 1], dtype=object), 5])
def test_what_is_no_table_is_refused_with_what_would_be(data):
    with pytest.raises(TableError, match=r"array of numbers of shape \(n, d\)"):
        ldsu.studio.read_samples(data)


def test_a_frame_with_a_column_of_mixed_types_is_refused_in_a_sentence():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TableError, match="one type"):
        ldsu.studio.read_samples(pandas.DataFrame({"a": [1, "two", b"3", None, 5]}))


def test_without_anywidget_the_error_names_the_extra(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(notebook, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'ldsu\[notebook\]'"):
        ldsu.label(X)


@needs_anywidget
def test_a_cell_shows_the_page_and_a_second_run_of_it_continues(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = ldsu.label(X)
    first.label([0, 1], "ant")
    second = ldsu.label(X, strategy="margin")
    with pytest.raises(ValueError, match="ended"):
        first.label([2], "bee")
    second.label([2], "bee")
    assert [path.name for path in tmp_path.iterdir()] == [f"points-{second.samples.checksum[:8]}.labels.jsonl"]
    assert second.labels_[:4].tolist() == ["ant", "ant", "bee", None]
    assert "90 rows of points, 3 labelled" in repr(second)
    assert capsys.readouterr().out.count("LabelPage") == 2
    second.close()
    other = ldsu.label(X + 1, journal=None)
    other.close()
    assert len(list(tmp_path.iterdir())) == 1


@needs_anywidget
def test_a_file_has_the_journal_that_the_command_gives_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    with ldsu.label(str(make_table(tmp_path / "data" / "table.csv")), label="kind", kinds={"comment": "ignored"}):
        assert (tmp_path / "table.labels.jsonl").exists()


@needs_anywidget
def test_the_widget_answers_messages_and_sends_news_until_the_session_ends(session, tmp_path):
    shown = notebook.widget(session, tmp_path / "labels")
    sent = []
    shown.send = lambda content, buffers=None: sent.append((content, buffers))
    shown._handle_custom_msg({"id": "7", "act": "label", "body": {"rows": [0], "class": "ant"}}, [])
    answer, buffers = next(message for message in sent if message[0].get("id") == "7")
    assert answer["answer"]["state"]["labelled"] == 1
    assert not buffers
    shown._handle_custom_msg({"id": "8", "read": "points"}, [])
    assert next(message for message in sent if message[0].get("id") == "8")[1][0] == session.points()


# A cell: the widget's module with a model whose messages are read and answered by this test.
CELL = """<!doctype html><meta charset="utf-8"><title>cell</title>
<style>* { box-sizing: content-box; } button { display: none; } body { color: COLOR; background: BACK; margin: 0; }
#cell { width: 960px; text-align: right; white-space: pre; font: 30px serif; }</style>
<p id="above">text above</p><div id="cell"></div>
<script type="module">
import widget from "./page.js";
window.outbox = [];
window.keys = [];
const listeners = new Set();
const model = {
  send: (content) => window.outbox.push(content),
  on: (name, listener) => name === "msg:custom" && listeners.add(listener),
  off: (name, listener) => listeners.delete(listener),
};
window.receive = (content, bytes) => {
  // As a view of a larger buffer, at an odd place.
  const views = bytes.map((text) => {
    const padded = Uint8Array.from("x" + atob(text), (c) => c.charCodeAt(0));
    return new DataView(padded.buffer, 1);
  });
  for (const listener of listeners) listener(content, views);
};
document.addEventListener("keydown", (event) => window.keys.push(event.key)); // as a notebook, which would act
const cell = document.createElement("div"); // a notebook shows it later
window.close_cell = widget.render({ model, el: cell });
setTimeout(() => document.querySelector("#cell").append(cell), 100);
Object.defineProperty(window, "studio", { get: () => cell.firstChild.studio });
window.page = cell.firstChild.shadowRoot;
</script>"""
READY = "window.studio?.state && studio.current != null && !studio.state.fitting"


class Cell:
    """A page of Chromium with the widget, and what a kernel does: it reads messages and answers them."""

    def __init__(self, folder, session, dark):
        (folder / "page.js").write_text(notebook.page_module(600), encoding="utf-8")
        colors = ("#ddd", "#111") if dark else ("#222", "#fff")
        html = CELL.replace("COLOR", colors[0]).replace("BACK", colors[1])
        (folder / "cell.html").write_text(html, encoding="utf-8")
        self.page = Chromium(folder / "profile", 1024, 768, options=("--allow-file-access-from-files",))
        self.folder, self.session, self.revision = folder, session, 0
        self.page.open((folder / "cell.html").as_uri())

    def serve(self):
        """Answer all messages that were sent, and send news."""
        for message in self.page.evaluate("window.outbox ? window.outbox.splice(0) : []"):
            answer, buffers = notebook.reply(self.session, self.folder / "labels", message)
            texts = [base64.b64encode(part).decode() for part in buffers]
            self.page.evaluate(f"receive({json.dumps(answer)}, {json.dumps(texts)})")
        if self.session.revision != self.revision:
            self.revision = self.session.revision
            self.page.evaluate(f"window.receive?.({{ news: {self.revision} }}, [])")

    def wait_for(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.serve()
            if found := self.page.evaluate(f"(() => {{ try {{ return {expression}; }} catch {{ return null; }} }})()"):
                return found
            time.sleep(0.02)
        raise AssertionError(f"{expression}: {self.page.errors}, {self.page.evaluate('page.textContent')}")


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_person_labels_in_a_cell_whose_style_and_keys_stay_apart(tmp_path, dark):
    with Session(ldsu.studio.read_samples(make_table(tmp_path / "table.csv"), encoder="none")) as session:
        cell = Cell(tmp_path, session, dark)
        page = cell.page
        try:
            cell.wait_for(READY)
            page.press("1")
            assert page.evaluate("[window.keys.splice(0), studio.state.labelled]") == [["1"], 0]  # it has no focus
            page.evaluate("page.querySelector('.studio').focus()")
            for done in range(6):
                row = answer_suggestion(page, NAMES)
                cell.wait_for(f"studio.state.labelled === {done + 1} && studio.current !== {row}")
            cell.wait_for("!studio.state.fitting && studio.state.curve.length")
            page.press("u")
            cell.wait_for("studio.state.labelled === 5")
            page.press("v")
            cell.wait_for("studio.selection.length === 90")
            page.press("Escape")
            cell.wait_for("studio.selection.length === 0")
            assert page.evaluate("window.keys") == []
            # Markup in the table is text, the style of neither reaches the other, and the theme is that of the cell.
            page.press("/")
            page.type("onerror")
            page.press("Enter")
            cell.wait_for("studio.selection.length === 1 && page.querySelectorAll('#grid button').length === 1")
            assert page.evaluate("document.title") == "cell"
            assert HOSTILE in page.evaluate("page.querySelector('#grid .text').textContent")
            styles = "[getComputedStyle(page.querySelector('#undo')).display, getComputedStyle(above).fontFamily, "
            styles += "getComputedStyle(page.querySelector('h2')).textAlign, "
            styles += "getComputedStyle(page.querySelector('.studio')).height]"
            found = page.evaluate(styles)
            assert found[0] != "none"
            assert "system-ui" not in found[1]
            assert found[2:] == ["start", "600px"]
            background = page.evaluate("getComputedStyle(page.querySelector('aside')).backgroundColor")
            assert background == ("rgb(31, 34, 38)" if dark else "rgb(255, 255, 255)")
            widest = "Math.max(...[...page.querySelectorAll('.studio *')].map((e) => e.getBoundingClientRect().right))"
            assert page.evaluate(widest) <= 960
            assert page.errors == []
            page.evaluate("close_cell()")
            assert page.evaluate("document.querySelector('#cell > div').childNodes.length") == 0
        finally:
            page.close()


@needs_browser
def test_a_kernel_that_does_not_answer_is_named_until_it_does(session, tmp_path):
    cell = Cell(tmp_path, session, dark=False)
    try:
        message = "window.page?.querySelector('#message')?.textContent"
        cell.page.wait_for(f"{message}?.includes('has not answered')", 30)
        cell.wait_for(f"{READY} && {message} === ''")
        session.close()
        cell.page.evaluate("receive({ news: null }, [])")
        assert "Run the cell again" in cell.page.evaluate(message)
    finally:
        cell.page.close()


@needs_browser
def test_images_come_by_message(tmp_path):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    with Session(ldsu.studio.read_samples(make_photos(tmp_path / "photos"), encoder="none")) as session:
        cell = Cell(tmp_path, session, dark=False)
        try:
            cell.wait_for(READY)
            cell.wait_for("[...page.querySelectorAll('#grid img')].filter((i) => i.naturalWidth === 8).length === 12")
            assert cell.page.evaluate("page.querySelector('#current img').src.startsWith('blob:')")
            assert cell.page.errors == []
        finally:
            cell.page.close()
