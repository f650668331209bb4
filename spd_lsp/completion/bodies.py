"""Detect that the next statement of a text would be the first of a body. Knows neither cursors nor tokens."""

from __future__ import annotations

from tree_sitter import Node

from spd_lsp.completion.languages import Language, parse
from spd_lsp.completion.syntax_outline import is_documentation


def begins_body(language: Language, text: str, indent: str) -> bool | None:
    """Whether a statement written next would be the first of a body; None where the syntax is too broken."""
    text = text.rstrip(" \t") + "\n" + indent
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
