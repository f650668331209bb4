"""The parser process: requests come in on standard input, replies go out on standard output.

Crafted text can make a grammar's C code run for hours, exhaust memory or overflow the stack. That ends this
process at limits that the system enforces, and costs no completion: `parsing` starts another one.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

import msgpack  # type: ignore[import-untyped]

from spd_lsp.completion.bodies import begins_body
from spd_lsp.completion.languages import LANGUAGES, ParserBudgetExceeded
from spd_lsp.completion.syntax_outline import build_outline

SECONDS = 1.0  # of processor time for one question; 200,000 characters of code take about a tenth of that
PATIENCE = 10.0  # seconds where a system cannot measure that
MEMORY = 1 << 30  # bytes
_LENGTH = struct.Struct("<I")


def _outline_parts(language: str, lines: Sequence[str], gap: int) -> list[Any]:
    """The parts of lines around a gap, as lists."""
    parts = build_outline(LANGUAGES[language], lines[:gap], lines[gap:])
    return [(int(part.role), part.distance, part.rows) for part in parts]


def _body_verdict(language: str, text: str, indent: str) -> bool | None:
    """Whether a body begins at the end of a text."""
    return begins_body(LANGUAGES[language], text, indent)


_ANSWERS: dict[str, Callable[..., Any]] = {"outline": _outline_parts, "body": _body_verdict}


def send(stream: IO[bytes] | None, message: object) -> None:
    """One message."""
    assert stream is not None
    data = msgpack.packb(message, unicode_errors="surrogatepass")
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes] | None) -> Any:
    """The next message; EOFError where the other side has ended."""
    assert stream is not None
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    [length] = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return msgpack.unpackb(data, unicode_errors="surrogatepass")


def main(seconds: float) -> None:
    """Answer until nobody asks any more; a question may take so much processor time."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints cannot break an answer
    _limit_process()
    while True:
        try:
            kind, *question = receive(sys.stdin.buffer)
        except EOFError:
            return
        _limit_time(seconds)
        try:
            answer = [_ANSWERS[kind](*question)]
        except (ParserBudgetExceeded, RecursionError, MemoryError):
            answer = []
        _limit_time(0)
        send(answers, answer)


def _limit_process() -> None:
    """Take no more memory than syntax needs, and leave nothing behind: a core dump would hold a person's code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    if sys.platform != "win32":
        import resource

        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        if most == resource.RLIM_INFINITY or most > MEMORY:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, most))


def _limit_time(seconds: float) -> None:
    """Have the system end this process after so long; 0 calls it off."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)
    elif seconds:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(float(sys.argv[1]))
