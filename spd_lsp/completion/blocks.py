"""Where a block begins: completions are its first lines, and the best of them goes on to the block's end.

Drafts share passes while they are alike, which those of several lines are not; and of the alternatives to a whole
block, hardly more than the first line is ever read. So k first lines are looked for, and then one draft is written
on alone. A block that stands elsewhere in the user's code behind the same lines is copied instead, at no pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from spd_lsp.completion.draft_text import MAX_BLOCK_TOKENS, DraftText
from spd_lsp.completion.offer import OfferInputs, offer_alone
from spd_lsp.completion.ranking import Completion
from spd_lsp.decoding.superposed import DecodingRequest, Draft, expand, wanted_after
from spd_lsp.models.base import Engine
from spd_lsp.settings import Settings

_LEAST_LIKELY_LINE = math.log(0.1)  # of 88 bodies no line beyond a less likely one was right; two lines are shown
_ALONE = np.ones(1)  # the weight of a token that is not mixed with others


def with_copied_blocks(completions: Sequence[Completion], inputs: OfferInputs) -> list[Completion]:
    """The completions, each with the rest of its block where one that begins so stands in the user's code.

    inputs: with texts that end with the block.
    """
    blocks: dict[str, str] = {}
    for _, block in inputs.texts.continuations(inputs.occurrences):
        blocks.setdefault(first_line(block), block)  # of the longest match
    return [written_on(one, blocks.get(one.text, ""), inputs) for one in completions]


def written_on(one: Completion, block: str, inputs: OfferInputs) -> Completion:
    """A completion as far as a block that begins so goes on, if that can be inserted."""
    is_longer = block.startswith(one.text + "\n")
    return replace(one, text=block) if is_longer and offer_alone([(block, 0.0)], inputs, 1).completions else one


def first_line(text: str) -> str:
    """The first line that says something, and what stands before it."""
    start = len(text) - len(text.lstrip())
    return text[:start] + text[start:].partition("\n")[0].rstrip()


def write_block(
    model: Engine,
    begun: str,
    texts: DraftText,
    request: DecodingRequest,
    settings: Settings,
    check: Callable[[], None],
) -> tuple[str, int]:
    """What a user would see of the block that begins with a text, as far as each line is likely; and the passes.

    One token a pass: the likeliest. `check` is called before each pass and may raise to cancel.
    """
    ids = texts.spelled(begun)
    most = min(len(ids) + MAX_BLOCK_TOKENS, model.max_positions - len(request.prompt))
    draft = Draft(ids, 0.0)
    line_score = 0.0
    line = len(ids)  # the score and the ids of the draft where its last line begins
    try:
        logits = model.prefill([*request.prompt, *ids], check)
        for passes in count(1):
            draft = next(expand(logits, [draft], request, settings))
            if draft.score - line_score < _LEAST_LIKELY_LINE:
                return texts.visible(draft.ids[:line]), passes
            if texts.is_finished(draft.ids) or len(draft.ids) >= most:
                return texts.visible(draft.ids), passes
            if b"\n" in texts.tokens.pieces[draft.ids[-1]]:
                line_score = draft.score
                line = len(draft.ids)
            check()
            logits = model.step(draft.ids[-1:], _ALONE, wanted_after([draft], request, settings))
        raise AssertionError("the length is limited")
    finally:
        model.crop(len(request.prompt))
