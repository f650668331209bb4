"""Where an editor has closed brackets, quotes and blocks, no text that is offered unbalances the document.

Brackets and strings are read by Pygments, and not as the product reads them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path

import pytest
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Error, Literal, String

from spd_lsp.completion.offer import usable_completions
from tests.completion.places import context_at

LANGUAGES = {  # of the snippets, and what Pygments calls them
    "service.py": ("python", "python"),
    "view.js": ("javascriptreact", "tsx"),
    "store.ts": ("typescript", "typescript"),
    "cart.tsx": ("typescriptreact", "tsx"),
    "server.go": ("go", "go"),
    "parser.rs": ("rust", "rust"),
    "Accounts.java": ("java", "java"),
    "queue.c": ("c", "c"),
    "matrix.cpp": ("cpp", "cpp"),
    "Orders.cs": ("csharp", "csharp"),
    "ledger.rb": ("ruby", "ruby"),
    "Mailer.php": ("php", "php"),
    "backup.sh": ("shellscript", "bash"),
    "cache.lua": ("lua", "lua"),
}
CLOSED_BY = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "`": "`"}
CURSORS = 150  # of each language
TRIES = 10_000


@dataclass(frozen=True)
class Cursor:
    """One behind which an editor has closed what its line opens."""

    before: str
    after: str
    truth: str  # what was written there, and all that came behind it
    is_block: bool = False


def read(name: str) -> str:
    return (Path(__file__).parent / "snippets" / name).read_text(encoding="utf-8")


@cache
def imbalance(language: str, text: str) -> int:
    """How many brackets and quotes of a text have no partner."""
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    waiting: list[str] = []
    wrong = quotes = 0
    for kind, value in lexer.get_tokens(text):
        if kind in Comment or kind in Literal.Date:
            continue
        if kind in String:
            quotes += value in CLOSED_BY.values()  # no part of a string that is one token
            if kind not in String.Interpol:
                continue
        if kind in Error:
            wrong += 1
        for char in value if kind not in String else re.findall(r"[{}()]", value):
            if char in "([{":
                waiting.append(CLOSED_BY[char])
            elif char in ")]}":
                if waiting and waiting[-1] == char:
                    waiting.pop()
                else:
                    wrong += 1
    return wrong + len(waiting) + quotes % 2


def left_open(text: str) -> str:
    """What an editor would have closed behind a line's beginning, the innermost first."""
    closers = ""
    for before, char in zip(" " + text, text, strict=False):
        if closers[:1] == char:
            closers = closers[1:]
        elif closers[:1] in ("'", '"', "`"):
            continue
        elif char in CLOSED_BY and not (char in "'\"`" and re.match(r"\w", before)):
            closers = CLOSED_BY[char] + closers
    return closers


def within_lines(text: str, language: str, random: random.Random) -> Iterator[Cursor]:
    """Cursors in lines that close what they open, where something is open."""
    lines = text.split("\n")
    for _ in range(TRIES):
        row = random.randrange(len(lines))
        line = lines[row]
        if not line.strip() or left_open(line) or re.match(r"\s*(//|#|\*|/\*|--)|.*(\"\"\"|[$#]\{|\$\")", line):
            continue
        column = random.randrange(len(line))
        closers = left_open(line[:column])
        before = "\n".join((*lines[:row], line[:column]))
        after = "\n".join(("", *lines[row + 1 :]))
        if closers and imbalance(language, before + closers + after) <= imbalance(language, text):
            yield Cursor(before, closers + after, line[column:] + after)


def within_blocks(text: str, language: str, random: random.Random) -> Iterator[Cursor]:
    """Cursors in blocks that are closed and empty."""
    lines = text.split("\n")
    white = [len(line) - len(line.lstrip()) if line.strip() else 1_000 for line in lines]
    for _ in range(TRIES):
        row = random.randrange(len(lines) - 2)
        end = next((n for n in range(row + 1, len(lines)) if white[n] <= white[row]), 0)
        if end < row + 2 or white[row] != white[end] or not re.match(r"\s*([)\]}]|end|fi|done|</)", lines[end]):
            continue
        indent = lines[row + 1][: white[row + 1]]
        before = "\n".join((*lines[: row + 1], indent))
        after = "\n".join(("", *lines[end:]))
        if imbalance(language, before + after) <= imbalance(language, text):
            yield Cursor(before, after, "\n".join(lines[row + 1 :])[len(indent) :], is_block=True)


def cursors(name: str, most: int) -> list[Cursor]:
    text = read(name)
    lexer = LANGUAGES[name][1]
    source = random.Random(name)
    found = [within_lines(text, lexer, source)]
    if name != "service.py":
        found.append(within_blocks(text, lexer, source))
    return list(islice(chain.from_iterable(zip(*found, strict=False)), most))


def offered(cursor: Cursor, drafts: Sequence[str], language: str) -> list[str]:
    indent = re.search(r"[ \t]*\Z", cursor.before)[0] if cursor.is_block else ""
    place = context_at("block" if cursor.is_block else "line", indent, cursor.after, cursor.before, language)
    found = usable_completions([(draft, -float(n)) for n, draft in enumerate(drafts)], place)
    return [one.text for one in found if one.ends]


def opens_a_block(text: str) -> bool:
    """Whether a text is a line that opens a bracket or a tag which later lines close; no string."""
    closers = left_open(text)
    is_tag = re.search(r">$|<\w[^<>]*$", text) is not None
    return "\n" not in text and (is_tag or bool(closers)) and not set(closers) & set("'\"`")


@pytest.mark.parametrize("name", LANGUAGES)
def test_what_follows_is_not_closed_again_by_what_was_written_there(name: str) -> None:
    """Drafts: what was written, all of it or up to somewhere, or what was written elsewhere."""
    language, lexer = LANGUAGES[name]
    places = cursors(name, CURSORS)
    source = random.Random(name)
    count = 0
    for place in places:
        other = source.choice(places).truth
        drafts = [place.truth[:400], place.truth[: source.randrange(1, 60)], other[:200]]
        for text in offered(place, drafts, language):
            count += 1
            applied = place.before + text + place.after
            assert opens_a_block(text) or imbalance(lexer, applied) <= imbalance(lexer, read(name)), (
                place.before[-80:],
                text,
                place.after[:40],
            )
    assert count > CURSORS / 2
