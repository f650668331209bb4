"""The command `ngrams why`: which tables, files and lines a text stands in."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_option, print_status, with_settings
from spd_lsp.commands.ngrams import help_example, load_tokens, open_registry
from spd_lsp.output.printable import as_json
from spd_lsp.output.progress import format_count
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.ngram_table import NgramTable
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.tokenizer import ModelTokenizer

_SHOWN_SPOTS = 5  # of a passage; JSON has all
_SHOWN_WIDTH = 100  # of a line


@click.command("why", epilog=help_example("why 'return self.registry.find(name)'"))
@click.argument("text")
@click.option("--name", "names", metavar="NAME", multiple=True, help="Search only this table. Repeatable.")
@click.option("--file", type=click.Path(path_type=Path), help="Search this file's tables (default: the folder's).")
@model_option("Model that wrote TEXT.")
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object with all places.")
@with_settings
def why(settings: Settings, text: str, names: tuple[str, ...], file: Path | None, print_json: bool) -> None:
    """Show where a completion comes from.

    The command looks up the longest passages of TEXT in the indexed code. It prints the files and lines that hold
    them. Imported tables do not name files. Use - to read TEXT from standard input.
    """
    text = (sys.stdin.read() if text == "-" else text).strip("\r\n")
    if not text.strip():
        raise UserError("TEXT is empty; give the completion to explain")
    tokens = load_tokens(settings.model)
    tables = _asked_tables(open_registry(settings), names, (file or Path("file")).absolute())
    found = [_ask(text, table, tokens) for table in tables if table.fingerprint == tokens.fingerprint]
    skipped = [table.name for table in tables if table.fingerprint != tokens.fingerprint]
    if print_json:
        click.echo(as_json({"text": text, "tables": found, "skipped": skipped}))
        return
    for one in found:
        click.echo("\n".join(_describe(one)))
    for name in skipped:
        print_status(f"{name} was not asked: it was built for another model; name that with --model")


def _asked_tables(registry: Registry, names: Sequence[str], file: Path) -> list[NgramTable]:
    """The tables of these names, or those that serve a file."""
    from ngram_builders.sources.language_ids import language_of

    tables = [registry.find(name) for name in dict.fromkeys(names)]
    if not names:
        tables = [table for table, _ in registry.tables_for(file, language_of(file) if file.suffix else None)]
    if not tables:
        raise UserError(f"no n-gram table serves {file.parent}; run spd-lsp build-ngrams there, or use --name")
    if faults := [table.fault for table in tables if table.fault]:
        raise UserError(faults[0])
    return tables


def _ask(text: str, table: NgramTable, tokens: ModelTokenizer) -> dict[str, Any]:
    """What one table has of the text, for programs."""
    from ngram_builders.attribution import find_passages
    from ngram_builders.index.table_file import Table

    files = [Table.open(path) for path in table.paths]
    answers = []
    for start in (
        "",
        " ",
    ):  # in the middle of a line it has other tokens than at its start: what knows more counts
        ids = tokens.encode(start + text)
        whole = tokens.bytes_of(ids)
        passages = find_passages(ids, files, table, tokens.bytes_of)
        pieces = [whole[one.start : one.end] for one in passages]
        found = sum(len(piece.strip()) for piece in pieces)
        described = [
            {"text": piece.decode("utf-8", "replace"), "places": [asdict(spot) for spot in one.spots]}
            for piece, one in zip(pieces, passages, strict=True)
        ]
        answers.append((found, -len(pieces), {"share": found / len(whole.strip()), "passages": described}))
    return {"table": table.name, **max(answers, key=lambda answer: answer[:2])[2]}


def _describe(answer: dict[str, Any]) -> Iterator[str]:
    """The same for people: each passage, and the first places where it stands."""
    from ngram_builders.sources.discovery import display_path

    yield f"{answer['table']}: {answer['share']:.0%} stands in its files"
    for passage in answer["passages"]:
        spots = passage["places"]
        files = {spot["file"] for spot in spots}
        stands = f"{format_count(len(spots), 'place')}, {format_count(len(files), 'file')}" if spots else ""
        yield f"  {_shorten(' '.join(passage['text'].split()))}   {stands}".rstrip()
        for spot in spots[:_SHOWN_SPOTS]:
            path = Path(spot["file"])
            file = display_path(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
            changed = "   (the file has changed since)" if spot["changed"] else ""
            yield f"    {file}:{spot['line']}:{spot['column']}: {_shorten(spot['source'].strip())}{changed}"
        if len(spots) > _SHOWN_SPOTS:
            yield f"    and {len(spots) - _SHOWN_SPOTS:,} more; --json lists them"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_WIDTH else f"{text[: _SHOWN_WIDTH - 3]}..."
