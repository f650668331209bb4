"""The API of llama.cpp's server for completions between two texts: `POST /infill`.

Field names are llama.cpp's; so is what they mean, but for what a draft is: texts end where a line or block ends.
Fields of our own: `path`, `language` and `explicit` in a request, `probability` in an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spd_lsp.completion.draft_text import MAX_BLOCK_TOKENS
from spd_lsp.http.completions import Alternative, Answer, Count, Fields, Wanted


class InfillFields(Fields):
    """The body of a request."""

    input_prefix: str = ""
    input_suffix: str = ""
    prompt: str = ""
    n_predict: int = -1
    n_cmpl: Count | None = None
    t_max_predict_ms: int = 0
    explicit: bool = False
    response_fields: tuple[str, ...] = ()

    def wanted(self) -> Wanted:
        """What a request asks for."""
        return Wanted(
            before=self.input_prefix + self.prompt,
            after=self.input_suffix,
            fields=self,
            alternatives=self.n_cmpl or self.n,
            explicit=self.explicit,
            max_tokens=self.n_predict if self.n_predict > 0 else MAX_BLOCK_TOKENS,
            line_seconds=self.t_max_predict_ms / 1000,
        )


def answers(answer: Answer, fields: InfillFields, model: str) -> list[dict[str, Any]]:
    """An object for each alternative; one with an empty text if there is none."""
    alternatives = answer.alternatives or [Alternative("", 0, None, ends=True)]
    found = [_answer(one, number, answer, model) for number, one in enumerate(alternatives)]
    return [_selected(one, fields.response_fields) for one in found] if fields.response_fields else found


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
            **_rates("predicted", found.tokens, max(0.0, found.seconds - answer.reading_seconds)),
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
