"""The command `ngrams use`: which tables serve a folder or a language."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.consent import ask
from spd_lsp.commands.ngram_listing import addition_line, language_line, workspace_line
from spd_lsp.commands.ngrams import help_example, open_registry
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.ngram_table import NgramTable
    from ngram_builders.registry.registry import Registry


@click.command("use", epilog=help_example("use team=0.3 --add"))
@click.argument("names", metavar="NAME[=WEIGHT]...", nargs=-1)
@click.option("--add", is_flag=True, help="Add these to the tables that serve there now.")
@click.option("--drop", is_flag=True, help="Remove these from the choice, and keep the others.")
@click.option("--replace", is_flag=True, help="Replace the earlier choice without asking.")
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Choose for the files in this folder (default: the current folder).",
)
@click.option("--language", metavar="L", help="Choose for this language's files, together with their own tables.")
@click.pass_obj
def use(
    settings: Settings,
    names: tuple[str, ...],
    add: bool,
    drop: bool,
    replace: bool,
    workspace: Path | None,
    language: str | None,
) -> None:
    """Choose the tables that serve a folder or a language.

    `ngrams unuse` undoes the choice. A file is served by the tables chosen for the innermost folder around it,
    and by no others. Without such a choice it is served by the tables built from the folders around it, and by
    those chosen for its language. With --add, it is served by these as well.

    WEIGHT, above 0 and up to 1, says how far a table is believed: tables share what n-grams decide by weight, and
    what a table alone knows counts in full from 0.7 on, a tenth as much at 0.07, and so do lines copied from its
    files. Without one it begins at 0.05, and is learnt from what you accept in the folder, from 0.02 to 0.7;
    `spd-lsp ngrams which` shows it, `spd-lsp ngrams compare` measures what a table brings.
    """
    if workspace and language:
        raise UserError("give --workspace or --language, not both; run the command once for each")
    if add + drop + replace > 1:
        raise UserError("--add, --drop and --replace cannot be combined; choose one")
    if not names:
        raise UserError(
            "name the tables to use; `spd-lsp ngrams unuse` undoes a choice, `ngrams list` lists tables"
        )
    registry = open_registry(settings)
    named = dict(_parse_weight(registry, name) for name in names)
    folder = (workspace or Path()).resolve()
    assignments = registry.assignments()
    only, added = (users.get(str(folder), ()) for users in (assignments.workspaces, assignments.additions))
    if language:
        before = dict(assignments.languages.get(language, ()))
        described = language_line(language, tuple(before.items()))
    else:
        before = dict(only or added)
        described = (addition_line if added and not only else workspace_line)(folder, only or added)
    if drop and (unknown := sorted(named.keys() - before)):
        raise UserError(f"{', '.join(unknown)} was not chosen: {described}")
    lost = [] if add or drop else sorted(before.keys() - named)
    if lost and not replace:
        remedy = "keep it with --add, or confirm with --replace"
        ask(f"{described}; this choice leaves out {', '.join(lost)}", "Go on?", remedy)
    kept = {name: weight for name, weight in before.items() if add or (drop and name not in named)}
    after = tuple((kept | ({} if drop else named)).items())
    if language:
        registry.assign_language(language, after)
        click.echo(language_line(language, after))
    else:
        served = _serving(registry, folder)
        if (add or drop) and not only:
            registry.add_to_folder(folder, after)
            click.echo(addition_line(folder, after))
        else:
            registry.assign_workspace(folder, after)
            click.echo(workspace_line(folder, after))
        if gone := [name for name in served if name not in (*before, *_serving(registry, folder))]:
            click.echo(f"no longer by {', '.join(gone)}; to keep other tables beside a choice, add --add")
    for name in named if not drop else ():
        _warn_if_useless(registry.find(name), language)


@click.command("unuse", epilog=help_example("unuse --language python"))
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Undo the choice for the files in this folder (default: the current folder).",
)
@click.option("--language", metavar="L", help="Undo the choice for this language's files.")
@click.pass_obj
def unuse(settings: Settings, workspace: Path | None, language: str | None) -> None:
    """Undo a choice of tables for a folder or a language.

    The tables built from a folder serve its files again; no table is removed.
    """
    if workspace and language:
        raise UserError("give --workspace or --language, not both; run the command once for each")
    registry = open_registry(settings)
    if language:
        registry.assign_language(language, ())
        click.echo(language_line(language, ()))
    else:
        folder = (workspace or Path()).resolve()
        registry.assign_workspace(folder, ())
        click.echo(workspace_line(folder, ()))


def _serving(registry: Registry, folder: Path) -> list[str]:
    """The tables that serve a folder's files."""
    return [table.name for table, _ in registry.tables_for(folder / "file", None)]


def _parse_weight(registry: Registry, text: str) -> tuple[str, float | None]:
    """Example: `mine=0.5` -> ("mine", 0.5); the weight of `mine` is learnt."""
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
        click.echo(f"{table.name} serves nothing until it is repaired: {table.fault}", err=True)
    elif language and related_languages(language).isdisjoint(table.languages):
        languages = ", ".join(table.languages)
        click.echo(f"{table.name} serves no {language} files: it was built from {languages}", err=True)
