"""The command `connect`, and what it shares with `serve`: addresses and the options of a TCP port."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.lsp.transport.addresses import (
    DEFAULT_TCP_ADDRESS,
    HAS_UNIX_SOCKETS,
    TcpAddress,
    default_socket,
    parse_address,
    parse_tcp_address,
)

if TYPE_CHECKING:
    from spd_lsp.lsp.transport.access import Endpoint


def tcp_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of both ends of a TCP connection."""
    unencrypted = click.option(
        "--unencrypted", is_flag=True, help="Allow addresses on a network, where others may read your code."
    )
    file = click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The token that both ends of a port need (default: a file that `serve` creates for the port).",
    )
    return file(unencrypted(command))


def endpoint_for(
    socket: str | None, tcp: str | None, token_file: Path | None, unencrypted: bool
) -> Endpoint | None:
    """Where to listen, in paths that do not depend on the working folder; None for standard input and output."""
    from spd_lsp.lsp.transport.access import SocketEndpoint, TcpEndpoint

    if socket is None and tcp is None:
        return None
    if socket is not None and HAS_UNIX_SOCKETS:
        path = Path(socket).expanduser().absolute() if socket else default_socket()
        return SocketEndpoint(path, is_default=not socket)
    if socket is not None:
        click.echo("Python has no Unix sockets on this system; using a TCP port with a token instead", err=True)
    address = parse_tcp_address(tcp or DEFAULT_TCP_ADDRESS)
    address.check(unencrypted)
    return TcpEndpoint(address, token_file.absolute() if token_file else None)


@click.command()
@click.argument("address", default="", metavar="[PATH | HOST:PORT]")
@tcp_options
@click.option("--check", is_flag=True, help="Only check that the server can be reached.")
def connect(address: str, token_file: Path | None, unencrypted: bool, check: bool) -> None:
    """Connect an editor to a running server.

    That is one started with serve --socket or --tcp; without an address, the one at its default.
    """
    from spd_lsp.lsp.transport.access import connect_to_port, connect_to_socket
    from spd_lsp.lsp.transport.proxy import relay

    where = parse_address(address)
    if isinstance(where, TcpAddress):
        where.check(unencrypted)
        wire = connect_to_port(where, token_file)
    elif HAS_UNIX_SOCKETS:
        wire = connect_to_socket(where)
    else:
        raise UserError(f"Python has no Unix sockets on this system; use HOST:PORT instead of {address!r}")
    if check:
        wire.close()
    elif not relay(wire):
        raise UserError(
            f"the server at {where} ended the connection; start it again, then restart spd-lsp in the editor"
        )
