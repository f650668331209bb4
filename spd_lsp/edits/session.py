"""What a person changes in the open documents, and where the newest edit is wanted, too.

In: the documents, each time one changes. Out: proposals, after two like edits only. An edit goes on as long as the
changes stay in a line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from spd_lsp.edits.edit import Edit, changed_span, edit_between
from spd_lsp.edits.rewrite import Proposal, proposals_of, rewrite_of

_KEPT = 8  # edits
_MAX_LINES = 40  # of one change; more come from a program


class Session:
    """The texts of the open documents by name, such as a URI, and the edits in them."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.edited = ""  # the document that was edited last
        self._base = ""  # its text before the edit that goes on
        self._earlier: deque[Edit] = deque(maxlen=_KEPT)  # newest first

    def see(self, texts: Mapping[str, str]) -> None:
        """Take in the open documents as they are now."""
        for name, text in texts.items():
            if self.texts.get(name, text) is not text:
                self._change(name, self.texts[name], text)
        self.texts = dict(texts)

    def _change(self, name: str, before: str, after: str) -> None:
        start, old_end, new_end = changed_span(before, after)
        if max(before.count("\n", start, old_end), after.count("\n", start, new_end)) > _MAX_LINES:
            self._earlier.clear()
            self.edited, self._base = name, after
        elif name != self.edited or not self._goes_on(before, start, old_end):
            if edit := self.newest:
                self._earlier.appendleft(edit)
            self.edited, self._base = name, before

    def _goes_on(self, text: str, start: int, end: int) -> bool:
        """Whether a change of this span of the edited document is in the line of the edit that goes on."""
        first, old_last, last = changed_span(self._base, text)
        if "\n" in self._base[first:old_last] or "\n" in text[first:last]:
            return False
        line = text.rfind("\n", 0, first) + 1
        return line <= start and end <= text.find("\n", last) % (len(text) + 1)

    @property
    def newest(self) -> Edit | None:
        """The edit in the line that was edited last."""
        text = self.texts.get(self.edited)
        return None if text is None else edit_between(self.edited, self._base, text)

    def proposals(self) -> list[Proposal]:
        """Where in the edited document the newest edit is wanted, too, first those below it; each place once.

        None if it takes an earlier one back.
        """
        edit = self.newest
        if edit is None or any((edit.new, edit.old) == (other.old, other.new) for other in self._earlier):
            return []
        taken: list[Proposal] = []
        for found in self._candidates(edit):
            if not any(found.start <= other.end and other.start <= found.end for other in taken):
                taken.append(found)
        return taken

    def _candidates(self, edit: Edit) -> Iterator[Proposal]:
        """What the newest edit and an earlier one say, unless a place between the two was passed over."""
        for other in self._earlier:
            if rewrite := rewrite_of(edit, other):
                found = list(proposals_of(rewrite, self.texts[self.edited]))
                above, below = sorted((edit.start, other.start))
                is_passed = other.document == self.edited and any(above < one.start < below for one in found)
                if not is_passed:
                    yield from sorted(found, key=lambda one: one.start < edit.start)
