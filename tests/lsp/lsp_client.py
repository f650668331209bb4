"""A minimal editor for tests that speaks raw JSON-RPC, so that it can also send what a typed client cannot."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion
from spd_lsp.lsp.server import create_server
from spd_lsp.lsp.session import Session
from spd_lsp.lsp.transport.serve import session as serve
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.settings import Settings
from tests.processes import TIMEOUT

MENU = {"textDocument": {"completion": {"completionItem": {"documentationFormat": ["markdown"]}}}}
URI = "file:///code/app.py"


class RpcError(Exception):
    """The server answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]
        self.data = error.get("data")


async def until(condition: Callable[[], Any]) -> Any:
    """Poll until the condition holds and return its value."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT
    while not (value := condition()):
        assert asyncio.get_running_loop().time() < deadline, "timed out"
        await asyncio.sleep(0.005)
    return value


def frame(message: Any) -> bytes:
    """A message as it goes over the wire."""
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


class Editor:
    """One end of a connection: requests, notifications, and what came back."""

    server: Session  # at the other end, if it runs in the same event loop

    def __init__(self, reader: asyncio.StreamReader, writer: Any) -> None:
        self.reader = reader
        self.writer = writer
        self.ids = itertools.count(1)
        self.waiting: dict[Any, asyncio.Future[Any]] = {}
        self.messages: list[dict[str, Any]] = []  # notifications and requests from the server
        self.replies: dict[str, Any] = {}  # results for its requests, by method; others get null
        self.unanswered: set[str] = set()  # methods whose requests are never answered
        self.error_codes: list[int] = []  # of errors without an id
        self.listening = asyncio.ensure_future(self.listen())

    async def listen(self) -> None:
        """Read messages until the server hangs up."""
        while (length := await self.header()) is not None:
            message = json.loads(await self.reader.readexactly(length))
            if "method" not in message:
                self._resolve(message)
                continue
            self.messages.append(message)
            if "id" in message and message["method"] not in self.unanswered:
                answer = self.replies.get(message["method"])
                self.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})

    async def header(self) -> int | None:
        """The length of the next message; anything else between messages is an error."""
        length = None
        while line := await self.reader.readline():
            if not line.strip():
                return length
            name, _, value = line.partition(b": ")
            assert name in (b"Content-Length", b"Content-Type"), line
            length = int(value) if name == b"Content-Length" else length
        return None

    def _resolve(self, message: dict[str, Any]) -> None:
        """Pass a reply on to whoever waits for it."""
        if message["id"] is None and None not in self.waiting:
            self.error_codes.append(message["error"]["code"])
            return
        future = self.waiting.pop(message.get("id"))
        if not future.cancelled():
            future.set_result(message)

    def send(self, *messages: Any) -> None:
        """Send messages in one write."""
        self.writer.write(b"".join(map(frame, messages)))

    def expect(self, msg_id: Any) -> asyncio.Future[Any]:
        """The reply to come."""
        self.waiting[msg_id] = asyncio.get_running_loop().create_future()
        return self.waiting[msg_id]

    def send_request(self, method: str, params: Any = None, msg_id: Any = None) -> tuple[Any, asyncio.Future[Any]]:
        """Send a request; its id, and its reply to come."""
        msg_id = next(self.ids) if msg_id is None else msg_id
        future = self.expect(msg_id)
        self.send({"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params})
        return msg_id, future

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and wait for its result."""
        return await result(self.send_request(method, params)[1])

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def start(self, capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """Go through the handshake."""
        params = {"processId": None, "rootUri": None, "capabilities": capabilities or MENU, **more}
        answer = await self.request("initialize", params)
        self.notify("initialized", {})
        return answer

    async def start_and_load(self, capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The same, and wait until the model is loaded."""
        answer = await self.start(capabilities, **more)
        await self.ready()
        return answer

    async def status(self) -> dict[str, Any]:
        """The server's status."""
        return await self.request("spd-lsp/status")

    async def ready(self) -> None:
        """Wait until the model is loaded, or failed to load."""
        async with asyncio.timeout(TIMEOUT):
            while (await self.status())["kind"] == "loading":
                await asyncio.sleep(0.005)

    def open(self, text: str, uri: str = URI, language: str = "python") -> None:
        """Open a document."""
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def received(self, method: str) -> list[Any]:
        """The parameters of all messages with that method so far."""
        return [message["params"] for message in self.messages if message["method"] == method]


async def result(reply: asyncio.Future[Any]) -> Any:
    """A reply's result; its error is raised."""
    message = await asyncio.wait_for(reply, TIMEOUT)
    if "error" in message:
        raise RpcError(message["error"])
    return message["result"]


def edit(text: str, line: int, start: int, end: int, version: int = 2, uri: str = URI) -> dict[str, Any]:
    """A `didChange` that replaces a part of one line."""
    span = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
    document = {"uri": uri, "version": version}
    params = {"textDocument": document, "contentChanges": [{"range": span, "text": text}]}
    return {"jsonrpc": "2.0", "method": "textDocument/didChange", "params": params}


def at(line: int, character: int, kind: int | None = 1, uri: str = URI) -> dict[str, Any]:
    """The parameters of a completion request; kind 1 is explicit, 2 and 3 are automatic."""
    place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
    return place if kind is None else {**place, "context": {"triggerKind": kind}}


class FakeCompleter:
    """Returns fixed texts after so many steps, each of which the test can hold back."""

    tokens = SimpleNamespace(fingerprint="fake")

    def __init__(self, *texts: str, steps: int = 3, held: bool = False, seconds: float = 0.0) -> None:
        self.texts = texts or ("one", "two")
        self.steps = steps
        self.seconds = seconds
        self.turns = threading.Semaphore(0) if held else None
        self.requests: list[tuple[str, int, str | None, Path | None, bool]] = []
        self.resumed: list[tuple[str, int]] = []
        self.steps_taken = 0
        self.ended = 0
        self.answered = 0
        self.changes: dict[str, OpenDocument | None] = {}  # the newest of each document
        self.files: list[Path] = []  # that changed on the disk
        self.idle_slices = 0
        self.prefetched: list[tuple[str, int]] = []  # source and cursor
        self.error: Exception | None = None
        self.applied: list[Settings] = []
        self.index_revision = 0

    def apply_settings(self, settings: Settings) -> None:
        self.applied.append(settings)

    def update_documents(self, changes: Mapping[str, OpenDocument | None], asked: str = "") -> None:
        self.changes.update(changes)

    def update_files(self, files: Sequence[Path]) -> None:
        self.files += files

    def run_idle_work(self, seconds: float) -> bool:
        self.idle_slices += 1
        return False

    def prefetch(self, document: OpenDocument, cursor: int, check: Any) -> int:
        check()
        self.prefetched.append((document.text, cursor))
        if self.error:
            raise self.error
        return 0

    def resume(self, document: OpenDocument, cursor: int) -> None:
        self.resumed.append((document.text, cursor))

    def complete(
        self,
        source: str,
        cursor: int,
        language: str | None,
        path: Path | None,
        *,
        name: str,
        explicit: bool,
        check: Any,
        check_typed: Any,
    ) -> CompletionResult:
        self.requests.append((source, cursor, language, path, explicit))
        try:
            for _ in range(self.steps):
                check()
                if self.steps_taken:  # the first step reads the prompt
                    check_typed(lambda typed: any(text.startswith(typed) for text in self.texts))
                self.steps_taken += 1
                assert self.turns is None or self.turns.acquire(timeout=TIMEOUT)
            if self.error:
                raise self.error
        finally:
            self.ended += 1
        self.answered += 1
        texts = [Completion(text, 0.5 / rank, ends=False) for rank, text in enumerate(self.texts, 1)]
        return CompletionResult(
            texts,
            passes=self.steps,
            tokens=self.steps,
            prompt_tokens=7,
            seconds=self.seconds,
            index_revision=self.index_revision,
        )


Loader = Callable[[Settings, Callable[[str], None]], Any]


@asynccontextmanager
async def session(
    load: Loader | FakeCompleter, settings: Settings | None = None, **options: Any
) -> AsyncIterator[Editor]:
    """An editor connected to a server in the same event loop; the options are `create_server`'s."""
    loader: Loader = (lambda settings, report: load) if isinstance(load, FakeCompleter) else load
    server = create_server(loader, settings, **options)
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    serving = asyncio.ensure_future(serve(server, reader, writer))
    editor = Editor(*await asyncio.open_connection(sock=ours))
    editor.server = server
    try:
        yield editor
    finally:
        await leave(server, [serving, editor.listening])
        writer.close()
        editor.writer.close()


async def leave(server: Session, tasks: list[asyncio.Future[Any]]) -> None:
    """End the session as the end of input would."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    server.shutdown()
    server.worker._thread.shutdown(wait=True)


def texts(answer: Any) -> list[str]:
    """What the items of a menu insert."""
    return [item["textEdit"]["newText"] for item in answer["items"]]


async def opened(editor: Editor, text: str = "x = \n") -> Editor:
    """Start, wait for the model, open a document."""
    await editor.start()
    await editor.ready()
    editor.open(text)
    return editor


@asynccontextmanager
async def editing(
    load: Loader | FakeCompleter, settings: Settings | None = None, text: str = "x = \n", **options: Any
) -> AsyncIterator[Editor]:
    """A `session` in which a document is open, and the model loaded."""
    async with session(load, settings, **options) as editor:
        yield await opened(editor, text)
