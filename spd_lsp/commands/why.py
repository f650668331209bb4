"""The command `ngrams why`: which tables, files and lines a text stands in."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.ngrams import help_example, open_registry
from spd_lsp.output.printable import as_json
from spd_lsp.output.progress import format_count
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.attribution import Passage
    from ngram_builders.registry.ngram_table import NgramTable
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.tokenizer import ModelTokenizer

_SHOWN_SPOTS = 5  # of a passage; JSON has all
_SHOWN_WIDTH = 100  # of a line


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What one table has of the text, as bytes."""

    table: str
    text: bytes
    passages: tuple[Passage, ...]


@click.command("why", epilog=help_example("why 'return self.registry.find(name)'"))
@click.argument("text")
@click.option("--name", "names", metavar="NAME", multiple=True, help="Search only this table. Repeatable.")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    default=Path("file"),
    help="Search the tables of this file (default: the tables of the current folder).",
)
@click.option("--model", default="starter", show_default=True, metavar="M", help="Model that wrote TEXT.")
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object with all places.")
@click.pass_obj
def why(settings: Settings, text: str, names: tuple[str, ...], file: Path, model: str, print_json: bool) -> None:
    """Show where a completion comes from.

    The command looks up the longest passages of TEXT in the indexed code. It prints the files and lines that hold
    them. Imported tables do not name files. Use - to read TEXT from standard input.
    """
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    text = (sys.stdin.read() if text == "-" else text).strip("\r\n")
    if not text.strip():
        raise UserError("TEXT is empty; give the completion to explain")
    tokens = ModelTokenizer(locate(model))
    tables = _asked_tables(open_registry(settings), names, file.absolute())
    usable = [table for table in tables if table.fingerprint == tokens.fingerprint]
    skipped = [table.name for table in tables if table.fingerprint != tokens.fingerprint]
    evidence = [_ask(text, table, tokens) for table in usable]
    if print_json:
        click.echo(as_json({"text": text, "tables": list(map(_as_object, evidence)), "skipped": skipped}))
        return
    for one in evidence:
        click.echo("\n".join(_describe(one)))
    for name in skipped:
        click.echo(f"{name} was not asked: it was built for another model; name that with --model", err=True)


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


def _ask(text: str, table: NgramTable, tokens: ModelTokenizer) -> _Evidence:
    """Ask one table. A text in the middle of a line has other tokens than at its start: what knows more counts."""
    from ngram_builders.attribution import find_passages
    from ngram_builders.index.table_file import Table

    files = [Table.open(path) for path in table.paths]
    queries = [tokens.encode(start + text) for start in ("", " ")]
    asked = [
        _Evidence(table.name, tokens.bytes_of(ids), find_passages(ids, files, table, tokens.bytes_of))
        for ids in queries
    ]
    return max(asked, key=_covered)


def _covered(evidence: _Evidence) -> int:
    """How many bytes of the text stand in passages, without spaces at its ends; longer ones count more."""
    lengths = [len(evidence.text[one.start : one.end].strip()) for one in evidence.passages]
    return sum(lengths) * 1000 - len(lengths)


def _describe(evidence: _Evidence) -> Iterator[str]:
    found = sum(len(evidence.text[one.start : one.end].strip()) for one in evidence.passages)
    yield f"{evidence.table}: {found / len(evidence.text.strip()):.0%} stands in its files"
    for passage in evidence.passages:
        yield from _describe_passage(evidence.text, passage)


def _describe_passage(whole: bytes, passage: Passage) -> Iterator[str]:
    """A passage, and the first places where it stands."""
    from ngram_builders.sources.discovery import display_path

    spots = passage.spots
    files = {spot.file for spot in passage.spots}
    stands = f"{format_count(len(spots), 'place')}, {format_count(len(files), 'file')}" if spots else ""
    text = whole[passage.start : passage.end].decode("utf-8", "replace").strip()
    yield f"  {_shorten(' '.join(text.split()))}   {stands}".rstrip()
    for spot in spots[:_SHOWN_SPOTS]:
        path = Path(spot.file)
        file = display_path(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
        changed = "   (the file has changed since)" if spot.changed else ""
        yield f"    {file}:{spot.line}:{spot.column}: {_shorten(spot.source.strip())}{changed}"
    if len(spots) > _SHOWN_SPOTS:
        yield f"    and {len(spots) - _SHOWN_SPOTS:,} more; --json lists them"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_WIDTH else f"{text[: _SHOWN_WIDTH - 3]}..."


def _as_object(evidence: _Evidence) -> dict[str, Any]:
    """What one table has of the text, for programs."""
    return {
        "table": evidence.table,
        "passages": [
            {
                "text": evidence.text[one.start : one.end].decode("utf-8", "replace"),
                "places": [asdict(spot) for spot in one.spots],
            }
            for one in evidence.passages
        ],
    }
