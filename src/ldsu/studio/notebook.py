"""The labelling page in the cell of a notebook: messages of anywidget, and no server."""

from __future__ import annotations

import json
import re
import threading
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from ldsu.studio.journal import exports_path, journal_path
from ldsu.studio.requests import act, read
from ldsu.studio.samples import is_path, read_samples
from ldsu.studio.session import Session

# Seconds after which a thread that waits for news looks whether there are any.
HEARTBEAT = 60.0
# Sessions of this process by journal: a cell that is run again takes its session's place.
_open: dict[Path, Session] = {}


def label(
    data: Any,
    *,
    label: str | None = None,
    show: Any = None,
    journal: str | Path | None = "auto",
    strategy: str = "auto",
    height: int = 700,
    **options: Any,
) -> Session:
    """Label samples in a notebook: shows the page of `ldsu label` in the cell, and returns what it does.

    Needs anywidget: ``pip install 'ldsu[notebook]'``.

    Parameters
    ----------
    data : path-like, frame, or array-like of shape (n, d)
        What `ldsu fit` reads; a pandas, polars or pyarrow table; or points, such as embeddings.
    label : str, optional
        Column of the labels that there are.
    show : path-like, frame or array-like, optional
        What to see instead of `data`, with one row per row: the texts of embeddings, for example.
    journal : path-like, "auto" or None, default="auto"
        File of the answers, which the next run of the cell takes up again. "auto" is `TABLE.labels.jsonl` in the
        current folder for a file, as of `ldsu label`, and a name by the content of `data` otherwise. With None answers
        are in memory only.
    strategy : str, default="auto"
        How rows are suggested, a key of `ldsu.active.STRATEGIES`.
    height : int, default=700
        Height of the page in pixels.
    **options
        Of `ldsu.studio.read_samples`: encoder, kinds, scaling, kernel, unlabelled.

    Returns
    -------
    session : Session
        ``session.labels_`` are the given labels, None where there is none, and ``session.model_`` is the model of the
        last fit, at any time. ``session.export`` writes files, ``session.close()`` ends it.
    """
    _anywidget()
    samples = read_samples(data, label=label, show=show, **options)
    if journal == "auto":
        journal = journal_path(Path(data) if is_path(data) else Path(f"{samples.table.source}-{samples.checksum[:8]}"))
    if journal is None:
        session, exports = Session(samples, strategy=strategy), Path("labels").resolve()
    else:
        path = Path(journal).resolve()
        if path in _open:
            _open.pop(path).close()
        session, exports = Session(samples, path, strategy=strategy), exports_path(path)
        _open[path] = session
    import_module("IPython.display").display(widget(session, exports, height))
    return session


def widget(session: Session, exports: Path, height: int = 700) -> Any:
    """An anywidget that shows a session; files are exported to the path `exports` and a suffix per kind."""
    shown = type("LabelPage", (_anywidget().AnyWidget,), {"_esm": page_module(height)})()
    shown.on_msg(lambda _, message, buffers: shown.send(*reply(session, exports, message)))
    threading.Thread(target=_follow, args=(session, shown.send), daemon=True).start()
    return shown


def reply(session: Session, exports: Path, message: Any) -> tuple[dict[str, Any], list[bytes]]:
    """The answer to a message of the page, and its bytes; a message that is none of the page is refused."""
    fields = dict(message) if isinstance(message, dict) else {}
    number = fields.pop("id", None)
    try:
        match fields:
            case {"read": str(what), **others} if not others:
                found = read(session, what)
                return ({"id": number}, [found]) if isinstance(found, bytes) else ({"id": number, "answer": found}, [])
            case {"act": str(action), "body": dict(body), **others} if not others:
                return {"id": number, "answer": act(session, exports, action, body)}, []
        raise ValueError("This is not a message of the page.")
    except Exception as error:  # the page shows it, where a kernel would only log it
        return {"id": number, "error": str(error) or type(error).__name__}, []


def _follow(session: Session, send: Any) -> None:
    """Send the revision whenever it changes, and None at the end."""
    sent: int | None = 0
    while sent is not None:
        revision = session.wait_for_news(sent, HEARTBEAT)
        if revision != sent:
            send({"news": revision})
        sent = revision


@cache
def page_module(height: int) -> str:
    """The page as one ES module, with its markup and its style in it."""
    page = files("ldsu.studio").joinpath("page")
    markup, style, *scripts = (
        page.joinpath(name).read_text(encoding="utf-8")
        for name in ("index.html", "studio.css", "map.js", "studio.js", "notebook.js")
    )
    style += f":host .studio {{ height: {int(height)}px; border: 1px solid var(--border); }}\n"
    constants = f"const MARKUP = {json.dumps(markup)}, STYLE = {json.dumps(style)};\n"
    # One scope: what they import from each other is there.
    return constants + "".join(re.sub(r"^import .*\n|^export (?!default)", "", text, flags=re.M) for text in scripts)


def _anywidget() -> Any:
    try:
        return import_module("anywidget")
    except ModuleNotFoundError as error:
        if error.name != "anywidget":  # a missing dependency of the package
            raise
        sentence = "Install anywidget, which shows the page in a notebook, with: pip install 'ldsu[notebook]'"
        raise ModuleNotFoundError(sentence, name="anywidget") from error
