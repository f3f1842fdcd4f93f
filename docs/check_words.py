"""Check that the project writes in standard words: those of words.toml are not used, and no word is doubled.

python docs/check_words.py [FILE ...]

Without files: README.md, CONTRIBUTING.md, SECURITY.md, the pages in docs, the examples, and docstrings and messages in
src. Code is left out.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
BUILT = ("gallery", "generated")
# Blocks between fences, code within lines, targets of links, doctests.
FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
TARGET = re.compile(r"\]\([^)\s]+\)|https?://\S+")
DOCTEST = re.compile(r"^\s*(>>>|\.\.\.( |$)).*$", re.MULTILINE)
DOUBLED = re.compile(r"(?<!-)\b(?!that\b|had\b)([a-z]+)(?: | ?\n *)\1\b(?!-)")


def word_list(path: Path = HERE / "words.toml") -> list[tuple[re.Pattern[str], str]]:
    """The words to avoid, and for each what to write."""
    sections = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        (re.compile(r"(?<![\w-])(?:" + avoid.replace(" ", r"\s+") + r")(?![\w-])", re.IGNORECASE), write)
        for words in sections.values()
        for avoid, write in words.items()
    ]


def prose(text: str) -> str:
    """A text with its code blanked; every line keeps its number."""
    for pattern in (FENCE, DOCTEST, CODE, TARGET):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", "\x00", found[0]), text)
    return text


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring and message, the parts of a formatted one apart."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of everything in a file that somebody reads."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, source
        return
    yield from python_texts(source)
    if path.parent.name == "examples":  # whose comments are the text of a page
        yield 1, re.sub(r"^(?!# )[^\n]*$|^# ", "", source, flags=re.MULTILINE)


def problems(path: Path, words: list[tuple[re.Pattern[str], str]]) -> Iterator[tuple[int, str]]:
    """Line and sentence for each word that should be another one."""
    for line, text in texts_of(path):
        shown = prose(text)
        for pattern, write in words:
            for found in pattern.finditer(shown):
                phrase = " ".join(found[0].split())
                yield line + shown.count("\n", 0, found.start()), f"{phrase!r}; write: {write}"
        for found in DOUBLED.finditer(shown):
            yield line + shown.count("\n", 0, found.start()), f"{found[1]!r} is doubled"


def files() -> list[Path]:
    """What is checked by default."""
    pages = [path for path in HERE.rglob("*.md") if path.relative_to(HERE).parts[0] not in BUILT]
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").iterdir()]
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*top, *sorted(pages), *sorted(path for path in sources if path.suffix in (".py", ".rst"))]


def main(arguments: list[str]) -> int:
    """Print what is found; the exit code says whether anything is."""
    words = word_list()
    count = 0
    for path in [Path(name) for name in arguments] or files():
        for line, sentence in sorted(set(problems(path, words))):
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            print(f"{shown}:{line}: {sentence}")
            count += 1
    if count:
        print(f"{count} to rewrite; the list is docs/words.toml.")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
