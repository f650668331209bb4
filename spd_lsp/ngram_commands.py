"""The commands about n-grams: build a table from repositories; list, show, use and remove tables."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spd_lsp.settings import Settings, UserError

if TYPE_CHECKING:
    from ngram_builders.build import Summary
    from ngram_builders.registry import Domain, Registry

Report = Callable[[str, int, int], None]


@click.command("build-ngrams")
@click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--domain", metavar="NAME", help="Name of the table (default: the folder's name).")
@click.option("--orders", default="2-6", show_default=True, help="Lengths of the n-grams.")
@click.option("--language", metavar="L", help="Count only this language, such as python.")
@click.option("--model", default="starter", show_default=True, metavar="M", help="Whose tokens are counted.")
@click.pass_obj
def build_ngrams(
    settings: Settings, repos: tuple[Path, ...], domain: str | None, orders: str, language: str | None, model: str
) -> None:
    """Teach completions a repository: count the n-grams of its source files."""
    from ngram_builders.build import build
    from spd_lsp.checkpoints import locate
    from spd_lsp.tokens import Tokens

    tokens = Tokens(locate(model))
    with progress() as report:
        summary = build(
            repos,
            domain,
            tokens.encode_batch,
            end_of_text=tokens.end_of_text,
            fingerprint=tokens.fingerprint,
            vocab_size=tokens.vocab_size,
            registry=open_registry(settings),
            orders=parse_orders(orders),
            language=language,
            report=report,
        )
    click.echo(describe_build(summary))


@contextmanager
def progress() -> Iterator[Report]:
    """A bar on standard error for each stage of the build."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        stages = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total)
            bars.update(stages[stage], completed=done, total=total)

        yield report


def parse_orders(text: str) -> tuple[int, ...]:
    """Example: `2-4` -> (2, 3, 4); `3` -> (3,)."""
    match = re.fullmatch(r"([2-6])(?:-([2-6]))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high:
        raise UserError(f"expected --orders as a range within 2-6 such as 2-6 or 3-5, found {text!r}")
    return tuple(range(low, high + 1))


def open_registry(settings: Settings) -> Registry:
    """The registry in the folder that the settings name."""
    from ngram_builders.registry import Registry

    return Registry(Path(settings.data_dir) if settings.data_dir else None)


def describe_build(summary: Summary) -> str:
    """What was counted, what was left out and why, and where the table is."""
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in sorted(summary.left_out.items()))
    return "\n".join(
        [
            f"{summary.domain}: {summary.files:,} files, {summary.tokens:,} tokens, {summary.ngrams:,} n-grams, "
            f"{summary.bytes / 2**20:.1f} MiB, {summary.seconds:.1f} s",
            f"left out: {left_out or 'nothing'}",
            f"table: {summary.path}",
        ]
    )


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
