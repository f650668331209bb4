"""What words of a text are: names, attributes, arguments' names, or parts of strings and comments.

In: a text and the places of words. Out: what each is, whether it is bound there, and the functions around it. Runs
in the parser process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tree_sitter import Node

from spd_lsp.completion.syntax.languages import Language, parse

NAME, ATTRIBUTE, KEYWORD, STRING, COMMENT = "name", "attribute", "keyword", "string", "comment"
_IN_STRING = re.compile(r"string|char_literal|rune_literal|heredoc_body")
_INTERPOLATION = re.compile(r"interpolation|substitution|expression")
_TARGETS = re.compile(r"pattern_list|tuple_pattern|list_pattern|expression_list|array_pattern|object_pattern")
_BINDING_FIELDS = ("left", "name", "alias", "pattern", "parameter")
_BINDERS = re.compile(
    r"assign|declar|definition|^for|range|var_spec|named_expression|parameter|alias|as_pattern|spec$"
)
_ATTRIBUTE_FIELDS = ("attribute", "property", "field")
_MAX_DEPTH = 200


class Place(NamedTuple):
    """What a word is."""

    role: str
    is_bound: bool  # as a parameter, a variable, a definition or an import
    callee: str  # the function that an argument's name belongs to, or a parameter
    scopes: tuple[tuple[int, int], ...]  # functions around it, innermost first, in code points

    def is_in(self, scope: tuple[int, int] | None) -> bool:
        """Whether it is in a function; None is the whole text."""
        return scope is None or scope in self.scopes


def name_places(language: Language, text: str, spans: Sequence[tuple[int, int]]) -> list[Place]:
    """What stands at each place."""
    root = parse(language, text).root_node
    if text.isascii():
        return [_place(language, root, start, end) for start, end in spans]
    widths = [0]
    for char in text:
        widths.append(widths[-1] + len(char.encode("utf-8", "replace")))
    chars = {at: number for number, at in enumerate(widths)}
    found = (_place(language, root, widths[start], widths[end]) for start, end in spans)
    return [
        place._replace(scopes=tuple((chars.get(a, 0), chars.get(b, len(text))) for a, b in place.scopes))
        for place in found
    ]


def _place(language: Language, root: Node, start: int, end: int) -> Place:
    node = root.descendant_for_byte_range(start, end)
    if node is None:
        return Place(NAME, False, "", ())
    above = list(_ancestors(node))
    role = _text_role(language, [node, *above[:3]])
    scopes = [one for one in above if one.type in language.functions]
    if role or not above:
        return Place(role or NAME, False, "", _ranges(scopes))
    parent = above[0]
    field = _field_of(parent, node)
    if parent.type == "keyword_argument" and field == "name":
        return Place(KEYWORD, False, _callee(above), _ranges(scopes))
    defines = language.defines(parent.type) and field == "name"
    if defines and scopes and scopes[0] == parent:
        scopes = scopes[1:]  # its name is bound outside
    is_parameter = _is_parameter(node, above)
    is_import = any(one.type in language.imports for one in above[:4])
    is_bound = defines or is_parameter or is_import or _is_target(node, above)
    around = next((one for one in above[defines:] if language.defines(one.type)), None)
    is_member = is_bound and not is_parameter and around is not None and around.type in language.classes
    if is_member or field in _ATTRIBUTE_FIELDS or node.type in ("property_identifier", "field_identifier"):
        return Place(ATTRIBUTE, is_member or _is_target(parent, above), "", _ranges(scopes))
    callee = _text(scopes[0].child_by_field_name("name")) if is_parameter and scopes else ""
    return Place(NAME, is_bound, callee, _ranges(scopes))


def _ancestors(node: Node) -> Iterator[Node]:
    parent = node.parent
    for _ in range(_MAX_DEPTH):
        if parent is None:
            return
        yield parent
        parent = parent.parent


def _text_role(language: Language, nodes: Sequence[Node]) -> str:
    """Whether the innermost nodes are of a string or a comment."""
    for node in nodes:
        if node.type in language.comments:
            return COMMENT
        if _INTERPOLATION.search(node.type) and not _IN_STRING.search(node.type):
            return ""
        if _IN_STRING.search(node.type):
            return STRING
    return ""


def _is_target(node: Node, above: Sequence[Node]) -> bool:
    """Whether something is assigned to a node, alone or among others."""
    for parent in above:
        if parent == node:
            continue
        if not _TARGETS.fullmatch(parent.type):
            return _BINDERS.search(parent.type) is not None and _field_of(parent, node) in _BINDING_FIELDS
        node = parent
    return False


def _is_parameter(node: Node, above: Sequence[Node]) -> bool:
    """Whether a node is the name of a parameter, alone or in a pattern, not its type or default."""
    for parent in above[:3]:
        if "parameter" in parent.type:
            return _field_of(parent, node) not in ("type", "value")
        if not parent.type.endswith("pattern"):
            return False
        node = parent
    return False


def _field_of(parent: Node, child: Node) -> str:
    for index, other in enumerate(parent.children):
        if other == child:
            return parent.field_name_for_child(index) or ""
    return ""


def _callee(above: Sequence[Node]) -> str:
    """The name of the function that is called."""
    call = next((one for one in above[:3] if "call" in one.type), None)
    called = call and call.child_by_field_name("function")
    return _text(called).rpartition(".")[2] if called else ""


def _text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node else ""


def _ranges(scopes: Sequence[Node]) -> tuple[tuple[int, int], ...]:
    return tuple((one.start_byte, one.end_byte) for one in scopes)
