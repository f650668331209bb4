"""What the syntax tree says of a place: whether a body begins there, what it stands in, which lines can follow.

A text may be broken, as it is while someone types. Knows nothing of tokens, budgets of tokens or completions.
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import platformdirs
from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser, Tree

from ngram_builders.errors import UserError
from spd_lsp.completion.syntax.languages import Language
from spd_lsp.first_use import first_use

# The budget of a parser, in callbacks: one per hundred of its steps, about 0.03 ms. Code, broken code included,
# needs one per 80 bytes or so; crafted text needs thousands of times as many.
_MIN_CALLBACKS, _BYTES_PER_CALLBACK = 1_000, 16
_CHUNK_BYTES = 16_384  # that a parser reads at once; it reads again where it backtracks
_MARKERS = platformdirs.user_cache_path("spd-lsp", appauthor=False) / "first-use"
_MAX_LINE = 20_000  # characters
_DEEP = 10_000  # characters; shorter texts overflow no stack
_BEGINNING = 200  # characters that identify a document
_KEPT_HEADS = 4
_NEAR_ABOVE, _NEAR_BELOW = 3_000, 1_500  # characters around the cursor that a line is parsed with
_FAR_ABOVE = 50_000  # in which the heads of these are looked for
_GOES_ON = re.compile(r"\s*(?:[)\]}{]|(?:else|elif|elsif|except|finally|catch|rescue|ensure)\b)")


log = logging.getLogger(__name__)

_parsed: set[tuple[str, str]] = set()  # grammars and beginnings of documents that were parsed here


class ParserBudgetExceeded(Exception):
    """The parser would take far longer for this text than it does for code."""


@functools.cache
def load_grammar(module: str, entry: str) -> Grammar:
    """Load a grammar once. Parsers are created per use: they keep state, which threads must not share."""
    return Grammar(getattr(importlib.import_module(module), entry)())


def parse(language: Language, text: str) -> Tree:
    """Return the syntax tree of a text, broken or not. Open brackets are closed after its end.

    Raises `ParserBudgetExceeded`, deterministically: for a text with a line that nobody writes by hand, as some
    grammars need minutes for a nest; and for one that ended a process before, as by overflowing the stack.
    The tree cannot be asked for its text.
    """
    if max(map(len, text.split("\n"))) > _MAX_LINE:
        raise ParserBudgetExceeded
    source = text.encode("utf-8", "replace")
    beginning = language.module, text[:_BEGINNING]
    if len(text) < _DEEP or beginning in _parsed:
        tree = _parse_within_budget(language, source)
    else:
        try:
            with first_use(_MARKERS, f"a file in {language.module}", beginning[1]):
                tree = _parse_within_budget(language, source)
        except UserError as error:
            log.warning("%s", error)
            raise ParserBudgetExceeded from error
        _parsed.add(beginning)
    if tree.root_node.has_error and (closing := _missing_closers(language, tree.root_node)):
        closed = source + b"\n" + closing.encode()
        tree.edit(len(source), len(source), len(closed), _end_of(source), _end_of(source), _end_of(closed))
        tree = _parse_within_budget(language, closed, tree)
    return tree


def _parse_within_budget(language: Language, source: bytes, previous: Tree | None = None) -> Tree:
    """Parse a source, reusing the edited tree of its previous version."""
    callbacks_left = _MIN_CALLBACKS + len(source) // _BYTES_PER_CALLBACK
    chunks: list[memoryview] = []

    def read_chunk(start: int, point: object) -> memoryview:
        nonlocal callbacks_left
        callbacks_left -= 1
        chunks.append(memoryview(source)[start : start + _CHUNK_BYTES])
        return chunks[-1]

    def is_exhausted(start: int, is_broken: bool) -> bool:
        nonlocal callbacks_left
        callbacks_left -= 1
        return callbacks_left < 0

    parser = Parser(load_grammar(language.module, language.entry))
    try:
        if previous is None:
            return parser.parse(read_chunk, progress_callback=is_exhausted)
        return parser.parse(read_chunk, previous, progress_callback=is_exhausted)
    except ValueError as error:
        raise ParserBudgetExceeded from error
    finally:
        for chunk in chunks:  # tree-sitter's Python binding (0.26.1) never drops what a callback returns
            chunk.release()


def _end_of(source: bytes) -> tuple[int, int]:
    """Return the row and column after a text. Example: b"a\\nbc" ends at (1, 2)."""
    return source.count(b"\n"), len(source) - source.rfind(b"\n") - 1


def _missing_closers(language: Language, root: Node) -> str:
    """Return what closes the open brackets of a broken text. Example: `f(() => { g(` gives ")", "}" and ")"."""
    closing = {text.split()[0] for text in language.closers.values()}
    opened: list[str] = []
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.has_error and node.child_count:  # elsewhere brackets match
            nodes.extend(reversed(node.children))
        elif node.is_missing:
            continue
        elif node.type in language.closers:
            opened.append(language.closers[node.type])
        elif node.type in closing:
            innermost = next(
                (at for at in reversed(range(len(opened))) if opened[at].split()[0] == node.type), None
            )
            del opened[innermost:]  # and all that were opened after it
    return "\n".join(reversed(opened))


def begins_body(language: Language, text: str, indent: str) -> bool | None:
    """Whether a statement written next would be the first of a body; None where the syntax is too broken."""
    text = text.rstrip(" \t") + "\n" + indent
    try:
        root = parse(language, text + language.filler + "\n").root_node
    except ParserBudgetExceeded:
        return None
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


def is_documentation(language: Language, node: Node) -> bool:
    """Whether a statement is only a string."""
    inner = node.named_child(0) if node.type == "expression_statement" and node.named_child_count == 1 else node
    return inner is not None and inner.type in language.strings


def breaks_line(language: Language, source: str, cursor: int) -> Callable[[str], bool]:
    """Return what says whether a text, written to the end of the cursor's line, is a syntax error there.

    Where something around the cursor is broken already, nothing is known to be one. Parsed are the lines nearby
    below the heads of what they stand in, so that a long document takes no more time than a short one.
    """
    start = source.rfind("\n", 0, cursor) + 1
    end = source.find("\n", cursor) % (len(source) + 1)
    first = source.rfind("\n", 0, max(0, start - _NEAR_ABOVE)) + 1
    near = source[first:start]
    far = source[max(0, first - _FAR_ABOVE) : first].splitlines(keepends=True)
    far += near.splitlines(keepends=True)[:1]
    heads = [far[row] for row in _heads_by_indentation(far)]
    above = "".join(reversed(heads)) + near
    below = source[end : source.find("\n", end + _NEAR_BELOW) % (len(source) + 1)]
    left = source[start:cursor]
    filler = left[: len(left) - len(left.lstrip())] + language.filler

    def has_error(line: str) -> bool:
        try:
            return parse(language, above + line + below).root_node.has_error
        except ParserBudgetExceeded:
            return True

    @functools.cache
    def is_broken() -> bool:
        return has_error(filler) and has_error("")

    return lambda text: not is_broken() and has_error(left + text + source[cursor:end])


@functools.lru_cache(_KEPT_HEADS)  # while a line is typed, the text around it is the same again and again
def find_heads(
    language: Language | None, above: tuple[str, ...], below: tuple[str, ...]
) -> tuple[Sequence[int], Sequence[int]]:
    """The rows above a gap between lines that tell where it stands.

    First those on which what surrounds the gap begins, the innermost first, as an editor's sticky scroll shows
    them; then those of imports.
    """
    heads = set(_heads_by_indentation(above))
    imports: set[int] = set()
    if language is not None:
        with suppress(ParserBudgetExceeded):
            root = parse(language, "".join((*above, *below))).root_node
            heads.update(_heads_in_tree(root, len("".join(above).encode("utf-8", "replace"))))
            imports.update(_import_rows(language, root, above))
    last = len(above) - 1
    return sorted((row for row in heads if row < last), reverse=True), sorted(imports)


def _heads_in_tree(root: Node, gap: int) -> Iterator[int]:
    """The first rows of the nodes around a gap, in bytes, that span several rows."""
    node = root.descendant_for_byte_range(max(gap - 1, 0), gap)
    while node is not None and node.parent is not None:
        if node.start_byte < gap and node.end_point.row > node.start_point.row:
            yield node.start_point.row
        node = node.parent


def _heads_by_indentation(above: Sequence[str]) -> Iterator[int]:
    """The rows that are indented less than all behind them, the last one first, in any syntax.

    With one that goes on, such as `):` or `else:`, comes the one before it that is indented as it is.
    """
    least: int | None = None
    goes_on = False
    for row in reversed(range(len(above))):
        line = above[row]
        white = len(line) - len(line.lstrip())
        if not line.strip() or (least is not None and white > least):
            continue
        if least is not None and (white < least or goes_on):
            yield row
        if least is None or white < least or goes_on:
            goes_on = _GOES_ON.match(line) is not None
        least = white
        if not least and not goes_on:
            return


def _import_rows(language: Language, root: Node, lines: Sequence[str]) -> Iterator[int]:
    """The rows of imports that stand at the top of a file, or one level down, as in `#ifdef`."""
    for outer in root.children:
        for node in (outer, *outer.children):
            first = node.start_point.row
            is_import = node.type in language.imports
            if node is outer and language.import_line is not None and first < len(lines):
                is_import = is_import or language.import_line.match(lines[first].strip()) is not None
            if is_import:
                end = node.end_point
                yield from range(first, min(len(lines), max(first, end.row - (end.column == 0)) + 1))
