"""A prompt that a client laid out for another model than the one here: both sides of the cursor, and files.

In: a prompt with any family's tokens for filling in the middle. Out: its texts. The tokens are those of
`fill_formats`: what follows the one for the suffix stands right of the cursor, what follows the others left of
it, in whatever order a client writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from spd_lsp.completion.fill_formats import FILL_FORMATS, FillFormat
from spd_lsp.http.fields import Refused

# What may stand before them: the beginning of a text, a repository's name, files.
_BEGIN = re.compile(r"\s*(?:<s>|<bos>|<\|begin_of_text\|>|<\|endoftext\|>|<｜begin▁of▁sentence｜>)\s*")
_REPOSITORY = re.compile(r"\A\s*(?:<\|?repo_?name\|?>)[^\n<]*\n?")
_FILE = re.compile(r"<\|?(?:file_?sep(?:arator)?|file_?name)\|?>|(?:(?<=\n)|\A)\+{5} (?=\S)")
# Any token of that kind, but for one that is quoted; and any text that begins with a model's token.
_UNKNOWN = re.compile(
    r"""(?<!["'`\w])(?:<[|｜\[](?i:[\w▁-]{0,20}(?:fim|fill)[\w▁-]{0,20})[|｜\]]>|<(?i:fim[_-]\w{1,20}|fill_me)>)(?!["'`])
    |\A\s*(?:<[|｜\[][\w▁-]{1,30}[|｜\]]>|<(?:PRE|SUF|MID)>|\[(?:SUFFIX|PREFIX|MIDDLE)\])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a prompt says."""

    before: str  # the cursor
    after: str = ""
    path: str = ""  # of the file, if it is named
    others: Sequence[tuple[str, str]] = ()  # names and texts of other files


def read_prompt(text: str) -> Prompt:
    """The texts in a prompt, which is one text if it has no tokens; Refused where its tokens are not known."""
    begin = _BEGIN.match(text)
    for sides in filter(None, (_sides(form, text[begin.end() if begin else 0 :]) for form in FILL_FORMATS)):
        read = _with_files(*sides)
        if not any(map(_UNKNOWN.search, (read.before, read.after))):
            return read
    if _UNKNOWN.search(text):
        known = ", ".join(one.name for one in FILL_FORMATS)
        raise Refused(
            400,
            "Field 'prompt': its tokens for filling in the middle are not understood; send the text right of the "
            f"cursor as 'suffix', or write both in the format of {known}",
        )
    return Prompt(text)


def _sides(form: FillFormat, text: str) -> tuple[str, str] | None:
    """The texts left and right of the cursor, if the text begins with this format's tokens, and has each once."""
    names = {mark: mark.removeprefix("▁") for mark in form.marks}
    suffix = names[form.parts[form.parts.index("{after}") - 1]]
    # SentencePiece writes a blank before a token, and one before the text that follows it.
    patterns = (rf" ?{re.escape(name)} ?" if name != mark else re.escape(name) for mark, name in names.items())
    marks = list(re.finditer("|".join(patterns), text))
    found = [mark[0].strip(" ") for mark in marks]
    if sorted(found) != sorted(names.values()):
        return None
    first = text[: marks[0].start()]
    if first.strip() and not (_REPOSITORY.match(first) or _FILE.match(first)):
        return None
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    texts = {name: text[mark.end() : end] for name, mark, end in zip(found, marks, ends, strict=True)}
    after = texts.pop(suffix)
    if len(texts) > 1 and not texts.get(found[-1], "x").strip("\r\n"):  # behind the request for the middle
        texts[found[-1]] = ""
    return first + "".join(texts.values()), after


def _with_files(before: str, after: str) -> Prompt:
    """The text left of the cursor without what names its file, and the files above it."""
    text = _REPOSITORY.sub("", before, count=1) if _REPOSITORY.match(before) else before
    if not _FILE.match(text):
        return Prompt(text, after)
    *others, (path, _, own) = (part.partition("\n") for part in _FILE.split(text)[1:])
    return Prompt(own, after, path.strip(), [(path.strip(), content) for path, _, content in others])
