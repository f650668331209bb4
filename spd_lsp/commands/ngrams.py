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

FILE = click.Path(path_type=Path)


def open_registry(settings: Settings) -> Registry:
    """The registry in the folder that the settings name."""
    from ngram_builders.registry.registry import Registry

    return Registry(Path(settings.data_dir) if settings.data_dir else None)


def example(command: str) -> str:
    """The last line of a command's help."""
    return f"\b\nExample: spd-lsp ngrams {command}"


@click.group()
def ngrams() -> None:
    """List, choose, exchange, rebuild and remove n-gram tables; a running server notices every change."""


@ngrams.command("list", epilog=example("list --json"))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; sizes in bytes.")
@click.pass_obj
def list_domains(settings: Settings, as_json: bool) -> None:
    """Print a line for each table and for each choice made with `use`."""
    from spd_lsp.commands.ngram_listing import as_line, as_object, choices, uses_object

    registry = open_registry(settings)
    problem, domains, uses = registry.fault(), registry.domains(), registry.assignments()
    if as_json:
        listed = {"domains": [as_object(domain, uses) for domain in domains], **uses_object(registry)}
        click.echo(json.dumps({**listed, "problem": problem}))
    else:
        lines = [as_line(domain) for domain in domains]
        if not lines and not problem:
            lines = ["no n-gram tables yet; run: spd-lsp build-ngrams REPO"]
        for line in (*lines, *built_in(settings), *choices(uses)):
            click.echo(line)
    if problem:
        raise UserError(problem)


def built_in(settings: Settings) -> Iterator[str]:
    """A line for each table that comes with the model."""
    from ngram_builders.table.reader import Table
    from spd_lsp.commands.ngram_listing import built_in_line
    from spd_lsp.models.checkpoint.hub import built_in_domains, locate

    for language, path in built_in_domains(locate(settings.model)).items():
        yield built_in_line(language, Table.open(path).summary)


@ngrams.command("show", epilog=example("show my-repo"))
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; sizes in bytes.")
@click.pass_obj
def show_domain(settings: Settings, name: str, as_json: bool) -> None:
    """Print all that is known of a table."""
    from spd_lsp.commands.ngram_listing import as_object, as_paragraph, mend

    registry = open_registry(settings)
    domain, uses = registry.find(name), registry.assignments()
    if as_json:
        click.echo(json.dumps(as_object(domain, uses)))
    if domain.fault:
        raise UserError(f"n-gram table {name} is broken: {mend(domain)}")
    if not as_json:
        click.echo(as_paragraph(domain, uses))


@ngrams.command("use", epilog=example("use team=0.3 --language python"))
@click.argument("names", metavar="NAME[=WEIGHT]...", nargs=-1)
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder whose files they serve, they alone (default: this folder).",
)
@click.option("--language", metavar="L", help="Serve this language's files, besides what was built around them.")
@click.pass_obj
def use_domains(settings: Settings, names: tuple[str, ...], workspace: Path | None, language: str | None) -> None:
    """Choose the tables that serve a workspace or a language; no names undo the choice.

    A file is served by the choice for the innermost workspace around it, and by nothing else; without one, by the
    tables built from around it together with the choice for its language.
    """
    if workspace and language:
        raise UserError("expected --workspace or --language, found both; give the command once for each")
    registry = open_registry(settings)
    chosen = [_parse_weight(registry, name) for name in names]
    told = ", ".join(f"{name} ({weight:g})" for name, weight in chosen)
    if language:
        registry.assign_language(language, chosen)
        around = "what was built around them"
        click.echo(f"{language} files are served by {f'{told} besides {around}' if told else around}")
    else:
        place = (workspace or Path()).resolve()
        registry.assign_workspace(place, chosen)
        click.echo(f"{place} is served by {told or 'the tables built from it'}")
    for name, _ in chosen:
        _warn(registry.find(name), language)


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
        raise UserError(f"expected NAME=WEIGHT with a weight above 0 and at most 1, found {text!r}")
    return name, value


def _warn(domain: Domain, language: str | None) -> None:
    """Say what keeps a table from serving what it was chosen for."""
    from ngram_builders.sources.language_ids import related_languages
    from spd_lsp.commands.ngram_listing import mend

    if domain.fault:
        click.echo(f"{domain.name} serves nothing until it is mended: {mend(domain)}", err=True)
    elif language and related_languages(language).isdisjoint(domain.languages):
        found = ", ".join(domain.languages)
        click.echo(f"{domain.name} serves no {language} files: it was built from {found}", err=True)


@ngrams.command("rename", epilog=example("rename repo my-repo"))
@click.argument("old")
@click.argument("new")
@click.pass_obj
def rename_domain(settings: Settings, old: str, new: str) -> None:
    """Give a table another name; the choices made for it follow."""
    open_registry(settings).rename(old, new)
    click.echo(f"renamed {old} to {new}")


@ngrams.command("remove", epilog=example("remove old-repo older-repo"))
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


@ngrams.command("export", epilog=example("export my-repo team.ngt"))
@click.argument("name")
@click.argument("file", type=FILE)
@click.option("--replace", is_flag=True, help="Overwrite the file if it is there.")
@click.option("--files", "names_files", is_flag=True, help="List the files whose code it counts.")
@click.pass_obj
def export_domain(settings: Settings, name: str, file: Path, replace: bool, names_files: bool) -> None:
    """Write a table to one file, to give away; a folder takes it as NAME.ngt.

    The file counts what the code says, token by token. It has no paths and no lines with secrets in it, and yet
    the code can be read back from it: give it only to people who may read that code.
    """
    from ngram_builders.registry.transfer import export_table
    from spd_lsp.commands.ngram_listing import megabytes

    registry = open_registry(settings)
    target = export_table(registry, name, file, replace=replace)
    click.echo(f"exported {name} to {target} ({megabytes(target.stat().st_size)})")
    for line in _describe_readers(registry.find(name), names_files):
        click.echo(line)


def _describe_readers(domain: Domain, names_files: bool) -> Iterator[str]:
    """What someone can make of an exported table."""
    from ngram_builders.counting.token_cache import read_indexed_files
    from ngram_builders.sources.discovery import display_path

    contents = read_indexed_files(domain.path.parent, domain.path.name, domain.fingerprint)
    least = domain.recipe.get("min_files") or 1
    one = domain.files == 1
    share = f"what at least {least} files say" if least > 1 else f"most of {'its' if one else 'their'} code"
    told = "" if names_files or contents is None else f"; --files lists {'it' if one else 'them'}"
    yield f"whoever has it can read back {share}: it counts {domain.files:,} file{'' if one else 's'}{told}"
    if contents is not None and contents.is_old:
        yield f"it was built before secrets were masked as now; first run: spd-lsp ngrams rebuild {domain.name}"
    if names_files:
        yield from (
            sorted(map(display_path, contents.files)) if contents else ["which files these are is not known here"]
        )


@ngrams.command("import", epilog=example("import team.ngt --domain team"))
@click.argument("file", type=FILE)
@click.option("--domain", metavar="NAME", help="Name of the table (default: the file's name).")
@click.option("--model", metavar="M", help="Refuse a table that was not built with this model's tokenizer.")
@click.option("--replace", is_flag=True, help="Replace the table of that name if there is one.")
@click.pass_obj
def import_domain(settings: Settings, file: Path, domain: str | None, model: str | None, replace: bool) -> None:
    """Take a table from a file that `export` wrote; every checksum is compared."""
    from ngram_builders.registry.transfer import import_table
    from spd_lsp.commands.ngram_listing import as_paragraph

    fingerprint, recipe = (_fingerprint_of(model), {"model": lasting(model)}) if model else (None, {})
    registry = open_registry(settings)
    imported = import_table(registry, file, domain, fingerprint=fingerprint, replace=replace, recipe=recipe)
    click.echo(as_paragraph(imported, registry.assignments()))
    if not model and imported.fingerprint != _fingerprint_of(settings.model):
        click.echo(
            f"its tokenizer is not that of {settings.model}: it serves only the model that it was built with",
            err=True,
        )


def _fingerprint_of(model: str) -> str:
    """What identifies a model's tokenizer."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    return ModelTokenizer(locate(model)).fingerprint


@ngrams.command("prune", epilog=example("prune --gone --dry-run"))
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@click.option("--gone", is_flag=True, help="Delete also tables whose repositories are all gone.")
@click.pass_obj
def prune(settings: Settings, dry_run: bool, gone: bool) -> None:
    """Delete what nobody needs: unfinished files, tables that were replaced, token caches without a table.

    A table whose facts cannot be read is moved aside, not deleted.
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

    place = leftover.path.relative_to(folder)
    told = f"{megabytes(leftover.size):>12}  {place}: {leftover.reason}"
    if not leftover.aside:
        return f"{would + 'deleted':20} {told}"
    return f"{would + 'moved aside':20} {told}; {'it would be' if would else 'it is'} kept in {leftover.aside}"
