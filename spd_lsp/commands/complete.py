"""The command `complete`: drafts at one position of a file."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_options, print_status, setting_option, with_settings
from spd_lsp.completion.exclusions import exclusion_reason, language_id
from spd_lsp.completion.loading import load_completer
from spd_lsp.output.printable import as_json
from spd_lsp.output.progress import format_count
from spd_lsp.settings import FIELDS, Settings, converted, field_name, hint, invalid_reason

if TYPE_CHECKING:
    from spd_lsp.completion.offer import CompletionResult

_NAMES = [name.replace("_", "-") for name in FIELDS]
_LINE_END = re.compile(r"\r\n|\r|\n")  # as editors count lines


@click.command(epilog="\b\nExample: spd-lsp complete app.py:12:8 --set temperature=0.8")
@click.argument("position", metavar="FILE[:LINE:COL]")
@click.argument("text", metavar="[-]", type=click.Choice(["-"]), required=False)
@setting_option("-k", "--drafts")
@model_options
@setting_option("--max-tokens")
@setting_option("--decoder")
@click.option("--while-typing", is_flag=True, help="Show only what an editor would offer while you type.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change any setting. Repeatable.")
@click.option("--ngrams/--no-ngrams", default=True, help="Use the n-gram tables (default) or only the model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@with_settings
def complete(
    settings: Settings,
    position: str,
    text: str | None,
    while_typing: bool,
    changes: tuple[str, ...],
    ngrams: bool,
    as_json: bool,
) -> None:
    """Print completions at a position of a file, or at its end.

    LINE and COL start at 1. Add - to read the text from standard input. FILE then only selects the language and
    the tables.
    """
    from spd_lsp.completion.offer import CompletionResult

    path, source, cursor = _read_position(position, stdin=text is not None)
    settings = dataclasses.replace(settings, **dict(map(_parse_change, changes)))
    language = language_id(path)
    if reason := exclusion_reason(path, settings):
        answer = CompletionResult([], reason=reason)
    else:
        completer = load_completer(settings, print_status, ngrams=ngrams)
        path = path.resolve()
        name = path.as_uri()
        answer = completer.complete(source, cursor, language, path, name=name, explicit=not while_typing)
        answer = completer.write_block(source, cursor, language, path, answer, name=name)
    if answer.instead:
        print_status(f"{answer.instead}; the bundled model has completed")
    for problem in answer.problems:
        print_status(problem)
    click.echo(_as_object(answer, settings.model) if as_json else _as_table(answer))


def _read_position(position: str, *, stdin: bool) -> tuple[Path, str, int]:
    """The file, its text and the offset in it that FILE:LINE:COL names, or for FILE its end."""
    parts = re.fullmatch(r"(.*):([0-9]{1,18}):([0-9]{1,18})", position, re.DOTALL)
    if parts is None and re.search(r":[^/\\]*$", position):  # a disk of Windows has a separator behind it
        raise UserError(f"{position!r} is neither FILE nor FILE:LINE:COL, such as app.py:12:8")
    path = Path(parts[1] if parts else position)
    try:
        source = (sys.stdin.buffer.read() if stdin else path.read_bytes()).decode("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; name a text file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from error
    if parts is None:
        return path, source, len(source)
    line, column = int(parts[2]), int(parts[3])
    lines = _LINE_END.split(source)
    if not 1 <= line <= len(lines):
        raise UserError(f"{path} has no line {line}, only 1 to {len(lines)}")
    width = len(lines[line - 1])
    if not 1 <= column <= width + 1:
        raise UserError(f"line {line} of {path} has no column {column}, only 1 to {width + 1}")
    starts = [0, *(end.end() for end in _LINE_END.finditer(source))]
    return path, source, starts[line - 1] + column - 1


def _parse_change(text: str) -> tuple[str, Any]:
    """A setting and its value. Example: `maxOrder=3` -> ("max_order", 3)."""
    key, equals, written = text.partition("=")
    if not equals:
        raise UserError(f"--set {text!r} must be NAME=VALUE, such as --set drafts=5")
    if (name := field_name(key)) is None:
        raise UserError(f"--set {text!r}: unknown setting {key!r}{hint(key, _NAMES)}")
    try:
        value = json.loads(written)
    except ValueError:
        value = written
    if reason := invalid_reason(FIELDS[name], value):
        raise UserError(f"--set {key} {reason}")
    return name, converted(value, FIELDS[name].default)


def _as_table(answer: CompletionResult) -> str:
    """The drafts, best first, then the passes and the time that they took."""
    if not answer.completions:
        return f"no draft: {answer.reason}"
    rows = []
    for number, completion in enumerate(answer.completions, 1):
        first, *others = completion.text.split("\n")
        if completion.match:
            how = "copied from" if completion.is_copy else "as in"
            first += f"  ({how} {completion.places})"
        elif not completion.ends:
            first += " …"
        shown = "" if completion.shown_probability is None else f"{completion.shown_probability:.1%}"
        rows += [f"{number:3} {shown:>6}  {first}", *(f"{'':12}{line}" for line in others)]
    drafts = format_count(len(answer.completions), "draft")
    tokens = format_count(answer.tokens, "token")
    rows.append(
        f"{drafts}, {answer.passes} forward passes for {tokens}, "
        f"{answer.seconds * 1000:.0f} ms; n-grams: {', '.join(answer.ngrams) or 'none'}"
        + (f"; fill-in-the-middle: {answer.fill_format}" if answer.fill_format else "")
    )
    return "\n".join(rows)


def _as_object(answer: CompletionResult, model: str) -> str:
    """The answer as JSON; `spd_lsp/README.md` describes each field."""
    completions = [
        {name: getattr(one, name) for name in ("text", "kind", "ends", "place")}
        | {"probability": one.shown_probability, "files": one.match.files if one.match else 0}
        for one in answer.completions
    ]
    facts = "reason withheld problems ngrams fill_format passes tokens prompt_tokens"
    values = {name: getattr(answer, name) for name in facts.split()}
    milliseconds = round(answer.seconds * 1000, 1)
    return as_json({"completions": completions, "model": model, **values, "milliseconds": milliseconds})
