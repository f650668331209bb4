"""Which tables serve a file: what the user assigned to workspaces and languages, and the rule that applies it.

In: the record of assignments, the tables, a file. Out: tables with weights. Opens no table.

The rule, see `choices_for`:

1. A file below a folder with an assignment is served by that assignment, with its weights, and by nothing else. Of
   several such folders the innermost counts.
2. Any other file is served by what was built from folders around it, innermost first, with the tables' weights,
   by the packages that the innermost project around it depends on, and by what is assigned to its language. The
   last of these decides the weight.
   A weight that nobody gave is learnt, see `learnt_weights`; where a table was built from, it has its own.
3. Either is joined by what was added to folders around the file; by 1, only to that folder and those in it.
4. A table with a fault, or without code in a language like the file's, serves nothing.

An assignment to a language adds and does not replace: no shared table knows as much of a repository as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ngram_builders.registry.learnt_weights import Learnt, LearntWeights
from ngram_builders.registry.ngram_table import NgramTable, is_weight, read_record
from ngram_builders.sources.language_ids import (
    DATA_LANGUAGES,
    LANGUAGE_BY_EXTENSION,
    LANGUAGE_BY_NAME,
    related_languages,
)

_FORMAT = 2
_KINDS = ("workspaces", "languages", "dependencies", "additions")
KNOWN_LANGUAGES = frozenset([*LANGUAGE_BY_EXTENSION.values(), *LANGUAGE_BY_NAME.values(), *DATA_LANGUAGES])

Assignment = tuple[tuple[str, float | None], ...]  # names of tables with weights; None: it is learnt
_Folder = TypeVar("_Folder", str, Path)


@dataclass(frozen=True, slots=True)
class Assignments:
    """What the user assigned; an empty assignment is none."""

    workspaces: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the folder
    languages: Mapping[str, Assignment] = field(default_factory=dict)
    dependencies: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the project
    additions: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the folder

    def by_kind(self) -> dict[str, Mapping[str, Assignment]]:
        """All four by their names."""
        return {kind: getattr(self, kind) for kind in _KINDS}

    def names(self) -> frozenset[str]:
        """Every table that is assigned anywhere."""
        kinds = self.by_kind().values()
        return frozenset(name for kind in kinds for assignment in kind.values() for name, _ in assignment)

    def only(self, names: Iterable[str]) -> Assignments:
        """The same without any other tables."""
        kept = set(names)
        return self._map(lambda name: [name] if name in kept else [])

    def only_existing(self) -> Assignments:
        """The same without folders that are gone."""

        def existing(assignments: Mapping[str, Assignment]) -> dict[str, Assignment]:
            return {folder: given for folder, given in assignments.items() if Path(folder).is_dir()}

        by_folder = {kind: existing(users) for kind, users in self.by_kind().items() if kind != "languages"}
        return replace(self, **by_folder)

    def with_alias(self, name: str, alias: str) -> Assignments:
        """The same with a second name for a table; whichever exists serves."""
        return self._map(lambda known: [known, alias] if known == name else [known])

    def _map(self, rename: Callable[[str], Iterable[str]]) -> Assignments:
        """The same with each name replaced by others, each once with its last weight."""

        def renamed(assignments: Mapping[str, Assignment]) -> dict[str, Assignment]:
            return {
                user: tuple({name: weight for known, weight in assignment for name in rename(known)}.items())
                for user, assignment in assignments.items()
            }

        return Assignments(**{kind: renamed(users) for kind, users in self.by_kind().items()})

    def to_record(self) -> dict[str, Any]:
        """The values to store: as msgpack holds them, sorted, empty ones left out."""

        def stored(assignments: Mapping[str, Assignment]) -> dict[str, list[list[str | float | None]]]:
            return {user: list(map(list, given)) for user, given in sorted(assignments.items()) if given}

        return {"format": _FORMAT, **{kind: stored(users) for kind, users in self.by_kind().items()}}


def read_assignments(file: Path) -> Assignments:
    """Read the record; without one nothing is assigned. Raises one of PARSE_ERRORS if it is invalid."""
    try:
        record = read_record(file)
    except (FileNotFoundError, NotADirectoryError):
        return Assignments()
    if record["format"] != _FORMAT:
        raise ValueError(record["format"])
    return Assignments(**{kind: _parse(record[kind]) for kind in _KINDS})


def _parse(record: Mapping[str, Any]) -> dict[str, Assignment]:
    """Workspaces or languages with what is assigned; ValueError if a weight is invalid."""
    assignments = {
        str(user): tuple((str(name), None if weight is None else float(weight)) for name, weight in assignment)
        for user, assignment in record.items()
        if assignment
    }
    if not all(weight is None or is_weight(weight) for given in assignments.values() for _, weight in given):
        raise ValueError("weight")
    return assignments


class Choice(NamedTuple):
    """With which weight a table serves a file, and why."""

    weight: float
    reason: str
    learnt_in: str | None = None  # the folder; None: the weight was given
    tokens: int = 0  # that it was learnt from


def choices_for(
    assignments: Assignments,
    tables: Mapping[str, NgramTable],
    file: Path | None,
    language: str | None,
    learnt: LearntWeights,
) -> dict[str, Choice]:
    """Return the names of the tables for a file, by the rule above; the last reason for one decides its weight.

    A file without a path has its language only.
    """
    own = _built_around(tables, file)
    choices: dict[str, Choice] = {}

    def choose(assignment: Assignment, folder: str | None, reason: str) -> None:
        for name, weight in assignment:
            choices[name] = _weighed(weight, own.get(name), folder, reason, learnt.get(folder or "", {}).get(name))

    workspace = None if file is None else _innermost(assignments.workspaces, file)
    if workspace is not None:
        choose(assignments.workspaces[workspace], workspace, f"chosen for {workspace}")
    else:
        choices |= own
        project = None if file is None else _innermost(assignments.dependencies, file)
        if project is not None:
            choose(assignments.dependencies[project], project, f"{project} depends on it")
        name = _assigned_language(assignments.languages, language)
        choose(assignments.languages.get(name, ()), _root_around(tables, file), f"chosen for {name} files")
    for folder in _added_around(assignments.additions, file, workspace):
        choose(assignments.additions[folder], folder, f"added to {folder}")
    return {
        name: choice for name, choice in choices.items() if name in tables and _can_serve(tables[name], language)
    }


def _weighed(
    weight: float | None, own: Choice | None, folder: str | None, reason: str, learnt: Learnt | None
) -> Choice:
    """A choice with the weight that was given, or the table's own where it was built from, or what was learnt."""
    if weight is not None:
        return Choice(weight, reason)
    if own is not None:
        return Choice(own.weight, reason)
    learnt = learnt or Learnt()
    return Choice(learnt.weight, reason, folder, learnt.tokens)


def _added_around(additions: Iterable[str], file: Path | None, within: str | None) -> list[str]:
    """The folders around a file that something was added to, outermost first; only in one that has a choice."""
    if file is None:
        return []
    around = [
        f for f in additions if file.is_relative_to(f) and (within is None or Path(f).is_relative_to(within))
    ]
    return sorted(around, key=len)


def _innermost(folders: Iterable[_Folder], file: Path) -> _Folder | None:
    """The deepest of these folders that a file lies in."""
    around = [folder for folder in folders if file.is_relative_to(folder)]
    return max(around, key=lambda folder: len(Path(folder).parts), default=None)


def _root_around(tables: Mapping[str, NgramTable], file: Path | None) -> str | None:
    """The innermost folder around a file that a table was built from."""
    found = file and _innermost([root for table in tables.values() for root in table.roots], file)
    return str(found) if found else None


def _built_around(tables: Mapping[str, NgramTable], file: Path | None) -> dict[str, Choice]:
    """What was built from folders around a file, innermost first."""
    roots = {name: root for name, table in tables.items() if file and (root := _innermost(table.roots, file))}
    names = sorted(roots, key=lambda name: (-len(roots[name].parts), name))
    return {name: Choice(tables[name].weight, f"built from {roots[name]}") for name in names}


def _assigned_language(languages: Mapping[str, Assignment], language: str | None) -> str:
    """The language or, where nothing is assigned to it, a similar one that something is assigned to."""
    if language is None:
        return ""
    alike = [language, *sorted(related_languages(language))]
    return next((name for name in alike if languages.get(name)), language)


def _can_serve(table: NgramTable, language: str | None) -> bool:
    """Whether a table has no fault, and code in a language like this one."""
    if table.fault is not None:
        return False
    return language is None or not table.languages or not related_languages(language).isdisjoint(table.languages)
