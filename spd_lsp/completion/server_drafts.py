"""Drafts of a model server, which is sent the text around the cursor without its secrets.

In: a place in a document. Out: the server's texts and how probable it finds them, as if they were decoded here.
"""

from __future__ import annotations

from collections.abc import Callable

from ngram_builders.sources.masking import MARK, is_unfinished, mask, may_begin_secret
from spd_lsp.completion.context import Context
from spd_lsp.completion.draft_text import DraftText, find_end
from spd_lsp.completion.fill_formats import FILL_FORMATS
from spd_lsp.decoding.superposed import DecodingResult, Draft
from spd_lsp.models.model_server import ModelServer, Question
from spd_lsp.settings import NO_FILL_FORMAT, Settings


def server_drafts(
    server: ModelServer, texts: DraftText, source: str, settings: Settings, check: Callable[[], None]
) -> DecodingResult | None:
    """The server's texts as drafts; None if it does not answer, or the cursor's line may hold a secret."""
    context = texts.context
    if (sent := _without_secrets(context, source)) is None:
        return None
    before, after = _laid_out(*sent, settings.fill_format)
    stop = ("\n",) if find_end("\n", context) is not None else ()
    drafts = []
    for one in server.write(Question(before, after, settings.drafts, settings.max_tokens, stop), check):
        text = one.text.decode(errors="ignore")
        if one.ends and find_end(text, context) is None:
            text += "\n"
        ids = (*texts.spelled(text), texts.tokens.end_of_text)
        drafts.append(Draft(ids, sum(token.logprob for token in one.tokens)))
    drafts.sort(key=lambda draft: -draft.score)
    return DecodingResult(drafts, 0, max(len(draft.ids) for draft in drafts)) if drafts else None


def _without_secrets(context: Context, source: str) -> tuple[str, str] | None:
    """What a model reads around the cursor, secrets' lines left blank; None if the cursor's line may be one."""
    lines = source.split("\n")
    masked = mask(source).split("\n")
    if len(masked) != len(lines) or (source and masked == [""]):  # it lists secrets
        return None
    secret = {line for line, shown in zip(lines, masked, strict=True) if shown == MARK}
    before = context.before.split("\n")
    after = context.read_after.split("\n")
    here = context.around.left + context.around.rest
    if here in secret or may_begin_secret("\n".join(before[:-1]), here):
        return None
    kept = ["" if line in secret or is_unfinished(line) else line for line in (*before[:-1], *after[1:])]
    above = kept[: len(before) - 1]
    return "\n".join((*above, before[-1])), "\n".join((after[0], *kept[len(above) :]))


def _laid_out(before: str, after: str, fill_format: str) -> tuple[str, str]:
    """The same as one text with a format's marks, where a person names the format of the server's model."""
    if fill_format == NO_FILL_FORMAT:
        return before, ""
    chosen = next((one for one in FILL_FORMATS if one.name == fill_format), None)
    if chosen is None or not after:
        return before, after
    texts = {"{after}": after, "{before}": before, "{above}": before, "{recent}": ""}
    return "".join(texts.get(part, part) for part in chosen.parts), ""
