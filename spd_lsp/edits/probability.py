"""How probable it is that a person wants a proposed edit, by what speaks for it: a logistic model.

Its weights are fitted to the history of public repositories (`spd-lsp eval edits`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from spd_lsp.edits.candidates import Evidence

MIN_PROBABILITY = 0.7  # of what is proposed

_WEIGHTS: Mapping[str, float] = {
    "deletion: again": 1.08, "deletion: bias": -0.51, "deletion: both sides": -0.54,
    "deletion: distance": -0.33, "deletion: left": 0.32, "deletion: length": 1.22,
    "deletion: near": 0.62, "deletion: old words": -0.67, "deletion: only site": -0.31,
    "deletion: right": 0.29, "deletion: sites": 0.05, "deletion: unbalanced": 0.29,
    "deletion: very near": -0.29,
    "insertion: again": 1.28, "insertion: bias": -0.40, "insertion: both sides": 0.48,
    "insertion: distance": -0.30, "insertion: holes": 0.74, "insertion: left": -0.04,
    "insertion: near": 1.44, "insertion: new words": -0.13, "insertion: only site": -0.75,
    "insertion: right": 0.10, "insertion: sites": -0.64, "insertion: unbalanced": 0.18,
    "insertion: very near": 0.41,
    "other: again": 1.52, "other: bias": -0.18, "other: both sides": 0.68, "other: distance": -0.01,
    "other: holes": 0.99, "other: left": 0.31, "other: length": -0.48, "other: near": 0.04,
    "other: new words": -0.29, "other: number": -0.48, "other: old words": 0.79,
    "other: only site": -0.25, "other: right": 0.40, "other: sites": -0.33, "other: unbalanced": -0.81,
    "other: very near": -0.19,
    "syntax: parsed": -1.09, "syntax: same function": -0.09, "syntax: same role": 0.43,
    "syntax: text": -0.66, "syntax: text only here": -0.04, "syntax: text only there": -0.30,
    "word: again": 0.86, "word: attribute": -0.85, "word: bias": -0.19, "word: both sides": 0.15,
    "word: bound there": -2.03, "word: distance": -0.08, "word: global": -0.77, "word: known": -0.31,
    "word: left": 0.27, "word: length": 0.39, "word: local": 0.74, "word: member": 0.02,
    "word: near": -0.52, "word: new words": 0.01, "word: number": -0.50, "word: old words": -0.36,
    "word: only site": -0.23, "word: parsed": -0.19, "word: right": 0.97, "word: same function": 0.02,
    "word: same role": 0.61, "word: sites": -0.82, "word: still bound": -0.23, "word: text": -1.71,
    "word: text only here": -0.79, "word: text only there": -1.21, "word: very near": -0.70,
    "line: part": -0.58, "line: whole": 1.06,
}  # fmt: skip


def probability_of(evidence: Evidence, weights: Mapping[str, float] = _WEIGHTS) -> float:
    """How likely a proposal with this evidence is what the person wants."""
    score = sum(weights.get(name, 0.0) * value for name, value in evidence.items())
    return 1 / (1 + math.exp(-score))
