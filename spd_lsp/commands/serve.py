"""The command `serve`: the language server for one editor, or for any number of them."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from pathlib import Path

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.connect import endpoint_for, tcp_options
from spd_lsp.commands.wiring import load_completer, model_options, open_model, print_status
from spd_lsp.lsp.transport.addresses import DEFAULT_TCP_ADDRESS
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.safe_path import leave_working_folder
from spd_lsp.settings import Settings

_SHARED_SETTINGS = ("model", "device", "threads", "data_dir")  # which editors of a shared server cannot change


@click.command()
@model_options
@click.option("--stdio", is_flag=True, help="Use standard input and output (the default).")
@click.option(
    "--socket",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="Listen at a Unix socket that only you can access. Its editors share the model.",
)
@click.option(
    "--tcp", metavar="[HOST:PORT]", is_flag=False, flag_value=DEFAULT_TCP_ADDRESS, help="Listen at a TCP port."
)
@tcp_options
@click.option(
    "--sessions", type=click.IntRange(1), default=64, show_default=True, help="Maximum number of editors."
)
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
    """Run the language server. Editors start it."""
    from spd_lsp.lsp.server import create_server
    from spd_lsp.lsp.transport.serve import SharedModel, serve_many, serve_stdio

    settings = dataclasses.replace(settings, model=lasting(model), device=device)
    if stdio + (socket is not None) + (tcp is not None) > 1:
        raise UserError("--stdio, --socket and --tcp exclude each other; choose one")
    endpoint = endpoint_for(socket, tcp, token_file, unencrypted)
    leave_working_folder()
    if endpoint is None:
        sys.exit(serve_stdio(create_server(load_completer, settings), verbose=verbose))
    load = partial(load_completer, open_model=SharedModel(open_model).seat)
    # Behind a port is another account, which may read no more of this one's files than completions show.
    make_server = partial(create_server, load, settings, _SHARED_SETTINGS, may_index=tcp is None)
    sys.exit(serve_many(endpoint, make_server, print_status, max_sessions=sessions, verbose=verbose))
