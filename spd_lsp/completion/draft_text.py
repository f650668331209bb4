"""The texts of drafts: what a user would see of their ids, and where a draft ends.

In: a prompt, its context and ids. Out: texts. Knows neither scores nor what is offered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ngram_builders.index.mixture import Mixture
from ngram_builders.index.suffix_array import Occurrence
from ngram_builders.sources.filters import normalize_line_ends
from ngram_builders.sources.masking import MARK
from spd_lsp.completion.context import Context
from spd_lsp.completion.tokenizer import ModelTokenizer, Prompt
from spd_lsp.decoding.superposed import DecodingRequest

MAX_BLOCK_TOKENS = 128
_MAX_HISTORY = 32  # tokens before the drafts that n-grams and the longest match may look back to
_CLOSERS = ("}", ")", "]", "end", "fi", "done", "esac")
_INDENTED_LINE = re.compile(rb"\n([ \t]*)(?=\S)")
_ENDS_LINE = re.compile(rb"[\r\n)\]}>/\"'`d-fil]")  # no token without one of these ends a completion of one line


@dataclass(frozen=True, slots=True)
class DraftText:
    """The texts of drafts that continue one prompt."""

    tokens: ModelTokenizer
    prompt: Prompt
    context: Context

    def request(self, mixture: Mixture | None) -> DecodingRequest:
        """What a decoder needs to know; n-gram tables count each file from an end-of-text token on."""
        return DecodingRequest(
            self.prompt.ids,
            stop=self.is_finished,
            history=self._history(self.prompt.history),
            interpolation=mixture,
            allowed=self.prompt.spelling.allowed,
            text_of=self.visible,
        )

    def occurrences(self, mixture: Mixture | None, follow: int) -> list[Occurrence]:
        """Where what stands before the cursor stands in the user's code, each with `follow` tokens behind it.

        Where a block begins, with as many as may be one.
        """
        if mixture is None:
            return []
        follow = follow if self.context.shape == "line" else MAX_BLOCK_TOKENS
        return mixture.occurrences(self._history(self.prompt.copied_behind), follow)

    def spelled(self, text: str) -> tuple[int, ...]:
        """The ids of a text at the cursor, as a draft spells it."""
        return tuple(self.tokens.encode_inside(self.prompt.spelling.healed.decode() + text))

    def _history(self, ids: Sequence[int]) -> list[int]:
        return [self.tokens.end_of_text, *ids][-_MAX_HISTORY:]

    def continuations(self, occurrences: Sequence[Occurrence]) -> list[tuple[Occurrence, str]]:
        """Return what a user would see of what follows each place, where it can follow the cursor too."""
        lines = {ids: self._continuation(ids) for ids in dict.fromkeys(one.next for one in occurrences)}
        return [(one, line) for one in occurrences if (line := lines[one.next]) is not None]

    def _continuation(self, ids: Sequence[int]) -> str | None:
        """Return what a user would see of ids copied from elsewhere; None if they do not continue what is typed.

        Also None if neither their line, nor their block, nor their file ends within them.
        """
        length = next((n for n, i in enumerate(ids) if self.tokens.ends(i)), len(ids))
        written = self._indented(self.tokens.bytes_of(ids[:length]))
        if not written.startswith(self.prompt.begun):
            return None
        text = _decoded(written[len(self.prompt.begun) :]).partition(MARK)[0]
        is_whole = length < len(ids) or find_end(text, self.context) is not None
        return visible_text(text, self.context) if is_whole else None

    def _indented(self, written: bytes) -> bytes:
        """A copy that begins behind the end of a line, indented as the cursor's line is."""
        begun, left, code = self.prompt.begun, self.context.around.left.encode(), written.lstrip()
        blanks = written[: len(written) - len(code)]
        if not (left.isspace() and begun.isspace() and code) or (b"\n" in begun and b"\n" not in blanks):
            return written
        own = blanks.rpartition(b"\n")[2]

        def moved(line: re.Match[bytes]) -> bytes:
            """Example: from four blanks to eight -> four more, of a line with two: two less than eight."""
            deeper = len(line[1]) - len(own)
            return b"\n" + left[: max(0, len(left) + deeper)] + line[1][len(own) :]

        return begun + _INDENTED_LINE.sub(moved, code)

    def visible(self, ids: Sequence[int]) -> str:
        """Return what a user would see of a draft."""
        return visible_text(self.text(ids), self.context)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of a draft, up to the mask that stands for a line with a secret in n-gram tables."""
        return self._full_text(ids).partition(MARK)[0]

    def is_finished(self, ids: Sequence[int]) -> bool:
        """Whether the draft ends the file, its line or its block."""
        last = ids[-1]
        if self.tokens.ends(last):
            return True
        if self.context.shape == "line" and not _ENDS_LINE.search(self.tokens.pieces[last]):
            return False
        text = self._full_text(ids)
        return MARK in text or find_end(text, self.context) is not None

    def may_go_on_with(
        self, typed: str, examined: Collection[tuple[int, ...]], occurrences: Sequence[Occurrence]
    ) -> bool:
        """Whether a draft or a copy may become one that begins with what was typed; true while there is none.

        examined: the ids of all drafts so far, with those that others go on from.
        """
        longest = set(examined) - {ids[:-1] for ids in examined}
        drafts = [text for text in map(self.text, longest) if text]  # others still spell what was typed before
        copies = [text for _, text in self.continuations(occurrences)]
        begun = not drafts or any(typed.startswith(text) for text in drafts)
        return begun or any(text.startswith(typed) for text in (*drafts, *copies))

    def _full_text(self, ids: Sequence[int]) -> str:
        return _decoded(self.tokens.bytes_of(ids)[len(self.prompt.spelling.healed) :])


def _decoded(written: bytes) -> str:
    """A text without half characters."""
    text = written.decode(errors="ignore")
    return normalize_line_ends(text) if "\r" in text else text


def visible_text(text: str, context: Context) -> str:
    """Return what a user would see of a draft."""
    return context.around.without_overlap(trim_draft(text, context))


def trim_draft(text: str, context: Context) -> str:
    """Return the part of a draft that belongs to the completion, without trailing white space.

    A block that was cut off by the length limit loses its last line, and lines that leave a bracket open.
    """
    end = find_end(text, context)
    if end is None and context.shape == "block" and "\n" in text.strip():
        end = text.rindex("\n")
    text = text[:end].rstrip()
    while "\n" in text.strip() and context.around.left_open(text):
        text = text[: text.rindex("\n")].rstrip()
    return text


def find_end(text: str, context: Context) -> int | None:
    """Return the offset at which the completion ends, or None if it may continue.

    Example: a line ends at its line break, `x + 1\\ny` at 5. A block ends where a line stands left of its body.
    """
    start = len(text) - len(text.lstrip()) if context.shape == "opening" else 0  # of the line that is its first
    ends = [] if context.shape == "block" else [text.find("\n", start)]
    if context.shape != "line":
        ends.append(_block_end(text, context.indent))
    end = min((at for at in ends if at >= 0), default=None)
    again = context.around.end_of(text[:end])
    return end if again is None else again


def _block_end(text: str, indent: str) -> int:
    """Return where a line is indented less than the body, or after three blank lines; else -1.

    The end is behind that line if all it does is close the block.
    """
    first, *lines = text.split("\n")
    at = len(first) + 1
    blank = 0
    for line in lines:
        content = line.strip()
        blank = 0 if content else blank + 1
        end = at + len(line)
        if content and len(line) - len(line.lstrip()) < len(indent):
            if not content.startswith(_CLOSERS):
                return at
            return end if end < len(text) else -1
        if blank > 2:
            return at
        at = end + 1
    return -1
