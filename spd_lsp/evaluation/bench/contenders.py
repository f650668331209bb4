"""The contenders: each writes k drafts of N tokens after the same prompt, read with an empty cache.

`superposed` and `best-first` look up n-grams; the others do not, and so are at their fastest. `greedy` is a bare
loop over one row. Those named after transformers are its `generate`, batched, with its own cache. The others drive
this project's engine. End of text stops none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spd_lsp.decoding.candidates import Interpolation
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.bench.clocks import CallTimer, Clocks, Timing, now
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.sampling import TOP_P
from spd_lsp.models.base import Engine
from spd_lsp.settings import Settings

_HISTORY = 16  # tokens before the drafts that n-grams can reach back to
_WITH_NGRAMS = ("superposed", "best-first")
_WHOLE = np.ones(1)
TRANSFORMERS = "transformers"  # how its contenders' names begin


@dataclass(slots=True)
class BenchSetup:
    """The models, and what they continue."""

    model: Engine | None  # this project's engine
    network: Any  # the same weights in transformers, or None
    prompt: tuple[int, ...]
    tokens: int
    interpolation: Interpolation | None = None


def _clear_cache(model: Engine) -> None:
    """Make a model forget all prompts."""
    del model.prompts[:-1]
    model.crop(0)


def _never_stop(ids: tuple[int, ...]) -> bool:
    """Drafts have their full length."""
    return False


def _run_decoder(name: str, setup: BenchSetup, k: int) -> Timing:
    assert setup.model is not None
    _clear_cache(setup.model)
    model: Any = CallTimer(setup.model, untimed=("prefill",))
    ngrams: Any = None
    if name in _WITH_NGRAMS and setup.interpolation is not None:
        # Look-ups before the first step belong to the first tokens.
        ngrams = CallTimer(setup.interpolation, is_active=lambda: model.first_call is not None)
    start = DecodingRequest(setup.prompt, _never_stop, setup.prompt[-_HISTORY:], ngrams)
    settings = Settings(drafts=k, max_tokens=setup.tokens)
    began = now()
    drafts = DECODERS[name](model, start, settings, lambda: None)
    ended = now()
    assert drafts.passes == 1 + model.calls
    return Timing(
        model.first_call - began,
        ended - model.first_call,
        setup.tokens,
        drafts.passes,
        drafts.rows,
        model.total,
        ngrams.total if ngrams else Clocks(),
    )


def _run_greedy(setup: BenchSetup) -> Timing:
    """The most likely token, again and again: the least that one draft can cost in this engine."""
    assert setup.model is not None
    _clear_cache(setup.model)
    model: Any = CallTimer(setup.model, untimed=("prefill",))
    began = now()
    last = int(np.argmax(model.prefill(setup.prompt, lambda: None)))
    for _ in range(setup.tokens - 1):
        last = int(np.argmax(model.step([last], _WHOLE)))
    ended = now()
    passes = setup.tokens
    return Timing(model.first_call - began, ended - model.first_call, passes, passes, passes - 1, model.total)


def _run_transformers(setup: BenchSetup, k: int, **options: Any) -> Timing:
    """`generate` of transformers, with this many sequences in one batch."""
    import torch
    from transformers import GenerationConfig

    token_times: list[Clocks] = []

    def note_token(ids: torch.Tensor, scores: Any, **rest: Any) -> torch.Tensor:
        if not token_times and ids.device.type == "cuda":
            torch.cuda.synchronize()
        token_times.append(now())
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

    network = setup.network
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=setup.tokens, num_return_sequences=k, pad_token_id=0, use_cache=True, **options
    )
    ids = torch.tensor([setup.prompt], device=network.device)
    torch.manual_seed(0)
    with torch.inference_mode():
        began = now()
        written = network.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=config, stopping_criteria=[note_token]
        )
        written.cpu()
        ended = now()
    assert written.shape == (k, len(setup.prompt) + setup.tokens)
    tokens = setup.tokens
    return Timing(token_times[0] - began, ended - token_times[0], tokens, tokens, k * (tokens - 1))


CONTENDERS: dict[str, Callable[[BenchSetup, int], Timing]] = {
    "superposed": lambda setup, k: _run_decoder("superposed", setup, k),
    "best-first": lambda setup, k: _run_decoder("best-first", setup, k),
    "greedy": lambda setup, k: _run_greedy(setup),
    "nucleus": lambda setup, k: _run_decoder("nucleus", setup, k),
    "beam": lambda setup, k: _run_decoder("beam", setup, k),
    "transformers greedy": lambda setup, k: _run_transformers(setup, 1, do_sample=False),
    "transformers nucleus": lambda setup, k: _run_transformers(setup, k, do_sample=True, top_p=TOP_P, top_k=0),
    "transformers beam": lambda setup, k: _run_transformers(setup, k, do_sample=False, num_beams=k),
}
SINGLE = ("greedy", "transformers greedy")  # write one draft, whatever k


def contender_keys(ks: Sequence[int], skipped: Sequence[str] = ()) -> list[tuple[str, int]]:
    """All contenders by name and k; nucleus and beam begin at 2, since one row is greedy."""
    batched = [name for name in CONTENDERS if name not in (*SINGLE, *skipped)]
    return [(name, 1) for name in SINGLE if name not in skipped] + [
        (name, k) for k in ks for name in batched if k > 1 or name == "superposed"
    ]
