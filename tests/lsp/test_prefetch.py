"""After an edit and a pause the prompt is prefetched; a request finds it in the cache, or cancels it."""

from __future__ import annotations

import asyncio

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.lsp import background
from spd_lsp.models.checkpoint.hub import built_in_domains, locate
from spd_lsp.models.load import load
from spd_lsp.ngrams.interpolation import Domains
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import FakeCompleter, at, edit, opened, session, until

COMPLETION = "textDocument/completion"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(
        background, "PREFETCH_DELAY_SECONDS", 0.25
    )  # a busy machine may pause between two messages


async def test_the_prompt_at_the_last_edit_is_prefetched_when_typing_pauses():
    completer = FakeCompleter()
    async with session(completer) as editor:
        await opened(editor, "a = 1\nx = \n")
        for number, letter in enumerate("abc"):
            editor.send(edit(letter, 1, 4 + number, 4 + number, version=2 + number))
        await until(lambda: completer.prefetched)
        await asyncio.sleep(2 * background.PREFETCH_DELAY_SECONDS)
        assert completer.prefetched == [("a = 1\nx = abc\n", 13)]


async def test_a_request_cancels_it():
    completer = FakeCompleter()
    async with session(completer) as editor:
        await opened(editor)
        editor.send(edit("y", 0, 4, 4))
        await editor.request(COMPLETION, at(0, 5))
        await asyncio.sleep(2 * background.PREFETCH_DELAY_SECONDS)
        assert completer.requests and not completer.prefetched


async def test_an_excluded_document_is_not_prefetched():
    completer = FakeCompleter()
    async with session(completer) as editor:
        await opened(editor)
        editor.open("KEY=", "file:///code/.env", "shellscript")
        editor.send(edit("1", 0, 4, 4, uri="file:///code/.env"))
        await asyncio.sleep(2 * background.PREFETCH_DELAY_SECONDS)
        assert not completer.prefetched


async def test_an_error_costs_no_completion(caplog):
    completer = FakeCompleter()
    completer.error = RuntimeError("secret")
    async with session(completer) as editor:
        await opened(editor)
        editor.send(edit("y", 0, 4, 4))
        await until(lambda: completer.prefetched)
        completer.error = None
        answer = await editor.request(COMPLETION, at(0, 5))
        assert len(answer["items"]) == 2
    assert "prefetch failed" in caplog.text
    assert "secret" not in caplog.text


def test_a_completion_finds_its_prompt_in_the_cache():
    folder = locate("starter")
    starter = load(folder, "cpu")
    tokens = ModelTokenizer(folder)
    completer = Completer(starter, tokens, Domains(None, tokens.fingerprint, built_in_domains(folder)), Settings())
    source = "import argparse\n\n" * 90 + "parser = argparse."
    read: list[int] = []
    forward_ids = starter.forward_ids
    starter.forward_ids = lambda ids, cache, **more: read.append(len(ids[0])) or forward_ids(ids, cache, **more)
    completer.prefetch(source, len(source), "python", lambda: None)
    assert sum(read) > 200
    read.clear()
    assert completer.complete(source, len(source), "python").completions
    assert read == []
