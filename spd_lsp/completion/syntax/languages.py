"""The programming languages that completions understand: their grammars, and the names of syntax nodes.

Each language is a row of data; the algorithm that reads it is the same for all. Node types are those of the
language's tree-sitter grammar. Knows nothing of documents, tokens or completions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_BRACKETS = {
    "{": "}", "(": ")", "[": "]", "[[": "]]", "((": "))", "{|": "|}",
    "${": "}", "#{": "}", "$(": ")", "<(": ")", ">(": ")", "#[": "]",
}  # fmt: skip


def _names(text: str) -> frozenset[str]:
    """Return the words of a text. Example: "a b" gives {"a", "b"}."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Language:
    """The node types of one grammar."""

    module: str  # the grammar's package
    entry: str = "language"  # its function that returns the grammar
    imports: frozenset[str] = frozenset()
    import_line: re.Pattern[str] | None = None  # for imports that are ordinary statements
    comments: frozenset[str] = frozenset({"comment"})
    strings: frozenset[str] = frozenset()  # a body's first statement of such a type is its documentation
    bodies: frozenset[str]  # nodes that hold the statements of a block
    opens: re.Pattern[str]  # the end of a line that opens a body, for code that does not parse
    new_name: re.Pattern[str] | None = None  # the end of a text that is naming a new function or class
    filler: str = "x;"  # a statement that may come first in any body
    closers: Mapping[str, str] = field(default_factory=lambda: _BRACKETS)  # opening token -> text that closes it


_BRACE = re.compile(r"(?:^|[)\w>\]\"'](?<!\breturn))\s*\{\s*(?://.*|/\*.*)?$")

_PYTHON = Language(
    module="tree_sitter_python",
    imports=_names("import_statement import_from_statement future_import_statement"),
    strings=_names("string concatenated_string"),
    bodies=_names("block"),
    new_name=re.compile(r"\b(?:def|class)\s+(?!__)\w*$"),
    opens=re.compile(
        r"^\s*(?:(?:async\s+)?(?:def|class|if|elif|else|for|while|try|except|finally|with|match|case)\b.*"
        r"|[)\]}].*):\s*(?:#.*)?$"
    ),
    filler="pass",
)

_JAVASCRIPT = Language(
    module="tree_sitter_javascript",
    imports=_names("import_statement"),
    import_line=re.compile(r"(?:const|let|var)\b.*=\s*require\("),
    comments=_names("comment html_comment"),
    bodies=_names("statement_block class_body switch_body"),
    new_name=re.compile(r"\b(?:function\*?|class|interface|enum|namespace|type)\s+\w*$"),
    opens=_BRACE,
)


def _typescript(entry: str) -> Language:
    """Return the row of one of TypeScript's two grammars, which is JavaScript's and more."""
    return replace(
        _JAVASCRIPT,
        module="tree_sitter_typescript",
        entry=entry,
        imports=_names("import_statement import_alias"),
        bodies=_JAVASCRIPT.bodies | _names("interface_body enum_body object_type"),
    )


_GO = Language(
    module="tree_sitter_go",
    imports=_names("package_clause import_declaration"),
    bodies=_names("block field_declaration_list interface_type"),
    new_name=re.compile(r"^(?:\s*type|func(?:\s*\([^()]*\))?)\s+\w*$"),
    opens=_BRACE,
)

_RUST = Language(
    module="tree_sitter_rust",
    imports=_names("use_declaration extern_crate_declaration"),
    comments=_names("line_comment block_comment"),
    bodies=_names("block declaration_list field_declaration_list enum_variant_list match_block"),
    new_name=re.compile(r"\b(?:fn|struct|enum|union|trait|mod|type|macro_rules!)\s+\w*$"),
    opens=_BRACE,
)

_JAVA = Language(
    module="tree_sitter_java",
    imports=_names("package_declaration import_declaration"),
    comments=_names("line_comment block_comment"),
    bodies=_names("block constructor_body class_body interface_body enum_body annotation_type_body switch_block"),
    new_name=re.compile(r"\b(?:class|interface|enum|record)\s+\w*$"),
    opens=_BRACE,
)

C = Language(
    module="tree_sitter_c",
    imports=_names("preproc_include preproc_def"),
    bodies=_names("compound_statement field_declaration_list enumerator_list"),
    new_name=re.compile(r"^\s*#\s*define\s+\w*$"),
    opens=_BRACE,
)

_CPP = Language(
    module="tree_sitter_cpp",
    imports=_names("preproc_include preproc_def using_declaration namespace_alias_definition"),
    bodies=_names("compound_statement field_declaration_list enumerator_list declaration_list"),
    new_name=re.compile(r"(?:\bclass|(?<!using )\bnamespace|^\s*#\s*define)\s+\w*$"),
    opens=_BRACE,
)

_CSHARP = Language(
    module="tree_sitter_c_sharp",
    imports=_names("using_directive file_scoped_namespace_declaration"),
    bodies=_names("block declaration_list enum_member_declaration_list accessor_list switch_body"),
    new_name=re.compile(r"\b(?:class|interface|enum|struct|record|namespace)\s+\w*$"),
    opens=_BRACE,
    filler="x();",
)

_RUBY = Language(
    module="tree_sitter_ruby",
    import_line=re.compile(r"(?:require|require_relative|load|autoload)\b"),
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
    imports=_names("php_tag namespace_definition namespace_use_declaration declare_statement"),
    import_line=re.compile(r"(?:require|include)(?:_once)?\b"),
    bodies=_names("compound_statement declaration_list enum_declaration_list match_block switch_block"),
    new_name=re.compile(r"\b(?:function|class|interface|trait|enum|namespace)\s+\w*$"),
    opens=_BRACE,
    filler="x();",
)

_SHELL = Language(
    module="tree_sitter_bash",
    import_line=re.compile(r"(?:source|\.)\s"),
    bodies=_names("compound_statement do_group if_statement elif_clause else_clause case_item"),
    new_name=re.compile(r"\bfunction\s+\w*$"),
    opens=re.compile(r"(?:\b(?:then|do|else|in)|\{|\)\s*\{)\s*(?:#.*)?$"),
    filler="x",
    closers={**_BRACKETS, "if": "fi", "do": "done", "case": "esac"},
)

_LUA = Language(
    module="tree_sitter_lua",
    import_line=re.compile(r"(?:local\b.*=\s*)?require\b"),
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
