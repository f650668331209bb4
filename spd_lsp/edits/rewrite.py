"""An edit as tokens before and after, and what it says of other places: a rewrite, perhaps with holes.

In: two versions of a text. Out: the edits between them, and rewrites that explain one edit or two. Holes come from
anti-unification: where two edits differ, or what one edit only moves. Knows no documents.

Example: `a.size` -> `a["size"]` also rewrites `.width` to `["width"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_TOKEN = re.compile(r"\w+|[\r\n]|[^\S\r\n]+|[^\w\s]")
_MAX_LINES = 40  # between the first and the last difference; more were not typed by a person
_MAX_TOKENS = 600
_MAX_CHARS = 200  # of an edit
START, END = "", "\n"  # the context of a line's first and last token
HOLE = "\0"  # with a number: a word that a rewrite keeps
_NEVER = re.compile(rf"[\r\n{HOLE}]")  # in an edit


@dataclass(frozen=True, slots=True)
class Edit:
    """What was replaced within a line by what, at an offset in the text after it."""

    start: int
    old: str
    new: str
    left: tuple[str, ...]  # tokens of the line before it, nearest first, without blanks; then START
    right: tuple[str, ...]  # after it; then END
    adjacent: tuple[str, str]  # the tokens around it, blanks included

    @property
    def is_word(self) -> bool:
        """Whether one word became another."""
        return _is_word(self.old) and _is_word(self.new)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What to replace by what, and the edits that it explains, newest first."""

    old: tuple[str, ...]  # tokens; where there are none, `edits[0].adjacent` says between which to insert
    new: tuple[str, ...]
    edits: tuple[Edit, ...]

    @property
    def holes(self) -> int:
        """How many words it keeps."""
        return len({token for token in self.old if token.startswith(HOLE)})


def tokenize(text: str) -> list[str]:
    """Words, line ends, blanks and other characters. Example: `a +b` -> "a", " ", "+" and "b"."""
    return _TOKEN.findall(text)


def changed_span(before: str, after: str) -> tuple[int, int, int]:
    """Where two texts differ: the start in both, the end in the first, and the end in the second."""
    start = _common_length(before, after)
    low = 0
    high = min(len(before), len(after)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if before[len(before) - middle : len(before) - low] == after[len(after) - middle : len(after) - low]:
            low = middle
        else:
            high = middle - 1
    return start, len(before) - low, len(after) - low


def _common_length(first: str, second: str) -> int:
    """How many characters two texts begin with alike."""
    low = 0
    high = min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def edits_between(before: str, after: str) -> list[Edit]:
    """The edits that turn a text into another, in order, and if they are on one line, what they are together.

    None if there are more than a person types at once.
    """
    start, old_end, new_end = changed_span(before, after)
    start = after.rfind("\n", 0, start) + 1
    tail = after.find("\n", new_end) % (len(after) + 1) - new_end
    old, new = before[start : old_end + tail], after[start : new_end + tail]
    if max(old.count("\n"), new.count("\n")) > _MAX_LINES:
        return []
    olds, news = tokenize(old), tokenize(new)
    if max(len(olds), len(news)) > _MAX_TOKENS:
        return []
    hunks = token_hunks(olds, news)
    if len(hunks) > 1 and "\n" not in old + new:
        hunks.append((hunks[0][0], hunks[-1][1], hunks[0][2], hunks[-1][3]))
    return [edit for edit in (_edit(start, olds, news, *hunk) for hunk in hunks) if edit]


def _edit(start: int, olds: list[str], news: list[str], i: int, end_i: int, j: int, end_j: int) -> Edit | None:
    """One run of tokens for another, unless it is of blanks only, long, of several lines or has a null."""
    old, new = "".join(olds[i:end_i]), "".join(news[j:end_j])
    if old.strip() == new.strip() or _NEVER.search(old + new) or max(len(old), len(new)) > _MAX_CHARS:
        return None
    adjacent = news[j - 1] if j else "\n", news[end_j] if end_j < len(news) else "\n"
    left, right = context(reversed(news[:j]), START), context(news[end_j:], END)
    return Edit(start + sum(map(len, news[:j])), old, new, left, right, adjacent)


def token_hunks(olds: list[str], news: list[str]) -> list[tuple[int, int, int, int]]:
    """The differing runs of two lists of tokens; those with only blanks between them are one."""
    found: list[tuple[int, int, int, int]] = []
    for tag, i, end_i, j, end_j in SequenceMatcher(None, olds, news, autojunk=False).get_opcodes():
        if tag != "equal" and found and "".join(olds[found[-1][1] : i]).strip(" \t") == "":
            found[-1] = found[-1][0], end_i, found[-1][2], end_j
        elif tag != "equal":
            found.append((i, end_i, j, end_j))
    return found


def context(tokens: Iterable[str], end: str, most: int = 6) -> tuple[str, ...]:
    """The next tokens of a line without blanks, and what stands for its end."""
    found: list[str] = []
    for token in tokens:
        if token == "\n":
            break
        if not token.isspace():
            found.append(token)
        if len(found) == most:
            return tuple(found)
    return (*found, end)


def rewrites(edit: Edit, others: Sequence[Edit]) -> list[Rewrite]:
    """What an edit says of other places, alone or with one of the others."""
    newest = _widened(edit)
    same = [other for other in others if (other.old, other.new) == (edit.old, edit.new)]
    found = [Rewrite(tuple(tokenize(edit.old)), tuple(tokenize(edit.new)), (edit, *same))]
    if kept := _with_holes(newest, newest):
        found.append(kept)
    for earlier in map(_widened, others):
        if (earlier.old, earlier.new) != (newest.old, newest.new) and (both := _with_holes(newest, earlier)):
            found.append(both)
    return found


def _widened(edit: Edit) -> Edit:
    """An insertion that repeats a word beside it, as the replacement of that word: `x` -> `x=x`."""
    before, after = edit.adjacent
    if edit.old or not edit.new:
        return edit
    if _is_word(before) and before in tokenize(edit.new):
        left = edit.left[1:] or (START,)
        return Edit(edit.start - len(before), before, before + edit.new, left, edit.right, ("", after))
    if _is_word(after) and after in tokenize(edit.new):
        return Edit(edit.start, after, edit.new + after, edit.left, edit.right[1:] or (END,), (before, ""))
    return edit


def _with_holes(first: Edit, second: Edit) -> Rewrite | None:
    """The least general rewrite of two edits; of an edit and itself, the one that keeps the words it moves."""
    olds = tokenize(first.old)
    others = tokenize(second.old)
    news = tokenize(first.new)
    other_news = tokenize(second.new)
    if len(olds) != len(others) or len(news) != len(other_news) or not olds:
        return None
    names: dict[tuple[str, str], str] = {}
    alone = first is second
    for pair in zip(olds, others, strict=True):
        if (pair[0] in news) if alone else (pair[0] != pair[1]):
            names.setdefault(pair, f"{HOLE}{len(names)}")
    old = tuple(names.get(pair, pair[0]) for pair in zip(olds, others, strict=True))
    new = tuple(names.get(pair, pair[0]) for pair in zip(news, other_news, strict=True))
    explained = all(a == b or (a, b) in names for a, b in zip(news, other_news, strict=True))
    if not names or not explained or not all(_is_word(a) and _is_word(b) for a, b in names):
        return None
    if not set(names.values()) & set(new):
        return None
    return Rewrite(old, new, (first,) if alone else (first, second))


def _is_word(text: str) -> bool:
    return re.fullmatch(r"\w+", text) is not None
