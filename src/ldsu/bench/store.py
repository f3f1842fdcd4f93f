"""The results of an experiment in one SQLite file that is crash-safe and supports concurrent processes.

Rows are written once, one batch per transaction, with a write-ahead log: a process killed at any moment loses only
the current batch. Tasks are claimed in the same file, so two runs on one store share the work.

A store belongs to one machine: a write-ahead log needs shared memory, and costs are times of that machine. If several
machines run one experiment, each fills its own store, and `ldsu bench merge` joins their rows.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import re
import secrets
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from ldsu import __version__
from ldsu._utils.files import replacing
from ldsu.bench.tasks import STAGES, Cell, Row, Task

SCHEMA = 1
# Identifies the file as a store, in the header field that SQLite reserves for this.
APPLICATION_ID = int.from_bytes(b"LDSU", "big")
BUSY_SECONDS = 60.0
# Changes with each boot; Linux only.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A claim of another host, whose processes cannot be checked, is stale after this time.
STALE_SECONDS = 300.0

KEY = tuple(field.name for field in fields(Cell))
COLUMNS = (
    *KEY,
    "map",
    "accuracy",
    "n_features",
    *(f"seconds_{stage}" for stage in STAGES),
    "peak_mib",
    "seed",
    "error",
    "run",
    "written_at",
)

OWN_CLAIM = "pid = ? AND host = ?"
TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (id INTEGER PRIMARY KEY, started_at REAL, finished_at REAL, command TEXT, versions TEXT,
                   jobs INTEGER, threads INTEGER);
CREATE TABLE cells (data TEXT NOT NULL, split INTEGER NOT NULL, labels INTEGER NOT NULL, method TEXT NOT NULL,
                    params TEXT NOT NULL, C REAL NOT NULL, fold INTEGER NOT NULL,
                    map REAL, accuracy REAL, n_features INTEGER,
                    {", ".join(f"seconds_{stage} REAL" for stage in STAGES)},
                    peak_mib REAL, seed INTEGER, error TEXT, run INTEGER, written_at REAL,
                    PRIMARY KEY ({", ".join(KEY)})) WITHOUT ROWID;
CREATE TABLE tasks (data TEXT NOT NULL, split INTEGER NOT NULL, cells INTEGER NOT NULL DEFAULT 0, finished TEXT,
                    PRIMARY KEY (data, split));
CREATE TABLE claims (data TEXT NOT NULL, split INTEGER NOT NULL, pid INTEGER, started REAL, host TEXT,
                     heartbeat REAL, memory INTEGER, doing TEXT, PRIMARY KEY (data, split));
CREATE TABLE failures (data TEXT NOT NULL, split INTEGER NOT NULL, run INTEGER, at REAL, final INTEGER, error TEXT);
CREATE TABLE costs (data TEXT NOT NULL, method TEXT NOT NULL, labels INTEGER NOT NULL, seconds_fit REAL,
                    seconds_transform REAL, peak_mib REAL, run INTEGER, PRIMARY KEY (data, method, labels));
CREATE TABLE pictures (data TEXT NOT NULL, method TEXT NOT NULL, json TEXT, PRIMARY KEY (data, method))
"""
# Older stores lack this table; it is created when first written.
SURPLUS_TABLE = """
CREATE TABLE IF NOT EXISTS unasked (data TEXT NOT NULL, split INTEGER NOT NULL, cells INTEGER, failed INTEGER,
                                    PRIMARY KEY (data, split))
"""
# Remedies by the beginning of the name of an error of SQLite.
DISK_HINT = (
    " Free disk space and run the command again: the rows in the store are kept. Or use a file on another disk with "
    "--store."
)
FOLDER_HINT = " Use a file in a writable folder with --store."
HINTS = {
    "SQLITE_CORRUPT": " The file is damaged: restore a copy, or move it away and run again.",
    "SQLITE_FULL": DISK_HINT,
    "SQLITE_IOERR": DISK_HINT,
    "SQLITE_CANTOPEN": FOLDER_HINT,
    "SQLITE_READONLY": FOLDER_HINT,
}


class StoreError(OSError):
    """The store cannot be opened, read or written; the message is meant for the user."""


class Count(NamedTuple):
    """Number of cells of a task, number of those with an error, and time of the last one."""

    done: int
    failed: int
    last: float | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, identified by its pid and start time (see `_started`), since pids are reused."""

    pid: int
    started: float
    host: str

    def is_same(self, other: Owner) -> bool:
        """Whether both are the same process. Start times may differ slightly if the clock was adjusted."""
        return (self.pid, self.host) == (other.pid, other.host) and abs(self.started - other.started) < 2

    def is_alive(self) -> bool:
        """Whether the process is still running; only for processes of this machine."""
        try:
            if abs(_started(self.pid) - self.started) >= 2:
                return False
            return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


class Claim(NamedTuple):
    """A task claimed by a process."""

    task: Task
    owner: Owner
    heartbeat: float
    memory: int
    doing: str
    is_local: bool

    def is_live(self, now: float) -> bool:
        """Whether its owner is still alive."""
        # A heartbeat in the future counts like one in the past: a clock was adjusted.
        return self.owner.is_alive() if self.is_local else abs(now - self.heartbeat) < STALE_SECONDS


class Store:
    """Rows, claims and costs of one experiment.

    Parameters
    ----------
    path : path-like
        The SQLite file; SQLite adds two files next to it while it is open.
    create : bool, default=True
        Create it if it does not exist; otherwise raise an error.
    read_only : bool, default=False
        Open it for reading only; works for files without write permission.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        create = create and not read_only
        if create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not self.path.exists():
            raise StoreError(f"Store {self.path} does not exist; create it with `ldsu bench run`.")
        with self._translate_errors("opened"):
            mode = _read_mode(self.path) if read_only else "mode=rwc" if create else "mode=rw"
            address = f"{self.path.absolute().as_uri()}?{mode}"
            self._db = sqlite3.connect(address, timeout=BUSY_SECONDS, isolation_level=None, uri=True)
            try:
                self._identity = self._file_id()
                self._prepare(create)
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def check_not_replaced(self) -> None:
        """Raise a `StoreError` if the path no longer refers to the open file, which SQLite would not notice."""
        if self._file_id() != self._identity:
            raise StoreError(
                f"The store {self.path.name} was deleted or replaced while in use, and its new results are "
                "lost. Run the same command to start again."
            )

    def _file_id(self) -> tuple[int, int] | None:
        """Device and inode of the file at the path; None if there is no file."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    # Set-up

    def _prepare(self, create: bool) -> None:
        self._db.execute(f"PRAGMA query_only = {int(self.read_only)}")
        self._db.execute("PRAGMA synchronous = NORMAL")
        if not self._is_store():
            if not create:
                raise StoreError(f"{self.path} is not a results store: it is empty.")
            with self._transaction():
                # Another process may have created the tables in the meantime.
                if not self._is_store():
                    for statement in TABLES.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    # The salt keeps the hash of a host name from being looked up in a dictionary.
                    meta = {"schema": str(SCHEMA), "salt": secrets.token_hex(16)}
                    self._db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        schema = self.meta("schema")
        if schema != str(SCHEMA):
            raise StoreError(
                f"The store {self.path} has schema {schema}, but this version of ldsu reads schema {SCHEMA}; "
                "use another file with --store."
            )
        if create:
            self._use_write_ahead_log()

    def _is_store(self) -> bool:
        """Whether the tables exist; False for an empty file, an error for any other database."""
        # Tables first: another process may make them, and with them the number, between the two.
        n_tables = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        if self._db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
            return True
        if n_tables:
            raise StoreError(f"{self.path} is not a results store: it is another kind of SQLite database.")
        return False

    def _use_write_ahead_log(self) -> None:
        # SQLite does not wait for other processes when it changes the mode.
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        """Translate errors of SQLite to a `StoreError` with a remedy."""
        try:
            yield
        except sqlite3.Error as error:
            if what != "opened":
                self.check_not_replaced()
            # Some errors of the sqlite3 module have no name.
            name = getattr(error, "sqlite_errorname", "")
            if name == "SQLITE_NOTADB":
                raise StoreError(f"{self.path} is not a results store: it is not an SQLite database.") from None
            hint = next((hint for beginning, hint in HINTS.items() if name.startswith(beginning)), "")
            raise StoreError(f"The store {self.path} could not be {what}: {error}.{hint}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """An atomic transaction that takes the write lock at the start."""
        with self._translate_errors("written"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
                self.check_not_replaced()
            except BaseException:
                # On a full disk SQLite has already rolled back.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _write(self, query: str, values: Sequence[Any], *, many: bool = False) -> sqlite3.Cursor:
        """Execute a statement, or one for each of many values, in a transaction of its own."""
        with self._transaction():
            return self._db.executemany(query, values) if many else self._db.execute(query, values)

    def _query(self, query: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """Rows as tuples."""
        with self._translate_errors("read"):
            yield from self._db.execute(query, values)

    def _select(self, query: str, values: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """Rows as dicts by column."""
        with self._translate_errors("read"):
            cursor = self._db.cursor()
            cursor.row_factory = sqlite3.Row
            yield from map(dict, cursor.execute(query, values))

    @cached_property
    def host(self) -> str:
        """A salted hash of the host name: it does not reveal the name and differs between stores."""
        return hashlib.sha256(f"{self.meta('salt') or ''}{platform.node()}".encode()).hexdigest()[:16]

    def owner(self, pid: int) -> Owner:
        """The process `pid` of this machine, as stored in claims."""
        return Owner(pid, _started(pid), self.host)

    def bind(self, name: str, text: str, protocol: Mapping[str, Any]) -> None:
        """Bind the store to one experiment (name and TOML) and protocol: rows of different ones are not comparable.

        `protocol` holds the settings that must not change between runs; new names are added.
        """
        with self._transaction():
            stored = self.meta("experiment")
            if stored not in (None, name):
                raise StoreError(
                    f"The store {self.path} holds experiment {stored!r}, not {name!r}; use another file with --store."
                )
            before = json.loads(self.meta("protocol") or "{}")
            new = json.loads(json.dumps(protocol))
            for key in before.keys() & new.keys():
                if before[key] != new[key]:
                    raise StoreError(
                        f"The store {self.path} was created with {key} = {json.dumps(before[key])}, but the experiment "
                        f"now has {json.dumps(new[key])}; restore it, or use another file with --store."
                    )
            for item in {"experiment": name, "toml": text, "protocol": json.dumps(before | new)}.items():
                self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", item)

    def meta(self, key: str) -> str | None:
        """A metadata value of the store: ``experiment``, ``toml``, ``protocol``, ``schema`` or ``salt``."""
        return next((value for (value,) in self._query("SELECT value FROM meta WHERE key = ?", (key,))), None)

    # Runs

    def begin_run(self, command: str, jobs: int, threads: int) -> int:
        """Record the start of a run and the versions it uses; returns its number."""
        query = "INSERT INTO runs (started_at, command, versions, jobs, threads) VALUES (?, ?, ?, ?, ?)"
        cursor = self._write(query, (time.time(), command, json.dumps(versions()), jobs, threads))
        return int(cursor.lastrowid or 0)

    def end_run(self, run: int) -> None:
        """Record the end of a run."""
        self._write("UPDATE runs SET finished_at = ? WHERE id = ?", (time.time(), run))

    def runs(self) -> list[dict[str, Any]]:
        """The runs so far, with `versions` as a dict."""
        return [row | {"versions": json.loads(row["versions"])} for row in self._select("SELECT * FROM runs")]

    # Cells

    def add(self, rows: Iterable[Row], run: int) -> int:
        """Write a batch atomically; existing rows are kept. Returns the number of rows written."""
        now = time.time()
        values = [_values(row, run, now) for row in rows]
        return self._write(f"{_insert_into('cells', COLUMNS)} ON CONFLICT DO NOTHING", values, many=True).rowcount

    def merge(self, other: Store, data: Sequence[str]) -> int:
        """Copy the cells of some data sets, and their runs, from a store with the same protocol.

        Existing rows are kept, unless they hold an error and the other store has a score. Costs are not copied: they
        are times of another machine. Returns the number of rows added or replaced.
        """
        ours, theirs = (json.loads(store.meta("protocol") or "{}") for store in (self, other))
        for key in ours.keys() & theirs.keys():
            if ours[key] != theirs[key]:
                raise StoreError(
                    f"{other.path} was created with {key} = {json.dumps(theirs[key])}, but {self.path} with "
                    f"{json.dumps(ours[key])}: their rows are not comparable."
                )
        where, values = _where({"data": list(data)})
        with self._transaction():
            number: dict[int, int | None] = {}
            for run in other._select(f"SELECT * FROM runs WHERE id IN (SELECT DISTINCT run FROM cells{where})", values):
                old = run.pop("id")
                number[old] = self._db.execute(_insert_into("runs", run), list(run.values())).lastrowid
            rows = other._query(f"SELECT {', '.join(COLUMNS)} FROM cells{where}", values)
            at = COLUMNS.index("run")
            added = self._db.executemany(
                f"{_insert_into('cells', COLUMNS)} "
                f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET "
                f"{', '.join(f'{name} = excluded.{name}' for name in COLUMNS if name not in KEY)} "
                "WHERE cells.error IS NOT NULL AND excluded.error IS NULL",
                ((*row[:at], number.get(row[at]), *row[at + 1 :]) for row in rows),
            ).rowcount
            # Drop runs that contributed no rows.
            useful = {run for (run,) in self._query("SELECT DISTINCT run FROM cells")}
            idle = [(new,) for new in number.values() if new not in useful]
            self._db.executemany("DELETE FROM runs WHERE id = ?", idle)
        return added

    def done_keys(self, task: Task) -> set[Cell]:
        """The cells of a task in the store."""
        return {Cell(task.data, task.split, *key) for key in self.keys(task)}

    def keys(self, task: Task, *, failed: bool = False) -> Iterator[tuple[int, str, str, float, int]]:
        """Keys of the cells of a task, or of those with an error: labels, method, params, C, fold."""
        query = f"SELECT {', '.join(KEY[2:])} FROM cells WHERE data = ? AND split = ?"
        return self._query(f"{query} AND error IS NOT NULL" if failed else query, astuple(task))

    def count(self, task: Task) -> Count:
        """Number of cells of a task in the store."""
        return self.counts(data=task.data, split=task.split).get(task, Count(0, 0))

    def rows(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Rows in the order of their keys, as dicts by column; filters are columns with a value, a list or None."""
        where, values = _where(filters)
        yield from self._select(f"SELECT {', '.join(COLUMNS)} FROM cells{where} ORDER BY {', '.join(KEY)}", values)

    def counts(self, **filters: Any) -> dict[Task, Count]:
        """Number of cells per task; filters as in `rows`."""
        where, values = _where(filters)
        query = f"SELECT data, split, COUNT(*), COUNT(error), MAX(written_at) FROM cells{where} GROUP BY data, split"
        return {Task(data, split): Count(*rest) for data, split, *rest in self._query(query, values)}

    def delete_errors(self, tasks: Sequence[Task], methods: Sequence[str]) -> list[Task]:
        """Delete the cells of some methods that hold an error, so that they are retried.

        Tasks claimed by a live process are skipped. Returns those tasks.
        """
        where, values = _where({"method": list(methods)})
        with self._transaction():
            busy = {claim.task for claim in self.live_claims()}
            for task in (task for task in tasks if task not in busy):
                query = f"DELETE FROM cells{where} AND data = ? AND split = ? AND error IS NOT NULL"
                self._db.execute(query, [*values, *astuple(task)])
        return [task for task in tasks if task in busy]

    # Tasks

    def plan(self, cells: Mapping[Task, int], surplus: Mapping[Task, Count] | None = None) -> None:
        """Record the number of cells of each task that the experiment requires now: a status needs only the store.

        Tasks planned before and not listed are no longer required. `surplus` are numbers of stored cells that are not
        required, as after a change of the grid; None keeps the recorded numbers.
        """
        with self._transaction():
            self._db.execute("UPDATE tasks SET cells = 0")
            self._db.executemany(
                "INSERT INTO tasks (data, split, cells) VALUES (?, ?, ?) "
                "ON CONFLICT (data, split) DO UPDATE SET cells = excluded.cells",
                [(*astuple(task), number) for task, number in cells.items()],
            )
            if surplus is not None:
                self._db.execute(SURPLUS_TABLE)
                self._db.executemany(
                    "INSERT OR REPLACE INTO unasked VALUES (?, ?, ?, ?)",
                    [(*astuple(task), count.done, count.failed) for task, count in surplus.items()],
                )

    def planned(self) -> dict[Task, int]:
        """Number of cells of each planned task."""
        query = "SELECT data, split, cells FROM tasks WHERE cells > 0"
        return {Task(data, split): cells for data, split, cells in self._query(query)}

    def surplus(self) -> dict[Task, Count]:
        """Number of stored cells that the experiment did not require when it was last planned."""
        is_known = any(self._query("SELECT 1 FROM sqlite_master WHERE name = 'unasked'"))
        rows = self._query("SELECT * FROM unasked") if is_known else ()
        return {Task(data, split): Count(*rest) for data, split, *rest in rows}

    def claim(self, task: Task, *, memory: int = 0, available: int | None = None) -> bool:
        """Claim a task for this process. Returns False if another live process holds it or memory is short.

        It needs `memory` bytes, and `available` are free on this machine (None skips the check), except those that
        processes have claimed but not yet used. Raises a MemoryError if no other task will free memory.
        """
        owner = self.owner(os.getpid())
        with self._transaction():
            live = self.live_claims()  # after waiting for the lock
            if any(claim.task == task and not claim.owner.is_same(owner) for claim in live):
                return False
            claimed: Counter[int] = Counter()
            for claim in live:
                if claim.is_local and claim.task != task:
                    claimed[claim.owner.pid] += claim.memory
            if available is not None and memory > available - sum(_unused_memory(*item) for item in claimed.items()):
                if any(claimed.values()):
                    return False
                raise MemoryError(
                    f"{task} needs about {memory / 2**30:.1f} GiB, but "
                    f"{available / 2**30:.1f} GiB is available. "
                    "Free some memory, or use a larger machine, and run the command again."
                )
            self._db.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, '')",
                (*astuple(task), *astuple(owner), time.time(), memory),
            )
        return True

    def claims(self) -> list[Claim]:
        """All claims, of live and dead processes."""
        query = "SELECT data, split, pid, started, host, heartbeat, memory, doing FROM claims ORDER BY data, split"
        return [
            Claim(Task(data, split), Owner(pid, started, host), heartbeat, memory, doing, host == self.host)
            for data, split, pid, started, host, heartbeat, memory, doing in self._query(query)
        ]

    def live_claims(self) -> list[Claim]:
        """Claims of live processes."""
        now = time.time()
        return [claim for claim in self.claims() if claim.is_live(now)]

    def heartbeat(self, doing: Mapping[Task, str]) -> None:
        """Update the heartbeat and current step of tasks of this process."""
        self._write(
            f"UPDATE claims SET heartbeat = ?, doing = ? WHERE {OWN_CLAIM} AND data = ? AND split = ?",
            [(time.time(), text, os.getpid(), self.host, *astuple(task)) for task, text in doing.items()],
            many=True,
        )

    def release(self, task: Task | None = None) -> None:
        """Release a task of this process; None for all of them."""
        query, values = f"DELETE FROM claims WHERE {OWN_CLAIM}", (os.getpid(), self.host)
        if task is None:
            self._write(query, values)
        else:
            self._write(f"{query} AND data = ? AND split = ?", (*values, *astuple(task)))

    def clear_stale(self) -> None:
        """Delete the claims of dead processes."""
        with self._transaction():
            stale = set(self.claims()) - set(self.live_claims())
            self._db.executemany("DELETE FROM claims WHERE data = ? AND split = ?", [astuple(c.task) for c in stale])

    # Failures

    def add_failure(self, task: Task, run: int, error: str, *, final: bool) -> int:
        """Record a failure of a task; `final` if this run abandons it. Returns its number of failures in this run."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO failures VALUES (?, ?, ?, ?, ?, ?)",
                (*astuple(task), run, time.time(), final, without_folders(error)),
            )
            query = "SELECT COUNT(*) FROM failures WHERE data = ? AND split = ? AND run = ?"
            return int(self._db.execute(query, (*astuple(task), run)).fetchone()[0])

    def failures(self, run: int | None = None) -> list[dict[str, Any]]:
        """Failures of a run (or of all runs), oldest first: data, split, run, at, final, error."""
        return list(self._select("SELECT * FROM failures WHERE ? IS NULL OR run = ? ORDER BY at", (run, run)))

    # Costs and pictures

    def add_cost(self, data: str, method: str, labels: int, cost: Mapping[str, float], run: int) -> None:
        """Write the cost of a stand-alone fit (seconds_fit, seconds_transform, peak_mib); existing costs are kept."""
        figures = (float(cost[name]) for name in ("seconds_fit", "seconds_transform", "peak_mib"))
        values = (data, method, int(labels), *figures, run)
        self._write("INSERT OR IGNORE INTO costs VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def costs(self) -> list[dict[str, Any]]:
        """Costs of stand-alone fits: data, method, labels, seconds_fit, seconds_transform, peak_mib, run."""
        return list(self._select("SELECT * FROM costs ORDER BY data, method, labels"))

    def add_picture(self, data: str, method: str, text: str) -> None:
        """Store a picture of the report (JSON), replacing an earlier one; does nothing in a read-only store."""
        if not self.read_only:
            self._write("INSERT OR REPLACE INTO pictures VALUES (?, ?, ?)", (data, method, text))

    def picture(self, data: str, method: str) -> str | None:
        """A stored picture, or None."""
        query = "SELECT json FROM pictures WHERE data = ? AND method = ?"
        return next((text for (text,) in self._query(query, (data, method))), None)

    # Integrity and export

    def check(self) -> list[str]:
        """Results of SQLite's integrity check; empty if the file is intact."""
        try:
            found = [row[0] for row in self._query("PRAGMA integrity_check")]
        except StoreError as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def export_csv(self, path: str | os.PathLike[str]) -> int:
        """Write rows to a CSV file atomically. Returns their number."""
        number = 0
        with replacing(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for row in self.rows():
                writer.writerow(row)
                number += 1
        return number


def versions() -> dict[str, str]:
    """Versions of the packages, without importing them, and the kind of machine, not its name."""
    packages = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
    return {
        "python": platform.python_version(),
        **{name: metadata.version(package) for name, package in packages.items()},
        "ldsu": __version__,
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def without_folders(text: str) -> str:
    """A message with the folders of this machine removed from file paths."""
    text = re.sub(r'(File ")[^"]*[/\\]', r"\1", text)
    folders = [Path(__file__).parents[2], Path(sys.prefix), Path(tempfile.gettempdir())]
    for find in (Path.home, Path.cwd):
        with suppress(OSError, RuntimeError):  # may not exist
            folders.append(find())
    # The longest first, since folders may be nested.
    for folder in sorted((str(path) for path in folders if path != Path(path.anchor)), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?:[/\\]|\b)", "", text)
    return text


def _started(pid: int) -> float:
    """Start time of a process, independent of clock adjustments: seconds since boot, offset by a number of the boot.

    On Linux the creation time from psutil changes when the clock is adjusted, and processes would take the claims of
    others for those of dead processes.
    """
    try:
        boot = int(BOOT_ID.read_text()[:4], 16)
    except (OSError, ValueError):  # on other systems the creation time does not change
        return float(psutil.Process(pid).create_time())
    since = psutil.boot_time()  # first: create_time is computed from it
    return float(psutil.Process(pid).create_time() - since + boot * 1e9)


def is_writable(path: Path) -> bool:
    """Whether a store is writable: the file, and the folder for its log."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _read_mode(path: Path) -> str:
    """The mode in which SQLite opens a file for reading."""
    if is_writable(path):
        return "mode=rw"
    # Without a log no process is writing, and SQLite need not create one.
    log = path.with_name(f"{path.name}-wal")
    return "mode=ro" if log.exists() else "mode=ro&immutable=1"


def _values(row: Row, run: int, now: float) -> tuple[Any, ...]:
    """A row in the order of COLUMNS, in types of SQLite (NumPy integers would be stored as bytes)."""
    cell = row.cell
    return (
        *(cell.data, int(cell.split), int(cell.labels), cell.method, cell.params, float(cell.C), int(cell.fold)),
        None if row.map is None else float(row.map),
        None if row.accuracy is None else float(row.accuracy),
        int(row.n_features),
        *(float(row.seconds.get(stage, 0.0)) for stage in STAGES),
        float(row.peak_mib),
        int(row.seed),
        None if row.error is None else without_folders(row.error),
        run,
        now,
    )


def _insert_into(table: str, columns: Collection[str]) -> str:
    """An INSERT statement."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


def _where(filters: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A WHERE clause and its values."""
    terms: list[str] = []
    values: list[Any] = []
    for column, wanted in filters.items():
        if column not in COLUMNS:
            raise ValueError(f"Unknown column {column!r}; known columns are {', '.join(COLUMNS)}.")
        if wanted is None:
            terms.append(f"{column} IS NULL")
        elif isinstance(wanted, list | tuple | set | frozenset):
            terms.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values += wanted
        else:
            terms.append(f"{column} = ?")
            values.append(wanted)
    return (f" WHERE {' AND '.join(terms)}" if terms else ""), values


def _unused_memory(pid: int, claimed: int) -> int:
    """Bytes that a process has claimed and that neither it nor its workers use yet."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for user in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):  # it has just exited
                claimed -= user.memory_info().rss
        return max(0, claimed)
    return 0
