"""The parts of a text around a gap: lines with a hole where someone types come in, parts of whole lines go out.

A part is what is kept or left out together: a signature, a body, an import. Its role and its distance from the gap
say how soon it goes. Knows nothing of tokens or budgets; languages are rows of data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from tree_sitter import Node

from spd_lsp.completion.languages import Language, parse

_DEEPEST = 30  # definitions inside definitions; what lies deeper is not taken apart
_NEARER = 4.0  # a signature counts as this many times nearer than its body: it says more in fewer tokens


class Role(IntEnum):
    """What a part is to the text at the gap, most wanted first."""

    HEAD = 0  # signatures (and closing lines) of what encloses the gap
    SCOPE = 1  # the innermost definition around the gap, line by line
    FIELD = 2  # other members of what encloses the gap
    IMPORT = 3
    OTHER = 4  # definitions and statements elsewhere


@dataclass(frozen=True, slots=True)
class Part:
    """Lines that stay or go together, by their numbers, and how far from the gap they count."""

    role: Role
    distance: float
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """A text with a gap before row `gap`, and the definitions that enclose it, outermost first."""

    language: Language
    lines: Sequence[str]
    gap: int
    around: tuple[Node, ...] = ()

    def distance(self, first: int, last: int) -> int:
        """Rows between the gap and the nearer end of a run of rows; 0 if it reaches the gap."""
        return max(0, self.gap - 1 - last, first - self.gap)


def build_outline(language: Language | None, above: Sequence[str], below: Sequence[str]) -> list[Part]:
    """Split the lines above and below a gap into parts; each row is in exactly one part."""
    lines, gap = [*above, *below], len(above)
    total = len(lines)
    if language is None:
        return list(line_parts(range(total), gap))
    root = parse(language, "".join(lines)).root_node
    if _is_broken(root, gap):  # what stands above says more without what stands below
        lines = lines[:gap]
        root = parse(language, "".join(lines)).root_node
    cut = Cut(language, lines, gap)
    cut = replace(cut, around=tuple(_enclosing(cut, root)))
    return [*_cover(cut, sections(cut, root, Role.OTHER, 0)), *line_parts(range(len(lines), total), gap)]


def line_parts(rows: Iterable[int], gap: int) -> Iterator[Part]:
    """A part for each row, by its distance from the gap. Example: rows 0 to 3, gap 2: 1, 0, 0, 1."""
    return (Part(Role.SCOPE, gap - 1 - row if row < gap else row - gap, (row,)) for row in rows)


def _cover(cut: Cut, parts: Iterator[Part]) -> list[Part]:
    """Give every row to the first part that claims it, and a row nobody claims to the part before it."""
    found = list(parts)
    owner: list[int | None] = [None] * len(cut.lines)
    for number, part in enumerate(found):
        for row in part.rows:
            if row < len(owner) and owner[row] is None:
                owner[row] = number
    rows: list[list[int]] = [[] for _ in found]
    at = -1
    for row, claimed in enumerate(owner):
        if claimed is not None:
            at = claimed
        elif row in (0, cut.gap):
            at = len(found)
            found.append(Part(Role.OTHER, cut.distance(row, row), ()))
            rows.append([])
        rows[at].append(row)
    return [replace(part, rows=tuple(own)) for part, own in zip(found, rows, strict=True) if own]


def _rows_of(node: Node) -> tuple[int, int]:
    """First and last row with text of a node; one that ends with its line break does not reach the next row."""
    first, end = node.start_point.row, node.end_point
    return first, max(first, end.row - (end.column == 0))


def _is_broken(root: Node, gap: int) -> bool:
    """Whether the parser gave up around the gap: its error spans the rows above and below."""
    node: Node | None = root
    while node is not None and not node.is_error:
        node = next((child for child in node.children if spans(child, gap)), None)
    return node is not None


def spans(node: Node, gap: int) -> bool:
    """Whether a node has rows above the gap and rows below it."""
    first, last = _rows_of(node)
    return first < gap <= last


def _enclosing(cut: Cut, root: Node) -> Iterator[Node]:
    """The definitions that are open at the gap, outermost first."""
    solid = next((row for row in range(cut.gap - 1, -1, -1) if cut.lines[row].strip()), -1)
    node: Node | None = root
    while node is not None:
        children = node.children
        node = None
        for child in children:
            first, last = _rows_of(child)
            if first < cut.gap and last >= solid:
                node = child
        if node is not None and cut.language.defines(node.type) and is_open(cut, node):
            yield node


def is_open(cut: Cut, node: Node) -> bool:
    """Whether a definition that reaches the last line above the gap goes on behind it."""
    body = _body_of(cut.language, node)
    return body is not None and (_rows_of(node)[1] >= cut.gap or not _is_closed(node, body))


def _is_closed(node: Node, body: Node) -> bool:
    """Whether a definition has come to its closing bracket or word, if its language has one."""
    last = [side.child(side.child_count - 1) for side in (node, body) if side.child_count]
    return any(token is not None and not token.is_named and not token.is_missing for token in last)


def _body_of(language: Language, node: Node) -> Node | None:
    """The part of a definition that holds its code or members."""
    if node.type in language.bare:
        return node
    if (body := node.child_by_field_name("body")) is not None:
        return body
    last = node.named_child(node.named_child_count - 1) if node.named_child_count else None
    return last if last is not None and last.type in language.bodies else None


def _unwrapped(language: Language, node: Node) -> Node:
    """The definition inside an export, a decorator or an assignment, or whatever stands there."""
    while (name := language.wrappers.get(node.type)) is not None:
        inner = node.child_by_field_name(name) if name else None
        if inner is None and node.named_child_count:
            inner = node.named_child(node.named_child_count - 1)
        if inner is None:
            break
        node = inner
    return node


def members(language: Language, node: Node) -> Iterator[Node]:
    """The named children of a node, those of mere containers and of broken code among them."""
    waiting = node.named_children[::-1]
    while waiting:
        child = waiting.pop()
        if child.is_error or child.type in language.containers:
            waiting.extend(reversed(child.named_children))
        else:
            yield child


def sections(cut: Cut, node: Node, role: Role, depth: int) -> Iterator[Part]:
    """The parts of a body, or of a whole file, whose plain statements play this role."""
    leading: list[Node] = []
    language = cut.language
    for child in members(language, node):
        if _rows_of(child)[0] >= len(cut.lines):  # what the parser was given to close the text
            break
        if leading and _rows_of(leading[-1])[1] + 1 < _rows_of(child)[0]:
            yield from plain(cut, leading, role, depth)
            leading = []
        if child.type in language.comments or child.type in language.leading:
            leading.append(child)
        else:
            yield from section(cut, child, leading, role, depth)
            leading = []
    yield from plain(cut, leading, role, depth)


def section(cut: Cut, child: Node, leading: list[Node], role: Role, depth: int) -> Iterator[Part]:
    """The parts of one statement or definition, with the comments and attributes right above it."""
    found = _defined(cut, child, leading) if depth < _DEEPEST else None
    if found is not None:
        yield from _definition(cut, found, role, depth)
    elif _is_import(cut, child):
        first, last = _rows_of(child)
        yield from plain(cut, leading, role, depth)
        yield Part(Role.IMPORT, cut.distance(first, last), tuple(range(first, last + 1)))
    elif spans(child, cut.gap):
        yield from plain(cut, leading, role, depth)
        yield from _around_gap(cut, child, depth)
    else:
        yield from plain(cut, [*leading, child], role, depth)


def _defined(cut: Cut, child: Node, leading: Sequence[Node]) -> Definition | None:
    """The definition a statement makes, if it has a body of its own lines that does not merely hold the gap."""
    node = _unwrapped(cut.language, child)
    body = _body_of(cut.language, node) if cut.language.defines(node.type) else None
    first, last = _rows_of(child)
    if body is None or first == last or (spans(child, cut.gap) and node not in cut.around):
        return None
    return Definition.read(cut, child, node, body, leading)


def _is_import(cut: Cut, child: Node) -> bool:
    """Whether a statement brings in names from elsewhere."""
    line = cut.language.import_line
    text = cut.lines[_rows_of(child)[0]].strip()
    return child.type in cut.language.imports or bool(line and line.match(text))


def plain(cut: Cut, nodes: Sequence[Node], role: Role, depth: int) -> Iterator[Part]:
    """A part for a statement and what belongs to it; a single line is its own signature."""
    if nodes:
        first, last = _rows_of(nodes[0])[0], max(_rows_of(node)[1] for node in nodes)
        near = _NEARER if first == last or depth else 1.0
        yield Part(role, cut.distance(first, last) / near, tuple(range(first, last + 1)))


def _around_gap(cut: Cut, child: Node, depth: int) -> Iterator[Part]:
    """The parts of a statement the gap lies in: the definition inside that goes on there, and lines around it."""
    first, last = _rows_of(child)
    inner = [
        node for node in cut.around if child.start_byte <= node.start_byte and node.end_byte <= child.end_byte
    ]
    yield Part(Role.HEAD, cut.gap - first, (first,))
    if inner and depth < _DEEPEST and (body := _body_of(cut.language, inner[0])) is not None:
        yield from _definition(cut, Definition.read(cut, inner[0], inner[0], body, []), Role.FIELD, depth)
    role = Role.OTHER if inner else Role.SCOPE
    for row in range(first, last + 1):
        yield Part(role, cut.distance(row, row), (row,))


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition with the rows of its signature and all its other rows."""

    node: Node
    body: Node
    lead: tuple[int, ...]  # comments above the signature, but for their first line
    head: tuple[int, ...]
    rest: tuple[int, ...]

    @classmethod
    def read(cls, cut: Cut, outer: Node, node: Node, body: Node, leading: Sequence[Node]) -> Definition:
        """Split the rows of a definition, its wrapping and what leads up to it."""
        first, last = _rows_of(outer)
        head = {*range(first, _signature_end(node, body) + 1), *documentation(cut.language, body)}
        if _is_closed(node, body):
            head.add(_rows_of(node)[1])
        top = min((_rows_of(lead)[0] for lead in leading), default=first)
        head.update(_leading_rows(cut.language, leading))
        lead = (row for row in range(top, first) if row not in head)
        rest = (row for row in range(first, last + 1) if row not in head)
        return cls(node, body, tuple(lead), tuple(sorted(head)), tuple(rest))


def _leading_rows(language: Language, leading: Sequence[Node]) -> Iterator[int]:
    """The rows above a signature that stay with it: attributes, and a comment's first line if it is whole."""
    for at, lead in enumerate(leading):
        first, last = _rows_of(lead)
        if lead.type in language.leading or (at == 0 and first == last):
            yield from range(first, last + 1)


def _signature_end(node: Node, body: Node) -> int:
    """The last row of a signature, with the bracket that opens the body."""
    if body == node:
        return _rows_of(node)[0]
    end = _rows_of(node)[0]
    for child in node.children:
        if child == body:
            break
        end = _rows_of(child)[1]
    opening = body.child(0) if body.child_count else None
    return max(end, _rows_of(body)[0]) if opening is not None and not opening.is_named else end


def documentation(language: Language, body: Node) -> Iterator[int]:
    """The first row of the string a body begins with, and the row its quotes close on."""
    first = body.named_child(0) if body.named_child_count else None
    if first is not None and is_documentation(language, first):
        yield from _rows_of(first)


def is_documentation(language: Language, node: Node) -> bool:
    """Whether a statement is nothing but a string."""
    inner = node.named_child(0) if node.type == "expression_statement" and node.named_child_count == 1 else node
    return inner is not None and inner.type in language.strings


def _definition(cut: Cut, found: Definition, role: Role, depth: int) -> Iterator[Part]:
    """The parts of a definition: of one around the gap its scope or members, of another its signature and body."""
    near = cut.distance(found.head[0], max(found.head[-1], *found.rest, 0))
    is_class = found.node.type in cut.language.classes
    if found.node in cut.around:
        yield Part(Role.HEAD, cut.gap - found.head[0], found.head)
        if is_class or found.node != cut.around[-1]:
            yield from sections(cut, found.body, Role.FIELD, depth + 1)
        else:
            yield from (Part(Role.SCOPE, cut.distance(row, row), (row,)) for row in (*found.rest, *found.lead))
        yield Part(Role.OTHER, cut.gap - found.head[0], found.lead)
        return
    own = Role.FIELD if role is Role.FIELD and _is_constructor(cut.language, found.node) else Role.OTHER
    yield Part(own, near / _NEARER, found.head)
    if is_class:
        yield from sections(cut, found.body, Role.OTHER, depth + 1)
    yield Part(own, near, (*found.lead, *found.rest))


def _is_constructor(language: Language, node: Node) -> bool:
    """Whether a function sets the fields of the class around it."""
    name = node.child_by_field_name("name")
    text = name.text if name is not None else None
    return node.type in language.constructors or (text or b"").decode() in language.constructors
