"""The programming languages that completions understand, and what their syntax trees say of a place.

Each language is a row of data; the algorithms are the same for all. A text may be broken, as it is while someone
types. Knows nothing of tokens, budgets of tokens or completions.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser, Tree

from spd_lsp.completion.surroundings import Surroundings
from spd_lsp.completion.syntax.delimiters import scan

# The budget of a parser, in callbacks: one per hundred of its steps, about 0.03 ms. Code, broken code included,
# needs one per 80 bytes or so; crafted text needs thousands of times as many.
_MIN_CALLBACKS, _BYTES_PER_CALLBACK = 1_000, 16
_CHUNK_BYTES = 16_384  # that a parser reads at once; it reads again where it backtracks
_MAX_LINE = 20_000  # characters
_NEAR_ABOVE, _NEAR_BELOW = 3_000, 1_500  # characters around the cursor that a line is parsed with
_FAR_ABOVE = 50_000  # in which the heads of these are looked for
_GOES_ON = re.compile(r"\s*(?:[)\]}{]|(?:else|elif|elsif|except|finally|catch|rescue|ensure)\b)")
_BRACE = re.compile(
    r"(?:^|\+\+|[)>\]\"']|(?<!\breturn)(?<=\w)[ \t]|\b(?:do|else|finally|try))\s*\{\s*(?://.*|/\*.*)?$"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Language:
    """A grammar, and what its lines and nodes of imports and blocks look like."""

    module: str  # the grammar's package
    entry: str = "language"  # its function that returns the grammar
    imports: str = ""  # types of nodes
    import_line: re.Pattern[str] | None = None  # for imports that are ordinary statements
    opens: re.Pattern[str] = _BRACE  # a line that opens a block; one that is written to its end has a line end
    new_name: re.Pattern[str] | None = None  # the end of a text that is naming a new function or class
    filler: str = "x;"  # a statement that may come first in any body


_PYTHON = Language(
    module="tree_sitter_python",
    imports="import_statement import_from_statement future_import_statement",
    new_name=re.compile(r"\b(?:def|class)\s+(?!__)\w*$"),
    opens=re.compile(
        r"^\s*(?:(?:async\s+)?(?:def|class|if|elif|else|for|while|try|except|finally|with|match|case)\b.*"
        r"|[)\]}].*):\s*(?:#.*)?$"
    ),
    filler="pass",
)

_JAVASCRIPT = Language(
    module="tree_sitter_javascript",
    imports="import_statement",
    import_line=re.compile(r"(?:const|let|var)\b.*=\s*require\("),
    new_name=re.compile(r"\b(?:function\*?|class|interface|enum|namespace|type)\s+\w*$"),
)


def _typescript(entry: str) -> Language:
    """Return the row of one of TypeScript's two grammars, which is JavaScript's and more."""
    return replace(
        _JAVASCRIPT,
        module="tree_sitter_typescript",
        entry=entry,
        imports="import_statement import_alias",
    )


_GO = Language(
    module="tree_sitter_go",
    imports="package_clause import_declaration",
    new_name=re.compile(r"^(?:\s*type|func(?:\s*\([^()]*\))?)\s+\w*$"),
)

_RUST = Language(
    module="tree_sitter_rust",
    imports="use_declaration extern_crate_declaration",
    new_name=re.compile(r"\b(?:fn|struct|enum|union|trait|mod|type|macro_rules!)\s+\w*$"),
)

_JAVA = Language(
    module="tree_sitter_java",
    imports="package_declaration import_declaration",
    new_name=re.compile(r"\b(?:class|interface|enum|record)\s+\w*$"),
)

C = Language(
    module="tree_sitter_c",
    imports="preproc_include preproc_def",
    new_name=re.compile(r"^\s*#\s*define\s+\w*$"),
)

_CPP = Language(
    module="tree_sitter_cpp",
    imports="preproc_include preproc_def using_declaration namespace_alias_definition",
    new_name=re.compile(r"(?:\bclass|(?<!using )\bnamespace|^\s*#\s*define)\s+\w*$"),
)

_CSHARP = Language(
    module="tree_sitter_c_sharp",
    imports="using_directive file_scoped_namespace_declaration",
    new_name=re.compile(r"\b(?:class|interface|enum|struct|record|namespace)\s+\w*$"),
    filler="x();",
)

_RUBY = Language(
    module="tree_sitter_ruby",
    import_line=re.compile(r"(?:require|require_relative|load|autoload)\b"),
    new_name=re.compile(r"\b(?:def|class|module)\s+[\w.]*$"),
    # Only from the first `def`: trying each would take time quadratic in the length of the line.
    opens=re.compile(
        r"(?:\b(?:do|then|else|begin|ensure)|\bdo\s*\|[^|]*\||^(?:(?!\bdef\b).)*\bdef\b.*\)"
        r"|^\s*(?:def|class|module|if|elsif|unless|while|until|for|when)\s.*(?=\n))\s*(?:#.*)?$"
    ),
    filler="x",
)

_PHP = Language(
    module="tree_sitter_php",
    entry="language_php",
    imports="php_tag namespace_definition namespace_use_declaration declare_statement",
    import_line=re.compile(r"(?:require|include)(?:_once)?\b"),
    new_name=re.compile(r"\b(?:function|class|interface|trait|enum|namespace)\s+\w*$"),
    filler="x();",
)

_SHELL = Language(
    module="tree_sitter_bash",
    import_line=re.compile(r"(?:source|\.)\s"),
    new_name=re.compile(r"\bfunction\s+\w*$"),
    opens=re.compile(r"(?:\b(?:then|do|else|in)|\{|\)\s*\{)\s*(?:#.*)?$"),
    filler="x",
)

_LUA = Language(
    module="tree_sitter_lua",
    import_line=re.compile(r"(?:local\b.*=\s*)?require\b"),
    new_name=re.compile(r"\bfunction\s+[\w.:]*$"),
    opens=re.compile(
        r"(?:\b(?:then|do|else|repeat)|\bfunction\b(?:(?!\bfunction\b)[^()])*\([^()]*\))\s*(?:--.*)?$"
    ),
    filler="x()",
)

LANGUAGES: Mapping[str, Language] = {
    "python": _PYTHON,
    "javascript": _JAVASCRIPT,
    "javascriptreact": _JAVASCRIPT,
    "typescript": _typescript("language_typescript"),
    "typescriptreact": _typescript("language_tsx"),
    "go": _GO,
    "rust": _RUST,
    "java": _JAVA,
    "c": C,
    "cpp": _CPP,
    "csharp": _CSHARP,
    "cs": _CSHARP,  # Neovim's name
    "ruby": _RUBY,
    "php": _PHP,
    "shellscript": _SHELL,
    "sh": _SHELL,  # Neovim's names
    "bash": _SHELL,
    "lua": _LUA,
}


class ParserBudgetExceeded(Exception):
    """The parser would take far longer for this text than it does for code."""


@functools.cache
def load_grammar(module: str, entry: str) -> Grammar:
    """Load a grammar once. Parsers are created per use: they keep state, which threads must not share."""
    return Grammar(getattr(importlib.import_module(module), entry)())


def parse(language: Language, text: str) -> Tree:
    """Return the syntax tree of a text, broken or not. The tree cannot be asked for its text.

    Raises `ParserBudgetExceeded`, deterministically, for a text with a line that nobody writes by hand, as some
    grammars need minutes for a nest, and for one that takes far more steps than code does.
    """
    if max(map(len, text.split("\n"))) > _MAX_LINE:
        raise ParserBudgetExceeded
    source = text.encode("utf-8", "replace")
    callbacks_left = _MIN_CALLBACKS + len(source) // _BYTES_PER_CALLBACK
    chunks: list[memoryview] = []

    def read_chunk(start: int, point: object) -> memoryview:
        chunks.append(memoryview(source)[start : start + _CHUNK_BYTES])
        return chunks[-1]

    def is_exhausted(start: int, is_broken: bool) -> bool:
        nonlocal callbacks_left
        callbacks_left -= 1
        return callbacks_left < 0

    try:
        parser = Parser(load_grammar(language.module, language.entry))
        return parser.parse(read_chunk, progress_callback=is_exhausted)
    except ValueError as error:
        raise ParserBudgetExceeded from error
    finally:
        for chunk in chunks:  # tree-sitter's Python binding (0.26.1) never drops what a callback returns
            chunk.release()


def breaks_line(language: Language, around: Surroundings) -> Callable[[str], bool]:
    """Return a function: whether a text, written to the end of the cursor's line, is a syntax error there.

    Where something around the cursor is broken already, no text is. Only the lines nearby are parsed, below the
    heads of what they stand in, so that a long document takes no more time than a short one.
    """
    first = around.above.rfind("\n", 0, max(0, len(around.above) - _NEAR_ABOVE)) + 1
    near = around.above[first:]
    far = around.above[max(0, first - _FAR_ABOVE) : first].splitlines(keepends=True)
    far += near.splitlines(keepends=True)[:1]
    above = "".join(reversed([far[row] for row in _heads_by_indentation(far)])) + near
    below = around.below[: around.below.find("\n", _NEAR_BELOW) % (len(around.below) + 1)]

    opened_above = scan(above, around.language).open
    scan_below = functools.cache(partial(scan, below, around.language))  # kept: most lines leave the same open

    def has_error(line: str) -> bool:
        opened = scan_below(scan(line, around.language, opened_above).open).open  # what only later lines close
        closers = "".join(f"\n{one.closer}" for one in reversed(opened) if not one.is_text)
        try:
            return parse(language, above + line + below + closers).root_node.has_error
        except ParserBudgetExceeded:
            return True

    @functools.cache
    def is_broken() -> bool:
        return has_error(around.left[: around.indent] + language.filler) and has_error("")

    return lambda text: not is_broken() and has_error(around.left + text + around.rest)


@functools.lru_cache(4)  # while a line is typed, the text around it is the same again and again
def find_heads(
    language: Language | None, above: tuple[str, ...], below: tuple[str, ...]
) -> tuple[Sequence[int], Sequence[int]]:
    """The rows above a gap between lines that say where it stands.

    First those on which what surrounds the gap begins, the innermost first, as an editor's sticky scroll shows
    them, by indentation and in the tree; then the rows of imports.
    """
    heads = set(_heads_by_indentation(above))
    imports: set[int] = set()
    if language is not None:
        with suppress(ParserBudgetExceeded):
            root = parse(language, "".join((*above, *below))).root_node
            gap = len("".join(above).encode("utf-8", "replace"))
            node = root.descendant_for_byte_range(max(gap - 1, 0), gap)
            while node is not None and node.parent is not None:
                if node.start_byte < gap and node.end_point.row > node.start_point.row:
                    heads.add(node.start_point.row)
                node = node.parent
            imports.update(_import_rows(language, root, above))
    return sorted((row for row in heads if row < len(above) - 1), reverse=True), sorted(imports)


def _heads_by_indentation(above: Sequence[str]) -> Iterator[int]:
    """The rows that are indented less than all behind them, the last one first, in any syntax.

    With one that goes on, such as `):` or `else:`, comes the one before it that is indented as it is.
    """
    least: int | None = None
    goes_on = False
    for row in reversed(range(len(above))):
        line = above[row]
        white = len(line) - len(line.lstrip())
        if not line.strip() or (least is not None and white > least):
            continue
        if least is not None and (white < least or goes_on):
            yield row
        if least is None or white < least or goes_on:
            goes_on = _GOES_ON.match(line) is not None
        least = white
        if not least and not goes_on:
            return


def _import_rows(language: Language, root: Node, lines: Sequence[str]) -> Iterator[int]:
    """The rows of imports that stand at the top of a file, or one level down, as in `#ifdef`."""
    for outer in root.children:
        for node in (outer, *outer.children):
            first = node.start_point.row
            is_import = node.type in language.imports.split()
            if node is outer and language.import_line is not None and first < len(lines):
                is_import = is_import or language.import_line.match(lines[first].strip()) is not None
            if is_import:
                end = node.end_point
                yield from range(first, min(len(lines), max(first, end.row - (end.column == 0)) + 1))
