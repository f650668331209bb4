"""The commands about n-gram tables: who serves what, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.consent import ask
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.registry import Registry


def open_registry(settings: Settings) -> Registry:
    """The registry in the folder that the settings name."""
    from ngram_builders.registry.registry import Registry

    return Registry(Path(settings.data_dir) if settings.data_dir else None)


def help_example(command: str) -> str:
    """The last line of a command's help."""
    return f"\b\nExample: spd-lsp ngrams {command}"


@click.group()
def ngrams() -> None:
    """Manage n-gram tables; a running server notices every change."""


@ngrams.command("list", epilog=help_example("list --json"))
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object; sizes in bytes.")
@click.pass_obj
def list_tables(settings: Settings, print_json: bool) -> None:
    """List the tables, and the choices made with `use`."""
    from ngram_builders.registry.folder_choices import FolderChoice, read_folder_choices
    from spd_lsp.commands.ngram_listing import assignment_lines, list_line, table_as_json

    registry = open_registry(settings)
    problem = registry.fault()
    tables = registry.tables()
    assignments = registry.assignments()
    if print_json:
        choices = assignments.by_kind().items()
        chosen = {kind: {user: dict(given) for user, given in users.items()} for kind, users in choices}
        described = [table_as_json(table, assignments) for table in tables]
        click.echo(json.dumps({"tables": described, **chosen, "problem": problem}, default=str))
    else:
        lines = [list_line(table) for table in tables]
        if not lines and not problem:
            lines = ["no n-gram tables yet; run: spd-lsp build-ngrams REPO"]
        for line in (*lines, *_built_in_lines(settings), *assignment_lines(assignments)):
            click.echo(line)
        for folder, choice in sorted(read_folder_choices(registry.folder).items()):
            if choice is FolderChoice.EXCLUDED:
                click.echo(f"{folder} is not indexed when an editor opens it: you excluded it")
    if problem:
        raise UserError(problem)


def _built_in_lines(settings: Settings) -> Iterator[str]:
    """A line for each table that comes with the model."""
    from ngram_builders.table.reader import Table
    from spd_lsp.commands.ngram_listing import built_in_line
    from spd_lsp.models.checkpoint.hub import built_in_tables, locate

    for language, path in built_in_tables(locate(settings.model)).items():
        yield built_in_line(language, Table.open(path).summary)


@ngrams.command("show", epilog=help_example("show my-repo"))
@click.argument("name")
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object; sizes in bytes.")
@click.pass_obj
def show_table(settings: Settings, name: str, print_json: bool) -> None:
    """Show everything that is known about a table."""
    from spd_lsp.commands.ngram_listing import details, table_as_json

    registry = open_registry(settings)
    table = registry.find(name)
    assignments = registry.assignments()
    if print_json:
        click.echo(json.dumps(table_as_json(table, assignments), default=str))
    if table.fault:
        raise UserError(f"n-gram table {name} is broken: {table.fault}")
    if not print_json:
        click.echo(details(table, assignments))


@ngrams.command("remove", epilog=help_example("remove old-repo older-repo"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Remove also tables that you chose with `use`, without asking.")
@click.pass_obj
def remove_tables(settings: Settings, names: tuple[str, ...], yes: bool) -> None:
    """Delete tables; their repositories are not touched."""
    from spd_lsp.commands.ngram_listing import assignment_lines

    registry = open_registry(settings)
    for name in names:
        registry.find(name)
    chosen = replace(registry.assignments().only(names), dependencies={})
    if not yes and (lines := "; ".join(assignment_lines(chosen))):
        remedy = "to remove them all the same, add --yes"
        ask(f"what you chose would be lost: {lines}", f"Remove {', '.join(names)}?", remedy)
    for name in dict.fromkeys(names):
        registry.remove(name)
        click.echo(f"removed {name}")


@ngrams.command("prune", epilog=help_example("prune --gone --dry-run"))
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option("--gone", is_flag=True, help="Also delete tables whose repositories are all gone.")
@click.pass_obj
def prune(settings: Settings, dry_run: bool, gone: bool) -> None:
    """Delete what is no longer needed.

    That is unfinished files, replaced tables, and token caches without a table.
    """
    from spd_lsp.commands.ngram_listing import megabytes

    registry = open_registry(settings)
    if problem := registry.fault():
        click.echo(problem, err=True)
    done, failed = registry.prune(gone=gone, dry_run=dry_run)
    for one in done:
        path = one.path.relative_to(registry.folder)
        action = "would be deleted" if dry_run else "deleted"
        click.echo(f"{action:16} {megabytes(one.size):>12}  {path}: {one.reason}")
    freed = sum(leftover.size for leftover in done)
    click.echo(f"{'would free' if dry_run else 'freed'} {megabytes(freed)}" if done else "nothing to prune")
    if failed:
        paths = ", ".join(str(leftover.path) for leftover in failed)
        raise UserError(f"could not delete {paths}; close the editors that use them and try again")
