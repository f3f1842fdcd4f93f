"""The server answers its own page and nobody else: each protection is attacked."""

import http.client
import json
import re
import socket
import threading

import pytest

from ldsu.studio import Session, StudioServer, read_samples
from ldsu.studio.server import ACTION_HEADER, ACTIONS, PAGE
from studio_data import HOSTILE, make_photos, make_table

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")


def served(samples, exports):
    with Session(samples) as session, StudioServer(session, exports=exports) as server:
        server.start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    table = make_table(tmp_path_factory.mktemp("in") / "table.csv")
    exports = tmp_path_factory.mktemp("out") / "table"
    yield from served(read_samples(table, label="kind", kinds={"comment": "ignored"}), exports)


@pytest.fixture(scope="module")
def photo_server(tmp_path_factory):
    yield from served(read_samples(make_photos(tmp_path_factory.mktemp("in") / "photos")), "unused")


def own(server, **changes):
    """Headers of the page itself; None leaves one out."""
    address = f"127.0.0.1:{server.port}"
    headers = {
        "Host": address,
        "Origin": f"http://{address}",
        "Cookie": f"ldsu-{server.port}={server.cookie}",
        "Content-Type": "application/json",
        ACTION_HEADER: "1",
    }
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in headers.items() if value is not None}


def ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        headers = own(server) if headers is None else headers
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        if content is not None and "Content-Length" not in headers:
            headers = {**headers, "Content-Length": str(len(content))}
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(content)
        response = connection.getresponse()
        return response.status, response.read(), response
    finally:
        connection.close()


def labelled(server):
    return int(sum(name is not None for name in server.session.labels_))


def label_one(server, headers, path="/label"):
    """Try to label a row; whether that was done."""
    before = labelled(server)
    status, _, _ = ask(server, "POST", path, {"rows": [40], "class": "ant"}, headers)
    done = labelled(server) > before
    if done:
        server.session.undo()
    assert done == (status == 200)
    return status


def test_its_own_page_may_label(server):
    assert label_one(server, own(server)) == 200
    assert label_one(server, own(server, Sec_Fetch_Site="same-origin")) == 200


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Cookie": None}, 403),
        ({"Cookie": "ldsu-0=x"}, 403),
        ({"Cookie": "ldsu-{port}=wrong"}, 403),
        ({"Cookie": "ldsu-{port}={token}"}, 403),  # the token is not the cookie
        ({"Cookie": "a=b; ldsu-{port}=\xe9"}, 403),
        ({"Host": "attacker.example:{port}"}, 403),  # DNS rebinding
        ({"Host": "127.0.0.1.attacker.example:{port}", "Origin": "http://127.0.0.1.attacker.example:{port}"}, 403),
        ({"Host": "attacker.example", "Origin": "http://attacker.example"}, 403),
        ({"Host": "127.0.0.1"}, 403),  # another port
        ({"Host": None}, 403),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),  # another program on this machine
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "null"}, 403),  # a sandboxed frame
        ({"Origin": None}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({ACTION_HEADER: None}, 403),  # a form
        ({ACTION_HEADER: "0"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": None}, 415),
    ],
)
def test_others_may_not_label(server, changes, status):
    filled = {k: v and v.format(port=server.port, token=server.token) for k, v in changes.items()}
    assert label_one(server, {k: v for k, v in {**own(server), **filled}.items() if v is not None}) == status


@pytest.mark.parametrize("path", ["/state", "/map", "/points", "/row/1", "/news"])
@pytest.mark.parametrize(
    "changes", [{"Cookie": None}, {"Cookie": "ldsu-{port}=wrong"}, {"Host": "attacker.example"}, {"Origin": "null"}]
)
def test_others_may_not_read(server, path, changes):
    filled = {k: v and v.format(port=server.port) for k, v in changes.items()}
    headers = {k: v for k, v in {**own(server), **filled}.items() if v is not None}
    status, content, _ = ask(server, "GET", path, headers=headers)
    assert status == 403
    assert set(json.loads(content)) == {"error"}


@pytest.mark.parametrize("token", ["", "wrong", None, 5, "é", [], "{cookie}"])
def test_only_the_token_of_this_start_gives_a_cookie(server, token):
    token = token.format(cookie=server.cookie) if isinstance(token, str) else token
    status, _, response = ask(server, "POST", "/login", {"token": token}, own(server, Cookie=None))
    assert status == 403
    assert response.getheader("Set-Cookie") is None


def test_the_token_gives_a_cookie_that_scripts_and_other_sites_do_not_get(server):
    assert label_one(server, own(server, Cookie=None)) == 403
    status, _, response = ask(server, "POST", "/login", {"token": server.token}, own(server, Cookie=None))
    assert status == 200
    cookie, *attributes = response.getheader("Set-Cookie").split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(attributes)
    assert label_one(server, own(server, Cookie=cookie)) == 200
    for changes in ({"Origin": "http://attacker.example"}, {ACTION_HEADER: None}, {"Host": "attacker.example"}):
        headers = {k: v for k, v in {**own(server, Cookie=None), **changes}.items() if v is not None}
        assert ask(server, "POST", "/login", {"token": server.token}, headers)[0] == 403


def test_tokens_are_new_with_each_start_and_not_in_what_the_page_is_sent(server, photo_server):
    assert len({server.token, server.cookie, photo_server.token, photo_server.cookie}) == 4
    for path in PAGE:
        content = ask(server, "GET", path, headers=own(server, Cookie=None))[1].decode()
        assert server.token not in content
        assert server.cookie not in content


@pytest.mark.parametrize("action", [*ACTIONS, "login"])
def test_an_action_needs_a_post(server, action):
    before = labelled(server)
    assert ask(server, "GET", f"/{action}")[0] == 405
    assert ask(server, "GET", f"/{action}?rows=40&class=ant")[0] == 404
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(server, method, f"/{action}", {"rows": [40], "class": "ant"})[0] == 501
    assert labelled(server) == before


@pytest.mark.parametrize(
    "path",
    [
        "/image/../table.csv",
        "/image/..%2ftable.csv",
        "/image/%2e%2e/%2e%2e/etc/passwd",
        "/image//etc/passwd",
        "/image/0.png",
        "/image/-1",
        "/image/24",
        "/image/99999999999",
        "/image/1e1",
        "/image/",
        "/../page/index.html",
        "/page/index.html",
        "/studio.js/../../session.py",
        "//127.0.0.1/state",
        "http://127.0.0.1/state",
    ],
)
def test_nothing_is_read_by_path(photo_server, path):
    assert ask(photo_server, "GET", path)[0] == 404


def test_images_are_sent_by_row_and_are_made_anew(photo_server):
    status, content, response = ask(photo_server, "GET", "/image/3")
    assert (status, response.getheader("Content-Type")) == (200, "image/png")
    assert content.startswith(b"\x89PNG")
    folder = photo_server.session.samples.table.source
    original = (folder / "03.png").read_bytes()
    (folder / "03.png").write_bytes(original + b"<script>alert(1)</script>")
    assert b"script" not in ask(photo_server, "GET", "/image/3")[1]
    (folder / "05.png").write_bytes(b"<script>alert(1)</script>")
    assert ask(photo_server, "GET", "/image/5")[0] == 404
    (folder / "06.png").unlink()
    assert ask(photo_server, "GET", "/image/6")[0] == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[1]", 400),
        (b'"label"', 400),
        (b"[" * 20000, 400),
        (b"{}", 422),
        (b'{"rows": [1]}', 422),
        (b'{"rows": {"a": 1}, "class": "ant"}', 422),
        (b'{"rows": [1e400], "class": "ant"}', 422),
        (b'{"rows": [NaN], "class": "ant"}', 422),
        (b'{"rows": [1], "class": {"a": 1}}', 422),
        (b'{"rows": [1], "class": "\\ud800"}', 422),
        (b'{"rows": [9999], "class": "ant"}', 422),
    ],
)
def test_wrong_bodies_are_refused_with_a_sentence(server, body, status):
    before = labelled(server)
    found, content, _ = ask(server, "POST", "/label", body)
    assert found == status
    assert json.loads(content)["error"].endswith((".", ")"))
    assert labelled(server) == before


def test_bodies_without_a_length_or_too_long_are_refused_before_they_are_read(server):
    too_long = own(server) | {"Content-Length": str(server.max_body + 1)}
    assert ask(server, "POST", "/label", b"", too_long)[0] == 413
    assert ask(server, "POST", "/label", None, own(server))[0] == 411
    for length in ("-1", "1x", "9" * 40):
        assert ask(server, "POST", "/label", b"", own(server) | {"Content-Length": length})[0] == 411
    chunked = own(server) | {"Transfer-Encoding": "chunked", "Content-Length": "2"}
    assert ask(server, "POST", "/label", b"{}", chunked)[0] == 411


def test_a_second_request_hidden_in_a_refused_body_is_not_read(server):
    hidden = "GET /state HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in own(server).items()) + "\r\n"
    head = f"POST /label HTTP/1.1\r\nHost: attacker.example\r\nContent-Length: {len(hidden)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall((head + hidden).encode())
        found = b""
        while part := connection.recv(65536):
            found += part
    assert found.startswith(b"HTTP/1.1 403")
    assert found.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("path", ["/", "/studio.js", "/state", "/row/7", "/points", "/nothing"])
def test_every_answer_says_what_a_browser_may_do_with_it(server, path):
    _, _, response = ask(server, "GET", path)
    policy = response.getheader("Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.getheader("X-Content-Type-Options") == "nosniff"
    assert response.getheader("Cross-Origin-Resource-Policy") == "same-origin"
    assert not [name for name, _ in response.getheaders() if name.lower().startswith("access-control")]


def test_cells_are_sent_as_json_and_the_page_sets_no_markup(server):
    _, content, response = ask(server, "GET", "/row/7")
    assert response.getheader("Content-Type") == "application/json"
    assert dict(json.loads(content)["columns"])["comment"] == HOSTILE
    for path in ("/studio.js", "/map.js"):
        source = ask(server, "GET", path)[1].decode()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|https?://(?!www.w3.org/2000/svg)",
            source,
        )


def test_it_listens_on_the_loopback_address_only_and_on_a_free_port(server):
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError, match="in use"):
        StudioServer(server.session, server.port)


def test_news_tell_of_every_change_and_of_the_end(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", "/news", headers=own(server))
    stream = connection.getresponse()
    assert stream.getheader("Content-Type") == "text/event-stream"

    def following():
        return int(stream.readline().removeprefix(b"data: ")), stream.readline()

    first, _ = following()
    assert first == server.session.revision or first < server.session.revision
    server.session.label([50], "ant")
    while following()[0] < server.session.revision:
        pass
    server.session.undo()
    connection.close()


def test_many_answers_at_once_are_each_written_once(server):
    before = labelled(server)
    threads = [
        threading.Thread(target=ask, args=(server, "POST", "/label", {"rows": [row], "class": "bee"}))
        for row in range(60, 72)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert labelled(server) == before + 12
    for _ in threads:
        assert ask(server, "POST", "/undo", {})[0] == 200
    assert labelled(server) == before


def test_exports_are_written_beside_the_journal_by_kind_and_never_by_a_path_of_the_page(server):
    status, content, _ = ask(server, "POST", "/export", {"what": "labels"})
    assert status == 200
    assert json.loads(content)["result"] == str(server.exports) + ".labels.csv"
    for what in ("../x", "", None, ["labels"]):
        assert ask(server, "POST", "/export", {"what": what, "path": "elsewhere"})[0] == 422
    assert [path.name for path in server.exports.parent.iterdir()] == ["table.labels.csv"]
