"""What the syntax says of the cursor: does a body begin there, and which drafts can follow.

In: a document, the cursor and drafts. Knows neither tokens nor models. Runs in the parser process.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tree_sitter import Node, Parser, Tree

from spd_lsp.completion.syntax.languages import Language, end_of, load_grammar, parse, parse_within_budget
from spd_lsp.completion.syntax.outline import is_documentation

_PLACE = re.compile(r"row:(\d+), col:(\d+)")
_WORD_BYTES = f"{string.ascii_letters}{string.digits}_".encode()
_STRING_ENDS = (b"", b'"', b"'", b"`", b'"""', b"'''")
_MAX_MESSAGES = 50_000  # of a parser about one draft; some 50 ms
_CHUNK_BYTES = 4_096
_PARSED_ABOVE, _PARSED_BELOW = 6_000, 1_500  # characters around the cursor that drafts are parsed with
_GOES_ON = re.compile(
    r"\s*(?:[^\w\s#@<\"'/*$]|(?:else|elif|elsif|except|finally|catch|end|case|default|when|and|or)\b)"
)
_MAX_LINES_ABOVE = 50_000  # that are searched for what the cursor's block stands in

Point = tuple[int, int]  # row and column


def begins_body(language: Language, text: str, indent: str) -> bool | None:
    """Whether a statement written next would be the first of a body; None where the syntax is too broken."""
    text = nearest_lines(text, len(text))[0].rstrip(" \t") + "\n" + indent
    root = parse(language, text + language.filler + "\n").root_node
    end = len(text.encode("utf-8", "replace"))
    node = root.descendant_for_byte_range(end, end + 1)
    while node is not None and (parent := node.parent) is not None:
        if node.is_error or parent.is_error:
            return None
        before = _content_before(language, node)
        if parent.type in language.bodies:
            return before is None or not before.is_named
        if before is not None:
            return False
        node = parent
    return False


def _content_before(language: Language, node: Node) -> Node | None:
    """Return the sibling before a node, skipping comments, documentation and separators."""
    before = node.prev_sibling
    while before is not None and (
        before.type in language.comments
        or before.type in {";", "\n"}
        or (before.prev_named_sibling is None and is_documentation(language, before))
    ):
        before = before.prev_sibling
    return before


@dataclass(frozen=True, slots=True)
class _Base:
    """A document with a statement for the cursor's line, and its tree."""

    source: bytes
    tree: Tree


_bases: dict[int, _Base] = {}  # the last one of each language


class SplitSource:
    """A document's bytes around the cursor, and trees of what could stand there."""

    def __init__(self, language: Language, source: str, cursor: int) -> None:
        start = source.rfind("\n", 0, cursor) + 1
        end = source.find("\n", cursor) % (len(source) + 1)
        left = source[start:cursor]
        self.language = language
        self.above, self.left, self.right, self.below = (
            text.encode("utf-8", "replace") for text in (source[:start], left, source[cursor:end], source[end:])
        )
        self.filler = (left[: len(left) - len(left.lstrip())] + language.filler).encode()
        self.base = self._parse_base()

    def _parse_base(self) -> Tree:
        """Return the tree of the document with a statement for the cursor's line."""
        source = self.above + self.filler + self.below
        before = _bases.get(id(self.language))
        if before is None or before.source != source:
            tree = _parse_again(self.language, before, source)
            _bases[id(self.language)] = before = _Base(source, tree)
        return before.tree

    def edited(self, line: bytes) -> tuple[Tree, bytes]:
        """Return the base tree told of another cursor's line, and the document with that line."""
        tree = self.base.copy()
        start = len(self.above)
        points = [end_of(self.above + text) for text in (b"", self.filler, line)]
        tree.edit(start, start + len(self.filler), start + len(line), *points)
        return tree, self.above + line + self.below

    def parse(self, line: bytes) -> Tree:
        """Return the tree of the document with this cursor's line."""
        tree, source = self.edited(line)
        return parse_within_budget(self.language, source, tree)


def _parse_again(language: Language, before: _Base | None, source: bytes) -> Tree:
    """Parse a source where it differs from the last one."""
    if before is None:
        return parse_within_budget(language, source)
    old = before.source
    tree = before.tree.copy()
    start = _common_prefix(old, source)
    rest = min(len(old), len(source)) - start
    same = _common_prefix(old[len(old) - rest :][::-1], source[len(source) - rest :][::-1])
    old_end = len(old) - same
    end = len(source) - same
    tree.edit(start, old_end, end, end_of(old[:start]), end_of(old[:old_end]), end_of(source[:end]))
    return parse_within_budget(language, source, tree)


def _common_prefix(first: bytes, second: bytes) -> int:
    """Return how many bytes two texts share at their start."""
    low = 0
    high = min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[low:middle] == second[low:middle] else (low, middle - 1)
    return low


def nearest_lines(source: str, cursor: int) -> tuple[str, int]:
    """The lines around a cursor below the first lines of the blocks that they stand in, and the cursor there.

    So drafts are parsed as fast in a long document as in a short one. The first line of all may begin a language.
    """
    first = max(0, cursor - _PARSED_ABOVE)
    end = source.find("\n", cursor + _PARSED_BELOW) % (len(source) + 1)
    if not first:
        return source[:end], cursor
    start = source.rfind("\n", 0, first) + 1
    lines = source[start : source.rfind("\n", 0, cursor) + 1].splitlines(keepends=True)
    indents = [_indent(line) for line in lines]
    least = min((one for one in indents if one is not None), default=0)
    while len(lines) > 1 and (indents[0] != least or _GOES_ON.match(lines[0])):
        start += len(lines.pop(0))
        del indents[0]
    heads = _heads(source[:start].splitlines(keepends=True)[-_MAX_LINES_ABOVE:], indents[0] if indents else None)
    opening = source[: source.find("\n") + 1] if source.startswith("<?") else ""
    return opening + heads + source[start:end], cursor - start + len(opening) + len(heads)


def _heads(above: Sequence[str], indent: int | None) -> str:
    """The first lines of the blocks that a line indented so stands in, whole where they end with a bracket."""
    heads: list[str] = []
    is_open = False
    for line in reversed(above):
        white = _indent(line)
        if white is None or indent is None or white > indent or (white == indent and not is_open):
            if is_open:
                heads.append(line)
            continue
        indent = white
        is_open = line.lstrip().startswith((")", "]", "}", "{")) and not is_open
        heads.append(line)
    return "".join(reversed(heads))


def _indent(line: str) -> int | None:
    """Characters of white space before a line; None if there is nothing else."""
    return len(line) - len(line.lstrip()) if line.strip() else None


def could_follow(language: Language, source: str, cursor: int, drafts: Sequence[str], most: int) -> list[bool]:
    """Whether the parser can read each draft at the cursor; it can where what stands there is broken.

    Drafts behind the first `most` that it can read are not tried, and count as others.
    """
    split = SplitSource(language, *nearest_lines(source, cursor))
    verdicts: list[bool] = []
    for draft in drafts:
        verdicts.append(sum(verdicts) < most and _can_be_read(split, draft.encode("utf-8", "replace")))
    return verdicts


def _can_be_read(split: SplitSource, draft: bytes) -> bool:
    """Whether the parser stops nowhere in a draft, or only because a string is not closed yet."""
    if not split.parse(split.left + draft + split.right).root_node.has_error:
        return True
    ends = _STRING_ENDS if re.search(rb"[\"'`]", draft) else (b"",)
    return any(_has_no_new_error(split, draft + end) for end in ends)


def _has_no_new_error(split: SplitSource, draft: bytes) -> bool:
    """Whether the parser reads a draft without an error, or had one before it already."""
    before = split.above + split.left.rstrip(_WORD_BYTES)  # a word at the cursor is one token with the draft
    last = end_of(before.rstrip())  # the parser stands there when it cannot read what follows
    places = _ErrorPlaces(end_of(split.above + split.left + draft)).find(split, split.left + draft + split.right)
    if places and places[0] >= last and not split.left.strip():  # perhaps the line above is unfinished
        return _ErrorPlaces(end_of(split.above + split.filler)).find(split, split.filler)[:1] == places[:1]
    return not places or places[0] < last


class _ErrorPlaces:
    """The places where a parser must recover, up to some point: its log names the token that no tree shows."""

    def __init__(self, end: Point) -> None:
        self.end = end
        self.places: list[Point] = []
        self.place = self.unreadable = (0, 0)
        self.messages = 0
        self.is_over = False

    def find(self, split: SplitSource, line: bytes) -> list[Point]:
        """Parse the document with this line as far as needed, and return the places."""
        tree, source = split.edited(line)
        parser = Parser(load_grammar(split.language.module, split.language.entry))
        parser.logger = self._on_message

        def read_chunk(start: int, point: object) -> bytes:
            return source[start : start + _CHUNK_BYTES]

        with suppress(ValueError):  # stopped
            parser.parse(read_chunk, tree, progress_callback=lambda start, is_broken: self.is_over)
        return self.places

    def _on_message(self, kind: object, message: str) -> None:
        """Note where the parser stands, what it cannot read from there, and that it must recover."""
        self.messages += 1
        if message.startswith("process "):
            found = _PLACE.search(message)
            self.place = (int(found[1]), int(found[2])) if found else self.place
            self.is_over = self.place >= self.end or self.messages > _MAX_MESSAGES
        elif message.startswith("detect_error"):
            self.unreadable = self.place
        elif message.startswith("resume") and self.unreadable < self.end:
            self.places.append(self.unreadable)
