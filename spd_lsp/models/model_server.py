"""A model in another process: llama.cpp's server, or one with OpenAI's API of completions, such as vLLM or Ollama.

In: the text around a cursor. Out: how it may go on, with the logarithm of the probability of each token. The
likeliest text is asked for first, then what follows the likeliest other tokens on its way. A server that does not
answer is left alone for a while. Knows no ids, tables or drafts.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ngram_builders.errors import UserError

KEY_VARIABLE = "SPD_LSP_MODEL_KEY"
_KEY_FILE = "model-key"
_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 6.0  # for all texts; editors give up after ten
_PAUSE_SECONDS = 10.0  # until a server that failed is asked again
_POLL_SECONDS = 0.02  # between two looks whether somebody still waits
_MAX_ANSWER = 1 << 20  # bytes
_MAX_TOKEN = 128  # bytes; blanks are the longest tokens
_UNKNOWN = math.log(0.5)  # of a text without a probability
_UNSUPPORTED = (400, 404, 501)  # how servers refuse the text right of the cursor

Check = Callable[[], None]


class Token(NamedTuple):
    """A token, as a server tells it."""

    text: bytes
    logprob: float
    others: tuple[tuple[bytes, float], ...] = ()  # the likeliest in its place, mostly itself among them

    @property
    def top(self) -> float:
        """The logarithm of the probability of the likeliest token in its place."""
        return max([self.logprob, *(logprob for _, logprob in self.others)])


@dataclass(frozen=True, slots=True)
class Written:
    """A text behind the cursor."""

    tokens: tuple[Token, ...]
    ends: bool  # whether it ends by itself, not by the limit of tokens

    @property
    def text(self) -> bytes:
        """All of it."""
        return b"".join(token.text for token in self.tokens)


class _Refused(Exception):
    """No answer, one that is an error, or one that is not understood, which has no status."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Question:
    """What a server is asked to go on from."""

    before: str  # the cursor
    after: str
    texts: int  # at most
    tokens: int  # of each at most
    stop: tuple[str, ...]  # before which a text ends


class ModelServer:
    """The server at an address: `http://HOST:PORT`, with `/v1` if it has OpenAI's API, and `#NAME` of a model."""

    def __init__(self, address: str, key: str = "") -> None:
        parts = urlsplit(address)
        self.address = address
        self.problem = ""  # why it did not answer
        self._base = parts._replace(path=parts.path.rstrip("/"), fragment="").geturl()
        self._certificates = ssl.create_default_context() if parts.scheme == "https" else False
        self._model = parts.fragment
        self._headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._speaks_openai = self._base.endswith("/v1")
        self._refused: set[bool] = set()  # ways to ask: with what stands right of the cursor, and without
        self._tells_whole_texts = False  # several at once, as `spd-lsp serve --http` does
        self._next_try = 0.0

    def write(self, question: Question, check: Check) -> list[Written]:
        """How the text goes on, the likeliest first; nothing where the server does not answer: see `problem`.

        `check` is called while the server computes; if it raises, the connection ends, and so does its work.
        """
        began = time.monotonic()
        if self.problem and began < self._next_try:
            return []

        def check_time() -> None:
            check()
            if time.monotonic() > began + _ANSWER_SECONDS:
                raise TimeoutError(f"no answer within {_ANSWER_SECONDS:.0f} s")

        try:
            written = self._write(question, check_time)
            self.problem = ""
        except (_Refused, TimeoutError) as error:
            self.problem = f"the model server {self.address} does not answer ({str(error)[:200]})"
            self._next_try = time.monotonic() + _PAUSE_SECONDS
            written = []
        return written

    def _write(self, question: Question, check: Check) -> list[Written]:
        first, *others = self._continued(question, [b""], question.texts if self._tells_whole_texts else 1, check)
        if question.texts == 1 or others:
            return [first, *others]
        if len(first.tokens) == 1 and not first.tokens[0].others and first.tokens[0].logprob != _UNKNOWN:
            self._tells_whole_texts = True
            return self._continued(question, [b""], question.texts, check)
        branches = [
            Written(tokens, _is_over(tokens[-1], question.stop)) for tokens in _branches(first, question.texts)
        ]
        whole = [one for one in branches if one.ends]
        begun = [one for one in branches if not one.ends]
        try:
            rests = self._continued(question, [one.text for one in begun], 1, check) if begun else []
        except TimeoutError:
            return [first, *whole]
        longer = [Written((*one.tokens, *rest.tokens), rest.ends) for one, rest in zip(begun, rests, strict=True)]
        return [first, *longer, *whole]

    def _continued(self, question: Question, begun: Sequence[bytes], texts: int, check: Check) -> list[Written]:
        """How each of several beginnings goes on; where the server refuses one way to ask, the other is taken."""
        if self._speaks_openai and not self._model:
            (self._model,) = self._ask(
                "GET", "/models", [None], lambda answer: [_text(answer["data"][0]["id"])], check
            )
        likeliest = max(2, question.texts)
        tokens = {"max_tokens": question.tokens, "logprobs": likeliest}  # by OpenAI's names, then by llama.cpp's
        tokens |= {"n_predict": question.tokens, "n_probs": likeliest, "n": texts}
        limits = {"temperature": 0, "stop": question.stop, "explicit": True, "model": self._model, **tokens}

        def asked(with_after: bool) -> list[Written]:
            bodies = []
            for text in begun:
                sides = {"prompt": question.before + text.decode()}
                if with_after and self._speaks_openai:
                    sides["suffix"] = question.after
                elif with_after:
                    sides = {
                        "input_prefix": question.before,
                        "prompt": text.decode(),
                        "input_suffix": question.after,
                    }
                bodies.append(limits | sides)
            path = "/completions" if self._speaks_openai else "/infill" if with_after else "/completion"
            return self._ask(
                "POST", path, bodies, lambda one: list(_texts(one, texts, question, likeliest)), check
            )

        way = bool(question.after) != (bool(question.after) in self._refused)
        try:
            return asked(way)
        except _Refused as refused:
            if refused.status not in _UNSUPPORTED or way != bool(question.after):
                raise
        written = asked(not way)
        self._refused.add(way)
        return written

    def _ask(
        self, method: str, path: str, bodies: Sequence[Any], read: Callable[[Any], Iterable[Any]], check: Check
    ) -> list[Any]:
        """What is read of the answers to several requests, which are sent at once."""
        contents = asyncio.run(self._contents(method, self._base + path, bodies, check))
        try:
            found = [list(read(json.loads(content))) for content in contents]
            if not all(found):
                raise ValueError("an answer without a text")
        except Exception as error:  # whatever a server makes up
            raise _Refused(f"its answer is not understood: {type(error).__name__}") from None
        return [one for each in found for one in each]

    async def _contents(self, method: str, url: str, bodies: Sequence[Any], check: Check) -> list[bytes]:
        """The contents of the answers; no proxies and no passwords of the environment take part."""
        import httpx2  # a tenth of a second, and most people have no model server

        async def content(body: Any) -> bytes:
            async with client.stream(method, url, json=body) as response:
                content = b""
                async for part in response.aiter_raw():
                    content += part
                    if len(content) > _MAX_ANSWER:
                        raise _Refused(f"its answer is longer than {_MAX_ANSWER >> 20} MB")
            if response.status_code != 200:
                reason = content.decode(errors="replace") or response.reason_phrase
                raise _Refused(f"{response.status_code}: {' '.join(reason.split())}", response.status_code)
            return content

        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        async with httpx2.AsyncClient(
            headers=self._headers, timeout=timeout, verify=self._certificates, trust_env=False
        ) as client:
            asked = [asyncio.ensure_future(content(body)) for body in bodies]
            try:
                waiting = set(asked)
                while waiting:
                    done, waiting = await asyncio.wait(waiting, timeout=_POLL_SECONDS)
                    check()
                    for one in done:
                        one.result()
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
                raise _Refused(str(error) or type(error).__name__) from None
            finally:
                for one in asked:
                    one.cancel()
                await asyncio.gather(*asked, return_exceptions=True)
        return [one.result() for one in asked]


def _texts(answer: Any, texts: int, question: Question, likeliest: int) -> Iterator[Written]:
    """The texts of an answer in either API, no more and no longer than was asked for."""
    alternatives = answer if isinstance(answer, list) else answer.get("choices", [answer])
    for one in alternatives[:texts]:
        text = _text(one["content"] if "content" in one else one["text"]).encode(errors="replace")
        text = text[: question.tokens * _MAX_TOKEN]
        ends = one.get("stop_type", one.get("finish_reason")) not in ("limit", "length")
        tokens = tuple(islice(_tokens(one, likeliest), question.tokens))
        written = b"".join(token.text for token in tokens)
        if tokens and written.startswith(text):
            yield Written(tokens, ends)
        elif tokens and text.startswith(written):  # the last token, in which the text ends, may be left out
            mean = sum(token.logprob for token in tokens) / len(tokens)
            yield Written((*tokens, Token(text[len(written) :], mean)), ends)
        else:
            probability = one.get("probability")  # as `spd-lsp serve --http` tells it
            yield Written((Token(text, math.log(probability) if probability else _UNKNOWN),), ends)


def _tokens(one: Any, likeliest: int) -> Iterator[Token]:
    """What an answer says of each token: llama.cpp's list, or OpenAI's lists of texts and numbers."""
    given = one.get("logprobs") or {}
    listed = one.get("completion_probabilities") or given.get("content") or ()
    for token in listed:
        others = tuple((_bytes(other), _logprob(other["logprob"])) for other in token["top_logprobs"][:likeliest])
        yield Token(_bytes(token), _logprob(token["logprob"]), others)
    places = given.get("top_logprobs") or [{}] * len(given.get("tokens", ()))
    for text, logprob, place in zip(given.get("tokens", ()), given.get("token_logprobs", ()), places, strict=True):
        listed_others = islice((place or {}).items(), likeliest)
        others = tuple((other.encode()[:_MAX_TOKEN], _logprob(number)) for other, number in listed_others)
        yield Token(text.encode()[:_MAX_TOKEN], _logprob(logprob), others)


def _text(value: Any) -> str:
    """A text, and nothing that can be written as one."""
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value


def _bytes(token: Any) -> bytes:
    codes = token.get("bytes")
    return (bytes(list(codes[:_MAX_TOKEN])) if codes is not None else _text(token["token"]).encode())[:_MAX_TOKEN]


def _logprob(number: Any) -> float:
    """A number that is a logarithm of a probability, whatever was sent. Example: NaN -> -100."""
    return min(0.0, max(-100.0, float(number))) if number == number else -100.0


def _branches(written: Written, texts: int) -> list[tuple[Token, ...]]:
    """The likeliest `texts` - 1 beginnings that leave a text at one of its tokens for another one."""
    found: list[tuple[float, tuple[Token, ...]]] = []
    score = 0.0
    for place, token in enumerate(written.tokens):
        for text, logprob in token.others:
            # A request can hold whole characters only.
            if text != token.text and text.decode(errors="ignore").encode() == text:
                found.append((score + logprob, (*written.tokens[:place], Token(text, logprob, token.others))))
        score += token.logprob
    return [tokens for _, tokens in heapq.nlargest(texts - 1, found, key=lambda one: one[0])]


def _is_over(token: Token, stop: Sequence[str]) -> bool:
    """Whether a text ends with this token: the end of the text, or of the line."""
    return not token.text or any(word.encode() in token.text for word in stop)


def key_in(folder: Path) -> str:
    """The key that servers are sent: the variable's, or that of a file which only its user can read, or none."""
    path = folder / _KEY_FILE
    if (key := os.environ.get(KEY_VARIABLE, "")) or not path.is_file():
        return _checked(key, KEY_VARIABLE)
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise UserError(f"others can read the key in {path}; run: chmod 600 {path}, and have a new key made")
    return _checked(path.read_text(encoding="utf-8", errors="replace"), str(path))


def _checked(key: str, place: str) -> str:
    if not re.fullmatch(r"[!-~]*", key.strip()):
        raise UserError(f"expected a key in {place}: letters, digits and signs on one line")
    return key.strip()
