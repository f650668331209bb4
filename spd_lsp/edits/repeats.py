"""The places, in the edited document and in others, where an edit wants to be repeated, and what speaks for each.

In: recent edits and open documents. Out: candidates with evidence. A renamed local name is replaced where it is
bound, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spd_lsp.completion.syntax.name_places import ATTRIBUTE, COMMENT, KEYWORD, NAME, STRING, Place
from spd_lsp.completion.syntax.parsing import request_name_places
from spd_lsp.edits.candidates import Candidate, Evidence, Opened
from spd_lsp.edits.observed import Recent
from spd_lsp.edits.probability import RENAMED
from spd_lsp.edits.rewrite import HOLE, Edit, Rewrite, rewrites
from spd_lsp.edits.sites import Site, find_sites

_NEAR_ELSEWHERE = 4  # in another document
_NEAR = 3  # a site needs so many tokens around it that are those of the edit, unless the edit says enough
_MAX_CONTEXT = 4
_BY_KIND = ("again", "near", "very near", "sites", "length", "both sides")  # evidence that counts differently
_MAX_PARSED = 4  # other documents


class _Found(NamedTuple):
    """Where a rewrite of an edit matches in a document."""

    edit: Edit
    rewrite: Rewrite
    sites: list[Site]
    part: Evidence


class _Best(NamedTuple):
    """How many tokens around a site at most are those around the edit."""

    of_rewrite: int
    exact: int  # of the rewrites of the edit that keep no words


def _best(found: Sequence[_Found]) -> dict[tuple[Edit, Rewrite], _Best]:
    nearest: dict[tuple[Edit, Rewrite], int] = {}
    for edit, rewrite, sites, _ in found:
        near = max(site.left + site.right for site in sites)
        nearest[edit, rewrite] = max(near, nearest.get((edit, rewrite), 0))
    exact: dict[Edit, int] = {}
    for (edit, rewrite), near in nearest.items():
        if not rewrite.holes:
            exact[edit] = max(near, exact.get(edit, 0))
    return {(edit, rewrite): _Best(near, exact.get(edit, 0)) for (edit, rewrite), near in nearest.items()}


def repeats(recent: Recent, edited: Opened, beside: Sequence[Opened] = ()) -> Iterator[Candidate]:
    """The places where an edit might be wanted, too."""
    spans = [(edit.start, edit.start + len(edit.new)) for edit in recent.now]
    wanted = [(edit, rewrite, part) for edit, part in _whole(recent) for rewrite in _rewrites(recent, edit)]
    found = _find(wanted, edited.text, spans)
    others = [(other, matches) for other in beside if (matches := _find(wanted, other.text))]
    if not found and not others:
        return
    places = _read_places(edited, [*spans, *_spans(found)])
    here = dict(zip(recent.now, places, strict=False))
    best = _best([*found, *(one for _, matches in others for one in matches)])
    yield from _judged(edited, here, found, places[len(spans) :], best)
    for other, matches in others[:_MAX_PARSED]:
        left = [one for one in matches if _may_leave(here[one.edit], one.edit)]
        if left:
            yield from _judged(other, here, left, _read_places(other, _spans(left)), best, elsewhere=True)


def _read_places(document: Opened, spans: Sequence[tuple[int, int]]) -> Sequence[Place | None]:
    """What stands at places of a document, by the parser's process; None where that is not known."""
    language = document.language
    return (language and request_name_places(language, document.text, spans)) or [None] * len(spans)


def _whole(recent: Recent) -> Iterator[tuple[Edit, Evidence]]:
    """The edits that say something, and whether each is a part of what was changed in its line, or all of it."""
    last = len(recent.now) - 1
    for number, edit in enumerate(recent.now):
        if _stands_alone(edit, is_part=number < last):
            yield edit, {"line: part": float(number < last), "line: whole": float(0 < number == last)}


def _rewrites(recent: Recent, edit: Edit) -> list[Rewrite]:
    return rewrites(edit, [*(other for other in recent.now if other is not edit), *recent.earlier])


def _find(
    wanted: Sequence[tuple[Edit, Rewrite, Evidence]], text: str, edited: Sequence[tuple[int, int]] | None = None
) -> list[_Found]:
    """The rewrites that match somewhere worth a look; in another document only lines like the edited one are."""
    found = []
    for edit, rewrite, part in wanted:
        sites = [site for site in find_sites(rewrite, text, edited or ()) if _is_near(rewrite, site)]
        if edited is None:
            sites = [site for site in sites if site.left + site.right >= _NEAR_ELSEWHERE]
        if sites:
            found.append(_Found(edit, rewrite, sites, part))
    return found


def _spans(found: Sequence[_Found]) -> list[tuple[int, int]]:
    return [(site.start, site.end) for one in found for site in one.sites]


def _judged(
    document: Opened,
    here: dict[Edit, Place | None],
    found: Sequence[_Found],
    places: Sequence[Place | None],
    best: dict[tuple[Edit, Rewrite], _Best],
    *,
    elsewhere: bool = False,
) -> Iterator[Candidate]:
    """The sites in a document with what speaks for each; places are theirs, in order."""
    rest = iter(places)
    for edit, rewrite, sites, part in found:
        at_edit = here[edit]
        at_sites = [next(rest) for _ in sites]
        for site, place in zip(sites, at_sites, strict=True):
            if (
                at_edit
                and place
                and edit.is_word
                and not _may_rename(at_edit, place, at_sites, elsewhere=elsewhere)
            ):
                continue
            lines = [document.text.count("\n", 0, at) for at in (site.start, edit.start)]
            distance = 0 if elsewhere else abs(lines[0] - lines[1])
            evidence = _evidence(edit, rewrite, site, len(sites), distance, best[edit, rewrite])
            evidence |= {**part, **_syntax_evidence(edit, at_edit, place, at_sites)}
            if not any(part.values()) and not elsewhere and _is_left(evidence):
                evidence = {RENAMED: 1.0}
            elif elsewhere:
                evidence |= {f"elsewhere: {name}": evidence[name] for name in ("again", "very near", "sites")}
                evidence[f"elsewhere: {_kind(edit)}"] = 1.0
            yield Candidate(document.name, site, evidence)


def _is_left(evidence: Evidence) -> bool:
    """Whether it is a use of a name whose binding was renamed, now or before."""
    if not evidence.get("word: same role") or evidence["word: text"] or evidence["word: attribute"]:
        return False
    unbound = not (evidence["word: still bound"] or evidence["word: bound there"])
    return bool(evidence["word: local"] or (evidence["again"] and evidence["word: same function"] and unbound))


def _may_leave(place: Place | None, edit: Edit) -> bool:
    """Whether an edit can matter to other documents: a local name does not, unless it is that of an argument."""
    return not (edit.is_word and place and place.is_bound and place.role == NAME and place.scopes) or bool(
        place.callee
    )


def _stands_alone(edit: Edit, *, is_part: bool) -> bool:
    """Whether an edit says something: not one bracket, nor one end of what is changed at the other end, too."""
    is_more = any(map(str.isalnum, edit.old + edit.new)) or len(edit.old + edit.new) > 1
    return is_more and not (is_part and _balance(edit.old) != _balance(edit.new))


def _is_near(rewrite: Rewrite, site: Site) -> bool:
    """Whether a site is worth a look: a text with a word in it, or a line that is like the edited one."""
    literal = any(token[:1] != HOLE and any(map(str.isalnum, token)) for token in rewrite.old)
    if literal and not rewrite.holes:
        return True
    return site.left + site.right >= _NEAR - (len(rewrite.edits) > 1) and (site.has_word or literal)


def _may_rename(here: Place, there: Place, others: Sequence[Place | None], *, elsewhere: bool) -> bool:
    """Whether a name there can be the one that was renamed where it is bound."""
    if not here.is_bound or here.role != NAME:
        return True
    scope = here.scopes[0] if here.scopes else None
    if there.role == KEYWORD:
        return bool(here.callee) and there.callee == here.callee
    if elsewhere:
        return scope is None
    if there.role == ATTRIBUTE:
        return False
    bound = [other.scopes[:1] for other in others if other and other.is_bound and other.role == NAME]
    if here.scopes[:1] in bound:  # a use may be one of the other name
        return False
    inner = there.scopes[: there.scopes.index(scope)] if scope in there.scopes else there.scopes
    return there.is_in(scope) and not any((one,) in bound for one in inner)


def _evidence(edit: Edit, rewrite: Rewrite, site: Site, sites: int, distance: int, best: _Best) -> Evidence:
    """What speaks for a site."""
    words = [sum(map(str.isalnum, (token[0] for token in side))) for side in (rewrite.old, rewrite.new)]
    near = site.left + site.right
    again = len(rewrite.edits) > 1
    evidence = {
        "again": again,
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
        "sites": math.log(sites),
        "only site": sites == 1,
        "distance": math.log1p(distance),
        "nearest": near == best.of_rewrite,
        "nearest and near": near == best.of_rewrite >= 4,
        "more general": rewrite.holes > 0 and best.exact >= 4,
        "again and near": again and near >= 4,
        "near and sites": (near >= 5) * math.log(sites),
        "only site and near": sites == 1 and near >= 5,
        **{f"near {count}": near >= count for count in (3, 5, 7, 8)},
    }
    by_kind = {f"{_kind(edit)}: {name}": evidence[name] for name in _BY_KIND}
    named = {**evidence, **by_kind, f"{_kind(edit)}: bias": 1}
    return {name: float(value) for name, value in named.items()}


def _kind(edit: Edit) -> str:
    if edit.is_word:
        return "word"
    return "insertion" if not edit.old else "deletion" if not edit.new else "other"


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
