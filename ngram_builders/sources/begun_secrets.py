"""Whether a secret may be on a line while somebody types it: what others are not to read, though no rule finds it.

A text and its line at the cursor -> whether the line names a secret before a value, begins a key, or goes
on from one that does. Far more than `masking` finds: who asks has another way, and loses little where it is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from ngram_builders.sources.secret_formats import FORMATS

# Names of values that are secret, in any case, and what stands between one and its value.
_NAMES = re.compile(
    r"""(?:passw|passphr|pwd|secret|token|credential|mnemonic|authorization|[a-z0-9]_?key|_auth|(?<![a-z])auth
    |dsn|otp|login|signin|(?<![a-z])(?:pass|pw|salt))
    (?P<more>[\w-]{0,40})(?:["'`\])>]{1,4}|["'`\])>]{0,4}\s{0,12}[=:,(](?!\))|\s{1,12}["'`])
    |(?:passw|(?<![a-z])(?:pass|pw|pwd))\w{0,40}\s{1,12}\S""",
    re.IGNORECASE | re.VERBOSE,
)
_ABOUT = re.compile(r"[\w-]{0,40}(?:iz|count|len|length|type|class|list|path|file)\w{0,4}s?", re.IGNORECASE)
_OTHER_WAYS = re.compile(
    r"""\b(?:bearer|basic|identified\s{1,4}by)\s|\s(?:-[upk]|--user|--pass)|://[^\s/"'`]{0,400}[:@]|webhooks?/
    |\bkey["']?\s{0,4}[:=]\s{0,4}["'`]""",
    re.IGNORECASE | re.VERBOSE,
)
_ANCHORS = sorted(
    {
        anchor
        for anchor in chain.from_iterable(form.anchors for form in FORMATS)
        if len(anchor) > 3 or (len(anchor) == 3 and re.search(r"[A-Z]|[_-]$", anchor))
    }
)
_BEGINS_KEY = re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))(?:{'|'.join(map(re.escape, _ANCHORS))})")
_LETTERS = re.compile(r"[A-Za-z0-9]{8,}")
_KINDS = re.compile(r"[a-z]+|[A-Z]+|[0-9]+")
_STRONG = re.compile(r"[\"'`\s=][A-Za-z0-9]+[!@#%^&*~?]+\w")  # of a password: `hunter!4`
_GOES_ON = re.compile(r"(?:[=:(\[{,\\|>+`]|\|\||\bor|\"\"\"|''')\s*$")
_IS_VALUE = re.compile(r"\s*[\"'`]?(?:value|default|fallback)\b", re.IGNORECASE)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(
    r"[\W_]{0,40}(?:[A-Za-z-]{1,20}: [^\n]{0,100}|[A-Za-z0-9+/=]{0,400})(?:\\[nr]){0,2}[\W_]{0,20}"
)


def is_unfinished(line: str) -> bool:
    """Whether a line that may hold a secret ends within a literal, where rules for whole literals find none."""
    return any(line.count(quote) % 2 for quote in "\"'`") and _names_or_begins(line)


def may_begin_secret(above: str, line: str) -> bool:
    """Whether a line, with what stands above it, may be one on which a secret is being written."""
    if _names_or_begins(line):
        return True
    last = above.rstrip().rpartition("\n")[2]
    if _names_or_begins(f"{last}=") and (_GOES_ON.search(last) or _IS_VALUE.match(line)):
        return True
    begun = list(_PRIVATE_KEY.finditer(above))
    return bool(begun) and all(map(_KEY_LINE.fullmatch, [*above[begun[-1].end() :].split("\n")[1:], line]))


def _names_or_begins(line: str) -> bool:
    """Whether a line names a secret before a value, begins a key, or has letters as keys and passwords have."""
    if _BEGINS_KEY.search(line) or _OTHER_WAYS.search(line) or _STRONG.search(line):
        return True
    if any(not _ABOUT.fullmatch(match["more"] or "") for match in _NAMES.finditer(line)):
        return True
    return any(map(_alternates, _LETTERS.findall(line))) or any(map(_alternates, _with_digits(line)))


def _with_digits(line: str) -> Iterator[str]:
    """Pieces of runs of letters that have a digit."""
    for run in _LETTERS.findall(line):
        pieces = (run[start : start + 12] for start in range(0, len(run) - 7, 4))
        yield from filter(re.compile(r"\d").search, pieces)


def _alternates(run: str) -> bool:
    """Whether kinds of letters alternate as in no word or name; with digits they need not do so as often."""
    return len(run) <= (3.0 if re.search(r"\d", run) else 2.2) * len(_KINDS.findall(run))
