"""The commands `ngrams export`, `import`, `push` and `pull`: tables for other people, and theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.ngram_listing import details, megabytes
from spd_lsp.commands.ngrams import help_example, open_registry
from spd_lsp.models.checkpoint.hub import absolute_model_name
from spd_lsp.output.progress import format_count
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.ngram_table import NgramTable

_PATH = click.Path(path_type=Path)


@click.command("export", epilog=help_example("export my-repo team.ngt"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.argument("target", metavar="FILE | DIR", type=_PATH)
@click.option("--replace", is_flag=True, help="Overwrite existing files.")
@click.option("--files", "list_files", is_flag=True, help="List the files whose code it counts.")
@click.pass_obj
def export_tables(
    settings: Settings, names: tuple[str, ...], target: Path, replace: bool, list_files: bool
) -> None:
    """Write tables to files that you can share.

    In a folder, each file is called NAME.ngt. It holds counts of the code's tokens, and says which model and
    folders (by name) they are from. It contains no paths and no lines with secrets, but the code can be
    reconstructed from it: share it only with people who may read that code.
    """
    from ngram_builders.registry.transfer import export_table

    if len(names) > 1 and not target.is_dir():
        raise UserError(f"{target} is not a folder, and several tables need one; create it, or name another")
    registry = open_registry(settings)
    tables = [registry.find(name) for name in dict.fromkeys(names)]
    for table in tables:
        file = export_table(registry, table.name, target, replace=replace)
        click.echo(f"exported {table.name} to {file} ({megabytes(file.stat().st_size)})")
        for line in _describe_exposure(table, list_files):
            click.echo(line)


def _describe_exposure(table: NgramTable, list_files: bool) -> Iterator[str]:
    """What can be read from an exported table."""
    from ngram_builders.counting.token_cache import read_indexed_files
    from ngram_builders.sources.discovery import display_path

    contents = read_indexed_files(table.path.parent, table.layers, table.fingerprint)
    least = table.recipe.get("min_files") or 1
    files = format_count(table.files, "file")
    code = f"what at least {least} of {files} have in common" if least > 1 else f"most of the code of {files}"
    hint = "" if list_files or contents is None else "; to list them, add --files"
    yield f"anyone who has it can reconstruct {code}{hint}"
    if contents is not None and contents.is_old:
        yield f"it was built with older rules for masking secrets; first run: spd-lsp ngrams rebuild {table.name}"
    if list_files:
        yield from (sorted(map(display_path, contents.files)) if contents else ["its files are not known here"])


@click.command("import", epilog=help_example("import team.ngt --name team"))
@click.argument("file", type=_PATH)
@click.option("--name", metavar="NAME", help="Name of the table (default: the file's name).")
@click.option("--model", metavar="M", help="Refuse a table that was not built with this model's tokenizer.")
@click.option("--replace", is_flag=True, help="Replace an existing table of that name.")
@click.pass_obj
def import_file(settings: Settings, file: Path, name: str | None, model: str | None, replace: bool) -> None:
    """Install a table from a file that `export` wrote.

    Its data is verified.
    """
    from ngram_builders.registry.transfer import import_table

    fingerprint, recipe = (_fingerprint_of(model), {"model": absolute_model_name(model)}) if model else (None, {})
    registry = open_registry(settings)
    imported = import_table(registry, file, name, fingerprint=fingerprint, replace=replace, recipe=recipe)
    click.echo(details(imported, registry.assignments()))
    if not model:
        _warn_of_model(settings, imported)


def _fingerprint_of(model: str) -> str:
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    return ModelTokenizer(locate(model)).fingerprint


@click.command("push", epilog=help_example("push my-repo /net/team/ngrams"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.argument("address", metavar="ADDRESS")
@click.option("--replace", is_flag=True, help="Replace another table of that name there.")
@click.pass_obj
def push_tables(settings: Settings, names: tuple[str, ...], address: str, replace: bool) -> None:
    """Copy tables to a folder from which others can pull them.

    ADDRESS is a folder, or one that fsspec knows such as s3://bucket/ngrams, if its package (s3fs) is installed.
    The same is copied as by `export`: share tables only with people who may read the code.
    """
    from ngram_builders.registry.sharing import push

    registry = open_registry(settings)
    for table in [registry.find(name) for name in dict.fromkeys(names)]:
        pushed = push(registry, table.name, address, replace=replace)
        done = f"pushed {table.name} ({megabytes(pushed.size)})" if pushed else f"{table.name} is there already"
        click.echo(f"{done}: {address}")
        for line in _describe_exposure(table, False) if pushed else ():
            click.echo(line)


@click.command("pull", epilog=help_example("pull /net/team/ngrams"))
@click.argument("address", metavar="[ADDRESS]", required=False)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--replace", is_flag=True, help="Replace tables of the same names that came from elsewhere.")
@click.pass_obj
def pull_tables(settings: Settings, address: str | None, names: tuple[str, ...], replace: bool) -> None:
    """Install your team's tables, or update them.

    Their data is verified. Without a NAME, all tables at the ADDRESS are installed; without an ADDRESS, all tables
    that were pulled before are updated, each from its own address.
    """
    from ngram_builders.registry.sharing import list_pulled, list_shared, pull

    registry = open_registry(settings)
    if address is None:
        wanted = list_pulled(registry)
    else:
        wanted = [(name, address) for name in dict.fromkeys(names or list_shared(address))]
    if not wanted:
        click.echo(f"no tables in {address}" if address else "no table was pulled before; give an ADDRESS")
    failed = 0
    for name, place in wanted:
        try:
            table = pull(registry, name, place, replace=replace)
            click.echo(_describe_pulled(table) if table else f"{name} is up to date")
            if table:
                _warn_of_model(settings, table)
        except UserError as error:
            failed += 1
            click.echo(f"{name} was not pulled: {error}", err=True)
    if failed:
        raise UserError(f"{failed} of {len(wanted)} tables could not be pulled, see above")


def _describe_pulled(table: NgramTable) -> str:
    from ngram_builders.registry.origin import read_origin

    source = read_origin(table.recipe).sources
    facts = f"pulled {table.name}: {table.tokens:,} tokens{f' from {source}' if source else ''}"
    return f"{facts}; to use it here: spd-lsp ngrams use {table.name} --add"


def _warn_of_model(settings: Settings, table: NgramTable) -> None:
    """Say if the default model has another tokenizer."""
    if table.fingerprint != _fingerprint_of(settings.model):
        click.echo(f"{settings.model} cannot use it: it was built with another model's tokenizer", err=True)
