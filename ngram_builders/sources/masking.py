"""A text -> the same text with a mark in place of every line that holds a secret. Knows no files, ids or tables.

Lines stay where they are. The mark is a letter that no source has, so what an n-gram says across it is never asked
for, and a draft that comes to it ends there. A text without secrets is given back as it is.

Most lines are passed over by what costs little: they have no run of letters as long as a key, no word that names a
secret, no URL. What is left is judged by `secret_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ngram_builders.sources.secret_rules import (
    BEFORE_KEY,
    HINT,
    SPACED,
    WORDS,
    Secret,
    keys_in,
    urls_in,
    values_in,
)

MARK = "\N{SYMBOL FOR SUBSTITUTE FORM TWO}"
_LONG = b"a" * 20  # every service's key has so many letters in a row
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/-")
_SHAPE = bytes(ord("a" if code in _LETTERS else " ") for code in range(256))
_LOWERED = bytes(range(256)).lower().replace(b"-", b"_")

# A private key goes on over lines: nothing but letters of base 64 on each, or `Name: value` above them.
KEY = "private key"
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(
    r"[\W_]{0,40}(?:[A-Za-z-]{1,20}: [^\n]{0,100}|[A-Za-z0-9+/=]{0,400})(?:\\[nr]){0,2}[\W_]{0,20}"
)
_SURE_LINE = re.compile(r"[A-Za-z0-9+/=]{40}")
_KEY_LINES = 400  # at most; the longest keys have about 100


def mask(text: str) -> str:
    """The text with the mark for every line that holds a secret."""
    secret = secret_lines(text)
    if not secret:
        return text
    return "\n".join(MARK if number in secret else line for number, line in enumerate(text.split("\n"), 1))


def secret_lines(text: str) -> dict[int, str]:
    """The lines that hold a secret, counted from 1, and what it looks like."""
    told: dict[int, str] = {}
    for secret in secrets_in(text):
        first = 1 + text.count("\n", 0, secret.start)
        for number in range(first, first + text.count("\n", secret.start, secret.end) + 1):
            told.setdefault(number, secret.name)
    return dict(sorted(told.items()))


def masked_lines(text: str) -> list[int]:
    """Which lines `mask` took from a text that it gave back, counted from 1."""
    return [number for number, line in enumerate(text.split("\n"), 1) if line == MARK] if MARK in text else []


def secrets_in(text: str) -> list[Secret]:
    """All secrets of a text, in the order of their places."""
    found = list(_private_keys(text))
    flat = text.encode("ascii", "replace")  # a byte for each letter, so places are the same
    for suspects, rule in ((runs(flat, text), keys_in), (words(flat), values_in), (_urls(flat), urls_in)):
        for start, end in _lines_around(text, suspects):
            found += [Secret(start + one.start, start + one.end, one.name) for one in rule(text[start:end])]
    return sorted(found)


def runs(flat: bytes, text: str) -> Iterator[int]:
    """Where a service's key may be."""
    return (start for start, end in _long_runs(flat) if HINT.search(text, start, end))


def words(flat: bytes) -> Iterator[int]:
    """Where something may be named that is secret."""
    lowered = flat.translate(_LOWERED)
    for word in (*WORDS, *SPACED):
        yield from places(lowered, word)
    yield from (place for place in places(lowered, b"key") if lowered.endswith(BEFORE_KEY, 0, place))


def _urls(flat: bytes) -> Iterator[int]:
    """Where a URL may have a password."""
    return (place for place in places(flat, b"://") if b"@" in flat[place : flat.find(b"\n", place)])


def _long_runs(flat: bytes) -> Iterator[tuple[int, int]]:
    """Where runs of letters are as long as a key."""
    shape = flat.translate(_SHAPE) + b" "
    start = shape.find(_LONG)
    while start >= 0:
        end = shape.find(b" ", start)
        yield start, end
        start = shape.find(_LONG, end)


def places(flat: bytes, word: bytes) -> Iterator[int]:
    """Where a word stands in a text."""
    place = flat.find(word)
    while place >= 0:
        yield place
        place = flat.find(word, place + 1)


def _lines_around(text: str, found: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Where the lines of these places start and end, each line once."""
    known = set()
    for place in found:
        start = text.rfind("\n", 0, place) + 1
        if start not in known:
            known.add(start)
            end = text.find("\n", place)
            yield start, end if end >= 0 else len(text)


def _private_keys(text: str) -> Iterator[Secret]:
    """Private keys from the line that begins them to the one that ends them, or as far as lines look like one."""
    if "-----BEGIN " not in text:
        return
    for begun in _KEY_BEGINS.finditer(text):
        yield Secret(begun.start(), _key_end(text, begun.end()), KEY)


def _key_end(text: str, place: int) -> int:
    """Where the key ends whose first line is read up to this place."""
    end = sure = text.find("\n", place)
    if end < 0:
        return len(text)
    if _KEY_ENDS.search(text, place, end):
        return end
    for _ in range(_KEY_LINES):
        start, end = end + 1, text.find("\n", end + 1)
        line = text[start : end if end >= 0 else len(text)]
        if _KEY_ENDS.search(line):
            return start + len(line)
        if not _KEY_LINE.fullmatch(line):
            break
        if _SURE_LINE.search(line):
            sure = start + len(line)
        if end < 0:
            break
    return sure
