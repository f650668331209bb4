"""The server's paths. A client is checked before its body is read, and every answer is JSON.

In: requests. Out: answers in the format of the API that each path belongs to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from spd_lsp.http import infill, openai
from spd_lsp.http.access import refusal
from spd_lsp.http.completions import Completions, Fields
from spd_lsp.ngrams.open_documents import clean
from spd_lsp.output.safe_logging import user_message

_PUBLIC = "/health"  # needs no token

Kind = TypeVar("Kind", bound=Fields)
Result = TypeVar("Result")


class _OnlyAllowed:
    """Passes on the requests of programs that may use the server."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = None
        if scope["type"] == "http":
            error = refusal(Headers(scope=scope), None if scope["path"] == _PUBLIC else self._token)
        await (_error(error.status_code, error.detail) if error else self._app)(scope, receive, send)


def make_app(completions: Completions, token: str, model: str) -> Starlette:
    """An ASGI application over one completer."""

    async def complete_infill(request: Request) -> Response:
        """llama.cpp's completions between two texts; with `n_predict` 0 the prompt is only read ahead."""
        fields = await _body(request, infill.InfillFields)
        query = fields.query()
        if fields.n_predict == 0:
            await _while_connected(request, completions.read_ahead(query))
            return JSONResponse({"content": "", "stop": True, "tokens_predicted": 0})
        found, reading = await _while_connected(request, completions.complete(query))
        answers = infill.answers(found, reading, fields, model)
        return JSONResponse(answers if query.alternatives > 1 else answers[0])

    async def complete(request: Request) -> Response:
        """OpenAI's completions."""
        fields = await _body(request, openai.CompletionFields)
        found, _ = await _while_connected(request, completions.complete(fields.query()))
        completion = openai.completion(found, model)
        if fields.stream:
            return Response(openai.events(completion), media_type="text/event-stream")
        return JSONResponse(completion)

    async def list_models(request: Request) -> Response:
        entry = {"id": model, "object": "model", "created": int(time.time()), "owned_by": "spd-lsp"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    @asynccontextmanager
    async def run_worker(app: Starlette) -> AsyncIterator[None]:
        completions.worker.wake()
        yield
        completions.worker.close()

    return Starlette(
        routes=[
            Route("/infill", complete_infill, methods=["POST"]),
            Route("/v1/completions", complete, methods=["POST"]),
            Route("/v1/models", list_models),
            Route(_PUBLIC, health),
        ],
        middleware=[Middleware(_OnlyAllowed, token=token)],
        exception_handlers={HTTPException: _explain, Exception: _explain},
        lifespan=run_worker,
    )


def serve(sock: socket.socket, app: Starlette) -> None:
    """Serve at a listening socket until the process is to end."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # its messages may quote code
    config = uvicorn.Config(app, ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run([sock])


async def _body(request: Request, kind: type[Kind]) -> Kind:
    """A request's body; HTTPException if it does not fit. A field that is null counts as absent."""
    try:
        return msgspec.convert(json.loads(await request.body(), object_hook=_present), kind)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise HTTPException(400, f"expected JSON, and each field as in the API: {error}") from error


def _present(values: dict[str, Any]) -> dict[str, Any]:
    """An object without its null fields and without lone surrogates, which clients leave where they cut a text."""
    known = {name: value for name, value in values.items() if value is not None}
    return {name: clean(value) if isinstance(value, str) else value for name, value in known.items()}


async def _while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`; if the client disconnects first, the work is cancelled and ClientDisconnect raised."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())  # the body is read: nothing else comes any more
    tasks: set[asyncio.Future[Any]] = {working, leaving}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in tasks:
            task.cancel()


async def _explain(request: Request, error: Exception) -> Response:
    """The answer to a request that failed."""
    if isinstance(error, HTTPException):
        return _error(error.status_code, error.detail)
    return _error(500, user_message(error, "the request"))


def _error(status: int, message: str) -> JSONResponse:
    """An error as llama.cpp and OpenAI write it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return JSONResponse({"error": {"code": status, "message": message, "type": kind, "param": None}}, status)
