"""Find the lines of a source text that a person would want completed, and which of their characters are code.

Reads the syntax tree. All positions are in characters. Knows no files, tokens or models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from tree_sitter import Node

from ngram_builders.arrays import U8
from spd_lsp.completion.syntax.languages import LANGUAGES, Language
from spd_lsp.completion.syntax.tree import ParserBudgetExceeded, is_documentation, parse

CODE, STRING, COMMENT, SKIPPED = 0, 1, 2, 3  # the kind of a character; SKIPPED: imports and documentation
LEXEME = re.compile(r"\w+|[^\w\s]")  # a word or a punctuation mark of any language
_MIN_LEXEMES = 4
_MAX_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of code in its text."""

    start: int  # of the line, its indentation included
    text: str  # without trailing white space
    kinds: U8  # CODE, STRING or COMMENT of each character

    @property
    def indentation(self) -> int:
        """The number of leading blanks."""
        return len(self.text) - len(self.text.lstrip())


def code_lines(text: str, language: str) -> list[CodeLine]:
    """The lines of at least 4 code tokens and at most 160 characters; no comments, documentation or imports."""
    grammar = LANGUAGES[language]
    kinds = _kinds_of(text, grammar)
    lines = []
    start = 0
    for line in text.split("\n"):
        stripped = line.rstrip()
        if _is_completable(stripped, start, kinds, grammar):
            lines.append(CodeLine(start, stripped, kinds[start : start + len(stripped)]))
        start += len(line) + 1
    return lines


def _is_completable(line: str, start: int, kinds: U8, language: Language) -> bool:
    """Whether a line that begins at `start` is code, and neither too short nor too long."""
    if len(line) > _MAX_CHARACTERS or len(LEXEME.findall(line)) < _MIN_LEXEMES:
        return False
    first = start + len(line) - len(line.lstrip())
    within_string = kinds[first] == STRING and first > 0 and kinds[start - 1] == STRING
    if within_string or kinds[first] in (COMMENT, SKIPPED):
        return False
    return language.import_line is None or not language.import_line.match(line.lstrip())


def _kinds_of(text: str, language: Language) -> U8:
    """The kind of each character. -> [characters]"""
    source = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
    kinds = np.zeros(len(source), dtype=np.uint8)  # by bytes, as in the tree
    with suppress(ParserBudgetExceeded):  # then all of it counts as code
        for node, kind in _non_code_nodes(parse(language, text).root_node, language):
            kinds[node.start_byte : node.end_byte] = kind
    by_character: U8 = kinds[(source & 0xC0) != 0x80]
    return by_character


def _non_code_nodes(root: Node, language: Language) -> Iterator[tuple[Node, int]]:
    """The outermost nodes that are not plain code, with their kind."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.type in language.comments:
            yield node, COMMENT
        elif node.type in language.imports or _is_documentation_statement(node, language):
            yield node, SKIPPED
        elif _is_string_literal(node):
            yield node, STRING
        else:
            nodes.extend(node.children)


def _is_string_literal(node: Node) -> bool:
    return node.is_named and (
        "string" in node.type or node.type in ("char_literal", "rune_literal", "heredoc_body")
    )


def _is_documentation_statement(node: Node, language: Language) -> bool:
    """Whether a statement is nothing but a string."""
    return node.type == "expression_statement" and is_documentation(language, node)
