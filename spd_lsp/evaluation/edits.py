"""Next edits on git history: replay commits change by change and judge the proposals after each change.

In: repositories with git history. Out: precision, recall and silence. All files of a commit are open, and changes
are made from top to bottom. Git only lists and prints stored objects, so that a repository's configuration cannot
run programs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from ngram_builders.errors import UserError
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION
from spd_lsp.edits import Session, tokenize
from spd_lsp.evaluation.bootstrap import mean_intervals

_LANGUAGES = ("python", "typescript", "typescriptreact", "javascript", "go")
_MAX_FILE = 100_000  # bytes
_MAX_FILES = 9  # of a commit; more are changed by programs
_MAX_BLOCK = 40  # lines that were replaced as one
_MAX_STEPS = 80  # of a file; more were not made by hand
_ENVIRONMENT = {"GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_NOSYSTEM": "1", "GIT_ALLOW_PROTOCOL": "none"}
_COMMIT = "\0"  # starts the list of a commit in git's output
_GENERATED = re.compile(r"(?:^|/)(?:dist|build|vendor|node_modules)/|\.min\.")


class _Hunk(NamedTuple):
    """A replacement, at an offset in the old text."""

    start: int
    old: str
    new: str


_Step = tuple[_Hunk, ...]  # made at once: what changes within a line, or whole lines


@dataclass(slots=True)
class _File:
    """A file with some of a commit's changes made."""

    name: str
    text: str
    steps: list[_Step]  # that are not made yet, from top to bottom
    shift: int = 0  # shift of later offsets by the changes made so far

    def after(self, hunks: Sequence[_Hunk]) -> str:
        """Return the text with some of the next changes made, too."""
        text = self.text
        for hunk in reversed(hunks):
            at = hunk.start + self.shift
            text = text[:at] + hunk.new + text[at + len(hunk.old) :]
        return text

    def wants(self, start: int, changed: str) -> bool:
        """Whether a text with one proposal applied agrees with the author's version of that line."""
        for step in self.steps:
            at = step[0].start + self.shift
            if _line(self.text, at)[0] == _line(self.text, start)[0] and _is_within_line(step):
                for first, last in combinations(range(len(step) + 1), 2):
                    if _line(self.after(step[first:last]), at) == _line(changed, at):
                        return True
        return False


class Moment(NamedTuple):
    """The proposals after one change, judged."""

    group: tuple[str, str]  # repository and file
    made: int  # changes like it, itself included; 0 after whole lines, blanks or brackets
    left: int  # changes like it that the author made afterwards
    right: bool | None  # whether the first proposal is; None: nothing was proposed


def replay(repo: Path, most: int) -> Iterator[Moment]:
    """Replay the newest commits of a repository; return a moment for each change."""
    for files in _read_commits(repo, most):
        if len(files) > _MAX_FILES:
            continue
        session = Session()
        made: list[set[tuple[str, str]]] = []
        session.see({file.name: file.text for file in files})
        for file in files:
            while file.steps:
                step = file.steps.pop(0)
                file.text = file.after(step)
                file.shift += sum(len(hunk.new) - len(hunk.old) for hunk in step)
                session.see({one.name: one.text for one in files})
                keys = _keys(step)
                made.append(keys)
                alike = sum(bool(keys & one) for one in made)
                left = sum(bool(keys & _keys(one)) for other in files for one in other.steps)
                right = None
                for start, end, text in session.proposals()[:1]:
                    right = file.wants(start, file.text[:start] + text + file.text[end:])
                yield Moment((str(repo), file.name), alike, left, right)


def _read_commits(repo: Path, most: int) -> Iterator[list[_File]]:
    """Yield, newest commit first, the old texts of the files that a person seems to have changed by hand."""
    listed = ("--raw", "--no-abbrev", "--no-renames", "--diff-filter=M", "--no-show-signature")
    # Commits without such a file do not count.
    paths = [f":(glob)**/*.{end}" for end, language in LANGUAGE_BY_EXTENSION.items() if language in _LANGUAGES]
    arguments = (f"--max-count={most}", "--no-merges", "--format=tformat:%x00", *listed, "--", *paths)
    for commit in _git(repo, "log", *arguments).decode("utf-8", "replace").split(_COMMIT)[1:]:
        files = []
        for line in commit.splitlines():
            fields, _, path = line.partition("\t")
            if path and not _GENERATED.search(path):
                blobs = [_git(repo, "cat-file", "blob", name) for name in fields.split()[2:4]]
                before, after = (data.decode("utf-8", "replace").replace("\r\n", "\n") for data in blobs)
                is_small = max(map(len, blobs)) < _MAX_FILE
                steps = list(_steps(before, after)) if is_small and "\ufffd" not in before + after else []
                if before and after and 0 < len(steps) <= _MAX_STEPS:
                    files.append(_File(path, before, steps))
        yield files


def _git(repo: Path, *arguments: str) -> bytes:
    """Return the output of a git command."""
    command = ["git", "-C", str(repo), "-c", "core.fsmonitor=false", "--no-pager", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, **_ENVIRONMENT})
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{repo} has no git history that can be read; name the folder of a clone") from error
    return done.stdout


def _steps(before: str, after: str) -> Iterator[_Step]:
    """Return the changes from top to bottom: one for each changed line, inserted or deleted line."""
    olds, news = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in olds:
        starts.append(starts[-1] + len(line))
    for tag, i, end_i, j, end_j in SequenceMatcher(None, olds, news, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        hunks = [_Hunk(starts[n], olds[n], "") for n in range(i, end_i)]
        hunks += [_Hunk(starts[end_i], "", line) for line in news[j:end_j]]
        if tag == "replace" and max(end_i - i, end_j - j) <= _MAX_BLOCK:
            hunks = list(_token_hunks(starts[i], "".join(olds[i:end_i]), "".join(news[j:end_j])))
        step: list[_Hunk] = []
        for hunk in hunks:
            if step and not (_is_within_line([*step, hunk]) and "\n" not in before[step[0].start : hunk.start]):
                yield tuple(step)
                step = []
            step.append(hunk)
        if step:
            yield tuple(step)


def _token_hunks(start: int, old: str, new: str) -> Iterator[_Hunk]:
    """The changes of tokens between two texts."""
    olds, news = tokenize(old), tokenize(new)
    at = [start]
    for token in olds:
        at.append(at[-1] + len(token))
    for tag, a, b, c, d in SequenceMatcher(None, olds, news, autojunk=False).get_opcodes():
        if tag != "equal":
            yield _Hunk(at[a], "".join(olds[a:b]), "".join(news[c:d]))


def _is_within_line(hunks: Sequence[_Hunk]) -> bool:
    return not any("\n" in hunk.old + hunk.new for hunk in hunks)


def _keys(step: _Step) -> set[tuple[str, str]]:
    """Return a key that similar changes within lines share; nothing if only blanks or brackets change."""
    hunks = [hunk for hunk in step if _is_within_line(step) and re.search(r"\w", hunk.old + hunk.new)]
    return {key for hunk in hunks for key in ((hunk.old, hunk.new), _general(hunk))}


def _general(hunk: _Hunk) -> tuple[str, str]:
    """Return a change without the words that it leaves as they are."""
    olds, news = tokenize(hunk.old), tokenize(hunk.new)
    words = dict.fromkeys(word for word in olds if word in news and word.isidentifier())
    kept = {word: f"\0{n}" for n, word in enumerate(words)}
    return "".join(kept.get(word, word) for word in olds), "".join(kept.get(word, word) for word in news)


def _line(text: str, at: int) -> tuple[int, str]:
    """Return the start of the line at an offset, and the line."""
    start = text.rfind("\n", 0, at) + 1
    return start, text[start : text.find("\n", start) % (len(text) + 1)]


def describe_edits(repos: Sequence[Path], commits: int) -> Iterator[str]:
    """Return the measurements on the newest commits of repositories, with 95 % intervals."""
    moments = [moment for repo in repos for moment in replay(repo, commits)]
    shares = {
        "first proposals right": [(one, one.right) for one in moments if one.right is not None],
        "recall after two like ones or more": [(m, m.right is True) for m in moments if m.left and m.made > 1],
        "silent after other changes": [(one, one.right is None) for one in moments if not one.left],
    }
    for name, cases in shares.items():
        groups = [moment.group for moment, _ in cases]
        share = f"{mean_intervals([[value] for _, value in cases], groups)[0]:.3f}, " if cases else ""
        yield f"{name}: {share}{len(cases)} cases"
