"""What was changed together in a repository's history: the repeated changes of a file, and those made once.

In: a repository with git history. Out: examples: a file before a commit, one change of it, and the others like it.
Git only lists and prints stored objects, so that nothing that a repository's configuration names is run.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path, PurePosixPath

from ngram_builders.errors import UserError
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION
from spd_lsp.edits.rewrite import token_hunks, tokenize

_LANGUAGES = ("python", "typescript", "typescriptreact", "javascript", "go")
_MAX_FILE = 100_000  # bytes
_MAX_BLOCK = 40  # lines that were replaced as one
_MAX_HUNKS = 80  # of a file; more were not made by hand
_ONCE_PER_FILE = 3
_ENVIRONMENT = {"GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_NOSYSTEM": "1", "GIT_ALLOW_PROTOCOL": "none"}


@dataclass(frozen=True, slots=True)
class Hunk:
    """What is replaced at an offset of the text before."""

    start: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Example:
    """A file before a commit, the line that is changed first, and where others were changed like it, if any."""

    repository: str
    language: str
    before: str
    first: tuple[Hunk, ...]
    others: tuple[Hunk, ...]  # on other lines
    lines: tuple[tuple[Hunk, ...], ...]  # all changes


def read_examples(repo: Path, most: int) -> Iterator[Example]:
    """The examples of a repository, newest first, from at most so many commits."""
    options = (
        "--no-merges",
        "--format=",
        "--raw",
        "--no-abbrev",
        "--no-renames",
        "--diff-filter=M",
        "--no-show-signature",
    )
    listing = _git(repo, "log", f"--max-count={most}", *options)
    changes = []
    for line in listing.decode("utf-8", "replace").splitlines():
        fields, _, path = line.partition("\t")
        if (language := LANGUAGE_BY_EXTENSION.get(PurePosixPath(path).suffix[1:])) in _LANGUAGES:
            changes.append((language, *fields.split()[2:4]))
    blobs = _read_blobs(repo, [blob for _, *both in changes for blob in both])
    for number, (language, *_) in enumerate(changes):
        before, after = blobs[2 * number : 2 * number + 2]
        if before and after:
            yield from _examples(str(repo), language, before, after)


def _git(repo: Path, *arguments: str, told: bytes = b"") -> bytes:
    """What git prints."""
    command = ["git", "-C", str(repo), "-c", "core.fsmonitor=false", "--no-pager", *arguments]
    try:
        done = subprocess.run(
            command, input=told, capture_output=True, check=True, env={**os.environ, **_ENVIRONMENT}
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{repo} has no git history that can be read; name the folder of a clone") from error
    return done.stdout


def _read_blobs(repo: Path, names: Sequence[str]) -> list[str]:
    """The texts of stored files; empty where one is missing, large or no text."""
    data = _git(repo, "cat-file", "--batch", told="".join(f"{name}\n" for name in names).encode())
    texts, at = [], 0
    for _ in names:
        end = data.index(b"\n", at)
        header = data[at:end].split()
        size = int(header[2]) if len(header) == 3 else 0
        content = data[end + 1 : end + 1 + size] if size < _MAX_FILE else b""
        at = end + 1 + (size + 1 if len(header) == 3 else 0)
        try:
            texts.append(content.decode().replace("\r\n", "\n"))
        except UnicodeDecodeError:
            texts.append("")
    return texts


def _examples(repository: str, language: str, before: str, after: str) -> Iterator[Example]:
    hunks = tuple(_hunks(before, after))
    if not 0 < len(hunks) <= _MAX_HUNKS:
        return
    lines: dict[int, list[Hunk]] = defaultdict(list)
    alike: dict[tuple[str, str], set[int]] = defaultdict(set)  # lines
    for hunk in hunks:
        line = before.rfind("\n", 0, hunk.start)
        lines[line].append(hunk)
        for key in {(hunk.old, hunk.new), _general(hunk)}:
            alike[key].add(line)
    every = tuple(map(tuple, lines.values()))
    shown: set[int] = set()
    once = 0
    for line, first in lines.items():
        keys = {key for hunk in first for key in ((hunk.old, hunk.new), _general(hunk))}
        at = set().union(*(alike[key] for key in keys)) - {line}
        others = tuple(h for o in sorted(at) for h in lines[o] if {(h.old, h.new), _general(h)} & keys)
        once += not others
        if line not in shown and (others or once <= _ONCE_PER_FILE):
            yield Example(repository, language, before, tuple(first), others, every)
        shown |= at


def _general(hunk: Hunk) -> tuple[str, str]:
    """A change without the words that it keeps."""
    olds, news = tokenize(hunk.old), tokenize(hunk.new)
    kept = {
        word: f"\0{n}" for n, word in enumerate(dict.fromkeys(w for w in olds if w in news and w.isidentifier()))
    }
    return "".join(kept.get(word, word) for word in olds), "".join(kept.get(word, word) for word in news)


def _hunks(before: str, after: str) -> Iterator[Hunk]:
    """The changes within lines, in order."""
    olds, news = before.splitlines(keepends=True), after.splitlines(keepends=True)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(olds, news, strict=False)))
    starts = [sum(map(len, olds[:same]))]
    olds, news = olds[same:], news[same:]
    for line in olds:
        starts.append(starts[-1] + len(line))
    for tag, i, end_i, j, end_j in SequenceMatcher(None, olds, news).get_opcodes():
        if tag == "replace" and max(end_i - i, end_j - j) <= _MAX_BLOCK:
            tokens, written = tokenize("".join(olds[i:end_i])), tokenize("".join(news[j:end_j]))
            at = [starts[i]]
            for token in tokens:
                at.append(at[-1] + len(token))
            for a, b, c, d in token_hunks(tokens, written):
                hunk = Hunk(at[a], "".join(tokens[a:b]), "".join(written[c:d]))
                if hunk.old.strip() != hunk.new.strip() and "\n" not in hunk.old + hunk.new:
                    yield hunk
