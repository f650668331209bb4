"""Completions that contain a secret are withheld, be it made up or copied from the context. Knows no models."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ngram_builders.sources.masking import find_secrets
from ngram_builders.sources.secret_rules import ends_inside_key
from spd_lsp.completion.context import Context
from spd_lsp.completion.postprocess import Completion

SECRET_REASON = "every draft held what looks like a secret"
_KEY_HEADER = "-----BEGIN "  # of a private key, which spans lines
_FRAGMENT_LENGTH = 10  # characters of a secret that give it away
_MIN_NEW_CHARACTERS = 3  # of a fragment that the draft itself must write: the rest was typed already
_QUOTES = ("", '"', "'", "`")  # may close a draft that was cut off inside a literal
_KEY_LAYOUT = re.compile(r"-----[A-Z ]{1,60}-----|\\[nr]|[\s\"'`]+")  # of a private key's text, no part of the key


def without_secrets(completions: Sequence[Completion], context: Context) -> list[Completion]:
    """Return the completions that give no secret away."""
    gives_away = secret_check(context.before, context.after)
    return [completion for completion in completions if not gives_away(completion.text)]


def secret_check(before: str, after: str) -> Callable[[str], bool]:
    """Return a function that says whether a draft at this cursor would give a secret away."""
    fragments = _secret_fragments(before + "\n" + after)
    left = before if _KEY_HEADER in before else before.rpartition("\n")[2]
    right = after.partition("\n")[0]

    def gives_away(draft: str) -> bool:
        return (
            _copies_fragment(left, draft, fragments)
            or ends_inside_key(left + draft)
            or _completes_secret(left, draft, right)
        )

    return gives_away


def _secret_fragments(text: str) -> frozenset[str]:
    """Every fragment of the text's secrets that would give it away."""
    fragments: set[str] = set()
    for secret in find_secrets(text):
        for part in _KEY_LAYOUT.split(text[secret.start : secret.end]):
            starts = range(max(1, len(part) - _FRAGMENT_LENGTH + 1))
            fragments.update(part[start : start + _FRAGMENT_LENGTH] for start in starts)
    return frozenset(fragment for fragment in fragments if len(fragment) > _MIN_NEW_CHARACTERS)


def _copies_fragment(left: str, draft: str, fragments: frozenset[str]) -> bool:
    """Whether a draft writes a known fragment, or enough of one that was begun left of the cursor."""
    typed = left[-_FRAGMENT_LENGTH:]
    text, first_end = typed + draft, len(typed) + _MIN_NEW_CHARACTERS
    return any(text.find(fragment, max(0, first_end - len(fragment))) >= 0 for fragment in fragments)


def _completes_secret(left: str, draft: str, right: str) -> bool:
    """Whether a secret lies in a draft, or begins left of the cursor and ends in the draft."""
    end = len(left) + len(draft)
    return any(
        secret.start < end and secret.end > len(left)
        for suffix in (right, *_QUOTES)
        for secret in find_secrets(left + draft + suffix)
    )
