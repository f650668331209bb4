"""The commands about n-gram tables: who serves what, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.cleanup import Leftover
    from ngram_builders.registry.domains import Domain
    from ngram_builders.registry.registry import Registry

_FILE_ARGUMENT = click.Path(path_type=Path)


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


@ngrams.command("use", epilog=help_example("use team=0.3 --language python"))
@click.argument("names", metavar="NAME[=WEIGHT]...", nargs=-1)
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Serve the files in this folder, and with no other tables (default: the current folder).",
)
@click.option("--language", metavar="L", help="Serve this language's files, together with their own tables.")
@click.pass_obj
def use_domains(settings: Settings, names: tuple[str, ...], workspace: Path | None, language: str | None) -> None:
    """Choose the tables that serve a workspace or a language; no names undo the choice.

    A file is served by the tables chosen for the innermost workspace around it, and by no others. Without such a
    choice it is served by the tables built from the folders around it, and by those chosen for its language.
    """
    from spd_lsp.commands.ngram_listing import language_line, workspace_line

    if workspace and language:
        raise UserError("give --workspace or --language, not both; run the command once for each")
    registry = open_registry(settings)
    assignment = tuple(_parse_weight(registry, name) for name in names)
    if language:
        registry.assign_language(language, assignment)
        click.echo(language_line(language, assignment))
    else:
        folder = (workspace or Path()).resolve()
        registry.assign_workspace(folder, assignment)
        click.echo(workspace_line(folder, assignment))
    for name, _ in assignment:
        _warn_if_useless(registry.find(name), language)


def _parse_weight(registry: Registry, text: str) -> tuple[str, float]:
    """Example: `mine=0.5` -> ("mine", 0.5); `mine` has its own weight: 0.7, or 0.3 if it was imported."""
    name, equals, weight = text.partition("=")
    if not equals:
        return name, registry.find(name).weight
    try:
        value = float(weight)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UserError(f"invalid {text!r}: give NAME=WEIGHT with a weight above 0 and at most 1")
    return name, value


def _warn_if_useless(domain: Domain, language: str | None) -> None:
    """Say what keeps a table from serving what it was chosen for."""
    from ngram_builders.sources.language_ids import related_languages

    if domain.fault:
        click.echo(f"{domain.name} serves nothing until it is repaired: {domain.fault}", err=True)
    elif language and related_languages(language).isdisjoint(domain.languages):
        languages = ", ".join(domain.languages)
        click.echo(f"{domain.name} serves no {language} files: it was built from {languages}", err=True)


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
    """Delete tables; the repositories they were built from are not touched."""
    registry = open_registry(settings)
    for name in names:
        registry.find(name)
    for name in dict.fromkeys(names):
        registry.remove(name)
        click.echo(f"removed {name}")


@ngrams.command("export", epilog=help_example("export my-repo team.ngt"))
@click.argument("name")
@click.argument("file", type=_FILE_ARGUMENT)
@click.option("--replace", is_flag=True, help="Overwrite an existing file.")
@click.option("--files", "list_files", is_flag=True, help="List the files whose code it counts.")
@click.pass_obj
def export_domain(settings: Settings, name: str, file: Path, replace: bool, list_files: bool) -> None:
    """Write a table to one file, to give away; in a folder it is called NAME.ngt.

    The file counts the tokens of the code. It contains no paths and no lines with secrets, but the code can be
    reconstructed from it: give it only to people who may read that code.
    """
    from ngram_builders.registry.transfer import export_table
    from spd_lsp.commands.ngram_listing import megabytes

    registry = open_registry(settings)
    target = export_table(registry, name, file, replace=replace)
    click.echo(f"exported {name} to {target} ({megabytes(target.stat().st_size)})")
    for line in _describe_exposure(registry.find(name), list_files):
        click.echo(line)


def _describe_exposure(domain: Domain, list_files: bool) -> Iterator[str]:
    """What can be read from an exported table."""
    from ngram_builders.counting.token_cache import read_indexed_files
    from ngram_builders.sources.discovery import display_path

    contents = read_indexed_files(domain.path.parent, domain.path.name, domain.fingerprint)
    least = domain.recipe.get("min_files") or 1
    files = "1 file" if domain.files == 1 else f"{domain.files:,} files"
    code = f"what at least {least} of {files} have in common" if least > 1 else f"most of the code of {files}"
    hint = "" if list_files or contents is None else "; to list them, add --files"
    yield f"anyone who has it can reconstruct {code}{hint}"
    if contents is not None and contents.is_old:
        yield f"it was built before secrets were masked as now; first run: spd-lsp ngrams rebuild {domain.name}"
    if list_files:
        yield from (sorted(map(display_path, contents.files)) if contents else ["its files are not known here"])


@ngrams.command("import", epilog=help_example("import team.ngt --domain team"))
@click.argument("file", type=_FILE_ARGUMENT)
@click.option("--domain", metavar="NAME", help="Name of the table (default: the file's name).")
@click.option("--model", metavar="M", help="Refuse a table that was not built with this model's tokenizer.")
@click.option("--replace", is_flag=True, help="Replace an existing table of that name.")
@click.pass_obj
def import_domain(settings: Settings, file: Path, domain: str | None, model: str | None, replace: bool) -> None:
    """Install a table from a file that `export` wrote; its data is verified."""
    from ngram_builders.registry.transfer import import_table
    from spd_lsp.commands.ngram_listing import details

    fingerprint, recipe = (_fingerprint_of(model), {"model": lasting(model)}) if model else (None, {})
    registry = open_registry(settings)
    imported = import_table(registry, file, domain, fingerprint=fingerprint, replace=replace, recipe=recipe)
    click.echo(details(imported, registry.assignments()))
    if not model and imported.fingerprint != _fingerprint_of(settings.model):
        click.echo(f"{settings.model} cannot use it: it was built with another model's tokenizer", err=True)


def _fingerprint_of(model: str) -> str:
    """What identifies a model's tokenizer."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    return ModelTokenizer(locate(model)).fingerprint


@ngrams.command("prune", epilog=help_example("prune --gone --dry-run"))
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option("--gone", is_flag=True, help="Also delete tables whose repositories are all gone.")
@click.pass_obj
def prune(settings: Settings, dry_run: bool, gone: bool) -> None:
    """Delete what is not needed: unfinished files, replaced tables, token caches without a table.

    A table whose index cannot be read is moved aside, not deleted.
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
    """What was done with a leftover, and why."""
    from spd_lsp.commands.ngram_listing import megabytes

    action = would + ("moved aside" if leftover.aside else "deleted")
    kept = f"; kept in {leftover.aside}" if leftover.aside else ""
    place = leftover.path.relative_to(folder)
    return f"{action:20} {megabytes(leftover.size):>12}  {place}: {leftover.reason}{kept}"
