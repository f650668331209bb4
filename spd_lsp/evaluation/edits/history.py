"""What was changed together in a repository's history: the repeated changes of a commit, and those made once.

In: a repository with git history. Out: examples: files before a commit, one change, and the others like it.
Git only lists and prints stored objects, so that nothing that a repository's configuration names is run.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice, takewhile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ngram_builders.errors import UserError
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION, related_languages
from spd_lsp.edits.rewrite import token_hunks, tokenize
from spd_lsp.ngrams.open_documents import OpenDocument, imported_files

_LANGUAGES = ("python", "typescript", "typescriptreact", "javascript", "go")
_MAX_FILE = 100_000  # bytes
_MAX_BLOCK = 40  # lines that were replaced as one
_MAX_HUNKS = 80  # of a file; more were not made by hand
_MAX_BESIDE = 8  # files that are open, too
_MAX_CLOSED = 16  # files that are imported
_ONCE_PER_FILE = 3
_ENVIRONMENT = {"GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_NOSYSTEM": "1", "GIT_ALLOW_PROTOCOL": "none"}
_COMMIT = "commit "
_ROOT = Path("/repository")  # stands for the repository's folder
_GENERATED = re.compile(r"(?:^|/)(?:dist|build|vendor|node_modules)/|\.min\.")


class Hunk(NamedTuple):
    """What is replaced at an offset of the text before."""

    start: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class File:
    """A file before a commit, and what the commit changes in it, by line."""

    name: str
    language: str
    before: str
    lines: tuple[tuple[Hunk, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """A file that is changed first, those that are open too or that it imports, and which changes are alike."""

    repository: str
    files: tuple[File, ...]  # the first is changed first
    first: tuple[Hunk, ...]
    alike: frozenset[tuple[int, tuple[Hunk, ...]]]  # with the number of the file


class _Change(NamedTuple):
    """A file's path, and its texts before and after a commit, by name."""

    path: str
    language: str
    before: str
    after: str


def read_examples(repo: Path, most: int) -> Iterator[Example]:
    """The examples of a repository, newest first, from at most so many commits."""
    commits = _read_commits(repo, most)
    names = [name for _, commit in commits for change in commit for name in (change.before, change.after)]
    texts = dict(zip(names, _read_blobs(repo, names), strict=True))
    for number, (name, commit) in enumerate(commits):
        files = [_file(change, texts) for change in commit]
        changed = [one for one in files if one.lines]
        earlier = {change.path: change for _, older in reversed(commits[number + 1 :]) for change in older}
        rest = [File(one.path, one.language, texts[one.after]) for one in list(earlier.values())[::-1][:30]]
        known = {one.name for one in changed}
        others = [one for one in rest if one.name not in known and one.before]
        tree = _read_tree(repo, name) if changed else {}
        imported = {one.name: _imported(repo, one, tree) for one in changed}
        yield from _examples(str(repo), changed, others, imported)


def _read_tree(repo: Path, commit: str) -> dict[str, str]:
    """The names of the stored files before a commit, by path."""
    listing = _git(repo, "ls-tree", "-r", "-z", "--full-tree", f"{commit}~").decode("utf-8", "replace")
    entries = [entry.partition("\t") for entry in listing.split("\0") if entry]
    return {path: fields.split()[2] for fields, _, path in entries if _language(path)}


def _imported(repo: Path, file: File, tree: Mapping[str, str]) -> list[File]:
    """The files that a file imports, as they were before a commit."""
    document = OpenDocument(file.name, None, file.language, file.before)
    found = imported_files(document, f"{_ROOT}/{file.name}", [_ROOT], [f"{_ROOT}/{path}" for path in tree])
    paths = [one.removeprefix(f"{_ROOT}/") for one in islice(found, _MAX_CLOSED)]
    texts = _read_blobs(repo, [tree[path] for path in paths])
    return [File(path, _language(path), text) for path, text in zip(paths, texts, strict=True) if text]


def _language(path: str) -> str:
    """The language of a file that is looked at, else an empty string."""
    language = LANGUAGE_BY_EXTENSION.get(PurePosixPath(path).suffix[1:], "")
    return language if language in _LANGUAGES and not _GENERATED.search(path) else ""


def _read_commits(repo: Path, most: int) -> list[tuple[str, list[_Change]]]:
    """The commits, newest first, each with the files that it changes."""
    listed = ("--raw", "--no-abbrev", "--no-renames", "--diff-filter=M", "--no-show-signature")
    listing = _git(repo, "log", f"--max-count={most}", "--no-merges", f"--format=tformat:{_COMMIT}%H", *listed)
    commits: list[tuple[str, list[_Change]]] = []
    for line in listing.decode("utf-8", "replace").splitlines():
        fields, _, path = line.partition("\t")
        if line.startswith(_COMMIT):
            commits.append((line.removeprefix(_COMMIT), []))
        elif language := _language(path):
            commits[-1][1].append(_Change(path, language, *fields.split()[2:4]))
    return commits


def _file(change: _Change, texts: dict[str, str]) -> File:
    """A file with its changes, without any if there are more than a person makes."""
    before, after = texts[change.before], texts[change.after]
    lines: dict[int, list[Hunk]] = defaultdict(list)
    hunks = list(_hunks(before, after)) if before and after else []
    for hunk in hunks if len(hunks) <= _MAX_HUNKS else ():
        lines[before.rfind("\n", 0, hunk.start)].append(hunk)
    return File(change.path, change.language, before, tuple(map(tuple, lines.values())))


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
    texts = []
    at = 0
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


def _examples(
    repository: str, changed: Sequence[File], others: Sequence[File], imported: Mapping[str, Sequence[File]]
) -> Iterator[Example]:
    shown: set[tuple[str, tuple[Hunk, ...]]] = set()
    for file in changed:
        group = related_languages(file.language)
        beside = [one for one in (*changed, *others) if one is not file and one.language in group]
        opened = (file, *beside[:_MAX_BESIDE])
        known = {one.name: one for one in (*changed, *others)}  # of a changed file it is known what is changed
        closed = [known.get(one.name, one) for one in imported[file.name] if one not in opened]
        files = (*opened, *(one for one in closed if one not in opened))
        once = 0
        for first in file.lines:
            keys = _keys(first)
            alike = frozenset(
                (number, line)
                for number, one in enumerate(files)
                for line in one.lines
                if (number or line != first) and keys & _keys(line)
            )
            once += not alike
            if (file.name, first) not in shown and (alike or once <= _ONCE_PER_FILE):
                yield Example(repository, files, first, alike)
            shown |= {(files[number].name, line) for number, line in alike}


def _keys(line: Sequence[Hunk]) -> set[tuple[str, str]]:
    """What changes that are alike share."""
    return {key for hunk in line for key in ((hunk.old, hunk.new), _general(hunk))}


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
            tokens = tokenize("".join(olds[i:end_i]))
            written = tokenize("".join(news[j:end_j]))
            at = [starts[i]]
            for token in tokens:
                at.append(at[-1] + len(token))
            for a, b, c, d in token_hunks(tokens, written):
                hunk = Hunk(at[a], "".join(tokens[a:b]), "".join(written[c:d]))
                if hunk.old.strip() != hunk.new.strip() and "\n" not in hunk.old + hunk.new:
                    yield hunk
