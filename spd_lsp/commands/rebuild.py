"""The command `ngrams rebuild`: builds tables again as the registry recorded them."""

from __future__ import annotations

import dataclasses
import shlex
from functools import cache
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from ngram_builders.sources.rules.selection import Selection
from spd_lsp.command_options import with_settings
from spd_lsp.commands.build_ngrams import count, describe_build
from spd_lsp.commands.ngram_listing import missing_sources
from spd_lsp.commands.ngrams import help_example, load_tokens, open_registry
from spd_lsp.models.hub import absolute_model_name
from spd_lsp.ngrams.background_process import end_with_input
from spd_lsp.output.progress import progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.build import BuildSummary
    from ngram_builders.registry.ngram_table import NgramTable


@click.command("rebuild", epilog=help_example("rebuild --model Qwen/Qwen2.5-Coder-0.5B"))
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--model", "reader", metavar="M", help="Model that will use them (default: each table's own).")
@click.option("--fresh", is_flag=True, help="Ignore the caches of earlier builds.")
@click.option("--end-with-input", "ends_with_input", is_flag=True, hidden=True, help="End with standard input.")
@with_settings
def rebuild(
    settings: Settings, names: tuple[str, ...], reader: str | None, fresh: bool, ends_with_input: bool
) -> None:
    """Rebuild tables from their repositories.

    Each table keeps the options of its last build. Without NAME, the command rebuilds the tables that the model
    cannot use: broken tables, old tables, and tables for another tokenizer. It keeps a table that serves another
    model and builds a new one beside it.
    """
    from ngram_builders.registry.ngram_table import covering_tables

    if ends_with_input:
        end_with_input()
    registry = open_registry(settings)
    if names:
        tables = [registry.find(name) for name in dict.fromkeys(names)]
    else:
        known = registry.tables()
        fitting = [table for table in known if reader and not _is_unfit(table, reader)]
        tables = [
            table
            for table in known
            if _is_unfit(table, reader) and (table.fault or not covering_tables(fitting, table))
        ]
    if not tables:
        click.echo(f"nothing to rebuild: every table can serve {reader or 'the model that it was built for'}")
    failed = 0
    rebuilt: list[NgramTable] = []
    for table in tables:
        beside = reader is not None and not names and _serves_another_model(table, reader)
        if beside and covering_tables(rebuilt, table):
            continue
        try:
            summary = _rebuild(settings, table, reader, beside=beside, fresh=fresh)
            rebuilt.append(registry.find(summary.name))
            if beside:
                registry.assign_like(table.name, summary.name)
            click.echo(describe_build(summary))
        except UserError as error:
            failed += 1
            click.echo(f"{table.name} was not rebuilt: {error}", err=True)
    if failed:
        raise UserError(f"{failed} of {len(tables)} tables could not be rebuilt, see above")


def _is_unfit(table: NgramTable, model: str | None) -> bool:
    """Whether a table cannot serve a model; by default the one that it was built for."""
    if table.fault:
        return True
    if model is None and not _has_sources(table):
        return False
    try:
        return table.fingerprint != _load_tokens(model or table.model or "starter").fingerprint
    except UserError:
        if model is not None:
            raise
        return True  # its model is gone; building it says so


def _serves_another_model(table: NgramTable, model: str) -> bool:
    """Whether a sound table was built for another model, which would lose it."""
    from ngram_builders.registry.ngram_table import is_for_another_model

    if table.fault:
        return False
    return is_for_another_model(table, absolute_model_name(model), _load_tokens(model).fingerprint)


def _has_sources(table: NgramTable) -> bool:
    """Whether a table was built here from repositories, not imported, nor from a corpus in tasks."""
    return not table.is_imported and "corpus" not in table.recipe


_load_tokens = cache(load_tokens)


def _rebuild(
    settings: Settings, table: NgramTable, model: str | None, *, beside: bool, fresh: bool
) -> BuildSummary:
    """Build one table from its recorded roots and recipe, in its place or beside it."""
    _check_sources(table)
    settings = dataclasses.replace(settings, model=model or table.model or "starter")
    name, selection = None if beside else table.name, Selection.of(table.recipe)
    with progress() as report:
        return count(settings, table.roots, report, name=name, fresh=fresh, selection=selection)


def _check_sources(table: NgramTable) -> None:
    if corpora := table.recipe.get("corpus"):
        given = shlex.join(option for address in corpora for option in ("--corpus", str(address)))
        model = shlex.quote(table.model or "starter")
        raise UserError(
            f"it was built from a corpus; run: spd-lsp build-ngrams {given} --name {table.name} --model {model}"
        )
    if not _has_sources(table):
        raise UserError(
            f"it was imported from {table.recipe['imported']}, without its sources; import one that was built "
            f"with this model, or run: spd-lsp ngrams remove {table.name}"
        )
    if not table.roots:
        raise UserError(table.fault or f"no repository is recorded for {table.name}; build it with build-ngrams")
    if gone := missing_sources(table):
        raise UserError(
            f"its repository is no longer at {', '.join(map(str, gone))}; run: spd-lsp build-ngrams REPO --name "
            f"{table.name} with its new place, or spd-lsp ngrams remove {table.name}"
        )
