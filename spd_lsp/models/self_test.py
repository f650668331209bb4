"""Whether a fast engine computes what the reference computes, by every way in which drafting uses it.

A model is not trusted by its name: two families may have the same weights and do different things with them. So
both engines read a short probe, and the fast one may differ by rounding only.

Legend: T probe positions, V vocabulary, X ids of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine
from spd_lsp.models.logits import log_softmax

PROBE_LENGTH = 16  # T
SHORT_WINDOW = 5  # positions; shorter than the probe, so that it shows
ROUNDING = 1e-4  # largest difference of two logits, relative to the largest logit, in single precision
MAX_DIVERGENCE = 1e-2  # mean Kullback-Leibler divergence from the reference, in nats, for 8-bit weights


def probe_ids(vocabulary: int) -> list[int]:
    """Ids from all over a vocabulary."""
    return [(7919 * number + 13) % vocabulary for number in range(PROBE_LENGTH)]


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """The reference's logits after each id of a probe."""

    ids: list[int]
    logits: Floats  # [T, X]
    columns: list[int] | None = None  # X ids of the vocabulary; None: all


def probe_reference(reference: Engine, vocabulary: int) -> Probe:
    """Have the reference read the probe."""
    ids = probe_ids(vocabulary)
    return Probe(ids, all_logits(reference, ids))


def all_logits(engine: Engine, ids: list[int]) -> Floats:
    """The logits after each id, all read in one pass. [T, V]."""
    return np.asarray(engine.forward_ids([ids], engine.new_cache())[0])


def find_mismatch(engine: Engine, probe: Probe) -> str:
    """The way of reading in which an engine's logits differ from the reference's; "" if there is none."""
    largest = np.abs(probe.logits).max()
    for way, positions, logits in read_every_way(engine, probe.ids):
        selected = logits if probe.columns is None else logits[:, probe.columns]
        error = np.abs(selected - probe.logits[positions]).max() / largest
        if not error < ROUNDING:  # NaN is a mismatch as well
            return f"{way} differs by {error:.1e}"
    return ""


def read_every_way(engine: Engine, ids: list[int]) -> Iterator[tuple[str, list[int], Floats]]:
    """Ways to read a probe: their name, the positions of the ids after which they give logits, and the logits."""
    one = np.ones(1)
    last = len(ids) - 1
    yield "one pass", list(range(len(ids))), all_logits(engine, ids)
    first = engine.prefill(ids[:8])
    steps = np.stack([first, *(engine.step([token], one) for token in ids[8:])])
    yield "step by step", list(range(7, len(ids))), steps
    engine.prefill(ids[:12])
    engine.step(ids[:2], np.array([0.5, 0.5]))
    yield "a cropped cache", [last], engine.prefill(ids)[None]
    engine.prefill(ids[:-2])
    engine.step_rows([([ids[0]], one), ([ids[-2]], one)], [0, 0])
    yield "several rows", [last, last], engine.step_rows([([ids[-1]], one)] * 2, [1, 1])


def kl_divergence(logits: Floats, expected: Floats) -> float:
    """Mean over the positions of sum_x p(x) log(p(x) / q(x)), p of the expected logits. [T, V] twice."""
    p, q = log_softmax(expected), log_softmax(logits)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())
