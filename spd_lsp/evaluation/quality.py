"""Every arm at every place: the loop of `spd-lsp eval quality`.

In: places, arms, a model. Out: records in a store. At each place the prompt is read once, untimed, and then each
arm finds its positions in the cache; the arms take turns in an order drawn for that place. So arms differ in
nothing but how they write drafts, and slow stretches of the machine hit all of them alike.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from spd_lsp.evaluation.arms import Arm, Asker
from spd_lsp.evaluation.keystrokes import Typed, type_through
from spd_lsp.evaluation.places import Cursor, Package, Source
from spd_lsp.evaluation.prior import FilePrior, PackagePrior, Prior
from spd_lsp.evaluation.store import Record, Store
from spd_lsp.interpolation import Mixture

__all__ = ["Plan", "measure"]

Report = Callable[[str, int, int], None]
Known = Callable[[Package], PackagePrior]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done."""

    cursors: Sequence[Cursor]
    arms: Sequence[Arm]
    typed: frozenset[str] = frozenset()  # keys of places whose lines are typed through
    right: bool = True  # whether the text right of the cursor's line is shown


def measure(
    plan: Plan, packages: Sequence[Package], known: Known, asker: Asker, store: Store, report: Report
) -> None:
    """Ask what the store does not have yet, file by file in the order of the places, and store it."""
    done = {record["key"]: record for record in store.records()}
    sources = {(s.package, s.name): s for package in packages for s in package.sources}
    priors = Priors({package.name: package for package in packages}, known)
    for number, (name, group) in enumerate_places(plan.cursors):
        missing = [(cursor, *lacking(plan, cursor, done.get(cursor.key, {}))) for cursor in group]
        if any(arms or typed for _, arms, typed in missing):
            source = sources[name]
            beside = priors.beside(source)
            for i, (cursor, arms, typed) in enumerate(missing):
                report(cursor.package, number + i, len(plan.cursors))
                if arms or typed:
                    store.append(at_place(cursor, source, beside, asker, plan, arms, typed))
    report("done", len(plan.cursors), len(plan.cursors))


def enumerate_places(cursors: Sequence[Cursor]) -> Iterator[tuple[int, tuple[tuple[str, str], list[Cursor]]]]:
    """The places by runs of one file, each with the number of places before it."""
    number = 0
    for name, group in groupby(cursors, lambda cursor: (cursor.package, cursor.file)):
        members = list(group)
        yield number, (name, members)
        number += len(members)


def lacking(plan: Plan, cursor: Cursor, record: Record) -> tuple[list[Arm], list[Arm]]:
    """The arms that have not been asked at a place, and those that have not typed its line."""
    asked, typed = record.get("arms", {}), record.get("typed", {})
    return (
        [arm for arm in plan.arms if arm.label not in asked],
        [arm for arm in plan.arms if arm.types and cursor.key in plan.typed and arm.label not in typed],
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


def at_place(
    cursor: Cursor,
    source: Source,
    beside: FilePrior,
    asker: Asker,
    plan: Plan,
    arms: Sequence[Arm],
    typed: Sequence[Arm],
) -> Record:
    """Ask arms at one place; some of them type the line through."""
    mixtures = beside.mixtures(cursor, right=plan.right)
    record: Record = {"key": cursor.key, "place": dataclasses.asdict(cursor), "seen": beside.seen(cursor)}
    if arms:
        record |= asked(cursor, source, mixtures, asker, plan, arms)
    if typed:
        record["typed"] = {
            arm.label: dataclasses.asdict(through(cursor, source, mixtures[arm.prior], asker, plan, arm))
            for arm in typed
        }
    return record


def asked(
    cursor: Cursor,
    source: Source,
    mixtures: Mapping[Prior, Mixture | None],
    asker: Asker,
    plan: Plan,
    arms: Sequence[Arm],
) -> dict[str, Any]:
    """What each arm answers, asked in an order drawn for this place."""
    question = asker.question(gap(source.text, cursor, "", plan.right), cursor.at, source.language)
    warm_ms = asker.warm(question)
    replies = {}
    for arm in random.Random(cursor.key).sample(list(arms), len(arms)):
        replies[arm.label] = dataclasses.asdict(asker.ask(arm, question, mixtures[arm.prior]))
    return {"prompt_tokens": len(question.prompt.ids), "warm_ms": warm_ms, "arms": replies}


def through(cursor: Cursor, source: Source, mixture: Mixture | None, asker: Asker, plan: Plan, arm: Arm) -> Typed:
    """One arm's help with typing the rest of a line."""

    def complete(written: str) -> Sequence[str]:
        text = gap(source.text, cursor, written, plan.right)
        return asker.ask(arm, asker.question(text, cursor.at + len(written), source.language), mixture).drafts

    return type_through(cursor.target, complete)


def gap(text: str, cursor: Cursor, written: str, right: bool) -> str:
    """The text as it is once so much of the target is written: the line's rest is not there yet."""
    end = cursor.line_end - 1 if text[cursor.line_end - 1 : cursor.line_end] == "\n" else cursor.line_end
    return text[: cursor.at] + written + (text[end:] if right else "")
