"""Whether a fast engine computes what the reference computes, by every way in which a draft may use it.

A model is not trusted by its name: two families may have the same weights and do different things with them. So
both engines read a short probe, and the fast one may differ by rounding only.

Legend: T probe positions, V vocabulary, X ids of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Runner

PROBE = 16  # T
SHORT = 5  # positions of a window that the probe leaves
ROUNDING = 1e-4  # largest difference of two logits, relative to the largest logit, in single precision
DIVERGENCE = 1e-2  # mean Kullback-Leibler divergence from the reference, in nats, for 8-bit weights


def probe(vocabulary: int) -> list[int]:
    """Ids from all over a vocabulary."""
    return [(7919 * place + 13) % vocabulary for place in range(PROBE)]


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What the reference says after each id of a probe."""

    ids: list[int]
    logits: Floats  # [T, X]
    columns: list[int] | None = None  # X ids of the vocabulary, or all


def expect(reference: Runner, vocabulary: int) -> Expected:
    """Ask the reference."""
    ids = probe(vocabulary)
    return Expected(ids, whole(reference, ids))


def whole(runner: Runner, ids: list[int]) -> Floats:
    """The logits after each id, all read in one pass. [T, V]."""
    logits: Floats = runner.read([ids], runner.empty())[0]
    return logits


def fault(candidate: Runner, expected: Expected) -> str:
    """In which way of reading the probe an engine's logits are not those expected; "" if in none."""
    largest = np.abs(expected.logits).max()
    for way, places, logits in readings(candidate, expected.ids):
        asked = logits if expected.columns is None else logits[:, expected.columns]
        error = np.abs(asked - expected.logits[places]).max() / largest
        if not error < ROUNDING:  # not a number is a fault as well
            return f"{way} differs by {error:.1e}"
    return ""


def readings(runner: Runner, ids: list[int]) -> Iterator[tuple[str, list[int], Floats]]:
    """Ways to read a probe: their name, the places of the ids whose following logits they give, and the logits."""
    one = np.ones(1)
    last = len(ids) - 1
    yield "one pass", list(range(len(ids))), whole(runner, ids)
    begun = runner.prefill(ids[:8])
    yield (
        "embedding by embedding",
        list(range(7, len(ids))),
        np.stack([begun, *(runner.step([token], one) for token in ids[8:])]),
    )
    runner.prefill(ids[:12])
    runner.step(ids[:2], np.array([0.5, 0.5]))
    yield "a cache cut back", [last], runner.prefill(ids)[None]
    runner.prefill(ids[:-2])
    runner.step_rows([([ids[0]], one), ([ids[-2]], one)], [0, 0])
    yield "several rows", [last, last], runner.step_rows([([ids[-1]], one)] * 2, [1, 1])


def divergence(found: Floats, expected: Floats) -> float:
    """Mean over the places of sum_x p(x) log(p(x) / q(x)), p expected and q found. [T, V] twice."""
    p, q = (log_softmax(logits) for logits in (expected, found))
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def log_softmax(logits: Floats) -> Floats:
    """Along the last axis, in double precision."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    found: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
