"""A name that was just used, that the document does not have, and that another document imports: its import line.

In: recent edits and open documents. Out: candidates. Knows Python, JavaScript and TypeScript, and imports of one line.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from spd_lsp.completion.syntax.name_places import NAME
from spd_lsp.edits.candidates import Candidate, Opened, ReadPlaces
from spd_lsp.edits.observed import Recent
from spd_lsp.edits.sites import Site

_MAX_NAMES = 8  # new ones of an edit
_WORD = re.compile(r"(?<![\w.@$-])[^\W\d]\w*")
_LINE = re.compile(r"^(?:from|import|const|let|var)[ \t{*][^\n]{1,200}$", re.MULTILINE)
_FROM = re.compile(r"from[ \t]+(?P<module>[\w.]+)[ \t]+import[ \t]+(?P<names>\w+(?:,[ \t]*\w+)*)[ \t]*")
_PYTHON = re.compile(r"import[ \t]+(?:[\w.]+[ \t]+as[ \t]+)?(?P<name>\w+)[ \t]*")
_NAMES = re.compile(
    r"(?P<how>import|const)[ \t]*\{[ \t]*(?P<names>\w+(?:,[ \t]*\w+)*),?[ \t]*\}"
    r"(?P<of>[ \t]+from[ \t]+[\"'][^\"']+[\"'];?|[ \t]*=[ \t]*require\([\"'][^\"']+[\"']\);?)[ \t]*"
)
_SCRIPT = re.compile(
    r"(?:import|const|let|var)[ \t]+(?:\*[ \t]+as[ \t]+)?(?P<name>\w+)"
    r"(?:[ \t]+from[ \t]+[\"'][^\"']+[\"']|[ \t]*=[ \t]*require\([\"'][^\"']+[\"']\));?[ \t]*"
)
_OF_ONE = {"from": "from {module} import {name}", "brace": "{how} {{ {name} }}{of}"}
_LANGUAGES = ("python", "javascript", "typescript", "typescriptreact")
_RELATIVE = re.compile(r"(?:from[ \t]+|[\"'])\.")


def missing_imports(
    recent: Recent, edited: Opened, beside: Sequence[Opened], read: ReadPlaces
) -> Iterator[Candidate]:
    """The import lines of names that an edit brings, and that stand nowhere else in the document."""
    if edited.language_id not in _LANGUAGES:
        return
    names = dict(_new_names(recent, edited.text))
    found = [(name, lines) for name in list(names)[:_MAX_NAMES] if (lines := _lines_of(name, edited, beside))]
    places = read(edited, [names[name] for name, _ in found]) if found else ()
    for (name, lines), place in zip(found, places, strict=True):
        if place and place.role == NAME and not place.is_bound:
            yield from _candidates(name, lines, edited)


def _new_names(recent: Recent, text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The names that stand only in the edits, and where."""
    known = Counter(_WORD.findall(text))
    for edit in recent.now:
        line = text[edit.start : text.find("\n", edit.start + len(edit.new)) % (len(text) + 1)]
        words = [match for match in _WORD.finditer(line) if match.start() < len(edit.new)]
        here = Counter(_WORD.findall(line))
        for match in words:
            if known[match[0]] == here[match[0]]:
                yield match[0], (edit.start + match.start(), edit.start + match.end())


def _lines_of(name: str, edited: Opened, beside: Sequence[Opened]) -> Counter[str]:
    """The lines by which other documents import a name, and how many do so."""
    found: Counter[str] = Counter()
    for document in beside:
        if name in document.import_words:
            is_near = document.name.rpartition("/")[0] == edited.name.rpartition("/")[0]
            lines = {written for line in _LINE.findall(document.text) for written in _written(name, line)}
            found.update(line for line in lines if is_near or not _RELATIVE.search(line))
    return found


def _written(name: str, line: str) -> Iterator[str]:
    """The import of a name alone, if a line imports it."""
    for kind, pattern in (("from", _FROM), ("brace", _NAMES)):
        match = pattern.fullmatch(line)
        if match and name in re.findall(r"\w+", match["names"]):
            yield _OF_ONE[kind].format(name=name, **match.groupdict())
            return
    if any((match := pattern.fullmatch(line)) and match["name"] == name for pattern in (_PYTHON, _SCRIPT)):
        yield line.rstrip()


def _candidates(name: str, lines: Counter[str], edited: Opened) -> Iterator[Candidate]:
    present = list(_LINE.finditer(edited.text))
    for line, times in lines.items():
        if at := _place(line, present):
            evidence = {
                "bias": 1,
                "times": math.log(times),
                "ways": math.log(len(lines)),
                "relative": bool(_RELATIVE.search(line)),
                "capital": name[:1].isupper(),
            }
            named = {f"import: {key}": float(value) for key, value in evidence.items()}
            yield Candidate(edited.name, Site(at, at, f"\n{line}", 0, 0, True), named)


def _place(line: str, present: Sequence[re.Match[str]]) -> int | None:
    """The end of the import below which one belongs: the last of its kind that sorts before it, or the last one."""
    alike = [one for one in present if one[0].split()[0] == line.split()[0]] or present
    before = [one for one in alike if one[0] < line]
    return (before or alike)[-1].end() if alike else None
