"""Every command that README and docs show is run, and says what the page says it does."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import click
import pytest
from sklearn.datasets import load_iris

from bench_rows import EXPERIMENT

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "guide").glob("*.md"))
FENCE = re.compile(r"(<!-- output -->\n)?^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def flowers():
    """A table of the user's own: iris, the species of the first five of each kind known."""
    iris = load_iris()
    species = [iris.target_names[kind] if i % 50 < 5 else "" for i, kind in enumerate(iris.target)]
    rows = [[*row, label] for row, label in zip(iris.data.tolist(), species, strict=True)]
    return "\n".join(",".join(map(str, row)) for row in [["a", "b", "c", "d", "species"], *rows])


def blocks(page):
    """(language, text, whether it is the output of the block before) of each fenced block."""
    return [(found[2], found[3], bool(found[1])) for found in FENCE.finditer(page.read_text())]


def with_commands(language):
    return [page for page in PAGES if any(block[0] == language for block in blocks(page))]


def name_of(page):
    return str(page.relative_to(ROOT))


def masked(line):
    """A line of output without its figures, which differ from machine to machine, and without its blanks."""
    line = re.sub(r"less than a second|about \d+ s|─+|\d[\d,.]* (s|min|GB|MB|kB|bytes)\b", "#", line)
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "#", line)).strip()


@pytest.mark.parametrize("page", with_commands("sh"), ids=name_of)
def test_commands_of_a_page_run_in_order_in_an_empty_folder(page, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    bash = shutil.which("bash") or pytest.skip("there is no bash")
    (tmp_path / "experiments").mkdir()
    # The experiments that pages name take hours; in their place stands a small one under the same name.
    (tmp_path / "experiments" / "table1-quick.toml").write_text(EXPERIMENT)
    (tmp_path / "table.csv").write_text(flowers())
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    printed = ""
    for language, text, is_output in blocks(page):
        if language == "sh":
            done = subprocess.run(
                [bash, "-eo", "pipefail", "-c", text],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}"
            printed = done.stdout
        elif is_output:
            found = {masked(line) for line in printed.splitlines()}
            for line in text.splitlines():
                assert masked(line) in found, f"{name_of(page)} shows {line!r}, but the command says\n{printed}"


def test_make_targets_that_pages_name_exist():
    named = {
        target for page in PAGES for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "docs"} <= named
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named <= targets


def shown_commands():
    """Commands within sentences and in blocks without a language: (page, words)."""
    for page in PAGES:
        text = page.read_text()
        plain = [block[1] for block in blocks(page) if block[0] in ("", "text")]
        found = re.findall(r"`((?:ldsu|python benchmarks/)[^`\n]*)`", text)
        for block in plain:
            found += [line for line in block.splitlines() if re.match(r"(ldsu|python benchmarks/)\S* ", line)]
        for line in found:
            for command in line.partition("#")[0].split("&&"):
                yield name_of(page), command.strip()


@cache
def benchmark_help(script):
    done = subprocess.run(
        [sys.executable, ROOT / script, "--help"], capture_output=True, text=True, timeout=60, cwd=ROOT / "benchmarks"
    )
    return done.stdout


def test_commands_named_in_passing_have_the_options_they_are_named_with():
    from ldsu.cli import cli

    seen = 0
    for page, command in shown_commands():
        words = shlex.split(re.sub(r"[\[\]|>].*", "", command))
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        if words[0] == "python":
            assert (ROOT / words[1]).is_file(), f"{page}: {command}"
            for option in options:
                assert option in benchmark_help(words[1]), f"{page}: {command}"
        else:
            group = cli
            for word in words[1:]:
                if not isinstance(group, click.Group) or word.startswith("-"):
                    break
                assert word in group.commands or word == "COMMAND", f"{page}: {command}"
                group = group.commands.get(word, cli)
            known = {option for parameter in group.params for option in (*parameter.opts, *parameter.secondary_opts)}
            for option in options:
                assert option in known | {"--help"}, f"{page}: {command}"
        seen += 1
    assert seen > 30
