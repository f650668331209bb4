"""A line of text -> where in it a secret stands: a service's key, what a name calls a password, a URL with one.

Three kinds of evidence: the published formats of `secret_formats`, what a name beside a literal says of it, and
how much like chance the letters look. Every repeat of a pattern is bounded, so the time is linear in the line.
Knows no lines around it and no files.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ngram_builders.sources.secret_formats import FORMATS

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_ANCHORS = tuple(sorted({anchor for one in FORMATS for anchor in one.anchors}))
_ANCHOR = re.compile("|".join(map(re.escape, _ANCHORS)))
COMPILED = tuple((one.name, one.anchors, re.compile(_START + f"(?:{one.pattern})")) for one in FORMATS)
# Anchors that no other text has, with enough behind them: a key whose end is not there yet.
_BEGUN = re.compile(
    rf"{_START}(?:{'|'.join(re.escape(one) for one in _ANCHORS if len(one) > 3)})[\w+/=.-]{{6,60}}$"
)

# A long run of letters may be a key if it has a digit, or begins as keys do that may have none.
HINT = re.compile(
    r"\d|A[KSBC][IC]A[A-Z2-7]|hf_|gh[pousr]_|sk[-_]|xox|eyJ|npm_|GOCSPX|[a-z][A-Z]{1,2}[a-z]{1,2}[A-Z]"
)

# Names of what is secret have one of these in them, in lower case and with _ for -; they are quick to look for.
WORDS = (b"passw", b"pwd", b"passphr", b"secret", b"token", b"credential")
SPACED = (b"bearer ", b"basic ", b"identified by", b"curl ")
_KEYS = ("api", "access", "auth", "private", "account", "encryption", "signing", "master")
BEFORE_KEY = tuple(f"{kind}{mark}".encode() for kind in _KEYS for mark in ("", "_"))

_PASSWORD = r"passw(?:or)?d|passwrd|passphrase|pwd|identified\s{1,4}by"
NAME = rf"(?P<name>{_PASSWORD}|secret|token|credentials?|(?:{'|'.join(_KEYS)})[_-]?key)"
NAME += r"(?P<more>[\w-]{0,40}(?![\w-]))"
_TYPE = r"(?:\s{0,4}:\s{0,4}[\w.]{1,30}(?:\[\w{1,20}\])?(?:\s?\|\s?\w{1,20})?(?=\s{0,4}=))?"  # x: str | None = ...
_IS_PASSWORD = re.compile(_PASSWORD, re.IGNORECASE)
_VALUE_OF = r"""["'`]?\s{0,4},\s{0,4}["']?[vV]alue["']?\s{0,4}[:=]"""  # {"name": "...", "value": ...}
_QUOTED = re.compile(
    rf"{NAME}(?:{_VALUE_OF}|[\"'`]?[\])]?{_TYPE}\s{{0,12}}(?:=>|:=|[=!]==?|[=:,(])?)\s{{0,12}}[rbuRBU]{{0,2}}"
    r"(?P<quote>[\"'`])(?P<value>[^\"'`\s]{6,400})(?P=quote)",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"(?:^|[\s;])(?:export |ENV |ARG |set |SET )?[A-Z0-9_]{0,40}"
    rf"(?P<name>PASSW(?:OR)?D|PASSPHRASE|PWD|SECRET|TOKEN|CREDENTIALS?|(?:{'|'.join(_KEYS).upper()})_?KEY)"
    r"(?P<more>[A-Z0-9_]{0,40})(?:=|:\s)(?P<value>[^\s\"'`$<>(){}\[\];,&|\\]{6,400})(?=$|[\s;&|\"'])"
)
_URL = re.compile(r"://[^\s:@/\"'`<>{}$\\]{0,80}:(?P<value>[^\s@/\"'`<>{}$\\]{3,200})@[\w\[{%$<.-]")
_HEADER = re.compile(r"\b(?P<name>bearer|basic)(?P<more>)\s{1,4}(?P<value>[\w.=+/~-]{16,2000})", re.IGNORECASE)
_CURL = re.compile(r"\s(?:-u|--user)[\s=]{0,4}[\"']?[^\s:\"'$<{]{1,80}:(?P<value>[^\s\"'$<{]{3,200})")
LITERAL = re.compile(r"[\"'`](?P<value>[A-Za-z0-9+/_-]{32,128}={0,2})[\"'`]")
# What a line must have before the patterns above are worth their time.
_HAS_QUOTED = re.compile(r"[\"'`][^\"'`\s]{6,400}[\"'`]")
_HAS_BARE = re.compile(r"[A-Z]{3}[A-Z0-9_]{0,40}(?:=|: )[^\s\"']{6}")
_HAS_HEADER = re.compile(r"[bB]earer\s|BEARER\s|[bB]asic\s|BASIC\s|curl\s")

# Names that go on like this are not of a secret itself.
_ABOUT = re.compile(
    r"[\w-]{0,40}(?:hash|algo\w{0,10}|field|column|type|name|file|path|url|uri|regex|pattern|label|class|cls|id|len|length"
    r"|min|max|policy|format|scheme|endpoint|header|prefix|count|limit|method|mode|grant|input|prompt|help|hint|text"
    r"|error|message|mgr\w{0,30}|expir\w{0,10})s?",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"x{4}|\*{3}|\.{3}|example|sample|change.?me|replace|placeholder|your|dummy|fake|redacted|hidden|insert|todo"
    r"|foobar|lorem|mock|test|demo|invalid|wrong|secret|token|passw|credential|undefined|default|123456|abcdef"
    r"|api.?key|[<>]|\$\{|\{\{|%\(|%s|\{\w{0,40}\}|://|^sha\d|^md5|^utf-?\d|^base\d|^pbkdf2|^aes"
    r"|^(?:none|null|true|false|pass|pw|user|username|admin|root|guest|foo|bar|baz|postgres|mysql)\d{0,4}$",
    re.IGNORECASE,
)
_KINDS = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", r"[^A-Za-z0-9_.-]")))
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]*")
_RUN = re.compile(r"[A-Za-z0-9]+")
_SAME = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
_DISTINCT = 8  # letters in a service's key; what has fewer was written by hand

_PATTERNS = [pattern.pattern for pattern in list(globals().values()) if isinstance(pattern, re.Pattern)]
RULES = zlib.crc32(repr((FORMATS, _PATTERNS)).encode()) >> 1  # what was masked by other rules has another number


class Secret(NamedTuple):
    """Where a secret stands in a text, and what it is."""

    start: int
    end: int
    name: str


def keys_in(line: str) -> Iterator[Secret]:
    """What has the form of a service's key, or looks like chance and has no telling name."""
    if _ANCHOR.search(line):
        for name, anchors, pattern in COMPILED:
            if any(anchor in line for anchor in anchors):
                found = (one for one in pattern.finditer(line) if _is_made(one[0]))
                yield from (Secret(*one.span(), name) for one in found)
    literals = (one for one in LITERAL.finditer(line) if _is_chance(one["value"]))
    yield from (_at_value(one, "literal that looks random") for one in literals)


def values_in(line: str) -> Iterator[Secret]:
    """What stands beside a name that says what it is."""
    if _HAS_QUOTED.search(line):
        yield from named(_QUOTED, line)
    if _HAS_BARE.search(line):
        yield from named(_BARE, line)
    if _HAS_HEADER.search(line):
        yield from named(_HEADER, line)
        called = line.find("curl")  # its options come behind it
        found = (one for one in _CURL.finditer(line, max(0, called)) if called >= 0 and _is_password(one["value"]))
        yield from (_at_value(one, "password on a command line") for one in found)


def urls_in(line: str) -> Iterator[Secret]:
    """Passwords in URLs, where words too are meant."""
    for found in _URL.finditer(line):
        if _is_password(found["value"]) or (len(found["value"]) > 5 and not _PLACEHOLDER.search(found["value"])):
            yield _at_value(found, "password in a URL")


def named(pattern: re.Pattern[str], line: str) -> Iterator[Secret]:
    """Values beside names that say what they are."""
    for found in pattern.finditer(line):
        judge = _is_password if _IS_PASSWORD.match(found["name"]) else _is_key
        if not _ABOUT.fullmatch(found["more"]) and judge(found["value"]):
            yield _at_value(found, f"value of a {found['name'].lower()}")


def _at_value(found: re.Match[str], what: str) -> Secret:
    """A secret where the value stands."""
    return Secret(*found.span("value"), what)


def is_begun(text: str) -> bool:
    """Whether a text ends within a service's key."""
    return (found := _BEGUN.search(text)) is not None and len(set(found[0])) >= _DISTINCT


def _is_made(key: str) -> bool:
    """Whether what has a key's form is one: not xxxx, not AWS's own EXAMPLE."""
    return len(set(key)) >= _DISTINCT and "EXAMPLE" not in key and not re.search(r"(.)\1{5}", key)


def _is_password(value: str) -> bool:
    """Whether someone may use this as a password: it is no word, no placeholder and no name in code."""
    if len(set(value)) < 4 or _PLACEHOLDER.search(value):
        return False
    letters = any(kind.search(value) for kind in _KINDS[:2])
    return letters and (any(kind.search(value) for kind in _KINDS[2:]) or _is_key(value))


def _is_key(value: str) -> bool:
    """Whether a value looks generated: long, and kinds of letters alternate, as in no word and no name."""
    if len(value) < 12 or _PLACEHOLDER.search(value):
        return False
    longest = max(_RUN.findall(value), key=len, default="")
    if len(longest) < 10 or _entropy(value) < 3.0:
        return False
    digits = _KINDS[2].search(longest) is not None
    return _mean_stay(longest) <= (3.0 if digits else 2.0) or (digits and _HEX.fullmatch(longest) is not None)


def _is_chance(value: str) -> bool:
    """Whether a literal without a telling name is a secret: letters of base 64 by chance, but no digest in hex."""
    if _HEX.fullmatch(value) or _PLACEHOLDER.search(value) or not all(kind.search(value) for kind in _KINDS[:3]):
        return False
    longest = max(_RUN.findall(value), key=len)
    if len(longest) < 16 or _HEX.fullmatch(longest):
        return False
    return _entropy(value) >= 4.3 and _mean_stay(longest) <= 2.0


def _mean_stay(text: str) -> float:
    """For how many letters a text keeps to one kind: 1.6 if it is base 64 by chance, 3 and more in names."""
    return len(text) / len(_SAME.findall(text))


def _entropy(text: str) -> float:
    """Bits a letter, by how often each stands in the text itself."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())
