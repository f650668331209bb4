"""The parser process: reads requests from standard input and writes replies to standard output.

Crafted text can make a grammar's C code run for hours, exhaust memory or overflow the stack. Limits that the
system enforces then end this process, no completion is lost, and `parsing` starts another one.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from spd_lsp.completion.syntax.cursor_syntax import begins_body, could_follow
from spd_lsp.completion.syntax.languages import LANGUAGES, Language, ParserBudgetExceeded
from spd_lsp.completion.syntax.name_places import name_places
from spd_lsp.completion.syntax.outline import build_outline
from spd_lsp.completion.syntax.parsing import receive, send

_MAX_WALL_SECONDS = 10.0  # for a request, on systems that cannot limit CPU time
_MAX_MEMORY_BYTES = 1 << 30


def _outline_parts(language: Language, lines: Sequence[str], gap: int) -> list[Any]:
    """Return the outline of the lines around a gap as plain tuples."""
    parts = build_outline(language, lines[:gap], lines[gap:])
    return [(int(part.role), part.distance, part.rows) for part in parts]


_HANDLERS: dict[str, Callable[..., Any]] = {
    "outline": _outline_parts,
    "body": begins_body,
    "drafts": could_follow,
    "names": name_places,
}


def main(seconds: float) -> None:
    """Reply to requests until standard input ends; `seconds` of CPU time limit each."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # stray prints cannot corrupt a reply
    _limit_process()
    while True:
        try:
            kind, language, *arguments = receive(sys.stdin.buffer)
        except EOFError:
            return
        _limit_time(seconds)
        try:
            reply = [_HANDLERS[kind](LANGUAGES[language], *arguments)]
        except (ParserBudgetExceeded, RecursionError, MemoryError):
            reply = []
        _limit_time(0)
        send(replies, reply)


def _limit_process() -> None:
    """Limit this process's memory, and disable core dumps, which would contain the user's code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    if sys.platform != "win32":
        import resource

        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard_limit == resource.RLIM_INFINITY or hard_limit > _MAX_MEMORY_BYTES:
            resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, hard_limit))


def _limit_time(seconds: float) -> None:
    """Have the system end this process after this many seconds; 0 removes the limit."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)
    elif seconds:
        faulthandler.dump_traceback_later(_MAX_WALL_SECONDS, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(float(sys.argv[1]))
