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
from typing import Any

from spd_lsp.http.completions import Alternative, Answer, Wanted
from spd_lsp.http.fields import Fields, Refused
from spd_lsp.http.fill_prompts import Prompt, read_prompt
from spd_lsp.http.infill import MAX_ALTERNATIVES, MAX_FILES, as_path, place_of

_MAX_TOKENS = 2**31 - 1


def wanted_of(fields: Fields) -> Wanted:
    """What a request's fields ask for."""
    prompts = fields.texts("prompt")
    if len(prompts) != 1:
        raise Refused(400, f"Field 'prompt': expected one text, not token ids, found {len(prompts)} texts")
    after = fields.text("suffix")
    prompt = Prompt(prompts[0], after) if after else read_prompt(prompts[0])
    place = place_of(fields)
    place["path"] = place["path"] or as_path(prompt.path, "prompt")
    place["others"] += [(as_path(name, "prompt") or "tmp", other) for name, other in prompt.others[-MAX_FILES:]]
    return Wanted(
        before=prompt.before,
        after=prompt.after,
        alternatives=fields.number("n", 1, 1, MAX_ALTERNATIVES),
        drafts=fields.number("best_of", 0, 0, MAX_ALTERNATIVES),
        max_tokens=fields.number("max_tokens", 0, 0, _MAX_TOKENS) or None,
        stop=[one for one in fields.texts("stop") if one],
        unasked=not fields.flag("explicit", True),
        **place,
    )


def completion(answer: Answer, fields: Fields, model: str) -> dict[str, Any]:
    """The answer; a text that is empty if there is none."""
    alternatives = answer.alternatives or [Alternative("", 0, None, ends=True)]
    prompt = answer.found.prompt_tokens
    written = sum(one.tokens for one in alternatives)
    echoed = fields.texts("prompt")[0] if fields.flag("echo") else ""
    with_logprobs = fields.values.get("logprobs") not in (None, False)
    return {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [_choice(one, number, echoed, with_logprobs) for number, one in enumerate(alternatives)],
        "usage": {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written},
    }


def events(completion: Mapping[str, Any], fields: Fields) -> str:
    """The same as a stream of events: each text at once, as drafts are ranked when all are written."""
    parts = [{**completion, "choices": [choice], "usage": None} for choice in completion["choices"]]
    options = fields.values.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage") is True:
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
