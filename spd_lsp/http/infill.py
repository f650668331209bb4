"""The API of llama.cpp's server for completions between two texts: `POST /infill`.

Field names are llama.cpp's; so is what they mean, but for what a draft is: texts end where a line or block ends.
Fields of our own: `path`, `language` and `explicit` in a request, `probability` in an answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from spd_lsp.http.completions import Alternative, Answer, Wanted
from spd_lsp.http.fields import Alternatives, Fields, as_list

_MAX_NUMBER = 2**31 - 1


class InfillFields(Fields):
    """The body of a request."""

    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    n_predict: Annotated[int, Meta(ge=-2, le=_MAX_NUMBER)] = -1
    n_cmpl: Alternatives | None = None
    t_max_predict_ms: Annotated[int, Meta(ge=-1, le=_MAX_NUMBER)] = 0
    explicit: bool = False
    response_fields: str | list[str] = ""

    def wanted(self) -> Wanted:
        """What a request asks for."""
        return Wanted(
            before=self.input_prefix + self.prompt,
            after=self.input_suffix,
            alternatives=self.n_cmpl or self.n,
            max_tokens=self.n_predict if self.n_predict > 0 else None,
            line_seconds=self.t_max_predict_ms / 1000 if self.t_max_predict_ms > 0 else None,
            unasked=not self.explicit,
            **self.place(),
        )


def answers(answer: Answer, fields: InfillFields, model: str) -> list[dict[str, Any]]:
    """An object for each alternative; one with an empty text if there is none."""
    alternatives = answer.alternatives or [Alternative("", 0, None, ends=True)]
    wanted = as_list(fields.response_fields)
    found = [_answer(one, number, answer, model) for number, one in enumerate(alternatives)]
    return [_selected(one, wanted) for one in found] if wanted else found


def events(answers: Iterable[Mapping[str, Any]]) -> str:
    """The same as a stream of events: a text at once, as drafts are ranked when all are written, then its end."""
    parts = (part for one in answers for part in ({**one, "stop": False}, {**one, "content": ""}))
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts)


def _answer(one: Alternative, number: int, answer: Answer, model: str) -> dict[str, Any]:
    found = answer.found
    return {
        "index": number,
        "content": one.text,
        "stop": True,
        "model": model,
        "probability": one.probability,
        "tokens_predicted": one.tokens,
        "tokens_evaluated": found.prompt_tokens,
        "truncated": False,
        "stop_type": "word" if one.stop else "eos" if one.ends else "limit",
        "stopping_word": one.stop,
        "tokens_cached": found.prompt_tokens + found.tokens,
        "timings": {
            "cache_n": found.prompt_tokens - found.read_tokens,
            **_rates("prompt", found.read_tokens, answer.reading_seconds),
            **_rates("predicted", found.tokens, answer.writing_seconds),
        },
    }


def _rates(name: str, tokens: int, seconds: float) -> dict[str, float]:
    """Counts and times as llama.cpp writes them; nothing is divided by nothing."""
    return {
        f"{name}_n": tokens,
        f"{name}_ms": seconds * 1000,
        f"{name}_per_token_ms": seconds * 1000 / max(tokens, 1),
        f"{name}_per_second": tokens / seconds if seconds else 0.0,
    }


def _selected(answer: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Only these fields, each under its path. Example: `timings/prompt_n` -> {"timings/prompt_n": 5}."""
    selected: dict[str, Any] = {}
    for path in paths:
        value: Any = answer
        for key in path.split("/"):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            selected[path] = value
    return selected
