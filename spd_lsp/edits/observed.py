"""What a person just changed in a document, from its versions.

In: the versions of one document, as they come. Out: its edits. An edit goes on as long as the changes stay in a
line; one that is taken back leaves nothing to repeat.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from spd_lsp.edits.rewrite import Edit, changed_span, edits_between

_KEPT = 8  # edits
_MAX_CHANGE_LINES = 40  # of one change; more come from a program


class Recent(NamedTuple):
    """What was just changed."""

    now: tuple[Edit, ...]  # in the line that was edited last, with offsets in the text of now
    earlier: tuple[Edit, ...]  # elsewhere, newest first


class Observed:
    """The edits in one document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.base = text  # before the edit that goes on
        self.settled: deque[Edit] = deque(maxlen=_KEPT)  # oldest first

    def see(self, text: str) -> None:
        """Take in the next version."""
        if text is self.text:
            return
        start, old_end, new_end = changed_span(self.text, text)
        if max(self.text.count("\n", start, old_end), text.count("\n", start, new_end)) > _MAX_CHANGE_LINES:
            self.base = text
            self.settled.clear()
        elif not self._goes_on(start, old_end):
            self.settled.extend(edits_between(self.base, self.text))
            self.base = self.text
        self.text = text

    def _goes_on(self, start: int, end: int) -> bool:
        """Whether a change of this span of the text is in the line of the edit that goes on."""
        first, old_last, last = changed_span(self.base, self.text)
        if "\n" in self.base[first:old_last] or "\n" in self.text[first:last]:
            return False
        line = self.text.rfind("\n", 0, first) + 1
        return line <= start and end <= self.text.find("\n", last) % (len(self.text) + 1)

    @property
    def recent(self) -> Recent:
        """The edits; none if the last one takes back another."""
        now = edits_between(self.base, self.text)
        undone = {(edit.new, edit.old) for edit in self.settled}
        if any((edit.old, edit.new) in undone for edit in now):
            return Recent((), ())
        return Recent(tuple(now), tuple(self.settled)[::-1])
