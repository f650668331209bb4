"""`spd-lsp connect`, and the options that it shares with the server that it reaches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.lsp.transport.addresses import (
    DEFAULT_PORT,
    UNIX_SOCKETS,
    Port,
    default_socket,
    parse_port,
    read_address,
)

if TYPE_CHECKING:
    from spd_lsp.lsp.transport.access import Door


def token_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of both ends of a port."""
    unencrypted = click.option("--unencrypted", is_flag=True, help="Go through a network that can read the code.")
    file = click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="What both ends of a port must have (default: a file of that port, made by serve).",
    )
    return file(unencrypted(command))


def door_at(socket: str | None, tcp: str | None, token_file: Path | None, unencrypted: bool) -> Door | None:
    """Where editors come in, wherever this process works later; None for the one that starts it."""
    from spd_lsp.lsp.transport.access import PortDoor, SocketDoor

    if socket is None and tcp is None:
        return None
    if socket is not None and UNIX_SOCKETS:
        return SocketDoor(
            Path(socket).expanduser().absolute() if socket else default_socket(), is_default=not socket
        )
    if socket is not None:
        click.echo("Python has no Unix sockets on this system: a port with a token takes their place", err=True)
    port = parse_port(tcp or DEFAULT_PORT)
    port.check(unencrypted)
    return PortDoor(port, token_file.absolute() if token_file else None)


@click.command()
@click.argument("address", default="", metavar="[PATH | HOST:PORT]")
@token_options
@click.option("--check", is_flag=True, help="Only say whether it can be reached.")
def connect(address: str, token_file: Path | None, unencrypted: bool, check: bool) -> None:
    """Join the editor that starts this to a server that runs already (serve --socket or --tcp)."""
    from spd_lsp.lsp.transport.access import join_port, join_socket
    from spd_lsp.lsp.transport.proxy import carry

    where = read_address(address)
    if isinstance(where, Port):
        where.check(unencrypted)
        wire = join_port(where, token_file)
    elif UNIX_SOCKETS:
        wire = join_socket(where)
    else:
        raise UserError(f"expected HOST:PORT, found {address!r}: Python has no Unix sockets on this system")
    if check:
        wire.close()
    else:
        carry(wire)
