"""A pool of parser processes: a text that a grammar cannot handle counts as plain lines, and harms nothing.

In: a text in a language. Out: outline parts, or what `cursor_syntax` says of the cursor. Knows no tokens or
editors.
"""

from __future__ import annotations

import atexit
import os
import struct
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import IO, Any

import msgpack  # type: ignore[import-untyped]

from ngram_builders.programs import NEUTRAL_CWD, python
from spd_lsp.completion.syntax.languages import LANGUAGES, Language
from spd_lsp.completion.syntax.name_places import Place
from spd_lsp.completion.syntax.outline import OutlinePart, Role, line_parts

SECONDS = 1.0  # of CPU time for a request; 200,000 characters of code take about a tenth of that
_LENGTH = struct.Struct("<I")
_MAX_IDLE = 2  # processes kept between requests; more run while more requests do
# A process is replaced after this many bytes of requests: tree-sitter's Python binding (0.26.1) never frees what
# it reads through a callback nor what it logs, about as many bytes. Starting another takes 0.1 seconds.
MAX_REQUEST_BYTES = 64_000_000
_DOCUMENT_KEY_LENGTH = 200  # characters at the start that identify a document
_KEPT_OUTLINES = 4
_MAX_COOLDOWNS = 100  # documents
FIRST_COOLDOWN, MAX_COOLDOWN = 16, 4096  # requests for a document that are skipped after a failed one


def send(stream: IO[bytes] | None, message: object) -> int:
    """Write a message; return its length."""
    assert stream is not None
    data = msgpack.packb(message, unicode_errors="surrogatepass")
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()
    return len(data)


def receive(stream: IO[bytes] | None) -> Any:
    """Read the next message; raise EOFError if the other process has ended."""
    assert stream is not None
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    [length] = _LENGTH.unpack(header)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return msgpack.unpackb(data, unicode_errors="surrogatepass")


class ParseFailed(Exception):
    """The parser failed on a text, or reached its limits."""


class _Parser(subprocess.Popen[bytes]):
    """A process that parses."""

    request_bytes = 0  # that it was sent


class ParserPool:
    """Processes that parse. Threads may use them at once; none waits for another's reply."""

    def __init__(self, seconds: float = SECONDS) -> None:
        """`seconds` of CPU time limit each request."""
        self.command = python("spd_lsp.completion.syntax.parser_process", str(seconds))
        self.lock = threading.Lock()
        self.idle: list[_Parser] = []
        self.owner = os.getpid()
        self.cooldowns: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()  # length, what is left

    def request(self, kind: str, language: str, text: str, *arguments: object) -> Any:
        """Return a process's reply. Raise `ParseFailed` if it has none, and for some requests after that."""
        document = language, text[:_DOCUMENT_KEY_LENGTH]
        if self.is_cooling_down(document):
            raise ParseFailed
        try:
            reply = self.exchange([kind, language, *arguments])
        except (EOFError, OSError):
            reply = []
        if not reply:
            self.start_cooldown(document)
            raise ParseFailed
        return reply[0]

    def exchange(self, request: Sequence[object]) -> Any:
        """Send a request and return the reply; EOFError if a limit ended the process, OSError if none starts."""
        process = self.acquire()
        try:
            process.request_bytes += send(process.stdin, request)
            reply = receive(process.stdout)
        except BaseException:
            _end_process(process)  # a late reply would pass for that of the next request
            raise
        self.release(process)
        return reply

    def start(self) -> None:
        """Start a process ahead of the first request."""
        self.release(self.acquire())

    def acquire(self) -> _Parser:
        """Return an idle process, or a new one."""
        with self.lock:
            if self.owner != os.getpid():  # after a fork they are the parent's
                self.idle = []
                self.owner = os.getpid()
            while self.idle:
                if (process := self.idle.pop()).poll() is None:
                    return process
                _end_process(process)
        return _Parser(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=NEUTRAL_CWD,
            bufsize=-1,
        )

    def release(self, process: _Parser) -> None:
        """Keep a process for the next request, unless there are enough, or a new one in place of a worn one."""
        if process.request_bytes > MAX_REQUEST_BYTES:
            _end_process(process)
            process = self.acquire()
        with self.lock:
            if len(self.idle) < _MAX_IDLE:
                self.idle.append(process)
                return
        _end_process(process)

    def is_cooling_down(self, document: tuple[str, str]) -> bool:
        """Whether to skip a request for a document; each one shortens its cooldown."""
        with self.lock:
            rest, left = self.cooldowns.get(document, (0, 0))
            if left:
                self.cooldowns[document] = rest, left - 1
            return left > 0

    def start_cooldown(self, document: tuple[str, str]) -> None:
        """Skip the next requests for a document, twice as many each time it fails."""
        with self.lock:
            rest = min(MAX_COOLDOWN, 2 * self.cooldowns.pop(document, (FIRST_COOLDOWN // 2, 0))[0])
            self.cooldowns[document] = rest, rest
            if len(self.cooldowns) > _MAX_COOLDOWNS:
                self.cooldowns.popitem(last=False)

    def close(self) -> None:
        """End the idle processes."""
        with self.lock:
            idle = self.idle if self.owner == os.getpid() else []
            self.idle = []
        for process in idle:
            _end_process(process)


def _end_process(process: _Parser) -> None:
    """Kill a process and close its pipes."""
    process.kill()
    for pipe in (process.stdout, process.stdin):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:  # unsent data
            pass
    process.wait()


PARSER_POOL = ParserPool()
_NAMES = {id(language): name for name, language in LANGUAGES.items()}
atexit.register(PARSER_POOL.close)


def _ask(kind: str, language: Language, text: str, *arguments: object, otherwise: Any) -> Any:
    """The reply about a text, or something else if the parser fails."""
    try:
        return PARSER_POOL.request(kind, _NAMES[id(language)], text, *arguments)
    except ParseFailed:
        return otherwise


def request_outline(language: Language | None, above: Sequence[str], below: Sequence[str]) -> list[OutlinePart]:
    """Return `outline.build_outline` of the text, or one part per line if the parser fails."""
    lines = (*above, *below)
    gap = len(above)
    try:
        if language is None:
            raise ParseFailed
        return list(_parsed_outline(_NAMES[id(language)], lines, gap))
    except ParseFailed:
        return list(line_parts(range(len(lines)), gap))


@lru_cache(_KEPT_OUTLINES)
def _parsed_outline(language: str, lines: tuple[str, ...], gap: int) -> tuple[OutlinePart, ...]:
    """The outline by a parser; while a line is typed, the text around it is the same again and again."""
    start = "".join(lines[:_DOCUMENT_KEY_LENGTH])
    parts = PARSER_POOL.request("outline", language, start, lines, gap)
    return tuple(OutlinePart(Role(role), distance, tuple(rows)) for role, distance, rows in parts)


def request_begins_body(language: Language, text: str, indent: str) -> bool | None:
    """Return `cursor_syntax.begins_body` of the text, or None if the parser fails."""
    verdict: bool | None = _ask("body", language, text, text, indent, otherwise=None)
    return verdict


def request_could_follow(
    language: Language, source: str, cursor: int, drafts: Sequence[str], most: int
) -> list[bool]:
    """Return `cursor_syntax.could_follow` of drafts, or True for the first ones if the parser fails."""
    first = [number < most for number in range(len(drafts))]
    verdicts: list[bool] = _ask("drafts", language, source, source, cursor, drafts, most, otherwise=first)
    return verdicts


def request_name_places(language: Language, text: str, spans: Sequence[tuple[int, int]]) -> list[Place] | None:
    """Return `name_places.name_places` of the text, or None if the parser fails."""
    places = _ask("names", language, text, text, spans, otherwise=None)
    if places is None:
        return None
    return [Place(role, bound, callee, tuple(map(tuple, scopes))) for role, bound, callee, scopes in places]
