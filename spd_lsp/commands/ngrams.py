"""The commands about n-gram tables: who serves what, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.cleanup import Leftover
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
def list_domains(settings: Settings, print_json: bool) -> None:
    """List the tables, and the choices made with `use`."""
    from ngram_builders.registry.folder_choices import read_folder_choices
    from spd_lsp.commands.ngram_listing import assignment_lines, domain_as_json, excluded_lines, list_line

    registry = open_registry(settings)
    problem, domains, assignments = registry.fault(), registry.domains(), registry.assignments()
    if print_json:
        kinds = {
            "workspaces": assignments.workspaces,
            "languages": assignments.languages,
            "projects": assignments.dependencies,
            "folders": assignments.additions,
        }
        assigned = {kind: {user: dict(given) for user, given in users.items()} for kind, users in kinds.items()}
        listed = [domain_as_json(domain, assignments) for domain in domains]
        click.echo(json.dumps({"domains": listed, **assigned, "problem": problem}))
    else:
        lines = [list_line(domain) for domain in domains]
        if not lines and not problem:
            lines = ["no n-gram tables yet; run: spd-lsp build-ngrams REPO"]
        excluded = excluded_lines(read_folder_choices(registry.folder))
        for line in (*lines, *_built_in_lines(settings), *assignment_lines(assignments), *excluded):
            click.echo(line)
    if problem:
        raise UserError(problem)


def _built_in_lines(settings: Settings) -> Iterator[str]:
    """A line for each table that comes with the model."""
    from ngram_builders.table.reader import Table
    from spd_lsp.commands.ngram_listing import built_in_line
    from spd_lsp.models.checkpoint.hub import built_in_domains, locate

    for language, path in built_in_domains(locate(settings.model)).items():
        yield built_in_line(language, Table.open(path).summary)


@ngrams.command("show", epilog=help_example("show my-repo"))
@click.argument("name")
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object; sizes in bytes.")
@click.pass_obj
def show_domain(settings: Settings, name: str, print_json: bool) -> None:
    """Show everything that is known about a table."""
    from spd_lsp.commands.ngram_listing import details, domain_as_json

    registry = open_registry(settings)
    domain, assignments = registry.find(name), registry.assignments()
    if print_json:
        click.echo(json.dumps(domain_as_json(domain, assignments)))
    if domain.fault:
        raise UserError(f"n-gram table {name} is broken: {domain.fault}")
    if not print_json:
        click.echo(details(domain, assignments))


@ngrams.command("rename", epilog=help_example("rename repo my-repo"))
@click.argument("old")
@click.argument("new")
@click.pass_obj
def rename_domain(settings: Settings, old: str, new: str) -> None:
    """Rename a table; the choices made for it follow."""
    open_registry(settings).rename(old, new)
    click.echo(f"renamed {old} to {new}")


@ngrams.command("remove", epilog=help_example("remove old-repo older-repo"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_obj
def remove_domains(settings: Settings, names: tuple[str, ...]) -> None:
    """Delete tables; their repositories are not touched."""
    registry = open_registry(settings)
    for name in names:
        registry.find(name)
    for name in dict.fromkeys(names):
        registry.remove(name)
        click.echo(f"removed {name}")


@ngrams.command("prune", epilog=help_example("prune --gone --dry-run"))
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option("--gone", is_flag=True, help="Also delete tables whose repositories are all gone.")
@click.pass_obj
def prune(settings: Settings, dry_run: bool, gone: bool) -> None:
    """Delete what is not needed any more.

    That is unfinished files, replaced tables, and token caches without a table. A table whose index cannot be read
    is moved aside, not deleted.
    """
    from spd_lsp.commands.ngram_listing import megabytes

    registry = open_registry(settings)
    if problem := registry.fault():
        click.echo(problem, err=True)
    done, failed = registry.prune(gone=gone, dry_run=dry_run)
    for leftover in done:
        click.echo(_describe_leftover(leftover, registry.folder, "would be " if dry_run else ""))
    freed = sum(leftover.size for leftover in done if not leftover.aside)
    click.echo(f"{'would free' if dry_run else 'freed'} {megabytes(freed)}" if done else "nothing to prune")
    if failed:
        paths = ", ".join(str(leftover.path) for leftover in failed)
        raise UserError(f"could not delete {paths}; close the editors that use them and try again")


def _describe_leftover(leftover: Leftover, folder: Path, would: str) -> str:
    from spd_lsp.commands.ngram_listing import megabytes

    action = would + ("moved aside" if leftover.aside else "deleted")
    kept = f"; kept in {leftover.aside}" if leftover.aside else ""
    place = leftover.path.relative_to(folder)
    return f"{action:20} {megabytes(leftover.size):>12}  {place}: {leftover.reason}{kept}"
