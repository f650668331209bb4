"""OpenAI's API of text completions: `POST /v1/completions`.

A completion is one of k drafts, a whole line or block. Sampling parameters are ignored: drafts are the likeliest
texts, none is drawn. Fields of our own: `path`, `language` and `explicit` in a request, `probability` in a choice.

A prompt may be laid out for another model than the one here, in the tokens of any of `FILL_FORMATS`: what follows
the token for the suffix stands right of the cursor, what follows the others left of it.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta
from starlette.exceptions import HTTPException

from spd_lsp.completion.draft_text import MAX_BLOCK_TOKENS
from spd_lsp.completion.fill_formats import FILL_FORMATS, FillFormat
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion
from spd_lsp.http.completions import Fields, Query

# The tokens of a model that a text may begin with.
_SPECIAL = re.compile(r"\s*(?:<[|｜][^<>\n]{1,30}[|｜]>|<(?:fim[_-]\w+|PRE|SUF|MID)>|\[(?:SUFFIX|PREFIX)\])")


class CompletionFields(Fields, kw_only=True):
    """The body of a request."""

    prompt: str
    suffix: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] = MAX_BLOCK_TOKENS
    explicit: bool = True
    stream: bool = False

    def query(self) -> Query:
        """The body as a query."""
        before, after = (self.prompt, self.suffix) if self.suffix else read_prompt(self.prompt)
        return Query(
            before=before,
            after=after,
            fields=self,
            alternatives=self.n,
            explicit=self.explicit,
            max_tokens=self.max_tokens,
        )


def completion(found: CompletionResult, model: str) -> dict[str, Any]:
    """The answer's body; one empty text if there are no completions."""
    prompt, written = found.prompt_tokens, found.tokens
    return {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": number,
                "text": one.text,
                "probability": one.shown_probability,
                "logprobs": None,
                "finish_reason": "stop" if one.ends else "length",
            }
            for number, one in enumerate(found.completions or [Completion("", 0.0, is_rated=False)])
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written},
    }


def events(completion: Mapping[str, Any]) -> str:
    """The answer as a stream of events, one for each text: drafts are ranked when all are written."""
    parts = [{**completion, "choices": [choice], "usage": None} for choice in completion["choices"]]
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"


def read_prompt(text: str) -> tuple[str, str]:
    """The texts left and right of the cursor; HTTPException where the tokens of a prompt are not known."""
    for sides in filter(None, (_sides(form, text) for form in FILL_FORMATS)):
        return sides
    if _SPECIAL.match(text):
        known = ", ".join(one.name for one in FILL_FORMATS)
        raise HTTPException(
            400,
            "Field 'prompt': its tokens for filling in the middle are not understood; send the text right of the "
            f"cursor as 'suffix', or write both in the format of {known}",
        )
    return text, ""


def _sides(form: FillFormat, text: str) -> tuple[str, str] | None:
    """The texts left and right of the cursor, if the text begins with this format's tokens, and has each once."""
    names = {mark: mark.removeprefix("▁") for mark in form.marks}
    suffix = names[form.parts[form.parts.index("{after}") - 1]]
    # SentencePiece writes a blank before a token, and one before the text that follows it.
    patterns = (rf" ?{re.escape(name)} ?" if name != mark else re.escape(name) for mark, name in names.items())
    marks = list(re.finditer("|".join(patterns), text))
    found = [mark[0].strip(" ") for mark in marks]
    if sorted(found) != sorted(names.values()) or text[: marks[0].start()].strip():
        return None
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    texts = {name: text[mark.end() : end] for name, mark, end in zip(found, marks, ends, strict=True)}
    after = texts.pop(suffix)
    return "".join(texts.values()), after
