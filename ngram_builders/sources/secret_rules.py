"""A text -> the secrets in it, by structure: what looks random or like a password, and what a name calls secret.

Random is a run of sixteen letters in which most pairs stand in no word, whatever it is called: a key, a digest, a
UUID, a blob. A password is a literal in which words, digits and signs alternate. And what stands as the value of a
name that says secret is one, whatever it looks like, unless it is a placeholder, a name in code, or text. Every
repeat in a pattern is bounded, so the time is linear in the text. Knows no files.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import add
from typing import NamedTuple

import numpy as np

# The pairs of letters of which words consist: a letter, then those that follow it. Chance hits one in three.
_PAIRS = """
    abcdfgiklmnprstuvy baceilorsu cacdehiklorstuy dacdeilorsu eabcdefgilmnopqrstvwx faefilortu gaeghilnorsu
    haeiortu iabcdefglmnoprstvxz jeou keis ladeilostuy mabeilmopsu nacdefgiklnopstuv oabcdfgiklmnoprstuvw
    paehiloprstuy qu racdefgiklmnoprstuvy sacehiklopstuy tacehilorstuy uabcdegilmnprst vaei waehinor xceipt yps ze
"""
_IN_WORDS = {word[0] + after for word in _PAIRS.split() for after in word[1:]}
ALPHANUMERIC = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_RUN_LETTERS = ALPHANUMERIC + "_+/=-"
_WINDOW = 15  # pairs of letters: of a run of 16
_MIN_ODD, _MIN_ODD_HEX = 7, 5  # of them that stand in no word; of hexadecimal digits fewer do


def _is_odd(pair: str) -> bool:
    """Whether two neighbours stand in no word: `xq`, `aB`, `a1`, `a+`."""
    if not pair.isalpha():
        return not pair.isdigit() and pair != "++"
    return pair.lower() not in _IN_WORDS or (pair[0].islower() and pair[1].isupper())


_ODD = {a + b for a in ALPHANUMERIC + "+" for b in ALPHANUMERIC + "+" if _is_odd(a + b)}
_ODD_CODES = np.zeros((256, 256), dtype=np.int8)  # of the first letter and the second; a run ends where it is -99
_ODD_CODES[:, [code for code in range(256) if chr(code) not in _RUN_LETTERS]] = -99
_ODD_CODES[[ord(pair[0]) for pair in _ODD], [ord(pair[1]) for pair in _ODD]] = 1
_TO_RUNS = bytes(code if chr(code) in _RUN_LETTERS else 32 for code in range(256))
_JOINTS, _PATH = re.compile(r"([/_=+-])"), re.compile(r"([/=])")  # of words
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F-]*")
_HUMP = re.compile(r"(?<=[a-z])[A-Z][a-z]")  # of aName
_WORDS = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")

SIGNS = "!@#%^&*?~$"
_SHAPE = rf"[\w+-]{{1,40}}(?:[{SIGNS}]{{1,3}}[\w+-]{{1,40}}){{1,6}}[{SIGNS}]{{0,3}}"
_PASSWORD = re.compile(rf"(?P<before>^|[\s\"'`,:=>/])(?P<value>{_SHAPE})(?=$|[\s\"'`,;<(])")
_NO_PASSWORD = re.compile(r"%(?!\d{3,5}\Z)[0-9A-Fa-f]{2}|\*\*|\$[A-Za-z_]|%[sdrif]\b")
_AT_HOST = re.compile(r"^:[^@]{8,}@\w|^/[^@]{3,}[!@#%^&*?~$][^@]{1,40}@\w")
_FLAG = re.compile(r"\s-{1,2}[A-Za-z][\w-]{0,20}[\s=]?\Z")

# The words of a name that call its value secret; those that do so only of a value that looks generated; and those
# behind them that make it a name of something about a secret.
_STRONG = re.compile(
    r"pass(?:wd|wo?r?d|wort|phrase|code|key)|pwd|(?:^|_)(?:pass|pw)(?:$|_)|secrets?(?:$|_)|mnemonic|seed_phrase"
    r"|(?:api|app|access|auth|private|account|encryption|signing|master|license|shared|ssh|service)_?key(?:$|_)"
    r"|(?:^|_)psk$|identified by"
)
_WEAK = re.compile(r"(?:token|bearer|credentials?|auth|oauth\d?|authorization|salt|key|pin)(?:$|_)")
_ABOUT = re.compile(
    r"hash|algo\w*|field|column|type|names?|file\w*|path|dir|ur[li]|regex|pattern|label|class|cls|ids?|len|length|min"
    r"|max|policy|format|scheme|endpoint|header|source|provider|prefix|suffix|count|limit|method|mode|grant|input"
    r"|prompt|help|hint|text|errors?|message|mgr|manager|expir\w*|version|size|index|kind|status|ref|request|response"
    r"|validator|rules?|required|reset|changed?|store|service|server|helper|generator|param\w*|arn|env|var|location"
    r"|description|title|placeholder|usage"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_NAME = r"(?<![\w-])(?P<name>identified\s{1,4}by|-[pk]|[A-Za-z_][\w-]{1,60})"
NAME = re.compile(_NAME, re.IGNORECASE)
# What stands between a name and its value: a field that says value, of an element or of what is named on the line
# above; the next element; a sign, the type or the call in which the value stands; or blanks.
_FIELD = r"-?\s{0,20}[\"']?(?:value|default|fallback)[\"']?\s{0,12}[:=]"
_ELEMENT = r"</\w{1,20}>\s{0,40}<\w{1,20}>"
_GAP = (
    r"(?P<gap>\\{0,2}[\"'`]?(?:"
    rf"\s{{0,4}},?\s{{0,40}}{_FIELD}\s{{0,12}}(?:\w{{1,20}}\(\s{{0,40}})?|{_ELEMENT}"
    rf"|\s{{0,4}}\{{\s{{0,40}}(?:[a-z]{{1,20}}\s{{0,12}}=[^\n]{{0,200}}\n\s{{0,40}}){{0,3}}{_FIELD}\s{{0,12}}"
    r"|[\])]?\s{0,12}(?:=>|[=!]==?|:=|[=:,(>])\s{0,40}"
    r"(?:(?:[=:(\[\])|&\\]|(?:[A-Za-z_][\w.]{0,40}(?=\s?[=(\[\]|])))\s{0,40}){0,8}|\s{1,12}))"
)
_BARE_GAP = (
    r"(?P<gap>[\"'`]?(?:\s{0,12}=\s?|:\s{1,12}(?:bearer |basic |token )?|>|\s{1,4}|(?<=\s-p)"
    rf"|,?\s{{0,40}}\n\s{{0,40}}{_FIELD}\s{{1,4}}|{_ELEMENT}))"
)
_LAST_RESORT = r"(?P<gap>\\?[\"'`]?[\])]?\s?[=:][^\n=]{0,100}(?:\bor\b|\|\||\?\?)\s{0,4})"  # of an expression
_OPEN = r"(?:[rbuf@$&]{0,2}\\{0,2}(?P<quote>[\"'`]))"
_INNER = r"(?:(?!(?P=quote))[^\n])"
_QUOTED = re.compile(
    rf"{_NAME}(?={_GAP}{_OPEN}(?P<value>{_INNER}{{4,400}})(?P=quote)(?!\s?[:\[(]|\s=))", re.IGNORECASE
)
BEGUN_VALUE = re.compile(rf"{_NAME}(?={_GAP}{_OPEN}{_INNER}{{0,400}}\Z)", re.IGNORECASE)
_ALTERNATIVE = re.compile(
    rf"{_NAME}(?={_LAST_RESORT}{_OPEN}(?P<value>[^\"'`\s]{{4,400}})(?P=quote))", re.IGNORECASE
)
_BARE = re.compile(
    rf"{_NAME}(?={_BARE_GAP}(?P<value>[a-z]{{3,8}}(?: [a-z]{{3,8}}){{11,23}}"
    r"|[^\s\"'`$<>(){}\[\];,|\\][^\s\"'`<>(){}\[\];,|\\]{3,400})(?=$|[\s;&,|\"'<]))",
    re.IGNORECASE,
)
_URL = re.compile(
    r"://[^\s:@/\"'`<>{}$\\]{0,80}:(?P<value>[^\s@/\"'`<>{}$\\][^\s/\"'`<>{}\\]{2,200})@[\w\[{%$<.-]"
)
_USER = re.compile(r"\s(?:-u|--user)[\s=]{0,4}[\"']?[^\s:\"'$<{]{1,80}:(?P<value>[^\s\"'$<{][^\s\"'<{]{3,200})")
_HAS_QUOTED = re.compile(r"[\"'`][^\n]{4}")
_HAS_ALTERNATIVE = re.compile(r"\sor\s|\|\||\?\?")

_CALL = re.compile(r"\w\s?\(|\[|^\(")
_LOGS_IN = re.compile(  # a call whose arguments, if not named, may be a user and a password
    r"(?:connect|login|sign|credential|database|auth|pdo|sql|db|client|session)\w{0,20}\s?(?:->\w{1,20})?=?\("
    r"|sequelize\(",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(r"[\"'](?P<value>[A-Za-z]{4,20}[_.-]?\d{3,6}|[a-z]{4}(?: [a-z]{4}){3})[\"']")

_PLACEHOLDER = re.compile(
    r"x{4}|\*{3}|\.{3}|example|change.?me|123456|abcdef|^<|>\Z|<\w{1,40}>|\$\{|\{\{|%\(|%s|\{[\w.]{0,40}\}|://|^[/.]"
    r"|^sha\d|^md5|^utf-?\d|^base\d|^pbkdf2|^aes"
    r"|^(?:none|null|true|false|pass|pw|user|username|admin|root|guest|foo|bar|baz|postgres|mysql)\d{0,4}$",
    re.IGNORECASE,
)
_PLACEHOLDER_WORD = re.compile(
    r"sample|replace|placeholder|your|dummy|fake|redacted|hidden|insert|todo|foobar|lorem|mock|test|demo|invalid|wrong"
    r"|secret|token|passw|credential|undefined|default|api.?key|string|bearer",
    re.IGNORECASE,
)
_PLACEHOLDER_WORDS = re.compile(  # all that a placeholder consists of; a password may hold one beside others
    r"sample|change(?:me)?|me|replace|placeholder|your|my|the|an?|dummy|fake|redacted|hidden|insert|todo|foo|bar|baz"
    r"|foobar|lorem|mock|tests?|testing|demo|invalid|wrong|bad|good|new|old|secret|token|passw(?:or)?d|pass|pw|pwd"
    r"|credentials?|undefined|default|abc(?:def)?|(?:api)?key|api|app|user(?:name)?|admin|root|guest|db|value|none|null"
    r"|true|false|here|this|is|some",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SIGN = re.compile(r"[!@#%^&*?+~]")
_NAME_IN_CODE = re.compile(r"[A-Za-z_$][\w.]*[!?]?|[a-z]+-[a-z]+|[\d.]+")
_PHRASE = re.compile(r"[a-z]{3,12}(?:[- ._][a-z]{3,12}){3,24}")
_STRANGE = re.compile(r"\d[^\d.,]|[^\d.,]\d|[!@#%^~]\w")  # in a value without quotes, as in no word or expression
_ENDS_IN_NUMBER = re.compile(r"[A-Za-z]{3}_?\d{2,6}\Z")
_PIECE = re.compile(r"[A-Za-z0-9]+")

_PATTERNS = [pattern.pattern for pattern in list(globals().values()) if isinstance(pattern, re.Pattern)]
RULES = zlib.crc32(repr((_PAIRS, _PATTERNS)).encode()) >> 1  # another number means that other lines were masked


class Secret(NamedTuple):
    """A secret in a text."""

    start: int
    end: int
    kind: str


def find_random(flat: bytes) -> Iterator[Secret]:
    """Find runs of letters that look random in a text, a byte for each of its letters."""
    if len(flat) <= _WINDOW:
        return
    codes = np.frombuffer(flat, dtype=np.uint8)
    odd = _ODD_CODES.ravel().take(codes[:-1].astype(np.uint16) << 8 | codes[1:])
    sums = np.cumsum(odd, dtype=np.int32)
    windows = np.flatnonzero(sums[_WINDOW:] - sums[:-_WINDOW] >= _MIN_ODD_HEX) + 1
    runs = flat.translate(_TO_RUNS)
    end = -1
    last: Secret | None = None
    for window in map(int, windows):
        if window >= end:
            start = runs.rfind(b" ", max(end, 0), window + 1) + 1 or max(end, 0)
            end = runs.find(b" ", start)
            end = end if end >= 0 else len(runs)
            run = runs[start:end].decode()
            if looks_random(_without_words(run, _JOINTS)):
                begin = start + run.index(found := _without_words(run, _PATH))
                is_next = last and begin - last.end == 1 and flat[last.end : begin] in b".:~"
                last = Secret(last.start if last and is_next else begin, begin + len(found), "what looks random")
                yield last


def _without_words(run: str, joints: re.Pattern[str]) -> str:
    """A run from its first part that is no word to the last."""
    parts = joints.split(run)  # every other one is a joint
    odd = [i for i in range(0, len(parts), 2) if 0 < len(parts[i]) < 3 or _odd_pairs(parts[i])]
    return "".join(parts[odd[0] : odd[-1] + 1]) if odd else ""


def _odd_pairs(text: str) -> int:
    """How many neighbours stand in no word, where names in camelCase count as words."""
    return sum(map(_ODD.__contains__, map(add, text, text[1:]))) - sum(
        match[0].lower() in _IN_WORDS for match in _HUMP.finditer(text)
    )


def looks_random(run: str, least: int = _WINDOW + 1) -> bool:
    """Whether a run of at least so many letters looks random: in some window most neighbours stand in no word."""
    longest = max(map(len, _PIECE.findall(run)), default=0)
    if len(run) < least or len(set(run)) < least // 2 or longest < min(5, least // 2):
        return False
    words = sum(len(word) for word in _WORDS.findall(run) if not _odd_pairs(word))
    if words * 5 > len(run) * 2 or _is_in_order(run):
        return False
    window = least - 1
    needed = _MIN_ODD_HEX if _HEX.fullmatch(run) else _MIN_ODD
    odd = [pair in _ODD for pair in map(add, run, run[1:])]
    for match in _HUMP.finditer(run):
        odd[match.start() - 1] = match[0].lower() not in _IN_WORDS
    sums = [0, *accumulate(odd)]
    best = max(after - before for before, after in zip(sums, sums[window:], strict=False))
    return best * _WINDOW >= needed * window


def _is_in_order(run: str) -> bool:
    """Whether letters follow each other as in the alphabet, or are the same, as in no key: abcdef, 0000."""
    steps = [ord(b) - ord(a) for a, b in pairwise(run)]
    return sum(step in (0, 1) for step in steps) * 3 > len(steps)


def find_passwords(line: str, *, named: bool = False) -> Iterator[Secret]:
    """Find what looks like a password: in quotes, as a flag's value, and anywhere if the line names a secret."""
    for match in _PASSWORD.finditer(line):
        value = match["value"]
        kinds = len(value) >= 8 and re.search(r"[A-Za-z]{2}", value) and _looks_like_password(value)
        if kinds and not _NO_PASSWORD.search(value) and not _is_placeholder(value):
            quoted = match["before"] in tuple("\"'`") and line[match.end() : match.end() + 1] == match["before"]
            at_host = _AT_HOST.search(match["before"] + value)  # user:password@host
            if named or quoted or at_host or _FLAG.search(line, max(0, match.start() - 30), match.start("value")):
                yield Secret(*match.span("value"), "what looks like a password")


def find_named_values(line: str) -> Iterator[Secret]:
    """Find values beside a name that calls them secret."""
    if _HAS_QUOTED.search(line):
        yield from _match_named(_QUOTED, line)
        if _HAS_ALTERNATIVE.search(line):
            yield from _match_named(_ALTERNATIVE, line)
    yield from _match_named(_BARE, line)
    if (curl := line.find("curl")) >= 0:  # its options come after it
        found = (match for match in _USER.finditer(line, curl) if not _is_placeholder(match["value"]))
        yield from (Secret(*match.span("value"), "password on a command line") for match in found)
    yield from find_passwords(line, named=True)


def find_url_passwords(line: str) -> Iterator[Secret]:
    """Find passwords in URLs, where plain words count too."""
    for match in _URL.finditer(line):
        value = match["value"]
        if len(value) > 5 and not _is_placeholder(value):
            yield Secret(*match.span("value"), "password in a URL")


def _match_named(pattern: re.Pattern[str], line: str) -> Iterator[Secret]:
    """Match values beside names, and keep those that the name calls secret."""
    for match in pattern.finditer(line):
        name, value, gap = match["name"], match["value"], match["gap"]
        if not (strength := calls_secret(name)) or _is_placeholder(value) or len(set(value)) < 4:
            continue
        near = is_near(name, gap)
        if name.startswith("-"):
            is_secret = looks_random(value, 10) or _looks_like_password(value) or bool(_PHRASE.fullmatch(value))
        elif pattern is _BARE and not gap.endswith(">"):
            ends = line[match.end("value") :][:1] in ("", "\n") and not gap.startswith(" ")
            is_secret = _is_bare_secret(value, strength, near, is_setting=ends or name.isupper())
        else:
            is_secret = _is_secret(value, strength, near)
        if is_secret:
            yield Secret(*match.span("value"), f"value of a {name.lower()}")


@lru_cache(10_000)
def calls_secret(name: str) -> int:
    """How surely a name calls its value secret: 2, 1 if only of a value that looks generated, or 0."""
    if name.startswith("-"):
        return 1
    words = "_".join(_WORD.findall(name)).lower() if " " not in name else " ".join(name.lower().split())
    found = _STRONG.search(words) or _WEAK.search(words)
    if not found or any(map(_ABOUT.fullmatch, words[found.end() :].split("_"))):
        return 0
    return 2 if found.re is _STRONG else 1


def is_near(name: str, gap: str) -> bool:
    """Whether what stands between a name and a literal makes it the value, and no argument or item."""
    gap = gap.strip("\"' \\")
    is_argument = gap in ("", ",") or _CALL.search(gap) is not None
    return not is_argument or name.isupper() or (gap == "(" and name.startswith("set"))


def _is_secret(value: str, strength: int, is_near: bool) -> bool:
    """Whether a literal is what its name calls it, which stands right before it or elsewhere, as in prose."""
    if looks_random(value, 10) or (is_near and strength == 2 and _PHRASE.fullmatch(value)):
        return True
    if any(map(str.isspace, value)):
        return looks_random("".join(value.split())) and len(value.split()) < 6
    return _looks_like_password(value) or (is_near and strength == 2 and len(value) > 5)


def _is_bare_secret(value: str, strength: int, is_near: bool, *, is_setting: bool) -> bool:
    """Whether a value without quotes is a secret: it may be code, unless the line sets nothing else."""
    if is_setting and is_near and strength == 2 and (_PHRASE.fullmatch(value) or _ENDS_IN_NUMBER.search(value)):
        return True
    if _NAME_IN_CODE.fullmatch(value):
        return looks_random(value, 10)
    is_strange = _PHRASE.fullmatch(value) or _STRANGE.search(value)
    return is_strange is not None and _is_secret(value, strength, is_near)


def find_login_arguments(line: str) -> Iterator[Secret]:
    """Find what a person's password or an app's is among the arguments of a call that logs in."""
    for match in _ARGUMENT.finditer(line):
        if _LOGS_IN.search(line, max(0, match.start() - 200), match.start()):
            yield Secret(*match.span("value"), "argument of a login")


def _is_placeholder(value: str) -> bool:
    """Whether a value stands for one that a person puts there; a password may hold such a word beside others."""
    if _PLACEHOLDER.search(value):
        return True
    if not _PLACEHOLDER_WORD.search(value):
        return False
    return not _SIGN.search(value) or all(map(_PLACEHOLDER_WORDS.fullmatch, _LETTERS.findall(value)))


def _looks_like_password(value: str) -> bool:
    """Whether words, digits and signs alternate."""
    alternates = re.search(r"\d", value) is not None or _odd_pairs(value) > 3
    return alternates and re.fullmatch(_SHAPE, value) is not None
