"""What prefix reuse saves: a prompt read cold, and read again after common edits."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from spd_lsp.evaluation.bench.clocks import Clocks, now
from spd_lsp.evaluation.bench.contenders import clear_cache
from spd_lsp.models.base import Engine

TYPED_TOKENS = 5  # between two requests
COLD = "cold"


def edited_prompts(ids: Sequence[int]) -> dict[str, list[int]]:
    """Prompts that may follow the prompt `ids`, whose last TYPED_TOKENS are what is typed next."""
    before = list(ids[:-TYPED_TOKENS])
    middle = len(before) // 2
    return {
        COLD: before,
        "same prompt": before,
        f"+{TYPED_TOKENS} tokens": list(ids),
        "edit in the middle": [*before[:middle], before[middle - 1], *before[middle + 1 :]],
    }


def time_prefixes(engine: Engine, ids: Sequence[int], repeat: int) -> dict[str, list[Clocks]]:
    """How long each edited prompt takes after the first one; rounds in changing order."""
    prompts = edited_prompts(ids)
    timings: dict[str, list[Clocks]] = {name: [] for name in prompts}
    for number in range(repeat + 1):
        for name in Random(number).sample(sorted(prompts), len(prompts)):
            clear_cache(engine)
            if name != COLD:
                engine.prefill(prompts[COLD])
            began = now()
            engine.prefill(prompts[name])
            if number:  # the first round warms up
                timings[name].append(now() - began)
    return timings
