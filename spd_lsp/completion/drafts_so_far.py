"""The drafts that a decoder has so far: a completion can end once none of them goes on with what was typed."""

from __future__ import annotations

from collections.abc import Sequence

from ngram_builders.table.suffix_array import Place
from spd_lsp.completion.postprocess import DraftText


class DraftsSoFar:
    """What a decoder examined since its last pass, and the finished drafts; ids become texts only if asked for."""

    def __init__(self, texts: DraftText, places: Sequence[Place]) -> None:
        """`places`: in the user's code, whose texts may be offered as well."""
        self._texts = texts
        self._places = places
        self._live: list[Sequence[int]] = []
        self._finished: list[Sequence[int]] = []
        self._is_new_step = True

    def begin_step(self) -> None:
        """Note that a pass begins: what is examined after it replaces what was examined before."""
        self._is_new_step = True

    def is_finished(self, ids: Sequence[int]) -> bool:
        """Whether a draft is finished; the decoder asks this of each that it examines."""
        if self._is_new_step:
            self._is_new_step, self._live = False, []
        finished = self._texts.is_finished(ids)
        (self._finished if finished else self._live).append(ids)
        return finished

    def fit(self, typed: str) -> bool:
        """Whether any draft may still become one that goes on with what was typed; true while there is none."""
        if not self._live and not self._finished:
            return True
        live = [self._texts.text(ids) for ids in self._live]
        ended = [self._texts.visible(ids) for ids in self._finished]
        copied = [text for _, text in self._texts.continuations(self._places)]
        begun = any(typed.startswith(text) for text in live)
        return begun or any(text.startswith(typed) for text in (*live, *ended, *copied))
