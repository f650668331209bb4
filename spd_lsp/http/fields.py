"""A request's body, read with suspicion: every field has a type and bounds, and errors say what was expected."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from spd_lsp.ngrams.open_documents import clean

MAX_FILES = 256
FilePath = Annotated[str, Meta(max_length=4096, pattern=r"^[^\0]*$")]
Alternatives = Annotated[int, Meta(ge=1, le=16)]  # as the setting `drafts`
Kind = TypeVar("Kind", bound="Fields")


class Refused(Exception):
    """A request that is not served, with the status and the sentence to answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class OtherFile(Struct):
    """A file that comes along."""

    filename: FilePath = ""
    text: str = ""


class Fields(Struct):
    """The fields that all of our APIs share; null is as good as absent, and unknown fields are ignored."""

    path: FilePath = ""
    language: str = ""
    input_extra: Annotated[list[OtherFile], Meta(max_length=MAX_FILES)] = []
    n: Alternatives = 1
    stop: str | list[str] = ""
    stream: bool = False

    def place(self) -> dict[str, Any]:
        """What a request says of its file and of other ones, and where texts end."""
        return {
            "path": self.path,
            "language": self.language.lower(),
            "others": [(one.filename or "tmp", one.text) for one in self.input_extra],
            "stop": as_list(self.stop),
        }


def parse(body: bytes, kind: type[Kind]) -> Kind:
    """The fields of a body, or Refused."""
    try:
        values = json.loads(body, object_hook=_present, parse_float=_number)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise Refused(400, "expected the body to be JSON, in UTF-8 and not nested deeply") from error
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise Refused(400, str(error)) from error


def as_list(value: str | list[str]) -> list[str]:
    """A text or a list of texts, as a list without empty ones."""
    return [one for one in ([value] if isinstance(value, str) else value) if one]


def _present(values: dict[str, Any]) -> dict[str, Any]:
    """An object without nulls; clients may cut a text in the middle of a surrogate pair."""
    known = {name: value for name, value in values.items() if value is not None}
    return {name: clean(value) if isinstance(value, str) else value for name, value in known.items()}


def _number(text: str) -> float:
    """A whole number is one however it is written: some languages have no other numbers."""
    number = float(text)
    return int(number) if number.is_integer() else number
