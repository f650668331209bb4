"""Rules of smoothing compared: by the nats of what was written, and by the drafts that are written with them.

Every package is judged by rules fitted on the others. In: places and a model. Out: records of places with the
rules as arms, and a report. Both parts go on where they were stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngram_builders.kernel import Query
from spd_lsp.checkpoints import STARTER, built_in_domains
from spd_lsp.evaluation.arms import FULL, Arm
from spd_lsp.evaluation.paper.report import Cell, Report, Table
from spd_lsp.evaluation.places import PRIMARY, Cursor
from spd_lsp.evaluation.prior import PackagePrior
from spd_lsp.evaluation.quality import Priors, Site, enumerate_places
from spd_lsp.evaluation.report import percent, points
from spd_lsp.evaluation.session import Session
from spd_lsp.evaluation.smoothing.evidence import Evidence, evidence_of
from spd_lsp.evaluation.smoothing.observing import Observations, join, observe
from spd_lsp.evaluation.smoothing.rules import Rule, nats, rules
from spd_lsp.evaluation.store import Record, Store
from spd_lsp.evaluation.tables import Results
from spd_lsp.interpolation import Histories, Mixture

__all__ = ["NAME", "Smoothed", "compare", "fit_apart", "read_lines", "summarise", "write_drafts"]

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]
Told = Callable[[str, int, int], None]
Folds = Mapping[str, Mapping[str, Rule]]  # rule -> package -> the rule fitted on the other packages

NAME = "smoothing"
SHIPPED = "as shipped"
# Drafts are written with these; the others are judged by nats alone.
WRITING = (
    SHIPPED,
    "by order",
    "by count and successors",
    "by confidence",
    "logistic",
    "stupid backoff",
    "absolute discounting, trusted by order",
    "Witten-Bell, kappa and trust by order",
)


class Smoothed(Mixture):
    """A mixture that follows another rule. The candidates are the same."""

    def __init__(self, mixture: Mixture, rule: Rule) -> None:
        self.__dict__ |= mixture.__dict__
        self.rule = rule

    def nested(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """See `Mixture.nested`."""
        ids, _ = super().nested(histories, p, n)
        open_ = np.maximum(p, 0).astype(np.float64)
        mixed = [self.rule.mix(open_, known(self.query, tuple(map(int, one)), len(p)))[ids] for one in histories]
        return ids, np.stack(mixed)


@lru_cache(64)  # at a place, the drafts of all rules are much alike
def known(query: Query, history: tuple[int, ...], vocab_size: int) -> Evidence:
    """See `evidence_of`."""
    return evidence_of(query, history, vocab_size)


def sites(session: Session, cursors: Sequence[Cursor]) -> Iterator[Site]:
    """The places with what is known there, file by file."""
    built_in = built_in_domains(session.folder) if session.options.model == STARTER else {}
    sources = {(source.package, source.name): source for package in session.packages for source in package.sources}
    packages = {package.name: package for package in session.packages}
    priors = Priors(packages, lambda package: PackagePrior(package, session.tokens, built_in))
    for _, (name, group) in enumerate_places(cursors):
        beside = priors.beside(sources[name])
        for cursor in group:
            yield Site(cursor, sources[name], beside, session.asker, not session.options.left_only)


def read_lines(found: Iterable[Site], total: int, path: Path, report: Told) -> Observations:
    """What was said of each token that was written at these sites; kept at `path`."""
    if path.exists():
        return Observations.read(path)
    parts = []
    for number, site in enumerate(found):
        report("reading", number, total)
        asker, mixture = site.asker, site.mixtures[FULL]
        assert mixture is not None
        seen = observe(
            asker.model, asker.tokens, mixture, site.question(), site.cursor.target, site.cursor.package
        )
        if seen is not None:
            parts.append(seen)
    joined = join(parts)
    joined.write(path)
    return joined


def fit_apart(seen: Observations, report: Told) -> Folds:
    """Each rule, fitted for each package on the others."""
    packages = sorted(set(seen.package.tolist()))
    folds: dict[str, dict[str, Rule]] = {}
    for number, (name, rule) in enumerate(rules().items()):
        report("fitting", number, len(rules()))
        folds[name] = {package: rule.fit(seen.chosen(seen.package != package)) for package in packages}
    return folds


def losses(seen: Observations, folds: Mapping[str, Rule]) -> dict[str, float]:
    """Nats of a token by package."""
    return {
        package: nats(rule.likelihoods(seen.chosen(seen.package == package))) for package, rule in folds.items()
    }


def arm_of(name: str) -> Arm:
    """A rule as an arm: superposed decoding as it comes, but for how model and counts are mixed."""
    return Arm(f"{name}@{FULL}", "superposed", FULL, {})


def write_drafts(
    found: Iterable[Site], total: int, folds: Folds, typed: frozenset[str], store: Store, report: Told
) -> None:
    """Ask with every rule at every site, and type lines through at some; what the store has is not asked again."""
    done = {record["key"]: record for record in store.records()}
    for number, site in enumerate(found):
        report("completing", number, total)
        key, had = site.cursor.key, done.get(site.cursor.key, {})
        missing = {
            part: [name for name in WRITING if arm_of(name).label not in had.get(part, {})]
            for part in (("arms", "typed") if key in typed else ("arms",))
        }
        if any(missing.values()):
            rules = {name: fitted[site.cursor.package] for name, fitted in folds.items()}
            store.append(at_site(site, missing, rules))


def at_site(site: Site, missing: Mapping[str, Sequence[str]], fitted: Mapping[str, Rule]) -> Record:
    """Ask with some rules at a site, and type its line through with some."""
    plain, question = site.mixtures[FULL], site.question()
    assert plain is not None
    site.asker.warm(question)
    record: Record = {"key": site.cursor.key, "place": dataclasses.asdict(site.cursor)}
    for part, names in missing.items():
        record[part] = {}
        for name in names:
            arm = arm_of(name)
            site.mixtures = {FULL: plain if name == SHIPPED else Smoothed(plain, fitted[name])}
            found = site.ask(arm, question) if part == "arms" else site.type(arm)
            record[part][arm.label] = dataclasses.asdict(found)
    return record


def compare(session: Session, places: int | None, written: int | None, typed: int) -> Report:
    """The whole comparison: lines are read at all places, drafts written at those of the primary strata."""
    cursors = session.cursors[:places]
    primary = [cursor for cursor in cursors if cursor.stratum in PRIMARY][:written]
    typing = frozenset(cursor.key for cursor in primary[:typed])
    kept = session.options.out / f"said-{len(cursors)}.npz"
    seen = read_lines(sites(session, cursors), len(cursors), kept, session.report)
    folds = fit_apart(seen, session.report)
    write_drafts(sites(session, primary), len(primary), folds, typing, session.store, session.report)
    chosen = {cursor.key for cursor in primary}
    records = [record for record in session.store.records() if record["key"] in chosen]
    return summarise(records, seen, folds, session.facts, session.options.drafts)


def summarise(
    records: Sequence[Record], seen: Observations, folds: Folds, facts: Mapping[str, Any], k: int
) -> Report:
    """One row a rule: nats of a token, exact match, keystrokes, and what differs from the rule that ships."""
    results = Results(records, [arm_of(name) for name in WRITING], k, [SHIPPED])
    scores = {"EM@1": results.scores("EM@1"), f"EM@{k}": results.scores(f"EM@{k}"), "KS": results.keystrokes()}
    rows: list[list[Cell]] = []
    base = losses(seen, folds[SHIPPED])
    for name, fitted in folds.items():
        told = losses(seen, fitted)
        overall = np.average([*told.values()], weights=[(seen.package == package).sum() for package in told])
        better = sum(base[package] > loss for package, loss in told.items())
        rows.append([name, f"{overall:.3f}", "" if name == SHIPPED else f"{better} of {len(told)}"])
        for column in scores.values():
            score = next((one for one in column if one.arm == arm_of(name).label), None)
            rows[-1] += (
                [percent(score.value, bounds=False), points(score.less.get(SHIPPED))] if score else ["", ""]
            )
    heads = [head for name in scores for head in (name, "less shipped")]
    caption = (
        f"Nats of a token: {len(seen):,} tokens that were written. EM at {len(results.records)} places at the "
        f"start of a line or after a sign, KS over {len(results.typed(results.records))} of their lines, in "
        "per cent; differences are paired, with 95 % intervals, bold where these leave zero out."
    )
    table = Table(caption, ["rule", "nats", "packages better", *heads], rows)
    return Report(NAME, "Rules of smoothing, each package judged by rules fitted on the others", facts, [table])
