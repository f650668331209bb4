"""A file's name -> the LSP id of its language; and which languages share their code. Reads no files."""

from __future__ import annotations

import os
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import PurePath

from ngram_builders.errors import UserError

_NAMED_BY_EXTENSION = (  # languages whose only extension is their id
    "go java swift dart r zig awk elm gleam odin hlsl wgsl vim fish nix cmake thrift hcl sql vue svelte "
    "astro css scss sass less proto"
)
LANGUAGE_BY_EXTENSION: dict[str, str] = {
    extension: language
    for language, extensions in {
        **{language: language for language in _NAMED_BY_EXTENSION.split()},
        "python": "py pyi pyw pyx pxd ipynb",
        "javascript": "js mjs cjs",
        "javascriptreact": "jsx",
        "typescript": "ts mts cts",
        "typescriptreact": "tsx",
        "rust": "rs",
        "c": "c h",
        "cpp": "cpp cc cxx c++ hpp hh hxx h++ ipp inl",
        "cuda-cpp": "cu cuh",
        "csharp": "cs csx",
        "ruby": "rb rake gemspec",
        "php": "php phtml",
        "shellscript": "sh bash zsh ksh bats",
        "lua": "lua p8",
        "kotlin": "kt kts",
        "scala": "scala sc",
        "objective-c": "m",
        "objective-cpp": "mm",
        "julia": "jl",
        "perl": "pl pm",
        "elixir": "ex exs",
        "erlang": "erl hrl escript",
        "haskell": "hs hsc",
        "ocaml": "ml mli mll mly",
        "fsharp": "fs fsi fsx",
        "clojure": "clj cljs cljc",
        "groovy": "groovy gradle",
        "powershell": "ps1 psm1",
        "nim": "nim nims nimble",
        "tcl": "tcl tk",
        "fortran": "f f77 f90 f95 f03 f08 for",
        "verilog": "v vh",
        "systemverilog": "sv svh",
        "vhdl": "vhd vhdl",
        "ada": "adb ads",
        "pascal": "pas dpr",
        "asm": "s asm nasm",
        "lisp": "lisp cl el",
        "scheme": "scm sld",
        "racket": "rkt",
        "crystal": "cr",
        "purescript": "purs",
        "raku": "raku rakumod",
        "coffeescript": "coffee",
        "solidity": "sol",
        "gdscript": "gd",
        "glsl": "glsl vert frag geom comp",
        "vb": "vb bas",
        "makefile": "mk mak",
        "starlark": "bzl star",
        "graphql": "graphql gql",
        "html": "html htm",
        "terraform": "tf",
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
    "containerfile": "dockerfile",
    "meson.build": "meson",
    "build.bazel": "starlark",
    "module.bazel": "starlark",
    "sconstruct": "python",
    "sconscript": "python",
    "jenkinsfile": "groovy",
    "vagrantfile": "ruby",
}
_DATA_BY_EXTENSION = {"yaml": "yaml", "yml": "yaml", "toml": "toml"}
DATA_LANGUAGES = frozenset(_DATA_BY_EXTENSION.values())  # counted only where they are asked for
_RELATED: tuple[frozenset[str], ...] = (
    frozenset({"javascript", "javascriptreact", "typescript", "typescriptreact", "vue", "svelte", "astro"}),
    frozenset({"c", "cpp", "cuda-cpp", "objective-c", "objective-cpp"}),
    # Editors have other names: Vim's file types, and those of extensions of VS Code.
    frozenset({"csharp", "cs"}),
    frozenset({"shellscript", "sh", "bash"}),
    frozenset({"makefile", "make"}),
    frozenset({"fortran", "FortranFreeForm", "FortranFixedForm"}),
    frozenset({"verilog", "systemverilog"}),
    frozenset({"ocaml", "ocaml.interface", "ocaml-interface"}),
    frozenset({"proto", "proto3", "protobuf"}),
    frozenset({"terraform", "hcl"}),
    frozenset({"starlark", "bzl"}),
    frozenset({"lisp", "elisp", "emacs-lisp", "commonlisp"}),
    frozenset({"vim", "viml"}),
    frozenset({"sass", "scss", "css", "less"}),
)


def language_of(path: str | PurePath, data: Collection[str] | None = None) -> str | None:
    """Return the LSP language id for the name of a source file, or None. data: the data languages that count, too.

    Example: app.tsx -> typescriptreact
    """
    name = os.path.basename(path).lower()  # noqa: PTH119
    stem, dot, extension = name.rpartition(".")
    if found := LANGUAGE_BY_NAME.get(name) or (LANGUAGE_BY_EXTENSION.get(extension) if stem and dot else None):
        return found
    language = _DATA_BY_EXTENSION.get(extension) if stem and dot else None
    return language if data and language in data else None


def check_language(language: str) -> str:
    """Return the language id if a file can have it."""
    known = {*LANGUAGE_BY_EXTENSION.values(), *LANGUAGE_BY_NAME.values(), *DATA_LANGUAGES}
    if language not in known:
        near = [repr(name) for name in get_close_matches(language, known, 1)]
        remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(sorted(known))}"
        raise UserError(f"unknown language {language!r}; {remedy}")
    return language


def related_languages(language: str) -> frozenset[str]:
    """Return the languages that share code with this one, itself included: typescript -> javascript, vue ..."""
    return next((group for group in _RELATED if language in group), frozenset({language}))
