"""Syntax, asked of another process: a text that its parser cannot bear is taken as plain lines, and harms nothing.

In: lines or a text, in a language. Out: parts, or whether a body begins. Knows no cursor, no tokens and no editor.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ngram_builders.programs import AWAY, python
from spd_lsp.completion.languages import LANGUAGES, Language
from spd_lsp.completion.parser_process import SECONDS, receive, send
from spd_lsp.completion.syntax_outline import Part, Role, line_parts

_IDLE = 2  # processes that wait for questions; more run while more are asked at once
_START = 200  # characters that tell one document from another
_REMEMBERED = 100  # documents
FIRST_COOLDOWN, MAX_COOLDOWN = 16, 4096  # questions about a document that are not asked after one was too hard


class ParseFailed(Exception):
    """The text is too hard for the parser."""


class ParserPool:
    """Processes that read syntax. Several threads may ask at once, and none waits for another's answer."""

    def __init__(self, seconds: float = SECONDS) -> None:
        """seconds: of processor time for one question."""
        self.command = python("spd_lsp.completion.parser_process", str(seconds))
        self.lock = threading.Lock()
        self.idle: list[subprocess.Popen[bytes]] = []
        self.owner = os.getpid()
        self.rests: OrderedDict[tuple[str, str], tuple[int, int]] = (
            OrderedDict()
        )  # the last one, what is left of it

    def ask(self, kind: str, language: str, text: str, *question: object) -> Any:
        """The answer of a process; `ParseFailed` where it has none, and for a while after that."""
        document = language, text[:_START]
        if self.rests_now(document):
            raise ParseFailed
        try:
            answer = self.answer([kind, language, *question])
        except (EOFError, OSError):
            answer = []
        if not answer:
            self.let_rest(document)
            raise ParseFailed
        return answer[0]

    def answer(self, question: Sequence[object]) -> Any:
        """What a process says; EOFError where it came to its limits, OSError where none can be started."""
        process = self.take()
        try:
            send(process.stdin, question)
            answer = receive(process.stdout)
        except BaseException:
            end(process)  # a late answer would be taken for that of the next question
            raise
        self.give_back(process)
        return answer

    def start(self) -> None:
        """Have a process at hand when the first question comes."""
        self.give_back(self.take())

    def take(self) -> subprocess.Popen[bytes]:
        """A process that waits for a question."""
        with self.lock:
            if self.owner != os.getpid():  # those of the process that forked this one
                self.idle, self.owner = [], os.getpid()
            while self.idle:
                if (process := self.idle.pop()).poll() is None:
                    return process
                end(process)
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=AWAY,
            bufsize=-1,
        )

    def give_back(self, process: subprocess.Popen[bytes]) -> None:
        """Keep a process for the next question, if there are not enough."""
        with self.lock:
            if len(self.idle) < _IDLE:
                self.idle.append(process)
                return
        end(process)

    def rests_now(self, document: tuple[str, str]) -> bool:
        """Whether to ask nothing about a document; each such question shortens its rest."""
        with self.lock:
            rest, left = self.rests.get(document, (0, 0))
            if left:
                self.rests[document] = rest, left - 1
            return left > 0

    def let_rest(self, document: tuple[str, str]) -> None:
        """Ask nothing about a document for a while, and twice as long when it happens again."""
        with self.lock:
            rest = min(MAX_COOLDOWN, 2 * self.rests.pop(document, (FIRST_COOLDOWN // 2, 0))[0])
            self.rests[document] = rest, rest
            if len(self.rests) > _REMEMBERED:
                self.rests.popitem(last=False)

    def close(self) -> None:
        """End the processes that wait."""
        with self.lock:
            idle, self.idle = (self.idle if self.owner == os.getpid() else []), []
        for process in idle:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and forget what was on its way to it."""
    process.kill()
    for pipe in (process.stdout, process.stdin):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:  # what could not be sent
            pass
    process.wait()


PARSER_POOL = ParserPool()
_NAMES = {id(language): name for name, language in LANGUAGES.items()}
atexit.register(PARSER_POOL.close)


def request_outline(language: Language | None, above: Sequence[str], below: Sequence[str]) -> list[Part]:
    """As `outline.outline`; as plain lines where the text is too hard."""
    lines, gap = [*above, *below], len(above)
    try:
        if language is None:
            raise ParseFailed
        found = PARSER_POOL.ask("outline", _NAMES[id(language)], "".join(lines[:_START]), lines, gap)
    except ParseFailed:
        return list(line_parts(range(len(lines)), gap))
    return [Part(Role(role), distance, tuple(rows)) for role, distance, rows in found]


def request_begins_body(language: Language, text: str, indent: str) -> bool | None:
    """As `bodies.begins_body`; None where the text is too hard."""
    try:
        verdict: bool | None = PARSER_POOL.ask("body", _NAMES[id(language)], text, text, indent)
    except ParseFailed:
        return None
    return verdict
