"""A server in a process of its own, and an editor's end of its pipes, as plain JSON-RPC.

In: a command, requests and notifications. Out: results, and what the process has used. Knows nothing of documents.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD
from spd_lsp.evaluation.bench.machine import processes_of, processor_seconds, read_proc


class ServerClient:
    """One session. Requests of the server are answered with null."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def send_request(
        self, method: str, params: Mapping[str, Any] | None = None
    ) -> tuple[int, asyncio.Future[Any]]:
        """Send a request; its id, and its result to come, None if it fails."""
        number = next(self._ids)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        return number, self._waiting[number]

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Send a request and wait for its result."""
        return await self.send_request(method, params)[1]

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def listen(self) -> None:
        """Read messages until the server leaves, which fails what is still waited for."""
        assert self._process.stdout
        with suppress(asyncio.IncompleteReadError):
            while True:
                header = await self._process.stdout.readuntil(b"\r\n\r\n")
                message = json.loads(await self._process.stdout.readexactly(int(header.split(b":")[1].split()[0])))
                if "method" not in message:
                    self._waiting.pop(message["id"]).set_result(message.get("result"))
                elif "id" in message:
                    self._send({"id": message["id"], "result": None})
        for waiting in self._waiting.values():
            waiting.set_exception(UserError("the server has ended; run `spd-lsp serve -v` to see why"))

    @property
    def memory(self) -> int:
        """Bytes of memory that the server and its parsers hold, 0 where the system does not say."""
        statuses = (read_proc(process, "status").split() for process in processes_of(self._process.pid))
        held = (status[status.index("VmRSS:") + 1] for status in statuses if "VmRSS:" in status)
        return sum(map(int, held)) * 1024

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the server and its parsers have taken, 0 where the system does not say."""
        return processor_seconds(processes_of(self._process.pid))


@asynccontextmanager
async def run_server(command: Sequence[str], options: Mapping[str, Any]) -> AsyncIterator[ServerClient]:
    """A server whose model is loaded; columns count characters."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=NEUTRAL_CWD)
    client = ServerClient(process)
    listening = asyncio.ensure_future(client.listen())
    try:
        capabilities = {"general": {"positionEncodings": ["utf-32"]}}
        await client.request("initialize", {"capabilities": capabilities, "initializationOptions": options})
        client.notify("initialized", {})
        while (status := await client.request("spd-lsp/status"))["kind"] == "loading":
            await asyncio.sleep(0.05)
        if status["kind"] == "error":
            raise UserError(status["message"])
        yield client
    finally:
        listening.cancel()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
