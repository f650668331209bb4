"""A request's body, read with suspicion: every field has a type and bounds, and errors say what was expected."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spd_lsp.ngrams.open_documents import clean

_MAX_SHOWN = 40  # characters of a value in an error


class Refused(Exception):
    """A request that is not served, with the status and the sentence to answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a JSON object; null is as good as absent, and unknown fields are ignored."""

    values: Mapping[str, Any]

    @classmethod
    def parse(cls, body: bytes) -> Fields:
        """The fields of a body, or Refused."""
        try:
            values = json.loads(body)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
            raise Refused(400, "expected the body to be JSON, in UTF-8 and not nested deeply") from error
        if not isinstance(values, dict):
            raise Refused(400, f"expected the body to be a JSON object, found {_kind(values)}")
        return cls(values)

    def text(self, name: str) -> str:
        """A text, empty if absent."""
        value = self._get(name, "")
        if not isinstance(value, str):
            raise _wrong(name, "a string", value)
        return clean(value)

    def texts(self, name: str) -> Sequence[str]:
        """A text or a list of texts."""
        value = self._get(name, [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            raise _wrong(name, "a string or a list of strings", value)
        return [clean(one) for one in texts]

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise _wrong(name, "true or false", value)
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number."""
        value = self._get(name, default)
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not is_whole or not low <= value <= high:
            raise _wrong(name, f"a whole number from {low} to {high}", value)
        return int(value)

    def items(self, name: str, most: int) -> Sequence[Fields]:
        """A list of objects."""
        value = self._get(name, [])
        if not isinstance(value, list) or len(value) > most or not all(isinstance(one, dict) for one in value):
            raise _wrong(name, f"a list of at most {most} objects", value)
        return [Fields(one) for one in value]

    def first_of(self, *names: str) -> str:
        """The first of these names that is present, else the last."""
        return next((name for name in names if self.values.get(name) is not None), names[-1])

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        return default if value is None else value


def _wrong(name: str, expected: str, value: object) -> Refused:
    shown = str(value) if isinstance(value, (int, float)) else _kind(value)
    return Refused(400, f"Field '{name}': expected {expected}, found {shown[:_MAX_SHOWN]}")


def _kind(value: object) -> str:
    """What a value is, without what it says."""
    kinds = {str: "a string", list: "a list", dict: "an object", type(None): "null", bool: "true or false"}
    return kinds.get(type(value), "a number")
