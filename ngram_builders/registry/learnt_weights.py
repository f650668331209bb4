"""How much tables of other code weigh in a folder, learnt from what was accepted there. Numbers only, never code.

In: how likely each of some weights made accepted tokens. Out: a weight, of all those the mean by their probability
(in logarithms), which a prior holds near `START` until there is more. A file beside the choices keeps the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ngram_builders.registry.locks import hold_lock
from ngram_builders.registry.ngram_table import PARSE_ERRORS, read_record, write_record

START = 0.05  # of a table that was built from other code: what an unrelated one cannot harm with
WEIGHTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7)  # that are compared: no other is learnt than one between them
_PRIOR = (0.35, 0.34, 0.19, 0.075, 0.025, 0.015, 0.005)  # of each of them; the mean is START
_MEMORY = 2_000  # tokens, after which what was accepted counts a third: people turn to other code
LEARNT_FILE = "learnt.msgpack"
_LOCK_FILE = f".{LEARNT_FILE}.lock"


class Learnt(NamedTuple):
    """What was learnt of a table in a folder."""

    tokens: int = 0  # accepted, in which it had a say
    log_likelihoods: tuple[float, ...] = (0.0,) * len(WEIGHTS)  # of those, by the weight

    @property
    def weight(self) -> float:
        """The weight that the table has.  Example: nothing learnt -> 0.05."""
        if not self.tokens:
            return START
        best = max(self.log_likelihoods)
        p = [prior * math.exp(one - best) for prior, one in zip(_PRIOR, self.log_likelihoods, strict=True)]
        mean = sum(one * math.log(weight) for one, weight in zip(p, WEIGHTS, strict=True)) / sum(p)
        return round(math.exp(mean), 3)

    def plus(self, new: Learnt) -> Learnt:
        """This and what was accepted since; what is older counts less."""
        kept = math.exp(-new.tokens / _MEMORY)
        pairs = zip(self.log_likelihoods, new.log_likelihoods, strict=True)
        return Learnt(self.tokens + new.tokens, tuple(kept * one + more for one, more in pairs))


class Lesson(NamedTuple):
    """What is learnt at once."""

    folder: str
    table: str
    learnt: Learnt


LearntWeights = Mapping[str, Mapping[str, Learnt]]  # by folder, then by table


def read_learnt_weights(registry: Path) -> dict[str, dict[str, Learnt]]:
    """Read what was learnt; nothing if there is no record or it is damaged."""
    try:
        record = read_record(registry / LEARNT_FILE)
        return {
            str(folder): {str(name): _parse(numbers) for name, numbers in tables.items()}
            for folder, tables in record.items()
        }
    except PARSE_ERRORS:
        return {}


def _parse(numbers: Any) -> Learnt:
    tokens, *likelihoods = numbers
    found = Learnt(int(tokens), tuple(float(one) for one in likelihoods))
    if found.tokens < 0 or len(likelihoods) != len(WEIGHTS) or not all(map(math.isfinite, found.log_likelihoods)):
        raise ValueError(numbers)
    return found


def add_learnt_weight(registry: Path, folder: str, table: str, learnt: Learnt) -> None:
    """Add what was learnt of a table in a folder to the record, which all servers of a user share."""
    with hold_lock(registry / _LOCK_FILE):
        known = read_learnt_weights(registry)
        tables = known.setdefault(folder, {})
        tables[table] = tables.get(table, Learnt()).plus(learnt)
        _write(registry, known)


def forget_learnt_weights(registry: Path, is_kept: Callable[[str, str], bool]) -> None:
    """Keep only what was learnt in some folders of some tables."""
    if not (registry / LEARNT_FILE).exists():
        return
    with hold_lock(registry / _LOCK_FILE):
        known = read_learnt_weights(registry)
        for folder, tables in known.items():
            known[folder] = {name: one for name, one in tables.items() if is_kept(folder, name)}
        _write(registry, known)


def _write(registry: Path, learnt: LearntWeights) -> None:
    record = {
        folder: {name: [one.tokens, *one.log_likelihoods] for name, one in sorted(tables.items())}
        for folder, tables in sorted(learnt.items())
        if tables
    }
    write_record(registry / LEARNT_FILE, record)
