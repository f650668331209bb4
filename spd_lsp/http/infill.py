"""The API of llama.cpp's server for completions between two texts: `POST /infill`.

Fields have llama.cpp's names and meanings, but texts end where a line or block ends.
Fields of our own: `path`, `language` and `explicit` in a request, `probability` in an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spd_lsp.completion.draft_text import MAX_BLOCK_TOKENS
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion
from spd_lsp.http.completions import Count, Fields, Query


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

    def query(self) -> Query:
        """The body as a query."""
        return Query(
            before=self.input_prefix + self.prompt,
            after=self.input_suffix,
            fields=self,
            alternatives=self.n_cmpl or self.n,
            explicit=self.explicit,
            max_tokens=self.n_predict if self.n_predict > 0 else MAX_BLOCK_TOKENS,
            line_seconds=self.t_max_predict_ms / 1000,
        )


def answers(found: CompletionResult, reading: float, fields: InfillFields, model: str) -> list[dict[str, Any]]:
    """An object for each alternative, at least one. `reading`: seconds for the prompt."""
    shared = {
        "stop": True,
        "model": model,
        "tokens_predicted": found.tokens,
        "tokens_evaluated": found.prompt_tokens,
        "tokens_cached": found.prompt_tokens + found.tokens,
        "truncated": False,
        "timings": {
            "cache_n": found.prompt_tokens - found.read_tokens,
            **_rates("prompt", found.read_tokens, reading),
            **_rates("predicted", found.tokens, max(0.0, found.seconds - reading)),
        },
    }
    answers = [
        {
            "index": number,
            "content": one.text,
            "probability": one.shown_probability,
            "stop_type": "eos" if one.ends else "limit",
            **shared,
        }
        for number, one in enumerate(found.completions or [Completion("", 0.0, is_rated=False)])
    ]
    return [_selected(one, fields.response_fields) for one in answers] if fields.response_fields else answers


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
