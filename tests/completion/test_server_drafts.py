"""What a model server writes is offered beside what n-grams, copies and names know; secrets are not sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.context import build_context
from spd_lsp.completion.draft_text import DraftText
from spd_lsp.completion.loading import load_completer
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.server_drafts import server_drafts
from spd_lsp.models.model_server import Question, Written
from spd_lsp.settings import Settings
from tests.models.model_servers import told_server
from tests.planted import ALPHANUMERIC, BASE64, letters, lines, private_key
from tests.secret_shapes import FAMILIAR


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


class Recorder:
    """Stands in for a server: keeps what it would be sent, and does not answer."""

    def __init__(self) -> None:
        self.sent = ""

    def write(self, question: Question, check: object) -> list[Written]:
        self.sent = question.before + question.after
        return []


def leaves(completer: Completer, source: str, cursor: int) -> str:
    """What of a document a server is sent."""
    server = Recorder()
    context = build_context(source, cursor, "python", completer.context_budget, completer.tokens.count)
    texts = DraftText(completer.tokens, completer.prompt(context), context)
    found = server_drafts(server, texts, source, completer.settings, lambda: None)  # type: ignore[arg-type]
    assert found is None
    return server.sent


_CODE = "import os\n\n\ndef connect(url):\n    return os.popen(url)\n\n\n"


@pytest.mark.slow
def test_next_to_nothing_is_sent_of_a_secret_while_it_is_typed(told: Told):
    """Key by key, with and without what an editor closes behind the cursor."""
    sent: dict[str, int] = {}
    for name, before, secret, after in FAMILIAR:
        closed = after.partition("\n")[0]
        for typed in range(1, len(secret) + 1):
            for behind in {"", closed}:
                start = _CODE + before + secret[:typed]
                given = leaves(told.completer, f"{start}{behind}\nx = 1\n", len(start))
                sent[name] = max(sent.get(name, 0), typed if given else 0)
    some = {name: typed for name, typed in sent.items() if typed}
    assert len(FAMILIAR) == 120 and len(some) <= 10, some
    assert max(some.values()) < 30, some


TYPED = {
    "aws": ('aws_secret_access_key = "', letters(BASE64, 40)),
    "password": ('password = "', "Kestrel!4821"),
    "pass": ('db_pass = "', "Kestrel!4821"),
    "github": ('x = "', "ghp_" + letters(ALPHANUMERIC, 36)),
    "bare": ("PASSWORD=", "Kestrel!4821"),
    "below its name": ('password = (\n    "', "Kestrel!4821"),
    "value of a name": ('- name: DB_PASSWORD\n  value: "', "Kestrel!4821"),
}


@pytest.mark.parametrize("name", TYPED)
def test_a_secret_that_is_typed_is_not_sent_to_a_server(told: Told, name: str):
    before, secret = TYPED[name]
    source = _CODE + before
    for typed in (1, 3, len(secret) // 2, len(secret) - 1, len(secret)):
        complete(told.completer, source + secret[:typed])
    sent = [json.dumps(body) for *_, body in told.sent]
    assert not any("ghp_" in body for body in sent) if name == "github" else sent == []


@pytest.mark.parametrize("name", [name for name in TYPED if name != "below its name"])
@pytest.mark.parametrize("where", ["above", "below"])
def test_an_unfinished_secret_elsewhere_is_not_sent(told: Told, name: str, where: str):
    before, secret = TYPED[name]
    line, here = before + secret, "    warehouse."
    source = f"{line}\n{_CODE}{here}" if where == "above" else f"{_CODE}{here}\n\n{line}\n"
    cursor = source.index(here) + len(here)
    told.completer.complete(source, cursor, "python", explicit=True)
    assert told.sent, "the rest of the text is sent"
    assert not any(secret[:8] in json.dumps(body) for *_, body in told.sent)


def test_of_a_line_that_lists_secrets_nothing_is_sent(told: Told):
    listed = "; ".join(f"password{n} = '{letters(ALPHANUMERIC, 14, n)}!7'" for n in range(1_100))
    complete(told.completer, f"{listed}")
    told.completer.complete(f"x = \n{listed}\n", 4, "python", explicit=True)
    told.completer.complete(f"{listed}\nx = ", len(listed) + 5, "python", explicit=True)
    assert told.sent == []


def test_of_a_long_line_with_a_secret_not_even_the_end_is_sent(told: Told):
    line = f'connect(password="Kestrel!4821", {"x=1, " * 2_000}y='
    complete(told.completer, line)
    assert told.sent == []
