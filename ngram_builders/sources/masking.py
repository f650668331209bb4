"""The secrets of a text: masked before it is counted, and looked for in drafts. Knows no files, ids or tables.

A text -> the same text with a mark in place of every line that holds a secret. Line numbers stay as they are. The
mark is a letter that no source has: no context of real code ends in it, and a draft that reaches it ends there. A
text without secrets is returned as it is. A draft gives a secret away if it makes one up, or copies one.

Cheap byte searches rule out most lines: they have no run of letters as long as a key, no word that names a secret,
no URL. The rest goes through `secret_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import AnyStr

from ngram_builders.sources.secret_rules import (
    BEGUN_KEY,
    HINT,
    KEY_PREFIXES,
    MIN_DISTINCT_LETTERS,
    SECRET_PHRASES,
    SECRET_WORDS,
    SHORT_WORDS,
    Secret,
    find_keys,
    find_named_values,
    find_url_passwords,
)

MARK = "\N{SYMBOL FOR SUBSTITUTE FORM TWO}"
_LONG_RUN = b"a" * 20  # every service's key has as many letters in a row
_KEY_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/-")
_TO_RUNS = bytes(ord("a" if code in _KEY_LETTERS else " ") for code in range(256))
_TO_LOWER = bytes(range(256)).lower().replace(b"-", b"_")

# A private key goes on over lines: nothing but letters of base 64 on each, or `Name: value` above them.
_PRIVATE_KEY = "private key"
_KEY_HEADER = "-----BEGIN "
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(
    r"[\W_]{0,40}(?:[A-Za-z-]{1,20}: [^\n]{0,100}|[A-Za-z0-9+/=]{0,400})(?:\\[nr]){0,2}[\W_]{0,20}"
)
_CERTAIN_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{40}")
_MAX_KEY_LINES = 400  # the longest keys have about 100

_MAX_SECRETS = 1_000  # of a source; a file with more is a list of them
_MAX_SUSPECTS = 5_000  # lines of a source that name secrets, whether they hold them or not
_MIN_FRAGMENT, _MAX_FRAGMENT = 4, 10  # characters that give a secret away: half of a short one
_MIN_NEW_CHARACTERS = 3  # of a fragment that the draft itself must write: the rest was typed already
_GOES_ON = ("=", ":", "(", "\\", "||", " or")  # the value stands on the next line
_DEFAULTS = ("default", "fallback")  # of what the line above names
_QUOTES = ("", '"', "'", "`")  # may close a draft that was cut off inside a literal
_KEY_LAYOUT = re.compile(r"-----[A-Z ]{1,60}-----|\\[nr]|[\s\"'`]+")  # of a private key's text, no part of the key


def mask(text: str) -> str:
    """Put the mark in place of every line that holds a secret; of a text that lists them nothing is left."""
    secrets: list[Secret] = []
    for looked_at, found in enumerate(_search(text)):
        secrets += found
        if len(secrets) > _MAX_SECRETS or looked_at > _MAX_SUSPECTS:
            return ""
    if not (secret := _lines_of(sorted(set(secrets)), text)):
        return text
    return "\n".join(MARK if number in secret else line for number, line in enumerate(text.split("\n"), 1))


def find_secret_lines(text: str) -> dict[int, str]:
    """Return the lines that hold a secret, counted from 1, with the kind of secret."""
    return _lines_of(find_secrets(text), text)


def _lines_of(secrets: Iterable[Secret], text: str) -> dict[int, str]:
    kinds: dict[int, str] = {}
    number = 1
    counted = 0  # the line of an offset up to which line ends are counted
    for secret in secrets:
        number = number + text.count("\n", counted, secret.start)
        counted = secret.start
        for line in range(number, number + text.count("\n", secret.start, secret.end) + 1):
            kinds.setdefault(line, secret.kind)
    return dict(sorted(kinds.items()))


def find_masked_lines(text: str) -> list[int]:
    """Return the numbers of the lines that `mask` replaced in a text that it returned, counted from 1."""
    return [number for number, line in enumerate(text.split("\n"), 1) if line == MARK] if MARK in text else []


def find_secrets(text: str) -> list[Secret]:
    """Find all secrets of a text, in order."""
    return sorted(set(chain.from_iterable(_search(text))))


def _search(text: str) -> Iterator[list[Secret]]:
    """Yield the private keys of a text, and then the secrets of each line that may have some."""
    yield list(_find_private_keys(text))
    flat = text.encode("ascii", "replace")  # a byte for each letter, so offsets are the same
    searches = (
        (_find_key_candidates(flat, text), find_keys),
        (_find_secret_words(flat), find_named_values),
        (_find_urls_with_users(flat), find_url_passwords),
    )
    for offsets, find in searches:
        for start, end in _lines_at(text, offsets):
            end = _end_of_value(text, start, end)
            yield [Secret(start + s.start, start + s.end, s.kind) for s in find(text[start:end])]


def _end_of_value(text: str, start: int, end: int) -> int:
    """The end of a line, or of the next one if that holds the value of what is named at the end of this one."""
    line = text[start:end].rstrip()
    next_end = text.find("\n", end + 1)
    next_end = next_end if next_end >= 0 else len(text)
    is_default = line.endswith(",") and text[end:next_end].lstrip().startswith(_DEFAULTS)
    return next_end if is_default or line.endswith(_GOES_ON) else end


def _find_key_candidates(flat: bytes, text: str) -> Iterator[int]:
    """Find where a service's key may be."""
    return (start for start, end in _find_long_runs(flat) if HINT.search(text, start, end))


def _find_secret_words(flat: bytes) -> Iterator[int]:
    """Find where something is named that may be secret."""
    lowered = flat.translate(_TO_LOWER)
    for word in (*SECRET_WORDS, *SECRET_PHRASES):
        yield from _find_all(lowered, word)
    for word in SHORT_WORDS:
        ends = ((offset, offset + len(word)) for offset in _find_all(lowered, word))
        yield from (offset for offset, end in ends if not lowered[end : end + 1].isalnum())
    yield from (offset for offset in _find_all(lowered, b"key") if lowered.endswith(KEY_PREFIXES, 0, offset))


def _find_urls_with_users(flat: bytes) -> Iterator[int]:
    """Find where a URL may have a password."""
    for start, end in _lines_at(flat, _find_all(flat, b"@")):
        offset = flat.find(b"://", start, end)
        if 0 <= offset < flat.rfind(b"@", start, end):
            yield offset


def _find_long_runs(flat: bytes) -> Iterator[tuple[int, int]]:
    runs = flat.translate(_TO_RUNS) + b" "
    start = runs.find(_LONG_RUN)
    while start >= 0:
        end = runs.find(b" ", start)
        yield start, end
        start = runs.find(_LONG_RUN, end)


def _find_all(flat: bytes, word: bytes) -> Iterator[int]:
    offset = flat.find(word)
    while offset >= 0:
        yield offset
        offset = flat.find(word, offset + 1)


def _lines_at(text: AnyStr, offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield where the lines at these offsets start and end, each line once."""
    line_end = "\n" if isinstance(text, str) else b"\n"
    end = -1
    for offset in sorted(set(offsets)):  # so that no line is searched for its ends twice
        if offset > end:
            start = text.rfind(line_end, max(0, end), offset) + 1
            end = text.find(line_end, offset)
            end = end if end >= 0 else len(text)
            yield start, end


def _find_private_keys(text: str) -> Iterator[Secret]:
    """Find private keys, from their first line to the one that ends them, or as far as lines look like a key.

    A key ends where the next one begins at the latest, so that no line is looked at for two of them.
    """
    if _KEY_HEADER not in text:
        return
    starts = [begin.start() for begin in _KEY_BEGINS.finditer(text)]
    for start, limit in zip(starts, [*starts, len(text)][1:], strict=True):
        yield Secret(start, start + _find_key_end(text[start:limit]), _PRIVATE_KEY)


def _find_key_end(text: str) -> int:
    """Find where the key ends that a text begins with."""
    end = last_certain = text.find("\n")
    if end < 0:
        return len(text)
    if _KEY_ENDS.search(text, 0, end):
        return end
    for _ in range(_MAX_KEY_LINES):
        start, end = end + 1, text.find("\n", end + 1)
        line = text[start : end if end >= 0 else len(text)]
        if _KEY_ENDS.search(line):
            return start + len(line)
        if not _KEY_LINE.fullmatch(line):
            break
        if _CERTAIN_KEY_LINE.search(line):
            last_certain = start + len(line)
        if end < 0:
            break
    return last_certain


def secret_check(before: str, after: str) -> Callable[[str], bool]:
    """Return a function that says whether a draft at this cursor would give a secret away."""
    fragments = _secret_fragments(before + "\n" + after)
    left = before if _KEY_HEADER in before else before.rpartition("\n")[2]
    right = after.partition("\n")[0]

    def leaks_secret(draft: str) -> bool:
        return (
            _copies_fragment(left, draft, fragments)
            or _ends_inside_key(left + draft)
            or _completes_secret(left, draft, right)
        )

    return leaks_secret


def _secret_fragments(text: str) -> frozenset[str]:
    """Every fragment of the text's secrets that would give it away."""
    fragments: set[str] = set()
    for secret in find_secrets(text):
        for part in _KEY_LAYOUT.split(text[secret.start : secret.end]):
            length = min(_MAX_FRAGMENT, max(_MIN_FRAGMENT, len(part) // 2))
            fragments.update(part[start : start + length] for start in range(max(1, len(part) - length + 1)))
    return frozenset(fragment for fragment in fragments if len(fragment) >= _MIN_FRAGMENT)


def _copies_fragment(left: str, draft: str, fragments: frozenset[str]) -> bool:
    """Whether a draft writes a known fragment, or enough of one that was begun left of the cursor."""
    typed = left[-_MAX_FRAGMENT:]
    text = typed + draft
    first_end = len(typed) + _MIN_NEW_CHARACTERS
    return any(
        text[end - length : end] in fragments
        for end in range(first_end, len(text) + 1)
        for length in range(_MIN_FRAGMENT, min(_MAX_FRAGMENT, end) + 1)
    )


def _completes_secret(left: str, draft: str, right: str) -> bool:
    """Whether a secret lies in a draft, or begins left of the cursor and ends in the draft."""
    end = len(left) + len(draft)
    return any(
        secret.start < end and secret.end > len(left)
        for suffix in (right, *_QUOTES)
        for secret in find_secrets(left + draft + suffix)
    )


def _ends_inside_key(text: str) -> bool:
    """Whether a text ends within a service's key."""
    match = BEGUN_KEY.search(text)
    return match is not None and len(set(match[0])) >= MIN_DISTINCT_LETTERS
