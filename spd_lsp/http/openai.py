"""OpenAI's API of text completions: `POST /v1/completions`, and `GET /v1/models`.

A completion is one of k drafts, a whole line or block. Of its probability only that of the whole is known: in
`logprobs` it stands as one token. Sampling parameters are ignored: drafts are the likeliest texts, none is drawn.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from spd_lsp.http.completions import Alternative, Answer, Wanted
from spd_lsp.http.fields import MAX_FILES, Fields
from spd_lsp.http.fill_prompts import Prompt, read_prompt


class StreamOptions(Struct, frozen=True):
    """What a stream tells besides."""

    include_usage: bool = False


class CompletionFields(Fields, kw_only=True):
    """The body of a request."""

    prompt: str | Annotated[list[str], Meta(min_length=1, max_length=1)]
    suffix: str = ""
    best_of: Annotated[int, Meta(ge=0, le=16)] = 0
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    explicit: bool = True
    echo: bool = False
    logprobs: Any = None
    stream_options: StreamOptions = StreamOptions()

    @property
    def text(self) -> str:
        """The prompt."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[0]

    def wanted(self) -> Wanted:
        """What a request asks for."""
        prompt = Prompt(self.text, self.suffix) if self.suffix else read_prompt(self.text)
        place = self.place()
        place["path"] = place["path"] or prompt.path
        place["others"] += [(name or "tmp", other) for name, other in prompt.others[-MAX_FILES:]]
        return Wanted(
            before=prompt.before,
            after=prompt.after,
            alternatives=self.n,
            drafts=self.best_of,
            max_tokens=self.max_tokens or None,
            unasked=not self.explicit,
            **place,
        )


def completion(answer: Answer, fields: CompletionFields, model: str) -> dict[str, Any]:
    """The answer; a text that is empty if there is none."""
    alternatives = answer.alternatives or [Alternative("", 0, None, ends=True)]
    prompt = answer.found.prompt_tokens
    written = sum(one.tokens for one in alternatives)
    echoed = fields.text if fields.echo else ""
    with_logprobs = fields.logprobs not in (None, False)
    return {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [_choice(one, number, echoed, with_logprobs) for number, one in enumerate(alternatives)],
        "usage": {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written},
    }


def events(completion: Mapping[str, Any], fields: CompletionFields) -> str:
    """The same as a stream of events: each text at once, as drafts are ranked when all are written."""
    parts = [{**completion, "choices": [choice], "usage": None} for choice in completion["choices"]]
    if fields.stream_options.include_usage:
        parts.append({**completion, "choices": []})
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"


def _choice(one: Alternative, number: int, echoed: str, with_logprobs: bool) -> dict[str, Any]:
    return {
        "index": number,
        "text": echoed + one.text,
        "logprobs": _logprobs(one) if with_logprobs else None,
        "finish_reason": "stop" if one.ends else "length",
    }


def _logprobs(one: Alternative) -> dict[str, Any]:
    """The whole text as one token, if its probability is known."""
    known = [math.log(one.probability)] if one.probability else []
    return {
        "tokens": [one.text] * len(known),
        "token_logprobs": known,
        "top_logprobs": None,
        "text_offset": [0] * len(known),
    }
