"""A model server is asked for whole texts and their probabilities; what it answers is never trusted."""

from __future__ import annotations

import gzip
import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ngram_builders.errors import UserError
from spd_lsp.models import model_server
from spd_lsp.models.model_server import KEY_VARIABLE, ModelServer, Question, Token, key_in
from tests.models.model_servers import llama_server, self_signed, told_server

BEFORE = "import argparse\n\n\ndef main():\n    parser = argparse."
QUESTION = Question(BEFORE, "\n    args = parser.parse_args()\n", 3, 16, ("\n",))


def nothing() -> None:
    """Nobody cancels."""


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    with llama_server() as (address, _):
        yield address


@pytest.mark.parametrize("path", ["", "/v1"])
@pytest.mark.parametrize("after", [QUESTION.after, ""])
def test_llama_cpp_tells_different_texts_the_likeliest_first_and_each_token_s_probability(
    llama: str, path: str, after: str
):
    server = ModelServer(llama + path)
    for _ in range(2):  # once it is known what the server refuses
        first, *others = server.write(Question(BEFORE, after, 3, 16, ("\n",)), nothing)
        assert server.problem == ""
        assert len({first.text, *(one.text for one in others)}) == 3
        assert all(len(one.tokens) > 1 or one.ends for one in (first, *others))
        for token in first.tokens[:-1]:
            assert token.logprob >= max(logprob for _, logprob in token.others), "the likeliest text is first"


def _one(**more: Any) -> bytes:
    return json.dumps({"content": "x", **more}).encode()


def _probabilities(**token: Any) -> bytes:
    return _one(completion_probabilities=[{"token": "x", "logprob": -1, "top_logprobs": [], **token}])


HOSTILE = {
    "an error": (500, b'{"error": {"message": "out of memory"}}'),
    "another address": (302, b""),
    "no JSON": (200, b"<html>"),
    "nothing": (200, b""),
    "no text": (200, b"{}"),
    "a list of nothing": (200, b"[]"),
    "no choices": (200, b'{"choices": []}'),
    "choices of nothing": (200, b'{"choices": [null]}'),
    "choices that are none": (200, b'{"choices": 5}'),
    "choices by name": (200, b'{"choices": {"text": "x"}}'),
    "a number": (200, b"5"),
    "null": (200, b"null"),
    "a text": (200, b'"content"'),
    "a list of texts": (200, b'["content"]'),
    "a list of lists": (200, b"[[]]"),
    "depth": (200, b"[" * 100_000),
    "wrong types": (200, _one(completion_probabilities=5)),
    "texts for tokens": (200, _one(completion_probabilities=["x"])),
    "tokens of a list": (200, _one(completion_probabilities={"x": 1})),
    "logprobs that are a list": (200, _one(logprobs=[1])),
    "logprobs that are a number": (200, _one(logprobs=5)),
    "logprobs of other lengths": (200, _one(logprobs={"tokens": ["x"], "token_logprobs": []})),
    "tokens that are numbers": (200, _one(logprobs={"tokens": [5], "token_logprobs": [-1]})),
    "places that are lists": (
        200,
        _one(logprobs={"tokens": ["x"], "token_logprobs": [-1], "top_logprobs": [[1]]}),
    ),
    "no bytes": (200, _probabilities(bytes=[300])),
    "bytes that are a number": (200, _probabilities(bytes=200_000_000)),
    "bytes that are a text": (200, _probabilities(bytes="x")),
    "a token that is a number": (200, _probabilities(token=5)),
    "a logprob that is none": (200, _probabilities(logprob=None)),
    "a logprob that is a list": (200, _probabilities(logprob=[])),
    "a logprob beyond floats": (200, _probabilities(logprob=10**400)),
    "others that are a number": (200, _probabilities(top_logprobs=5)),
    "others that are numbers": (200, _probabilities(top_logprobs=[5])),
    "half a character in a token": (200, _probabilities(token="\ud800")),
    "content that is a list": (200, b'{"content": ["x"]}'),
    "content that is a number": (200, b'{"content": 5}'),
    "content that is null": (200, b'{"content": null}'),
    "half": (200, b'{"content": "x'),
    "zipped": (200, gzip.compress(b'{"content": "x"}')),
    "not in UTF-8": (200, b'{"content": "\xe9"}'),
    "no such length": (200, b'{"content": "x"}', ("Content-Length", "5x")),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_server_that_answers_nonsense_is_left_alone_for_a_while(answer: Any):
    with told_server(lambda path, body: answer) as (address, sent):
        server = ModelServer(address, "key" * 9)
        assert server.write(QUESTION, nothing) == []
        assert address in server.problem and "key" not in server.problem
        asked = len(sent)
        assert server.write(QUESTION, nothing) == [] and len(sent) == asked
        server._next_try = 0.0
        server.write(QUESTION, nothing)
        assert len(sent) > asked


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_a_server_with_tls_may_take_its_time_and_who_leaves_ends_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
):
    class Left(Exception):
        pass

    def answer(path: str, body: object) -> tuple[int, bytes]:
        time.sleep(seconds)
        return 200, b'{"content": "x = 1", "stop_type": "word"}'

    def leave() -> None:
        if time.monotonic() > began + seconds / 2:
            raise Left

    certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with told_server(answer, certificate) as (address, _):
        server = ModelServer(address)
        began = time.monotonic()
        assert [one.text for one in server.write(QUESTION, nothing)] == [b"x = 1"] and not server.problem
        began = time.monotonic()
        if seconds:
            with pytest.raises(Left):
                server.write(QUESTION, leave)
            assert time.monotonic() - began < seconds
        monkeypatch.delenv("SSL_CERT_FILE")
        unknown = ModelServer(address)
        assert unknown.write(QUESTION, nothing) == [] and "certificate verify failed" in unknown.problem


def test_probabilities_are_never_more_than_one_nor_no_numbers():
    tokens = [
        {"bytes": [ord("x")], "logprob": number, "top_logprobs": []} for number in (math.nan, 5, -math.inf, -1)
    ]
    answer = json.dumps({"content": "xxxx", "completion_probabilities": tokens}).encode()
    with told_server(lambda path, body: (200, answer)) as (address, _):
        (written,) = ModelServer(address).write(Question("x", "", 1, 9, ()), nothing)
    assert [token.logprob for token in written.tokens] == [-100, 0, -100, -1]


def test_a_text_without_probabilities_is_as_likely_as_not():
    with told_server(lambda path, body: (200, b'{"choices": [{"text": "x = 1"}]}')) as (address, sent):
        (written,) = ModelServer(f"{address}/v1#tiny").write(QUESTION, nothing)
    assert written.tokens == (Token(b"x = 1", math.log(0.5)),)
    assert sent[0][0] == "/v1/completions" and sent[0][2]["model"] == "tiny" and len(sent) == 1


def test_who_leaves_ends_the_request():
    class Left(Exception):
        pass

    def leave() -> None:
        raise Left

    def answer(path: str, body: object) -> tuple[int, bytes]:
        left.wait()
        return 200, b"{}"

    left = threading.Event()
    with told_server(answer) as (address, _):
        server = ModelServer(address)
        with pytest.raises(Left):
            server.write(QUESTION, leave)
        left.set()
    assert server.problem == "", "the server is not to blame"


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_the_worker(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(model_server, "_ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            peer = listener.accept()[0]
            with suppress(OSError), peer:
                peer.sendall(begun)
                for _ in range(400):
                    peer.sendall(b"x")
                    time.sleep(0.05)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        server = ModelServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        asking = threading.Thread(target=server.write, args=(QUESTION, nothing), daemon=True)
        asking.start()
        asking.join(10)
        assert not asking.is_alive(), "twenty seconds were to go"
        assert server.problem
        thread.join()


def test_the_key_is_of_a_variable_or_of_a_file_that_only_its_user_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert key_in(tmp_path) == ""
    file = tmp_path / "model-key"
    file.write_text("of-file\n")
    file.chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        key_in(tmp_path)
    file.chmod(0o600)
    assert key_in(tmp_path) == "of-file"
    monkeypatch.setenv(KEY_VARIABLE, "two\nlines")
    with pytest.raises(UserError, match="one line"):
        key_in(tmp_path)
    monkeypatch.setenv(KEY_VARIABLE, "of-variable")
    key = key_in(tmp_path)
    with told_server(lambda path, body: (500, b"")) as (address, sent):
        ModelServer(address, key).write(QUESTION, nothing)
    assert sent[0][1]["Authorization"] == "Bearer of-variable"
