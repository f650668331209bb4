"""The command `build-ngrams`: counts repositories into a table, and says what it did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spd_lsp.ngram_commands import open_registry
from spd_lsp.settings import Settings, UserError

if TYPE_CHECKING:
    from ngram_builders.build import Summary

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
            model=lasting(model),
            report=report,
        )
    click.echo(describe_build(summary))


def lasting(model: str) -> str:
    """A model's name that means the same wherever it is built again: folders in full."""
    from spd_lsp.checkpoints import STARTER

    folder = Path(model).expanduser()
    return str(folder.resolve()) if model != STARTER and folder.is_dir() else model


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
