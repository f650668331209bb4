"""The part of a repository that a user selects, as a table records it: a language, and globs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.sources.language_ids import related_languages
from ngram_builders.sources.rules.rule_files import Rule, RuleFile

INCLUDE, EXCLUDE = "--include", "--exclude"


@dataclass(frozen=True, slots=True)
class Selection:
    """Only one language if one is named; with what `include` matches, and without what `exclude` does.

    Globs are those of `.gitignore`, relative to each folder that is counted; where both match, `exclude` counts.
    """

    language: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(cls, recipe: Mapping[str, Any]) -> Selection:
        """The selection that a table's recipe records."""
        include, exclude = (tuple(map(str, recipe.get(kind) or ())) for kind in ("include", "exclude"))
        return cls(str(recipe.get("language") or "") or None, include, exclude)

    def as_recipe(self) -> dict[str, Any]:
        """How a recipe records it."""
        globs = {"include": list(self.include), "exclude": list(self.exclude)}
        return {"language": self.language, **{kind: given for kind, given in globs.items() if given}}

    def as_options(self) -> list[str]:
        """The options of `build-ngrams` that select the same."""
        given = {"--language": filter(None, [self.language]), INCLUDE: self.include, EXCLUDE: self.exclude}
        return [f"{option} {shlex.quote(value)}" for option, values in given.items() for value in values]

    @property
    def languages(self) -> frozenset[str] | None:
        """The selected language and related ones; None for all."""
        return None if self.language is None else related_languages(self.language)

    def rules(self, folder: str) -> dict[str, tuple[RuleFile, ...]]:
        """The rules of the globs below a folder, by option; raises UserError for an invalid glob."""
        given = {INCLUDE: self.include, EXCLUDE: self.exclude}
        rules = {kind: [_parse(kind, *numbered) for numbered in enumerate(globs)] for kind, globs in given.items()}
        return {kind: (RuleFile.of(folder, parsed),) for kind, parsed in rules.items() if parsed}


EVERYTHING = Selection()


def _parse(option: str, number: int, glob: str) -> Rule:
    """Parse a glob; `./` means the folder that is counted."""
    try:
        return Rule.of(glob[1:] if glob.startswith("./") else glob.replace("!./", "!/", 1), f"{option} ", number)
    except ValueError:
        problem = f"{glob!r} is no pattern of .gitignore; name files or folders, such as 'deps/' or '*.sql'"
        raise UserError(problem) from None
