"""A proxy between standard input and output and a server's connection, for editors that start a command."""

from __future__ import annotations

import os
import re
import socket
import threading

_CHUNK_BYTES = 65536
_EXIT = re.compile(rb'"method"\s*:\s*"exit"')
_EXIT_BYTES = 100  # of the message, which may come in two chunks


def relay(wire: socket.socket) -> bool:
    """Copy bytes both ways until one end closes; whether the editor wanted the end."""
    editor_leaves = threading.Event()
    with wire:
        threading.Thread(target=_upload, args=(wire, editor_leaves), daemon=True).start()
        return not _download(wire) or editor_leaves.is_set()


def _upload(wire: socket.socket, editor_leaves: threading.Event) -> None:
    """Copy from the editor to the server; the event is set once the editor says `exit` or closes its end."""
    last = b""
    try:
        while data := os.read(0, _CHUNK_BYTES):
            last = last[-_EXIT_BYTES:] + data
            if _EXIT.search(last, max(0, len(last) - 2 * _EXIT_BYTES)):
                editor_leaves.set()
            wire.sendall(data)
        editor_leaves.set()
        wire.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server has left, which ends the other direction, too


def _download(wire: socket.socket) -> bool:
    """Copy from the server to the editor; whether the server has closed its end, rather than the editor."""
    while data := _receive(wire):
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(1, rest) :]
        except OSError:
            return False
    return True


def _receive(wire: socket.socket) -> bytes:
    """What the server sends, nothing once it has left."""
    try:
        return wire.recv(_CHUNK_BYTES)
    except OSError:
        return b""
