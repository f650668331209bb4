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
    written = keystrokes = requests = accepted = 0
    recent = RecentResults()
    while written < len(target):
        request = start.with_typed(target[:written])
        shown = recent.find(request, 0)
        if shown is None or shown.needs_refresh:
            result = CompletionResult(list(complete(target[:written])), most)
            shown = recent.add(request, merge_previous(result, shown))
            requests += 1
        fitting = [
            (len(one.text) - 1 - rank, -rank, one.text)
            for rank, one in enumerate(shown.completions)
            if target.startswith(one.text, written)
        ]
        saved, place, text = max(fitting, default=(0, 0, ""))
        if saved > 0:
            written += len(text)
            keystrokes += 1 - place
            accepted += 1
        else:
            written += 1
            keystrokes += 1
    return TypedLine(keystrokes, len(target), requests, accepted)
