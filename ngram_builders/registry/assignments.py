"""Which domains serve a file: what people chose for workspaces and languages, and the rule that applies it.

Comes in: the record of choices, the domains, a file. Goes out: domains with weights. Knows no tables.

The rule, see `serving`:

1. A file below a folder with a choice is served by that choice, with its weights, and by nothing else. Of several
   such folders the innermost counts.
2. Any other file is served by what was built from around it, innermost first, with the weights of the domains; and
   by what was chosen for its language besides. What is both has the chosen weight.
3. A domain with a fault or without code like the file's language serves nothing.

A choice for a language adds and does not replace: no shared table knows as much of a repository as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngram_builders.registry.domains import Domain, read_record
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION, LANGUAGE_BY_NAME, related_languages

_FORMAT = 2
KNOWN_LANGUAGES = frozenset([*LANGUAGE_BY_EXTENSION.values(), *LANGUAGE_BY_NAME.values()])

Assignment = tuple[tuple[str, float], ...]  # names of domains with weights


@dataclass(frozen=True, slots=True)
class Assignments:
    """What people chose; a choice of nothing is none."""

    workspaces: Mapping[str, Assignment] = field(default_factory=dict)  # by the real path of the folder
    languages: Mapping[str, Assignment] = field(default_factory=dict)

    def names(self) -> frozenset[str]:
        """Every domain that is chosen anywhere."""
        chosen = [*self.workspaces.values(), *self.languages.values()]
        return frozenset(name for choice in chosen for name, _ in choice)

    def users(self, name: str) -> tuple[tuple[str, float], ...]:
        """The workspaces and languages that chose a domain, with its weight there."""
        chosen = [*self.workspaces.items(), *self.languages.items()]
        return tuple((user, weight) for user, choice in chosen for found, weight in choice if found == name)

    def map(self, change: Callable[[Assignment], Iterable[tuple[str, float]]]) -> Assignments:
        """The same with every choice changed."""
        return Assignments(
            {workspace: _without_repeats(change(choice)) for workspace, choice in self.workspaces.items()},
            {language: _without_repeats(change(choice)) for language, choice in self.languages.items()},
        )

    def only(self, names: Iterable[str]) -> Assignments:
        """The same without what is not among these."""
        kept = set(names)
        return self.map(lambda choice: [use for use in choice if use[0] in kept])

    def both(self, old: str, new: str) -> Assignments:
        """The same with a second name for a domain; whichever exists is heard."""
        return self.map(lambda choice: [(name, w) for known, w in choice for name in _alias(known, old, new)])

    def record(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "format": _FORMAT,
            "workspaces": {user: _as_lists(choice) for user, choice in sorted(self.workspaces.items()) if choice},
            "languages": {user: _as_lists(choice) for user, choice in sorted(self.languages.items()) if choice},
        }


def _without_repeats(choice: Iterable[tuple[str, float]]) -> Assignment:
    """Each name once, with its last weight."""
    return tuple(dict(choice).items())


def _alias(name: str, old: str, new: str) -> tuple[str, ...]:
    """Example: mine, mine, yours -> mine and yours; other, mine, yours -> other."""
    return (old, new) if name == old else (name,)


def _as_lists(choice: Assignment) -> list[list[str | float]]:
    """As msgpack holds it."""
    return [[name, weight] for name, weight in choice]


def read_assignments(file: Path) -> Assignments:
    """The record of choices; without one nothing is chosen. Raises what the standard types raise if it is none."""
    try:
        record = read_record(file)
    except (FileNotFoundError, NotADirectoryError):
        return Assignments()
    if "format" not in record:  # before there were choices for languages
        return Assignments(_as_choices(record))
    if record["format"] != _FORMAT:
        raise ValueError(record["format"])
    return Assignments(_as_choices(record["workspaces"]), _as_choices(record["languages"]))


def _as_choices(record: Mapping[str, Any]) -> dict[str, Assignment]:
    """Users of any kind with what they chose; ValueError if a weight can be none."""
    choices = {
        str(user): tuple((str(name), float(weight)) for name, weight in choice)
        for user, choice in record.items()
        if choice
    }
    if not all(0 < weight <= 1 for choice in choices.values() for _, weight in choice):
        raise ValueError("weight")
    return choices


def domains_for(
    uses: Assignments, domains: Mapping[str, Domain], file: Path | None, language: str | None
) -> list[tuple[Domain, float]]:
    """The domains for a file, by the rule above. A file without a path has its language only."""
    workspace = None if file is None else _innermost(uses.workspaces, file)
    if workspace is not None:
        named: Mapping[str, float] = dict(uses.workspaces[workspace])
    else:
        named = {**_built_around(domains, file), **dict(_chosen_for(uses.languages, language))}
    return [
        (domains[name], weight)
        for name, weight in named.items()
        if name in domains and _serves(domains[name], language)
    ]


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


def _chosen_for(languages: Mapping[str, Assignment], language: str | None) -> Assignment:
    """What was chosen for a language or, without a choice of its own, for one that is written alike."""
    if language is None:
        return ()
    alike = [language, *sorted(related_languages(language))]
    return next((languages[name] for name in alike if languages.get(name)), ())


def _serves(domain: Domain, language: str | None) -> bool:
    """Whether a domain is sound and has code like this language's."""
    if domain.fault is not None:
        return False
    return language is None or not domain.languages or not related_languages(language).isdisjoint(domain.languages)
