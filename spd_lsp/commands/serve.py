"""The command `serve`: the language server, as an editor starts it or for several editors at once."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from pathlib import Path

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.connect import door_at, token_options
from spd_lsp.commands.wiring import load_completer, model_options, open_model, tell
from spd_lsp.lsp.transport.addresses import DEFAULT_PORT
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.settings import Settings
from spd_lsp.surroundings import settle_elsewhere

_OURS = ("model", "device", "data_dir")  # what editors elsewhere cannot choose of a shared server


@click.command()
@model_options
@click.option("--stdio", is_flag=True, help="Speak over standard input and output (the default).")
@click.option(
    "--socket",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="Listen for any number of your editors, which share the model, at a socket that is yours alone.",
)
@click.option(
    "--tcp", metavar="[HOST:PORT]", is_flag=False, flag_value=DEFAULT_PORT, help="Listen at a port instead."
)
@token_options
@click.option("--sessions", type=click.IntRange(1), default=64, show_default=True, help="Most editors at once.")
@click.option("-v", "--verbose", count=True, help="Log more to standard error; never code.")
@click.pass_obj
def serve(
    settings: Settings,
    model: str,
    device: str,
    stdio: bool,
    socket: str | None,
    tcp: str | None,
    token_file: Path | None,
    unencrypted: bool,
    sessions: int,
    verbose: int,
) -> None:
    """Run the language server; an editor starts it."""
    from spd_lsp.lsp.server import create_server
    from spd_lsp.lsp.transport.serve import SharedModel, serve_at, serve_stdio

    settings = dataclasses.replace(settings, model=lasting(model), device=device)
    if stdio + (socket is not None) + (tcp is not None) > 1:
        raise UserError("expected one way to be reached, found several; choose --stdio, --socket or --tcp")
    door = door_at(socket, tcp, token_file, unencrypted)
    settle_elsewhere()
    if door is None:
        sys.exit(serve_stdio(create_server(load_completer, settings), verbose=verbose))
    load = partial(load_completer, open_model=SharedModel(open_model).seat)
    make = partial(create_server, load, settings, _OURS)
    sys.exit(serve_at(door, make, tell, most=sessions, verbose=verbose))
