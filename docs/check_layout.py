"""Check in headless Chromium that the built site fits screens, and that its search finds names and words.

python docs/check_layout.py site

Every page is opened at the width of a laptop and of a phone. It must not be wider than the screen, no text may be cut
off, and no name of the API may be broken across lines in a list. Tables and code may be wider where they
scroll by themselves. Without Chromium the script says so and succeeds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The driver of the tests: Chromium by its protocol, no further package.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

WIDTHS = (1280, 390)
HEIGHT = 900
# What a reader may search for, and a page that must be found.
SEARCHES = {
    "LDSUClassifier": "generated/ldsu.LDSUClassifier.html",
    "save_model": "generated/ldsu.save_model.html",
    "familiarity": "guide/trust.html",
    "ldsu.dask": "generated/ldsu.dask.LDSU.html",
}

# A text is cut off where a box that hides what is beyond it, or the edge of the page, comes before a box that scrolls.
MEASURE = """(() => {
  const root = document.documentElement, width = root.clientWidth, found = [];
  if (root.scrollWidth > width) found.push(`is ${root.scrollWidth} px wide`);
  const range = document.createRange();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const owner = text.parentElement;
    if (!text.data.trim() || owner.closest("script, style, noscript, .visually-hidden, .skip-link, .skip")) continue;
    if (!owner.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    range.selectNodeContents(text);
    const { left, right } = range.getBoundingClientRect();
    const name = !/\\s/.test(text.data.trim()) && owner.closest("table.autosummary td:first-child, .nav-link, .sig");
    const lines = new Set([...range.getClientRects()].map((line) => Math.round(line.top)));
    if (name && lines.size > 1) found.push(`breaks the name ${text.data.trim()}`);
    let low = 0, high = width, reachable = false;
    for (let box = owner; box && box !== document.body && !reachable; box = box.parentElement) {
      const style = getComputedStyle(box), edge = box.getBoundingClientRect();
      if (style.display === "inline") continue;
      if (["auto", "scroll"].includes(style.overflowX) && box.closest(".bd-article")) reachable = true;
      else if (style.overflowX !== "visible") [low, high] = [Math.max(low, edge.left), Math.min(high, edge.right)];
    }
    if ((left < low - 1 || right > high + 1) && !(reachable && low === 0 && high === width)) {
      found.push(`cuts off ${JSON.stringify(text.data.trim().slice(0, 60))}`);
    }
  }
  return found;
})()"""
AT_ONCE = """document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "* { transition: none !important; animation: none !important; }";
  document.head.append(style);
})"""
RESULTS = (
    """[...document.querySelectorAll("#search-results li a")].map((link) => link.getAttribute("href").split("#")[0])"""
)


def pages_of(site: Path) -> list[Path]:
    """Pages of the site: neither templates of the theme nor files to download."""
    return [
        path
        for path in sorted(site.rglob("*.html"))
        if path.relative_to(site).parts[0] not in ("_static", "_downloads")
    ]


def open_page(browser: Any, address: str) -> None:
    """Open a page, and wait until all of it is there."""
    browser.open(address)
    browser.wait_for(f"location.href === {json.dumps(address)} && document.readyState === 'complete'")


def problems(site: Path, folder: str) -> Iterator[str]:
    """One sentence for each page that does not fit, and each search that does not find its page."""
    from chromium import Chromium

    site = site.resolve()
    browser = Chromium(folder, width=WIDTHS[0], height=HEIGHT)
    # Sidebars slide out of sight when the width changes; what is seen is the end of it.
    browser.call("Page.addScriptToEvaluateOnNewDocument", source=AT_ONCE)
    try:
        for path in pages_of(site):
            open_page(browser, path.as_uri())
            for width in WIDTHS:
                size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
                browser.call("Emulation.setDeviceMetricsOverride", **size)
                for fault in dict.fromkeys(browser.evaluate(MEASURE)):
                    yield f"{path.relative_to(site)} {fault} at a width of {width} px."
        if (site / "search.html").exists():
            for words, wanted in SEARCHES.items():
                open_page(browser, f"{(site / 'search.html').as_uri()}?q={words}")
                browser.wait_for("document.querySelector('.search-summary')?.textContent.includes('found')")
                if wanted not in browser.evaluate(RESULTS):
                    yield f"The search for {words} does not find {wanted}."
    finally:
        browser.close()


def main(arguments: list[str]) -> int:
    """Print what is wrong; the exit code says whether anything is."""
    if len(arguments) != 1:
        print("usage: python docs/check_layout.py SITE", file=sys.stderr)
        return 2
    from chromium import CHROMIUM

    if CHROMIUM is None:
        print("Chromium is not installed: the widths of the pages and the search were not checked.")
        return 0
    site = Path(arguments[0])
    if not pages_of(site):
        print(f"{site} holds no HTML page. Build the site first: sphinx-build docs {site}")
        return 1
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = list(problems(site, folder))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
