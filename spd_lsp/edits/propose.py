"""The one way through: open documents and the recent edits of one in, ranked proposals with a probability out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spd_lsp.edits.candidates import Opened
from spd_lsp.edits.observed import Recent
from spd_lsp.edits.probability import MIN_PROBABILITY, probability_of
from spd_lsp.edits.repeats import repeats


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to write in place of a span of a document."""

    document: str
    start: int
    end: int
    text: str
    probability: float


def propose(recent: Recent, edited: Opened, beside: Sequence[Opened] = ()) -> list[Proposal]:
    """What is wanted after the recent edits of a document, likeliest first; each place once."""
    best: dict[tuple[str, int, int], Proposal] = {}
    for document, site, evidence in repeats(recent, edited, beside):
        probability = probability_of(evidence)
        place = (document, site.start, site.end)
        if probability >= MIN_PROBABILITY and (place not in best or probability > best[place].probability):
            best[place] = Proposal(*place, site.text, probability)
    taken: list[Proposal] = []
    for found in sorted(best.values(), key=lambda found: -found.probability):
        if not any(_overlap(found, other) for other in taken):
            taken.append(found)
    return taken


def _overlap(one: Proposal, other: Proposal) -> bool:
    return one.document == other.document and one.start <= other.end and other.start <= one.end
