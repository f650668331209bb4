"""Characters that a terminal obeys or that a person cannot see, made visible.

In: any text, of a repository, a table, a model's folder or a setting. Out: the same text with each such character
written as JSON writes it, so that JSON stays JSON and says the same. Knows nothing of where it is shown.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Tabs and line ends are no control characters here. The rest of C0, C1 and delete move the cursor or give orders;
# the others turn the direction of writing, end a line where nobody sees it, or show nothing at all.
_ORDERS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
# Bytes that are no UTF-8 come as U+DC80 to U+DCFF. Those up to 9F are C1 where a terminal reads single bytes, and
# no forbidden character can be put together of the others.
_HALVES, _BYTES = "\ud800-\udc9f\udd00-\udfff", "\udca0-\udcff"
_HIDING = re.compile(f"[{_ORDERS}{_UNSEEN}{_HALVES}{_BYTES}\r]")
_UNPRINTABLE = re.compile(f"[{_ORDERS}{_UNSEEN}{_HALVES}{_BYTES}]|\r(?!\n)")
_UNPRINTABLE_BUT_BYTES = re.compile(f"[{_ORDERS}{_UNSEEN}{_HALVES}]|\r(?!\n)")


def hides(text: str) -> bool:
    """Whether a text has a character that a person would not see, or that a terminal would obey."""
    return _HIDING.search(text) is not None


def printable(text: str) -> str:
    """The text with such characters escaped. Example: an escape character -> the six characters `\\u001b`."""
    return _UNPRINTABLE.sub(_escape, text)


def printable_bytes_kept(text: str) -> str:
    """The same for a stream that writes bytes which are no UTF-8 as they are: harmless ones stay."""
    return _UNPRINTABLE_BUT_BYTES.sub(_escape, text)


def as_json(value: Any) -> str:
    """JSON in which such characters are escaped; whoever reads it gets them back."""
    return printable(json.dumps(value, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"  # JSON leaves delete as it is
