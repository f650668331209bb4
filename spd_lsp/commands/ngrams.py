"""The commands about n-gram tables: which there are, what they serve, and which are kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_option, print_status, with_settings
from spd_lsp.commands.ngram_listing import assignment_lines, details, language_line, list_line, workspace_line
from spd_lsp.models.hub import absolute_model_name
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.ngram_table import NgramTable
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.tokenizer import ModelTokenizer

_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


def open_registry(settings: Settings) -> Registry:
    """The registry in the folder that the settings name."""
    from ngram_builders.registry.registry import Registry

    return Registry(Path(settings.data_dir) if settings.data_dir else None)


def load_tokens(model: str) -> ModelTokenizer:
    """The tokenizer of a model, which is fetched if its name says so."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.hub import locate

    return ModelTokenizer(locate(model))


def help_example(command: str) -> str:
    """The last line of a command's help."""
    return f"\b\nExample: spd-lsp ngrams {command}"


def ask(loss: str, question: str, flag: str) -> None:
    """Return if a person agrees to a loss; UserError if not, or if there is no terminal to ask at."""
    if not sys.stdin.isatty():
        raise UserError(f"{loss}; {flag}")
    if not click.confirm(f"{loss}. {question}", err=True):
        raise UserError("nothing was changed")


@click.group()
def ngrams() -> None:
    """Manage n-gram tables.

    A running server notices every change.
    """


@ngrams.command("list", epilog=help_example("list --json"))
@click.option("--json", "print_json", is_flag=True, help="Print one JSON object with sizes in bytes.")
@with_settings
def list_tables(settings: Settings, print_json: bool) -> None:
    """List all tables and the choices made with `use`."""
    from ngram_builders.registry.registry import FolderChoice

    registry = open_registry(settings)
    problem = registry.fault()
    tables = registry.tables()
    assignments = registry.assignments()
    if print_json:
        listed = {"tables": list(map(asdict, tables)), **asdict(assignments), "problem": problem}
        click.echo(json.dumps(listed, default=str))
    else:
        lines = [list_line(table) for table in tables]
        if not lines and not problem:
            lines = ["no n-gram tables yet; run: spd-lsp build-ngrams REPO"]
        for line in (*lines, *assignment_lines(assignments)):
            click.echo(line)
        for folder, choice in sorted(registry.folder_choices().items()):
            if choice is FolderChoice.EXCLUDED:
                click.echo(f"{folder} is not indexed when an editor opens it: you excluded it")
    if problem:
        raise UserError(problem)


@ngrams.command("show", epilog=help_example("show my-repo"))
@click.argument("name")
@with_settings
def show_table(settings: Settings, name: str) -> None:
    """Describe a table."""
    registry = open_registry(settings)
    table = registry.find(name)
    if table.fault:
        raise UserError(f"n-gram table {name} is broken: {table.fault}")
    click.echo(details(table, registry.assignments()))


@ngrams.command("use", epilog=help_example("use my-repo team=0.5"))
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
    that the table was built from and 0.3 elsewhere. `ngrams which` shows the weights. A new choice replaces
    the earlier one. `ngrams unuse` undoes it.
    """
    registry = open_registry(settings)
    for name in _choose(registry, names, workspace, language):
        _warn_if_useless(registry.find(name), language)


@ngrams.command("unuse", epilog=help_example("unuse --language python"))
@click.option("--workspace", type=_FOLDER, help="Undo the choice for this folder (default: the current folder).")
@click.option("--language", metavar="L", help="Undo the choice for this language.")
@with_settings
def unuse(settings: Settings, workspace: Path | None, language: str | None) -> None:
    """Undo a choice of tables for a folder or a language.

    The tables built from the folder apply again. No table is deleted.
    """
    _choose(open_registry(settings), (), workspace, language)


def _choose(
    registry: Registry, names: Sequence[str], workspace: Path | None, language: str | None
) -> Sequence[str]:
    """Choose tables for a language or a folder, say what serves it and no longer; return their names."""
    if workspace and language:
        raise UserError("give --workspace or --language, not both; run the command once for each")
    chosen = dict(_parse_weight(registry, name) for name in names)
    if language:
        if not chosen and language not in (known := registry.assignments().languages):
            among = f"; there are choices for {', '.join(sorted(known))}" if known else ""
            raise UserError(f"no table was chosen for {language}{among}")
        registry.assign_language(language, list(chosen.items()))
        click.echo(language_line(language, chosen))
        return list(chosen)
    folder = (workspace or Path()).resolve()
    served = registry.tables_for(folder / "file", None)
    registry.assign_workspace(folder, list(chosen.items()))
    click.echo(workspace_line(folder, chosen))
    if gone := [table.name for table, _ in served if table.name not in chosen] if chosen else []:
        click.echo(f"no longer by {', '.join(gone)}")
    return list(chosen)


def _parse_weight(registry: Registry, text: str) -> tuple[str, float | None]:
    """Example: `mine=0.5` -> ("mine", 0.5); `mine` has no given weight."""
    name, equals, weight = text.partition("=")
    if not equals:
        return registry.find(name).name, None
    try:
        value = float(weight)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UserError(f"invalid {text!r}: give NAME=WEIGHT with a weight above 0 and at most 1")
    return name, value


def _warn_if_useless(table: NgramTable, language: str | None) -> None:
    """Say what keeps a table from serving what it was chosen for."""
    from ngram_builders.sources.language_ids import related_languages

    if table.fault:
        print_status(f"{table.name} serves nothing until it is repaired: {table.fault}")
    elif language and related_languages(language).isdisjoint(table.languages):
        print_status(f"{table.name} serves no {language} files: it was built from {', '.join(table.languages)}")


@ngrams.command("which", epilog=help_example("which src/app.py"))
@click.argument("file", type=click.Path(path_type=Path))
@model_option("Model that completes the file.")
@with_settings
def which(settings: Settings, file: Path) -> None:
    """Show the tables and weights that apply to a file, and why."""
    from spd_lsp.completion.exclusions import exclusion_reason, language_id
    from spd_lsp.ngrams.serving_tables import ServingTables

    registry = open_registry(settings)
    language = language_id(file)
    model = absolute_model_name(settings.model)
    serving = ServingTables(registry, load_tokens(model).fingerprint, model=model)
    serving.mixture_for(file.absolute(), language)
    reason = exclusion_reason(file, settings)
    for problem in ([f"nothing is completed in {file}: {reason}"] if reason else []) + list(serving.problems):
        print_status(problem)
    if not serving.tables:
        raise UserError(f"no n-gram table serves {file}; run: spd-lsp build-ngrams {file.absolute().parent}")
    choices = registry.choices_for(file, language)
    for one in serving.tables:
        click.echo(f"{one.table.name:24} {one.weight:<5g} {choices[one.table.name].reason}")


@ngrams.command("remove", epilog=help_example("remove old-repo older-repo"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Delete tables chosen with `use` without asking.")
@with_settings
def remove_tables(settings: Settings, names: tuple[str, ...], yes: bool) -> None:
    """Delete tables.

    Their repositories do not change.
    """
    registry = open_registry(settings)
    for name in names:
        registry.find(name)
    if not yes and (lines := "; ".join(assignment_lines(registry.assignments().only(names)))):
        remedy = "to remove them all the same, add --yes"
        ask(f"what you chose would be lost: {lines}", f"Remove {', '.join(names)}?", remedy)
    for name in dict.fromkeys(names):
        registry.remove(name)
        click.echo(f"removed {name}")
