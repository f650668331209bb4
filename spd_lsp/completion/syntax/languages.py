"""The programming languages that completions understand: the names of their syntax nodes, and their parsers.

Each language is a row of data; the algorithm that reads it is the same for all. Node types are those of the
language's tree-sitter grammar. Knows nothing of documents, tokens or completions.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser, Tree

# The budget of a parser, in callbacks: one per hundred of its steps, about 0.03 ms. Code, broken code included,
# needs one per 80 bytes or so; crafted text needs thousands of times as many.
_MIN_CALLBACKS, _BYTES_PER_CALLBACK = 1_000, 16
_CHUNK_BYTES = 4_096  # that a parser reads at once; it reads again where it backtracks

_BRACKETS = {
    "{": "}", "(": ")", "[": "]", "[[": "]]", "((": "))", "{|": "|}",
    "${": "}", "#{": "}", "$(": ")", "<(": ")", ">(": ")", "#[": "]",
}  # fmt: skip


def _names(text: str) -> frozenset[str]:
    """Return the words of a text. Example: "a b" gives {"a", "b"}."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """The node types of one grammar."""

    module: str  # the grammar's package
    entry: str = "language"  # its function that returns the grammar
    functions: frozenset[str]  # definitions whose body is code
    classes: frozenset[str] = frozenset()  # definitions whose body holds members; also namespaces
    constructors: frozenset[str] = frozenset()  # names or types of the functions that set a class's fields
    imports: frozenset[str] = frozenset()
    import_line: re.Pattern[str] | None = None  # for imports that are ordinary statements
    # type -> field of the definition inside; "": the last child
    wrappers: Mapping[str, str] = field(default_factory=dict)
    bare: frozenset[str] = frozenset()  # classes whose members are their own children
    containers: frozenset[str] = frozenset()  # nodes whose children count as those of their parent
    leading: frozenset[str] = frozenset()  # attributes, which precede their statement
    comments: frozenset[str] = frozenset({"comment"})
    strings: frozenset[str] = frozenset()  # a body's first statement of such a type is its documentation
    bodies: frozenset[str]  # nodes that hold the statements of a block
    opens: re.Pattern[str]  # the end of a line that opens a body, for code that does not parse
    new_name: re.Pattern[str] | None = None  # the end of a text that is naming a new function or class
    filler: str = "x;"  # a statement that may come first in any body
    closers: Mapping[str, str] = field(default_factory=lambda: _BRACKETS)  # opening token -> text that closes it

    def defines(self, kind: str) -> bool:
        """Whether a node of this type has a signature and a body."""
        return kind in self.functions or kind in self.classes


_BRACE = re.compile(r"(?:^|[)\w>\]\"'](?<!\breturn))\s*\{\s*(?://.*|/\*.*)?$")

_PYTHON = Language(
    module="tree_sitter_python",
    functions=_names("function_definition"),
    classes=_names("class_definition"),
    constructors=_names("__init__ __new__"),
    imports=_names("import_statement import_from_statement future_import_statement"),
    wrappers={"decorated_definition": "definition"},
    strings=_names("string concatenated_string"),
    bodies=_names("block"),
    new_name=re.compile(r"\b(?:def|class)\s+(?!__)\w*$"),
    opens=re.compile(
        r"^\s*(?:(?:async\s+)?(?:def|class|if|elif|else|for|while|try|except|finally|with|match|case)\b.*"
        r"|[)\]}].*):\s*(?:#.*)?$"
    ),
    filler="pass",
)

_SCRIPT_WRAPPERS = {
    "export_statement": "declaration",
    "lexical_declaration": "",
    "variable_declaration": "",
    "variable_declarator": "value",
    "expression_statement": "",
    "assignment_expression": "right",
    "call_expression": "arguments",
    "arguments": "",
    "pair": "value",
}

_JAVASCRIPT = Language(
    module="tree_sitter_javascript",
    functions=_names(
        "function_declaration generator_function_declaration method_definition function_expression arrow_function"
        " generator_function"
    ),
    classes=_names("class_declaration class object"),
    bare=_names("object"),
    constructors=_names("constructor"),
    imports=_names("import_statement"),
    import_line=re.compile(r"(?:const|let|var)\b.*=\s*require\("),
    wrappers={**_SCRIPT_WRAPPERS, "field_definition": "value"},
    leading=_names("decorator"),
    comments=_names("comment html_comment"),
    bodies=_names("statement_block class_body switch_body"),
    new_name=re.compile(r"\b(?:function\*?|class|interface|enum|namespace|type)\s+\w*$"),
    opens=_BRACE,
)


def _typescript(entry: str) -> Language:
    """Return the row of one of TypeScript's two grammars, which is JavaScript's and more."""
    more_classes = "abstract_class_declaration interface_declaration enum_declaration internal_module module"
    return replace(
        _JAVASCRIPT,
        module="tree_sitter_typescript",
        entry=entry,
        classes=_JAVASCRIPT.classes | _names(more_classes),
        imports=_names("import_statement import_alias"),
        wrappers={**_SCRIPT_WRAPPERS, "public_field_definition": "value", "ambient_declaration": ""},
        bodies=_JAVASCRIPT.bodies | _names("interface_body enum_body object_type"),
    )


_GO = Language(
    module="tree_sitter_go",
    functions=_names("function_declaration method_declaration func_literal"),
    classes=_names("struct_type interface_type"),
    bare=_names("interface_type"),
    imports=_names("package_clause import_declaration"),
    wrappers={
        "type_declaration": "",
        "type_spec": "type",
        "expression_statement": "",
        "call_expression": "arguments",
    },
    bodies=_names("block field_declaration_list interface_type"),
    new_name=re.compile(r"^(?:\s*type|func(?:\s*\([^()]*\))?)\s+\w*$"),
    opens=_BRACE,
)

_RUST = Language(
    module="tree_sitter_rust",
    functions=_names("function_item macro_definition closure_expression"),
    classes=_names("impl_item trait_item mod_item struct_item enum_item union_item foreign_mod_item"),
    imports=_names("use_declaration extern_crate_declaration"),
    leading=_names("attribute_item inner_attribute_item"),
    comments=_names("line_comment block_comment"),
    bodies=_names("block declaration_list field_declaration_list enum_variant_list match_block"),
    new_name=re.compile(r"\b(?:fn|struct|enum|union|trait|mod|type|macro_rules!)\s+\w*$"),
    opens=_BRACE,
)

_JAVA = Language(
    module="tree_sitter_java",
    functions=_names(
        "method_declaration constructor_declaration compact_constructor_declaration lambda_expression"
    ),
    classes=_names(
        "class_declaration interface_declaration enum_declaration record_declaration annotation_type_declaration"
    ),
    constructors=_names("constructor_declaration"),
    imports=_names("package_declaration import_declaration"),
    containers=_names("enum_body_declarations"),
    comments=_names("line_comment block_comment"),
    bodies=_names("block constructor_body class_body interface_body enum_body annotation_type_body switch_block"),
    new_name=re.compile(r"\b(?:class|interface|enum|record)\s+\w*$"),
    opens=_BRACE,
)

_C_CONTAINERS = _names("preproc_if preproc_ifdef preproc_else preproc_elif linkage_specification declaration_list")
_C_WRAPPERS = {"declaration": "type", "type_definition": "type"}

C = Language(
    module="tree_sitter_c",
    functions=_names("function_definition"),
    classes=_names("struct_specifier union_specifier enum_specifier"),
    imports=_names("preproc_include preproc_def"),
    wrappers=_C_WRAPPERS,
    containers=_C_CONTAINERS,
    bodies=_names("compound_statement field_declaration_list enumerator_list"),
    new_name=re.compile(r"^\s*#\s*define\s+\w*$"),
    opens=_BRACE,
)

_CPP = Language(
    module="tree_sitter_cpp",
    functions=_names("function_definition lambda_expression"),
    classes=_names("class_specifier struct_specifier union_specifier enum_specifier namespace_definition"),
    imports=_names("preproc_include preproc_def using_declaration namespace_alias_definition"),
    wrappers={**_C_WRAPPERS, "template_declaration": ""},
    containers=_C_CONTAINERS,
    bodies=_names("compound_statement field_declaration_list enumerator_list declaration_list"),
    new_name=re.compile(r"(?:\bclass|(?<!using )\bnamespace|^\s*#\s*define)\s+\w*$"),
    opens=_BRACE,
)

_CSHARP = Language(
    module="tree_sitter_c_sharp",
    functions=_names(
        "method_declaration constructor_declaration destructor_declaration operator_declaration"
        " conversion_operator_declaration local_function_statement property_declaration indexer_declaration"
        " lambda_expression"
    ),
    classes=_names(
        "class_declaration struct_declaration interface_declaration record_declaration enum_declaration"
        " namespace_declaration"
    ),
    constructors=_names("constructor_declaration"),
    imports=_names("using_directive file_scoped_namespace_declaration"),
    containers=_names("preproc_if preproc_else preproc_elif preproc_region"),
    bodies=_names("block declaration_list enum_member_declaration_list accessor_list switch_body"),
    new_name=re.compile(r"\b(?:class|interface|enum|struct|record|namespace)\s+\w*$"),
    opens=_BRACE,
    filler="x();",
)

_RUBY = Language(
    module="tree_sitter_ruby",
    functions=_names("method singleton_method do_block"),
    classes=_names("class module singleton_class"),
    constructors=_names("initialize"),
    import_line=re.compile(r"(?:require|require_relative|load|autoload)\b"),
    wrappers={"call": "block"},
    bodies=_names(
        "body_statement then else ensure do begin block_body do_block method singleton_method class module rescue"
    ),
    new_name=re.compile(r"\b(?:def|class|module)\s+[\w.]*$"),
    # Only from the first `def`: trying each would take time quadratic in the length of the line.
    opens=re.compile(
        r"(?:\b(?:do|then|else|begin|ensure)|\bdo\s*\|[^|]*\||^(?:(?!\bdef\b).)*\bdef\b.*\))\s*(?:#.*)?$"
    ),
    filler="x",
    closers={
        **_BRACKETS,
        **dict.fromkeys(
            ("def", "class", "module", "if", "unless", "while", "until", "for", "do", "case", "begin"), "end"
        ),
    },
)

_PHP = Language(
    module="tree_sitter_php",
    entry="language_php",
    functions=_names("function_definition method_declaration anonymous_function"),
    classes=_names("class_declaration interface_declaration trait_declaration enum_declaration"),
    constructors=_names("__construct"),
    imports=_names("php_tag namespace_definition namespace_use_declaration declare_statement"),
    import_line=re.compile(r"(?:require|include)(?:_once)?\b"),
    leading=_names("attribute_list"),
    bodies=_names("compound_statement declaration_list enum_declaration_list match_block switch_block"),
    new_name=re.compile(r"\b(?:function|class|interface|trait|enum|namespace)\s+\w*$"),
    opens=_BRACE,
    filler="x();",
)

_SHELL = Language(
    module="tree_sitter_bash",
    functions=_names("function_definition"),
    import_line=re.compile(r"(?:source|\.)\s"),
    bodies=_names("compound_statement do_group if_statement elif_clause else_clause case_item"),
    new_name=re.compile(r"\bfunction\s+\w*$"),
    opens=re.compile(r"(?:\b(?:then|do|else|in)|\{|\)\s*\{)\s*(?:#.*)?$"),
    filler="x",
    closers={**_BRACKETS, "if": "fi", "do": "done", "case": "esac"},
)

_LUA = Language(
    module="tree_sitter_lua",
    functions=_names("function_declaration function_definition"),
    import_line=re.compile(r"(?:local\b.*=\s*)?require\b"),
    wrappers={"variable_declaration": "", "assignment_statement": "", "expression_list": ""},
    bodies=_names("block"),
    new_name=re.compile(r"\bfunction\s+[\w.:]*$"),
    opens=re.compile(
        r"(?:\b(?:then|do|else|repeat)|\bfunction\b(?:(?!\bfunction\b)[^()])*\([^()]*\))\s*(?:--.*)?$"
    ),
    filler="x()",
    closers={**_BRACKETS, "function": "end", "do": "end", "then": "end", "repeat": "until x"},
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


@functools.cache
def load_grammar(module: str, entry: str) -> Grammar:
    """Load a grammar once. Parsers are created per use: they keep state, which threads must not share."""
    return Grammar(getattr(importlib.import_module(module), entry)())


class ParserBudgetExceeded(Exception):
    """The parser would take far longer for this text than it does for code."""


def parse(language: Language, text: str) -> Tree:
    """Return the syntax tree of a text, broken or not. Open brackets are closed after its end.

    Raises `ParserBudgetExceeded`, deterministically. Some texts make a grammar's own code loop forever or overflow
    its stack, which nothing here can stop: a server parses in another process (see `parsing`).
    """
    source = text.encode("utf-8", "replace")
    tree = parse_within_budget(language, source)
    if tree.root_node.has_error and (closing := missing_closers(language, tree.root_node)):
        closed = source + b"\n" + closing.encode()
        tree.edit(len(source), len(source), len(closed), end_of(source), end_of(source), end_of(closed))
        tree = parse_within_budget(language, closed, tree)
    return tree


def parse_within_budget(language: Language, source: bytes, previous: Tree | None = None) -> Tree:
    """Parse a source, reusing the edited tree of its previous version."""
    parser = Parser(load_grammar(language.module, language.entry))
    callbacks_left = _MIN_CALLBACKS + len(source) // _BYTES_PER_CALLBACK

    def read_chunk(start: int, point: object) -> bytes:  # the tree calls it too, and must get bytes
        nonlocal callbacks_left
        callbacks_left -= 1
        return source[start : start + _CHUNK_BYTES]

    def is_exhausted(start: int, is_broken: bool) -> bool:
        nonlocal callbacks_left
        callbacks_left -= 1
        return callbacks_left < 0

    try:
        if previous is None:
            return parser.parse(read_chunk, progress_callback=is_exhausted)
        return parser.parse(read_chunk, previous, progress_callback=is_exhausted)
    except ValueError as error:
        raise ParserBudgetExceeded from error


def end_of(source: bytes) -> tuple[int, int]:
    """Return the row and column after a text. Example: b"a\\nbc" ends at (1, 2)."""
    return source.count(b"\n"), len(source) - source.rfind(b"\n") - 1


def missing_closers(language: Language, root: Node) -> str:
    """Return what closes the open brackets of a broken text. Example: `f(() => { g(` gives ")", "}" and ")"."""
    closing = {text.split()[0] for text in language.closers.values()}
    opened: list[str] = []
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.has_error and node.child_count:  # elsewhere brackets match
            nodes.extend(reversed(node.children))
        elif node.is_missing:
            continue
        elif node.type in language.closers:
            opened.append(language.closers[node.type])
        elif node.type in closing:
            _close_bracket(opened, node.type)
    return "\n".join(reversed(opened))


def _close_bracket(opened: list[str], closer: str) -> None:
    """Remove the innermost open bracket of this kind, and all that were opened after it."""
    for index in range(len(opened) - 1, -1, -1):
        if opened[index].split()[0] == closer:
            del opened[index:]
            return
