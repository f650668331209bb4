"""The command `serve`: the language server for one editor, or for any number of them, or the same over HTTP."""

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
from spd_lsp.command_options import Choices, model_options, print_status, setting_option, with_choices
from spd_lsp.commands.ngrams import open_registry
from spd_lsp.completion.loading import load_completer, load_stand_in, prepare
from spd_lsp.config_file import config_path
from spd_lsp.models.checkpoint.hub import absolute_model_name
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
@click.option(
    "--http", metavar="HOST:PORT | unix:PATH", help="Serve the APIs of llama.cpp and OpenAI instead of LSP."
)
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

    settings = dataclasses.replace(choices.settings, model=absolute_model_name(choices.settings.model))
    fixed = {name for name, origin in choices.origins.items() if origin != str(config_path())}
    problems = [f"{problem}; ignored" for problem in choices.problems]
    if (stdio, socket is not None, http is not None).count(True) > 1:
        raise UserError("--stdio, --socket and --http cannot be combined; choose one")
    if metrics is not None and socket is None:
        raise UserError("--metrics belongs to --socket; `serve --http` has /metrics itself")
    if problems and (http is not None or socket is not None):
        print_status("\n".join(problems))
    if http is not None:
        return _serve_http(settings, http, verbose)
    path = None if socket is None else socket_path(socket)
    os.chdir(NEUTRAL_CWD)  # relative entries of a search path must not mean the folder that the user opened
    if path is None:
        if sys.stdin.isatty():
            print_status("waiting for an editor, which starts this command itself; Ctrl+C ends it")
        server = create_server(load_completer, settings, fixed, stand_in=load_stand_in, prepare=prepare)
        server.configuration.problems += problems
        sys.exit(serve_stdio(server, verbose=verbose))
    command = f"spd-lsp connect {path}" if socket else "spd-lsp connect"
    announcement = f"listening at {path}; editors run: {command}"
    return _serve_socket(settings, fixed.union(_SHARED_SETTINGS), path, metrics, announcement, verbose)


def _serve_socket(
    settings: Settings, fixed: Set[str], path: Path, metrics: str | None, announcement: str, verbose: int
) -> None:
    """Serve editors, which share the model and are counted together."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.lsp.server import create_server
    from spd_lsp.lsp.session import Session
    from spd_lsp.lsp.transport.serve import Sessions, SharedModel, serve_many
    from spd_lsp.models.load import load as open_model

    shared = SharedModel(open_model)
    load = partial(load_completer, open_model=shared.seat, open_tokens=lru_cache(ModelTokenizer))
    counted = None
    if metrics is not None:
        from spd_lsp.http.metrics import Metrics

        counted = Metrics()

    def make_server() -> Session:
        server = create_server(load, settings, fixed)
        server.on_answer = counted.note_answer if counted else None
        return server

    editors = Sessions(make_server)
    if metrics is not None and counted is not None:
        counted.watch_sessions(lambda: editors.open)
        announcement += f"\nmetrics at {counted.serve(metrics)}"
    serve_many(path, editors, partial(print_status, announcement), verbose=verbose)


def _serve_http(settings: Settings, address: str, verbose: int) -> None:
    """Load the model, then listen. Relative paths that clients send are in the folder where this was started."""
    from spd_lsp.http.access import listen, parse_address, token_in
    from spd_lsp.http.app import App
    from spd_lsp.http.completions import Completions
    from spd_lsp.http.serve import serve
    from spd_lsp.lsp.transport.access import private_socket, socket_path
    from spd_lsp.output.safe_logging import log_to_stderr

    place = parse_address(address)
    folder = Path.cwd()
    os.chdir(NEUTRAL_CWD)
    log_to_stderr(verbose)
    token, file = token_in(open_registry(settings).folder)
    if isinstance(place, Path):
        wire = private_socket(socket_path(str(place)))
        name = f"unix:{place}"
    else:
        wire = listen(*place)
        host, port = wire.getsockname()[:2]
        name = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    completions = Completions(load_completer(settings, print_status), folder)
    announce = partial(print_status, f"listening at {name}; clients send the token in {file}")
    serve(wire, App(completions, token, Path(settings.model).name), completions, announce)
