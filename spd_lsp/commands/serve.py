"""The command `serve`: the language server for one editor or several, or completions over HTTP."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Set
from functools import lru_cache, partial
from pathlib import Path

import click

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD
from spd_lsp.command_options import (
    Choices,
    config_path,
    model_options,
    open_registry,
    print_status,
    setting_option,
    with_choices,
)
from spd_lsp.completion.loading import load_completer
from spd_lsp.models.hub import absolute_model_name
from spd_lsp.settings import Settings

_SHARED_SETTINGS = ("model", "device", "threads", "data_dir")  # which editors of a shared server cannot change


@click.command()
@model_options
@setting_option("--decoder")
@click.option("--stdio", is_flag=True, help="Use standard input and output (the default).")
@click.option(
    "--socket",
    metavar="[PATH]",
    is_flag=False,
    flag_value="",
    help="Listen on a Unix socket that only you can access. Editors share one model.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics. Requires --socket.")
@click.option("--http", metavar="HOST:PORT", help="Serve the APIs of llama.cpp and OpenAI instead of LSP.")
@click.option("-v", "--verbose", count=True, help="Log more to standard error. Logs never contain code.")
@with_choices
def serve(
    choices: Choices, stdio: bool, socket: str | None, metrics: str | None, http: str | None, verbose: int
) -> None:
    """Run the language server.

    Editors start this command.
    """
    from spd_lsp.lsp.server import create_server
    from spd_lsp.lsp.transport.access import socket_path
    from spd_lsp.lsp.transport.serve import serve_stdio

    if (stdio, socket is not None, http is not None).count(True) > 1:
        raise UserError("--stdio, --socket and --http cannot be combined; choose one")
    if metrics is not None and socket is None:
        raise UserError("--metrics belongs to --socket")
    settings = dataclasses.replace(choices.settings, model=absolute_model_name(choices.settings.model))
    fixed = {name for name, origin in choices.origins.items() if origin != str(config_path())}
    problems = [f"{problem}; ignored" for problem in choices.problems]
    if problems and (http is not None or socket is not None):
        print_status("\n".join(problems))
    if http is not None:
        return _serve_http(settings, http, verbose)
    path = None if socket is None else socket_path(socket)
    os.chdir(NEUTRAL_CWD)  # relative entries of a search path must not mean the folder that the user opened
    if path is None:
        if sys.stdin.isatty():
            print_status("waiting for an editor, which starts this command itself; Ctrl+C ends it")
        server = create_server(load_completer, settings, fixed)
        server.configuration.problems += problems
        serve_stdio(server, verbose=verbose)
    command = f"spd-lsp connect {path}" if socket else "spd-lsp connect"
    announcement = f"listening at {path}; editors run: {command}"
    return _serve_socket(settings, fixed.union(_SHARED_SETTINGS), path, metrics, announcement, verbose)


def _serve_socket(
    settings: Settings, fixed: Set[str], path: Path, metrics: str | None, announcement: str, verbose: int
) -> None:
    """Serve editors, which share the model and are counted together."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.lsp.server import create_server
    from spd_lsp.lsp.transport.serve import Sessions, SharedModel
    from spd_lsp.models.load import load as open_model

    shared = SharedModel(open_model)
    load = partial(load_completer, open_model=shared.seat, open_tokens=lru_cache(ModelTokenizer))
    editors = Sessions(lambda: create_server(load, settings, fixed))
    if metrics is not None:
        from spd_lsp.lsp.transport.metrics import note_answer, serve_metrics

        editors.on_answer = note_answer
        announcement += f"\nmetrics at {serve_metrics(metrics, lambda: editors.open)}"
    editors.serve(path, partial(print_status, announcement), verbose=verbose)


def _serve_http(settings: Settings, address: str, verbose: int) -> None:
    """Load the model, then listen. Relative paths that clients send are in the folder where this was started."""
    from spd_lsp.http.access import token_in
    from spd_lsp.http.app import make_app, serve
    from spd_lsp.http.completions import Completions
    from spd_lsp.lsp.transport.access import loopback_socket, parse_address
    from spd_lsp.output.safe_logging import log_to_stderr

    host, port = parse_address(address)
    folder = Path.cwd()
    os.chdir(NEUTRAL_CWD)
    log_to_stderr(verbose)
    token, file = token_in(open_registry(settings).folder)
    wire = loopback_socket(host, port)
    port = wire.getsockname()[1]  # chosen by the system, where 0 was named
    name = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    completions = Completions(load_completer(settings, print_status), folder)
    print_status(f"listening at {name}; clients send the token in {file}")
    serve(wire, make_app(completions, token, Path(settings.model).name))
