"""A short text that an engine reads in every way in which drafting uses it: all ways must agree.

Legend: T probe positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine
from spd_lsp.models.logits import log_softmax

PROBE_LENGTH = 16  # T


def probe_ids(vocabulary: int) -> list[int]:
    """Ids from all over a vocabulary."""
    return [(7919 * number + 13) % vocabulary for number in range(PROBE_LENGTH)]


def all_logits(engine: Engine, ids: list[int]) -> Floats:
    """The logits after each id, all read in one pass. [T, V]."""
    return np.asarray(engine.forward_ids([ids], engine.new_cache())[0])


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
    p = log_softmax(expected)
    q = log_softmax(logits)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())
