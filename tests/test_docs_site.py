"""The pages of the site can be reached, their links lead somewhere, and the built site needs no network."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ldsu
from chromium import needs_browser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = ("gallery", "generated")
PAGES = sorted(path for path in DOCS.rglob("*.md") if not {*BUILT, "_static"} & set(path.relative_to(DOCS).parts))
FENCE = re.compile(r"^(`{3,}|:{3,})(.*?)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
ABSOLUTE = re.compile(r"(?<![\w./~-])/(?:home|root|tmp|work|usr|mnt|opt|srv|Users|private)/|\b[A-Z]:\\")
SITE_NEEDS = [
    "sphinx",
    "myst_parser",
    "numpydoc",
    "pydata_sphinx_theme",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery",
]
EXAMPLES = {path.stem for path in (ROOT / "examples").glob("plot_*.py")}


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check_site = load("check_site")
check_layout = load("check_layout")


def name_of(page):
    return page.relative_to(DOCS).with_suffix("").as_posix()


def fences(page):
    """Directive or language, and body, of every block between fences, those inside others included."""
    found = []
    rest = [page.read_text()]
    while rest:
        for _, head, body in FENCE.findall(rest.pop()):
            found.append((head.strip(), body))
            rest.append(body)
    return found


def prose(page):
    """The text without blocks of code and without code within lines."""
    text = page.read_text()
    for _ in range(3):
        text = FENCE.sub(lambda block: block[3] if block[2].strip().startswith(("{picture}", "{grid")) else "", text)
    return re.sub(r"(?<!\})`[^`\n]*`", "", text)


def anchors(page):
    """What GitHub and MyST call the headings of a page."""
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def toctree_entries(page):
    for head, body in fences(page):
        if head == "{toctree}":
            for line in body.splitlines():
                if line.strip() and not line.startswith(":"):
                    yield (page.parent / line.strip()).resolve()


def test_every_page_is_in_the_contents_and_every_entry_is_a_page():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        for entry in toctree_entries(page):
            source = entry.with_name(entry.name + ".md")
            if entry.relative_to(DOCS).parts[0] in BUILT:
                assert entry == DOCS / "gallery" / "index"
                continue
            assert source.exists(), f"{page.name} lists {entry}"
            assert source not in reached, f"{source.name} is listed twice"
            waiting.append(source)
    assert reached == set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_roles_and_cards_name_pages_and_examples_that_exist(page):
    text = page.read_text()
    named = re.findall(r"\{doc\}`[^`]*?<?/?([\w/-]+)>?`", text) + re.findall(r"^:link: (\S+)$", text, re.MULTILINE)
    for name in named:
        known = (DOCS / f"{name}.md").exists() or name == "gallery/index"
        assert known or (name.startswith("gallery/") and name.removeprefix("gallery/") in EXAMPLES), name


def test_examples_and_headings_they_point_to_exist():
    for path in (ROOT / "examples").glob("plot_*.py"):
        for name in re.findall(r":doc:`/([\w/-]+)`", path.read_text()):
            known = (DOCS / f"{name}.md").exists() or name.removeprefix("gallery/") in EXAMPLES
            assert known, f"{path.name} points to {name}"


def test_no_page_names_an_absolute_path():
    for page in [*PAGES, *DOCS.glob("*.py"), *(ROOT / "examples").iterdir()]:
        if page.is_file():
            assert not ABSOLUTE.search(page.read_text()), page.name


def test_every_picture_is_shown_with_words_for_those_who_cannot_see_it():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    shown = []
    for page in PAGES:
        for head, body in fences(page):
            if head.startswith("{picture}"):
                shown.append(head.split()[1])
                assert re.match(r":alt: \S.{30,}\n\S", body), f"{page.name}: {head}"
    assert sorted(shown) == sorted(load("pictures").PICTURES)


def test_every_public_name_is_on_the_api_page():
    page = (DOCS / "api.md").read_text()
    listed = set(re.findall(r"^   (?:\w+\.)*(\w+)$", page, re.MULTILINE))
    listed |= set(re.findall(r"^\.\. py:data:: (\w+)$", page, re.MULTILINE))
    assert set(ldsu.__all__) <= listed


GOOD = '<html><link rel="stylesheet" href="style.css"><h1 id="top">x</h1><a href="other.html#there">y</a></html>'
OTHER = '<p id="there"><a href="https://example.org">a link may lead away</a> <a href="index.html">back</a></p>'


@pytest.fixture
def site(tmp_path):
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "other.html").write_text(OTHER)
    (tmp_path / "style.css").write_text("p { background: url(data:image/png;base64,AAAA) }")
    return tmp_path


def test_sound_site_has_no_problem(site):
    assert list(check_site.problems(site)) == []
    assert check_site.main([str(site)]) == 0


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("index.html", '<a href="gone.html">x</a>', "gone.html"),
        ("index.html", '<a href="other.html#nowhere">x</a>', "#nowhere"),
        ("index.html", '<a href="#nowhere">x</a>', "#nowhere"),
        ("index.html", '<img src="gone.png">', "gone.png"),
        ("index.html", '<img src="style.css" srcset="style.css, gone.png 2x">', "gone.png"),
        ("index.html", '<script src="https://example.org/a.js"></script>', "from elsewhere"),
        ("index.html", '<script src="//example.org/a.js"></script>', "from elsewhere"),
        ("index.html", '<link rel="preconnect" href="https://example.org">', "from elsewhere"),
        ("index.html", '<img src="https://example.org/badge.svg">', "from elsewhere"),
        ("index.html", "<style>@import 'https://example.org/font.css';</style>", "from elsewhere"),
        ("style.css", "@font-face { src: url('https://example.org/font.woff2') }", "from elsewhere"),
    ],
)
def test_broken_link_or_remote_resource_is_found(site, file, text, problem, capsys):
    (site / file).write_text(text)
    found = list(check_site.problems(site))
    assert len(found) == 1
    assert problem in found[0]
    assert check_site.main([str(site)]) == 1
    assert problem in capsys.readouterr().out


def test_empty_folder_is_no_site_and_no_folder_is_asked_wrongly(tmp_path, capsys):
    assert check_site.main([str(tmp_path)]) == 1
    assert "Build the site first" in capsys.readouterr().out
    assert check_site.main([]) == 2


WORD, NAME = "overlong" * 100, "<td style='width: 3em; overflow-wrap: anywhere'>LDSUClassifier</td>"
ONE_LINE = "overflow: hidden; text-overflow: ellipsis; white-space: nowrap"


@needs_browser
@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<p>words that wrap</p><pre style='overflow-x: auto'>" + WORD + "</pre>", None),
        ("<pre>" + WORD + "</pre>", "px wide"),
        ("<p style='overflow: hidden'>" + WORD + "</p>", "cuts off"),
        (f"<p style='{ONE_LINE}'>{'words ' * 300}</p>", "cuts off"),
        ("<p style='margin-left: -50px'>left of the page</p>", "cuts off"),
        ("<p hidden>" + WORD + "</p>", None),
        (f"<table class='autosummary'>{NAME}</table>", "breaks the name"),
    ],
    ids=["code that scrolls", "wide page", "hidden", "ellipsis", "left", "not shown", "broken name"],
)
def test_text_that_does_not_fit_the_screen_is_found(tmp_path, body, fault, capsys):
    site = tmp_path / "site"
    site.mkdir()
    page = f"<!doctype html><body style='margin: 0'><div class='bd-article'>{body}</div></body>"
    (site / "page.html").write_text(page)
    assert check_layout.main([str(site)]) == (fault is not None)
    printed = capsys.readouterr().out
    assert (f"page.html {fault}" in printed or f"{fault} at a width of 390 px" in printed) if fault else not printed


def test_without_chromium_the_layout_check_says_that_it_is_skipped(site, monkeypatch, capsys):
    monkeypatch.setattr("chromium.CHROMIUM", None)
    assert check_layout.main([str(site)]) == 0
    assert "Chromium is not installed" in capsys.readouterr().out
    assert check_layout.main([]) == 2


@pytest.mark.slow
def test_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    for name in SITE_NEEDS:
        pytest.importorskip(name, reason=f"{name} is not installed")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    assert list(check_site.problems(tmp_path / "site")) == []
    assert check_layout.main([str(tmp_path / "site")]) == 0
    home = (tmp_path / "site" / "index.html").read_text()
    assert f'<span class="release">{ldsu.__version__}</span>' in home
    assert "copybutton.js" in home
    for name in ("ldsu.LDSU", "ldsu.dask.LDSU"):
        page = (tmp_path / "site" / "generated" / f"{name}.html").read_text()
        assert f"<title>{name} " in page
        assert f">{name}</a>" in page
    for page in PAGES:
        assert (tmp_path / "site" / f"{name_of(page)}.html").exists()
    for example in EXAMPLES:
        assert "_images/sphx_glr_" in (tmp_path / "site" / "gallery" / f"{example}.html").read_text()
