"""The paper's decoding methods at fixed lengths, as in its experiments, and how likely their drafts are.

Dimensions: N drafts, T tokens of the longest, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.table.format import Columns
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.paper.passages import Passage, RepositorySplit
from spd_lsp.evaluation.sampling import sample
from spd_lsp.models.base import Engine
from spd_lsp.models.logits import log_softmax
from spd_lsp.ngrams.mixture import MAX_CONTEXT, Mixture
from spd_lsp.settings import Settings

# Appendix B; 9 candidates in its code.
PAPER = Settings(interpolation="paper", ranking="mean", temperature=0.06, alpha=0.54, candidates=9)
_NUCLEUS = Settings(temperature=0.6, candidates=50)  # the decoder itself sets top_p 0.9
_DEFAULTS = Settings()
_REPOSITORY_WEIGHT = 0.7
REAL_TEXT = "the real text"


@dataclass(frozen=True, slots=True)
class Method:
    """A decoder with its settings."""

    name: str
    decoder: str
    settings: Settings = _DEFAULTS
    ngrams: bool = False


METHODS = (
    Method("nucleus", "nucleus", _NUCLEUS),
    Method("greedy", "greedy"),
    Method("beam", "beam"),
    Method("SPD without n-grams", "superposed"),
    Method(f"SPD without n-grams, tau {PAPER.temperature}", "superposed", PAPER),
    Method("SPD, paper's formula", "superposed", PAPER, ngrams=True),
    Method("SPD, linear n-grams", "superposed", ngrams=True),
    Method("nucleus, linear n-grams", "nucleus", _NUCLEUS, ngrams=True),
    Method("greedy, linear n-grams", "greedy", ngrams=True),
    Method("beam, linear n-grams", "beam", ngrams=True),
)


@dataclass(slots=True)
class DraftWriter:
    """A model that continues passages by any method."""

    model: Engine
    tokens: ModelTokenizer
    mixtures: dict[str, Mixture]  # repository -> the n-grams of its other files

    def write(self, method: Method, passage: Passage, *, k: int, prefix: int, tokens: int) -> DecodingResult:
        """Write k drafts of just this many tokens, best first.

        Of nucleus sampling all samples in the order drawn: a mean over them is the expectation for one.
        """
        ids = passage.prefix(prefix)
        mixture = self.mixtures.get(passage.repository) if method.ngrams else None
        start = DecodingRequest(ids, lambda ids: False, ids[-MAX_CONTEXT:], mixture)
        settings = replace(method.settings, drafts=k, max_tokens=tokens)
        if method.decoder != "nucleus":
            return DECODERS[method.decoder](self.model, start, settings, lambda: None)
        drawn, batch = sample(self.model, start, settings, lambda: None)
        return DecodingResult(drawn, batch.passes, tokens, rows=batch.rows)


def mixtures_by_repository(
    splits: Sequence[RepositorySplit], vocab_size: int, built_in: Sequence[tuple[Columns, float]] = ()
) -> dict[str, Mixture]:
    """The n-grams of each repository's counted files, beside built-in counts with their weights."""
    return {
        split.name: Mixture(
            [[split.columns(vocab_size)], *([columns] for columns, _ in built_in)],
            [_REPOSITORY_WEIGHT, *(weight for _, weight in built_in)],
        )
        for split in splits
    }


def matched_tokens(draft: Sequence[int], truth: Sequence[int]) -> int:
    """The number of tokens before the first mistake. Example: [5, 7, 9], [5, 7, 8] -> 2"""
    pairs = zip(draft, truth, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(draft), len(truth)))


def nats(model: Engine, prompt: Sequence[int], drafts: Sequence[Sequence[int]]) -> list[Floats]:
    """-log p of each token of each draft after a prompt, all drafts in one forward pass."""
    first = model.prefill(prompt)
    longest = max(len(draft) for draft in drafts) - 1  # the logits after a draft's last token are not needed
    rest = np.empty((len(drafts), 0, len(first)), first.dtype)  # [N, T, V]
    if longest > 0:
        # Shorter drafts are padded on the right, where none of their own tokens attends.
        padded = [[*draft[:-1], *[0] * longest][:longest] for draft in drafts]
        rest = model.forward_ids(padded, model.prompts[-1].cache.select_rows([0] * len(drafts)))
    return [
        -log_softmax(np.concatenate([first[None], after[: len(draft) - 1]]))[np.arange(len(draft)), list(draft)]
        for draft, after in zip(drafts, rest, strict=True)
    ]
