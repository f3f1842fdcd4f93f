"""The page and its answers over HTTP, for one person on this machine.

Other pages in the same browser, and other users of the machine, must not reach it: the server listens on the loopback
address only; a token, new with each start, is exchanged for a cookie; Host and Origin are checked on every request, and
a header that no form can send on every POST; nothing is read by path.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import threading
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import ldsu
from ldsu.studio.requests import ACTIONS, MEDIA, act, read
from ldsu.studio.session import Session

HOST = "127.0.0.1"
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/http.js": ("http.js", "text/javascript; charset=utf-8"),
    "/studio.js": ("studio.js", "text/javascript; charset=utf-8"),
    "/map.js": ("map.js", "text/javascript; charset=utf-8"),
    "/studio.css": ("studio.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Every POST has this header: other origins can send it only if they ask first, and are refused.
ACTION_HEADER = "X-LDSU-Studio"
# Largest body: a list with all rows, and some words.
BYTES_PER_ROW, OTHER_BYTES = 10, 2**16
# A connection that sends nothing for so long is closed; a stream of news shows that it is alive more often.
TIMEOUT, HEARTBEAT = 60, 15


class RequestError(Exception):
    """A request that is refused, with a status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class StudioServer(ThreadingHTTPServer):
    """A server for one session.

    Parameters
    ----------
    session : Session
    port : int, default=0
        0 takes a free one.
    exports : path-like, default="labels"
        Files are written to this path and a suffix per kind.

    Attributes
    ----------
    address : str
        Of the page, with the token behind a ``#``, which browsers do not send.
    """

    daemon_threads = True
    allow_reuse_address = False  # another program may have the port

    def __init__(self, session: Session, port: int = 0, exports: str | Path = "labels") -> None:
        self.session = session
        self.exports = Path(exports)
        self.token, self.cookie = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        super().__init__((HOST, port), Handler)
        self.port = int(self.server_address[1])
        self.hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}
        self.address = f"http://{HOST}:{self.port}/#token={self.token}"
        self.max_body = BYTES_PER_ROW * session.n + OTHER_BYTES

    def start(self) -> threading.Thread:
        """Serve in a thread."""
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        return thread

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Closed connections are normal."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: StudioServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"ldsu/{ldsu.__version__}", ""
    timeout = TIMEOUT

    def do_GET(self) -> None:
        """The page, or data for it."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Something that a person does."""
        self._answer(self._post)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is logged."""

    def _answer(self, respond: Callable[[], None]) -> None:
        try:
            self._require_same_origin()
            respond()
        except RequestError as error:
            # The rest of the request was not read: the connection cannot be used again.
            self.close_connection = True
            self._send_json({"error": str(error)}, error.status)
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True
        except (ValueError, OSError, MemoryError) as error:  # what the session says of an answer
            self._send_json({"error": str(error)}, 422)

    def _require_same_origin(self) -> None:
        """Refuse requests to another name, which a foreign page has given this address, and those of foreign pages."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            raise RequestError(403, "This server answers to its own address only.")
        origins = self.headers.get_all("Origin") or []
        own = f"http://{hosts[0].lower()}"
        if origins != [own] and (origins or self.command == "POST"):
            raise RequestError(403, "Requests of other pages are refused.")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none") and (
            self.headers.get("Sec-Fetch-Mode") != "navigate" or self.path != "/"
        ):
            raise RequestError(403, "Requests of other pages are refused.")

    def _require_cookie(self) -> None:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        cookie = cookies.get(self._cookie_name)
        if cookie is None or not _equal(cookie.value, self.server.cookie):
            raise RequestError(403, "Open the address that `ldsu label` printed, with its token.")

    @property
    def _cookie_name(self) -> str:
        return f"ldsu-{self.server.port}"  # cookies do not distinguish ports

    def _get(self) -> None:
        if self.path in PAGE:
            name, kind = PAGE[self.path]
            self._send(files("ldsu.studio").joinpath("page", name).read_bytes(), kind)
            return
        self._require_cookie()
        what = self.path.removeprefix("/")
        if what == "news":
            self._send_news()
            return
        if what in (*ACTIONS, "login"):
            raise RequestError(405, "This needs a POST.")
        try:
            found = read(self.server.session, what)
        except LookupError as error:
            raise RequestError(404, str(error)) from error
        kind = what.partition("/")[0]
        if isinstance(found, bytes):
            self._send(found, MEDIA[kind], {"Cache-Control": "private, max-age=3600"} if kind == "image" else None)
        else:
            self._send_json(found)

    def _post(self) -> None:
        action = self.path.removeprefix("/")
        if self.headers.get(ACTION_HEADER) != "1":
            raise RequestError(403, f"The header {ACTION_HEADER} is missing.")
        if action == "login":
            self._log_in(self._read_json())
            return
        self._require_cookie()
        if action not in ACTIONS:
            raise RequestError(404, "There is no such action.")
        self._send_json(act(self.server.session, self.server.exports, action, self._read_json()))

    def _log_in(self, body: dict[str, Any]) -> None:
        if not _equal(body.get("token"), self.server.token):
            raise RequestError(403, "The token is of another start of `ldsu label`. Open the address that it printed.")
        cookie = f"{self._cookie_name}={self.server.cookie}; HttpOnly; SameSite=Strict; Path=/"
        self._send(b"{}", "application/json", {"Set-Cookie": cookie})

    def _read_json(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise RequestError(415, "The body must be application/json.")
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not re.fullmatch("[0-9]{1,12}", length):
            raise RequestError(411, "The length of the body is missing.")
        if int(length) > self.server.max_body:
            raise RequestError(413, f"The body is longer than {self.server.max_body:,} bytes.")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise RequestError(400, "The body is not JSON.") from error
        if not isinstance(body, dict):
            raise RequestError(400, "The body must be a JSON object.")
        return body

    def _send(self, content: bytes, kind: str, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _send_json(self, value: Any, status: int = 200) -> None:
        self._send(json.dumps(value).encode(), "application/json", status=status)

    def _send_news(self) -> None:
        """A stream with the revision whenever it changes."""
        self.close_connection = True
        self.send_response(200)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        revision: int | None = 0
        while revision is not None:
            revision = self.server.session.wait_for_news(revision, HEARTBEAT)
            self.wfile.write(b"event: end\ndata: 0\n\n" if revision is None else f"data: {revision}\n\n".encode())


def _equal(found: Any, secret: str) -> bool:
    return isinstance(found, str) and hmac.compare_digest(found.encode(errors="replace"), secret.encode())
