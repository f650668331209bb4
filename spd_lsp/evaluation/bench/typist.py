"""Someone who types real code in an editor, key by key in real time, and accepts what is right.

In: a server, and a file with a part left out, which is typed. Out: what was answered, when, and what it was worth.
Lines are indented by the editor, as editors do: Enter and what follows it on the next line are one key.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spd_lsp.evaluation.bench.server_client import ServerClient

_PAUSES = 0.1  # of all keys
_LEAST_ACCEPTED = 3  # characters; whoever needs fewer types them
_LINE_END = re.compile(r"\n[ \t]*")
_WORD = re.compile(r"(?<!\w)\w+\Z")
_WORD_OR_DOT = re.compile(r"(\w{3}|\.)$")


@dataclass(frozen=True, slots=True)
class AskingEditor:
    """When and what an editor asks while someone types."""

    name: str
    method: str
    context: dict[str, int]
    delay: float  # seconds without a key before it asks
    wants: Callable[[str], bool] = lambda before: True  # from the text left of the cursor
    pace: tuple[float, float] = (0.08, 0.2)  # seconds a key
    pause: float = 0.5  # seconds more before a new line, and now and then
    accepts: bool = True  # whoever types on shows at how many places something is shown


EDITORS = (
    AskingEditor("VS Code", "textDocument/inlineCompletion", {"triggerKind": 2}, 0.05),
    AskingEditor("Neovim", "textDocument/inlineCompletion", {"triggerKind": 2}, 0.2),
    AskingEditor(
        "Emacs",
        "textDocument/completion",
        {"triggerKind": 1},
        0.2,
        lambda before: bool(_WORD_OR_DOT.search(before)),
    ),
    AskingEditor(
        "VS Code, nothing accepted",
        "textDocument/inlineCompletion",
        {"triggerKind": 2},
        0.05,
        pace=(0.11, 0.11),
        pause=0.29,
        accepts=False,
    ),
)


@dataclass(slots=True)
class TypingRecord:
    """What happened."""

    keys: int = 0
    saved: int = 0  # keys, by what was accepted
    asked: int = 0
    seconds: list[float] = field(default_factory=list)  # from each key to its answer
    without_pass: int = 0
    shown: int = 0
    pauses: int = 0
    shown_in_pauses: int = 0
    usable: int = 0  # one of the drafts is what comes next
    wrong: int = 0  # no draft begins with the next key
    agreed: int = 0  # keys that the first draft had foreseen
    flickers: int = 0  # of these: another first draft, or none, stood there afterwards
    accepted: int = 0


class Typist:
    """One file in one editor."""

    def __init__(
        self,
        server: ServerClient,
        editor: AskingEditor,
        document: tuple[str, str],
        record: TypingRecord,
        seed: int,
        *,
        waits: bool = False,
    ) -> None:
        """`document`: URI and language id. `waits`: for every answer, and types without pauses."""
        self._server = server
        self._editor = editor
        self._uri, self._language = document
        self._record = record
        self._waits = waits
        self._chance = random.Random(seed)
        self._before = ""  # the text left of the cursor
        self._version = 1
        self._drafts: list[str] = []  # that are shown
        self._foreseen = ""  # what the first of them went on with after the last key

    async def type(self, before: str, text: str, after: str, keys: int) -> None:
        """Open the file without a part of it, and type that part, at most this many keys."""
        item = {"uri": self._uri, "languageId": self._language, "version": 1, "text": before + after}
        self._server.notify("textDocument/didOpen", {"textDocument": item})
        self._before = before
        self._drafts = []
        written = 0
        last = self._record.keys + keys
        await self._server.request(self._editor.method, self._place)  # whoever opens a file reads it first
        while written < len(text) and self._record.keys < last:
            key = self._next_key(text[written:])
            self._press(key)
            written += len(key)
            await self._wait_for_answer(text[written:])
        self._server.notify("textDocument/didClose", {"textDocument": {"uri": self._uri}})

    @property
    def _position(self) -> dict[str, int]:
        lines = self._before.split("\n")
        return {"line": len(lines) - 1, "character": len(lines[-1])}

    @property
    def _place(self) -> dict[str, Any]:
        """What a request is about."""
        document = {"uri": self._uri}
        return {"textDocument": document, "position": self._position, "context": self._editor.context}

    def _next_key(self, rest: str) -> str:
        """What the next key writes: a draft that is right, a character, or a line end with its indentation."""
        right = [draft for draft in self._drafts if rest.startswith(draft) and len(draft) >= _LEAST_ACCEPTED]
        if right and self._editor.accepts:
            self._record.accepted += 1
            return max(right, key=len)
        line_end = _LINE_END.match(rest)
        return line_end[0] if line_end else rest[0]

    def _press(self, key: str) -> None:
        """Write it; the editor keeps what it goes on with of the drafts."""
        position = self._position
        self._version += 1
        self._server.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": self._uri, "version": self._version},
                "contentChanges": [{"range": {"start": position, "end": position}, "text": key}],
            },
        )
        self._record.keys += 1
        self._record.saved += len(_LINE_END.sub("\n", key)) - 1
        self._before += key
        first = self._drafts[0] if self._drafts else ""
        self._foreseen = first[len(key) :] if first.startswith(key) else ""
        self._drafts = [draft[len(key) :] for draft in self._drafts if draft.startswith(key)]

    async def _wait_for_answer(self, rest: str) -> None:
        """Ask as the editor does; take the answer if it comes before the next key."""
        pressed = time.monotonic()
        pauses = self._chance.random() < _PAUSES or rest.startswith("\n")
        self._record.pauses += pauses
        seconds = self._chance.uniform(*self._editor.pace) + pauses * self._editor.pause
        if seconds > self._editor.delay and self._editor.wants(self._before):
            await asyncio.sleep(0 if self._waits else self._editor.delay)
            number, answer = self._server.send_request(self._editor.method, self._place)
            self._record.asked += 1
            left = None if self._waits else pressed + seconds - time.monotonic()
            await asyncio.wait([answer], timeout=left)
            if answer.done():
                self._record.seconds.append(time.monotonic() - pressed)
                word = len(self._before) - len(_WORD.sub("", self._before))
                await self._show(_texts(answer.result(), word), rest)
                self._record.shown_in_pauses += pauses and bool(self._drafts)
            else:
                self._server.notify("$/cancelRequest", {"id": number})
        await asyncio.sleep(0 if self._waits else pressed + seconds - time.monotonic())

    async def _show(self, drafts: list[str], rest: str) -> None:
        """Show an answer, and note what it is worth before `rest` is typed."""
        record = self._record
        if self._foreseen:
            record.agreed += 1
            pairs = [(drafts[0], self._foreseen), (self._foreseen, drafts[0])] if drafts else []
            record.flickers += not any(one.startswith(other) for one, other in pairs)
        self._drafts = drafts
        if drafts:
            record.shown += 1
            record.usable += any(rest.startswith(draft) for draft in drafts)
            record.wrong += not any(draft[0] == rest[:1] for draft in drafts)
            record.without_pass += (await self._server.request("spd-lsp/status"))["lastPasses"] == 0


def _texts(answer: Any, word: int) -> list[str]:
    """What the items of an answer insert at the cursor; menus replace the word before it, which is that long."""
    items = (answer or {}).get("items", [])
    texts = [item["insertText"] if "insertText" in item else item["textEdit"]["newText"][word:] for item in items]
    return [text for text in texts if text]
