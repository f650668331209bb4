"""What a text opens and closes: brackets, strings, comments, tags and blocks that end with a keyword.

In: a text and its language. Out: what is open at its end, and what it closes without having opened it. It takes
one pass and no tree, so that the text may be broken anywhere and be in any language; a quote that is not closed
ends with its line, so that a mistake stays there. Knows nothing of cursors or drafts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_MAX_DEPTH = 500  # open delimiters that a closer is compared with
_WHITE = re.compile(r"[ \t]*")
_VOID_TAGS = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
)
_PATTERN = re.compile(r"/(?![/*\s])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*")  # a regular expression, whole
_BEFORE_PATTERN = re.compile(r"(?:^|[(,=:\[!&|?{};+%<>~]|\b(?:return|typeof|case|in|of|when|if|and|or|not))\s*$")


class Delimiter(NamedTuple):
    """An open delimiter."""

    closer: str  # the text that closes it
    kind: Literal["bracket", "string", "comment", "tag", "block"]
    indent: int = 0  # characters of white space at the start of its line
    inserted: str = ""  # in a string: what begins code, such as `${`
    spans_lines: bool = True  # in a string: whether it may go on in the next line

    @property
    def is_text(self) -> bool:
        """Whether it encloses text instead of code."""
        return self.kind in ("string", "comment")


class Closer(NamedTuple):
    """A delimiter that closes what was open before the text."""

    text: str
    at: int
    indent: int | None  # of its line, if it is the first there
    closed: int  # how many of those that were open before the text are closed with it


@dataclass(frozen=True, slots=True)
class Scan:
    """What a text opens and closes."""

    open: tuple[Delimiter, ...]  # at its end, innermost last, with what was open before it
    closers: tuple[Closer, ...]
    is_broken: bool  # whether it ends a line within a string, or closes a delimiter by the closer of another


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """How languages write delimiters. A string: a pattern before its quote, the quote, what begins code in it."""

    line_comment: str = "//"
    block_comments: tuple[tuple[str, str], ...] = (("/*", "*/"),)
    strings: tuple[tuple[str, str, str], ...] = (("", '"', ""), (r"(?<!\w)", "'", ""))  # no apostrophe
    long_strings: tuple[tuple[str, str, str], ...] = (("", '"""', ""), (r"(?<!\w)", "'''", ""))  # that span lines
    has_patterns: bool = False  # whether `/a/` is a regular expression
    has_tags: bool = False
    blocks: Mapping[str, str] = field(default_factory=dict)  # pattern that opens one -> keyword that closes it
    skipped: str = ""  # pattern of what only looks like one of these

    @property
    def quotes(self) -> tuple[tuple[str, str, str], ...]:
        """All strings, the longer quotes first."""
        return *self.long_strings, *self.strings

    def compile(self) -> re.Pattern[str]:
        """A pattern that finds all of these in code; its groups say which."""
        comments = "|".join(re.escape(start) for start, _ in self.block_comments)
        closers = "|".join(sorted(set(self.blocks.values())))
        parts = {
            "skipped": self.skipped,
            "comment": comments,
            "line_comment": self.line_comment and f"(?:{self.line_comment})",
            **{f"quote{n}": before + quote for n, (before, quote, _) in enumerate(self.quotes)},
            "pattern": "/" if self.has_patterns else "",
            "tag": r"(?<![\w)\]$])<[A-Za-z][\w.:-]*|(?<![\w)\]$=])<>|</[\w.:-]*>|/>|(?<!=)>"
            if self.has_tags
            else "",
            **{f"block{n}": pattern for n, pattern in enumerate(self.blocks)},
            "end": closers and rf"(?<![\w.$@:/-])(?:{closers})(?![\w?!:/-])",
            "opener": r"[(\[{]",
            "closer": r"[)\]}]",
        }
        return re.compile("|".join(f"(?P<{name}>{part})" for name, part in parts.items() if part), re.MULTILINE)


_PLAIN_QUOTES = ("", '"', ""), (r"(?<!\d)", "'", "")  # 1'000 is a number
_SCRIPT = _Rules(strings=_PLAIN_QUOTES, long_strings=(("", "`", "${"),), has_patterns=True)
_HASH = _Rules(line_comment="#", block_comments=())
_FORMATTED = r"(?<!\w)(?:[fF][rR]?|[rR][fF])"  # before a quote in Python
_PLAIN = r"(?:(?<!\w)[rRbBuU]{1,2})?"
_PYTHON = _Rules(
    line_comment="#",
    block_comments=(),
    strings=(
        (_FORMATTED, '"', "{"),
        (_FORMATTED, "'", "{"),
        (_PLAIN, '"', ""),
        (r"(?<!\w)[rRbBuU]{0,2}", "'", ""),
    ),
    long_strings=tuple(
        (before, 3 * quote, code) for quote in "\"'" for before, code in ((_FORMATTED, "{"), (_PLAIN, ""))
    ),
)
_ROWS = {
    "python": _PYTHON,
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "javascriptreact": _Rules(long_strings=(("", "`", "${"),), has_patterns=True, has_tags=True),
    "html": _Rules(
        line_comment="",
        block_comments=(("<!--", "-->"), ("/*", "*/")),
        strings=(("(?<==)", '"', ""), ("(?<==)", "'", "")),
        long_strings=(),
        has_tags=True,
    ),
    "c": _Rules(strings=_PLAIN_QUOTES, long_strings=()),
    "java": _Rules(strings=_PLAIN_QUOTES, long_strings=(("", '"""', ""),)),
    "go": _Rules(strings=_PLAIN_QUOTES, long_strings=(("", "`", ""),)),
    "rust": _Rules(
        strings=(("", '"', ""),),
        long_strings=(),
        skipped=r"'(?:\\[^\n']+|[^\\'\n])'",  # a character, no lifetime
    ),
    "csharp": _Rules(strings=((r"\$", '"', "{"), *_PLAIN_QUOTES), long_strings=(("", '"""', ""),)),
    "kotlin": _Rules(strings=(("", '"', "${"), (r"(?<!\w)", "'", "")), long_strings=(("", '"""', "${"),)),
    "php": _Rules(line_comment=r"//|#(?!\[)", strings=_PLAIN_QUOTES, long_strings=()),
    "shellscript": _Rules(
        line_comment=r"(?:(?<=[\s;(])|^)#",
        block_comments=(),
        strings=(("", '"', "$("), ("", "'", "")),
        long_strings=(),
        blocks={
            r"(?:^[ \t]*|(?<=[;&|] )|(?<=then )|(?<=else )|(?<=do ))if(?=[ \t])": "fi",
            r"(?:^[ \t]*|(?<=[;&|] )|(?<=then )|(?<=else )|(?<=do ))case(?=[ \t])": "esac",
            r"(?<![\w$-])do(?=\s)": "done",
        },
        skipped=r"\\.|\$\{?#|^[ \t]*\(?[^\s()#]+\)(?=[ \t]|$)",  # the last: of `case`
    ),
    "ruby": _Rules(
        line_comment=r"#(?!\{)",
        block_comments=(("\n=begin", "\n=end"),),
        strings=((r"(?<![?\\])", '"', "#{"), (r"(?<![\w?\\])", "'", "")),
        long_strings=(),
        has_patterns=True,
        skipped=r"\bdef[ \t]+[\w.?!]+(?:\([^()\n]*\))?[ \t]+=[ \t]",  # a definition without an end
        blocks={
            r"^[ \t]*(?:\w+[ \t]+)?(?:def|class|module)\b": "end",
            r"^[ \t]*(?:while|until|for)\b[^\n]*": "end",
            r"(?:^[ \t]*|(?<=[=(,\[|&?:] ))(?:if|unless|case|begin)\b": "end",
            r"(?<![\w.:])do(?=[ \t]*(?:\|[^|\n]*\|)?[ \t]*$)": "end",
        },
    ),
    "lua": _Rules(
        line_comment=r"--(?!\[\[)",
        block_comments=(("--[[", "]]"),),
        long_strings=(),
        blocks={r"\b(?:function|do|if)\b": "end", r"\brepeat\b": "until"},
    ),
    "sql": _Rules(line_comment="--"),
    "yaml": _HASH,
}
_ALIKE = {
    "cpp": "c", "objective-c": "c", "cuda-cpp": "c", "typescriptreact": "javascriptreact",
    "vue": "html", "svelte": "html", "astro": "html", "xml": "html",
    "scala": "kotlin", "groovy": "kotlin", "dart": "kotlin", "haskell": "sql", "elm": "sql",
    "toml": "yaml", "r": "yaml", "perl": "yaml", "elixir": "yaml", "julia": "yaml", "makefile": "yaml",
    "dockerfile": "yaml", "powershell": "yaml", "nix": "yaml", "cmake": "yaml",
}  # fmt: skip


@lru_cache(64)
def _rules_of(language: str) -> tuple[_Rules, re.Pattern[str]]:
    rules = _ROWS.get(_ALIKE.get(language, language), _Rules())
    return rules, rules.compile()


@lru_cache(128)
def _end_of_text(closer: str, inserted: str) -> re.Pattern[str]:
    """Return a pattern of what ends a string or comment, escapes a character in it, or begins code in it."""
    return re.compile("|".join(filter(None, (r"\\[\s\S]", "\\n", re.escape(inserted), re.escape(closer)))))


def scan(text: str, language: str = "", opened: tuple[Delimiter, ...] = (), indent: int = 0) -> Scan:
    """Return what a text opens and closes behind what is `opened` already, innermost last.

    indent: characters of white space at the start of the line that the text continues.
    Example: `a)(b` -> open `(`, and the closer `)` at 1.
    """
    rules, marks = _rules_of(language)
    stack = list(opened)
    before = len(stack)  # how many of those that were open before the text still are
    closers: list[Closer] = []
    is_broken = False
    at = 0

    def line_indent(at: int) -> int:
        """The indentation of the line of an offset."""
        begin = text.rfind("\n", 0, at) + 1
        return len(_WHITE.match(text, begin)[0]) if begin else indent  # type: ignore[index]  # always matches

    def close(closer: str, start: int) -> None:
        """Close the innermost delimiter that this closes, and what was left open in it."""
        nonlocal before, is_broken
        depths = reversed(range(max(0, len(stack) - _MAX_DEPTH), len(stack)))
        place = next((n for n in depths if stack[n].closer == closer), None)
        if place is None and stack and stack[-1].closer == "esac":
            return  # of a pattern of `case`
        if place is None or place < before:
            is_first = not text[text.rfind("\n", 0, start) + 1 : start].strip()
            rest = before if place is None else place
            closed = len(opened) - rest + (place is None)
            closers.append(Closer(closer, start, line_indent(start) if is_first else None, closed))
        if place is None:
            return
        is_broken |= any(one.kind == "bracket" for one in stack[max(place + 1, before) :])
        del stack[place:]
        before = min(before, place)

    while at < len(text):
        top = stack[-1] if stack else None
        if top is not None and top.is_text:
            mark = _end_of_text(top.closer, top.inserted).search(text, at)
            if mark is None:
                break
            at = mark.end()
            found = mark[0]
            if found == "\n" and not top.spans_lines:
                is_broken |= top.kind == "string"
                stack.pop()
                before = min(before, len(stack))
            elif found == top.closer:
                close(found, mark.start())
            elif found == top.inserted and not text.startswith("{{", mark.start()):
                stack.append(Delimiter(_CLOSED_BY[found[-1]], "bracket", line_indent(at)))
            elif found == top.inserted:
                at += 1
            continue
        mark = marks.search(text, at)
        if mark is None:
            break
        start, at = mark.span()
        found = mark[0]
        match mark.lastgroup or "skipped":
            case "opener":
                stack.append(Delimiter(_CLOSED_BY[found], "bracket", line_indent(at - 1)))
            case "closer" | "end":
                close(found, start)
            case "line_comment":
                stack.append(Delimiter("\n", "comment", spans_lines=False))
            case "comment":
                stack.append(Delimiter(dict(rules.block_comments)[found], "comment", line_indent(at - 1)))
            case "pattern":
                whole = _PATTERN.match(text, start)
                if whole and _BEFORE_PATTERN.search(text[max(text.rfind("\n", 0, start) + 1, start - 16) : start]):
                    at = whole.end()
            case "tag":
                is_head = top is not None and top.closer == ">"
                if found.startswith("</"):
                    close(found, start)
                elif found.startswith("<"):
                    name = found[1:].removesuffix(">")
                    stack.append(Delimiter(f"</{name}>", "tag", line_indent(at - 1)))
                    stack += [Delimiter(">", "tag", stack[-1].indent)] * (not found.endswith(">"))
                elif is_head:
                    close(">", start)
                    if found == "/>" or stack[-1].closer[2:-1] in _VOID_TAGS:
                        del stack[-1]
                        before = min(before, len(stack))
            case name if name.startswith("quote"):
                number = int(name.removeprefix("quote"))
                _, quote, inserted = rules.quotes[number]
                if len(stack) > 1 and stack[-2].inserted == "{" and stack[-2].closer == quote:
                    close(quote, start)  # of a formatted string, left within its braces
                    continue
                is_long = number < len(rules.long_strings)
                stack.append(Delimiter(quote, "string", line_indent(at - 1), inserted, is_long))
            case name if name.startswith("block"):
                closer = list(rules.blocks.values())[int(name.removeprefix("block"))]
                stack.append(Delimiter(closer, "block", line_indent(at - 1)))
    return Scan(tuple(stack), tuple(closers), is_broken)
