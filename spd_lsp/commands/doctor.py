"""The command `doctor`: what is wrong here, and how to mend it."""

from __future__ import annotations

import dataclasses

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.wiring import load_completer, model_options
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.settings import Settings


@click.command()
@model_options
@click.pass_obj
def doctor(settings: Settings, model: str, device: str) -> None:
    """Print what is installed, what would run, what is wrong and how to mend it."""
    from spd_lsp.commands.diagnosis import examine

    settings = dataclasses.replace(settings, model=model, device=device)
    wrong = 0
    for finding in examine(settings, lambda chosen: load_completer(chosen, lambda text: None), lasting(model)):
        click.echo(f"{finding.state:5}  {finding.subject:20} {finding.text}")
        wrong += finding.state == "wrong"
    if wrong:
        raise UserError(f"{wrong} thing{'s' * (wrong > 1)} to mend, see above")
