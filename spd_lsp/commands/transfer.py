"""The commands `ngrams export` and `import`: tables for other people, and theirs."""

from __future__ import annotations

from pathlib import Path

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import print_status, with_settings
from spd_lsp.commands.ngram_listing import details, megabytes
from spd_lsp.commands.ngrams import help_example, load_tokens, open_registry
from spd_lsp.models.hub import absolute_model_name
from spd_lsp.output.progress import format_count
from spd_lsp.settings import Settings

_PATH = click.Path(path_type=Path)


@click.command("export", epilog=help_example("export my-repo team.ngt"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.argument("target", metavar="FILE | DIR", type=_PATH)
@click.option("--replace", is_flag=True, help="Overwrite existing files.")
@with_settings
def export_tables(settings: Settings, names: tuple[str, ...], target: Path, replace: bool) -> None:
    """Write tables to files that you can share.

    A file holds the code as tokens. It names the model and the folders that the table was built from. It contains
    no paths and no masked secrets. Share it only with people who may read the code. In a folder, each file is
    called NAME.ngt.
    """
    from ngram_builders.registry.transfer import export_table
    from ngram_builders.token_cache import read_indexed_files

    if len(names) > 1 and not target.is_dir():
        raise UserError(f"{target} is not a folder, and several tables need one; create it, or name another")
    registry = open_registry(settings)
    tables = [registry.find(name) for name in dict.fromkeys(names)]
    for table in tables:
        for file in export_table(registry, table.name, target, replace=replace):
            click.echo(f"exported {table.name} to {file} ({megabytes(file.stat().st_size)})")
        click.echo(f"anyone who has it can read the code of {format_count(table.files, 'file')}")
        contents = read_indexed_files(table.paths, table.fingerprint)
        if contents is not None and contents.is_old:
            click.echo(f"its secrets were masked by older rules; first run: spd-lsp ngrams rebuild {table.name}")


@click.command("import", epilog=help_example("import team.ngt --name team"))
@click.argument("file", type=_PATH)
@click.option("--name", metavar="NAME", help="Name of the table (default: the file's name).")
@click.option("--model", "reader", metavar="M", help="Refuse a table for another tokenizer than this model's.")
@click.option("--replace", is_flag=True, help="Replace an existing table of that name.")
@with_settings
def import_file(settings: Settings, file: Path, name: str | None, reader: str | None, replace: bool) -> None:
    """Install a table from a file that `export` wrote.

    The command verifies the file first.
    """
    from ngram_builders.registry.transfer import import_table

    wanted = load_tokens(reader).fingerprint if reader else None
    registry = open_registry(settings)
    recipe = {"model": absolute_model_name(reader)} if reader else {}
    imported = import_table(registry, file, name, fingerprint=wanted, replace=replace, recipe=recipe)
    click.echo(details(imported, registry.assignments()))
    if not reader and imported.fingerprint != load_tokens(settings.model).fingerprint:
        print_status(f"{settings.model} cannot use it: it was built with another model's tokenizer")
