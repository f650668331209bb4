"""The lines that were really written, read token by token: what model and tables said of each token beforehand.

In: places with their questions, a model. Out: arrays, from which any rule of smoothing can be fitted and judged.
The first token is judged among those that the cursor allows; what ends a line counts as one token.

Dimensions: T tokens of text, W pools, O orders from 2 on, V vocabulary; last axis as in `Evidence.classes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spd_lsp.completer import HISTORY
from spd_lsp.drafts import Model
from spd_lsp.evaluation.arms import Question
from spd_lsp.evaluation.smoothing.evidence import Evidence, evidence_of
from spd_lsp.interpolation import Mixture
from spd_lsp.logits import softmax
from spd_lsp.tokens import Tokens

Floats = npt.NDArray[np.floating[Any]]

BACK_OFF = 0.4  # Brants et al., "Large language models in machine translation", 2007


@dataclass(frozen=True)
class Observations:
    """What was said of T tokens: of the one that came (`gold`) and of those that could have (`open`)."""

    package: npt.NDArray[np.str_]  # [T]
    model: Floats  # [T, 2] p of gold and of open
    backed: Floats  # [T, 2] stupid backoff's scores of gold and of open
    seen: Floats  # [T, 5] `features`
    weights: Floats  # [T, W] of the pools
    totals: Floats  # [T, W, O]
    row: Floats  # [T, W, O, 4] of all tokens
    gold: Floats  # [T, W, O, 4]
    open: Floats  # [T, W, O, 4]

    def __len__(self) -> int:
        return len(self.package)

    def chosen(self, where: npt.NDArray[np.bool_]) -> Observations:
        """Some of them."""
        return Observations(**{field.name: getattr(self, field.name)[where] for field in fields(self)})

    def write(self, path: Path) -> None:
        """Keep them."""
        np.savez_compressed(path, **{field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def read(cls, path: Path) -> Observations:
        """What was kept."""
        with np.load(path, allow_pickle=False) as kept:
            return cls(**{field.name: kept[field.name] for field in fields(cls)})


def join(parts: Sequence[Observations]) -> Observations:
    """Several as one."""
    names = [field.name for field in fields(Observations)]
    return Observations(**{name: np.concatenate([getattr(one, name) for one in parts]) for name in names})


def features(p: Floats, evidence: Evidence) -> Floats:
    """How sure model and tables are: the highest order seen, how often and followed by how many different tokens,
    the share of the commonest, and the model's likeliest. -> [5]

    p [V] is the model's word among the tokens that are allowed, 0 for others.
    """
    m = evidence.highest
    column = max(m - 1, 0)
    return np.array(
        [
            m,
            evidence.totals[:, column].sum() if m else 0,
            (evidence.counts[:, column].sum(axis=0) > 0).sum() if m else 0,
            evidence.p[column].max() if m else 0,
            p.max() / max(p.sum(), 1e-9),
        ]
    )


def backed_off(p: Floats, evidence: Evidence) -> Floats:
    """Stupid backoff to the model: the share in the longest context that a token followed, less 0.4 a step. [V]"""
    score = np.asarray(p, dtype=np.float64)
    for order in range(evidence.highest):
        seen = evidence.p[order]
        score = np.where(seen > 0, seen, BACK_OFF * score)
    return score


def observe(
    model: Model, tokens: Tokens, mixture: Mixture, question: Question, target: str, package: str
) -> Observations | None:
    """Read a target after its prompt; None if its first token cannot stand there."""
    prompt = question.prompt
    ids = tokens.encode(prompt.healed.decode(errors="ignore") + target)
    if not ids or (prompt.allowed is not None and ids[0] not in prompt.allowed):
        return None
    logits = model.prefill(prompt.ids, lambda: None)
    history = [tokens.end_of_text, *prompt.history][-HISTORY:]
    ends = line_ends(tokens, len(logits))
    found = []
    for number, token in enumerate([*ids, None]):
        chosen = None if number or prompt.allowed is None else mask(prompt.allowed, len(logits))
        gold = ends if token is None else mask(np.array([token]), len(logits))
        found.append(said(softmax(logits, 1.0), evidence_of(mixture.query, history, len(logits)), gold, chosen))
        if token is not None:
            logits = model.step([token], np.ones(1))
            history = [*history, token]
    stacked = {name: np.stack([one[name] for one in found]) for name in found[0]}
    return Observations(package=np.full(len(found), package), **stacked)


def said(
    p: Floats, evidence: Evidence, gold: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_] | None
) -> dict[str, Floats]:
    """What model and tables said of one token."""
    among = p if chosen is None else p * chosen
    backed = backed_off(p, evidence)
    row = evidence.classes()
    return {
        "model": np.array([p[gold].sum(), among.sum()]),
        "backed": np.array([backed[gold].sum(), backed.sum() if chosen is None else backed[chosen].sum()]),
        "seen": features(among, evidence),
        "weights": evidence.weights,
        "totals": evidence.totals,
        "row": row,
        "gold": evidence.classes(gold),
        "open": row if chosen is None else evidence.classes(chosen),
    }


def mask(ids: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.bool_]:
    """Which tokens these are. [V]"""
    found = np.zeros(size, dtype=bool)
    found[ids] = True
    return found


def line_ends(tokens: Tokens, size: int) -> npt.NDArray[np.bool_]:
    """The tokens that end a line. [V]"""
    ends = [i for i in range(size) if tokens.ends(i) or tokens.pieces[i].startswith(b"\n")]
    return mask(np.array(ends), size)
