"""What a page may read and do: the same for a browser tab and for a cell of a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ldsu.studio.session import EXPORTS, Session
from ldsu.tables.table import TableError

# Answers that are bytes, and their media types; the others are JSON objects.
MEDIA = {"map": "application/octet-stream", "points": "application/octet-stream", "image": "image/png"}


def read(session: Session, what: str) -> dict[str, Any] | bytes:
    """Data for a page: "state", "map", "points", "row/3" or "image/3"; a LookupError if there is none.

    Rows are found by their number and nothing by a path.
    """
    if what == "state":
        return session.state()
    if what == "map":
        return session.positions.astype("<f4").tobytes()
    if what == "points":
        return session.points()
    found = re.fullmatch(r"(row|image)/([0-9]{1,9})", what)
    if found is None:
        raise LookupError("There is no such page.")
    row = int(found[2])
    if row >= session.n or (found[1] == "image" and not session.samples.has_images):
        raise LookupError("There is no such row.")
    if found[1] == "row":
        return session.row(row)
    try:
        return session.samples.image(row)
    except (TableError, OSError) as error:  # it was removed since
        raise LookupError(str(error)) from error


def act(session: Session, exports: Path, action: str, body: dict[str, Any]) -> dict[str, Any]:
    """Do what a person asks for: the result, and the state after it; a LookupError if there is no such action.

    Files are exported to the path `exports` and a suffix per kind.
    """
    if action not in ACTIONS:
        raise LookupError("There is no such action.")
    try:
        result = ACTIONS[action](session, exports, body)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{action} needs other values ({error}).") from error
    return {"result": result, "state": session.state()}


def _export(session: Session, exports: Path, body: dict[str, Any]) -> str:
    what = body["what"]
    suffix = EXPORTS.get(what, "") if isinstance(what, str) else ""
    return str(session.export(what, exports.with_name(exports.name + suffix)))


# A function of the session, the path of exports and a JSON object.
ACTIONS: dict[str, Callable[[Session, Path, dict[str, Any]], Any]] = {
    "label": lambda session, _, body: session.label(body["rows"], body["class"]),
    "mark": lambda session, _, body: session.mark(body["rows"], body["mark"]),
    "class": lambda session, _, body: session.add_class(body["class"]),
    "undo": lambda session, _, body: session.undo(),
    "preview": lambda session, _, body: session.preview(body["rows"], body.get("class")),
    "find": lambda session, _, body: session.find(str(body["text"])[:200]),
    "export": _export,
}
