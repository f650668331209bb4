"""The command `connect`: standard input and output of an editor to a server that several editors share."""

from __future__ import annotations

import click

from ngram_builders.errors import UserError


@click.command()
@click.argument("path", default="", metavar="[PATH]")
@click.option("--check", is_flag=True, help="Only check whether the server is reachable.")
def connect(path: str, check: bool) -> None:
    """Connect an editor to a shared server.

    PATH is the Unix socket of `spd-lsp serve --socket`. An editor on another machine runs
    `ssh HOST spd-lsp connect`.
    """
    from spd_lsp.lsp.transport.access import connect_to_socket, relay, socket_path

    where = socket_path(path)
    wire = connect_to_socket(where)
    if check:
        wire.close()
    elif not relay(wire):
        raise UserError(
            f"the server at {where} closed the connection; start it again, then restart spd-lsp in the editor"
        )
