"""Drafts of a model server, as if a model in this process had computed how probable their tokens are.

In: a place in a document. Out: what the usual search finds where the server's texts are mixed with the n-grams on
this machine. The server is sent the text around the cursor without its secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.sources.masking import MARK, is_unfinished, mask, may_begin_secret
from spd_lsp.completion.context import Context
from spd_lsp.completion.draft_text import DraftText, find_end
from spd_lsp.completion.fill_formats import FILL_FORMATS
from spd_lsp.decoding.decoders import decoder_for
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult
from spd_lsp.models.model_server import ModelServer, Question, Written
from spd_lsp.models.no_model import NoModel
from spd_lsp.settings import NO_FILL_FORMAT, Settings

_Spelled = tuple[tuple[int, ...], list[float]]  # a draft and the probability of each of its ids


def server_drafts(
    server: ModelServer,
    texts: DraftText,
    source: str,
    request: DecodingRequest,
    settings: Settings,
    check: Callable[[], None],
) -> DecodingResult | None:
    """The best drafts; None if the server does not answer, or the cursor's line may hold a secret."""
    context = texts.context
    if (sent := _without_secrets(context, source)) is None:
        return None
    before, after = _laid_out(*sent, settings.fill_format)
    stop = ("\n",) if find_end("\n", context) is not None else ()
    written = server.write(Question(before, after, settings.drafts, settings.max_tokens, stop), check)
    if not written:
        return None
    model = _ServerTexts([_spelled(one, texts) for one in written], texts, request)
    return decoder_for(model, settings)(model, request, settings, check)


def _without_secrets(context: Context, source: str) -> tuple[str, str] | None:
    """What a model reads around the cursor, secrets' lines left blank; None if the cursor's line may be one."""
    lines = source.split("\n")
    masked = mask(source).split("\n")
    if len(masked) != len(lines) or (source and masked == [""]):  # it lists secrets
        return None
    secret = {line for line, shown in zip(lines, masked, strict=True) if shown == MARK}
    before = context.before.split("\n")
    after = context.read_after.split("\n")
    here = context.left + context.after.partition("\n")[0]
    whole = [here] if here in lines else [line for line in lines if here in line]  # of a long line there is a part
    if any(line in secret or may_begin_secret("\n".join(before[:-1]), line) for line in whole):
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


def _spelled(one: Written, texts: DraftText) -> _Spelled:
    """A text in the ids of the local tokenizer; a token's probability is spread over its bytes."""
    text = one.text.decode(errors="ignore")
    if one.ends and find_end(text, texts.context) is None:
        text += "\n"
    ids = texts.spelled(text)
    typed = len(texts.prompt.spelling.healed)
    ends = list(accumulate((len(token.text) for token in one.tokens), initial=typed))
    scores = list(accumulate((token.logprob for token in one.tokens), initial=0.0))
    cuts = [0, *accumulate(len(texts.tokens.pieces[i]) for i in ids)]
    probabilities = np.exp(np.diff(np.interp(cuts, ends, scores))).tolist()
    return (*ids, texts.tokens.end_of_text), [*probabilities, 1.0]


class _ServerTexts(NoModel):
    """A model that predicts a server's texts, and nothing else."""

    is_of_server = True

    def __init__(self, spelled: Sequence[_Spelled], texts: DraftText, request: DecodingRequest) -> None:
        super().__init__(texts.tokens.vocab_size, texts.tokens.end_of_text)
        self.spelled = spelled
        self.allowed = request.allowed(())

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """As in `Engine`."""
        return self.read_draft(())

    def read_draft(self, draft: tuple[int, ...]) -> Floats:
        """As in `Engine`; what is left of a whole is spread over all other tokens."""
        known: dict[int, float] = {}
        for ids, probabilities in self.spelled:
            if ids[: len(draft)] == draft and len(ids) > len(draft):
                following = ids[len(draft)]
                known[following] = max(known.get(following, 0.0), probabilities[len(draft)])
        if not known:
            return np.array(self.logits)
        possible = self.allowed if self.allowed is not None and not draft else slice(None)
        p = np.full(len(self.logits), 1e-30)
        p[possible] = max(1e-6, 1 - sum(known.values())) / len(p[possible])
        p[list(known)] = list(known.values())
        return np.asarray(np.log(p))
