"""The command `stats`: what was offered and accepted in the editors on this machine."""

from __future__ import annotations

import click

from spd_lsp.command_options import open_registry, with_settings
from spd_lsp.output.printable import as_json, printable
from spd_lsp.settings import Settings


@click.command()
@click.option("--json", "print_json", is_flag=True, help="Print one JSON array.")
@click.option("--reset", "is_reset", is_flag=True, help="Delete all counts.")
@with_settings
def stats(settings: Settings, print_json: bool, is_reset: bool) -> None:
    """Show accepted completions and saved keystrokes.

    The server stores only numbers, in the data folder, and never sends them. Helix and Emacs with eglot do not
    report accepted completions.
    """
    from spd_lsp.lsp.usage import COLUMNS, read_counts, reset, rows_of

    folder = open_registry(settings).folder
    if is_reset:
        reset(folder)
        return
    rows = rows_of(read_counts(folder))
    heads = ("language", "source", *COLUMNS)
    if print_json:
        click.echo(as_json([dict(zip(heads, row, strict=True)) for row in rows]))
    elif not rows:
        click.echo("nothing has been counted yet")
    else:
        sums = [sum(column) for column in zip(*(row[2:] for row in rows), strict=True)]
        for language, source, *numbers in [heads, *rows, ("all", "", *sums)]:
            click.echo(f"{printable(language):16} {source:8}" + "".join(f"{number:>14}" for number in numbers))
