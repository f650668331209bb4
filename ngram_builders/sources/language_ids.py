"""A file's name -> the LSP id of its language; and which languages share their code. Reads no files."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import PurePath

LANGUAGE_BY_EXTENSION: dict[str, str] = {
    extension: language
    for language, extensions in {
        "python": "py pyi pyw pyx pxd ipynb",
        "javascript": "js mjs cjs",
        "javascriptreact": "jsx",
        "typescript": "ts mts cts",
        "typescriptreact": "tsx",
        "go": "go",
        "rust": "rs",
        "java": "java",
        "c": "c h",
        "cpp": "cpp cc cxx c++ hpp hh hxx h++ ipp inl",
        "cuda-cpp": "cu cuh",
        "csharp": "cs csx",
        "ruby": "rb rake gemspec",
        "php": "php phtml",
        "shellscript": "sh bash zsh ksh bats",
        "lua": "lua",
        "kotlin": "kt kts",
        "scala": "scala sc",
        "swift": "swift",
        "objective-c": "m",
        "objective-cpp": "mm",
        "dart": "dart",
        "r": "r",
        "julia": "jl",
        "perl": "pl pm",
        "elixir": "ex exs",
        "erlang": "erl hrl",
        "haskell": "hs",
        "ocaml": "ml mli",
        "fsharp": "fs fsi fsx",
        "clojure": "clj cljs cljc",
        "groovy": "groovy gradle",
        "powershell": "ps1 psm1",
        "zig": "zig",
        "nim": "nim",
        "sql": "sql",
        "vue": "vue",
        "svelte": "svelte",
        "css": "css",
        "scss": "scss",
        "less": "less",
        "html": "html htm",
        "terraform": "tf",
        "proto": "proto",
    }.items()
    for extension in extensions.split()
}
LANGUAGE_BY_NAME: dict[str, str] = {
    "dockerfile": "dockerfile",
    "makefile": "makefile",
    "gnumakefile": "makefile",
    "rakefile": "ruby",
    "gemfile": "ruby",
    "cmakelists.txt": "cmake",
}
_DATA_BY_EXTENSION = {"yaml": "yaml", "yml": "yaml", "toml": "toml"}
DATA_LANGUAGES = frozenset(_DATA_BY_EXTENSION.values())  # counted only where they are asked for
_RELATED: tuple[frozenset[str], ...] = (
    frozenset({"javascript", "javascriptreact", "typescript", "typescriptreact", "vue", "svelte"}),
    frozenset({"c", "cpp", "cuda-cpp", "objective-c", "objective-cpp"}),
    frozenset({"css", "scss", "less"}),
    frozenset({"csharp", "cs"}),  # Neovim's names are the later ones
    frozenset({"shellscript", "sh", "bash"}),
)


def language_of(path: str | PurePath, wanted: Collection[str] | None = None) -> str | None:
    """Return the LSP language id of source code for a file name, or None; that of data only if it is wanted.

    Example: app.tsx -> typescriptreact
    """
    name = os.path.basename(path).lower()  # noqa: PTH119
    stem, dot, extension = name.rpartition(".")
    if found := LANGUAGE_BY_NAME.get(name) or (LANGUAGE_BY_EXTENSION.get(extension) if stem and dot else None):
        return found
    data = _DATA_BY_EXTENSION.get(extension) if stem and dot and wanted else None
    return data if wanted and data in wanted else None


def closest_language(language: str | None, known: Collection[str]) -> str | None:
    """Return the one of `known` that serves a language: itself, else one that shares its code, else None."""
    if language is None or language in known:
        return language
    return max(related_languages(language) & set(known), default=None)


def related_languages(language: str) -> frozenset[str]:
    """Return the languages that share code with this one, itself included: typescript -> javascript, vue ..."""
    return next((group for group in _RELATED if language in group), frozenset({language}))
