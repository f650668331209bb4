"""Which drafts are not shown because a secret is in them: a new one, or a copy of one that stands in the prompt.

In: the text around the cursor as the model sees it, and drafts. Out: a reason, or nothing. Knows no models.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ngram_builders.sources.masking import MARK, find_secrets
from ngram_builders.sources.secret_rules import ends_inside_key

SECRET_REASON = "every draft held what looks like a secret"
BEGIN = "-----BEGIN "  # of a key that goes on over lines
_PIECE = 10  # letters; who reads so many of a secret knows it
_TELLING = 3  # letters of a piece that must be the draft's own, not typed already
_QUOTES = ("", '"', "'", "`")  # what may follow a draft that was cut off in a literal
_ASIDE = re.compile(
    r"-----[A-Z ]{1,60}-----|\\[nr]|[\s\"'`]+"
)  # what belongs to a private key's text, not to the key


def text_before_mask(text: str) -> str:
    """A draft up to where a table has a mark for a line that it did not count."""
    return text.partition(MARK)[0]


def secret_check(before: str, after: str) -> Callable[[str], bool]:
    """What tells whether a draft at this place, which is shown as it is, would give a secret away."""
    known = pieces(before + "\n" + after)
    left = before if BEGIN in before else before.rpartition("\n")[2]
    rest = after.partition("\n")[0]

    def tells(draft: str) -> bool:
        return _copies(left, draft, known) or ends_inside_key(left + draft) or says(left, draft, rest)

    return tells


def pieces(text: str) -> frozenset[str]:
    """Every part of a text's secrets that would give it away."""
    found: set[str] = set()
    for secret in find_secrets(text):
        for part in _ASIDE.split(text[secret.start : secret.end]):
            found.update(part[i : i + _PIECE] for i in range(max(1, len(part) - _PIECE + 1)))
    return frozenset(piece for piece in found if len(piece) > _TELLING)


def _copies(left: str, draft: str, known: frozenset[str]) -> bool:
    """Whether a draft says, or goes on with, a part of a known secret."""
    end = left[-_PIECE:]
    whole, own = end + draft, len(end) + _TELLING  # a piece that ends before this place was typed already
    return any(whole.find(piece, max(0, own - len(piece))) >= 0 for piece in known)


def says(left: str, draft: str, rest: str) -> bool:
    """Whether a secret stands in a draft, or begins before it and ends in it."""
    for end in (rest, *_QUOTES):
        found = find_secrets(left + draft + end)
        if any(one.start < len(left) + len(draft) and one.end > len(left) for one in found):
            return True
    return False
