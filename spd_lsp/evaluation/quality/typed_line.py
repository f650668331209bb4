"""Type a line and accept what is offered: how many keystrokes that saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion
from spd_lsp.completion.typed_along import CompletionRequest, RecentResults, merge_previous

_NOWHERE = CompletionRequest("", 0, None, None, "", explicit=False)


@dataclass(frozen=True, slots=True)
class TypedLine:
    """The cost of a line; keystrokes saved is 1 - keystrokes / characters."""

    keystrokes: int
    characters: int
    requests: int
    accepted: int


def type_line(
    target: str,
    complete: Callable[[str], Sequence[Completion]],
    most: int = 3,
    start: CompletionRequest = _NOWHERE,
) -> TypedLine:
    """Simulate a person who types a target at the start and accepts completions wherever that saves keystrokes.

    `complete` returns the completions after a prefix of the target, best first, of which `most` are shown. A
    character costs 1, accepting 1, each step down the list 1. What is shown on the way is what the server shows.
    Example: target `abcd`, completions `x`, `abc` -> accept the second (2 keystrokes), then type `d`: 3 of 4.
    """
    written = 0
    keystrokes = 0
    requests = 0
    accepted = 0
    recent = RecentResults()
    while written < len(target):
        request = start.with_typed(target[:written])
        shown = recent.find(request, 0)
        if shown is None or shown.needs_refresh:
            result = CompletionResult(list(complete(target[:written])), most)
            shown = recent.add(request, merge_previous(result, shown))
            requests += 1
        texts = [one.text for one in shown.completions]
        saved, rank = _best_to_accept(texts, target[written:])
        written += len(texts[rank]) if saved > 0 else 1
        keystrokes += 1 + rank if saved > 0 else 1
        accepted += saved > 0
    return TypedLine(keystrokes, len(target), requests, accepted)


def _best_to_accept(drafts: Sequence[str], rest: str) -> tuple[int, int]:
    """The keystrokes that the best draft saves, and its rank; -1 without a draft that fits."""
    saved = [(len(draft) - 1 - at if rest.startswith(draft) else -1, -at) for at, draft in enumerate(drafts)]
    most, rank = max(saved, default=(-1, 0))
    return most, -rank
