"""The site: ``sphinx-build -W --keep-going docs site``. It is built and read without a network."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import ldsu

HERE = Path(__file__).parent
# The pictures' code is a file of this folder, and sphinx-gallery asks for it by name.
sys.path.insert(0, str(HERE))

project = "ldsu"
author = "The ldsu developers"
copyright = author
version = release = ldsu.__version__

LONG_NAME = 32  # letters; site.css breaks longer names in tables

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_templates", "generated/pictures"]
highlight_language = "none"  # a block that names no language is not Python

# Markdown: headings down to the third level can be linked to, as on GitHub.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Docstrings: a word in single backticks is code.
default_role = "literal"
autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc's lists of parameters say them in words
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# A copied block is a command or a script: prompts and what was printed are left out.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.sphx-glr-script-out) > div.highlight pre"

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"[\\/]plot_",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("pictures.reset",),
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
    "min_reported_time": 3600,
    "remove_config_comments": True,
    "image_srcset": ["2x"],
    "thumbnail_size": (640, 400),
    "doc_module": ("ldsu",),
    "backreferences_dir": "generated/backreferences",
    "inspect_global_variables": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"ldsu {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
# Pages at the top without pages below them need no list of those.
TOP = [line for line in (HERE / "index.md").read_text("utf-8").splitlines() if (HERE / f"{line}.md").is_file()]
html_sidebars: dict[str, list[str]] = {
    page: [] for page in ["index", *TOP] if page == "index" or "toctree" not in (HERE / f"{page}.md").read_text("utf-8")
}
html_theme_options = {
    "logo": {"text": "ldsu"},
    "navbar_align": "left",
    "navbar_start": ["navbar-logo", "release"],
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "navigation_depth": 2,
    "show_toc_level": 2,
    "footer_start": [],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
    "back_to_top_button": False,
}


def setup(app: Any) -> dict[str, Any]:
    """Draw the pictures before pages are read, and add the directive that shows one."""
    from docutils import nodes
    from docutils.parsers.rst import directives
    from sphinx.util.docutils import SphinxDirective

    class Picture(SphinxDirective):
        """A picture of `pictures.py` by its name, with a caption: the light one on a light page, else the dark one."""

        required_arguments = 1
        has_content = True
        option_spec: ClassVar[dict[str, Any]] = {"alt": directives.unchanged_required}

        def run(self) -> list[nodes.Node]:
            name = self.arguments[0]
            figure = nodes.figure("", classes=["picture"])
            for theme in ("light", "dark"):
                uri = f"/generated/pictures/{name}-{theme}.svg"
                figure += nodes.image("", uri=uri, alt=self.options["alt"], classes=["dark-light", f"picture-{theme}"])
            caption = nodes.caption("", "")
            self.state.nested_parse(self.content, self.content_offset, caption)
            if caption.children:
                figure += nodes.caption("", "", *caption.children[0].children)
            return [figure]

    def draw(app: Any) -> None:
        import matplotlib.pyplot as plt
        import pictures

        plt.switch_backend("Agg")
        pictures.draw_all(HERE / "generated" / "pictures")

    def leave_out(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
        """Methods that every scikit-learn estimator has are documented there."""
        home = getattr(member, "__module__", None) or ""
        return True if home.startswith("sklearn.") else None

    def spell_for_sphinx(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
        """Docstrings are read as they are: two dots in a formula end no sentence, and `n_iter_` is no link."""
        for number, line in enumerate(lines):
            lines[number] = re.sub(r"\((\w+)_,\)", r"(\1\\_,)", line.replace(" .. ", " … "))

    def prepare_code(app: Any, doctree: nodes.document) -> None:
        """A doctest in Markdown ends with an empty line, which is no part of the code. Long names may be broken."""
        for name in doctree.findall(nodes.literal):
            if max(map(len, name.astext().split()), default=0) > LONG_NAME:
                name["classes"].append("long")
        for block in doctree.findall(nodes.literal_block):
            if block.rawsource == block.astext():
                block.rawsource = block.rawsource.rstrip()
                block.children = [nodes.Text(block.rawsource)]

    app.add_directive("picture", Picture)
    app.connect("doctree-read", prepare_code)
    app.connect("autodoc-process-docstring", spell_for_sphinx, priority=100)  # before numpydoc
    app.connect("builder-inited", draw)
    app.connect("autodoc-skip-member", leave_out)
    return {"parallel_read_safe": True}
