"""The downloader against a server that misbehaves: one sentence, and nothing half-written under the file's name."""

import contextlib
import errno
import hashlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ldsu.datasets import DatasetError, download
from ldsu.datasets.download import Remote, fetch

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class Handler(BaseHTTPRequestHandler):
    """The path says how to misbehave; what was asked is kept."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        getattr(self, "do_" + self.path.strip("/").replace("-", "_"))()

    def log_message(self, *_):
        pass

    def reply(self, body, status=200, length=None, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # who asked may have gone
            self.wfile.write(body)

    def start(self):
        value = self.headers.get("Range")
        return int(value.removeprefix("bytes=").removesuffix("-")) if value else 0

    def do_good(self):
        start = self.start()
        if start >= len(CONTENT):
            self.reply(b"", 416, Content_Range=f"bytes */{len(CONTENT)}")
        elif start:
            self.reply(CONTENT[start:], 206, Content_Range=f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.reply(CONTENT)

    def do_cuts_once(self):
        if len(self.server.asked) == 1:
            self.reply(CONTENT[:300_000], length=len(CONTENT))
            self.close_connection = True
        else:
            self.do_good()

    def do_always_cuts(self):
        self.reply(CONTENT[:1000], length=len(CONTENT))
        self.close_connection = True

    def do_ignores_range(self):
        self.reply(CONTENT)

    def do_in_pieces(self):
        """Answers with less than what was asked for, as a server may."""
        start = self.start()
        end = min(start + 400_000, len(CONTENT))
        self.reply(CONTENT[start:end], 206, Content_Range=f"bytes {start}-{end - 1}/{len(CONTENT)}")

    def do_of_unknown_length(self):
        start = self.start()
        self.reply(CONTENT[start:], 206, Content_Range=f"bytes {start}-{len(CONTENT) - 1}/*")

    def do_continues_elsewhere(self):
        if self.start():
            self.reply(CONTENT[7:], 206, Content_Range=f"bytes 7-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.reply(CONTENT)

    def do_wrong(self):
        self.reply(CONTENT[::-1])

    def do_missing(self):
        self.reply(b"not here", 404)

    def do_busy_once(self):
        if len(self.server.asked) == 1:
            self.reply(b"", 503)
        else:
            self.do_good()

    def do_hangs(self):
        self.server.release.wait(5)
        self.close_connection = True

    def do_hangs_midway(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:1000])
        self.wfile.flush()
        self.do_hangs()

    def do_babbles(self):
        self.wfile.write(b"this is not HTTP\r\n\r\n")
        self.close_connection = True

    def do_endless(self):
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.release.is_set():
                self.wfile.write(CONTENT)
        self.close_connection = True


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.01)
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.asked, server.release = [], threading.Event()
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.release.set()
        server.shutdown()


def remote(server, *paths, sha256=SHA256):
    return Remote("file.bin", tuple(f"http://127.0.0.1:{server.server_port}/{path}" for path in paths), sha256)


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def fetched(remote, folder):
    """The content of a file that this call downloads."""
    path, is_new = fetch(remote, folder)
    assert is_new
    assert leftovers(folder) == ["file.bin"]
    return path.read_bytes()


def assert_one_sentence_and_no_file(server, folder, match, *paths, sha256=SHA256, left=()):
    """`left`: what may be left, because a later call continues it."""
    with pytest.raises(DatasetError, match=match) as caught:
        fetch(remote(server, *paths, sha256=sha256), folder)
    assert "\n" not in str(caught.value)
    assert leftovers(folder) == list(left)
    return str(caught.value)


def test_file_is_fetched_checked_and_kept(server, tmp_path):
    folder = tmp_path / "new" / "folder"
    assert fetched(remote(server, "good"), folder) == CONTENT
    assert fetch(remote(server, "missing"), folder) == (folder / "file.bin", False)  # it is there: nobody is asked
    assert len(server.asked) == 1


def test_cut_connection_is_continued_where_it_broke(server, tmp_path):
    assert fetched(remote(server, "cuts-once"), tmp_path) == CONTENT
    assert server.asked == [("/cuts-once", None), ("/cuts-once", "bytes=300000-")]


def test_part_of_an_earlier_run_is_continued(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1234])
    assert fetched(remote(server, "good"), tmp_path) == CONTENT
    assert server.asked == [("/good", "bytes=1234-")]


@pytest.mark.parametrize("path", ["ignores-range", "continues-elsewhere"])
def test_server_that_cannot_continue_is_read_from_the_start(server, tmp_path, path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1234])
    assert fetched(remote(server, path), tmp_path) == CONTENT


@pytest.mark.parametrize("old", [b"x" * 1234, CONTENT, CONTENT + b"more"])
def test_old_part_that_does_not_fit_is_thrown_away(server, tmp_path, old):
    (tmp_path / "file.bin.part").write_bytes(old)
    assert fetched(remote(server, "good"), tmp_path) == CONTENT


def test_old_part_is_not_trusted_without_a_checksum(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1234)
    assert fetched(remote(server, "good", sha256=None), tmp_path) == CONTENT


def test_whole_is_as_long_as_the_server_says_and_not_as_its_answer(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1234])
    assert fetched(remote(server, "in-pieces"), tmp_path) == CONTENT
    assert [asked for _, asked in server.asked] == ["bytes=1234-", "bytes=401234-", "bytes=801234-"]


def test_whole_of_unknown_length_is_continued(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1234])
    assert fetched(remote(server, "of-unknown-length"), tmp_path) == CONTENT
    assert len(server.asked) == 1


def test_passing_trouble_is_tried_again(server, tmp_path):
    assert fetched(remote(server, "busy-once"), tmp_path) == CONTENT


def test_next_address_is_tried(server, tmp_path):
    assert fetched(remote(server, "missing", "wrong", "good"), tmp_path) == CONTENT


def test_wrong_checksum_leaves_nothing(server, tmp_path):
    message = assert_one_sentence_and_no_file(server, tmp_path, "sha256", "wrong")
    assert str(tmp_path) in message
    assert "LDSU_DATA" in message


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("missing", "404"),
        ("always-cuts", "stopped after 1000 of 1048576 bytes"),
        ("babbles", "this is not HTTP"),
    ],
)
def test_server_that_does_not_deliver_is_named(server, tmp_path, monkeypatch, path, match):
    monkeypatch.setattr(download, "MAX_ATTEMPTS", 2)
    message = assert_one_sentence_and_no_file(server, tmp_path, match, path, sha256=None)
    assert f"/{path}" in message


@pytest.mark.parametrize("path", ["hangs", "hangs-midway"])
def test_server_that_hangs_is_named(server, tmp_path, monkeypatch, path):
    monkeypatch.setattr(download, "MAX_ATTEMPTS", 2)
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.4)
    message = assert_one_sentence_and_no_file(server, tmp_path, "timed out after 0.4 seconds", path, sha256=None)
    assert f"/{path}" in message


def test_part_is_left_where_a_checksum_lets_it_be_continued(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "MAX_ATTEMPTS", 1)
    assert_one_sentence_and_no_file(server, tmp_path, "stopped after", "always-cuts", left=["file.bin.part"])
    assert fetched(remote(server, "good"), tmp_path) == CONTENT
    assert server.asked[1:] == [("/good", "bytes=1000-")]


@pytest.mark.parametrize(("sha256", "locks"), [(None, True), (SHA256, False)], ids=["no checksum", "no locks"])
def test_part_that_nobody_continues_is_removed_even_on_an_interrupt(server, tmp_path, monkeypatch, sha256, locks):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(download.os, "fsync", interrupt)
    monkeypatch.setattr(download, "_lock_file", lambda _: locks)
    with pytest.raises(KeyboardInterrupt):
        fetch(remote(server, "good", sha256=sha256), tmp_path)
    assert leftovers(tmp_path) == []


def test_error_crosses_to_another_process(server, tmp_path):
    with pytest.raises(DatasetError) as caught:
        fetch(remote(server, "missing"), tmp_path)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.failures == caught.value.failures


def test_missing_page_is_asked_for_once_only(server, tmp_path):
    assert_one_sentence_and_no_file(server, tmp_path, "404", "missing")
    assert len(server.asked) == 1


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_stream_without_end_is_stopped(server, tmp_path, monkeypatch, sha256):
    monkeypatch.setattr(download, "MAX_BYTES", 2**22)
    assert_one_sentence_and_no_file(server, tmp_path, "more than 4 MiB", "endless", sha256=sha256)


def test_no_network(tmp_path, monkeypatch):
    real = socket.getaddrinfo

    def lookup(host, *arguments, **keywords):
        if host == "127.0.0.1":
            return real(host, *arguments, **keywords)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.01)
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/x"
    with pytest.raises(DatasetError, match=r"could not be reached.*; http://no-such-host\.invalid/x could not"):
        fetch(Remote("file.bin", (address, "http://no-such-host.invalid/x")), tmp_path)
    assert leftovers(tmp_path) == []


def test_full_disk_is_seen_before_the_download(server, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=len(CONTENT))
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    assert_one_sentence_and_no_file(server, tmp_path, "No space left on device.: free some space", "good")


def test_disk_that_fills_up_midway_leaves_nothing(server, tmp_path, monkeypatch):
    def no_space(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download.os, "fsync", no_space)
    assert_one_sentence_and_no_file(server, tmp_path, "No space left on device.: free some space", "good")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is a Linux device")
def test_write_refused_by_a_full_device_leaves_nothing(server, tmp_path):
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    assert_one_sentence_and_no_file(server, tmp_path, "No space left", "good")


def test_cache_that_is_a_file(server, tmp_path):
    (tmp_path / "file").write_text("a file where a folder should be")
    with pytest.raises(DatasetError, match=r"cannot be written .* set LDSU_CACHE"):
        fetch(remote(server, "good"), tmp_path / "file" / "cache")


def test_read_only_cache(server, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(download.Path, "open", refuse)
    assert_one_sentence_and_no_file(server, tmp_path, r"cannot be written \(Read-only .* set LDSU_CACHE", "good")
    assert server.asked == []


def test_processes_that_want_the_same_file_share_one_download(server, tmp_path):
    code = (
        "import sys; from pathlib import Path; from ldsu.datasets.download import Remote, fetch; "
        "fetch(Remote('file.bin', (sys.argv[1],), sys.argv[2]), Path(sys.argv[3]))"
    )
    arguments = [sys.executable, "-c", code, *remote(server, "good").urls, SHA256, str(tmp_path)]
    processes = [subprocess.Popen(arguments) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["file.bin"]
    assert len(server.asked) == 1


def test_many_threads_never_write_the_same_part(server, tmp_path):
    errors = []

    def work(path):
        try:
            fetch(remote(server, path), tmp_path)
        except DatasetError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(path,)) for path in ["wrong", "good"] * 5]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["file.bin"]
    assert all("sha256" in str(error) for error in errors)


def test_progress_is_printed_on_a_line(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(download, "LINE_SECONDS", 0.0)
    fetch(remote(server, "good"), tmp_path)
    assert "file.bin: 1.0 of 1.0 MiB" in capsys.readouterr().err


def test_progress_is_a_bar_on_a_terminal(server, tmp_path, monkeypatch, capsys):
    pytest.importorskip("rich", reason="rich is not installed")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fetch(remote(server, "good"), tmp_path)
    assert "file.bin" in capsys.readouterr().err
