"""Every arm at every place: the loop of `spd-lsp eval quality`.

In: places, arms, a model. Out: records in a store. At each place the prompt is read once, untimed, and then each
arm finds its positions in the cache; the arms take turns in an order drawn for that place. So arms differ in
nothing but how they write drafts, and slow stretches of the machine hit all of them alike.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from spd_lsp.evaluation.arms import Arm, Asker, Question, Reply
from spd_lsp.evaluation.keystrokes import Typed, type_through
from spd_lsp.evaluation.places import Cursor, Package, Source
from spd_lsp.evaluation.prior import FilePrior, PackagePrior, Prior
from spd_lsp.evaluation.store import Record, Store
from spd_lsp.ngrams.interpolation import Mixture

Report = Callable[[str, int, int], None]
Known = Callable[[Package], PackagePrior]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done."""

    cursors: Sequence[Cursor]
    arms: Sequence[Arm]
    typed: frozenset[str] = frozenset()  # keys of places whose lines are typed through
    drawn: frozenset[str] = frozenset()  # keys of places where samplers draw more
    right: bool = True  # whether the text right of the cursor's line is shown


def measure(
    plan: Plan, packages: Sequence[Package], known: Known, asker: Asker, store: Store, report: Report
) -> None:
    """Ask what the store does not have yet, file by file in the order of the places, and store it."""
    done = {record["key"]: record for record in store.records()}
    sources = {(s.package, s.name): s for package in packages for s in package.sources}
    priors = Priors({package.name: package for package in packages}, known)
    for number, (name, group) in _enumerate_places(plan.cursors):
        missing = [(cursor, _lacking(plan, cursor, done.get(cursor.key, {}))) for cursor in group]
        if any(work.any for _, work in missing):
            source = sources[name]
            beside = priors.beside(source)
            for i, (cursor, work) in enumerate(missing):
                report("places", number + i, len(plan.cursors))
                if work.any:
                    store.append(_at_place(Site(cursor, source, beside, asker, plan.right), work))
    report("places", len(plan.cursors), len(plan.cursors))


def _enumerate_places(cursors: Sequence[Cursor]) -> Iterator[tuple[int, tuple[tuple[str, str], list[Cursor]]]]:
    """The places by runs of one file, each with the number of places before it."""
    number = 0
    for name, group in groupby(cursors, lambda cursor: (cursor.package, cursor.file)):
        members = list(group)
        yield number, (name, members)
        number += len(members)


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done at a place."""

    asked: list[Arm]
    typed: list[Arm]
    drawn: list[Arm]

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.asked or self.typed or self.drawn)


def _lacking(plan: Plan, cursor: Cursor, record: Record) -> Work:
    """What of the plan a record of this place does not hold."""
    typing = [arm for arm in plan.arms if arm.types and cursor.key in plan.typed]
    drawing = [arm for arm in plan.arms if arm.draws and cursor.key in plan.drawn]
    return Work(
        [arm for arm in plan.arms if arm.label not in record.get("arms", {})],
        [arm for arm in typing if arm.label not in record.get("typed", {})],
        [arm for arm in drawing if arm.label not in record.get("draws", {})],
    )


class Priors:
    """The counts of each package, made when its first file is asked for, and kept: packages take turns."""

    def __init__(self, packages: Mapping[str, Package], known: Known) -> None:
        self.packages = packages
        self.known = known
        self.kept: dict[str, PackagePrior] = {}

    def beside(self, source: Source) -> FilePrior:
        """What is known beside a file."""
        if source.package not in self.kept:
            self.kept[source.package] = self.known(self.packages[source.package])
        return self.kept[source.package].beside(source)


class Site:
    """A place with all that is known there."""

    def __init__(self, cursor: Cursor, source: Source, beside: FilePrior, asker: Asker, right: bool) -> None:
        self.cursor = cursor
        self.source = source
        self.beside = beside
        self.asker = asker
        self.right = right
        self.mixtures: Mapping[Prior, Mixture | None] = beside.mixtures(cursor, right=right)

    def question(self, written: str = "") -> Question:
        """What is asked once so much of the target is written."""
        text = gap(self.source.text, self.cursor, written, self.right)
        return self.asker.question(text, self.cursor.at + len(written), self.source.language)

    def ask(self, arm: Arm, question: Question) -> Reply:
        """One arm's answer."""
        return self.asker.ask(arm, question, self.mixtures[arm.prior])

    def type(self, arm: Arm) -> Typed:
        """One arm's help with typing the rest of the line."""
        return type_through(self.cursor.target, lambda written: self.ask(arm, self.question(written)).drafts)

    def draw(self, arm: Arm) -> list[str]:
        """What a sampler draws if it draws often."""
        return self.asker.draw(arm, self.question(), self.mixtures[arm.prior])


def _at_place(site: Site, work: Work) -> Record:
    """Ask arms at one place; some of them type the line through, some draw more."""
    cursor = site.cursor
    record: Record = {"key": cursor.key, "place": dataclasses.asdict(cursor), "seen": site.beside.seen(cursor)}
    if work.asked:
        record |= answers(site, work.asked)
    if work.typed:
        record["typed"] = {arm.label: dataclasses.asdict(site.type(arm)) for arm in work.typed}
    if work.drawn:
        record["draws"] = {arm.label: site.draw(arm) for arm in work.drawn}
    return record


def answers(site: Site, arms: Sequence[Arm]) -> dict[str, Any]:
    """What each arm answers, asked in an order drawn for this place, the prompt being read."""
    question = site.question()
    warm_ms = site.asker.warm(question)
    turns = random.Random(site.cursor.key).sample(list(arms), len(arms))
    turn = round(time.time())  # arms asked in one turn met the same machine
    replies = {arm.label: {**dataclasses.asdict(site.ask(arm, question)), "turn": turn} for arm in turns}
    return {"prompt_tokens": len(question.prompt.ids), "warm_ms": warm_ms, "arms": replies}


def gap(text: str, cursor: Cursor, written: str, right: bool) -> str:
    """The text as it is once so much of the target is written: the line's rest is not there yet."""
    end = cursor.line_end - 1 if text[cursor.line_end - 1 : cursor.line_end] == "\n" else cursor.line_end
    return text[: cursor.at] + written + (text[end:] if right else "")
