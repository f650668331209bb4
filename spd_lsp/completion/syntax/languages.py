"""The programming languages that completions understand: their grammars, and the names of syntax nodes.

Each language is a row of data; the algorithm that reads it is the same for all. Node types are those of the
language's tree-sitter grammar. Knows nothing of documents, tokens or completions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
