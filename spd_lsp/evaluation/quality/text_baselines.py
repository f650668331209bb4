"""Baselines that need no model and no n-grams: copies, words, and names found by jedi.

texts = TEXT_BASELINES["copy"](surroundings, source, cursor, most)     # best first
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.evaluation.quality.examples import PackageFile
from spd_lsp.evaluation.quality.lexeme_index import LexemeIndex, find_copies
from spd_lsp.extras import install_command

_WORD = re.compile(r"[^\W\d]\w{2,}")
_BEGUN_WORD = re.compile(r"(?<!\w)[^\W\d]\w*\Z")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The texts of a package without the file under test and its near duplicates, and that file without a line."""

    file: PackageFile
    folder: Path  # of the package
    package: LexemeIndex
    removed: Collection[int]  # texts of the package that are not known
    own: LexemeIndex  # of the text above the line and of that below
    neighbours: Sequence[str]  # the texts of other files in the same folder


Baseline = Callable[[Surroundings, str, int, int], Sequence[str]]


def _copy(around: Surroundings, source: str, cursor: int, most: int) -> list[str]:
    """What followed the longest match of the text left of the cursor."""
    return find_copies([around.own, around.package], source[:cursor], around.removed, most)


def _words(around: Surroundings, source: str, cursor: int, most: int) -> list[str]:
    """The rest of each word of the file and its neighbours that continues the one at the cursor.

    Words of the file come first, those that are frequent and stand near above the cursor before others.
    """
    begun = _BEGUN_WORD.search(source[:cursor])
    if begun is None:
        return []
    above: list[str] = _WORD.findall(source[: begun.start()])
    words = [*above, *_WORD.findall(source[cursor:])]
    counts = Counter(words)
    recent = dict.fromkeys([*reversed(above), *words])
    own = sorted(recent, key=lambda word: -counts[word])
    elsewhere = Counter(word for text in around.neighbours for word in _WORD.findall(text))
    ordered = dict.fromkeys([*own, *(word for word, _ in elsewhere.most_common())])
    rest = [word[len(begun[0]) :] for word in ordered if word.startswith(begun[0]) and word != begun[0]]
    return rest[:most]


def _jedi_names(around: Surroundings, source: str, cursor: int, most: int) -> list[str]:
    """The names that jedi completes with, in its order. It sees this package only: no installed copy of it."""
    if find_spec("jedi") is None:
        raise UserError(f"the arm jedi needs jedi; run: {install_command('bench')}")
    jedi: Any = import_module("jedi")
    project = jedi.Project(around.folder, sys_path=[])
    environment = jedi.api.environment.InterpreterEnvironment()
    path = around.folder / around.file.name
    line, column = source.count("\n", 0, cursor) + 1, cursor - (source.rfind("\n", 0, cursor) + 1)
    script = jedi.Script(source, path=path, project=project, environment=environment)
    with suppress(Exception):  # jedi fails on some code, with errors of all kinds: it then proposes nothing
        return [name.complete for name in script.complete(line, column) if name.complete][:most]
    return []


TEXT_BASELINES: Mapping[str, Baseline] = {"copy": _copy, "words": _words, "jedi": _jedi_names}
