"""The answer to a question that only goes on where the last one's answer said: no model is asked.

In: a question with its answer, and a new question. Out: what is left of the answer, if it still stands.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ngram_builders.sources.filters import normalize_line_ends
from spd_lsp.lsp.request import Question

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Answer


def rest_of(asked: Question, answer: Answer, now: Question) -> Answer | None:
    """What the drafts say beyond what was typed since, or None if the best of them says something else.

    Example: asked after `x = `, answered `compute(y)`, `copy(y)`; after `x = comp` the answer is `ute(y)`.
    """
    typed = now.source[asked.cursor : now.cursor]
    if not typed or not _goes_on(asked, typed, now):
        return None
    typed = normalize_line_ends(typed)
    left = [
        dataclasses.replace(draft, text=draft.text[len(typed) :])
        for draft in answer.completions
        if draft.text.startswith(typed) and draft.text[len(typed) :].strip()
    ]
    if not left or not answer.completions[0].text.startswith(left[0].text, len(typed)):
        return None
    return dataclasses.replace(answer, completions=left, passes=0, tokens=0, seconds=0.0)


def _goes_on(asked: Question, typed: str, now: Question) -> bool:
    """Whether the new question is the old one with some text typed at its cursor."""
    source = asked.source[: asked.cursor] + typed + asked.source[asked.cursor :]
    return now == dataclasses.replace(asked, source=source, cursor=now.cursor, forced=now.forced)
