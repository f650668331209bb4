"""The server's paths: who asks is checked before anything is read, and every answer but metrics is JSON.

In: requests. Out: answers in the format of the API that each path belongs to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from spd_lsp.completion.offer import CompletionResult
from spd_lsp.http import infill, openai
from spd_lsp.http.access import check_origin, check_token
from spd_lsp.http.completions import Answer, Completions
from spd_lsp.http.fields import Refused, parse
from spd_lsp.http.metrics import Metrics
from spd_lsp.output.safe_logging import user_message

MAX_BODY_BYTES = 16 << 20  # 256 files and a prompt are far below
_PUBLIC = "/health"  # says that there is a server, and nothing else
_EVENTS = "text/event-stream"

Result = TypeVar("Result")
Handler = Callable[["App", Request], Awaitable[Response]]


class App:
    """An ASGI application over one completer."""

    def __init__(self, completions: Completions, token: str, model: str) -> None:
        self.completions = completions
        self.model = model
        self.metrics = Metrics()
        self.started = int(time.time())
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        path = scope["path"]  # of `request.url` some hosts make no URL
        known = path if path in _PATHS else "other"
        try:
            response = await self._answer(request, path)
        except ClientDisconnect:
            return self.metrics.note_request(known, 499)
        except Refused as refused:
            response = _error(refused.status, str(refused))
        except Exception as error:
            response = _error(500, user_message(error, "the request"))
        self.metrics.note_request(known, response.status_code)
        await response(scope, receive, send)
        return None

    async def _answer(self, request: Request, path: str) -> Response:
        check_origin(request.headers)
        if path != _PUBLIC:
            check_token(request.headers, self._token)
        if (methods := _PATHS.get(path)) is None:
            raise Refused(404, f"no such path; there are {', '.join(_PATHS)}")
        if request.method not in methods:
            raise Refused(405, f"expected the method {' or '.join(methods)}")
        return await methods[request.method](self, request)

    async def infill(self, request: Request) -> Response:
        """llama.cpp's completions between two texts; without tokens to predict, what comes along is read ahead."""
        fields = parse(await _body(request), infill.InfillFields)
        wanted = fields.wanted()
        if fields.n_predict == 0:
            read = await _unless_gone(request, self.completions.read_ahead(wanted))
            return JSONResponse({"content": "", "stop": True, "tokens_evaluated": read, "tokens_predicted": 0})
        answer = await _unless_gone(request, self.completions.complete(wanted))
        self.metrics.note_answer(answer.found, len(answer.alternatives))
        answers = infill.answers(answer, fields, self.model)
        if fields.stream:
            return Response(infill.events(answers), media_type=_EVENTS)
        return JSONResponse(answers if wanted.alternatives > 1 else answers[0])

    async def complete(self, request: Request) -> Response:
        """OpenAI's completions."""
        fields = parse(await _body(request), openai.CompletionFields)
        wanted = fields.wanted()
        if fields.max_tokens == 0:
            read = await _unless_gone(request, self.completions.read_ahead(wanted))
            answer = Answer((), CompletionResult([], prompt_tokens=read))
        else:
            answer = await _unless_gone(request, self.completions.complete(wanted))
            self.metrics.note_answer(answer.found, len(answer.alternatives))
        completion = openai.completion(answer, fields, self.model)
        if fields.stream:
            return Response(openai.events(completion, fields), media_type=_EVENTS)
        return JSONResponse(completion)

    async def list_models(self, request: Request) -> Response:
        """The model that is served."""
        model = {"id": self.model, "object": "model", "created": self.started, "owned_by": "spd-lsp"}
        return JSONResponse({"object": "list", "data": [model]})

    async def tell_health(self, request: Request) -> Response:
        """Whether the server is ready, which it is once it listens."""
        return JSONResponse({"status": "ok"})

    async def tell_metrics(self, request: Request) -> Response:
        """Counters for Prometheus."""
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")


_PATHS: dict[str, dict[str, Handler]] = {
    "/infill": {"POST": App.infill},
    "/v1/completions": {"POST": App.complete},
    "/v1/models": {"GET": App.list_models},
    "/health": {"GET": App.tell_health},
    "/metrics": {"GET": App.tell_metrics},
}


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of work for a client; ClientDisconnect, and the work is cancelled, once it has left."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_gone(request))
    tasks: set[asyncio.Future[Any]] = {working, leaving}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in tasks:
            task.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    """A request's body, read up to the limit."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "expected the header `Content-Type: application/json`")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise Refused(413, f"expected a body of at most {MAX_BODY_BYTES:,} bytes")
    return bytes(body)


def _error(status: int, message: str) -> JSONResponse:
    """An error as llama.cpp and OpenAI write it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return JSONResponse({"error": {"code": status, "message": message, "type": kind, "param": None}}, status)
