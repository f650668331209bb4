"""The command `ngrams compare`: what tables bring to the completions in a folder, by their weight."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import LocalPath, model_options
from spd_lsp.commands.ngrams import help_example, open_registry
from spd_lsp.output.progress import progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.ngram_table import NgramTable
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.evaluation.quality.held_out_ngrams import AddedTable

_WEIGHTS = (0.05, 0.3, 1.0)


@click.command("compare", epilog=help_example("compare django --on ~/shop"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--on",
    "folder",
    type=LocalPath(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder whose lines are completed.",
)
@click.option(
    "--places", type=click.IntRange(min=1), default=40, show_default=True, help="Number of places, at most."
)
@model_options
@click.pass_obj
def compare(settings: Settings, names: Sequence[str], folder: Path, places: int, model: str, device: str) -> None:
    """Measure what tables bring and what they harm.

    Lines of the folder's files are completed from places within them: first with the n-grams of the folder's other
    files, of the open file and the built-in table, then with each NAME added. Forty places take about a minute,
    and do not resolve differences of a few points; those that are better and worse say more.
    """
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.evaluation.table_comparison import compare_tables
    from spd_lsp.models.checkpoint.hub import locate

    registry = open_registry(settings)
    tables = [registry.find(name) for name in dict.fromkeys(names)]
    tokens = ModelTokenizer(locate(model))
    added = [one for table in tables for one in _tables(table, folder.resolve(), tokens, model)]
    languages = {language for table in tables for language in table.languages}
    with TemporaryDirectory() as scratch, progress() as report:  # results hold code, and are not kept
        options = {"model": model, "device": device, "drafts": settings.drafts, "files": places}
        options |= {"language": sorted(languages), "out": Path(scratch)}
        found = compare_tables(folder, added, options, places, report)
    click.echo("\n".join(found.describe()))


def _tables(table: NgramTable, folder: Path, tokens: ModelTokenizer, model: str) -> list[AddedTable]:
    """A table at each weight; UserError for one that cannot serve, or that knows the folder's files."""
    from ngram_builders.registry.model_match import mismatch_message
    from ngram_builders.registry.ngram_table import trust
    from ngram_builders.table.reader import Table
    from ngram_builders.table.suffix_array import SearchedTexts
    from spd_lsp.evaluation.quality.held_out_ngrams import AddedTable

    if table.fault:
        raise UserError(f"n-gram table {table.name} is broken: {table.fault}")
    if table.fingerprint != tokens.fingerprint:
        raise UserError(mismatch_message(table, model))
    if any(folder.is_relative_to(root) or root.is_relative_to(folder) for root in table.roots):
        raise UserError(
            f"{table.name} was built from code in {folder}, so it knows what is to be completed; name another "
            "folder with --on"
        )
    files = [Table.open(path, tokens.fingerprint) for path in table.paths]
    columns = [file.columns for file in files]
    texts = [file.texts for file in files if file.texts is not None]
    return [
        AddedTable(table.name, weight, columns, [SearchedTexts(text, trust=trust(weight)) for text in texts])
        for weight in _WEIGHTS
    ]
