"""Find the lines of a source text that a person would want completed, and classify their characters.

Reads the syntax tree. All positions are in characters. Knows no files, tokens or models.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import U8
from spd_lsp.completion.syntax.languages import LANGUAGES, Language, ParserBudgetExceeded, parse

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
    for whole in text.split("\n"):
        line = CodeLine(start, whole.rstrip(), kinds[start : start + len(whole.rstrip())])
        if len(line.text) <= _MAX_CHARACTERS and len(LEXEME.findall(line.text)) >= _MIN_LEXEMES:
            first = line.kinds[line.indentation]
            within_string = first == STRING and start > 0 and kinds[start - 1] == STRING
            is_import = grammar.import_line and grammar.import_line.match(line.text.lstrip())
            if not (within_string or first in (COMMENT, SKIPPED) or is_import):
                lines.append(line)
        start += len(whole) + 1
    return lines


def _kinds_of(text: str, language: Language) -> U8:
    """The kind of each character. -> [characters]"""
    source = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
    kinds = np.zeros(len(source), dtype=np.uint8)  # by bytes, as in the tree
    with suppress(ParserBudgetExceeded):  # without a grammar, everything counts as code
        nodes = [parse(language, text).root_node]
        while nodes:
            node = nodes.pop()
            is_statement = node.type == "expression_statement" and node.named_child_count == 1
            inner = node.named_child(0) if is_statement and language is LANGUAGES["python"] else None
            documents = inner is not None and inner.type in ("string", "concatenated_string")
            is_string = "string" in node.type or node.type in ("char_literal", "rune_literal", "heredoc_body")
            if "comment" in node.type:
                kinds[node.start_byte : node.end_byte] = COMMENT
            elif node.type in language.imports.split() or documents:
                kinds[node.start_byte : node.end_byte] = SKIPPED
            elif is_string and node.is_named:
                kinds[node.start_byte : node.end_byte] = STRING
            else:
                nodes.extend(node.children)
    by_character: U8 = kinds[(source & 0xC0) != 0x80]
    return by_character
