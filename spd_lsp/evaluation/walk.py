"""Tuning on repositories: ways asked at places, walked from one to the next, and judged where nothing was chosen.

In: a session with its places. Out: what to keep for the model, and a report. Every other file is tuned on, the
rest judges. All that is asked is kept in the session's store, so that a walk that was stopped goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np

from ngram_builders.arrays import F64
from ngram_builders.ngrams import ORDERS
from ngram_builders.registry.domains import DEFAULT_WEIGHT
from ngram_builders.table.format import OrderWeights
from spd_lsp.completion.calibration import share_right
from spd_lsp.completion.tuned_settings import ORDER_WEIGHTS, Tuned
from spd_lsp.evaluation.arms import FULL, Arm
from spd_lsp.evaluation.bootstrap import Draws, Interval
from spd_lsp.evaluation.coordinate_descent import GLANCE, Walk, descend, odd, threshold
from spd_lsp.evaluation.places import Cursor, Package, Source
from spd_lsp.evaluation.prior import FilePrior, PackagePrior, Prior
from spd_lsp.evaluation.quality import Plan, measure
from spd_lsp.evaluation.report_writer import Cell, Report, Table, plain_points
from spd_lsp.evaluation.session import Session
from spd_lsp.evaluation.store import Record
from spd_lsp.models.checkpoint.hub import STARTER, built_in_domains
from spd_lsp.ngrams.interpolation import BUILT_IN_WEIGHT, ROWS, Mixture
from spd_lsp.ngrams.weight_fitting import PLACES, Read, Reader, judge, read_beside
from spd_lsp.settings import Settings

NAME = "tune"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept, and what it is worth where it was not chosen."""

    kept: Mapping[str, Any]  # for `tuning.write_tuned`; empty if the settings as they come are no worse
    walk: Walk
    gain: Interval  # of a line being among the drafts
    report: Report


class KeptPrior(PackagePrior):
    """A package's counts with those of its files, kept from step to step; believed by other rows if so asked."""

    def __init__(self, plain: PackagePrior, rows: OrderWeights | None) -> None:
        self.__dict__ |= plain.__dict__
        self.rows = rows
        self.kept: dict[str, FilePrior] = {}

    def beside(self, source: Source) -> FilePrior:
        """See `PackagePrior.beside`."""
        if source.name not in self.kept:
            found = super().beside(source)
            self.kept[source.name] = WeighedPrior(found, self.rows) if self.rows else found
        return self.kept[source.name]


class WeighedPrior(FilePrior):
    """What is known beside a file, believed by other rows."""

    def __init__(self, plain: FilePrior, rows: OrderWeights) -> None:
        self.__dict__ |= plain.__dict__
        self.rows = rows

    def mixtures(self, cursor: Cursor, *, right: bool = True) -> dict[Prior, Mixture | None]:
        """See `FilePrior.mixtures`."""
        found = super().mixtures(cursor, right=right)
        return {name: mixture and mixture.weighed(self.rows) for name, mixture in found.items()}


class Ways:
    """Ways to complete, asked at places of a session; weights are fitted when a way first wants them."""

    def __init__(self, session: Session, tuned_on: Sequence[Cursor]) -> None:
        self.session = session
        self.tuned_on = tuned_on
        self.rows: OrderWeights | None = None

        @cache
        def counted(name: str) -> PackagePrior:
            package = next(one for one in session.packages if one.name == name)
            built_in = built_in_domains(session.folder) if session.options.model == STARTER else {}
            return PackagePrior(package, session.tokens, built_in)

        @cache
        def known(name: str, fitted: bool) -> PackagePrior:
            return KeptPrior(counted(name), self.fitted() if fitted else None)

        self.known, self.counted = known, counted

    def fitted(self) -> OrderWeights:
        """How much each order is believed, fitted on what was written at the places tuned on."""
        if self.rows is None:
            files = {(cursor.package, cursor.file) for cursor in self.tuned_on}
            read = [
                one
                for number, package in enumerate(self.session.packages)
                for one in self.read(package, files, number)
            ]
            found = judge(read)
            weights = found.weights if found else ROWS
            # Rounded down, so that no row has more than all.
            self.rows = tuple(tuple(math.floor(1e4 * weight) / 1e4 for weight in row) for row in weights)
        return self.rows

    def read(self, package: Package, files: Set[tuple[str, str]], number: int) -> Iterator[Read]:
        """What orders and model say of the files tuned on, each judged without itself."""
        session, known = self.session, self.counted(package.name)
        session.report("weights", number, len(session.packages))
        chosen = [
            stream
            for source, stream in zip(known.sources, known.streams, strict=True)
            if (source.package, source.name) in files
        ]
        beside = [[table.columns] for table in known.built_in.values()]
        shares = [DEFAULT_WEIGHT, *(BUILT_IN_WEIGHT for _ in beside)]
        places = PLACES // len(session.packages)
        model = cast(Reader, session.asker.model)  # as `load` opened it
        yield from read_beside(model, [[known.columns], *beside], shares, chosen, ORDERS, places)

    def ask(self, ways: Sequence[Tuned], cursors: Sequence[Cursor]) -> list[Record]:
        """The records of these places, with every way in them."""
        session = self.session
        for fitted in (False, True):
            arms = [arm_of(way) for way in ways if (ORDER_WEIGHTS in way) == fitted]

            def known(package: Package, fitted: bool = fitted) -> PackagePrior:
                return self.known(package.name, fitted)

            if arms:
                plan = Plan(cursors, arms, right=not session.options.left_only)
                measure(plan, session.packages, known, session.asker, session.store, session.report)
        chosen = {cursor.key for cursor in cursors}
        return [record for record in session.store.records() if record["key"] in chosen]

    def score(self, ways: Sequence[Tuned]) -> list[tuple[float, ...]]:
        """EM@k, then EM@1, of each way where it is tuned."""
        k = self.session.options.drafts
        records = self.ask(ways, self.tuned_on)
        return [tuple(float(_hits(records, way, n).mean()) for n in (k, 1)) for way in ways]


def arm_of(way: Tuned) -> Arm:
    """A way as an arm of its own."""
    settings = {name: value for name, value in way.items() if name != ORDER_WEIGHTS}
    label = ":".join(["superposed", *(f"{name}={value}" for name, value in way.items())])
    return Arm(f"{label}@{FULL}", "superposed", FULL, settings)


def _hits(records: Sequence[Record], way: Tuned, k: int) -> F64:
    """Whether one of a way's first k drafts is what was written. [P]"""
    label = arm_of(way).label
    return np.array([float(one["place"]["target"] in one["arms"][label]["drafts"][:k]) for one in records])


def walk_grid(session: Session, cursors: Sequence[Cursor]) -> Outcome:
    """Walk on one half of the files, judge on the other, and say what to keep."""
    second = odd([f"{cursor.package}/{cursor.file}" for cursor in cursors])
    tuned_on, judged_on = ([c for c, other in zip(cursors, second, strict=True) if other == half]
                           for half in (False, True))  # fmt: skip
    ways = Ways(session, tuned_on)
    walk = descend(ways.score)
    judged = ways.ask([{}, walk.best], judged_on)
    k = session.options.drafts
    differ = {n: _difference(judged, _hits(judged, walk.best, n) - _hits(judged, {}, n)) for n in (1, k)}
    kept: dict[str, Any] = dict(walk.best) if differ[k].mean > 0 else {}
    best: Tuned = walk.best if kept else {}
    least = _least_of(ways.ask([best], tuned_on), best, k)
    if kept.get(ORDER_WEIGHTS):
        kept[ORDER_WEIGHTS] = ways.fitted()
    if least and _worth_of(judged, best, k, least) > _worth_of(judged, best, k, 0.0):
        kept["min_probability"] = least
    tables = [
        _judged_table(judged, walk, differ, k),
        _grid_table(walk, k),
        _confidence_table(judged, best, k, least),
    ]
    facts = {**session.facts, "places tuned on": len(tuned_on), "places judged on": len(judged_on)}
    data = {"kept": kept, "best": walk.best, "weights": ways.rows or ()}
    return Outcome(kept, walk, differ[k], Report(NAME, "Settings tuned", facts, tables, data))


def _difference(records: Sequence[Record], gains: F64) -> Interval:
    """The mean of what is gained at each place, with its interval."""
    places = [record["place"] for record in records]
    draws = Draws([one["package"] for one in places], [one["file"] for one in places])
    return draws.intervals(gains[:, None], np.ones((len(gains), 1)))[0]


# --- from which probability on a draft is offered -------------------------------------------------------------


def _drafts_of(records: Sequence[Record], way: Tuned, k: int) -> tuple[F64, F64, F64]:
    """Of every draft: how often one like it is said to be right, whether it is, and its characters. [P] each"""
    found = [
        (share_right(p, first=not rank, ngrams=True), float(text == one["place"]["target"]), float(len(text)))
        for one in records
        for reply in [one["arms"][arm_of(way).label]]
        for rank, (text, p) in enumerate(zip(reply["drafts"][:k], reply["probabilities"], strict=False))
    ]
    table = np.array(found, dtype=np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _least_of(records: Sequence[Record], way: Tuned, k: int) -> float:
    """The probability from which drafts are worth reading; 0 where what is known of them is no probability."""
    settings = Settings()
    usual = (settings.ranking, settings.interpolation)
    if (way.get("ranking", usual[0]), way.get("interpolation", usual[1])) != usual:
        return 0.0
    return threshold(*_drafts_of(records, way, k))


def _worth_of(records: Sequence[Record], way: Tuned, k: int, least: float) -> float:
    """Keys that a place's drafts save, less what reading them costs."""
    said, right, characters = _drafts_of(records, way, k)
    shown = said >= least
    return float(((right * (characters - 1) - GLANCE) * shown).sum() / max(len(records), 1))


# --- the report -----------------------------------------------------------------------------------------------


def named(way: Mapping[str, Any]) -> str:
    """How a way is called."""
    return ", ".join(f"{name} {value}" for name, value in way.items()) or "settings as they come"


def _judged_table(records: Sequence[Record], walk: Walk, differ: Mapping[int, Interval], k: int) -> Table:
    """Where nothing was chosen by: the settings as they come, and those that were found."""
    rows: list[list[Cell]] = [
        [named(way), *(f"{100 * _hits(records, way, n).mean():.1f}" for n in (1, k))]
        for way in ([{}, walk.best] if walk.best else [{}])
    ]
    gains: list[list[Cell]] = [["difference", *(plain_points(differ[n]) for n in (1, k))]] if walk.best else []
    caption = f"At {len(records)} places in files that nothing was chosen by, in per cent, with 95 % intervals"
    return Table(caption, ["settings", "EM@1", f"EM@{k}"], rows + gains)


def _grid_table(walk: Walk, k: int) -> Table:
    """All that was tried, step by step; the ways gone on with are marked."""
    rows: list[list[Cell]] = [
        [step.coordinate, named(way), f"{100 * score[1]:.1f}", f"{100 * score[0]:.1f}", "*" * (i == step.kept)]
        for step in walk.steps
        for i, (way, score) in enumerate(zip(step.ways, step.scores, strict=True))
    ]
    return Table(
        "The grid, where it was walked, in per cent", ["step", "settings", "EM@1", f"EM@{k}", "kept"], rows
    )


def _confidence_table(records: Sequence[Record], way: Tuned, k: int, least: float) -> Table:
    """What leaving unlikely drafts out is worth, where it was not chosen."""
    said, right, _ = _drafts_of(records, way, k)
    rows: list[list[Cell]] = []
    for bound in sorted({0.0, least, 0.02, 0.05, 0.1, 0.2}):
        shown = said >= bound
        share = f"{100 * right[shown].mean():.1f}" if shown.any() else "-"
        told = f"{100 * said[shown].mean():.1f}" if shown.any() else "-"
        rows.append([f"{bound:.3f}", f"{shown.sum() / max(len(records), 1):.2f}", share, told,
                     _worth_of(records, way, k, bound), "*" * (bound == least)])  # fmt: skip
    caption = (
        f"Drafts offered from a probability on; reading one costs {GLANCE} keys, a right one saves all but one"
    )
    heads = ["least probability", "offered a place", "right, %", "said, %", "keys saved a place", "tuned"]
    return Table(caption, heads, rows)
