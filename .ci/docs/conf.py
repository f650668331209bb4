"""The documentation site: the repository's own Markdown files, and the Python interface from its docstrings.

`poe docs` builds it into build/docs. A link that leads nowhere is an error.
"""

import re
from pathlib import Path
from typing import Any

project = html_title = "spd-lsp"
root_doc = ".ci/docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = [
    ".ci/docs/*.md",
    "*.md",
    "editors/*.md",
    "editors/vscode/*.md",
    "ngram_builders/*.md",
    "spd_lsp/**.md",
]
exclude_patterns = ["spd_lsp/training/card.md"]  # a template
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4
html_theme = "furo"
autodoc_member_order = "bysource"
autodoc_typehints = "description"


def _mark_parameters(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn `name: what it is` lines of a docstring, as the sources have them, into what Sphinx calls a field."""
    if what in ("function", "method"):
        lines[:] = [re.sub(r"^(\w+): ", r":param \1: ", line).replace("**", r"\*\*") for line in lines]


def _lead_to_the_readme(app: Any, error: Exception | None) -> None:
    """Make the README the site's front page."""
    front = '<!doctype html><meta http-equiv="refresh" content="0; url=README.html"><title>spd-lsp</title>'
    Path(app.outdir, "index.html").write_text(front, encoding="utf-8")


def setup(app: Any) -> None:
    """Connect the steps above."""
    app.connect("autodoc-process-docstring", _mark_parameters)
    app.connect("build-finished", _lead_to_the_readme)
