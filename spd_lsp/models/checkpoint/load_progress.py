"""How far the loading of a model is, as a person is told."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS = 1.0  # between two reports


class LoadProgress:
    """Reports shares of a whole, at most one a second."""

    def __init__(
        self, doing: str, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`doing` is what is done. Example: `loading qwen on cpu`."""
        self.doing = doing
        self.report = report
        self.clock = clock
        self.next = 0.0

    def note(self, share: float) -> None:
        """So much is done."""
        if self.clock() >= self.next:
            self.next = self.clock() + _SECONDS
            self.report(f"{self.doing}: {share:.0%}")

    def part(self, start: float, end: float) -> Callable[[float], None]:
        """For a part of the whole: takes shares of it."""
        return lambda share: self.note(start + (end - start) * share)
