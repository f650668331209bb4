"""Which tables serve a file: what the user assigned to workspaces and languages, and the rule that applies it.

In: the record of assignments, the tables, a file. Out: tables with weights. Opens no table.

The rule, see `choices_for`:

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
from typing import NamedTuple, TypeVar

from ngram_builders.registry.ngram_table import DEFAULT_WEIGHT, GUEST_WEIGHT, NgramTable
from ngram_builders.scratch import read_record
from ngram_builders.sources.language_ids import related_languages

Assignment = Mapping[str, float | None]  # weights by the names of tables; None: none was given
_Folder = TypeVar("_Folder", str, Path)


@dataclass(frozen=True, slots=True)
class Assignments:
    """What the user assigned; an empty assignment is none."""

    workspaces: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the folder
    languages: Mapping[str, Assignment] = field(default_factory=dict)

    def names(self) -> frozenset[str]:
        """Every table that is assigned anywhere."""
        given = (*self.workspaces.values(), *self.languages.values())
        return frozenset(name for assignment in given for name in assignment)

    def only(self, names: Iterable[str]) -> Assignments:
        """The same without any other tables."""
        return self._renamed({name: [name] for name in names})

    def with_alias(self, name: str, alias: str) -> Assignments:
        """The same with a second name for a table; whichever exists serves."""
        return self._renamed({**{known: [known] for known in self.names()}, name: [name, alias]})

    def _renamed(self, names: Mapping[str, Iterable[str]]) -> Assignments:
        """The same with each table replaced by others."""

        def renamed(users: Mapping[str, Assignment]) -> dict[str, Assignment]:
            return {
                user: {name: weight for known, weight in given.items() for name in names.get(known, ())}
                for user, given in users.items()
            }

        return Assignments(renamed(self.workspaces), renamed(self.languages))


def read_assignments(file: Path) -> Assignments:
    """Read the record; without one nothing is assigned. Raises one of RECORD_ERRORS if it is invalid."""
    try:
        record = read_record(file)
    except (FileNotFoundError, NotADirectoryError):
        return Assignments()
    return Assignments(**{kind: {user: dict(given) for user, given in record[kind].items()} for kind in record})


class Choice(NamedTuple):
    """With which weight a table serves a file, and why."""

    weight: float
    reason: str


def choices_for(
    assignments: Assignments,
    tables: Mapping[str, NgramTable],
    file: Path | None,
    language: str | None,
) -> dict[str, Choice]:
    """Return the names of the tables for a file, by the rule above; the last reason for one decides its weight.

    A file without a path has its language only.
    """
    own = _built_around(tables, file)
    choices: dict[str, Choice] = {}
    if file is not None and (workspace := _innermost(assignments.workspaces, file)):
        assigned, reason = assignments.workspaces[workspace], f"chosen for {workspace}"
    else:
        choices |= own
        name = _assigned_language(assignments.languages, language)
        assigned, reason = assignments.languages.get(name, {}), f"chosen for {name} files"
    for name, weight in assigned.items():
        usual = DEFAULT_WEIGHT if name in own else GUEST_WEIGHT
        choices[name] = Choice(usual if weight is None else weight, reason)
    related = related_languages(language) if language else frozenset[str]()
    sound = {name: set(table.languages) for name, table in tables.items() if table.fault is None}
    return {
        name: choice
        for name, choice in choices.items()
        if name in sound and (not related or not sound[name] or sound[name] & related)
    }


def _innermost(folders: Iterable[_Folder], file: Path) -> _Folder | None:
    """The deepest of these folders that a file lies in."""
    around = [folder for folder in folders if file.is_relative_to(folder)]
    return max(around, key=lambda folder: len(Path(folder).parts), default=None)


def _built_around(tables: Mapping[str, NgramTable], file: Path | None) -> dict[str, Choice]:
    """What was built from folders around a file, innermost first."""
    roots = {name: root for name, table in tables.items() if file and (root := _innermost(table.roots, file))}
    names = sorted(roots, key=lambda name: (-len(roots[name].parts), name))
    return {name: Choice(DEFAULT_WEIGHT, f"built from {roots[name]}") for name in names}


def _assigned_language(languages: Mapping[str, Assignment], language: str | None) -> str:
    """The language or, where nothing is assigned to it, a similar one that something is assigned to."""
    if language is None:
        return ""
    alike = [language, *sorted(related_languages(language))]
    return next((name for name in alike if languages.get(name)), language)
