"""The one way through: a document and its recent edits in, ranked proposals with a probability out.

A renamed local name is replaced where it is bound, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spd_lsp.completion.syntax.languages import Language
from spd_lsp.completion.syntax.name_places import ATTRIBUTE, COMMENT, KEYWORD, NAME, STRING, Place
from spd_lsp.completion.syntax.parsing import request_name_places
from spd_lsp.edits.observed import Recent
from spd_lsp.edits.probability import MIN_PROBABILITY, Evidence, probability_of
from spd_lsp.edits.rewrite import HOLE, Edit, Rewrite, rewrites
from spd_lsp.edits.sites import Site, find_sites

_NEAR = 3  # a site needs so many tokens around it that are those of the edit, unless the edit says enough
_MAX_CONTEXT = 4


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to write in place of a span of a document."""

    start: int
    end: int
    text: str
    probability: float


def propose(recent: Recent, text: str, language: Language | None) -> list[Proposal]:
    """Where what was just changed is wanted, too, likeliest first; each place once."""
    best: dict[tuple[int, int], Proposal] = {}
    for site, evidence in candidates(recent, text, language):
        probability = probability_of(evidence)
        known = best.get((site.start, site.end))
        if probability >= MIN_PROBABILITY and (known is None or probability > known.probability):
            best[site.start, site.end] = Proposal(site.start, site.end, site.text, probability)
    taken: list[Proposal] = []
    for found in sorted(best.values(), key=lambda found: -found.probability):
        if all(found.end < other.start or other.end < found.start for other in taken):
            taken.append(found)
    return taken


def candidates(recent: Recent, text: str, language: Language | None) -> Iterator[tuple[Site, Evidence]]:
    """The places where an edit might be wanted, too, with what speaks for each."""
    edited = [(edit.start, edit.start + len(edit.new)) for edit in recent.now]
    found: list[tuple[int, Rewrite, list[Site]]] = []
    for number, edit in enumerate(recent.now):
        others = [*(other for other in recent.now if other is not edit), *recent.earlier]
        if _stands_alone(edit, is_part=number < len(recent.now) - 1):
            for rewrite in rewrites(edit, others):
                sites = [site for site in find_sites(rewrite, text, edited) if _is_near(rewrite, site)]
                found.append((number, rewrite, sites))
    spans = [*edited, *((site.start, site.end) for *_, sites in found for site in sites)]
    if len(spans) == len(edited):
        return
    unknown: list[Place | None] = [None] * len(spans)
    places = (language and request_name_places(language, text, spans)) or unknown
    rest = iter(places[len(edited) :])
    for number, rewrite, sites in found:
        edit, here, at_sites = recent.now[number], places[number], [next(rest) for _ in sites]
        for site, place in zip(sites, at_sites, strict=True):
            if not (here and place and edit.is_word) or _may_rename(here, place, at_sites):
                distance = text.count("\n", min(site.start, edit.start), max(site.start, edit.start))
                evidence = _evidence(edit, rewrite, site, len(sites), distance, text)
                part = _of_line(number, len(recent.now))
                yield site, {**part, **evidence, **_syntax_evidence(edit, here, place, at_sites)}


def _stands_alone(edit: Edit, *, is_part: bool) -> bool:
    """Whether an edit says something: not one bracket, nor one end of what is changed at the other end, too."""
    is_more = any(map(str.isalnum, edit.old + edit.new)) or len(edit.old + edit.new) > 1
    return is_more and not (is_part and _balance(edit.old) != _balance(edit.new))


def _of_line(number: int, edits: int) -> Evidence:
    """Whether an edit is a part of what was changed in its line, or all of several parts."""
    return {"line: part": float(number < edits - 1), "line: whole": float(0 < number == edits - 1)}


def _is_near(rewrite: Rewrite, site: Site) -> bool:
    """Whether a site is worth a look: a text with a word in it, or a line that is like the edited one."""
    literal = any(token[:1] != HOLE and any(map(str.isalnum, token)) for token in rewrite.old)
    if literal and not rewrite.holes:
        return True
    return site.left + site.right >= _NEAR - (len(rewrite.edits) > 1) and (site.has_word or literal)


def _may_rename(here: Place, there: Place, others: Sequence[Place | None]) -> bool:
    """Whether a name there can be the one that was renamed where it is bound."""
    if not here.is_bound or here.role != NAME:
        return True
    scope = here.scopes[0] if here.scopes else None
    if there.role == KEYWORD:
        return bool(here.callee) and there.callee == here.callee
    if there.role == ATTRIBUTE:
        return False
    bound = [other.scopes[:1] for other in others if other and other.is_bound and other.role == NAME]
    if here.scopes[:1] in bound:  # a use may be one of the other name
        return False
    inner = there.scopes[: there.scopes.index(scope)] if scope in there.scopes else there.scopes
    return there.is_in(scope) and not any((one,) in bound for one in inner)


def _evidence(edit: Edit, rewrite: Rewrite, site: Site, sites: int, distance: int, text: str) -> Evidence:
    """What speaks for a site."""
    words = [sum(map(str.isalnum, (token[0] for token in side))) for side in (rewrite.old, rewrite.new)]
    kind = "word" if edit.is_word else "insertion" if not edit.old else "deletion" if not edit.new else "other"
    near = site.left + site.right
    evidence = {
        "bias": 1,
        "again": len(rewrite.edits) > 1,
        "holes": min(rewrite.holes, 2),
        "number": edit.old.isdigit(),
        "length": math.log1p(len(edit.old)),
        "old words": min(words[0], 3),
        "new words": min(words[1], 3),
        "unbalanced": _balance(edit.old) != _balance(edit.new),
        "left": min(site.left, _MAX_CONTEXT),
        "right": min(site.right, _MAX_CONTEXT),
        "both sides": site.left > 0 and site.right > 0,
        "near": near >= 4,
        "very near": near >= 6,
        "known": math.log1p(max(0, text.count(edit.new) - 1)) if edit.is_word else 0,
        "sites": math.log(sites),
        "only site": sites == 1,
        "distance": math.log1p(distance),
    }
    return {f"{kind}: {name}": float(value) for name, value in evidence.items()}


def _balance(text: str) -> list[int]:
    """How many more brackets of each kind a text opens than it closes, and its quotes."""
    brackets = [text.count(opening) - text.count(closing) for opening, closing in ("()", "[]", "{}")]
    return brackets + [text.count(quote) % 2 for quote in "'\""]


def _syntax_evidence(
    edit: Edit, here: Place | None, there: Place | None, others: Sequence[Place | None]
) -> Evidence:
    """What the syntax says, of renamed words most."""
    if here is None or there is None:
        return {}
    texts = STRING, COMMENT
    kind = "word" if edit.is_word else "syntax"
    is_binding = edit.is_word and here.is_bound
    still_bound = edit.is_word and any(
        one
        and one.is_bound
        and one.role == here.role
        and (here.role == ATTRIBUTE or one.scopes[:1] == here.scopes[:1])
        for one in others
    )
    evidence = {
        "parsed": 1,
        "same role": here.role == there.role,
        "text only here": here.role in texts and there.role not in texts,
        "text only there": there.role in texts and here.role not in texts,
        "text": here.role in texts and there.role in texts,
        "local": is_binding and here.role == NAME and bool(here.scopes),
        "global": is_binding and here.role == NAME and not here.scopes,
        "member": is_binding and here.role == ATTRIBUTE,
        "attribute": edit.is_word and here.role == ATTRIBUTE,
        "still bound": still_bound and not here.is_bound,
        "rebound": still_bound and here.is_bound,
        "bound there": edit.is_word and there.is_bound,
        "same function": here.scopes[:1] == there.scopes[:1],
    }
    return {f"{kind}: {name}": float(value) for name, value in evidence.items()}
