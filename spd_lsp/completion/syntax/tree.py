"""What the syntax tree says of a place: what it stands in, and which lines can follow.

A text may be broken, as it is while someone types. Knows nothing of tokens, budgets of tokens or completions.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser, Tree

from spd_lsp.completion.surroundings import Surroundings
from spd_lsp.completion.syntax.delimiters import scan
from spd_lsp.completion.syntax.languages import Language

# The budget of a parser, in callbacks: one per hundred of its steps, about 0.03 ms. Code, broken code included,
# needs one per 80 bytes or so; crafted text needs thousands of times as many.
_MIN_CALLBACKS, _BYTES_PER_CALLBACK = 1_000, 16
_CHUNK_BYTES = 16_384  # that a parser reads at once; it reads again where it backtracks
_MAX_LINE = 20_000  # characters
_KEPT_HEADS = 4
_NEAR_ABOVE, _NEAR_BELOW = 3_000, 1_500  # characters around the cursor that a line is parsed with
_FAR_ABOVE = 50_000  # in which the heads of these are looked for
_GOES_ON = re.compile(r"\s*(?:[)\]}{]|(?:else|elif|elsif|except|finally|catch|rescue|ensure)\b)")


class ParserBudgetExceeded(Exception):
    """The parser would take far longer for this text than it does for code."""


@functools.cache
def load_grammar(module: str, entry: str) -> Grammar:
    """Load a grammar once. Parsers are created per use: they keep state, which threads must not share."""
    return Grammar(getattr(importlib.import_module(module), entry)())


def parse(language: Language, text: str) -> Tree:
    """Return the syntax tree of a text, broken or not. The tree cannot be asked for its text.

    Raises `ParserBudgetExceeded`, deterministically, for a text with a line that nobody writes by hand, as some
    grammars need minutes for a nest, and for one that takes far more steps than code does.
    """
    if max(map(len, text.split("\n"))) > _MAX_LINE:
        raise ParserBudgetExceeded
    source = text.encode("utf-8", "replace")
    callbacks_left = _MIN_CALLBACKS + len(source) // _BYTES_PER_CALLBACK
    chunks: list[memoryview] = []

    def read_chunk(start: int, point: object) -> memoryview:
        chunks.append(memoryview(source)[start : start + _CHUNK_BYTES])
        return chunks[-1]

    def is_exhausted(start: int, is_broken: bool) -> bool:
        nonlocal callbacks_left
        callbacks_left -= 1
        return callbacks_left < 0

    try:
        parser = Parser(load_grammar(language.module, language.entry))
        return parser.parse(read_chunk, progress_callback=is_exhausted)
    except ValueError as error:
        raise ParserBudgetExceeded from error
    finally:
        for chunk in chunks:  # tree-sitter's Python binding (0.26.1) never drops what a callback returns
            chunk.release()


def breaks_line(language: Language, around: Surroundings) -> Callable[[str], bool]:
    """Return a function: whether a text, written to the end of the cursor's line, is a syntax error there.

    Where something around the cursor is broken already, no text is. Only the lines nearby are parsed, below the
    heads of what they stand in, so that a long document takes no more time than a short one.
    """
    first = around.above.rfind("\n", 0, max(0, len(around.above) - _NEAR_ABOVE)) + 1
    near = around.above[first:]
    far = around.above[max(0, first - _FAR_ABOVE) : first].splitlines(keepends=True)
    far += near.splitlines(keepends=True)[:1]
    above = "".join(reversed([far[row] for row in _heads_by_indentation(far)])) + near
    below = around.below[: around.below.find("\n", _NEAR_BELOW) % (len(around.below) + 1)]

    def has_error(line: str) -> bool:
        text = above + line + below
        opened = scan(text, around.language).open  # as below what is parsed, or where nobody closed it yet
        closers = "".join(f"\n{one.closer}" for one in reversed(opened) if not one.is_text)
        try:
            return parse(language, text + closers).root_node.has_error
        except ParserBudgetExceeded:
            return True

    @functools.cache
    def is_broken() -> bool:
        return has_error(around.left[: around.indent] + language.filler) and has_error("")

    return lambda text: not is_broken() and has_error(around.left + text + around.rest)


@functools.lru_cache(_KEPT_HEADS)  # while a line is typed, the text around it is the same again and again
def find_heads(
    language: Language | None, above: tuple[str, ...], below: tuple[str, ...]
) -> tuple[Sequence[int], Sequence[int]]:
    """The rows above a gap between lines that say where it stands.

    First the heads of what surrounds the gap, the innermost first, as an editor's sticky scroll shows them; then
    the rows of imports.
    """
    heads = [row for row in _heads_by_indentation(above) if row < len(above) - 1]
    imports: set[int] = set()
    if language is not None:
        with suppress(ParserBudgetExceeded):
            imports.update(_import_rows(language, parse(language, "".join((*above, *below))).root_node, above))
    return heads, sorted(imports)


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
            is_import = node.type in language.imports.split()
            if node is outer and language.import_line is not None and first < len(lines):
                is_import = is_import or language.import_line.match(lines[first].strip()) is not None
            if is_import:
                end = node.end_point
                yield from range(first, min(len(lines), max(first, end.row - (end.column == 0)) + 1))
