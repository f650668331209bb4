"""How probable it is that a person wants a proposed edit, by what speaks for it: a logistic model.

Its weights are fitted to the history of public repositories (`spd-lsp eval edits`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from spd_lsp.edits.candidates import Evidence

MIN_PROBABILITY = 0.65  # of what is proposed

RENAMED = "renamed alone"  # a use of a name that nothing binds any more, as its binding was renamed
# Counted, not fitted: 12 of 15 first proposals were right, and where authors did more to that line, none is.
FIXED_WEIGHTS: Mapping[str, float] = {RENAMED: 1.4}
_WEIGHTS: Mapping[str, float] = {
    "again": 0.47, "again and near": 0.49, "both sides": 0.07, "deletion: again": 0.26, "deletion: bias": -0.10,
    "deletion: both sides": -0.46, "deletion: length": 0.31, "deletion: near": 0.47, "deletion: sites": -0.20,
    "deletion: very near": 0.10, "distance": -0.02, "elsewhere: again": -0.20, "elsewhere: deletion": 0.66,
    "elsewhere: insertion": -0.30, "elsewhere: other": -1.03, "elsewhere: sites": -0.47,
    "elsewhere: very near": 1.00, "elsewhere: word": -1.00, "holes": -0.35, "insertion: again": 0.06,
    "insertion: bias": -0.38, "insertion: both sides": 0.13, "insertion: near": -0.20, "insertion: sites": -0.11,
    "insertion: very near": 0.39, "left": 0.18, "length": 0.53, "line: part": -0.31, "line: whole": 0.31,
    "more general": -0.54, "near": 0.22, "near 3": 0.21, "near 5": 0.29, "near 7": -0.04, "near 8": 0.41,
    "near and sites": -0.09, "nearest": 0.10, "nearest and near": -0.18, "new words": -0.25, "number": 0.57,
    "old words": -0.44, "only site": -0.71, "only site and near": -0.05, "other: again": 0.18,
    "other: bias": -0.97, "other: both sides": 0.15, "other: length": 0.33, "other: near": 0.31,
    "other: sites": -0.30, "other: very near": -0.32, "right": 0.15, "sites": -0.45, "syntax: parsed": -1.44,
    "syntax: same function": 0.21, "syntax: same role": 0.28, "syntax: text": -0.34,
    "syntax: text only here": -0.94, "syntax: text only there": 0.17, "unbalanced": -0.90, "very near": 0.11,
    "word: again": -0.02, "word: attribute": -0.41, "word: bias": -0.64, "word: both sides": 0.25,
    "word: bound there": -1.01, "word: global": 0.90, "word: length": -0.11, "word: local": 0.48,
    "word: member": -0.15, "word: near": -0.36, "word: parsed": -0.64, "word: rebound": -0.86,
    "word: same function": 0.02, "word: same role": 0.38, "word: sites": 0.15, "word: still bound": 0.12,
    "word: text": -0.32, "word: text only here": -0.03, "word: text only there": -0.51, "word: very near": -0.06,
}  # fmt: skip


def probability_of(evidence: Evidence, weights: Mapping[str, float] = _WEIGHTS) -> float:
    """How likely a proposal with this evidence is what the person wants."""
    score = sum((FIXED_WEIGHTS.get(name) or weights.get(name, 0.0)) * value for name, value in evidence.items())
    return 1 / (1 + math.exp(-score))
