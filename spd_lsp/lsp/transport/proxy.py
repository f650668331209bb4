"""Standard input and output, carried to a server elsewhere and back, for editors that start a program.

Knows nothing of what passes.
"""

from __future__ import annotations

import os
import socket
import threading

_AT_ONCE = 65536  # bytes


def carry(wire: socket.socket) -> None:
    """Carry bytes both ways until one end closes."""
    with wire:
        threading.Thread(target=_upload, args=(wire,), daemon=True).start()
        download(wire)


def _upload(wire: socket.socket) -> None:
    """What the editor writes, to the server."""
    try:
        while data := os.read(0, _AT_ONCE):
            wire.sendall(data)
        wire.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server is gone, and the other direction ends with it


def download(wire: socket.socket) -> None:
    """What the server writes, to the editor."""
    try:
        while data := wire.recv(_AT_ONCE):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(1, rest) :]
    except OSError:
        pass  # one of the two is gone
