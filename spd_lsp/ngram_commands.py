"""The commands about n-gram tables: list, show, use and remove."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spd_lsp.settings import Settings, UserError

if TYPE_CHECKING:
    from ngram_builders.registry import Domain, Registry


def open_registry(settings: Settings) -> Registry:
    """The registry in the folder that the settings name."""
    from ngram_builders.registry import Registry

    return Registry(Path(settings.data_dir) if settings.data_dir else None)


@click.group()
def ngrams() -> None:
    """List, show, use and remove n-gram tables."""


@ngrams.command("list")
@click.pass_obj
def list_domains(settings: Settings) -> None:
    """Print a line for each table."""
    domains = open_registry(settings).domains()
    if not domains:
        click.echo("no n-gram tables yet; run: spd-lsp build-ngrams REPO")
    for domain in domains:
        click.echo(describe_line(domain))


def describe_line(domain: Domain) -> str:
    """One table in a line."""
    if domain.fault:
        return f"{domain.name:24} broken: {domain.fault}"
    return (
        f"{domain.name:24} {domain.tokens:>12,} tokens {domain.size / 2**20:>8.1f} MiB  "
        f"{built(domain)}  {', '.join(map(str, domain.roots))}"
    )


def built(domain: Domain) -> str:
    """When, in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(domain.built))


@ngrams.command("show")
@click.argument("name")
@click.pass_obj
def show_domain(settings: Settings, name: str) -> None:
    """Print all that is known of a table."""
    domain = open_registry(settings).find(name)
    if domain.fault:
        raise UserError(f"n-gram table {name} is broken: {domain.fault}")
    facts = {
        "name": domain.name,
        "sources": ", ".join(map(str, domain.roots)),
        "languages": ", ".join(domain.languages),
        "files": f"{domain.files:,}",
        "tokens": f"{domain.tokens:,}",
        "orders": ", ".join(map(str, domain.orders)),
        "size": f"{domain.size / 2**20:.1f} MiB",
        "tokenizer": domain.fingerprint,
        "built": built(domain),
        "table": domain.path,
    }
    for fact, value in facts.items():
        click.echo(f"{fact:10} {value}")


@ngrams.command("use")
@click.argument("names", metavar="NAME[=WEIGHT]...", nargs=-1)
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="The folder whose files they serve (default: this one).",
)
@click.pass_obj
def use_domains(settings: Settings, names: tuple[str, ...], workspace: Path) -> None:
    """Choose the tables that serve a workspace; none goes back to those built from it."""
    chosen = [parse_weight(name) for name in names]
    open_registry(settings).use(workspace.resolve(), chosen)
    told = ", ".join(f"{name} ({weight:g})" for name, weight in chosen) or "the tables built from it"
    click.echo(f"{workspace.resolve()} is served by {told}")


def parse_weight(text: str) -> tuple[str, float]:
    """Example: `mine=0.5` -> ("mine", 0.5); `mine` has the weight 0.7."""
    name, equals, weight = text.partition("=")
    try:
        value = float(weight) if equals else 0.7
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UserError(f"expected NAME=WEIGHT with a weight above 0 and at most 1, found {text!r}")
    return name, value


@ngrams.command("remove")
@click.argument("name")
@click.pass_obj
def remove_domain(settings: Settings, name: str) -> None:
    """Delete a table; the repository it was built from is not touched."""
    open_registry(settings).remove(name)
    click.echo(f"removed {name}")
