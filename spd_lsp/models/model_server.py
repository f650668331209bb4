"""A model in another process: llama.cpp's server, or one with OpenAI's API of completions, such as vLLM or Ollama.

In: the text around a cursor. Out: how it may go on, with the logarithm of the probability of each token. The
likeliest text is requested first, then the continuations of the likeliest other tokens on its way. After an error
the server is not asked for a while. Knows no ids, tables or drafts.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ngram_builders.errors import UserError

KEY_VARIABLE = "SPD_LSP_MODEL_KEY"
_KEY_FILE = "model-key"
_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 6.0  # for all texts; editors give up after ten
_PAUSE_SECONDS = 10.0  # until a server that failed is asked again
_POLL_SECONDS = 0.02  # between two calls of `check`
_UNKNOWN = math.log(0.5)  # of a text without a probability
_UNSUPPORTED = (400, 404, 501)  # how servers refuse the text right of the cursor


class Token(NamedTuple):
    """A token of a server's text."""

    text: bytes
    logprob: float
    others: tuple[tuple[bytes, float], ...] = ()  # the likeliest in its place, mostly itself among them


@dataclass(frozen=True, slots=True)
class Written:
    """A text behind the cursor."""

    tokens: tuple[Token, ...]
    ends: bool  # whether it ends by itself, not by the limit of tokens

    @property
    def text(self) -> bytes:
        """All of it."""
        return b"".join(token.text for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Question:
    """The text around a cursor, and which continuations of it are requested."""

    before: str
    after: str
    texts: int  # at most
    tokens: int  # of each at most
    stop: tuple[str, ...]  # strings before which a text ends


class _Refused(Exception):
    """An error or an answer that is not understood; the latter has no status."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


class ModelServer:
    """The server at an address: `http://HOST:PORT`, with `/v1` if it has OpenAI's API, and `#NAME` of a model."""

    def __init__(self, address: str, key: str = "") -> None:
        parts = urlsplit(address)
        self.address = address
        self.problem = ""  # why it did not answer
        self._base = parts._replace(path=parts.path.rstrip("/"), fragment="").geturl()
        self._certificates = ssl.create_default_context() if parts.scheme == "https" else False
        self._model = parts.fragment
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._speaks_openai = self._base.endswith("/v1")
        self._reads_after = True  # the text right of the cursor
        self._next_try = 0.0

    def write(self, question: Question, check: Callable[[], None]) -> list[Written]:
        """Return continuations, the likeliest first; none where the server does not answer: see `problem`.

        `check` is called while the server computes; if it raises, the connection ends, and so does the server's
        work.
        """
        import httpx2  # takes a tenth of a second, and most people have no model server

        if self.problem and time.monotonic() < self._next_try:
            return []
        try:
            written = asyncio.run(self._write_checked(question, check))
            self.problem = ""
        except (_Refused, TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            reason = str(error) or f"no answer within {_ANSWER_SECONDS:.0f} s"
            self.problem = f"the model server {self.address} does not answer ({reason[:200]})"
            self._next_try = time.monotonic() + _PAUSE_SECONDS
            written = []
        return written

    async def _write_checked(self, question: Question, check: Callable[[], None]) -> list[Written]:
        """Write with a connection that ends when `check` raises; without proxies of the environment."""
        import httpx2

        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        async with httpx2.AsyncClient(
            headers=self._headers, timeout=timeout, verify=self._certificates, trust_env=False
        ) as client:
            task = asyncio.ensure_future(self._write(client, question))
            try:
                while not task.done():
                    await asyncio.wait([task], timeout=_POLL_SECONDS)
                    check()
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            return task.result()

    async def _write(self, client: Any, question: Question) -> list[Written]:
        """Return the likeliest text, then those that leave it at one of its tokens for another one."""
        end = asyncio.get_running_loop().time() + _ANSWER_SECONDS
        async with asyncio.timeout_at(end):
            if self._speaks_openai and not self._model:
                self._model = await _answer(
                    client.get(f"{self._base}/models"), lambda listed: str(listed["data"][0]["id"])
                )
            first = await self._continue(client, question, b"")
        branches = _branches(first, question)
        whole = [one for one in branches if one.ends]
        begun = [one for one in branches if not one.ends]
        try:
            async with asyncio.timeout_at(end):
                rests = await asyncio.gather(*(self._continue(client, question, one.text) for one in begun))
        except TimeoutError:
            return [first, *whole]
        longer = [Written((*one.tokens, *rest.tokens), rest.ends) for one, rest in zip(begun, rests, strict=True)]
        return [first, *longer, *whole]

    async def _continue(self, client: Any, question: Question, begun: bytes) -> Written:
        """Return how a text goes on that begins so. A server that refuses the text after the cursor gets none."""
        if question.after and self._reads_after:
            try:
                return await self._ask(client, question, begun, question.after)
            except _Refused as refused:
                if refused.status not in _UNSUPPORTED:
                    raise
            written = await self._ask(client, question, begun, "")
            self._reads_after = False
            return written
        return await self._ask(client, question, begun, "")

    async def _ask(self, client: Any, question: Question, begun: bytes, after: str) -> Written:
        text = begun.decode()
        path, sides = "/completion", {"prompt": question.before + text}
        if self._speaks_openai:
            path = "/completions"
            sides |= {"suffix": after} if after else {}
        elif after:
            path = "/infill"
            sides = {"input_prefix": question.before, "prompt": text, "input_suffix": after}
        likeliest = max(2, question.texts)
        limits = {"max_tokens": question.tokens, "logprobs": likeliest}  # OpenAI's names, then llama.cpp's
        limits |= {"n_predict": question.tokens, "n_probs": likeliest}
        body = {**sides, **limits, "temperature": 0, "stop": question.stop, "model": self._model}
        written: Written = await _answer(client.post(self._base + path, json=body), _read)
        return written


async def _answer(request: Any, read: Callable[[Any], Any]) -> Any:
    """Return what `read` finds in the JSON of the answer to a request; a server may send anything."""
    response = await request
    if response.status_code != 200:
        reason = " ".join((response.text or response.reason_phrase).split())
        raise _Refused(f"{response.status_code}: {reason}", response.status_code)
    try:
        return read(response.json())
    except Exception as error:
        raise _Refused(f"its answer is not understood: {type(error).__name__}") from None


def _read(answer: Any) -> Written:
    """Return the text of an answer in either API."""
    one = answer["choices"][0] if "choices" in answer else answer
    text = (one["content"] if "content" in one else one["text"]).encode(errors="replace")
    ends = one.get("stop_type", one.get("finish_reason")) not in ("limit", "length")
    tokens = tuple(_tokens(one))
    written = b"".join(token.text for token in tokens)
    if tokens and written.startswith(text):
        return Written(tokens, ends)
    if tokens and text.startswith(written):  # the last token, in which the text ends, may be left out
        mean = sum(token.logprob for token in tokens) / len(tokens)
        return Written((*tokens, Token(text[len(written) :], mean)), ends)
    return Written((Token(text, _UNKNOWN),), ends)


def _tokens(one: Any) -> Iterator[Token]:
    """Yield the tokens of an answer: llama.cpp's list, or OpenAI's lists of texts and numbers."""
    given = one.get("logprobs") or {}
    for token in one.get("completion_probabilities") or given.get("content") or ():
        others = tuple((_bytes(other), _logprob(other["logprob"])) for other in token["top_logprobs"])
        yield Token(_bytes(token), _logprob(token["logprob"]), others)
    texts = given.get("tokens", ())
    places = given.get("top_logprobs") or [{}] * len(texts)
    for text, logprob, place in zip(texts, given.get("token_logprobs", ()), places, strict=True):
        others = tuple((other.encode(), _logprob(number)) for other, number in (place or {}).items())
        yield Token(text.encode(), _logprob(logprob), others)


def _bytes(token: Any) -> bytes:
    codes = token.get("bytes")
    text: bytes = token["token"].encode() if codes is None else bytes(list(codes))
    return text


def _logprob(number: Any) -> float:
    """Return a number as the logarithm of a probability. Example: NaN -> -100."""
    return min(0.0, max(-100.0, float(number)))


def _branches(written: Written, question: Question) -> list[Written]:
    """Return the likeliest other beginnings: those that leave a text at one of its tokens for another one."""
    found: list[tuple[float, tuple[Token, ...]]] = []
    score = 0.0
    for place, token in enumerate(written.tokens):
        for text, logprob in token.others:
            # A request can hold whole characters only.
            if text != token.text and text.decode(errors="ignore").encode() == text:
                found.append((score + logprob, (*written.tokens[:place], Token(text, logprob, token.others))))
        score += token.logprob
    likeliest = heapq.nlargest(question.texts - 1, found, key=lambda one: one[0])
    stop = [word.encode() for word in question.stop]
    return [
        Written(tokens, not tokens[-1].text or any(word in tokens[-1].text for word in stop))
        for _, tokens in likeliest
    ]


def key_in(folder: Path) -> str:
    """Return the key for model servers: of the variable, of a file that only its user can read, or none."""
    path = folder / _KEY_FILE
    key = os.environ.get(KEY_VARIABLE, "")
    if not key and path.is_file():
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise UserError(f"others can read the key in {path}; run: chmod 600 {path}, and have a new key made")
        key = path.read_text(encoding="utf-8", errors="replace")
    if not re.fullmatch(r"[!-~]*", key.strip()):
        raise UserError(f"expected a key in {KEY_VARIABLE} or {path}: letters, digits and signs on one line")
    return key.strip()
