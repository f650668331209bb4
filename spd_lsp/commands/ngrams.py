"""The commands `ngrams ...`: list, choose, rebuild, share and remove n-gram tables."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import load_tokens, open_registry, print_status, with_settings
from spd_lsp.commands.build_ngrams import build_table, describe_build
from spd_lsp.models.hub import absolute_model_name
from spd_lsp.ngrams.background_process import end_with_input
from spd_lsp.output.progress import format_count, progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.assignments import Assignment, Assignments
    from ngram_builders.registry.ngram_table import NgramTable
    from ngram_builders.registry.registry import Registry

_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@click.group()
def ngrams() -> None:
    """Manage n-gram tables.

    A running server notices every change.
    """


# --- What there is -----------------------------------------------------------------------------------------------


@ngrams.command("list", epilog="\b\nExample: spd-lsp ngrams list --json")
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object with sizes in bytes.")
@with_settings
def list_tables(settings: Settings, print_json: bool) -> None:
    """List all tables and the choices made with `use`."""
    from ngram_builders.registry.ngram_table import model_label
    from ngram_builders.registry.registry import FolderChoice

    registry = open_registry(settings)
    problem = registry.fault()
    tables = registry.tables()
    assignments = registry.assignments()
    if print_json:
        listed = {
            "tables": list(map(dataclasses.asdict, tables)),
            **dataclasses.asdict(assignments),
            "problem": problem,
        }
        click.echo(json.dumps(listed, default=str))
    else:
        for table in tables:
            size = f"{table.tokens:>12,} tokens {megabytes(table.size):>12}"
            built = time.strftime("%Y-%m-%d %H:%M", time.localtime(table.origin.get("built") or table.built))
            facts = f"{size}  {built}  {model_label(table):12} {_origin(table)}"
            click.echo(f"{table.name:24} {f'broken: {table.fault}' if table.fault else facts}")
        if not tables and not problem:
            click.echo("no n-gram tables yet; run: spd-lsp build-ngrams REPO")
        for line in _assignment_lines(assignments):
            click.echo(line)
        for folder, choice in sorted(registry.folder_choices().items()):
            if choice is FolderChoice.EXCLUDED:
                click.echo(f"{folder} is not indexed when an editor opens it: you excluded it")
    if problem:
        raise UserError(problem)


def megabytes(size: int) -> str:
    """Example: 3145728 -> 3.0 MiB."""
    return f"{size / 2**20:.1f} MiB"


def missing_sources(table: NgramTable) -> list[Path]:
    """The folders of a table that no longer exist."""
    return [root for root in table.roots if not root.exists()]


def _origin(table: NgramTable) -> str:
    """The folders or corpora that a table was built from, or the file that it was imported from."""
    if table.is_imported:
        source = table.origin.get("sources")
        return f"imported from {table.recipe['imported']}" + (f": {source}" if source else "")
    missing = missing_sources(table)
    roots = (f"{root} (gone)" if root in missing else str(root) for root in table.roots)
    return ", ".join([*roots, *table.recipe.get("corpus", ())]) or "no sources"


# --- Which files use a table -------------------------------------------------------------------------------------


@ngrams.command("use", epilog="\b\nExample: spd-lsp ngrams use my-repo team=0.5")
@click.argument("names", metavar="NAME[=WEIGHT]...", nargs=-1, required=True)
@click.option("--workspace", type=_FOLDER, help="Choose tables for this folder (default: the current folder).")
@click.option("--language", metavar="L", help="Add tables for files of this language, such as python.")
@with_settings
def use(settings: Settings, names: tuple[str, ...], workspace: Path | None, language: str | None) -> None:
    """Choose the tables for a folder or a language.

    A file uses only the tables chosen for the innermost folder around it. Add the folder's own table to keep it.
    Without a choice for a folder, a file uses the tables built from the folders around it and the tables chosen
    for its language.

    WEIGHT, above 0 and at most 1, sets how strongly a table influences completions. The default is 0.7 in folders
    that the table was built from and 0.3 elsewhere. A new choice replaces the earlier one. `ngrams unuse` undoes
    it.
    """
    _choose(open_registry(settings), names, workspace, language)


@ngrams.command("unuse", epilog="\b\nExample: spd-lsp ngrams unuse --language python")
@click.option("--workspace", type=_FOLDER, help="Undo the choice for this folder (default: the current folder).")
@click.option("--language", metavar="L", help="Undo the choice for this language.")
@with_settings
def unuse(settings: Settings, workspace: Path | None, language: str | None) -> None:
    """Undo a choice of tables for a folder or a language.

    The tables built from the folder apply again. No table is deleted.
    """
    _choose(open_registry(settings), (), workspace, language)


def _choose(registry: Registry, names: Sequence[str], workspace: Path | None, language: str | None) -> None:
    """Choose tables, or none, for a language or a folder, and print what changed."""
    if workspace and language:
        raise UserError("give --workspace or --language, not both; run the command once for each")
    chosen = dict(_parse_weight(registry, name) for name in names)
    if language:
        registry.assign_language(language, list(chosen.items()))
        also = f"also served by {_weights(chosen)}" if chosen else "served by the tables built from their folders"
        click.echo(f"{language} files are {also}")
        return
    folder = (workspace or Path()).resolve()
    before = [table.name for table, _ in registry.tables_for(folder / "file", None)]
    registry.assign_workspace(folder, list(chosen.items()))
    click.echo(f"{folder} is served by {_weights(chosen) or 'the tables built from it'}")
    if chosen and (dropped := [name for name in before if name not in chosen]):
        click.echo(f"no longer by {', '.join(dropped)}")


def _parse_weight(registry: Registry, text: str) -> tuple[str, float | None]:
    """Example: `mine=0.5` -> ("mine", 0.5); `mine` -> ("mine", None)."""
    name, equals, weight = text.partition("=")
    if not equals:
        return registry.find(name).name, None
    with suppress(ValueError):
        if 0 < float(weight) <= 1:
            return name, float(weight)
    raise UserError(f"invalid {text!r}: give NAME=WEIGHT with a weight above 0 and at most 1")


def _assignment_lines(assignments: Assignments) -> Iterator[str]:
    """Yield a line for each folder and language that tables were chosen for."""
    for folder, chosen in assignments.workspaces.items():
        if chosen:
            yield f"{folder} is served by {_weights(chosen)}"
    for language, chosen in assignments.languages.items():
        if chosen:
            yield f"{language} files are also served by {_weights(chosen)}"


def _weights(assignment: Assignment) -> str:
    """Example: {"mine": 0.7, "team": None} -> mine (0.7), team (default weight)."""
    return ", ".join(
        f"{name} ({'default weight' if weight is None else format(weight, 'g')})"
        for name, weight in assignment.items()
    )


# --- Tables made anew, given away and removed --------------------------------------------------------------------


@ngrams.command("rebuild", epilog="\b\nExample: spd-lsp ngrams rebuild --model Qwen/Qwen2.5-Coder-0.5B")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--model", "reader", metavar="M", help="Model that will use them (default: each table's own).")
@click.option("--end-with-input", "ends_with_input", is_flag=True, hidden=True, help="End with standard input.")
@with_settings
def rebuild(settings: Settings, names: tuple[str, ...], reader: str | None, ends_with_input: bool) -> None:
    """Rebuild tables from their repositories.

    Each table keeps the options of its last build. Without NAME, the command rebuilds all tables that were built
    from repositories. With --model, it keeps the tables of other models and builds new ones beside them, unless
    you name them.
    """
    from ngram_builders.sources.rules.selection import Selection

    if ends_with_input:
        end_with_input()
    registry = open_registry(settings)
    tables = [registry.find(name) for name in dict.fromkeys(names)]
    tables = tables or [table for table in registry.tables() if table.roots]
    if not tables:
        click.echo("no table was built from a repository; run: spd-lsp build-ngrams REPO")
    failed = 0
    for table in tables:
        model = reader or table.model or "starter"
        is_beside = not names and table.model not in ("", absolute_model_name(model))
        try:
            if not table.roots:
                remedy = f"build or import it again, or run: spd-lsp ngrams remove {table.name}"
                raise UserError(table.fault or f"it was not built from repositories; {remedy}")
            with progress() as report:
                for_model, selection = dataclasses.replace(settings, model=model), Selection.of(table.recipe)
                name = None if is_beside else table.name
                summary = build_table(for_model, table.roots, report, selection, name=name)
            click.echo(describe_build(summary))
        except UserError as error:
            failed += 1
            print_status(f"{table.name} was not rebuilt: {error}")
    if failed:
        raise UserError(f"{failed} of {len(tables)} tables could not be rebuilt, see above")


@ngrams.command("export", epilog="\b\nExample: spd-lsp ngrams export my-repo team.ngt")
@click.argument("name")
@click.argument("target", metavar="FILE | DIR", type=_PATH)
@click.option("--replace", is_flag=True, help="Overwrite existing files.")
@with_settings
def export(settings: Settings, name: str, target: Path, replace: bool) -> None:
    """Write a table to a file that you can share.

    A file holds the code as tokens. It names the model and the folders that the table was built from. It contains
    no paths and no masked secrets. Share it only with people who may read the code. In a folder, the file is
    called NAME.ngt.
    """
    from ngram_builders.registry.registry import export_table
    from ngram_builders.token_cache import read_indexed_files

    registry = open_registry(settings)
    table = registry.find(name)
    for file in export_table(registry, name, target, replace=replace):
        click.echo(f"exported {name} to {file} ({megabytes(file.stat().st_size)})")
    click.echo(f"anyone who has it can read the code of {format_count(table.files, 'file')}")
    contents = read_indexed_files(table.paths, table.fingerprint)
    if contents is not None and contents.is_old:
        click.echo(f"its secrets were masked by older rules; first run: spd-lsp ngrams rebuild {name}")


@ngrams.command("import", epilog="\b\nExample: spd-lsp ngrams import team.ngt --name team")
@click.argument("file", type=_PATH)
@click.option("--name", metavar="NAME", help="Name of the table (default: the file's name).")
@click.option("--replace", is_flag=True, help="Replace an existing table of that name.")
@with_settings
def import_file(settings: Settings, file: Path, name: str | None, replace: bool) -> None:
    """Install a table from a file that `export` wrote.

    The command verifies the file first.
    """
    from ngram_builders.registry.registry import import_table

    registry = open_registry(settings)
    imported = import_table(registry, file, name, replace=replace)
    click.echo(f"imported {imported.name}: {format_count(imported.files, 'file')}, {imported.tokens:,} tokens")
    if not list(_assignment_lines(registry.assignments().only([imported.name]))):
        language = imported.languages[0] if len(imported.languages) == 1 else "LANGUAGE"
        click.echo(f"nothing is served by it; run: spd-lsp ngrams use {imported.name} --language {language}")
    if imported.fingerprint != load_tokens(settings.model).fingerprint:
        print_status(f"{settings.model} cannot use it: it was built with another model's tokenizer")


@ngrams.command("remove", epilog="\b\nExample: spd-lsp ngrams remove old-repo older-repo")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Also delete tables chosen with `use`.")
@with_settings
def remove_tables(settings: Settings, names: tuple[str, ...], yes: bool) -> None:
    """Delete tables.

    Their repositories do not change.
    """
    registry = open_registry(settings)
    for name in names:
        registry.find(name)
    if not yes and (lines := "; ".join(_assignment_lines(registry.assignments().only(names)))):
        raise UserError(f"what you chose would be lost: {lines}; to remove them all the same, add --yes")
    for name in dict.fromkeys(names):
        registry.remove(name)
        click.echo(f"removed {name}")
