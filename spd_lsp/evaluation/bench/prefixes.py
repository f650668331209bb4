"""What keeping the cache between requests saves: a prompt read cold, and again after usual edits.

Comes in: an engine and a prompt. Goes out: runs by kind of edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from spd_lsp.evaluation.bench.arms import forget
from spd_lsp.evaluation.bench.moments import Moment, now
from spd_lsp.models.base import Engine

TYPED = 5  # tokens that a person types between two requests
COLD = "cold"


def requests(ids: Sequence[int]) -> dict[str, list[int]]:
    """What the next request may hold after a prompt `ids`; the last TYPED ids are what is typed next."""
    before = list(ids[:-TYPED])
    middle = len(before) // 2
    return {
        COLD: before,
        "same prompt": before,
        f"+{TYPED} tokens": list(ids),
        "edit in the middle": [*before[:middle], before[middle - 1], *before[middle + 1 :]],
    }


def read_again(engine: Engine, ids: Sequence[int], repeat: int) -> dict[str, list[Moment]]:
    """How long each request's prompt takes after the first prompt was read; rounds in changing order."""
    asked = requests(ids)
    taken: dict[str, list[Moment]] = {name: [] for name in asked}
    for number in range(repeat + 1):
        for name in Random(number).sample(sorted(asked), len(asked)):
            forget(engine)
            if name != COLD:
                engine.prefill(asked[COLD])
            started = now()
            engine.prefill(asked[name])
            if number:  # the first round warms up
                taken[name].append(now() - started)
    return taken
