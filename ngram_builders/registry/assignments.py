"""The tables that a file uses: the user's assignments to workspaces and languages, and the rule that applies them.

In: the record of assignments, the tables, a file. Out: tables with weights. Opens no table.

The rule, see `weights_for`:

1. A file below a folder with an assignment is served by that assignment, with its weights, and by nothing else. Of
   several such folders the innermost counts.
2. Any other file is served by what was built from folders around it, innermost first, and by what is assigned to
   its language, which then decides the weight. Without a given weight, a table has DEFAULT_WEIGHT in the folders
   that it was built from, and GUEST_WEIGHT elsewhere.
3. A table with a fault, or without code in a language like the file's, serves nothing.

An assignment to a language adds and does not replace: no shared table knows as much of a repository as its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ngram_builders.index.mixture import DEFAULT_WEIGHT
from ngram_builders.registry.ngram_table import GUEST_WEIGHT, NgramTable
from ngram_builders.scratch import read_record
from ngram_builders.sources.language_ids import related_languages

Assignment = Mapping[str, float | None]  # weights by the names of tables; None: none was given
_Folder = TypeVar("_Folder", str, Path)


@dataclass(frozen=True, slots=True)
class Assignments:
    """The user's assignments; an empty one counts as none."""

    workspaces: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the folder
    languages: Mapping[str, Assignment] = field(default_factory=dict)

    def names(self) -> frozenset[str]:
        """Every table that is assigned anywhere."""
        given = (*self.workspaces.values(), *self.languages.values())
        return frozenset(name for assignment in given for name in assignment)

    def only(self, names: Iterable[str]) -> Assignments:
        """The assignments without any other tables."""
        kept = frozenset(names)

        def reduced(users: Mapping[str, Assignment]) -> dict[str, Assignment]:
            return {
                user: {name: weight for name, weight in given.items() if name in kept}
                for user, given in users.items()
            }

        return Assignments(reduced(self.workspaces), reduced(self.languages))


def read_assignments(file: Path) -> Assignments:
    """Read the record; without one nothing is assigned. Raises one of RECORD_ERRORS if it is invalid."""
    try:
        record = read_record(file)
    except (FileNotFoundError, NotADirectoryError):
        return Assignments()
    return Assignments(**{kind: {user: dict(given) for user, given in record[kind].items()} for kind in record})


def weights_for(
    assignments: Assignments,
    tables: Mapping[str, NgramTable],
    file: Path | None,
    language: str | None,
) -> dict[str, float]:
    """Return the weights of the tables for a file by their names, by the rule above.

    For a file without a path, only its language counts.
    """
    own = _built_around(tables, file)
    weights = dict.fromkeys(own, DEFAULT_WEIGHT)
    if file is not None and (workspace := _innermost(assignments.workspaces, file)):
        assigned = assignments.workspaces[workspace]
        weights.clear()
    else:
        assigned = assignments.languages.get(_assigned_language(assignments.languages, language), {})
    for name, weight in assigned.items():
        usual = DEFAULT_WEIGHT if name in own else GUEST_WEIGHT
        weights[name] = usual if weight is None else weight
    related = related_languages(language) if language else frozenset[str]()
    sound = {name: set(table.languages) for name, table in tables.items() if table.fault is None}
    return {
        name: weight
        for name, weight in weights.items()
        if name in sound and (not related or not sound[name] or sound[name] & related)
    }


def _innermost(folders: Iterable[_Folder], file: Path) -> _Folder | None:
    """The deepest of these folders that a file lies in."""
    around = [folder for folder in folders if file.is_relative_to(folder)]
    return max(around, key=lambda folder: len(Path(folder).parts), default=None)


def _built_around(tables: Mapping[str, NgramTable], file: Path | None) -> list[str]:
    """The names of the tables that were built from folders around a file, innermost first."""
    roots = {name: root for name, table in tables.items() if file and (root := _innermost(table.roots, file))}
    return sorted(roots, key=lambda name: (-len(roots[name].parts), name))


def _assigned_language(languages: Mapping[str, Assignment], language: str | None) -> str:
    """The language or, where nothing is assigned to it, a similar one that something is assigned to."""
    if language is None:
        return ""
    alike = [language, *sorted(related_languages(language))]
    return next((name for name in alike if languages.get(name)), language)
