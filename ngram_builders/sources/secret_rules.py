"""A line of text -> the secrets in it: keys of known services, values that a name calls secret, URL passwords.

Three kinds of evidence: the published formats of `secret_formats`, the name beside a literal, and how random the
letters look. Every repeat in a pattern is bounded, so the time is linear in the line. Knows no files.
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
_ANCHORS = tuple(sorted({anchor for form in FORMATS for anchor in form.anchors}))
_ANCHOR = re.compile("|".join(map(re.escape, _ANCHORS)))
_COMPILED = tuple((form.name, form.anchors, re.compile(_START + f"(?:{form.pattern})")) for form in FORMATS)
# Anchors that no other text has, with enough after them: a key whose end is still missing.
BEGUN_KEY = re.compile(
    rf"{_START}(?:{'|'.join(re.escape(anchor) for anchor in _ANCHORS if len(anchor) > 3)})[\w+/=.-]{{6,60}}$"
)

# A long run of letters may be a key if it has a digit, or starts like keys that may have none.
HINT = re.compile(
    r"\d|A[KSBC][IC]A[A-Z2-7]|hf_|gh[pousr]_|sk[-_]|xox|eyJ|npm_|GOCSPX|[a-z][A-Z]{1,2}[a-z]{1,2}[A-Z]"
)

# Every name of a secret contains one of these, in lower case and with _ for -; they are quick to search for.
SECRET_WORDS = (b"passw", b"pwd", b"passphr", b"secret", b"token", b"credential")
SHORT_WORDS = (b"pass", b"pw")  # where they are the end of a name
SECRET_PHRASES = (b"bearer ", b"basic ", b"identified by", b"curl ")
_KEYS = ("api", "access", "auth", "private", "account", "encryption", "signing", "master")
KEY_PREFIXES = tuple(f"{kind}{mark}".encode() for kind in _KEYS for mark in ("", "_"))

_SHORT = r"(?<![a-z:])(?:pass|pw)(?=[\"'`]?[\])]?\s{0,12}[=:,(])"
_PASSWORD = rf"passw(?:or)?d|passwrd|passphrase|pwd|{_SHORT}|identified\s{{1,4}}by"
NAME = rf"(?P<name>{_PASSWORD}|secret|token|credentials?|(?:{'|'.join(_KEYS)})[_-]?key)"
NAME += r"(?P<more>[\w-]{0,40}(?![\w-]))"
_TYPE = r"(?:\s{0,4}:\s{0,4}[\w.]{1,30}(?:\[\w{1,20}\])?(?:\s?\|\s?\w{1,20})?(?=\s{0,4}=))?"  # x: str | None = ...
_IS_PASSWORD = re.compile(r"pass|pw|identified", re.IGNORECASE)
_VALUE_OF = r"""["'`]?\s{0,4},\s{0,4}["']?[vV]alue["']?\s{0,4}[:=]"""  # {"name": "...", "value": ...}
_DEFAULT = r"(?:default|fallback)(?:_value)?\s{0,2}[=:]|\w{0,20}(?:Field|Secret\w{0,10}|str)\("
_QUOTED = re.compile(
    rf"{NAME}(?:{_VALUE_OF}|[\"'`]?[\])]?{_TYPE}\s{{0,12}}(?:=>|:=|[=!]==?|[=:,(])?)\s{{0,40}}(?:[(\\]\s{{0,40}})?"
    rf"(?:(?:{_DEFAULT})\s{{0,40}}){{0,2}}[rbuf]{{0,2}}"
    r"(?P<quote>[\"'`])(?P<value>[^\"'`\s]{6,400})(?P=quote)",
    re.IGNORECASE,
)
# The last resort of an expression: password = os.environ.get("...") or "..."
_ALTERNATIVE = re.compile(
    rf"{NAME}(?:[\"'`]\)|[\"'`\])]{{0,2}}\s?[=:])[^\n]{{0,100}}(?:\bor\b|\|\||\?\?)\s{{0,4}}[rbuf]{{0,2}}(?P<quote>[\"'`])(?P<value>[^\"'`\s]{{6,400}})(?P=quote)",
    re.IGNORECASE,
)
_BARE = re.compile(
    rf"(?P<name>{_PASSWORD}|secret|token|credentials?|(?:{'|'.join(_KEYS)})_?key)"
    r"(?P<more>[A-Z0-9_]{0,40})(?:=|:[ \t])(?P<value>[^\s\"'`$<>(){}\[\];,&|\\]{6,400})(?=$|[\s;&|\"'])",
    re.IGNORECASE,
)
_URL = re.compile(r"://[^\s:@/\"'`<>{}$\\]{0,80}:(?P<value>[^\s@/\"'`<>{}$\\]{3,200})@[\w\[{%$<.-]")
_HEADER = re.compile(
    r"\b(?P<name>bearer|basic|(?<=authorization)[\"']{0,2}\]?\s?[:=]\s?[\"']?(?:token|apikey|key))(?P<more>)"
    r"\s{1,4}(?P<value>[\w.=+/~-]{16,2000})",
    re.IGNORECASE,
)
_CURL = re.compile(r"\s(?:-u|--user)[\s=]{0,4}[\"']?[^\s:\"'$<{]{1,80}:(?P<value>[^\s\"'$<{]{3,200})")
LITERAL = re.compile(r"[\"'`](?P<value>[A-Za-z0-9+/_-]{32,128}={0,2})[\"'`]")
# Quick checks that a line must pass before the patterns above are tried.
_HAS_QUOTED = re.compile(r"[\"'`][^\"'`\s]{6,400}[\"'`]")
_HAS_ALTERNATIVE = re.compile(r"\sor\s|\|\||\?\?")
_HAS_BARE = re.compile(r"\w(?:=|:[ \t])[^\s\"']{6}")
_HAS_HEADER = re.compile(r"[bB]earer\s|BEARER\s|[bB]asic\s|BASIC\s|curl\s|uthorization")

# Names that go on like this are about a secret, not the secret itself.
_ABOUT_A_SECRET = re.compile(
    r"[\w-]{0,40}(?:hash|algo\w{0,10}|field|column|type|name|file|path|url|uri|regex|pattern|label|class|cls|id|len|length"
    r"|min|max|policy|format|scheme|endpoint|header|source|provider|prefix|count|limit|method|mode|grant|input|prompt|help|hint|text"
    r"|error|message|mgr\w{0,30}|expir\w{0,10})s?",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"x{4}|\*{3}|\.{3}|example|change.?me|123456|abcdef|[<>]|\$\{|\{\{|%\(|%s|\{\w{0,40}\}|://|^sha\d|^md5|^utf-?\d|^base\d|^pbkdf2|^aes"
    r"|^(?:none|null|true|false|pass|pw|user|username|admin|root|guest|foo|bar|baz|postgres|mysql)\d{0,4}$",
    re.IGNORECASE,
)
_PLACEHOLDER_WORD = re.compile(
    r"sample|replace|placeholder|your|dummy|fake|redacted|hidden|insert|todo"
    r"|foobar|lorem|mock|test|demo|invalid|wrong|secret|token|passw|credential|undefined|default|api.?key",
    re.IGNORECASE,
)
# Words that a placeholder consists of; a password may hold one of them beside others.
# fmt: off
_PLACEHOLDER_WORDS = frozenset((
    "sample", "change", "changeme", "me", "replace", "placeholder", "your", "my", "the", "a", "an", "dummy",
    "fake", "redacted", "hidden", "insert", "todo", "foobar", "foo", "bar", "baz", "lorem", "mock", "test",
    "tests", "testing", "demo", "invalid", "wrong", "bad", "good", "new", "old", "secret", "token", "password",
    "passwd", "pass", "pw", "pwd", "credential", "credentials", "undefined", "default", "abcdef", "abc", "api",
    "key", "apikey", "app", "user", "username", "admin", "root", "guest", "db", "value", "none", "null",
    "true", "false", "here", "this", "is", "some",
))
# fmt: on
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_STRONG = re.compile(r"[!@#%^&*?+~]")
_NAME_IN_CODE = re.compile(r"[A-Za-z_][\w.-]*")
_LETTER_KINDS = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", r"[^A-Za-z0-9_.-]")))
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]*")
_RUN = re.compile(r"[A-Za-z0-9]+")
_RUN_OF_A_KIND = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
MIN_DISTINCT_LETTERS = 8  # in a key of a service; one with fewer was written by hand

_PATTERNS = [pattern.pattern for pattern in list(globals().values()) if isinstance(pattern, re.Pattern)]
RULES = zlib.crc32(repr((FORMATS, _PATTERNS)).encode()) >> 1  # another number means that other lines were masked


class Secret(NamedTuple):
    """A secret in a text."""

    start: int
    end: int
    kind: str


def find_keys(line: str) -> Iterator[Secret]:
    """Find keys in a service's format, and quoted literals that look random."""
    if _ANCHOR.search(line):
        for name, anchors, pattern in _COMPILED:
            if any(anchor in line for anchor in anchors):
                matches = (match for match in pattern.finditer(line) if _is_real_key(match[0]))
                yield from (Secret(*match.span(), name) for match in matches)
    literals = (match for match in LITERAL.finditer(line) if _looks_random(match["value"]))
    yield from (_secret_value(match, "literal that looks random") for match in literals)


def find_named_values(line: str) -> Iterator[Secret]:
    """Find values beside a name that calls them secret."""
    if _HAS_QUOTED.search(line):
        yield from _match_named(_QUOTED, line)
        if _HAS_ALTERNATIVE.search(line):
            yield from _match_named(_ALTERNATIVE, line)
    if _HAS_BARE.search(line):
        yield from (
            secret for secret in _match_named(_BARE, line) if not _is_code(line[secret.start : secret.end])
        )
    if _HAS_HEADER.search(line):
        yield from _match_named(_HEADER, line)
        if (curl := line.find("curl")) >= 0:  # its options come after it
            matches = (match for match in _CURL.finditer(line, curl) if _looks_like_password(match["value"]))
            yield from (_secret_value(match, "password on a command line") for match in matches)


def find_url_passwords(line: str) -> Iterator[Secret]:
    """Find passwords in URLs, where plain words count too."""
    for match in _URL.finditer(line):
        value = match["value"]
        if _looks_like_password(value) or (len(value) > 5 and not _is_placeholder(value)):
            yield _secret_value(match, "password in a URL")


def _match_named(pattern: re.Pattern[str], line: str) -> Iterator[Secret]:
    """Match values beside names, and keep those that look like a password or a key, as the name says."""
    for match in pattern.finditer(line):
        looks_secret = _looks_like_password if _IS_PASSWORD.match(match["name"]) else _looks_generated
        if not _ABOUT_A_SECRET.fullmatch(match["more"]) and looks_secret(match["value"]):
            yield _secret_value(match, f"value of a {match['name'].lower()}")


def _secret_value(match: re.Match[str], kind: str) -> Secret:
    """Return the secret at the group `value`."""
    return Secret(*match.span("value"), kind)


def _is_real_key(key: str) -> bool:
    """Whether a match of a key's format is a key: not xxxx, not AWS's own EXAMPLE."""
    return len(set(key)) >= MIN_DISTINCT_LETTERS and "EXAMPLE" not in key and not re.search(r"(.)\1{5}", key)


def _is_placeholder(value: str) -> bool:
    """Whether a value stands for one that a person puts there; a password may hold such a word beside others."""
    if _PLACEHOLDER.search(value):
        return True
    if not _PLACEHOLDER_WORD.search(value):
        return False
    return not _STRONG.search(value) or all(word.lower() in _PLACEHOLDER_WORDS for word in _WORD.findall(value))


def _is_code(value: str) -> bool:
    """Whether what stands without quotes is a name or a call rather than a value."""
    is_name = _NAME_IN_CODE.fullmatch(value) is not None
    return is_name and not (_LETTER_KINDS[2].search(value) and _looks_generated(value))


def _looks_like_password(value: str) -> bool:
    """Whether someone may use this as a password: no word, no placeholder, no name in code."""
    if len(set(value)) < 4 or _is_placeholder(value):
        return False
    letters = any(kind.search(value) for kind in _LETTER_KINDS[:2])
    return letters and (any(kind.search(value) for kind in _LETTER_KINDS[2:]) or _looks_generated(value))


def _looks_generated(value: str) -> bool:
    """Whether a value looks generated: long, and kinds of letters alternate as in no word or name."""
    if len(value) < 12 or _is_placeholder(value):
        return False
    longest = max(_RUN.findall(value), key=len, default="")
    if len(longest) < 10 or _entropy(value) < 3.0:
        return False
    digits = _LETTER_KINDS[2].search(longest) is not None
    return _mean_run_length(longest) <= (3.0 if digits else 2.0) or (
        digits and _HEX.fullmatch(longest) is not None
    )


def _looks_random(value: str) -> bool:
    """Whether an unnamed literal is a secret: random base 64, but no digest in hex."""
    kinds = _LETTER_KINDS[:3]
    if _HEX.fullmatch(value) or _is_placeholder(value) or not all(kind.search(value) for kind in kinds):
        return False
    longest = max(_RUN.findall(value), key=len)
    if len(longest) < 16 or _HEX.fullmatch(longest):
        return False
    return _entropy(value) >= 4.3 and _mean_run_length(longest) <= 2.0


def _mean_run_length(text: str) -> float:
    """Mean length of runs of one kind of letter: 1.6 in random base 64, 3 and more in names."""
    return len(text) / len(_RUN_OF_A_KIND.findall(text))


def _entropy(text: str) -> float:
    """Bits per letter, from the letters' frequencies in the text itself."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())
