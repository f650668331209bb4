"""What the model sees: a document and a cursor come in, the text around the cursor within a token budget goes out.

Also how long a completion should be, decided by the syntax before the model runs. Knows nothing of models, tokens
(a function counts them) or the editor.

The text is chosen from what stands above the anchor, a line that moves in steps while someone types: what is typed
between two steps only appends to the text before the cursor, so that a model can go on where it stood.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ngram_builders.sources.filters import normalize_line_ends
from spd_lsp.completion.surroundings import Surroundings
from spd_lsp.completion.syntax.languages import LANGUAGES, Language, find_heads

CompletionShape = Literal["line", "opening", "block"]  # opening: the first line of a block
TokenCounter = Callable[[str], int]

_MAX_LINE_REACH = 5_000  # characters left of the cursor; nobody writes longer lines by hand
_MAX_PARSED_LENGTH = 200_000  # characters, some 50 ms of reading; of a longer document the nearest lines are kept
_MAX_TOKEN_LENGTH = 64  # characters; more of them per token of budget cannot fit and are not measured
_NEAREST_SHARE = 0.75  # share of the lines next to the cursor, whatever they are: nothing says more (measured)
_TYPICAL_LINE = 16  # tokens; budget kept for a line of usual length
_STRIDE = 2  # characters typed before the window moves, to four tokens of budget: costs a key 2 tokens
_MAX_RECENT = 1024  # characters between the anchor and the cursor
_CHARACTERS_PER_TOKEN = 3  # of code, at least
_GRACE = 2  # tokens; a text has hardly ever more tokens than its lines, and never many
_MAX_TEXT_RIGHT = 8  # characters right of the cursor that a completion in the middle of a line may stand before
_MAX_NAME_REACH = 200  # characters left of the cursor that are searched for a number or a new name
_NUMBER = re.compile(r"(?<![\w.])\d\w*(?:\.\w*)?$")
_DOT = re.compile(r"[\w)\]}\"'][?!]?(?:\.|->|::)$")  # of an expression: a name follows, in any language
_CLOSING = re.compile(r"[)>}\]\"'`]*\s*[:{;,]?")  # all of a line's end, without white space around it
_END_OF_IMPORT = re.compile(r"[ \t]*\}[ \t]*from\b")  # whose module is written before its names
_CLOSED = re.compile(r"[)\]}\"'`]+(?=\n|\Z)")  # what an editor may have closed
_COMMENTS = ("#", "//", "-- ", "--[", "/*", "* ", "*/")  # what a line of one begins with
_WORD = re.compile(r"(?<!\w)(?=\w)|(?<=\s)|$")  # where one starts, or a line ends


@dataclass(frozen=True, slots=True)
class Context:
    """The text around the cursor that the model sees, and how long a completion there should be."""

    before: str  # ends at the cursor
    after: str
    shape: CompletionShape
    indent: str  # of the cursor's line, or of the block: a line indented less ends it
    around: Surroundings  # what is open at the cursor, and what follows it
    settled: int = 0  # characters of `before` that stay while someone types: those above the anchor
    silence: str = ""  # why nothing is offered here unless a person asks for it
    needs_name: bool = False  # whether code stops at the cursor behind a dot: the line cannot end there

    @property
    def opening(self) -> Context:
        """This context for completions that end with their first line, even where a block begins."""
        return replace(self, shape="opening") if self.shape == "block" else self

    @property
    def read_after(self) -> str:
        """What the model reads of `after`: not the brackets and quotes that end the cursor's line.

        Most editors close what was just opened; if that changed the prompt, all below would be read again. A draft
        closes them, too, and what it says again is cut off.
        """
        closed = _CLOSED.match(self.after)
        return self.after[closed.end() :] if closed else self.after


@dataclass(frozen=True, slots=True)
class _Page:
    """A document split at the cursor: the lines above and below, and both parts of the cursor's line."""

    above: Sequence[str]
    left: str
    right: str
    below: Sequence[str]


def normalize_newlines(source: str, cursor: int) -> tuple[str, int]:
    """Return a text and an offset in it with "\\n" for every line end, as models and n-gram tables see it.

    Example: "a\\r\\nb", 3 gives "a\\nb", 2. Within "\\r\\n" is before it.
    """
    if "\r" not in source:
        return source, cursor
    cursor = min(max(cursor, 0), len(source))
    if source[cursor - 1 : cursor + 1] == "\r\n":
        cursor -= 1
    return normalize_line_ends(source), len(normalize_line_ends(source[:cursor]))


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends. Only "\\n" ends a line: a form feed does not."""
    found = [line + "\n" for line in text.split("\n")]
    found[-1] = found[-1][:-1]
    return found if found[-1] else found[:-1]


def build_context(
    source: str,
    cursor: int,
    language: str | None,
    budget: int,
    count_tokens: Callable[[str], int],
    *,
    explicit: bool = False,
) -> Context:
    """Return what the model sees around a cursor (in code points) within `budget` tokens, and what to complete.

    A text costs what its lines cost. Where suggestions are rarely wanted there is a reason for silence instead,
    unless a person asked (`explicit`).
    """
    cursor = min(max(cursor, 0), len(source))
    known = LANGUAGES.get(language or "")
    around = Surroundings.at(source, cursor, language)
    start, end = cursor - len(around.left), source.find("\n", cursor) + 1 or len(source)
    page = _Page(split_lines(source[:start]), around.left, source[cursor:end], split_lines(source[end:]))
    # 1. Whether anything is wanted here, and how much.
    if not explicit and (silence := _reason_for_silence(known, page, around)):
        return Context("", "", "line", _indentation(page.left), around, silence=silence)
    is_dot = not explicit and not page.right.strip() and _DOT.search(page.left[-_MAX_LINE_REACH:]) is not None
    needs_name = is_dot and not around.literal
    is_end = _CLOSING.fullmatch(page.right.strip()) is not None
    in_block = known and is_end and not around.literal and _block_indent(known, source[:cursor], page)
    shape: CompletionShape = "block" if in_block else "line"
    indent = in_block or _indentation(page.left)
    # 2. The whole document, or what fits of it.
    budget = max(0, budget - _GRACE)
    stride = max(1, _STRIDE * budget // 4)

    @functools.cache
    def cost(line: str) -> int:
        is_short = len(line) <= _MAX_TOKEN_LENGTH * budget
        return count_tokens("\n" + line.rstrip("\n")) if is_short else budget + 1

    before, after = source[:cursor], source[cursor:]
    lines = [page.left, page.right, *reversed(page.above), *page.below]
    if len(_nearest(lines, budget, cost)) < len(lines):
        parsed_language = known if len(source) <= _MAX_PARSED_LENGTH else None
        before, after = _choose_text(parsed_language, page, budget, stride, cost)
    recent = page.above[_anchor_row(page.above, min(stride, _MAX_RECENT)) :]
    settled = max(0, len(before) - len(page.left) - sum(map(len, recent)))
    return Context(before, after, shape, indent, around, settled, needs_name=needs_name)


def _rounded(tokens: int, step: int) -> int:
    """Return the next multiple of step above a number. Example: 5 and 8 give 8, 8 and 8 give 16."""
    return (tokens // step + 1) * step


def _choose_text(
    language: Language | None, page: _Page, budget: int, stride: int, cost: TokenCounter
) -> tuple[str, str]:
    """Return the texts before and after the cursor within `budget`.

    stride: characters that are typed before the window moves, and the model reads all of it again.
    """
    # 1. Below the cursor: a quarter, or all that the text above leaves.
    step = min(max(24, budget // 8), budget // 4 + 1)
    above = _nearest([page.left, *reversed(page.above)], budget, cost)
    needed = sum(map(cost, above)) if len(above) > len(page.above) else budget + 1
    share = min(max(budget // 4, budget - _rounded(needed, step)), budget - _rounded(cost(page.left), step))
    after = _nearest([page.right, *page.below], share, cost)
    budget -= sum(map(cost, after))
    # 2. Above it: all, or a part of its line, or whole lines.
    if needed <= budget:
        before = [*page.above, page.left]
    elif cost(page.left) > budget:
        before = [_tail(page.left, budget, stride, cost)]
    else:
        before = _above(language, page, budget, stride, cost)
    return "".join(before), "".join(after)


def _anchor_row(above: Sequence[str], step: int) -> int:
    """Return how many lines start before the last whole step of characters, but for the last line of code.

    Example: of 6 lines of 4, step 10: 5. What stands there has to stay when the tokens at the cursor change.
    """
    row = len(above)
    while row and not above[row - 1].strip():
        row -= 1
    row = max(0, row - 1)
    start = sum(map(len, above[:row]))
    mark = start // step * step
    while row and start - len(above[row - 1]) >= mark:
        row -= 1
        start -= len(above[row])
    return row


def _above(language: Language | None, page: _Page, budget: int, stride: int, cost: TokenCounter) -> list[str]:
    """Return the lines to keep above the cursor, and the text left of it.

    First what was typed since the anchor. Of the lines above that the nearest, the heads of what the cursor
    stands in, imports, and, if there is still room, more of the nearest.
    """
    anchor = _anchor_row(page.above, stride)
    recent = _nearest([page.left, *reversed(page.above[anchor:])], budget, cost)
    if len(recent) < 1 + len(page.above) - anchor:
        return recent[::-1]
    reserved = min(stride // _CHARACTERS_PER_TOKEN + _TYPICAL_LINE, budget)
    budget -= max(reserved, _rounded(sum(map(cost, recent)), reserved))
    above = page.above[:anchor]
    upwards = range(anchor - 1, -1, -1)
    kept: set[int] = set()
    left = budget - _keep(kept, upwards, above, int(_NEAREST_SHARE * budget), cost)
    heads, imports = find_heads(language, tuple(above), tuple(page.below))
    left -= _keep(kept, heads, above, min(left, budget // 2), cost)
    left -= _keep(kept, imports, above, min(left, budget // 3), cost)
    _keep(kept, upwards, above, left, cost)
    return [*(above[row] for row in sorted(kept)), *reversed(recent)]


def _nearest(lines: Iterable[str], budget: int, cost: TokenCounter) -> list[str]:
    """Return the first lines that fit."""
    kept: list[str] = []
    for line in lines:
        if (budget := budget - cost(line)) < 0:
            break
        kept.append(line)
    return kept


def _keep(kept: set[int], rows: Iterable[int], lines: Sequence[str], budget: int, cost: TokenCounter) -> int:
    """Keep rows in order until one does not fit; return the tokens of those that are new."""
    left = budget
    for row in rows:
        if row in kept:
            continue
        if cost(lines[row]) > left:
            break
        kept.add(row)
        left -= cost(lines[row])
    return budget - left


def _tail(line: str, budget: int, step: int, cost: TokenCounter) -> str:
    """Return the end of a line that is too long, from the first word after a whole step."""
    start = max(0, len(line) - _CHARACTERS_PER_TOKEN * budget) // step * step
    while start < len(line) and cost(line[start:]) > budget:
        start += step
    word = _WORD.search(line, start)
    return line[word.start() :] if word else ""


def _reason_for_silence(language: Language | None, page: _Page, around: Surroundings) -> str:
    """Why nothing is offered unless a person asks for it, or an empty string."""
    right = page.right.rstrip("\r\n")
    left = page.left[-_MAX_NAME_REACH:]
    if re.match(r"\w", right):
        return "a word goes on right of the cursor"
    is_end = _CLOSING.fullmatch(right.strip()) or _END_OF_IMPORT.match(right)
    if len(right.strip()) > _MAX_TEXT_RIGHT and not is_end:
        return "there is text right of the cursor"
    if _NUMBER.search(left):
        return "a number is being written"
    if language is not None and language.new_name and language.new_name.search(left):
        return "a new name is being written"
    return "a comment is being written" if around.literal == "comment" else ""


def _indentation(line: str) -> str:
    """Return the white space that a line begins with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def _block_indent(language: Language, text: str, page: _Page) -> str:
    """Return the indentation of the block that begins at the end of a text, or ""."""
    is_blank = not page.left.strip()
    header = _last_statement(page.above) if is_blank else page.left
    if not language.opens.search(header):
        return ""
    indent = page.left if is_blank else ""
    if len(indent.expandtabs(4)) <= len(_indentation(header).expandtabs(4)):
        indent = _indentation(header) + _indent_unit(text)
    following = next((line for line in page.below if line.strip()), "")
    is_filled = len(_indentation(following).expandtabs(4)) >= len(indent.expandtabs(4))
    return "" if is_filled else indent


def _last_statement(above: Sequence[str]) -> str:
    """Return the last line that is code, with its line end: not blank, no comment, no documentation."""
    quote = ""  # of documentation that ends below the line
    for line in reversed(above):
        content = line.strip()
        end = content[-3:]
        if quote:
            quote = "" if content.lstrip("rRuU").startswith(quote) else quote
        elif end in ('"""', "'''") and (content.count(end) == 1 or content.lstrip("rRuU").startswith(end)):
            quote = end if content.count(end) == 1 else ""
        elif content and not content.startswith(_COMMENTS):
            return line
    return ""


def _indent_unit(text: str) -> str:
    """Return one level of indentation of a text: a tab, or the fewest spaces a line begins with; else four."""
    found = [match[1] for match in re.finditer(r"^(\t|  +)(?=[^\s*])", text[:20_000], re.MULTILINE)]
    if found and found.count("\t") * 2 > len(found):
        return "\t"
    return min((white for white in found if white != "\t"), key=len, default=" " * 4)
