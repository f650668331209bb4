"""Completions in the shape that each editor can show and insert without losing or moving text.

In: completions, the place they belong to and what the client said it can do. Out: lsprotocol items. Knows nothing
of documents or of how the completions came about.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lsprotocol import types

from spd_lsp.completion.postprocess import Completion

LABEL = 60  # characters; menus cut longer ones at a place of their own choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What the client does with an item of several lines."""

    modes: frozenset[types.InsertTextMode] = frozenset()
    snippets: bool = False
    markdown: bool = False
    keeps_one_line: bool = False  # it corrupts or drops the other lines of plain text

    @classmethod
    def of(cls, params: types.InitializeParams) -> Client:
        """Read the client's capabilities."""
        text = params.capabilities.text_document
        completion = text.completion if text else None
        item = completion.completion_item if completion else None
        modes = item.insert_text_mode_support if item else None
        return cls(
            modes=frozenset(modes.value_set if modes else ()),
            snippets=bool(item and item.snippet_support),
            markdown=types.MarkupKind.Markdown in ((item and item.documentation_format) or ()),
            keeps_one_line=bool(params.client_info and params.client_info.name == "Neovim"),
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Where the items go: the cursor, the text of its line before it, and the document's language."""

    cursor: types.Position  # in the client's units
    before: str
    language: str

    @property
    def word(self) -> str:
        """The unfinished word at the cursor. Example: `x = ab` -> "ab"; `os.` -> ""."""
        start = len(self.before)
        while start and (self.before[start - 1].isalnum() or self.before[start - 1] == "_"):
            start -= 1
        return self.before[start:]

    @property
    def indentation(self) -> str:
        """The white space that the line starts with."""
        return self.before[: len(self.before) - len(self.before.lstrip())]


def menu_items(
    completions: Sequence[Completion], place: Place, start: types.Position, client: Client
) -> list[types.CompletionItem]:
    """Items for a completion menu, best first. `start` is where the unfinished word starts.

    The edit covers that word: editors compare it with `filterText`, and rank an item with an empty range last.
    """
    items: dict[str, types.CompletionItem] = {}
    for completion in completions:
        item = _menu_item(completion, place, types.Range(start, place.cursor), client)
        if item is not None:
            item.sort_text = f"{len(items):04}"
            items.setdefault(item.text_edit.new_text if item.text_edit else "", item)
    return list(items.values())


def _menu_item(
    completion: Completion, place: Place, edit: types.Range, client: Client
) -> types.CompletionItem | None:
    """One item, or None if nothing of the text can be shown there."""
    text, mode, snippet = fitted(completion.text, place, client)
    if not text.strip():
        return None
    whole = place.word + text
    label = label_of(whole)
    return types.CompletionItem(
        label=label,
        label_details=types.CompletionItemLabelDetails(description="spd"),
        kind=types.CompletionItemKind.Text,
        detail=f"spd {completion.probability:.0%}",
        documentation=None if label == whole.strip() else _preview(whole, place.language, client),
        filter_text=whole.split("\n", 1)[0].strip() or label,
        insert_text_format=types.InsertTextFormat.Snippet if snippet else types.InsertTextFormat.PlainText,
        insert_text_mode=mode,
        text_edit=types.TextEdit(edit, as_snippet(whole) if snippet else whole),
    )


def fitted(text: str, place: Place, client: Client) -> tuple[str, types.InsertTextMode | None, bool]:
    """The text this client inserts rightly, the mode it needs, and whether it must be sent as a snippet."""
    if "\n" not in text:
        return text, None, False
    if types.InsertTextMode.AsIs in client.modes:
        return text, types.InsertTextMode.AsIs, False
    if client.modes:
        return relative(text, place.indentation), types.InsertTextMode.AdjustIndentation, False
    if client.snippets:
        return relative(text, place.indentation), None, True
    return (text.split("\n", 1)[0] if client.keeps_one_line else text), None, False


def relative(text: str, indentation: str) -> str:
    """The text with later lines relative to the current one, for clients that indent them themselves.

    A line left of the current one cannot be said that way: the text ends before it.
    Example: ("if x:\\n        y\\n    z\\nw", "    ") -> "if x:\\n    y\\nz".
    """
    first, *others = text.split("\n")
    kept = [first]
    for line in others:
        if line.strip() and not line.startswith(indentation):
            break
        kept.append(line[len(indentation) :])
    return "\n".join(kept).rstrip("\n")


def as_snippet(text: str) -> str:
    """The text in snippet syntax, with the cursor behind it. Example: "${x}" -> "\\\\${x\\\\}$0"."""
    return re.sub(r"[\\$}]", r"\\\g<0>", text) + "$0"


def label_of(text: str) -> str:
    """The first line that shows something, with "…" where more follows."""
    first, *others = text.strip().split("\n")
    first = first.rstrip()
    if len(first) > LABEL:
        return first[: LABEL - 1] + "…"
    return first[: LABEL - 2] + " …" if others else first


def _preview(text: str, language: str, client: Client) -> types.MarkupContent:
    """The whole text: the only place where a menu can show several lines."""
    if not client.markdown:
        return types.MarkupContent(types.MarkupKind.PlainText, text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return types.MarkupContent(types.MarkupKind.Markdown, f"{fence}{language}\n{text}\n{fence}")


def inline_items(
    completions: Sequence[Completion], edit: types.Range, typed: str
) -> list[types.InlineCompletionItem]:
    """Items for ghost text, best first; `typed` is what the menu's selected item puts into the range."""
    return [
        types.InlineCompletionItem(insert_text=typed + completion.text, range=edit)
        for completion in completions
        if completion.text.strip()
    ]
