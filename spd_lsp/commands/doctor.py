"""The command `doctor`: what is wrong with an installation, and how to fix it."""

from __future__ import annotations

import dataclasses

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_options
from spd_lsp.completion.loading import load_completer
from spd_lsp.output.progress import format_count
from spd_lsp.settings import Settings


@click.command()
@model_options
@click.pass_obj
def doctor(settings: Settings, model: str, device: str) -> None:
    """Check the installation, the model and the tables.

    Prints how to fix what is wrong.
    """
    from spd_lsp.commands.diagnosis import diagnose

    settings = dataclasses.replace(settings, model=model, device=device)
    errors = 0
    for finding in diagnose(settings, lambda settings: load_completer(settings, lambda text: None)):
        click.echo(f"{finding.state:5}  {finding.subject:20} {finding.text}")
        errors += finding.state == "error"
    if errors:
        raise UserError(f"{format_count(errors, 'problem')} found, see above")
