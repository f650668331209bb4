"""Completion requests in plain values, and recent results, which answer whoever types along with their drafts.

In: open documents and positions. Out: requests that can be compared, and what remains of a result. Knows nothing
of models.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from ngram_builders.sources.filters import normalize_line_ends
from spd_lsp.completion.offer import choose_completions
from spd_lsp.lsp.completion_items import CursorLine
from spd_lsp.lsp.documents import LspDocument, LspWorkspace
from spd_lsp.ngrams.open_documents import OpenDocument

if TYPE_CHECKING:
    from spd_lsp.completion.completer import CompletionResult
    from spd_lsp.completion.offer import Completion

_MAX_RESULTS = 16
_PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "`": "`"}
_QUOTES = ('"', "'", "`")
_COMPLETE = "the best draft is typed out"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What the editor says that a completion depends on: equal requests share one result."""

    source: str
    cursor: int  # offset in code points
    language: str | None
    path: Path | None
    uri: str
    explicit: bool  # the user asked for it, it was not triggered by typing
    others: frozenset[int] = frozenset()  # revisions of the other open documents

    def joined_with(self, running: CompletionRequest | None) -> CompletionRequest:
        """The running request if the user made it for the same place: ghost text must not cancel its menu."""
        return running if running and running == dataclasses.replace(self, explicit=True) else self


def request_at(
    workspace: LspWorkspace,
    document: LspDocument,
    cursor: int,
    disabled_languages: Collection[str],
    *,
    explicit: bool = False,
) -> CompletionRequest:
    """A request at an offset in a document, which may be a part of a longer text.

    Lone surrogates, which no tokenizer can encode, become question marks.
    """
    whole, start = workspace.whole_text(document)
    source = whole.text
    if not source.isascii():
        source = source.encode("utf-8", "replace").decode()
    others = _other_revisions(workspace, document, disabled_languages)
    return CompletionRequest(source, start + cursor, whole.language, whole.path, whole.name, explicit, others)


def _other_revisions(
    workspace: LspWorkspace, document: LspDocument, disabled_languages: Collection[str]
) -> frozenset[int]:
    """The revisions of the other documents that count."""
    own = {part.revision for part in workspace.parts(document)}
    others = (other for other in workspace.documents if other.revision not in own)
    return frozenset(other.revision for other in others if _is_indexable(other, disabled_languages))


def with_selected(
    request: CompletionRequest, document: LspDocument, cursor: int, selected: types.SelectedCompletionInfo
) -> CompletionRequest:
    """The request as if the menu's selected item had been accepted, which ghost text continues."""
    start_of_document = request.cursor - cursor
    start = start_of_document + document.offset_at_position(selected.range.start)
    end = max(start, start_of_document + document.offset_at_position(selected.range.end))
    source = request.source[:start] + selected.text + request.source[end:]
    return dataclasses.replace(request, source=source, cursor=start + len(selected.text))


def after_accepting(request: CompletionRequest, draft: Completion) -> CompletionRequest:
    """The request that follows if a draft is accepted: at its end or, if that ends the line, on the next one."""
    text = draft.text
    if draft.ends:
        text += _next_line((request.source[: request.cursor] + text).rpartition("\n")[2])
    source = request.source[: request.cursor] + text + request.source[request.cursor :]
    return dataclasses.replace(request, source=source, cursor=request.cursor + len(text), explicit=False)


def _next_line(line: str) -> str:
    """A line end and the indentation that editors give the next line. Example: "  if x:" -> "\\n      "."""
    indentation = line[: len(line) - len(line.lstrip())]
    deeper = line.rstrip().endswith((":", "{", "(", "["))
    return f"\n{indentation}" + deeper * ("\t" if "\t" in indentation else "    ")


class RecentResults:
    """The latest results of a session, which also answer whoever types along with one of their drafts."""

    def __init__(self) -> None:
        self._results: list[tuple[CompletionRequest, CompletionResult]] = []  # the newest first

    def add(self, request: CompletionRequest, result: CompletionResult) -> CompletionResult:
        """Keep a result instead of the earlier one of an equal request, and return it."""
        kept = [one for one in self._results if one[0] != request]
        self._results = [(request, result), *kept][:_MAX_RESULTS]
        return result

    def drop(self, uri: str) -> None:
        """Forget a document's results."""
        self._results = [(request, result) for request, result in self._results if request.uri != uri]

    def clear(self) -> None:
        """Forget all results."""
        self._results.clear()

    def find(
        self, request: CompletionRequest, is_current: Callable[[CompletionResult], bool]
    ) -> CompletionResult | None:
        """The result of an equal request, or else what remains of the one that was typed along with least."""
        found: CompletionResult | None = None
        nearest = -1
        for previous, result in self._results:
            if nearest < previous.cursor <= request.cursor and is_current(result):
                left = remaining(previous, result, request)
                found, nearest = (left, previous.cursor) if left else (found, nearest)
        return found


def remaining(
    previous: CompletionRequest, result: CompletionResult, request: CompletionRequest
) -> CompletionResult | None:
    """What a result says beyond the text typed since, and names; None if none of its drafts continues that.

    Nothing is left to say where the best of those that do is typed out.
    Example: the result after `x = ` was `compute(y)`, `copy(y)`; after `x = co` there remain `mpute(y)`, `py(y)`.
    """
    typed = request.source[previous.cursor : request.cursor]
    if (closed := _closed_by_editor(previous, typed, request)) is None:
        return None
    if not typed:
        return dataclasses.replace(result, passes=0) if previous.explicit == request.explicit else None
    typed = normalize_line_ends(typed)
    drafts = (one for one in result.completions if one.text.startswith(typed) and not one.is_name)
    if (best := next(drafts, None)) and best.ends and best.text.rstrip() == typed.rstrip():
        return dataclasses.replace(result, completions=[], reason=_COMPLETE, passes=0)
    rest = _inside(result, typed, closed).after(typed)
    return _with_names(rest, result, request, typed) if rest.completions else None


def _with_names(
    rest: CompletionResult, result: CompletionResult, request: CompletionRequest, typed: str
) -> CompletionResult:
    """What is left of a result, and names that go on with what was typed; a draft that stood first stays so."""
    document = OpenDocument(request.uri, request.path, request.language, request.source)
    left = request.source[request.source.rfind("\n", 0, request.cursor) + 1 : request.cursor]
    word = re.split(r"\W", left)[-1]
    names = {
        word + name.text[len(typed) :]: name.probability  # of other files, which only the worker knows
        for name in result.completions
        if name.is_name and name.text.startswith(typed) and name.text != typed
    }
    stood = next(one for one in result.completions if one.text.startswith(typed[:-1]))  # before the last key
    first = rest.completions[: rest.keeps_first and not stood.is_name]
    names |= document.matching_names(request.cursor)
    offered = choose_completions(rest.completions, {}, names, left, result.limit + len(first))
    others = [one for one in offered if one not in first]
    return dataclasses.replace(rest, completions=[*first, *others][: result.limit])


def typed_since(earlier: CompletionRequest, later: CompletionRequest) -> str:
    """What was typed between two requests; "" if more than that changed, or the user made the later one."""
    typed = later.source[earlier.cursor : later.cursor]
    if later.explicit or _closed_by_editor(earlier, typed, later) is None:
        return ""
    return normalize_line_ends(typed)


def _closed_by_editor(previous: CompletionRequest, typed: str, request: CompletionRequest) -> str | None:
    """What stands right of the cursor because the editor closes what is opened; None if more changed than typing.

    Example: `f` and `f(|)` -> ")".
    """
    length = len(request.source) - len(previous.source) - len(typed)
    closed = request.source[request.cursor : request.cursor + length] if length > 0 else ""
    if length < 0 or (closed and closed != _left_open(typed)):
        return None
    source = previous.source[: previous.cursor] + typed + closed + previous.source[previous.cursor :]
    typed_on = dataclasses.replace(previous, source=source, cursor=request.cursor, explicit=request.explicit)
    return closed if request == typed_on else None


def _left_open(text: str, closers: str = "") -> str:
    """What would close the brackets and quotes that a text leaves open, the innermost first.

    Once `closers` are given, those that were open before it.  Example: `f(["a", "b` -> `"])`.
    """
    for char in text:
        if closers[:1] == char:
            closers = closers[1:]
        elif char in _PAIRS and closers[:1] not in _QUOTES:
            closers = _PAIRS[char] + closers
    return closers


def _inside(result: CompletionResult, typed: str, closed: str) -> CompletionResult:
    """A result whose drafts end before they close what the editor has closed already.

    Example: of `open(path) as file`, after `open(` and the editor's `)`, there is `open(path`.
    """
    if not closed:
        return result

    def cut(draft: Completion) -> Completion:
        for end in range(len(typed), len(draft.text)):
            if len(_left_open(draft.text[len(typed) : end + 1], closed)) < len(closed):
                return dataclasses.replace(draft, text=draft.text[:end], ends=False)
        return draft

    return dataclasses.replace(result, completions=[cut(one) for one in result.completions])


def unfinished_word(before: str) -> str:
    """The word that a text ends in. Example: `x = ab` -> "ab"; `os.` -> ""."""
    start = len(before)
    while start and (before[start - 1].isalnum() or before[start - 1] == "_"):
        start -= 1
    return before[start:]


def cursor_line(document: LspDocument, cursor: int) -> CursorLine:
    """What completion items need to know about the cursor's line."""
    before = document.line_before(cursor)
    word = unfinished_word(before)
    start, end = map(document.client_position_at_offset, (cursor - len(word), cursor))
    return CursorLine(types.Range(start, end), word, before, document.language_id or "")


def indexable(workspace: LspWorkspace, disabled_languages: Collection[str]) -> Iterator[OpenDocument]:
    """The open texts whose n-grams may be counted, as they are now."""
    seen: set[tuple[str, str | None]] = set()
    for document in workspace.documents:
        if not _is_indexable(document, disabled_languages):
            continue
        if notebook := workspace.get_notebook_document(cell_uri=document.uri):
            if (part := (notebook.uri, document.language_id)) in seen:
                continue
            seen.add(part)
        yield workspace.whole_text(document)[0]


def _is_indexable(document: LspDocument, disabled_languages: Collection[str]) -> bool:
    return not document.may_hold_secrets and document.language_id not in disabled_languages
