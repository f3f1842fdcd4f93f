"""Check the built site: every link leads somewhere, and no page loads anything from elsewhere.

python docs/check_site.py site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself when it shows a page, as against a link that a reader may follow.
LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("source", "src"),
    ("source", "srcset"),
    ("iframe", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("video", "src"),
    ("video", "poster"),
    ("audio", "src"),
    ("image", "href"),
    ("use", "href"),
}
# Of <link>, only these make a browser fetch something.
FETCHING = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
REMOTE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
CSS_LOAD = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s]+)""")


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self._in_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the addresses of a tag."""
        values = {name: value for name, value in attrs if value is not None}
        self._in_style = tag == "style"
        self.places.update(values[name] for name in ("id", "name") if name in values)
        self.loaded += CSS_LOAD.findall(values.get("style", ""))
        if tag == "link":
            fetching = FETCHING & set(values.get("rel", "").lower().split())
            (self.loaded if fetching else self.links).append(values.get("href", ""))
        for name, value in values.items():
            if (tag, name) in LOADED:
                parts = value.split(",") if name == "srcset" else [value]
                self.loaded += [part.split()[0] for part in parts if part.strip()]
        if tag in ("a", "area") and "href" in values:
            self.links.append(values["href"])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that closes itself."""
        self.handle_starttag(tag, attrs)
        self._in_style = False

    def handle_data(self, data: str) -> None:
        """What a <style> loads."""
        if self._in_style:
            self.loaded += CSS_LOAD.findall(data)


def is_remote(address: str) -> bool:
    """Whether an address leads away from the site."""
    return bool(REMOTE.match(address))


def problems(site: Path) -> Iterator[str]:
    """One sentence for each thing that is wrong with the site in this folder."""
    # The theme keeps templates of its own in _static; nobody is shown those.
    shown = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.relative_to(site).parts]
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in shown}
    if not pages:
        yield f"{site} holds no HTML page. Build the site first: sphinx-build docs {site}"
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        for address in page.loaded:
            if is_remote(address):
                yield f"{where} loads {address} from elsewhere."
        for address in [*page.links, *page.loaded]:
            fault = broken(address, path, pages)
            if fault:
                yield f"{where} links to {address}, {fault}."
    for path in sorted(site.rglob("*.css")):
        for address in CSS_LOAD.findall(path.read_text(encoding="utf-8")):
            if is_remote(address):
                yield f"{path.relative_to(site)} loads {address} from elsewhere."


def broken(address: str, page: Path, pages: dict[Path, Page]) -> str | None:
    """What is wrong with an address found on a page; None where nothing is, or where it leads away from the site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    target = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "which does not exist"
    place = unquote(parts.fragment)
    if place and target in pages and place not in pages[target].places:
        return f"and there is no #{place} on that page"
    return None


def main(arguments: list[str]) -> int:
    """Print what is wrong; the exit code says whether anything is."""
    if len(arguments) != 1:
        print("usage: python docs/check_site.py SITE", file=sys.stderr)
        return 2
    found = sorted(set(problems(Path(arguments[0]))))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
