"""The contenders: each writes k drafts of N tokens after the same prompt, read with an empty cache.

`superposed` and `rescored` (the same, and all drafts read once more at the end) ask n-grams; the others do not,
and so are at their fastest. `greedy` is a bare loop over one row.
Those named after transformers are its `generate`, batched, with its own cache. `llama.cpp` is that library, where
it is installed, with k rows that begin with the likeliest tokens and go on greedily. The others drive this
project's engine. Nobody stops at an end of text. `reading` reads as many bytes as the model's weights take: the
least that any of them can need for a token.

Legend: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ngram_builders.arrays import Floats, Ids
from spd_lsp.decoding.candidates import Histories, Interpolation
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.bench.machine import WeightReader
from spd_lsp.evaluation.bench.moments import Moment, Run, now
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.models.topk import TopK
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.evaluation.bench.llama_cpp import LlamaCpp
    from spd_lsp.models.base import Engine


Answer = TypeVar("Answer")

HISTORY = 16  # ids before the drafts that n-grams can reach back to
_WITH_NGRAMS = ("superposed", "rescored")
_TOP_P = 0.9  # of nucleus sampling, as in `sampling`
WHOLE = np.ones(1)
LLAMA_CPP = "llama.cpp"


@dataclass(slots=True)
class Contest:
    """The models and what is asked of them."""

    model: Engine | None  # this project's engine
    network: Any  # the same weights in transformers, or None
    prompt: tuple[int, ...]
    tokens: int
    interpolation: Interpolation | None = None
    reader: WeightReader | None = None
    remarks: tuple[str, ...] = ()  # what the engine said of itself
    llama_cpp: LlamaCpp | None = None


class Stopwatch:
    """Adds up how long things take, at little cost of its own."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def time(self, work: Callable[[], Answer]) -> Answer:
        """Do it."""
        wall, cpu = perf_counter(), process_time()
        answer = work()
        self.wall += perf_counter() - wall
        self.cpu += process_time() - cpu
        return answer

    @property
    def taken(self) -> Moment:
        """The sum."""
        return Moment(self.wall, self.cpu)


class Watched:
    """A model that notes when it is asked and how long it takes."""

    def __init__(self, model: Engine) -> None:
        self.model = model
        self.begun: Moment | None = None  # when the first step was asked for: all first tokens are chosen
        self.steps = Stopwatch()
        self.passes = 1

    def prefill(self, ids: Sequence[int], check: Callable[[], None]) -> Floats:
        """Read the prompt."""
        return self.model.prefill(ids, check)

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Read one more position."""
        return self.note(lambda: self.model.step(ids, weights))

    @property
    def selects_on_device(self) -> bool:
        """As the model does."""
        return self.model.selects_on_device

    def step_top_k(
        self, ids: Sequence[int], weights: Floats, k: int, extra_ids: Ids, temperature: float = 1.0
    ) -> TopK:
        """Read one more position, for the logits that count."""
        return self.note(lambda: self.model.step_top_k(ids, weights, k, extra_ids, temperature))

    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """Read one more position in each row."""
        return self.note(lambda: self.model.step_rows(rows, parents))

    def score_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """Read drafts anew."""
        return self.note(lambda: self.model.score_drafts(drafts))

    def note(self, work: Callable[[], Answer]) -> Answer:
        """Do it with a clock."""
        self.begun = self.begun or now()
        self.passes += 1
        return self.steps.time(work)


class WatchedInterpolation:
    """N-grams with a clock, which runs once `watched` has taken its first step."""

    def __init__(self, interpolation: Interpolation, watched: Watched) -> None:
        self.interpolation = interpolation
        self.watched = watched
        self.asked = Stopwatch()

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        """As the n-grams say."""
        return self.note(lambda: self.interpolation(histories, candidates))

    def mix(self, histories: Histories, candidates: Ids, p: Floats) -> Floats:
        """As the n-grams say."""
        return self.note(lambda: self.interpolation.mix(histories, candidates, p))

    def successors(self, histories: Histories, n: int) -> Ids:
        """As the n-grams say."""
        return self.note(lambda: self.interpolation.successors(histories, n))

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """As the n-grams say."""
        return self.note(lambda: self.interpolation.mix_top(histories, p, n))

    def note(self, work: Callable[[], Answer]) -> Answer:
        """Do it with a clock."""
        return self.asked.time(work) if self.watched.begun else work()


def forget(model: Engine) -> None:
    """Let a model know no prompt any more."""
    del model.prompts[:-1]
    model.crop(0)


def never(ids: tuple[int, ...]) -> bool:
    """Drafts go on to their full length."""
    return False


def decode(name: str, contest: Contest, k: int) -> Run:
    """One of this project's decoders."""
    assert contest.model is not None
    forget(contest.model)
    model = Watched(contest.model)
    ngrams = None
    if name in _WITH_NGRAMS and contest.interpolation is not None:
        ngrams = WatchedInterpolation(contest.interpolation, model)
    start = DecodingRequest(contest.prompt, never, contest.prompt[-HISTORY:], ngrams)
    settings = Settings(drafts=k, max_tokens=contest.tokens)
    began = now()
    drafts = DECODERS[name](model, start, settings, lambda: None)
    ended = now()
    assert model.begun is not None
    assert drafts.passes == model.passes
    first, rest = model.begun - began, ended - model.begun
    asked = ngrams.asked.taken if ngrams else Moment()
    return Run(first, rest, contest.tokens, drafts.passes, drafts.rows, model.steps.taken, asked)


def greedy(contest: Contest) -> Run:
    """The likeliest token, again and again: the least that one draft can cost in this engine."""
    assert contest.model is not None
    forget(contest.model)
    model = Watched(contest.model)
    began = now()
    last = int(np.argmax(model.prefill(contest.prompt, lambda: None)))
    for _ in range(contest.tokens - 1):
        last = int(np.argmax(model.step([last], WHOLE)))
    ended = now()
    assert model.begun is not None
    passes = contest.tokens
    return Run(model.begun - began, ended - model.begun, passes, passes, passes - 1, model.steps.taken)


def generate(contest: Contest, k: int, **how: Any) -> Run:
    """`generate` of transformers, with so many sequences in one batch."""
    import torch
    from transformers import GenerationConfig

    marks: list[Moment] = []

    def mark(ids: torch.Tensor, scores: Any, **rest: Any) -> torch.Tensor:
        if not marks and ids.device.type == "cuda":
            torch.cuda.synchronize()
        marks.append(now())
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

    network = contest.network
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=contest.tokens, num_return_sequences=k, pad_token_id=0, use_cache=True, **how
    )
    ids = torch.tensor([contest.prompt], device=network.device)
    torch.manual_seed(0)
    with torch.inference_mode():
        began = now()
        found = network.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=config, stopping_criteria=[mark]
        )
        found.cpu()
        ended = now()
    assert found.shape == (k, len(contest.prompt) + contest.tokens)
    return Run(marks[0] - began, ended - marks[0], contest.tokens, contest.tokens, k * (contest.tokens - 1))


def _rows_of_llama_cpp(contest: Contest, k: int) -> Run:
    """k rows of llama.cpp, one pass for a token of each."""
    model = contest.llama_cpp
    assert model is not None
    begun: list[Moment] = []
    began = now()
    model.drafts(contest.prompt, k, contest.tokens, lambda: begun.append(now()))
    ended = now()
    return Run(begun[0] - began, ended - begun[0], contest.tokens, contest.tokens, k * (contest.tokens - 1))


def reading(contest: Contest) -> Run:
    """All weights read once for each token, and nothing else."""
    assert contest.reader is not None
    began = now()
    contest.reader.read()
    first = now()
    for _ in range(contest.tokens - 1):
        contest.reader.read()
    return Run(first - began, now() - first, contest.tokens, 0, 0)


ARMS: dict[str, Callable[[Contest, int], Run]] = {
    "superposed": lambda contest, k: decode("superposed", contest, k),
    "rescored": lambda contest, k: decode("rescored", contest, k),
    "greedy": lambda contest, k: greedy(contest),
    "nucleus": lambda contest, k: decode("nucleus", contest, k),
    "beam": lambda contest, k: decode("beam", contest, k),
    "transformers greedy": lambda contest, k: generate(contest, 1, do_sample=False),
    "transformers nucleus": lambda contest, k: generate(contest, k, do_sample=True, top_p=_TOP_P, top_k=0),
    "transformers beam": lambda contest, k: generate(contest, k, do_sample=False, num_beams=k),
    LLAMA_CPP: _rows_of_llama_cpp,
    "reading": lambda contest, k: reading(contest),
}
SINGLE = ("reading", "greedy", "transformers greedy")  # write one draft, whatever k


def contenders(ks: Sequence[int], left_out: Sequence[str] = ()) -> list[tuple[str, int]]:
    """All of them, by name and k. k rows of one are one row: nucleus and beam begin at 2."""
    batched = [name for name in ARMS if name not in (*SINGLE, *left_out)]
    return [(name, 1) for name in SINGLE] + [
        (name, k) for k in ks for name in batched if k > 1 or name in ("superposed", LLAMA_CPP)
    ]


def run(name: str, k: int, contest: Contest) -> Run:
    """One run of a contender."""
    return ARMS[name](contest, k)
