"""Which domains serve a file: what the user assigned to workspaces and languages, and the rule that applies it.

In: the record of assignments, the domains, a file. Out: domains with weights. Knows no tables.

The rule, see `domains_for`:

1. A file below a folder with an assignment is served by that assignment, with its weights, and by nothing else. Of
   several such folders the innermost counts.
2. Any other file is served by what was built from folders around it, innermost first, with the domains' weights,
   by the packages that the innermost project around it depends on, and by what is assigned to its language. The
   last of these decides the weight.
3. Either is joined by what was added to folders around the file; by 1, only to that folder and those in it.
4. A domain with a fault, or without code in a language like the file's, serves nothing.

An assignment to a language adds and does not replace: no shared table knows as much of a repository as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngram_builders.registry.domains import Domain, is_weight, read_record
from ngram_builders.sources.language_ids import (
    DATA_LANGUAGES,
    LANGUAGE_BY_EXTENSION,
    LANGUAGE_BY_NAME,
    related_languages,
)

_FORMAT = 2
KNOWN_LANGUAGES = frozenset([*LANGUAGE_BY_EXTENSION.values(), *LANGUAGE_BY_NAME.values(), *DATA_LANGUAGES])

Assignment = tuple[tuple[str, float], ...]  # names of domains with weights


@dataclass(frozen=True, slots=True)
class Assignments:
    """What the user assigned; an empty assignment is none."""

    workspaces: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the folder
    languages: Mapping[str, Assignment] = field(default_factory=dict)
    dependencies: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the project
    additions: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the folder

    def names(self) -> frozenset[str]:
        """Every domain that is assigned anywhere."""
        kinds = (self.workspaces, self.languages, self.dependencies, self.additions)
        return frozenset(name for kind in kinds for assignment in kind.values() for name, _ in assignment)

    def only(self, names: Iterable[str]) -> Assignments:
        """The same without any other domains."""
        kept = set(names)
        return self._map(lambda name: [name] if name in kept else [])

    def only_existing(self) -> Assignments:
        """The same without folders that are gone."""

        def existing(assignments: Mapping[str, Assignment]) -> dict[str, Assignment]:
            return {folder: given for folder, given in assignments.items() if Path(folder).is_dir()}

        folders = (existing(kind) for kind in (self.workspaces, self.dependencies, self.additions))
        workspaces, dependencies, additions = folders
        return Assignments(workspaces, self.languages, dependencies, additions)

    def with_alias(self, name: str, alias: str) -> Assignments:
        """The same with a second name for a domain; whichever exists serves."""
        return self._map(lambda known: [known, alias] if known == name else [known])

    def _map(self, rename: Callable[[str], Iterable[str]]) -> Assignments:
        """The same with each name replaced by others, each once with its last weight."""

        def renamed(assignments: Mapping[str, Assignment]) -> dict[str, Assignment]:
            return {
                user: tuple({name: weight for known, weight in assignment for name in rename(known)}.items())
                for user, assignment in assignments.items()
            }

        kinds = (self.workspaces, self.languages, self.dependencies, self.additions)
        return Assignments(*map(renamed, kinds))

    def to_record(self) -> dict[str, Any]:
        """The values to store."""
        return {
            "format": _FORMAT,
            "workspaces": _as_lists(self.workspaces),
            "languages": _as_lists(self.languages),
            "dependencies": _as_lists(self.dependencies),
            "additions": _as_lists(self.additions),
        }


def _as_lists(assignments: Mapping[str, Assignment]) -> dict[str, list[list[str | float]]]:
    """As msgpack holds them, sorted, empty ones left out."""
    return {user: [list(pair) for pair in given] for user, given in sorted(assignments.items()) if given}


def read_assignments(file: Path) -> Assignments:
    """Read the record; without one nothing is assigned. Raises one of PARSE_ERRORS if it is invalid."""
    try:
        record = read_record(file)
    except (FileNotFoundError, NotADirectoryError):
        return Assignments()
    if "format" not in record:  # before there were assignments to languages
        return Assignments(_parse(record))
    if record["format"] != _FORMAT:
        raise ValueError(record["format"])
    later = (record.get(kind, {}) for kind in ("dependencies", "additions"))  # earlier versions recorded none
    return Assignments(_parse(record["workspaces"]), _parse(record["languages"]), *map(_parse, later))


def _parse(record: Mapping[str, Any]) -> dict[str, Assignment]:
    """Workspaces or languages with what is assigned; ValueError if a weight is invalid."""
    assignments = {
        str(user): tuple((str(name), float(weight)) for name, weight in assignment)
        for user, assignment in record.items()
        if assignment
    }
    if not all(is_weight(weight) for assignment in assignments.values() for _, weight in assignment):
        raise ValueError("weight")
    return assignments


def domains_for(
    assignments: Assignments, domains: Mapping[str, Domain], file: Path | None, language: str | None
) -> list[tuple[Domain, float]]:
    """Return the domains for a file, by the rule above. A file without a path has its language only."""
    workspace = None if file is None else _innermost(assignments.workspaces, file)
    if workspace is not None:
        weights: Mapping[str, float] = dict(assignments.workspaces[workspace])
    else:
        project = None if file is None else _innermost(assignments.dependencies, file)
        weights = {
            **_built_around(domains, file),
            **dict(assignments.dependencies[project] if project is not None else ()),
            **dict(_assigned_to(assignments.languages, language)),
        }
    weights = {**weights, **_added_around(assignments.additions, file, workspace)}
    return [
        (domains[name], weight)
        for name, weight in weights.items()
        if name in domains and _can_serve(domains[name], language)
    ]


def _added_around(additions: Mapping[str, Assignment], file: Path | None, within: str | None) -> dict[str, float]:
    """What was added to folders around a file, inside of one folder if there is a choice for that one."""
    if file is None:
        return {}
    around = [
        f for f in additions if file.is_relative_to(f) and (within is None or Path(f).is_relative_to(within))
    ]
    return {name: w for folder in sorted(around, key=len) for name, w in additions[folder]}


def _innermost(workspaces: Iterable[str], file: Path) -> str | None:
    """The deepest of these folders that a file lies in."""
    around = [workspace for workspace in workspaces if file.is_relative_to(workspace)]
    return max(around, key=lambda workspace: len(Path(workspace).parts), default=None)


def _built_around(domains: Mapping[str, Domain], file: Path | None) -> dict[str, float]:
    """What was built from folders around a file, innermost first."""
    depths = {name: _root_depth(domain, file) for name, domain in domains.items()}
    names = sorted((name for name in depths if depths[name]), key=lambda name: (-depths[name], name))
    return {name: domains[name].weight for name in names}


def _root_depth(domain: Domain, file: Path | None) -> int:
    """How deep the innermost of the domain's roots around a file lies; 0 if none is."""
    if file is None:
        return 0
    return max((len(root.parts) for root in domain.roots if file.is_relative_to(root)), default=0)


def _assigned_to(languages: Mapping[str, Assignment], language: str | None) -> Assignment:
    """What is assigned to a language or, without an assignment of its own, to a similar one."""
    if language is None:
        return ()
    alike = [language, *sorted(related_languages(language))]
    return next((languages[name] for name in alike if languages.get(name)), ())


def _can_serve(domain: Domain, language: str | None) -> bool:
    """Whether a domain has no fault, and code in a language like this one."""
    if domain.fault is not None:
        return False
    return language is None or not domain.languages or not related_languages(language).isdisjoint(domain.languages)
