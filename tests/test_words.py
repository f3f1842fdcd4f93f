"""The word list of the project is enforced in prose, and in prose alone."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
_spec = importlib.util.spec_from_file_location("check_words", DOCS / "check_words.py")
check_words = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_words)


def found(tmp_path, text, name="page.md"):
    path = tmp_path / name
    path.write_text(text)
    return list(check_words.problems(path, check_words.word_list()))


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("Labels left out are foretold with accuracy 0.94.", 1, "'foretold'; write: predict"),
        ("A sound line.\n\nThe table\nis beside\nit.", 4, "'beside it'; write: next to"),
        ("Three labels a class are enough.", 1, "per class"),
        ("The Neighbours of a row.", 1, "write: neighbor"),
        ("An unlabeled row.", 1, "labelled"),
        ("All of of it.", 1, "'of' is doubled"),
        ("All of the\nthe rows.", 1, "'the' is doubled"),
    ],
)
def test_a_word_of_the_list_is_found_in_prose_with_its_line(tmp_path, text, line, part):
    ((where, sentence),) = found(tmp_path, text)
    assert where == line
    assert part in sentence


@pytest.mark.parametrize(
    "text",
    [
        "Predict labels with `foretold` and ``beside it``.",
        "```python\nforetold = 1  # beside it\n```\n",
        "[a link](grey/neighbour.md) and https://example.org/behaviour",
        "They share a neighbor; what comes to it is clear. Its own labelled rows. The row row-by-row.",
        "row  row number\n",
    ],
)
def test_code_links_and_other_words_are_left_alone(tmp_path, text):
    assert found(tmp_path, text) == []


def test_docstrings_and_messages_are_checked_and_code_is_not(tmp_path):
    source = '''"""Foretell the labels.

    >>> behaviour = "no prose here"
    """
grey = 1
raise ValueError(f"Row {grey} is not a neighbour of row {grey}")
# A comment of a module is not checked: foretold.
'''
    lines = sorted(line for line, _ in found(tmp_path, source, "module.py"))
    assert lines == [1, 6]


def test_comments_of_examples_are_pages(tmp_path):
    folder = tmp_path / "examples"
    folder.mkdir()
    assert found(folder, "# %%\n# Colours of the rows.\n", "plot_x.py") == [(2, "'Colours'; write: color")]


def test_the_check_says_where_and_fails(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("Labels are mended.")
    assert check_words.main([str(page)]) == 1
    assert f"{page}:1: 'mended'; write: fix" in capsys.readouterr().out
    page.write_text("Labels are fixed.")
    assert check_words.main([str(page)]) == 0


def test_the_default_files_are_those_that_people_read():
    names = {path.relative_to(DOCS.parent).as_posix() for path in check_words.files()}
    assert {"README.md", "docs/start.md", "docs/guide/index.md", "src/ldsu/__init__.py"} <= names
    assert "examples/plot_1_few_labels.py" in names
    assert not any(name.startswith(("docs/gallery", "docs/generated", "tests")) for name in names)
