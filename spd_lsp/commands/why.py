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
    from ngram_builders.attribution import Attribution, Passage, Query
    from ngram_builders.registry.ngram_table import NgramTable
    from ngram_builders.registry.registry import Registry
    from ngram_builders.table.reader import Table
    from spd_lsp.completion.tokenizer import ModelTokenizer

_SHOWN_SPOTS = 5  # of a passage; JSON has all
_SHOWN_WIDTH = 100  # of a line


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What one table knows of the text, with the tokens that the text has for it."""

    table: str
    query: Query
    found: Attribution


@click.command("why", epilog=help_example("why 'return self.registry.find(name)'"))
@click.argument("text")
@click.option("--name", "names", metavar="NAME", multiple=True, help="Ask this table; may be repeated.")
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    default=Path("file"),
    help="Ask the tables that serve this file (default: those of the current folder).",
)
@click.option("--model", default="starter", show_default=True, metavar="M", help="Model that completed TEXT.")
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object, with every place.")
@click.pass_obj
def why(settings: Settings, text: str, names: tuple[str, ...], file: Path, model: str, print_json: bool) -> None:
    """Show where a completion comes from.

    TEXT, such as a completion, is covered with the longest passages of the code that each table was built from.
    For tables that keep no texts, such as imported ones, it shows how much of TEXT their n-grams hold. With -,
    TEXT is standard input.
    """
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    text = (sys.stdin.read() if text == "-" else text).strip("\r\n")
    if not text.strip():
        raise UserError("TEXT is empty; give the completion to explain")
    tokens = ModelTokenizer(locate(model))
    registry = open_registry(settings)
    tables = list(_named(registry, names) if names else _serving(registry, file.absolute(), model))
    usable = [one for one in tables if one[1][0].summary.fingerprint == tokens.fingerprint]
    skipped = [name for name, files, _ in tables if files[0].summary.fingerprint != tokens.fingerprint]
    evidence = [_ask(text, *one, tokens) for one in usable]
    if print_json:
        click.echo(as_json({"text": text, "tables": list(map(_as_object, evidence)), "skipped": skipped}))
        return
    for one in evidence:
        click.echo("\n".join(_describe(one)))
    for name in skipped:
        click.echo(f"{name} was not asked: it was built for another model; name that with --model", err=True)


def _named(registry: Registry, names: Sequence[str]) -> Iterator[tuple[str, list[Table], NgramTable | None]]:
    from ngram_builders.table.reader import Table

    for name in dict.fromkeys(names):
        table = registry.find(name)
        if table.fault:
            raise UserError(table.fault)
        yield name, [Table.open(path) for path in table.paths], table


def _serving(registry: Registry, file: Path, model: str) -> Iterator[tuple[str, list[Table], NgramTable | None]]:
    """The tables that serve a file; of a whole folder, the built-in one of what it holds most of."""
    from ngram_builders.sources.language_ids import closest_language, language_of
    from ngram_builders.table.reader import Table
    from spd_lsp.models.checkpoint.hub import bundled_tables, locate

    language = language_of(file) if file.suffix else None
    tables = [table for table, _ in registry.tables_for(file, language)]
    yield from _named(registry, [table.name for table in tables])
    if not language and tables:
        sources = Table.open(tables[0].path).summary.sources
        language = max(sources, key=sources.__getitem__)
    built_in = bundled_tables(model, locate(model))
    if language and (name := closest_language(language, built_in)):
        yield f"{name} (built in)", [Table.open(built_in[name])], None
    elif not tables:
        raise UserError(f"no n-gram table serves {file.parent}; run spd-lsp build-ngrams there, or use --name")


def _ask(text: str, name: str, files: list[Table], table: NgramTable | None, tokens: ModelTokenizer) -> _Evidence:
    """Ask one table. A text in the middle of a line has other tokens than at its start: what knows more counts."""
    from ngram_builders.attribution import Query, attribute

    queries = [Query.of(tokens.encode(start + text), tokens.bytes_of) for start in ("", " ")]
    asked = [_Evidence(name, query, attribute(query, files, table, tokens.bytes_of)) for query in queries]
    return max(asked, key=lambda one: (_covered(one), one.found.held))


def _covered(evidence: _Evidence) -> int:
    """How many bytes of the text stand in passages, without spaces at its ends; longer ones count more."""
    passages = evidence.found.passages or ()
    lengths = [len(evidence.query.text[one.start : one.end].strip()) for one in passages]
    return sum(lengths) * 1000 - len(lengths)


def _describe(evidence: _Evidence) -> Iterator[str]:
    from ngram_builders.attribution import LEAST_TOKENS

    found = evidence.found
    count = len(evidence.query.ids)
    if found.held:
        ngrams = f"{found.held} of {count} tokens end n-grams of {LEAST_TOKENS} or more, up to {found.longest}"
    else:
        ngrams = f"none of its n-grams of {LEAST_TOKENS} tokens or more is in the text"
    if found.passages is None:
        yield f"{evidence.table}: {ngrams}; its texts are not kept here, so no files are known"
        return
    total = len(evidence.query.text.strip())
    share = sum(len(evidence.query.text[one.start : one.end].strip()) for one in found.passages) / total
    yield f"{evidence.table}: {share:.0%} stands in its files; {ngrams}"
    for passage in found.passages:
        yield from _describe_passage(evidence.query, passage)


def _describe_passage(query: Query, passage: Passage) -> Iterator[str]:
    """A passage, and the first places where it stands."""
    spots = passage.spots
    files = {spot.file for spot in passage.spots}
    stands = f"{format_count(len(spots), 'place')}, {format_count(len(files), 'file')}"
    text = query.text[passage.start : passage.end].decode("utf-8", "replace").strip()
    yield f"  {_shorten(' '.join(text.split()))}   {stands}"
    for spot in spots[:_SHOWN_SPOTS]:
        changed = "   (the file has changed since)" if spot.changed else ""
        yield f"    {_display(spot.file)}:{spot.line}:{spot.column}: {_shorten(spot.source.strip())}{changed}"
    if len(spots) > _SHOWN_SPOTS:
        yield f"    and {len(spots) - _SHOWN_SPOTS:,} more; --json lists them"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_WIDTH else f"{text[: _SHOWN_WIDTH - 3]}..."


def _display(file: str) -> str:
    """A file as seen from the current folder."""
    from ngram_builders.sources.discovery import display_path

    path = Path(file)
    return display_path(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _as_object(evidence: _Evidence) -> dict[str, Any]:
    """What one table knows of the text, for programs."""
    query = evidence.query
    found = evidence.found
    passages = found.passages and [
        {
            "text": query.text[one.start : one.end].decode("utf-8", "replace"),
            "places": [asdict(spot) for spot in one.spots],
        }
        for one in found.passages
    ]
    return {
        "table": evidence.table,
        "tokens": len(query.ids),
        "in_ngrams": found.held,
        "longest_ngram": found.longest,
        "passages": passages if passages is None else list(passages),
    }
