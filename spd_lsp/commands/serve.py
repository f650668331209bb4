"""The command `serve`: the language server for one editor, or for any number of them, or the same over HTTP."""

from __future__ import annotations

import dataclasses
import sys
from functools import lru_cache, partial
from pathlib import Path

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_options, print_status
from spd_lsp.completion.loading import load_completer, load_stand_in, open_model, prepare
from spd_lsp.models.checkpoint.hub import absolute_model_name
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
    "--sessions", type=click.IntRange(1), default=64, show_default=True, help="Maximum number of editors."
)
@click.option(
    "--metrics",
    metavar="ADDRESS",
    help="With --socket: serve Prometheus's /metrics, and /health, at an address such as 127.0.0.1:9300.",
)
@click.option(
    "--http",
    metavar="ADDRESS",
    help="Speak HTTP instead of LSP: llama.cpp's /infill and OpenAI's /v1/completions, at an address such as "
    "127.0.0.1:8012, or unix:PATH.",
)
@click.option("-v", "--verbose", count=True, help="Log more to standard error; never code.")
@click.pass_obj
def serve(
    settings: Settings,
    model: str,
    device: str,
    stdio: bool,
    socket: str | None,
    sessions: int,
    metrics: str | None,
    http: str | None,
    verbose: int,
) -> None:
    """Run the language server. Editors start it."""
    from spd_lsp.lsp.features import create_server
    from spd_lsp.lsp.transport.access import socket_path
    from spd_lsp.lsp.transport.serve import serve_stdio

    settings = dataclasses.replace(settings, model=absolute_model_name(model), device=device)
    if (stdio, socket is not None, http is not None).count(True) > 1:
        raise UserError("--stdio, --socket and --http cannot be combined; choose one")
    if metrics is not None and socket is None:
        raise UserError("--metrics belongs to --socket; `serve --http` has /metrics itself")
    if http is not None:
        return _serve_http(settings, http, verbose)
    path = None if socket is None else socket_path(socket)
    leave_working_folder()
    if path is None:
        server = create_server(load_completer, settings, stand_in=load_stand_in, prepare=prepare)
        sys.exit(serve_stdio(server, verbose=verbose))
    command = f"spd-lsp connect {path}" if socket else "spd-lsp connect"
    announcement = f"listening at {path}; editors run: {command}"
    return _serve_socket(settings, path, sessions, metrics, announcement, verbose)


def _serve_socket(
    settings: Settings, path: Path, sessions: int, metrics: str | None, announcement: str, verbose: int
) -> None:
    """Serve editors, which share the model and are counted together."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.http.metrics import Metrics, resident_bytes, serve_metrics
    from spd_lsp.lsp.features import create_server
    from spd_lsp.lsp.server import SpdServer
    from spd_lsp.lsp.transport.serve import Sessions, SharedModel, serve_many

    shared = SharedModel(open_model)
    load = partial(load_completer, open_model=shared.seat, open_tokens=lru_cache(ModelTokenizer))
    counted = Metrics()

    def make_server() -> SpdServer:
        server = create_server(load, settings, _SHARED_SETTINGS)
        server.on_answer = counted.note_answer
        return server

    editors = Sessions(make_server, sessions, shared.release_memory)
    counted.gauges |= {"spd_lsp_sessions": lambda: editors.open, "spd_lsp_resident_bytes": resident_bytes}
    if metrics is not None:
        announcement += f"\nmetrics at {serve_metrics(metrics, counted, editors.are_answered)}/metrics"
    serve_many(path, editors, partial(print_status, announcement), verbose=verbose)


def _serve_http(settings: Settings, address: str, verbose: int) -> None:
    """Load the model, then listen. Relative paths that clients send are in the folder where this was started."""
    from ngram_builders.registry.registry import Registry
    from spd_lsp.http.access import listen, parse_address, token_in
    from spd_lsp.http.app import App
    from spd_lsp.http.completions import CompletionThread
    from spd_lsp.http.serve import serve
    from spd_lsp.lsp.transport.access import private_socket, socket_path
    from spd_lsp.output.safe_logging import log_to_stderr

    place = parse_address(address)
    folder = Path.cwd()
    leave_working_folder()
    log_to_stderr(verbose)
    token, file = token_in(Registry(Path(settings.data_dir) if settings.data_dir else None).folder)
    if isinstance(place, Path):
        wire = private_socket(socket_path(str(place)))
        name = f"unix:{place}"
    else:
        wire = listen(*place)
        host, port = wire.getsockname()[:2]
        name = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    completions = CompletionThread(load_completer(settings, print_status), folder)
    announce = partial(print_status, f"listening at {name}; clients send the token in {file}")
    serve(wire, App(completions, token, Path(settings.model).name), completions, announce)
