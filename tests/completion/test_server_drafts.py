"""What a model server writes is offered beside what n-grams, copies and names know; secrets are not sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.loading import load_completer
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.settings import Settings
from tests.models.model_servers import told_server
from tests.planted import lines, private_key


def token(text: str, logprob: float, *others: tuple[str, float]) -> dict[str, Any]:
    """As llama.cpp writes it."""
    likeliest = [{"bytes": list(one.encode()), "logprob": number} for one, number in ((text, logprob), *others)]
    return {**likeliest[0], "top_logprobs": likeliest}


def likely(path: str, body: Any) -> tuple[int, bytes]:
    """`close_gates()` of probability .3, and of .2 that `open_gates()` goes on from its first token."""
    if body["prompt"].endswith("open"):
        tokens = [token("_gates()", -0.01)]
    else:
        tokens = [token("close", -1.19, ("open", -1.59)), token("_gates", -0.01), token("()", -0.01)]
    content = "".join(bytes(one["bytes"]).decode() for one in tokens)
    answer = {"content": content, "completion_probabilities": tokens, "stop_type": "word"}
    return 200, json.dumps(answer).encode()


class Told:
    """A completer whose server answers as a test says, and what that was sent."""

    def __init__(self, made: Completer, sent: list[Any]) -> None:
        self.completer, self.sent, self.answer = made, sent, likely


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    with told_server(lambda path, body: told.answer(path, body)) as (address, sent):
        settings = Settings(model=address, data_dir=str(tmp_path_factory.mktemp("data")))
        told = Told(load_completer(settings, lambda text: None), sent)
        yield told


@pytest.fixture
def told(server: Told) -> Told:
    server.sent.clear()
    server.answer = likely
    assert server.completer.server
    server.completer.server.problem = ""
    return server


def complete(completer: Completer, source: str) -> CompletionResult:
    return completer.complete(source, len(source), "python", name="file:///app.py", explicit=True)


def texts(result: CompletionResult) -> list[str]:
    return [one.text for one in result.completions]


def test_its_texts_are_offered_with_their_probabilities(told: Told):
    result = complete(told.completer, "def later():\n    warehouse.")
    assert texts(result)[:2] == ["close_gates()", "open_gates()"]
    assert [round(one.score, 1) for one in result.completions[:2]] == [0.3, 0.2]
    assert result.passes == 0 and result.instead == ""


def test_a_word_that_is_begun_need_not_be_written_again(told: Told):
    def rest(path: str, body: Any) -> tuple[int, bytes]:
        return 200, json.dumps({"content": "ose_gates()", "stop_type": "word"}).encode()

    told.answer = rest
    assert texts(complete(told.completer, "def later():\n    warehouse.cl"))[0] == "ose_gates()"


def test_the_local_tables_rank_its_texts_and_add_their_own(told: Told):
    opened = "warehouse.open_gates()\n" * 6 + "def later():\n    warehouse."
    assert texts(complete(told.completer, opened))[:2] == ["open_gates()", "close_gates()"]
    offered = texts(complete(told.completer, opened.replace("open_gates()", "reserve_pallets(order)")))
    assert {"close_gates()", "reserve_pallets(order)"} <= set(offered)


def test_where_it_does_not_answer_the_bundled_model_does_and_says_so(told: Told, tmp_path: Path):
    alone = load_completer(Settings(data_dir=str(tmp_path), context_tokens=1000), lambda text: None)
    source = "import argparse\n\nparser = argparse."
    told.answer = lambda path, body: (503, b'{"error": {"message": "Loading model"}}')
    result = complete(told.completer, source)
    assert texts(result)[0] == texts(complete(alone, source))[0]
    assert "Loading model" in result.instead and result.passes > 0


SECRETS = {"key": next(iter(lines().values()))[0], "private key": f'KEY = """{private_key()}"""'}


@pytest.mark.parametrize("line", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("where", ["above", "below", "here"])
def test_no_secret_is_sent(told: Told, where: str, line: str):
    here, filler = "    warehouse.", "x = 1\n" * 3
    before = {"above": f"{line}\n{filler}{here}", "below": filler + here, "here": filler + line}[where]
    after = f"\n{filler}{line}\n" if where == "below" else "\n"
    told.completer.complete(before + after, len(before), "python", explicit=True)
    assert bool(told.sent) == (where != "here"), "the rest of the text is sent"
    sent = json.dumps([body for *_, body in told.sent])
    assert not any(json.dumps(part)[1:-1] in sent for part in line.split("\n"))


def test_a_named_format_lays_out_one_text_for_servers_that_read_none_right_of_the_cursor(told: Told):
    told.completer.apply_settings(replace(told.completer.settings, fill_format="qwen"))
    told.completer.complete("x = 1\ny = \nz", 10, "python", explicit=True)
    sent = told.sent
    assert sent[0][0] == "/completion"
    assert sent[0][2]["prompt"] == "<|fim_prefix|>x = 1\ny = <|fim_suffix|>\nz<|fim_middle|>"
