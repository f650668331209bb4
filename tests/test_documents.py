"""Links in the documents lead somewhere: to a file of the tree, and to a heading or an anchor in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOT_OURS = {"node_modules", "build", "dist", "venv"}
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.rglob("*.md")
    if not any(part in NOT_OURS or part.startswith(".") for part in path.relative_to(ROOT).parts)
)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)|<img src=\"(?!\w+:)([^\"]+)\"")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", flags=re.MULTILINE)


@cache
def anchors(document: Path) -> frozenset[str]:
    """Those of its headings, as GitHub names them, and those that it names itself."""
    text = document.read_text(encoding="utf-8")
    headings = HEADING.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    named = re.findall(r"<a id=\"([^\"]+)\"", text)
    return frozenset(named) | {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def dead_links(document: Path, text: str) -> list[str]:
    """The relative links of a document to files that are not there, or to parts that they do not have."""
    dead = []
    for file, anchor, picture in LINK.findall(CODE.sub("code", text)):
        target = document.parent / (file or picture) if file or picture else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{file or picture}{anchor and '#'}{anchor}")
    return dead


def test_all_documents_are_read() -> None:
    assert {"README.md", "editors/README.md", "spd_lsp/starter/MODEL_CARD.md"} <= {*DOCUMENTS}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    path = ROOT / document
    if document == "spd_lsp/training/card.md":  # the template of a card that is written into another folder
        path = ROOT / "spd_lsp/starter/MODEL_CARD.md"
    assert dead_links(path, (ROOT / document).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("link", ["gone.md", "README.md#gone", "#gone", "editors/README.md#gone"])
def test_a_dead_link_is_found(link: str) -> None:
    text = f"See [there]({link}), [`code`]({link}) and `[neither]({link})` [nor](https://example.org/{link}#gone)."
    assert dead_links(ROOT / "README.md", text) == [link, link]


@pytest.mark.parametrize("link", ["README.md", "README.md#in-numbers", "#develop", "editors/README.md#indexing"])
def test_a_link_that_leads_somewhere_is_none(link: str) -> None:
    assert dead_links(ROOT / "README.md", f"[there]({link})") == []
