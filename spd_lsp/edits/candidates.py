"""What proposals are made of: open documents in, candidates with evidence out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from spd_lsp.completion.syntax.languages import LANGUAGES, Language
from spd_lsp.completion.syntax.name_places import Place
from spd_lsp.edits.sites import Site

Evidence = dict[str, float]

_IMPORT = re.compile(r"^[ \t]*(?:from|import|export|\}[ \t]*from|(?:const|let|var)\b.{0,200}\brequire)\b.{0,400}", re.MULTILINE)


@dataclass(frozen=True)
class Opened:
    """An open document at one moment."""

    name: str  # identifies it, such as a URI
    language_id: str
    text: str

    @property
    def language(self) -> Language | None:
        """Its language, if its syntax is known."""
        return LANGUAGES.get(self.language_id)

    @property
    def stem(self) -> str:
        """What others import it by: its file's name, or that of the folder it stands for."""
        path = PurePosixPath(self.name)
        return path.parent.name if path.stem in ("__init__", "index", "mod") else path.stem

    @cached_property
    def import_words(self) -> frozenset[str]:
        """The words of its import lines."""
        return frozenset(word for line in _IMPORT.findall(self.text) for word in re.findall(r"[\w-]+", line))


class Candidate(NamedTuple):
    """Where something might be wanted, and what speaks for it."""

    document: str
    site: Site
    evidence: Evidence


ReadPlaces = Callable[[Opened, Sequence[tuple[int, int]]], Sequence[Place | None]]
