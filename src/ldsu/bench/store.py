"""The results of an experiment in one SQLite file that survives a crash and serves several processes at once.

Rows are written once, a batch in one transaction, with a write-ahead log: a process killed at any moment loses the
batch in flight and nothing else. Tasks are claimed in the same file, so two runs on one store share the work.

A store belongs to one machine: a write-ahead log needs memory that all its users share, and costs are times of that
machine. Where several machines work on one experiment, each fills a store of its own, and `ldsu bench merge` puts
their rows together.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from ldsu import __version__
from ldsu.bench.cells import STAGES, Cell, Row, Task
from ldsu.files import replacing

SCHEMA = 1
# Marks the file as one of ours, in a field of its header that SQLite keeps for this.
APPLICATION_ID = int.from_bytes(b"LDSU", "big")
BUSY_SECONDS = 60.0
# Differs each time the machine starts; Linux has it.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A claim of another host, whose processes cannot be looked up, is stale after this.
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

# An older store has none of these; it gets them when they are first written.
LATER_TABLES = """
CREATE TABLE IF NOT EXISTS finished (data TEXT NOT NULL, split INTEGER NOT NULL, asked TEXT NOT NULL,
                                     PRIMARY KEY (data, split, asked)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unasked (data TEXT NOT NULL, split INTEGER NOT NULL, cells INTEGER, failed INTEGER,
                                    PRIMARY KEY (data, split))
"""
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
CREATE TABLE pictures (data TEXT NOT NULL, method TEXT NOT NULL, json TEXT, PRIMARY KEY (data, method));
{LATER_TABLES}"""


class StoreError(OSError):
    """The store cannot be used or written; the message is a sentence for the user."""


class Count(NamedTuple):
    """How many cells of a task are there, how many of them hold an error, and when the last came."""

    done: int
    failed: int
    last: float | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told from a later one with the same number by when it started (see `_started`)."""

    pid: int
    started: float
    host: str

    def is_same(self, other: Owner) -> bool:
        """Whether it is this process. The clock the creation time comes from may have been set by a moment."""
        return (self.pid, self.host) == (other.pid, other.host) and abs(self.started - other.started) < 2

    def is_alive(self) -> bool:
        """Whether this very process still runs; only for one of this machine."""
        try:
            if abs(_started(self.pid) - self.started) >= 2:
                return False
            return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


class Claim(NamedTuple):
    """A task being worked on."""

    task: Task
    owner: Owner
    heartbeat: float
    memory: int
    doing: str
    here: bool

    def is_live(self, now: float) -> bool:
        """Whether its owner still works on it."""
        # A heartbeat from the future is as old as one from the past: a clock was set.
        return self.owner.is_alive() if self.here else abs(now - self.heartbeat) < STALE_SECONDS


class Store:
    """Rows, claims and costs of one experiment.

    Parameters
    ----------
    path : path-like
        The SQLite file; two more lie beside it while it is open.
    create : bool, default=True
        Make it if it is not there. Otherwise that is an error.
    read_only : bool, default=False
        Open it to be read, which a file that cannot be written allows too.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        create = create and not read_only
        if create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif not self.path.exists():
            raise StoreError(f"There is no store at {self.path} yet; make it with `ldsu bench run`.")
        with self._in_words("opened"):
            mode = _read_mode(self.path) if read_only else "mode=rwc" if create else "mode=rw"
            address = f"{self.path.absolute().as_uri()}?{mode}"
            self._db = sqlite3.connect(address, timeout=BUSY_SECONDS, isolation_level=None, uri=True)
            try:
                self._identity = self._found()
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

    def require_there(self) -> None:
        """Raise a `StoreError` if the path no longer leads to the open file, which SQLite writes to all the same."""
        if self._found() != self._identity:
            raise StoreError(
                f"The store {self.path.name} was deleted or replaced while it was in use, and what was written to it "
                "is lost. Give the same command to start again."
            )

    def _found(self) -> tuple[int, int] | None:
        """What tells the file at the path from any other; None where there is none."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    # Set-up

    def _prepare(self, create: bool) -> None:
        self._db.execute(f"PRAGMA query_only = {int(self.read_only)}")
        self._db.execute("PRAGMA synchronous = NORMAL")
        if not self._is_ours():
            if not create:
                raise StoreError(f"{self.path} is not a store of results: it is empty.")
            with self._transaction():
                # Another process may have made the tables while this one waited.
                if not self._is_ours():
                    self._make(TABLES)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    # The salt keeps the sign of a machine from being looked up in a list of names.
                    meta = {"schema": str(SCHEMA), "salt": secrets.token_hex(16)}
                    self._db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        schema = self.meta("schema")
        if schema != str(SCHEMA):
            raise StoreError(
                f"The store {self.path} has schema {schema}, but this version of ldsu reads schema {SCHEMA}; "
                "name another file with --store."
            )
        if create:
            self._use_write_ahead_log()

    def _make(self, tables: str) -> None:
        for statement in tables.split(";"):
            self._db.execute(statement)

    def _has(self, table: str) -> bool:
        return any(self._query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)))

    def _is_ours(self) -> bool:
        """Whether the tables are there; False for an empty file, an error for any other database."""
        # Tables first: another process may make them, and with them the number, between the two.
        n_tables = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        if self._db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
            return True
        if n_tables:
            raise StoreError(f"{self.path} is not a store of results: it is another kind of SQLite database.")
        return False

    def _use_write_ahead_log(self) -> None:
        # SQLite does not wait for other processes when it changes the mode, so we do.
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
    def _in_words(self, what: str) -> Iterator[None]:
        """Say what SQLite could not do in a sentence."""
        try:
            yield
        except sqlite3.Error as error:
            if what != "opened":
                self.require_there()
            # Some errors of the module itself carry no name.
            name = getattr(error, "sqlite_errorname", "")
            if name == "SQLITE_NOTADB":
                raise StoreError(f"{self.path} is not a store of results: it is no SQLite database.") from None
            hint = ""
            if name.startswith("SQLITE_CORRUPT"):
                hint = " The file is damaged: put a copy in its place, or move it away and run again."
            elif name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
                hint = (
                    " Free some space and give the command again: the rows that are in the store stay. "
                    "Or name a file on another disk with --store."
                )
            elif name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
                hint = " Name a file in a folder that can be written with --store."
            raise StoreError(f"The store {self.path} could not be {what}: {error}.{hint}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of the body or nothing of it, with the right to write from the start."""
        with self._in_words("written"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
                self.require_there()
            except BaseException:
                # A full disk has already rolled it back.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _query(self, query: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """Rows as tuples."""
        with self._in_words("read"):
            yield from self._db.execute(query, values)

    def _select(self, query: str, values: Sequence[Any] = ()) -> Iterator[dict[str, Any]]:
        """Rows as dicts by column."""
        with self._in_words("read"):
            cursor = self._db.execute(query, values)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(names, row, strict=True))

    @cached_property
    def host(self) -> str:
        """A sign for this machine that does not give its name away and differs from store to store."""
        return hashlib.sha256(f"{self.meta('salt') or ''}{platform.node()}".encode()).hexdigest()[:16]

    def owner(self, pid: int) -> Owner:
        """The process `pid` of this machine, as it stands in claims."""
        return Owner(pid, _started(pid), self.host)

    def bind(self, name: str, text: str, protocol: Mapping[str, Any]) -> None:
        """Keep the store for one experiment, and for one protocol, since rows of two would not compare.

        Parameters
        ----------
        name, text : str
            The experiment's name and TOML.
        protocol : mapping
            What may not change between runs, by name. A name not met before is added.
        """
        with self._transaction():
            kept = self.meta("experiment")
            if kept not in (None, name):
                raise StoreError(
                    f"The store {self.path} holds the experiment {kept!r}, not {name!r}; "
                    "name another file with --store."
                )
            before = json.loads(self.meta("protocol") or "{}")
            new = json.loads(json.dumps(protocol))
            for key in before.keys() & new.keys():
                if before[key] != new[key]:
                    raise StoreError(
                        f"The store {self.path} was made with {key} = {json.dumps(before[key])}, but the experiment "
                        f"now says {json.dumps(new[key])}; set it back, or name another file with --store."
                    )
            for item in {"experiment": name, "toml": text, "protocol": json.dumps(before | new)}.items():
                self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", item)

    def meta(self, key: str) -> str | None:
        """A remark about the store: ``experiment``, ``toml``, ``protocol``, ``schema`` or ``salt``."""
        return next((value for (value,) in self._query("SELECT value FROM meta WHERE key = ?", (key,))), None)

    # Runs

    def begin_run(self, command: str, jobs: int, threads: int) -> int:
        """Note that a run starts, with the versions it uses; gives its number."""
        with self._transaction():
            return self._db.execute(
                "INSERT INTO runs (started_at, command, versions, jobs, threads) VALUES (?, ?, ?, ?, ?)",
                (time.time(), command, json.dumps(versions()), jobs, threads),
            ).lastrowid  # type: ignore[return-value]  # an INSERT has one

    def end_run(self, run: int) -> None:
        """Note that a run came to its end."""
        with self._transaction():
            self._db.execute("UPDATE runs SET finished_at = ? WHERE id = ?", (time.time(), run))

    def runs(self) -> list[dict[str, Any]]:
        """The runs so far, with `versions` as a dict."""
        return [row | {"versions": json.loads(row["versions"])} for row in self._select("SELECT * FROM runs")]

    # Cells

    def add(self, rows: Iterable[Row], run: int) -> int:
        """Write a batch, all of it or nothing; rows already there stay as they are. Gives the number written."""
        now = time.time()
        values = [_values(row, run, now) for row in rows]
        marks = ", ".join("?" * len(COLUMNS))
        with self._transaction():
            return self._db.executemany(
                f"INSERT OR IGNORE INTO cells ({', '.join(COLUMNS)}) VALUES ({marks})", values
            ).rowcount

    def merge(self, other: Store, data: Sequence[str]) -> int:
        """Take over the cells of some data sets, and the runs that made them, from a store with the same protocol.

        A row already there stays as it is, unless it holds an error and the other a score. Costs are not taken over:
        they are times of another machine. Gives the number of rows added or mended.
        """
        mine, theirs = (json.loads(store.meta("protocol") or "{}") for store in (self, other))
        for key in mine.keys() & theirs.keys():
            if mine[key] != theirs[key]:
                raise StoreError(
                    f"{other.path} was made with {key} = {json.dumps(theirs[key])}, but {self.path} with "
                    f"{json.dumps(mine[key])}: their rows do not belong in one table."
                )
        where, values = _where({"data": list(data)})
        with self._transaction():
            number: dict[int, int | None] = {}
            for run in other._select(f"SELECT * FROM runs WHERE id IN (SELECT DISTINCT run FROM cells{where})", values):
                columns = [name for name in run if name != "id"]
                number[run["id"]] = self._db.execute(
                    f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                    [run[name] for name in columns],
                ).lastrowid
            rows = other._query(f"SELECT {', '.join(COLUMNS)} FROM cells{where}", values)
            at = COLUMNS.index("run")
            added = self._db.executemany(
                f"INSERT INTO cells ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "
                f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET "
                f"{', '.join(f'{name} = excluded.{name}' for name in COLUMNS if name not in KEY)} "
                "WHERE cells.error IS NOT NULL AND excluded.error IS NULL",
                ((*row[:at], number.get(row[at]), *row[at + 1 :]) for row in rows),
            ).rowcount
            # A run that brought nothing new says nothing here.
            useful = {run for (run,) in self._query("SELECT DISTINCT run FROM cells")}
            idle = [(new,) for new in number.values() if new not in useful]
            self._db.executemany("DELETE FROM runs WHERE id = ?", idle)
        return added

    def done_keys(self, task: Task) -> set[Cell]:
        """The cells of a task that are there."""
        query = f"SELECT {', '.join(KEY)} FROM cells WHERE data = ? AND split = ?"
        return {Cell(*row) for row in self._query(query, astuple(task))}

    def keys(self, task: Task, *, failed: bool = False) -> Iterator[tuple[int, str, str, float, int]]:
        """The cells of a task that are there, or those with an error: labels, method, params, C, fold."""
        query = f"SELECT {', '.join(KEY[2:])} FROM cells WHERE data = ? AND split = ?"
        return self._query(f"{query} AND error IS NOT NULL" if failed else query, astuple(task))

    def count(self, task: Task) -> Count:
        """How many cells of a task are there."""
        query = "SELECT COUNT(*), COUNT(error), MAX(written_at) FROM cells WHERE data = ? AND split = ?"
        return Count(*next(self._query(query, astuple(task))))

    def rows(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Rows in the order of their keys, as dicts by column.

        Parameters
        ----------
        **filters
            A column and the value it must have, a list of values it may have, or None.
        """
        where, values = _where(filters)
        yield from self._select(f"SELECT {', '.join(COLUMNS)} FROM cells{where} ORDER BY {', '.join(KEY)}", values)

    def counts(self) -> dict[Task, Count]:
        """Cells there per task."""
        query = "SELECT data, split, COUNT(*), COUNT(error), MAX(written_at) FROM cells GROUP BY data, split"
        return {Task(data, split): Count(*rest) for data, split, *rest in self._query(query)}

    def forget_errors(self, tasks: Iterable[Task], methods: Sequence[str]) -> list[Task]:
        """Remove the cells of some methods that hold an error, so that they are tried again.

        A task that a living process works on is left alone. Gives those tasks.
        """
        where, values = _where({"method": list(methods)})
        with self._transaction():
            busy = {claim.task for claim in self.live_claims()}
            kept = []
            for task in tasks:
                if task in busy:
                    kept.append(task)
                    continue
                query = f"DELETE FROM cells{where} AND data = ? AND split = ? AND error IS NOT NULL"
                if self._db.execute(query, [*values, *astuple(task)]).rowcount:
                    self._open(task)
        return kept

    # Tasks

    def plan(self, cells: Mapping[Task, int], unasked: Mapping[Task, Count] | None = None) -> None:
        """Note what the experiment asks for now, for those who look at the store alone.

        Parameters
        ----------
        cells : mapping
            How many cells each task will have. Tasks planned before and not named are no longer asked for.
        unasked : mapping or None
            How many cells of each task are there though the experiment does not ask for them, as after a change of
            its grid; None leaves what was noted.
        """
        with self._transaction():
            self._db.execute("UPDATE tasks SET cells = 0")
            self._db.executemany(
                "INSERT INTO tasks (data, split, cells) VALUES (?, ?, ?) "
                "ON CONFLICT (data, split) DO UPDATE SET cells = excluded.cells",
                [(*astuple(task), number) for task, number in cells.items()],
            )
            if unasked is not None:
                self._make(LATER_TABLES)
                self._db.executemany(
                    "INSERT OR REPLACE INTO unasked VALUES (?, ?, ?, ?)",
                    [(*astuple(task), count.done, count.failed) for task, count in unasked.items()],
                )

    def planned(self) -> dict[Task, int]:
        """Cells each task will have."""
        query = "SELECT data, split, cells FROM tasks WHERE cells > 0"
        return {Task(data, split): cells for data, split, cells in self._query(query)}

    def unasked(self) -> dict[Task, Count]:
        """Cells there that the experiment did not ask for when it was last planned."""
        rows = self._query("SELECT * FROM unasked") if self._has("unasked") else ()
        return {Task(data, split): Count(*rest) for data, split, *rest in rows}

    def finished(self) -> dict[Task, set[str]]:
        """For each task finished, all that had been asked of it when it was (see `finish`)."""
        query = "SELECT data, split, finished FROM tasks WHERE finished IS NOT NULL"
        if self._has("finished"):
            query += " UNION SELECT data, split, asked FROM finished"
        found: dict[Task, set[str]] = {}
        for data, split, asked in self._query(query):
            found.setdefault(Task(data, split), set()).add(asked)
        return found

    def claim(self, task: Task, *, memory: int = 0, available: int | None = None, patience: float = 0.0) -> bool:
        """Take a task for this process, unless a living one has it. False if it cannot be had now.

        Parameters
        ----------
        task : Task
            What to take.
        memory : int
            Bytes it will need. What others on this machine have claimed and not yet taken is not free.
        available : int or None
            Bytes free on this machine; None does not look at memory.
        patience : float
            Seconds for which a task of a process that has died on this machine is left alone: its run has yet to count
            that it died, and may give the task up.

        Raises
        ------
        MemoryError
            If it does not fit and nobody else is working, so that waiting is no use.
        """
        me = self.owner(os.getpid())
        with self._transaction():
            now = time.time()  # others may have had the store until now
            others = [(claim, claim.is_live(now)) for claim in self.claims() if not claim.owner.is_same(me)]
            if any(
                claim.task == task and (live or (claim.here and abs(now - claim.heartbeat) < patience))
                for claim, live in others
            ):
                return False
            here = [claim for claim, live in others if live and claim.here]
            if available is not None and memory > available - sum(map(_still_to_take, here)):
                if any(claim.memory for claim in here):
                    return False
                raise MemoryError(
                    f"{task.data}, split {task.split} needs about {memory / 2**30:.1f} GiB, but "
                    f"{available / 2**30:.1f} GiB is available. "
                    "Free some memory, or use a larger machine, and give the command again."
                )
            self._db.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, '')",
                (*astuple(task), me.pid, me.started, me.host, time.time(), memory),
            )
        return True

    def claims(self) -> list[Claim]:
        """Tasks claimed, by living processes or dead ones."""
        query = "SELECT data, split, pid, started, host, heartbeat, memory, doing FROM claims ORDER BY data, split"
        return [
            Claim(Task(data, split), Owner(pid, started, host), heartbeat, memory, doing, host == self.host)
            for data, split, pid, started, host, heartbeat, memory, doing in self._query(query)
        ]

    def live_claims(self) -> list[Claim]:
        """Tasks that a living process works on."""
        now = time.time()
        return [claim for claim in self.claims() if claim.is_live(now)]

    def heartbeat(self, doing: Mapping[int, str]) -> None:
        """Say that processes of this machine live, and what each does."""
        with self._transaction():
            self._db.executemany(
                "UPDATE claims SET heartbeat = ?, doing = ? WHERE pid = ? AND host = ?",
                [(time.time(), text, pid, self.host) for pid, text in doing.items()],
            )

    def release(self, task: Task) -> None:
        """Give a task of this process back."""
        with self._transaction():
            self._release(task)

    def finish(self, task: Task, asked: str) -> None:
        """Give a task back as finished, noting what was asked, so that a larger grid will open it again.

        What had been asked when it was finished before stays noted: a run of one method and one of all do not undo
        each other's work.
        """
        with self._transaction():
            self._make(LATER_TABLES)
            self._db.execute("INSERT OR IGNORE INTO finished VALUES (?, ?, ?)", (*astuple(task), asked))
            self._release(task)

    def _open(self, task: Task) -> None:
        """Take back that a task was ever finished."""
        self._db.execute("UPDATE tasks SET finished = NULL WHERE data = ? AND split = ?", astuple(task))
        if self._has("finished"):
            self._db.execute("DELETE FROM finished WHERE data = ? AND split = ?", astuple(task))

    def _release(self, task: Task) -> None:
        self._db.execute(
            "DELETE FROM claims WHERE data = ? AND split = ? AND pid = ? AND host = ?",
            (*astuple(task), os.getpid(), self.host),
        )

    def clear_stale(self) -> None:
        """Drop the claims of processes that are no more."""
        now = time.time()
        with self._transaction():
            stale = [claim for claim in self.claims() if not claim.is_live(now)]
            self._db.executemany("DELETE FROM claims WHERE data = ? AND split = ?", [astuple(c.task) for c in stale])

    # Failures

    def add_failure(self, task: Task, run: int, error: str, *, final: bool) -> int:
        """Note that a task broke down; `final` if this run gives it up. Gives how often it did in this run."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO failures VALUES (?, ?, ?, ?, ?, ?)",
                (*astuple(task), run, time.time(), final, without_folders(error)),
            )
            query = "SELECT COUNT(*) FROM failures WHERE data = ? AND split = ? AND run = ?"
            return int(self._db.execute(query, (*astuple(task), run)).fetchone()[0])

    def failures(self, run: int | None = None) -> list[dict[str, Any]]:
        """What broke down in a run (or in any), oldest first: data, split, run, at, final, error."""
        return list(self._select("SELECT * FROM failures WHERE ? IS NULL OR run = ? ORDER BY at", (run, run)))

    # Costs and pictures

    def add_cost(self, data: str, method: str, labels: int, cost: Mapping[str, float], run: int) -> None:
        """Write what one stand-alone fit costs (seconds_fit, seconds_transform, peak_mib); what is there stays."""
        figures = (float(cost[name]) for name in ("seconds_fit", "seconds_transform", "peak_mib"))
        with self._transaction():
            self._db.execute(
                "INSERT OR IGNORE INTO costs VALUES (?, ?, ?, ?, ?, ?, ?)", (data, method, int(labels), *figures, run)
            )

    def costs(self) -> list[dict[str, Any]]:
        """What stand-alone fits cost: data, method, labels, seconds_fit, seconds_transform, peak_mib, run."""
        return list(self._select("SELECT * FROM costs ORDER BY data, method, labels"))

    def add_picture(self, data: str, method: str, text: str) -> None:
        """Keep a picture of the report (JSON), in place of an earlier one; a store that is only read keeps none."""
        if self.read_only:
            return
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO pictures VALUES (?, ?, ?)", (data, method, text))

    def picture(self, data: str, method: str) -> str | None:
        """A picture kept, or None."""
        query = "SELECT json FROM pictures WHERE data = ? AND method = ?"
        return next((text for (text,) in self._query(query, (data, method))), None)

    # The whole

    def check(self) -> list[str]:
        """What SQLite finds wrong with the file; an empty list is good."""
        try:
            found = [row[0] for row in self._query("PRAGMA integrity_check")]
        except StoreError as error:
            return [str(error)]
        return [] if found == ["ok"] else found

    def export_csv(self, path: str | os.PathLike[str], **filters: Any) -> int:
        """Write rows to a CSV file, whole or not at all. Gives their number."""
        number = 0
        with replacing(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for row in self.rows(**filters):
                writer.writerow(row)
                number += 1
        return number


def versions() -> dict[str, str]:
    """What computes here, without importing it: packages and the kind of machine, not its name."""
    packages = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
    return {
        "python": platform.python_version(),
        **{name: metadata.version(package) for name, package in packages.items()},
        "ldsu": __version__,
        "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def without_folders(text: str) -> str:
    """A message with the names of files, but not of the folders of this machine they lie in."""
    text = re.sub(r'(File ")[^"]*[/\\]', r"\1", text)
    folders = [Path(__file__).parents[2], Path(sys.prefix), Path(tempfile.gettempdir())]
    for find in (Path.home, Path.cwd):
        with suppress(OSError, RuntimeError):  # there may be none
            folders.append(find())
    # The longest first, since one may lie in another.
    for folder in sorted((str(path) for path in folders if path != Path(path.anchor)), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?:[/\\]|\b)", "", text)
    return text


def _started(pid: int) -> float:
    """When a process started, on a clock that nobody sets: seconds since the machine did, and a number for which time.

    On Linux the creation time that psutil tells moves when the clock is set, and every process would see the others'
    claims as those of the dead.
    """
    try:
        boot = int(BOOT_ID.read_text()[:4], 16)
    except (OSError, ValueError):  # elsewhere the system keeps the creation time as it was
        return float(psutil.Process(pid).create_time())
    since = psutil.boot_time()  # first: what follows is reckoned from it
    return float(psutil.Process(pid).create_time() - since + boot * 1e9)


def is_writable(path: Path) -> bool:
    """Whether a store can be written: the file, and the folder where its log lies."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _read_mode(path: Path) -> str:
    """How SQLite must open a file that is only read."""
    if is_writable(path):
        return "mode=rw"
    # Without a log beside it nobody writes it, and SQLite need not make one to be told so.
    log = path.with_name(f"{path.name}-wal")
    return "mode=ro" if log.exists() else "mode=ro&immutable=1"


def _values(row: Row, run: int, now: float) -> tuple[Any, ...]:
    """A row in the order of COLUMNS, in types SQLite knows (it would keep a NumPy integer as bytes)."""
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


def _where(filters: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A WHERE clause and its values."""
    terms: list[str] = []
    values: list[Any] = []
    for column, wanted in filters.items():
        if column not in COLUMNS:
            raise ValueError(f"A store has no column {column!r}; it has {', '.join(COLUMNS)}.")
        if wanted is None:
            terms.append(f"{column} IS NULL")
        elif isinstance(wanted, list | tuple | set | frozenset):
            terms.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values += wanted
        else:
            terms.append(f"{column} = ?")
            values.append(wanted)
    return (f" WHERE {' AND '.join(terms)}" if terms else ""), values


def _still_to_take(claim: Claim) -> int:
    """Bytes claimed and not yet used."""
    try:
        return max(0, claim.memory - psutil.Process(claim.owner.pid).memory_info().rss)
    except psutil.Error:
        return 0
