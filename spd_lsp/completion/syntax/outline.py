"""Split the lines around a gap, where someone types, into parts that follow the syntax.

A part is what is kept or dropped together: a signature, a body, an import. Its role and its distance from the gap
decide how soon it is dropped. Knows nothing of tokens or budgets; languages are rows of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from tree_sitter import Node

from spd_lsp.completion.syntax.languages import Language, parse

_MAX_DEPTH = 30  # nested definitions; deeper ones are not split
_SIGNATURE_NEARNESS = 4.0  # times nearer than its body a signature counts: few tokens, much information


class Role(IntEnum):
    """How a part relates to the gap, most important first."""

    HEAD = 0  # signatures (and closing lines) of the enclosing definitions
    SCOPE = 1  # the innermost definition enclosing the gap, line by line
    FIELD = 2  # other members of the enclosing definitions
    IMPORT = 3
    OTHER = 4  # definitions and statements elsewhere


@dataclass(frozen=True, slots=True)
class OutlinePart:
    """Row numbers that are kept or dropped together, and their effective distance from the gap."""

    role: Role
    distance: float
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GappedText:
    """A text with a gap before row `gap`, and the definitions that enclose it, outermost first."""

    language: Language
    lines: Sequence[str]
    gap: int
    enclosing: tuple[Node, ...] = ()

    def distance(self, first: int, last: int) -> int:
        """Return the rows between the gap and the nearer end of a run of rows; 0 if it reaches the gap."""
        return max(0, self.gap - 1 - last, first - self.gap)


def build_outline(language: Language | None, above: Sequence[str], below: Sequence[str]) -> list[OutlinePart]:
    """Split the lines above and below a gap into parts; each row is in exactly one part."""
    lines = [*above, *below]
    gap = len(above)
    total = len(lines)
    if language is None:
        return list(line_parts(range(total), gap))
    root = parse(language, "".join(lines)).root_node
    if _is_broken(root, gap):  # then the lines above parse better without those below
        lines = lines[:gap]
        root = parse(language, "".join(lines)).root_node
    source = GappedText(language, lines, gap)
    source = replace(source, enclosing=tuple(_enclosing_definitions(source, root)))
    return [
        *_assign_rows(source, _body_parts(source, root, Role.OTHER, 0)),
        *line_parts(range(len(lines), total), gap),
    ]


def line_parts(rows: Iterable[int], gap: int) -> Iterator[OutlinePart]:
    """Yield a part for each row, with its distance from the gap. Example: rows 0 to 3, gap 2: 1, 0, 0, 1."""
    return (OutlinePart(Role.SCOPE, gap - 1 - row if row < gap else row - gap, (row,)) for row in rows)


def _assign_rows(source: GappedText, claims: Iterable[OutlinePart]) -> list[OutlinePart]:
    """Assign every row to the first part that claims it, and unclaimed rows to the part before them."""
    parts = list(claims)
    owner: list[int | None] = [None] * len(source.lines)
    for number, part in enumerate(parts):
        for row in part.rows:
            if row < len(owner) and owner[row] is None:
                owner[row] = number
    rows: list[list[int]] = [[] for _ in parts]
    number = -1
    for row, claimed in enumerate(owner):
        if claimed is not None:
            number = claimed
        elif row in (0, source.gap):
            number = len(parts)
            parts.append(OutlinePart(Role.OTHER, source.distance(row, row), ()))
            rows.append([])
        rows[number].append(row)
    return [replace(part, rows=tuple(of_part)) for part, of_part in zip(parts, rows, strict=True) if of_part]


def _rows_of(node: Node) -> tuple[int, int]:
    """Return the first and last row of a node; a line break at its end does not make it reach the next row."""
    first = node.start_point.row
    end = node.end_point
    return first, max(first, end.row - (end.column == 0))


def _is_broken(root: Node, gap: int) -> bool:
    """Whether a syntax error spans the gap."""
    node: Node | None = root
    while node is not None and not node.is_error:
        node = next((child for child in node.children if _spans(child, gap)), None)
    return node is not None


def _spans(node: Node, gap: int) -> bool:
    """Whether a node has rows above the gap and rows below it."""
    first, last = _rows_of(node)
    return first < gap <= last


def _enclosing_definitions(source: GappedText, root: Node) -> Iterator[Node]:
    """Yield the definitions that are open at the gap, outermost first."""
    last_text = next((row for row in range(source.gap - 1, -1, -1) if source.lines[row].strip()), -1)
    node: Node | None = root
    while node is not None:
        children = node.children
        node = None
        for child in children:
            first, last = _rows_of(child)
            if first < source.gap and last >= last_text:
                node = child
        if node is not None and source.language.defines(node.type) and _is_open(source, node):
            yield node


def _is_open(source: GappedText, node: Node) -> bool:
    """Whether a definition that reaches the last line above the gap continues after it."""
    body = _body_of(source.language, node)
    return body is not None and (_rows_of(node)[1] >= source.gap or not _is_closed(node, body))


def _is_closed(node: Node, body: Node) -> bool:
    """Whether a definition ends with its closing bracket or keyword, if the language has one."""
    last_tokens = [parent.child(parent.child_count - 1) for parent in (node, body) if parent.child_count]
    return any(token is not None and not token.is_named and not token.is_missing for token in last_tokens)


def _body_of(language: Language, node: Node) -> Node | None:
    """Return the node that holds the code or members of a definition."""
    if node.type in language.bare:
        return node
    if (body := node.child_by_field_name("body")) is not None:
        return body
    last = node.named_child(node.named_child_count - 1) if node.named_child_count else None
    return last if last is not None and last.type in language.bodies else None


def _unwrap(language: Language, node: Node) -> Node:
    """Return the definition inside an export, a decorator or an assignment; other nodes as they are."""
    while (name := language.wrappers.get(node.type)) is not None:
        inner = node.child_by_field_name(name) if name else None
        if inner is None and node.named_child_count:
            inner = node.named_child(node.named_child_count - 1)
        if inner is None:
            break
        node = inner
    return node


def _members(language: Language, node: Node) -> Iterator[Node]:
    """Yield the named children of a node; containers and syntax errors are replaced by their children."""
    waiting = node.named_children[::-1]
    while waiting:
        child = waiting.pop()
        if child.is_error or child.type in language.containers:
            waiting.extend(reversed(child.named_children))
        else:
            yield child


def _body_parts(source: GappedText, node: Node, role: Role, depth: int) -> Iterator[OutlinePart]:
    """Yield the parts of a body or a whole file; its plain statements have this role."""
    leading: list[Node] = []
    language = source.language
    for child in _members(language, node):
        if _rows_of(child)[0] >= len(source.lines):  # closing tokens that `parse` added
            break
        if leading and _rows_of(leading[-1])[1] + 1 < _rows_of(child)[0]:
            yield from _statement_parts(source, leading, role, depth)
            leading = []
        if child.type in language.comments or child.type in language.leading:
            leading.append(child)
        else:
            yield from _member_parts(source, child, leading, role, depth)
            leading = []
    yield from _statement_parts(source, leading, role, depth)


def _member_parts(
    source: GappedText, child: Node, leading: list[Node], role: Role, depth: int
) -> Iterator[OutlinePart]:
    """Yield the parts of a statement or definition, with the comments and attributes right above it."""
    definition = _find_definition(source, child, leading) if depth < _MAX_DEPTH else None
    if definition is not None:
        yield from _definition_parts(source, definition, role, depth)
    elif _is_import(source, child):
        first, last = _rows_of(child)
        yield from _statement_parts(source, leading, role, depth)
        yield OutlinePart(Role.IMPORT, source.distance(first, last), tuple(range(first, last + 1)))
    elif _spans(child, source.gap):
        yield from _statement_parts(source, leading, role, depth)
        yield from _around_gap(source, child, depth)
    else:
        yield from _statement_parts(source, [*leading, child], role, depth)


def _find_definition(source: GappedText, child: Node, leading: Sequence[Node]) -> Definition | None:
    """Return the definition in a statement, unless it is one line or contains the gap without being open there."""
    node = _unwrap(source.language, child)
    body = _body_of(source.language, node) if source.language.defines(node.type) else None
    first, last = _rows_of(child)
    if body is None or first == last or (_spans(child, source.gap) and node not in source.enclosing):
        return None
    return Definition.from_nodes(source, child, node, body, leading)


def _is_import(source: GappedText, child: Node) -> bool:
    """Whether a statement is an import."""
    pattern = source.language.import_line
    line = source.lines[_rows_of(child)[0]].strip()
    return child.type in source.language.imports or bool(pattern and pattern.match(line))


def _statement_parts(source: GappedText, nodes: Sequence[Node], role: Role, depth: int) -> Iterator[OutlinePart]:
    """Yield one part for a statement with its comments; a single line counts as a signature."""
    if nodes:
        first, last = _rows_of(nodes[0])[0], max(_rows_of(node)[1] for node in nodes)
        nearness = _SIGNATURE_NEARNESS if first == last or depth else 1.0
        yield OutlinePart(role, source.distance(first, last) / nearness, tuple(range(first, last + 1)))


def _around_gap(source: GappedText, child: Node, depth: int) -> Iterator[OutlinePart]:
    """Yield the parts of a statement around the gap: the definition in it that is open there, and single lines."""
    first, last = _rows_of(child)
    inner = [
        node
        for node in source.enclosing
        if child.start_byte <= node.start_byte and node.end_byte <= child.end_byte
    ]
    yield OutlinePart(Role.HEAD, source.gap - first, (first,))
    if inner and depth < _MAX_DEPTH and (body := _body_of(source.language, inner[0])) is not None:
        yield from _definition_parts(
            source, Definition.from_nodes(source, inner[0], inner[0], body, []), Role.FIELD, depth
        )
    role = Role.OTHER if inner else Role.SCOPE
    for row in range(first, last + 1):
        yield OutlinePart(role, source.distance(row, row), (row,))


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition, and the rows of its signature and its body."""

    node: Node
    body: Node
    lead: tuple[int, ...]  # comments above the signature, except their first line
    head: tuple[int, ...]
    rest: tuple[int, ...]

    @classmethod
    def from_nodes(
        cls, source: GappedText, outer: Node, node: Node, body: Node, leading: Sequence[Node]
    ) -> Definition:
        """Split the rows of a definition with its wrapper, comments and attributes."""
        first, last = _rows_of(outer)
        head = {*range(first, _signature_end(node, body) + 1), *_docstring_rows(source.language, body)}
        if _is_closed(node, body):
            head.add(_rows_of(node)[1])
        top = min((_rows_of(lead)[0] for lead in leading), default=first)
        head.update(_leading_rows(source.language, leading))
        lead = (row for row in range(top, first) if row not in head)
        rest = (row for row in range(first, last + 1) if row not in head)
        return cls(node, body, tuple(lead), tuple(sorted(head)), tuple(rest))


def _leading_rows(language: Language, leading: Sequence[Node]) -> Iterator[int]:
    """Yield the rows above a signature that stay with it: attributes, and the first comment if it is one line."""
    for number, lead in enumerate(leading):
        first, last = _rows_of(lead)
        if lead.type in language.leading or (number == 0 and first == last):
            yield from range(first, last + 1)


def _signature_end(node: Node, body: Node) -> int:
    """Return the last row of a signature, including the bracket that opens the body."""
    if body == node:
        return _rows_of(node)[0]
    end = _rows_of(node)[0]
    for child in node.children:
        if child == body:
            break
        end = _rows_of(child)[1]
    opening = body.child(0) if body.child_count else None
    return max(end, _rows_of(body)[0]) if opening is not None and not opening.is_named else end


def _docstring_rows(language: Language, body: Node) -> Iterator[int]:
    """Yield the first and last row of the docstring that a body begins with."""
    first = body.named_child(0) if body.named_child_count else None
    if first is not None and is_documentation(language, first):
        yield from _rows_of(first)


def is_documentation(language: Language, node: Node) -> bool:
    """Whether a statement is only a string."""
    inner = node.named_child(0) if node.type == "expression_statement" and node.named_child_count == 1 else node
    return inner is not None and inner.type in language.strings


def _definition_parts(source: GappedText, definition: Definition, role: Role, depth: int) -> Iterator[OutlinePart]:
    """Yield the parts of a definition: its scope or members if it encloses the gap, else signature and body."""
    distance = source.distance(definition.head[0], max(definition.head[-1], *definition.rest, 0))
    is_class = definition.node.type in source.language.classes
    if definition.node in source.enclosing:
        yield OutlinePart(Role.HEAD, source.gap - definition.head[0], definition.head)
        if is_class or definition.node != source.enclosing[-1]:
            yield from _body_parts(source, definition.body, Role.FIELD, depth + 1)
        else:
            yield from (
                OutlinePart(Role.SCOPE, source.distance(row, row), (row,))
                for row in (*definition.rest, *definition.lead)
            )
        yield OutlinePart(Role.OTHER, source.gap - definition.head[0], definition.lead)
        return
    body_role = (
        Role.FIELD if role is Role.FIELD and _is_constructor(source.language, definition.node) else Role.OTHER
    )
    yield OutlinePart(body_role, distance / _SIGNATURE_NEARNESS, definition.head)
    if is_class:
        yield from _body_parts(source, definition.body, Role.OTHER, depth + 1)
    yield OutlinePart(body_role, distance, (*definition.lead, *definition.rest))


def _is_constructor(language: Language, node: Node) -> bool:
    """Whether a function is a constructor, which sets the fields of its class."""
    name = node.child_by_field_name("name")
    text = name.text if name is not None else None
    return node.type in language.constructors or (text or b"").decode() in language.constructors
