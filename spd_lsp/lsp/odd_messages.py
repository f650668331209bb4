"""Messages that do not keep to the protocol: what this server does not use it does not judge.

In: a message as JSON, and its type. Out: the typed message, without those parts that do not fit and may be left
out. An edit is taken whole or not at all; null is as good as nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cattrs import BaseValidationError, ClassValidationError, Converter, IterableValidationError
from lsprotocol import types

EDITS = frozenset({types.TEXT_DOCUMENT_DID_CHANGE, types.NOTEBOOK_DOCUMENT_DID_CHANGE})
_WHOLE = EDITS | {types.NOTEBOOK_DOCUMENT_DID_OPEN}  # of whose cells none may be left out
_UNUSED_IN_EDITS = frozenset({"rangeLength", "metadata", "executionSummary"})
# What LSP requires and this server does without.
_STANDS_FOR: dict[type[Any], dict[str, Callable[[], Any]]] = {
    types.InitializeParams: {"capabilities": dict},
    types.WorkspaceFolder: {"name": str},
    types.TextDocumentItem: {"version": int, "languageId": str},
    types.NotebookDocument: {"version": int, "notebookType": str},
    types.NotebookCell: {"kind": lambda: types.NotebookCellKind.Code.value},
    types.VersionedTextDocumentIdentifier: {"version": int},
    types.VersionedNotebookDocumentIdentifier: {"version": int},
}


def only_string(value: Any, kind: Any = str) -> str:
    """A string as it is: cattrs would make one of anything, `None` of null."""
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value


def structure(converter: Converter, message: Any, kind: type[Any], method: str | None) -> Any:
    """The typed message; raises if what is left of it does not fit. Of an edit nothing but numbers is left out."""
    while True:
        try:
            return converter.structure(message, kind)
        except BaseValidationError as error:
            if not _mend(message, error, is_whole=method in _WHOLE):
                raise


def _mend(value: Any, error: Exception, *, is_whole: bool) -> bool:
    """Take out of a value what does not fit, or put what stands for it; whether that can be done."""
    if isinstance(error, IterableValidationError) and isinstance(value, list):
        unfit, rest = error.group_exceptions()
        parts = [(int(note.index), part) for part, note in unfit]
        indexes = [index for index, part in parts if not _mend(value[index], part, is_whole=is_whole)]
        for index in reversed(indexes):
            del value[index]
        return not rest and not (is_whole and indexes)
    if not isinstance(error, ClassValidationError) or not isinstance(value, dict):
        return False
    members, rest = error.group_exceptions()
    names = {_camel_case(note.name): part for part, note in members}
    if rest:  # numbers that are out of their ranges
        names |= {name: rest[0] for name, member in value.items() if isinstance(member, (int, float))}
    for name, part in names.items():
        is_mended = name in value and _mend(value[name], part, is_whole=is_whole)
        if not is_mended and name in (stands_for := _STANDS_FOR.get(error.cl, {})):
            value[name] = stands_for[name]()
        elif not is_mended:
            is_used = value.get(name) is not None and name not in _UNUSED_IN_EDITS
            if name not in value or (is_whole and is_used):
                return False
            del value[name]
    return bool(names)


def _camel_case(name: str) -> str:
    """A member's name in JSON. Example: `text_document` -> `textDocument`."""
    return re.sub("_(.)", lambda found: found[1].upper(), name).removesuffix("_")
