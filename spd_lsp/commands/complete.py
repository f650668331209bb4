"""The command `complete`: drafts at one position of a file."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.wiring import load_completer, model_options, print_status
from spd_lsp.lsp.transport.addresses import is_integer
from spd_lsp.printable import as_json
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import CompletionResult

_LINE_END = re.compile(r"\r\n|\r|\n")  # as editors count lines


@click.command()
@click.argument("position", metavar="FILE:LINE:COL")
@click.option("-k", "drafts", type=click.IntRange(1, 16), default=3, show_default=True, help="Number of drafts.")
@model_options
@click.option(
    "--max-tokens", type=click.IntRange(1, 512), default=24, show_default=True, help="Maximum length of a draft."
)
@click.option("--ngrams/--no-ngrams", default=True, help="Use the n-gram tables, or only the model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def complete(
    settings: Settings,
    position: str,
    drafts: int,
    model: str,
    device: str,
    max_tokens: int,
    ngrams: bool,
    as_json: bool,
) -> None:
    """Print drafts at a position of a file. Lines and columns count from 1, as editors show them."""
    from ngram_builders.sources.secret_files import is_secret
    from spd_lsp.completion.completer import CompletionResult
    from spd_lsp.lsp.exclusions import exclusion_reason, language_id

    path, source, cursor = _read_position(position)
    settings = dataclasses.replace(settings, drafts=drafts, model=model, device=device, max_tokens=max_tokens)
    language = language_id(path)
    if reason := exclusion_reason(language, settings.disabled_languages, may_hold_secrets=is_secret(path)):
        answer = CompletionResult([], reason=reason)
    else:
        completer = load_completer(settings, print_status, ngrams=ngrams)
        path = path.resolve()
        answer = completer.complete(source, cursor, language, path, name=path.as_uri(), forced=True)
    for problem in answer.problems:
        print_status(problem)
    click.echo(_as_object(answer, model) if as_json else _as_table(answer))


def _read_position(position: str) -> tuple[Path, str, int]:
    """The file, its text and the offset in it that FILE:LINE:COL names."""
    parts = position.rsplit(":", 2)
    if len(parts) != 3 or not (is_integer(parts[1]) and is_integer(parts[2])):
        raise UserError(f"{position!r} is not FILE:LINE:COL, such as app.py:12:8")
    path, line, column = Path(parts[0]), int(parts[1]), int(parts[2])
    source = _read_source(path)
    lines, starts = _LINE_END.split(source), [0, *(end.end() for end in _LINE_END.finditer(source))]
    if not 1 <= line <= len(lines):
        raise UserError(f"{path} has no line {line}, only 1 to {len(lines)}")
    width = len(lines[line - 1])
    if not 1 <= column <= width + 1:
        raise UserError(f"line {line} of {path} has no column {column}, only 1 to {width + 1}")
    return path, source, starts[line - 1] + column - 1


def _read_source(path: Path) -> str:
    """A file's text; binary files and other encodings are refused."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if b"\0" in content:
        raise UserError(f"{path} is a binary file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at offset {error.start}"
        raise UserError(f"{path} is not UTF-8 ({byte}); save it as UTF-8") from error


def _as_table(answer: CompletionResult) -> str:
    """The drafts, best first, then what they cost."""
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
    """The same as JSON."""
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
