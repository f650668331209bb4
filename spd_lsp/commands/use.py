"""The command `ngrams use`: which tables serve a folder or a language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.consent import ask
from spd_lsp.commands.ngram_listing import addition_line, language_line, workspace_line
from spd_lsp.commands.ngrams import help_example, open_registry
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.registry.domains import Domain
    from ngram_builders.registry.registry import Registry

_Weights = Mapping[str, float]


@click.command("use", epilog=help_example("use team=0.3 --add"))
@click.argument("names", metavar="NAME[=WEIGHT]...", nargs=-1)
@click.option("--add", is_flag=True, help="Keep the tables that serve there now, and add these.")
@click.option("--drop", is_flag=True, help="Keep the others that were chosen, without these.")
@click.option("--replace", is_flag=True, help="Give up tables that were chosen before.")
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

    Without names, the choice is undone. A file is served by the tables chosen for the innermost folder around it,
    and by no others. Without such a choice it is served by the tables built from the folders around it, and by
    those chosen for its language. With --add, it is served by these as well.
    """
    if workspace and language:
        raise UserError("give --workspace or --language, not both; run the command once for each")
    if add + drop + replace > 1:
        raise UserError("--add, --drop and --replace exclude each other; choose one")
    if (add or drop) and not names:
        raise UserError(f"name the tables to {'add' if add else 'drop'}")
    registry = open_registry(settings)
    named = dict(_parse_weight(registry, name) for name in names)
    choice = _LanguageChoice(registry, language) if language else _FolderChoice(registry, workspace or Path())
    before = choice.read()
    if drop and (unknown := sorted(named.keys() - before)):
        raise UserError(f"{', '.join(unknown)} was not chosen: {choice.describe(before)}")
    lost = [] if add or drop or not named else sorted(before.keys() - named)
    if lost and not replace:
        remedy = "keep it with --add, or give it up with --replace"
        ask(f"{choice.describe(before)}, and {', '.join(lost)} would not any more", "Go on?", remedy)
    kept = {name: weight for name, weight in before.items() if add or (drop and name not in named)}
    after = kept | ({} if drop else named)
    for line in choice.write(after, joined=add or drop):
        click.echo(line)
    for name in named if not drop else ():
        _warn_if_useless(registry.find(name), language)


class _LanguageChoice:
    """The tables that serve a language's files as well as their own."""

    def __init__(self, registry: Registry, language: str) -> None:
        self.registry = registry
        self.language = language

    def read(self) -> dict[str, float]:
        """Read what is chosen."""
        return dict(self.registry.assignments().languages.get(self.language, ()))

    def describe(self, weights: _Weights) -> str:
        """Describe a choice in a line."""
        return language_line(self.language, tuple(weights.items()))

    def write(self, weights: _Weights, *, joined: bool) -> Iterator[str]:
        """Replace the choice, and describe it."""
        self.registry.assign_language(self.language, tuple(weights.items()))
        yield self.describe(weights)


class _FolderChoice:
    """The tables that serve the files in a folder: only these, or these as well as its own."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.registry = registry
        self.folder = folder.resolve()
        self.added = registry.assignments().additions.get(str(self.folder), ())
        self.only = registry.assignments().workspaces.get(str(self.folder), ())

    def read(self) -> dict[str, float]:
        """Read what is chosen."""
        return dict(self.only or self.added)

    def describe(self, weights: _Weights) -> str:
        """Describe a choice in a line."""
        line = addition_line if self.added and not self.only else workspace_line
        return line(self.folder, tuple(weights.items()))

    def write(self, weights: _Weights, *, joined: bool) -> Iterator[str]:
        """Replace the choice, and describe it, with the tables that no longer serve the folder."""
        before, assignment = self._serving(), tuple(weights.items())
        if joined and not self.only:
            self.registry.add_to_folder(self.folder, assignment)
            yield addition_line(self.folder, assignment)
        else:
            self.registry.assign_workspace(self.folder, assignment)
            yield workspace_line(self.folder, assignment)
        chosen = dict(self.only or self.added)
        if lost := [name for name in before if name not in self._serving() and name not in chosen]:
            yield f"no longer by {', '.join(lost)}; to keep other tables beside a choice, add --add"

    def _serving(self) -> list[str]:
        """The tables that serve the folder's files."""
        return [domain.name for domain, _ in self.registry.domains_for(self.folder / "file", None)]


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
