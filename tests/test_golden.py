"""Kept results: the same numbers on every supported version, and a line in the changelog where they change."""

import json
from pathlib import Path

import numpy as np
import pytest

from golden import make

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


@pytest.mark.parametrize("name", make.CASES)
def test_results_are_those_that_were_kept(name):
    path = make.golden_file(name)
    assert path.exists(), f"No result of {name} is kept. Keep it: python tests/golden/make.py"
    changed = list(make.differences(make.plain(make.CASES[name]()), json.loads(path.read_text())))
    assert not changed, (
        f"{name} gives other results than those kept: {'; '.join(changed)}. If that is meant: "
        "python tests/golden/make.py, and a line in CHANGELOG.md that says why."
    )


def test_every_kept_file_is_small_and_belongs_to_a_case():
    files = {path for path in make.FOLDER.iterdir() if path.suffix == ".json"}
    assert files == {make.golden_file(name) for name in make.CASES}
    assert all(path.stat().st_size < 8_000 for path in files)


def test_the_changelog_names_the_kept_results():
    named = f"golden results {make.fingerprint()}"
    reported = named in CHANGELOG.read_text().replace("`", "")
    assert reported, f"The kept results changed: CHANGELOG.md must say why, and name them: {named}."


def test_a_change_beyond_the_tolerance_is_reported_and_one_within_is_not():
    kept = {"scores": [[1.0, -2.0], [0.0, 0.5]], "labels": ["a", "b"], "columns": [1, 2], "accuracy": 0.25}
    for entry, value, reported in [
        ("scores", [[1.0, -2.0], [1.9e-6, 0.5]], False),
        ("scores", [[1.0, -2.0], [2.1e-6, 0.5]], True),
        ("scores", [[1.0, -2.0], [np.nan, 0.5]], True),
        ("scores", [[1.0, -2.0]], True),
        ("labels", ["a", "c"], True),
        ("columns", [1, 3], True),
        ("accuracy", 0.25 * (1 + 2e-6), True),
        ("accuracy", None, True),
    ]:
        found = list(make.differences({**kept, entry: value}, kept))
        assert [line.split(":")[0] for line in found] == [entry] * reported
    assert list(make.differences({}, kept))
    assert list(make.differences({**kept, "more": 1}, kept))


def test_making_them_again_writes_only_what_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "FOLDER", tmp_path)
    results = {"one": 1.0, "two": 2.0}
    monkeypatch.setattr(make, "CASES", {name: lambda name=name: {"value": results[name]} for name in results})
    assert make.make() == ["one", "two"]
    before = make.fingerprint()
    results["one"] *= 1 + 1e-9
    assert make.make() == []
    assert make.fingerprint() == before
    results["two"] *= 1 + 1e-3
    assert make.make() == ["two"]
    assert make.fingerprint() != before
    del make.CASES["one"]
    assert make.make() == ["one (removed)"]
