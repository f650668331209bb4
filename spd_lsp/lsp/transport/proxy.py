"""A proxy between standard input and output and a server's connection, for editors that start a command."""

from __future__ import annotations

import os
import socket
import threading

_CHUNK_BYTES = 65536


def relay(wire: socket.socket) -> None:
    """Copy bytes both ways until one end closes."""
    with wire:
        threading.Thread(target=_upload, args=(wire,), daemon=True).start()
        download(wire)


def _upload(wire: socket.socket) -> None:
    """Copy from the editor to the server."""
    try:
        while data := os.read(0, _CHUNK_BYTES):
            wire.sendall(data)
        wire.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server has left, which ends the other direction, too


def download(wire: socket.socket) -> None:
    """Copy from the server to the editor."""
    try:
        while data := wire.recv(_CHUNK_BYTES):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(1, rest) :]
    except OSError:
        pass  # one of the two has left
