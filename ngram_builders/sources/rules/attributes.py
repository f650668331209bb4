"""`.gitattributes` -> whether a repository calls its files vendored, generated, or not worth a diff.

Read as git reads it, but for macros and what only one clone says (`.git/info/attributes`). `linguist-vendored` and
`linguist-generated` are GitHub's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ngram_builders.sources.rules.ignore_rules import MAX_RULE_CHARACTERS, IgnoreFile, IgnoreRule, read_lines

ATTRIBUTES_FILE = ".gitattributes"
LINGUIST_VENDORED, LINGUIST_GENERATED, NO_DIFF = "linguist-vendored", "linguist-generated", "-diff"
_STATES: dict[str, tuple[str, bool | None]] = {
    **{f"{name}{end}": (name, True) for name in (LINGUIST_VENDORED, LINGUIST_GENERATED) for end in ("", "=true")},
    **{f"{name}=false": (name, False) for name in (LINGUIST_VENDORED, LINGUIST_GENERATED)},
    **{f"-{name}": (name, False) for name in (LINGUIST_VENDORED, LINGUIST_GENERATED)},
    **{f"!{name}": (name, None) for name in (LINGUIST_VENDORED, LINGUIST_GENERATED)},
    **dict.fromkeys(("-diff", "binary"), (NO_DIFF, True)),
    **dict.fromkeys(("diff", "!diff"), (NO_DIFF, False)),
}
_DRIVER = re.compile(r"\Adiff=.+")  # how to show the differences of what is text
_LINE = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s#!"]\S*))\s+(?P<words>.*)')


@dataclass(frozen=True, slots=True)
class Attributes:
    """What the attribute files in force in one folder say, by attribute, innermost first."""

    files: Mapping[str, tuple[IgnoreFile, ...]] = field(default_factory=dict)

    def enter(self, folder: str) -> Attributes:
        """The same with the file in this folder."""
        path = os.path.join(folder, ATTRIBUTES_FILE)  # noqa: PTH118
        rules = [rule for number, line in read_lines(path) if (rule := _parse(number, line))]
        files = dict(self.files)
        for name in (LINGUIST_VENDORED, LINGUIST_GENERATED, NO_DIFF):
            about = [rule for rule in rules if name in _states(rule.text)]
            about = [replace(rule, negated=_states(rule.text)[name] is False) for rule in about]
            if file := IgnoreFile.of(path, folder, about):
                files[name] = (file, *files.get(name, ()))
        return Attributes(files)

    def state(self, name: str, path: str) -> tuple[bool | None, str]:
        """Whether a file has an attribute, None if nothing is said; and the line that says so."""
        for file in self.files.get(name, ()):
            if rule := file.last_match(path, os.path.basename(path), is_folder=False):  # noqa: PTH119
                return _states(rule.text)[name], file.describe(rule)
        return None, ""

    def leads_below(self, folder: str) -> bool:
        """Whether a file in this folder may be said not to be vendored."""
        return any(file.leads_below(folder, negated=True) for file in self.files.get(LINGUIST_VENDORED, ()))

    @property
    def depth(self) -> int:
        """How many files lie one below the other."""
        return max((len(files) for files in self.files.values()), default=0)


def _parse(number: int, line: str) -> IgnoreRule | None:
    """Parse a line; None if it says nothing that counts here."""
    found = _LINE.fullmatch(line) if len(line) <= MAX_RULE_CHARACTERS else None
    if not found or not _states(line):
        return None
    quoted = found["quoted"]
    rule = IgnoreRule.parse(number, found["plain"] if quoted is None else re.sub(r'\\([\\"])', r"\1", quoted))
    return rule and replace(rule, text=line.strip())


def _states(line: str) -> dict[str, bool | None]:
    """What a line says of attributes; of several words about one, the last counts."""
    found = _LINE.fullmatch(line)
    words = (_DRIVER.sub("diff", word) for word in (found["words"].split() if found else ()))
    return dict(_STATES[word] for word in words if word in _STATES)
