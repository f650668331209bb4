"""The secrets of a text: masked before it is counted, and looked for in drafts. Knows no files, ids or tables.

A text -> the same text with a mark in place of every line that holds a secret. Line numbers stay as they are. The
mark is a letter that no source has: no context of real code ends in it, and a draft that reaches it ends there. A
text without secrets is returned as it is. A draft gives a secret away if it makes one up, or copies one. A line
that is being typed may begin one before these rules find it, so others are not to read far more lines then.

Cheap byte searches rule out most lines: they have no run of letters that looks random, no word that names a
secret, no sign as passwords have, no URL. The rest goes through `secret_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import AnyStr

from ngram_builders.sources.secret_rules import (
    ALPHANUMERIC,
    BEGUN_VALUE,
    NAME,
    SIGNS,
    Secret,
    calls_secret,
    find_login_arguments,
    find_named_values,
    find_passwords,
    find_random,
    find_url_passwords,
    is_near,
    looks_random,
)

MARK = "\N{SYMBOL FOR SUBSTITUTE FORM TWO}"
_KINDS = {**dict.fromkeys(ALPHANUMERIC, "a"), **dict.fromkeys(SIGNS, "!")}
_TO_KINDS = "".join(_KINDS.get(chr(code), " ") for code in range(256)).encode()
_TO_SHAPE = bytes.maketrans(b"abcdefghijklmnopqrstuvwxyz0123456789\"'", b"a" * 26 + b"0" * 10 + b"qq")
_TO_LOWER = bytes(range(256)).lower().replace(b"-", b"_")
# Every name of a secret contains one of these, in lower case and with _ for -; they are quick to search for.
_SECRET_WORDS = [b"secret", b"token", b"mnemonic", b"seed_phrase", b"psk", b"_key", b"apikey"]
_SECRET_WORDS += [b"identified by", b"curl ", b" _k ", b" _p"]
_PASSWORDS = re.compile(rb"pass(?:[wpck]|(?![a-z0-9]))|pw(?:d|(?![a-z0-9]))")  # begins with "pass" or "pw"

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
_MAX_COPIED = 20_000  # characters of a secret; of a blob what comes behind them gives nothing away
_MIN_NEW_CHARACTERS = 3  # of a fragment that the draft itself must write: the rest was typed already
_GOES_ON = ("=", ":", "(", "\\", "||", " or", "{")  # the value stands on the next line
_IS_BELOW = re.compile(r"\s{0,60}(?:-?\s{0,4}[\"']?(?:value|default|fallback)\b|<\w{1,20}>)", re.IGNORECASE)
_LAST_RUN = re.compile(r"[A-Za-z0-9_+/=-]{12,100}\Z")
_QUOTES = ("", '"', "'", "`")  # may close a draft that was cut off inside a literal
_KEY_LAYOUT = re.compile(r"-----[A-Z ]{1,60}-----|\\[nr]|[\s\"'`]+")  # of a private key's text, no part of the key
_SETTING = re.compile(r"(?<![\w-])(?P<name>[A-Z][A-Z0-9_]{2,60})=[^\s\"'`()=$]{0,400}\Z")  # PASSWORD=...
_REACH = 2_000  # characters before the cursor in which a value's name stands

# Of a line that is being typed, before the rules for whole secrets find one: what stands between a name and its
# value, and the ways to give one without a name.
_SEPARATOR = re.compile(r"[\"'`\])>]{1,4}|[\"'`\])>]{0,4}\s{0,12}[=:,(](?!\))|\s{1,12}\S")
_OTHER_WAYS = re.compile(
    r"""\b(?:bearer|basic|identified\s{1,4}by)\s|\s-(?:[upk]|-user|-pass)|://[^\s/"'`]{0,400}[:@]|webhooks?/|hooks\.|\d{9}-"""
    r"""|(?:login|dsn|otp)\w{0,9}\W"""
    r"""|[\"'`\s=][A-Za-z0-9]{1,40}[!@#%^&*~?$]{1,4}\w""",
    re.IGNORECASE,
)
_RUN = re.compile(r"[A-Za-z0-9+/=_-]{6,}")
_IS_OPEN = re.compile(r"(?:[=:(\[{,\\|>+`]|\|\||\bor|\"\"\"|''')\s*$")
_IS_VALUE = re.compile(r"\s{0,60}-?\s{0,20}[\"'`<]?(?:value|default|fallback|string)\b", re.IGNORECASE)


def mask(text: str) -> str:
    """Replace every line that holds a secret by the mark; a text with very many secrets becomes empty."""
    secrets: set[tuple[int, int]] = set()
    for looked_at, found in enumerate(_search(text)):
        secrets.update((secret.start, secret.end) for secret in found)
        if len(secrets) > _MAX_SECRETS or looked_at > _MAX_SUSPECTS:
            return ""
    if not secrets:
        return text
    lines = text.split("\n")
    number = counted = 0  # the line of an offset, up to which line ends are counted
    for start, end in sorted(secrets):
        number += text.count("\n", counted, start)
        counted = start
        for line in range(number, number + text.count("\n", start, end) + 1):
            lines[line] = MARK
    return "\n".join(lines)


def find_secrets(text: str) -> list[Secret]:
    """Find all secrets of a text, in order."""
    return sorted(set(chain.from_iterable(_search(text))))


def _search(text: str) -> Iterator[list[Secret]]:
    """Yield the private keys of a text, and then the secrets of each line that may have some."""
    yield list(_find_private_keys(text))
    flat = text.encode("ascii", "replace")  # a byte for each letter, so offsets are the same
    yield from ([secret] for secret in find_random(flat))
    shape = flat.translate(_TO_SHAPE)  # literals that end in a number, or are four words of four letters
    arguments = chain(_find_all(shape, b"000q"), _find_all(shape, b"qaaaa aaaa aaaa aaaaq"))
    searches = (
        (_find_secret_words(flat), find_named_values),
        (_find_all(flat.translate(_TO_KINDS), b"a!a"), find_passwords),
        (arguments, find_login_arguments),
        (_find_urls_with_users(flat), find_url_passwords),
    )
    for offsets, find in searches:
        for start, end in _lines_at(text, offsets):
            end = _end_of_value(text, start, end)
            found = [Secret(start + s.start, start + s.end, s.kind) for s in find(text[start:end])]
            if found or find is find_named_values:
                yield found


def _end_of_value(text: str, start: int, end: int) -> int:
    """The end of a line, or of a line below with the value of the name at this line's end."""
    line = text[start:end].rstrip()
    for _ in range(3 if line.endswith("{") else 1):
        if not line.endswith(_GOES_ON) and not _IS_BELOW.match(text, end):
            break
        next_end = text.find("\n", end + 1)
        end = next_end if next_end >= 0 else len(text)
    return end


def _find_secret_words(flat: bytes) -> Iterator[int]:
    """Find where something is named that may be secret."""
    lowered = flat.translate(_TO_LOWER)
    for word in _SECRET_WORDS:
        yield from _find_all(lowered, word)
    for word in (b"pass", b"pw"):
        yield from (offset for offset in _find_all(lowered, word) if _PASSWORDS.match(lowered, offset))


def _find_urls_with_users(flat: bytes) -> Iterator[int]:
    """Find where a URL may have a password."""
    for start, end in _lines_at(flat, _find_all(flat, b"@")):
        offset = flat.find(b"://", start, end)
        if 0 <= offset < flat.rfind(b"@", start, end):
            yield offset


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
    key = before.rfind(_KEY_HEADER)  # the last one may go on at the cursor, if nothing ends it
    goes_on = key >= 0 and not _KEY_ENDS.search(before, key) and before.count("\n", key) < _MAX_KEY_LINES
    left = before[before.rfind("\n", 0, key if goes_on else None) + 1 :]
    right = after.partition("\n")[0]

    def leaks_secret(draft: str) -> bool:
        run = _LAST_RUN.search((left + draft)[-100:])  # a key may begin there
        begins = run is not None and looks_random(run[0], 12)
        return begins or _copies_fragment(left, draft, fragments) or _completes_secret(left, draft, right)

    return leaks_secret


def is_inside_secret(before: str) -> bool:
    """Whether a cursor stands in a literal that its name calls secret; `before` is the text up to the cursor."""
    text = "\n".join(before[-_REACH:].split("\n")[-4:])
    if (setting := _SETTING.search(text)) and calls_secret(setting["name"]) == 2:
        return True
    begun = (match for match in BEGUN_VALUE.finditer(text) if calls_secret(match["name"]) == 2)
    return any(is_near(match["name"], match["gap"]) for match in begun)


def _secret_fragments(text: str) -> frozenset[str]:
    """Every fragment of the text's secrets that would give it away."""
    fragments: set[str] = set()
    for secret in find_secrets(text):
        for part in _KEY_LAYOUT.split(text[secret.start : min(secret.end, secret.start + _MAX_COPIED)]):
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


def is_unfinished(line: str) -> bool:
    """Whether a line that may hold a secret ends within a literal, where rules for whole literals find none."""
    return any(line.count(quote) % 2 for quote in "\"'`") and _names_or_begins(line)


def may_begin_secret(above: str, line: str) -> bool:
    """Whether a line, with what stands above it, may be one on which a secret is being written."""
    if _names_or_begins(line):
        return True
    last = above.rstrip().rpartition("\n")[2]
    if _names_or_begins(f"{last}=") and (_IS_OPEN.search(last) or _IS_VALUE.match(line)):
        return True
    begun = list(_KEY_BEGINS.finditer(above))
    return bool(begun) and all(map(_KEY_LINE.fullmatch, [*above[begun[-1].end() :].split("\n")[1:], line]))


def _names_or_begins(line: str) -> bool:
    """Whether a line names a secret before a value, or has letters as keys and passwords have."""
    if _OTHER_WAYS.search(line) or any(
        looks_random(run, 6) or looks_random(run[-12:], 6) for run in _RUN.findall(line)
    ):
        return True
    names = (match for match in NAME.finditer(line) if calls_secret(match["name"]))
    return any(_SEPARATOR.match(line, match.end()) for match in names)
