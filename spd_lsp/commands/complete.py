"""The command `complete`: the drafts for one place in a file."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.wiring import load_completer, model_options, tell
from spd_lsp.lsp.transport.addresses import is_number
from spd_lsp.printable import as_json
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import CompletionResult

_LINE_END = re.compile(r"\r\n|\r|\n")  # as editors count lines


@click.command()
@click.argument("place", metavar="FILE:LINE:COL")
@click.option("-k", "drafts", type=click.IntRange(1, 16), default=3, show_default=True, help="How many drafts.")
@model_options
@click.option("--max-tokens", type=click.IntRange(1, 512), default=24, show_default=True, help="Longest draft.")
@click.option("--ngrams/--no-ngrams", default=True, help="Ask the n-gram tables or only the model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def complete(
    settings: Settings,
    place: str,
    drafts: int,
    model: str,
    device: str,
    max_tokens: int,
    ngrams: bool,
    as_json: bool,
) -> None:
    """Print k drafts for a place in a file; lines and columns count from 1, as editors show them."""
    from spd_lsp.completion.completer import CompletionResult
    from spd_lsp.lsp.exclusions import exclusion_reason, language_id

    path, source, cursor = _read_place(place)
    settings = dataclasses.replace(settings, drafts=drafts, model=model, device=device, max_tokens=max_tokens)
    language = language_id(path)
    if reason := exclusion_reason(path, language, settings.disabled_languages):
        answer = CompletionResult([], reason=reason)
    else:
        completer = load_completer(settings, tell, ngrams=ngrams)
        path = path.resolve()
        answer = completer.complete(source, cursor, language, path, name=path.as_uri(), forced=True)
    for problem in answer.problems:
        tell(problem)
    click.echo(_as_object(answer, model) if as_json else _as_table(answer))


def _read_place(place: str) -> tuple[Path, str, int]:
    """A file, its text and the offset of a line and a column in it, both counted from 1."""
    parts = place.rsplit(":", 2)
    if len(parts) != 3 or not (is_number(parts[1]) and is_number(parts[2])):
        raise UserError(f"expected FILE:LINE:COL such as app.py:12:8, found {place!r}")
    path, line, column = Path(parts[0]), int(parts[1]), int(parts[2])
    source = _read_source(path)
    lines, starts = _LINE_END.split(source), [0, *(end.end() for end in _LINE_END.finditer(source))]
    if not 1 <= line <= len(lines):
        raise UserError(f"expected a line from 1 to {len(lines)} of {path}, found {line}")
    width = len(lines[line - 1])
    if not 1 <= column <= width + 1:
        raise UserError(f"expected a column from 1 to {width + 1} in line {line} of {path}, found {column}")
    return path, source, starts[line - 1] + column - 1


def _read_source(path: Path) -> str:
    """A file's text; binary files and other encodings are named as such."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"expected a file at {path}, found: {error.strerror}; check the path") from error
    if b"\0" in content:
        raise UserError(f"expected source code in {path}, found a binary file; name a text file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"expected UTF-8 in {path}, found byte 0x{content[error.start]:02x} at offset {error.start}; "
            "save the file as UTF-8"
        ) from error


def _as_table(answer: CompletionResult) -> str:
    """The drafts a line each, best first, then what they took."""
    if not answer.completions:
        return f"no draft: {answer.reason}"
    rows = []
    for number, completion in enumerate(answer.completions, 1):
        first, *others = completion.text.split("\n")
        rows += [f"{number:3} {completion.probability:6.1%}  {first}", *(f"{'':12}{line}" for line in others)]
    count = len(answer.completions)
    rows.append(
        f"{count} draft{'s' * (count > 1)}, {answer.passes} forward passes for {answer.tokens} tokens, "
        f"{answer.seconds * 1000:.0f} ms; n-grams: {', '.join(answer.ngrams) or 'none'}"
    )
    return "\n".join(rows)


def _as_object(answer: CompletionResult, model: str) -> str:
    """The same, for programs."""
    return as_json(
        {
            "completions": [dataclasses.asdict(completion) for completion in answer.completions],
            "passes": answer.passes,
            "tokens": answer.tokens,
            "prompt_tokens": answer.prompt_tokens,
            "milliseconds": round(answer.seconds * 1000, 1),
            "ngrams": list(answer.ngrams),
            "withheld": answer.withheld,
            "model": model,
            "reason": answer.reason,
            "problems": list(answer.problems),
        }
    )
