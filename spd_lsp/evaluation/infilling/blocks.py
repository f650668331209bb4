"""Bodies in real files, written as for someone whose cursor stands where the body begins.

In: packages. Out: how much of each body was written. Each body is taken out of its file; the package's other files
are open beside it, as in an editor. Slow imports are made late.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_options, print_status
from spd_lsp.evaluation.quality.examples import PackageFile, PackageFiles, read_packages
from spd_lsp.evaluation.quality.metrics import edit_similarity
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from spd_lsp.output.progress import resumable_progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer

_LINES = range(2, 13)  # of a body
_OPEN_FILES = 20  # of a package
_CHARACTERS = range(200, 50_001)  # of a file


@dataclass(frozen=True, slots=True)
class Body:
    """A body, from its first word to its end."""

    file: PackageFile
    start: int
    end: int

    @property
    def lines(self) -> list[str]:
        """What is to be written."""
        return _lines(self.file.text[self.start : self.end])


@dataclass(frozen=True, slots=True)
class _Written:
    """What was written of a body."""

    lines: int  # that it has
    shown: int  # lines that were
    kept: int  # of them, before the first that is wrong
    similarity: float
    passes: int


def bodies_of(file: PackageFile) -> Iterator[Body]:
    """The bodies behind lines that open one, as indentation shows; not those that begin with text or a comment."""
    lines = file.text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for number, (opening, first) in enumerate(pairwise(lines), 1):
        indent = len(first) - len(first.lstrip())
        is_deeper = bool(first.strip()) and indent > len(opening) - len(opening.lstrip())
        if not (opening.rstrip().endswith((":", "{")) and is_deeper) or first.lstrip()[0] in "\"'#/*":
            continue
        within = takewhile(lambda line: not line.strip() or line[:indent].isspace(), lines[number:])  # noqa: B023
        text = "".join(within).rstrip()
        if len(_lines(text)) in _LINES:
            yield Body(file, starts[number] + indent, starts[number] + len(text))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def write_body(completer: Completer, body: Body) -> _Written:
    """What the product shows once the block is written, where its first draft begins one."""
    text = body.file.text[: body.start] + body.file.text[body.end :]
    uri = body.file.name
    place = (text, body.start, body.file.language, None)
    completer.update_documents({uri: DocumentChange(_document(body.file, text), False)}, uri)
    result = completer.write_block(*place, completer.complete(*place, name=uri), name=uri)
    shown = _lines(result.completions[0].text) if result.completions else []
    kept = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(shown, body.lines, strict=False))))
    similarity = edit_similarity("\n".join(shown), "\n".join(body.lines))
    return _Written(len(body.lines), len(shown), kept, similarity, result.passes)


def _document(file: PackageFile, text: str) -> OpenDocument:
    return OpenDocument(file.name, None, file.language, text)


def _sample(package: PackageFiles, files: int, seed: int) -> list[Body]:
    """A body of each of so many files."""
    rng = random.Random(f"{seed}/{package.name}")
    found = [list(bodies_of(file)) for file in package.files if len(file.text) in _CHARACTERS]
    return [rng.choice(bodies) for bodies in rng.sample(found, len(found)) if bodies][:files]


def _write_all(completer: Completer, package: PackageFiles, bodies: Sequence[Body]) -> Iterator[_Written]:
    """Each body of a package, its other files open."""
    others = [file for file in package.files if len(file.text) in _CHARACTERS][:_OPEN_FILES]
    opened = {file.name: file for file in (*others, *(body.file for body in bodies))}
    change = {name: DocumentChange(_document(file, file.text), False) for name, file in opened.items()}
    completer.update_documents(change)
    for body in bodies:
        yield write_body(completer, body)
        completer.update_documents({body.file.name: change[body.file.name]})
    completer.update_documents(dict.fromkeys(opened, DocumentChange(None, False)))


@click.command(epilog="\b\nExample: spd-lsp eval blocks ~/code/*/ --files 20")
@click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path))
@model_options
@click.option("--files", type=click.IntRange(min=1), default=20, show_default=True, help="Bodies per repository.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the bodies that are drawn.")
def blocks(repos: tuple[Path, ...], model: str, device: str, files: int, seed: int) -> None:
    """Write bodies of 2 to 12 lines in files of REPO, and say how much of them is right."""
    from spd_lsp.completion.loading import load_completer
    from spd_lsp.evaluation.quality.leaks import refuse_leaks
    from spd_lsp.models.checkpoint.hub import locate

    packages = read_packages(repos)
    refuse_leaks(packages, locate(model))
    completer = load_completer(Settings(model=model, device=device), print_status, ngrams=True)
    written: list[_Written] = []
    with resumable_progress() as report:
        for number, package in enumerate(packages):
            report("repositories", number, len(packages))
            written += _write_all(completer, package, _sample(package, files, seed))
    if not written:
        raise UserError("no file has a body of 2 to 12 lines; name other repositories")
    click.echo(_described(written))


def _described(written: Sequence[_Written]) -> str:
    """Means over the bodies, a line each."""
    first = mean(one.kept > 0 for one in written)
    rows = (
        ("bodies", f"{len(written)}, of {mean(one.lines for one in written):.1f} lines"),
        ("lines shown", f"{mean(one.shown for one in written):.2f} a body"),
        ("lines kept, before the first wrong one", f"{mean(one.kept for one in written):.2f} a body"),
        ("first line right", f"{100 * first:.1f} %"),
        ("edit similarity", f"{100 * mean(one.similarity for one in written):.1f} %"),
        ("passes", f"{mean(one.passes for one in written):.1f}"),
    )
    return "\n".join(f"{name:40}{value}" for name, value in rows)
