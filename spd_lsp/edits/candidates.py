"""What proposals are made of: open documents in, candidates with evidence out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spd_lsp.completion.syntax.languages import LANGUAGES, Language
from spd_lsp.edits.sites import Site

Evidence = dict[str, float]


@dataclass(frozen=True, slots=True)
class Opened:
    """An open document at one moment."""

    name: str  # identifies it, such as a URI
    language_id: str
    text: str

    @property
    def language(self) -> Language | None:
        """Its language, if its syntax is known."""
        return LANGUAGES.get(self.language_id)


class Candidate(NamedTuple):
    """Where something might be wanted, and what speaks for it."""

    document: str
    site: Site
    evidence: Evidence
