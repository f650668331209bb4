"""Completion golf: a line typed by someone who accepts what is offered wherever that saves keys.

In: the rest of a line, and a way to ask for drafts. Out: keystrokes. Knows texts only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Typed:
    """What a line took; keystrokes saved is 1 - keystrokes / characters."""

    keystrokes: int
    characters: int
    asked: int  # completions computed
    accepted: int


def type_through(target: str, complete: Callable[[str], Sequence[str]]) -> Typed:
    """Type a target. `complete` gives the drafts, best first, once so much of it is written.

    A character costs 1, accepting 1, each step down the list 1. Of the drafts that the rest begins with, the one
    that saves most is taken if it saves anything. As in the server, drafts that what is typed goes on with stay
    offered, without their beginning, and nothing is asked until none is left.
    Example: target `abcd`, drafts `x`, `abc` -> accept the second (2 keys), then type `d`: 3 of 4.
    """
    written, keys, asked, accepted = 0, 0, 0, 0
    drafts: list[str] = []
    while written < len(target):
        if not drafts:
            drafts = list(complete(target[:written]))
            asked += 1
        saved, at = best(drafts, target[written:])
        if saved > 0:
            written += len(drafts[at])
            keys += 1 + at
            accepted += 1
            drafts = []
            continue
        typed = target[written]
        written, keys = written + 1, keys + 1
        drafts = [draft[1:] for draft in drafts if draft.startswith(typed) and len(draft) > 1]
    return Typed(keys, len(target), asked, accepted)


def best(drafts: Sequence[str], rest: str) -> tuple[int, int]:
    """How many keys the best draft saves, and its place; less than 1 if none saves any."""
    saved = [(len(draft) - 1 - at if rest.startswith(draft) else -1, -at) for at, draft in enumerate(drafts)]
    most, place = max(saved, default=(-1, 0))
    return most, -place
