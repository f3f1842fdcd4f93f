"""The number of inputs generated, said at the end, and over all processes of pytest-xdist."""

from collections import Counter

import pytest

from fuzz.profile import COUNTS

gathered: Counter[str] = Counter()


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # a process of pytest-xdist: hand the counts to the first one
        session.config.workeroutput["fuzz"] = dict(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    gathered.update(getattr(node, "workeroutput", {}).get("fuzz", {}))


def pytest_terminal_summary(terminalreporter):
    counts = gathered + COUNTS
    if counts:
        terminalreporter.section("inputs generated")
        for name, count in sorted(counts.items()):
            terminalreporter.line(f"{count:7,}  {name}")
        terminalreporter.line(f"{counts.total():7,}  in all")
