"""The paper's ways to write drafts, at fixed lengths as in its experiments, and what they are judged by.

Comes in: passages and a model. Goes out: ids of drafts, and how surprised a judge is. No text, except where the
judge has another tokenizer.

Legend: K drafts, T tokens of a draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.completion.tokenizer import Tokens
from spd_lsp.decoding.superposed import Drafts, Model, Start
from spd_lsp.evaluation.arms import FlatModel
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.paper.passages import Passage, Source
from spd_lsp.ngrams.interpolation import LONGEST, Mixture
from spd_lsp.settings import Settings

# Appendix B; 9 candidates in its code.
PAPER = Settings(interpolation="paper", ranking="mean", temperature=0.06, alpha=0.54, candidates=9)
NUCLEUS = Settings(temperature=0.6, candidates=50)  # top_p 0.9 stands in the decoder
PLAIN = Settings()

SPD = "SPD, paper's formula"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write drafts."""

    name: str
    decoder: str
    settings: Settings = PLAIN
    ngrams: bool = False
    flat: bool = False  # without a model: n-grams alone

    def drafting(self, k: int, tokens: int) -> Settings:
        """Its settings for k drafts of so many tokens."""
        return replace(self.settings, drafts=k, max_tokens=tokens)


WAYS = (
    Way("nucleus", "nucleus", NUCLEUS),
    Way("greedy", "greedy"),
    Way("beam", "beam"),
    Way("n-grams alone", "greedy", ngrams=True, flat=True),
    Way("SPD without n-grams", "superposed"),
    Way(f"SPD without n-grams, tau {PAPER.temperature}", "superposed", PAPER),
    Way(SPD, "superposed", PAPER, ngrams=True),
    Way("SPD, nested n-grams", "superposed", ngrams=True),
    Way("nucleus, nested n-grams", "nucleus", NUCLEUS, ngrams=True),
    Way("greedy, nested n-grams", "greedy", ngrams=True),
    Way("beam, nested n-grams", "beam", ngrams=True),
)


def never(ids: tuple[int, ...]) -> bool:
    """Drafts of a fixed length stop for nothing else, as in the paper's experiments."""
    return False


class Reader(Model, Protocol):
    """A model that also says how likely drafts are."""

    def read_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """Log-probability of each token of each draft after the prompt."""


@dataclass(slots=True)
class Writer:
    """Writes drafts for passages, each way at its place in turn."""

    model: Reader
    tokens: Tokens
    mixtures: dict[str, Mixture]  # repository -> what is known of its other files
    flat: FlatModel = field(init=False)

    def __post_init__(self) -> None:
        self.flat = FlatModel(self.tokens.vocab_size)

    def start(self, passage: Passage, prefix: int, *, ngrams: bool) -> Start:
        """Where drafts of a passage begin."""
        read = passage.prefix(prefix)
        history = read[-LONGEST:]
        return Start(read, never, history, self.mixtures.get(passage.repository) if ngrams else None)

    def write(self, way: Way, passage: Passage, *, k: int, prefix: int, tokens: int) -> Drafts:
        """k drafts of so many tokens, best first; nucleus gives every sample, in the order drawn."""
        start, settings = self.start(passage, prefix, ngrams=way.ngrams), way.drafting(k, tokens)
        model: Model = self.flat if way.flat else self.model
        if way.decoder == "nucleus":
            return samples(model, start, settings)
        return DECODERS[way.decoder](model, start, settings, lambda: None)


def samples(model: Model, start: Start, settings: Settings) -> Drafts:
    """k nucleus samples, the same text as often as it was drawn: a mean over them is that of one sample."""
    from spd_lsp.evaluation.sampling import sample

    drawn, batch = sample(model, start, settings, lambda: None)
    longest = max(len(draft.ids) for draft in drawn)
    return Drafts(drawn, batch.passes, longest, rows=batch.rows)


def mixtures_of(
    sources: Sequence[Source], vocab_size: int, beside: Sequence[tuple[Any, float]] = (), weight: float = 0.7
) -> dict[str, Mixture]:
    """What n-grams know in each repository: its counted files, and tables `beside` with their weights."""
    return {
        source.name: Mixture(
            [[source.columns(vocab_size)], *([columns] for columns, _ in beside)],
            [weight, *(share for _, share in beside)],
        )
        for source in sources
    }


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that reads drafts as they are, with its own tokenizer."""

    model: Reader
    tokens: Tokens
    same: bool  # whether its tokens are those of the drafts

    def surprise(self, drafted: Tokens, prefix: Sequence[int], drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """-log p of each token of each draft, in nats; with another tokenizer, of the draft's text in its own."""
        prompt, texts = list(prefix), [list(draft) for draft in drafts]
        if not self.same:
            prompt, texts = self.translated(drafted, prefix, drafts)
        self.model.prefill(prompt, lambda: None)
        return [-logp for logp in self.model.read_drafts(texts)]

    def translated(
        self, drafted: Tokens, prefix: Sequence[int], drafts: Sequence[Sequence[int]]
    ) -> tuple[list[int], list[list[int]]]:
        """Prefix and drafts in the judge's tokens. All texts share the prompt: tokens before the first difference.

        The last prompt token may belong to both prefix and draft, so a few tokens of the prefix can count as the
        draft's, the same for every draft of a passage, as in the paper's measure for Mistral (section 5.1).
        """
        opening = drafted.bytes_of(prefix)
        whole = [self.encode(opening + drafted.bytes_of(draft)) for draft in drafts]
        alone = self.encode(opening)
        kept = min(_shared_start(alone, ids) for ids in whole)
        kept = max(1, min(kept, *(len(ids) - 1 for ids in whole)))
        return whole[0][:kept], [ids[kept:] for ids in whole]

    def encode(self, text: bytes) -> list[int]:
        """A text as the judge reads it."""
        return [*self.tokens.opening, *self.tokens.encode(text.decode(errors="replace"))]


def _shared_start(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids two sequences have in common from their start."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def informed(surprise: Floats, mixture: Mixture | None, prefix: Sequence[int], draft: Sequence[int]) -> Floats:
    """The same judge, told what n-grams know: -log of the nested mixture at each token. [T] -> [T]."""
    if mixture is None:
        return surprise
    history = list(prefix[-LONGEST:])
    histories = [[*history, *draft[:t]] for t in range(len(draft))]
    p = np.exp(-surprise)
    mixed = [
        float(mixture.nest([histories[t]], np.array([token]), p[t : t + 1])[0, 0]) for t, token in enumerate(draft)
    ]
    nats: Floats = -np.log(np.array(mixed))
    return nats


def matched(draft: Sequence[int], truth: Sequence[int]) -> int:
    """Tokens written right before the first mistake. Example: [5, 7, 9], [5, 7, 8] -> 2."""
    return _shared_start(draft, truth)
