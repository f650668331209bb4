"""A source text -> the lines a person would want completed, and which of their characters are not code.

Reads the syntax tree. Knows no files, no tokens and no models. All places are in characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from tree_sitter import Node

from ngram_builders.arrays import U8
from spd_lsp.completion.languages import LANGUAGES, Language, TooHard, parse
from spd_lsp.completion.syntax_outline import is_documentation

CODE, STRING, COMMENT, SKIPPED = 0, 1, 2, 3  # what a character belongs to; SKIPPED: imports and documentation
LEXEME = re.compile(r"\w+|[^\w\s]")  # a word or a sign, of any language
_LEAST_LEXEMES = 4
_LONGEST = 160  # characters


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code in its text."""

    start: int  # of the line, its indentation included
    text: str  # without white space at its end
    kinds: U8  # of each character: CODE, STRING or COMMENT

    @property
    def indentation(self) -> int:
        """How many blanks it begins with."""
        return len(self.text) - len(self.text.lstrip())


def code_lines(text: str, language: str) -> list[Line]:
    """The lines of 4 code tokens or more and of 160 characters or less; no comments, documentation, imports."""
    known = LANGUAGES[language]
    kinds = _kinds_of(text, known)
    found = []
    start = 0
    for line in text.split("\n"):
        stripped = line.rstrip()
        if _is_wanted(stripped, start, kinds, known):
            found.append(Line(start, stripped, kinds[start : start + len(stripped)]))
        start += len(line) + 1
    return found


def _is_wanted(line: str, start: int, kinds: U8, language: Language) -> bool:
    """Whether a line that begins at `start` is code, and neither too short nor too long."""
    if len(line) > _LONGEST or len(LEXEME.findall(line)) < _LEAST_LEXEMES:
        return False
    first = start + len(line) - len(line.lstrip())
    within_string = kinds[first] == STRING and first > 0 and kinds[start - 1] == STRING
    if within_string or kinds[first] in (COMMENT, SKIPPED):
        return False
    return language.import_line is None or not language.import_line.match(line.lstrip())


def _kinds_of(text: str, language: Language) -> U8:
    """What each character of a text belongs to. -> [characters]"""
    source = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
    kinds = np.zeros(len(source), dtype=np.uint8)  # by bytes, as the tree has it
    with suppress(TooHard):  # all of it is code then
        for node, kind in _marked(parse(language, text).root_node, language):
            kinds[node.start_byte : node.end_byte] = kind
    of_characters: U8 = kinds[(source & 0xC0) != 0x80]
    return of_characters


def _marked(root: Node, language: Language) -> Iterator[tuple[Node, int]]:
    """The outermost nodes that are not plain code, and what they are."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.type in language.comments:
            yield node, COMMENT
        elif node.type in language.imports or _is_statement_of_text(node, language):
            yield node, SKIPPED
        elif _is_text(node):
            yield node, STRING
        else:
            nodes.extend(node.children)


def _is_text(node: Node) -> bool:
    """Whether a node is a literal text, by the name of its type."""
    return node.is_named and (
        "string" in node.type or node.type in ("char_literal", "rune_literal", "heredoc_body")
    )


def _is_statement_of_text(node: Node, language: Language) -> bool:
    """Whether a node is documentation: a statement that is nothing but a string."""
    return node.type == "expression_statement" and is_documentation(language, node)
