"""Drafts as completion items that each editor shows and inserts without losing or moving text.

In: drafts, the cursor's line and the client's capabilities. Out: lsprotocol items. Knows nothing of documents
or of how the drafts were made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lsprotocol import types
from pygls.capabilities import get_capability

from spd_lsp.completion.ranking import Completion

ACCEPTED = "spd-lsp.accepted"  # the command that counts what was accepted
MAX_LABEL_CHARS = 60  # menus cut longer labels wherever they like
_MAX_CHARS_BESIDE_DETAILS = 40  # VS Code has room for no more and "48 %", and cuts that first


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCapabilities:
    """What the client can show, and how it handles items of several lines."""

    modes: frozenset[types.InsertTextMode] = frozenset()
    snippets: bool = False
    markdown: bool = False
    one_line_only: bool = False  # it corrupts or drops all but the first line of plain text
    ghost_text: bool = False
    asks_again: bool = False  # for ghost text, at the notification `spd-lsp/longer`
    label_details: bool = False  # it shows them at the right end of an item's row

    @classmethod
    def of(cls, params: types.InitializeParams) -> ItemCapabilities:
        """Read them from the client's capabilities."""
        item = get_capability(params.capabilities, "text_document.completion.completion_item")
        modes = item.insert_text_mode_support if item else None
        own = params.capabilities.experimental  # capabilities of this server's own clients
        return cls(
            modes=frozenset(modes.value_set if modes else ()),
            snippets=bool(item and item.snippet_support),
            markdown=types.MarkupKind.Markdown in ((item and item.documentation_format) or ()),
            one_line_only=bool(params.client_info and params.client_info.name == "Neovim"),
            ghost_text=get_capability(params.capabilities, "text_document.inline_completion") is not None,
            asks_again=isinstance(own, dict) and own.get("spdLonger") is True,
            label_details=bool(item and item.label_details_support),
        )


@dataclass(frozen=True, slots=True)
class CursorLine:
    """What an item replaces and follows."""

    edit: types.Range  # of the unfinished word at the cursor, in the client's units
    word: str
    before: str  # the cursor, on its line
    language: str  # of the document

    @property
    def indentation(self) -> str:
        """The white space at the start of the line."""
        return self.before[: len(self.before) - len(self.before.lstrip())]


def menu_items(
    completions: Sequence[Completion], line: CursorLine, client: ItemCapabilities
) -> list[types.CompletionItem]:
    """Items for a completion menu, best first, each label once.

    The edit covers the unfinished word: editors match it against `filterText`, and rank items with an empty range
    last. Nothing is preselected, and no character but the editor's own key for it accepts an item.
    """
    items: dict[str, types.CompletionItem] = {}
    for completion in completions:
        item = _menu_item(completion, line, client)
        if item is not None:
            item.sort_text = f"{len(items):04}"
            items.setdefault(item.label, item)
    return list(items.values())


def _menu_item(completion: Completion, line: CursorLine, client: ItemCapabilities) -> types.CompletionItem | None:
    """One item, or None if the client can show nothing of the text."""
    text, mode, snippet = _adapted(completion.text, line, client)
    if not text.strip():
        return None
    whole = line.word + text
    label = label_for(whole, _MAX_CHARS_BESIDE_DETAILS if client.label_details else MAX_LABEL_CHARS)
    return types.CompletionItem(
        label=label,
        label_details=types.CompletionItemLabelDetails(description=details_of(completion).split(" ·")[0]),
        kind=types.CompletionItemKind.Text,
        detail=details_of(completion),
        documentation=None if label == whole.strip() else _preview(whole, line.language, client),
        filter_text=_first_word(whole),
        insert_text_format=types.InsertTextFormat.Snippet if snippet else types.InsertTextFormat.PlainText,
        insert_text_mode=mode,
        text_edit=types.TextEdit(line.edit, as_snippet(whole) if snippet else whole),
        command=_acceptance(completion, line.language),
    )


def _first_word(text: str) -> str:
    """What an item is filtered by: it disappears when another word begins. Example: "get(key)" -> "get(".

    A sign or space behind the word keeps it from being all that is typed: VS Code puts such items first, whatever
    `sortText` says.
    """
    word, sign = re.match(r"\s*(\w*)\s*(.?)", text, re.DOTALL).groups()  # type: ignore[union-attr]  # always matches
    return word + (" " if word and re.match(r"\w", sign) else sign) if word + sign else text


def _adapted(
    text: str, line: CursorLine, client: ItemCapabilities
) -> tuple[str, types.InsertTextMode | None, bool]:
    """The text as this client inserts it correctly, its insert mode, and whether it must be a snippet."""
    if "\n" not in text:
        return text, None, False
    if types.InsertTextMode.AsIs in client.modes:
        return text, types.InsertTextMode.AsIs, False
    if client.modes:
        return relative_to(text, line.indentation), types.InsertTextMode.AdjustIndentation, False
    if client.snippets:
        return relative_to(text, line.indentation), None, True
    return (text.split("\n", 1)[0] if client.one_line_only else text), None, False


def relative_to(text: str, indentation: str) -> str:
    """The text with its other lines indented relative to the first, for clients that adjust indentation.

    A line that is indented less than the first cannot be expressed so: the text ends before it.
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
    """The text in snippet syntax, with the cursor after it. Example: "${x}" -> "\\\\${x\\\\}$0"."""
    return re.sub(r"[\\$}]", r"\\\g<0>", text) + "$0"


def label_for(text: str, most: int = MAX_LABEL_CHARS) -> str:
    """The first line that is not blank, with "…" if more follows."""
    first, *others = text.strip().split("\n")
    first = first.rstrip()
    if len(first) > most:
        return first[: most - 1] + "…"
    return first[: most - 2] + " …" if others else first


def details_of(completion: Completion) -> str:
    """How probable it is, if that is known, and where it comes from. Example: "31 % · copied from 2 files"."""
    if (p := completion.shown_probability) is None:
        return completion.source
    of = "first line " if "\n" in completion.text.strip() else ""
    share = f"{100 * p:.0f}" if p >= 0.005 else "< 1"
    return f"{of}{share} % · {completion.source}"


def _acceptance(completion: Completion, language: str) -> types.Command:
    """What an editor runs once it has inserted a completion, which is counted; titled with its details."""
    arguments = [language, completion.kind, len(completion.text)]
    return types.Command(details_of(completion), ACCEPTED, arguments=arguments)


def _preview(text: str, language: str, client: ItemCapabilities) -> types.MarkupContent:
    """The whole text as documentation, the only place where a menu shows several lines."""
    if not client.markdown:
        return types.MarkupContent(types.MarkupKind.PlainText, text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return types.MarkupContent(types.MarkupKind.Markdown, f"{fence}{language}\n{text}\n{fence}")


def inline_items(
    completions: Sequence[Completion], edit: types.Range, typed: str, language: str
) -> list[types.InlineCompletionItem]:
    """Items for ghost text, best first; `typed` is the text that the menu's selected item puts into the range."""
    return [
        types.InlineCompletionItem(typed + completion.text, range=edit, command=_acceptance(completion, language))
        for completion in completions
        if completion.text.strip()
    ]
