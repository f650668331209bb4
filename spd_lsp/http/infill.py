"""The API of llama.cpp's server for completions between two texts: `POST /infill`.

Field names are llama.cpp's; so is what they mean, but for what a draft is: texts end where a line or block ends.
Fields of our own: `path`, `language` and `explicit` in a request, `probability` in an answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from spd_lsp.http.completions import Alternative, Answer, Wanted
from spd_lsp.http.fields import Fields, Refused

MAX_ALTERNATIVES = 16  # as the setting `drafts`
MAX_FILES = 256
_MAX_NUMBER = 2**31 - 1
_MAX_PATH = 4096  # characters


def wanted_of(fields: Fields) -> Wanted:
    """What a request's fields ask for."""
    limit = fields.number("n_predict", -1, -2, _MAX_NUMBER)
    name = fields.first_of("n_cmpl", "n")
    milliseconds = fields.number("t_max_predict_ms", 0, -1, _MAX_NUMBER)
    return Wanted(
        before=fields.text("input_prefix") + fields.text("prompt"),
        after=fields.text("input_suffix"),
        alternatives=fields.number(name, 1, 1, MAX_ALTERNATIVES),
        max_tokens=limit if limit > 0 else None,
        line_seconds=milliseconds / 1000 if milliseconds > 0 else None,
        stop=[one for one in fields.texts("stop") if one],
        unasked=not fields.flag("explicit"),
        **place_of(fields),
    )


def place_of(fields: Fields) -> dict[str, Any]:
    """What a request says of its file and of other ones, in fields that all of our APIs share."""
    others = fields.items("input_extra", MAX_FILES)
    return {
        "path": _path(fields, "path"),
        "language": fields.text("language").lower(),
        "others": [(_path(one, "filename") or "tmp", one.text("text")) for one in others],
    }


def answers(answer: Answer, fields: Fields, model: str) -> list[dict[str, Any]]:
    """An object for each alternative; one with an empty text if there is none."""
    alternatives = answer.alternatives or [Alternative("", 0, None, ends=True)]
    wanted = fields.texts("response_fields")
    found = [_answer(one, number, answer, model) for number, one in enumerate(alternatives)]
    return [_selected(one, wanted) for one in found] if wanted else found


def events(answers: Iterable[Mapping[str, Any]]) -> str:
    """The same as a stream of events: a text at once, as drafts are ranked when all are written, then its end."""
    parts = (part for one in answers for part in ({**one, "stop": False}, {**one, "content": ""}))
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts)


def _path(fields: Fields, name: str) -> str:
    return as_path(fields.text(name), name)


def as_path(path: str, name: str) -> str:
    """A path that stands in a field of this name."""
    if "\0" in path or len(path) > _MAX_PATH:
        raise Refused(400, f"Field '{name}': expected a path of at most {_MAX_PATH} characters, without null ones")
    return path


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
