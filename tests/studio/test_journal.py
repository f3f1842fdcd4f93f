"""Nothing that was acknowledged is lost, and a journal is of one set of data and one process."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from ldsu.studio import journal as journals
from ldsu.studio.journal import Journal, JournalError, read_journal

HEADER = {"checksum": "abc", "rows": 5, "source": "table.csv"}
# Acknowledges each entry on standard output once it is on the disk.
WRITER = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("journal", {journals.__file__!r})  # alone: the package takes seconds
journals = importlib.util.module_from_spec(spec)
spec.loader.exec_module(journals)
journal = journals.Journal(sys.argv[1], {HEADER})
print(len(journal.entries), flush=True)
for i in range(len(journal.entries), 10**6):
    journal.append({{"do": "label", "number": i, "rows": list(range(i % 300))}})
    print(i, flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.jsonl"


def written(path, *entries):
    journal = Journal(path, HEADER)
    for entry in entries:
        journal.append(entry)
    journal.close()


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_no_acknowledged_entry_is_lost_when_the_process_is_killed(path):
    rng = random.Random(0)
    acknowledged = -1
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as process:
            found = int(process.stdout.readline())
            assert found >= acknowledged + 1
            time.sleep(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            lines = process.stdout.read().split("\n")[:-1]
        acknowledged = int(lines[-1]) if lines else found - 1
    _, entries = read_journal(path)
    assert len(entries) > acknowledged > 0
    assert [entry["number"] for entry in entries] == list(range(len(entries)))


def test_every_cut_of_the_last_line_leaves_the_entries_before_it(path):
    written(path, {"number": 1}, {"number": 2, "class": "é"})
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path, HEADER)
        assert journal.entries == [{"number": 1}]
        journal.append({"number": 3})
        journal.close()
        assert read_journal(path)[1] == [{"number": 1}, {"number": 3}]


def test_blocks_of_zeros_after_a_power_failure_are_cut_off(path):
    written(path, {"number": 1})
    path.write_bytes(path.read_bytes() + b"\0" * 30 + b"\n")
    journal = Journal(path, HEADER)
    assert journal.entries == [{"number": 1}]
    journal.close()


def test_a_file_that_was_killed_before_its_header_is_started_again(path):
    path.write_bytes(b'{"format":"lds')
    written(path, {"number": 1})
    assert read_journal(path)[1] == [{"number": 1}]


def test_a_damaged_line_in_the_middle_is_named_and_nothing_is_changed(path):
    written(path, {"number": 1}, {"number": 2})
    lines = path.read_bytes().split(b"\n")
    lines[1] = b"{damaged"
    path.write_bytes(b"\n".join(lines))
    before = path.read_bytes()
    with pytest.raises(JournalError, match="line 2 is damaged"):
        Journal(path, HEADER)
    assert path.read_bytes() == before


@pytest.mark.parametrize("change", [{"checksum": "xyz"}, {"rows": 6}])
def test_a_journal_of_other_data_is_refused_and_unchanged(path, change):
    written(path, {"number": 1})
    before = path.read_bytes()
    with pytest.raises(JournalError, match="belongs to other data"):
        Journal(path, {**HEADER, **change})
    assert path.read_bytes() == before


def test_other_files_are_refused(path):
    path.write_text(json.dumps({"a": 1}) + "\n")
    with pytest.raises(JournalError, match="not a journal"):
        Journal(path, HEADER)


def test_two_processes_cannot_open_one_journal_and_a_killed_one_frees_it(path):
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        with pytest.raises(JournalError, match="open in another"):
            Journal(path, HEADER)
        process.kill()
    Journal(path, HEADER).close()


def test_a_full_disk_is_reported_and_leaves_whole_lines(path, monkeypatch):
    journal = Journal(path, HEADER)
    journal.append({"number": 1})

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.append({"number": 2})
    journal.append({"number": 3})
    journal.close()
    assert read_journal(path)[1] == [{"number": 1}, {"number": 3}]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_new_journal_is_readable_only_by_its_owner(path):
    written(path)
    assert path.stat().st_mode & 0o077 == 0
