"""Both APIs answer over real HTTP with the same completions, in the fields that their clients read."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.completion.fill_formats import FILL_FORMATS, FillFormat
from spd_lsp.http.openai import read_prompt
from tests.http.http_server import HttpServer, run_server
from tests.lsp.test_blocks import SOURCE as BLOCK_BEGINS
from tests.processes import wait_until

ABOVE = "import argparse\n\n"
ASKED = {"input_prefix": ABOVE, "prompt": "parser = argparse.", "input_suffix": "\n", "path": "app.py"}
LEDGER = "ledger.fetch_undisclosed(account)\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "shop").mkdir()
    (folder / "shop" / "stock.py").write_text("warehouse.reserve_pallets(order)\n" * 20)
    built = CliRunner().invoke(main, ["--data-dir", str(folder / "data"), "build-ngrams", str(folder / "shop")])
    assert built.exit_code == 0, built.output
    with run_server(folder) as server:
        yield server


def contents(answers: list[dict[str, Any]]) -> list[str]:
    return [one["content"] for one in answers]


def test_infill_has_the_fields_that_llama_cpp_s_clients_read(server: HttpServer):
    answer = server.post("/infill", **ASKED, n_predict=128, samplers=["top_k", "infill"], id_slot=0)
    assert answer["content"].startswith("ArgumentParser(")
    assert answer["stop"] is True and answer["truncated"] is False
    timings = answer["timings"]
    assert answer["tokens_evaluated"] == timings["prompt_n"] + timings["cache_n"] > 0
    assert answer["tokens_cached"] == answer["tokens_evaluated"] + timings["predicted_n"]
    assert timings["predicted_ms"] > 0 and timings["predicted_per_second"] > 0
    status, text = server.request(
        "POST", "/infill", json.dumps({**ASKED, "response_fields": ["content", "timings/prompt_n", "no/such"]})
    )
    assert status == 200 and '"content":"' in text  # llama.vim looks for it without a space
    assert json.loads(text).keys() == {"content", "timings/prompt_n"}


@pytest.mark.parametrize("name", ["n", "n_cmpl"])
def test_several_alternatives_are_a_list_of_different_texts_best_first(server: HttpServer, name: str):
    answers = server.post("/infill", **ASKED, **{name: 3, "explicit": True})
    assert len(set(contents(answers))) == len(answers) == 3
    assert [one["index"] for one in answers] == [0, 1, 2]
    assert contents(answers)[0] == server.post("/infill", **ASKED)["content"]


def test_without_tokens_to_predict_the_prompt_is_read_ahead(server: HttpServer):
    asked = {**ASKED, "input_prefix": "import shlex\n" + ABOVE}
    assert server.post("/infill", **asked, n_predict=0, stream=False)["content"] == ""
    timings = server.post("/infill", **asked)["timings"]
    assert timings["cache_n"] > timings["prompt_n"]


def test_files_that_come_along_count_as_open_until_they_no_longer_come(server: HttpServer):
    asked = {"input_prefix": "import ledger\n\nledger.", "path": "book.py", "explicit": True, "n": 3}
    extra = [{"filename": "accounts.py", "text": LEDGER * 9}]
    assert "fetch_undisclosed(account)" in contents(server.post("/infill", **asked, input_extra=extra))
    assert "fetch_undisclosed(account)" not in contents(server.post("/infill", **asked))
    secret = [{"filename": ".env.py", "text": LEDGER * 9}]
    assert "fetch_undisclosed(account)" not in contents(server.post("/infill", **asked, input_extra=secret))


def test_a_path_in_the_folder_of_the_start_chooses_syntax_and_tables(server: HttpServer):
    asked = {"input_prefix": "warehouse.", "explicit": True}
    assert "reserve_pallets" in server.post("/infill", **asked, path="shop/order.py")["content"]
    assert "reserve_pallets" not in server.post("/infill", **asked, path="other/order.py")["content"]
    assert server.post("/infill", **asked, path="shop/order.md")["content"] == ""
    assert server.post("/infill", **asked, path=".env")["content"] == ""


def test_a_text_without_a_name_belongs_beside_the_file_whose_lines_it_has(server: HttpServer):
    """llama.vim names files only when it sends parts of them ahead, and never the one that is completed."""
    line = "def order_all_pallets_of(warehouse):\n"
    server.post("/infill", n_predict=0, input_extra=[{"filename": "shop/order.py", "text": line}])
    asked = {"input_prefix": f"{line}    warehouse.", "explicit": True}
    assert "reserve_pallets" in server.post("/infill", **asked)["content"]


def test_texts_end_before_stop_words_and_late_ones_with_their_line(server: HttpServer):
    stopped = server.post("/infill", **ASKED, stop=["Parser"])
    assert (stopped["content"], stopped["stop_type"]) == ("Argument", "eos")
    block = {"input_prefix": BLOCK_BEGINS, "path": "points.py", "explicit": True}
    assert "\n" in server.post("/infill", **block)["content"].strip()
    assert "\n" not in server.post("/infill", **block, t_max_predict_ms=1)["content"].strip()


def test_the_openai_package_gets_choices_probabilities_and_a_stream(server: HttpServer):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.token) as client:
        assert [model.id for model in client.models.list()] == ["starter"]
        asked = {"model": "any", "prompt": ABOVE + "parser = argparse.", "extra_body": {"path": "app.py"}}
        found = client.completions.create(**asked, n=3, max_tokens=20)
        texts = [choice.text for choice in found.choices]
        assert len(set(texts)) == 3 and texts[0].startswith("ArgumentParser(")
        assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
        assert all(0 < choice.probability <= 1 for choice in found.choices if choice.probability is not None)
        parts = list(client.completions.create(**asked, n=3, stream=True))
        assert [part.choices[0].text for part in parts] == texts
        stopped = client.completions.create(**asked, stop=["Parser"])
        assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("Argument", "stop")
        with pytest.raises(openai.AuthenticationError, match="Bearer TOKEN"):
            client.with_options(api_key="wrong").models.list()


_BEFORE, _AFTER = "import os\nfor name in os.", "\n    print(name)\n"
_ABOVE, _RECENT = _BEFORE.splitlines(keepends=True)
_TEXTS = {"{before}": _BEFORE, "{above}": _ABOVE, "{recent}": _RECENT, "{after}": _AFTER}


def _laid_out(form: FillFormat) -> str:
    """The prompt of a family, as its tokens are written as text."""
    parts = (_TEXTS.get(part) or part.replace("▁<", " <") + " " * part.startswith("▁<") for part in form.parts)
    return "".join(parts).lstrip(" ")


def _prefix_first(form: FillFormat) -> str:
    """The same with all that is left of the cursor first, as most clients write it."""
    suffix = form.parts[form.parts.index("{after}") - 1]
    before, *rest = [mark for mark in form.marks if mark != suffix]
    if before.startswith("▁"):
        return f"<PRE> {_BEFORE} <SUF>{_AFTER} <MID>"
    return f"{before}{_BEFORE}{suffix}{_AFTER}{''.join(rest)}"


_STARCODER = f"<fim_prefix>{_BEFORE}<fim_suffix>{_AFTER}<fim_middle>"
_QWEN = f"<|fim_prefix|>{_BEFORE}<|fim_suffix|>{_AFTER}<|fim_middle|>"
_DEEPSEEK = f"<｜fim▁begin｜>{_BEFORE}<｜fim▁hole｜>{_AFTER}<｜fim▁end｜>"
IN_TOKENS = {
    **{one.name: _laid_out(one) for one in FILL_FORMATS},
    **{f"{one.name}, prefix first": _prefix_first(one) for one in FILL_FORMATS},
    "starcoder with the suffix first": f"<fim_prefix><fim_suffix>{_AFTER}<fim_middle>{_BEFORE}",
    "code-llama with the suffix first": f"<PRE> <SUF>{_AFTER} <MID> {_BEFORE}",
}


@pytest.mark.parametrize("name", IN_TOKENS)
def test_a_prompt_in_any_family_s_tokens_is_both_sides_of_the_cursor(name: str):
    assert read_prompt(IN_TOKENS[name]) == (_BEFORE, _AFTER)


def test_such_a_prompt_is_completed_as_the_same_texts_are(server: HttpServer):
    asked = {"n": 3, "max_tokens": 8, "language": "python"}
    plain = server.post("/v1/completions", prompt=_BEFORE, suffix=_AFTER, **asked)["choices"]
    for one in ("qwen", "deepseek, prefix first", "code-llama", "codestral"):
        found = server.post("/v1/completions", prompt=IN_TOKENS[one], **asked)["choices"]
        assert [choice["text"] for choice in found] == [choice["text"] for choice in plain], one


@pytest.mark.parametrize(
    "prompt",
    [
        "<|fim_begin|>x<|fim_hole|>y<|fim_end|>",
        "<fim_prefix>x",
        "<fim_prefix>x<fim_suffix>y",
        "<|fim_prefix|>x<fim_suffix>y<|fim_middle|>",
        "<|im_start|>user\nx<|im_end|>",
        "<|repo_name|>x\n<|file_sep|>a.py\nx = ",
    ],
)
def test_tokens_that_nobody_knows_are_refused(server: HttpServer, prompt: str):
    status, message = server.refusal("/v1/completions", json.dumps({"prompt": prompt}))
    assert status == 400 and "'suffix'" in message and "qwen" in message


@pytest.mark.parametrize(
    "prompt",
    [
        "[PREFIXES]\nx = ",
        "x = '<fim_prefix>' + y\n",
        'PIPES = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")\n',
        "List<Fillable> x = ",
        "return <FillForm>\n    <AutoFill>x</AutoFill>\n",
        "+++++ x\n",
    ],
)
def test_source_code_is_no_such_prompt(prompt: str):
    assert read_prompt(prompt) == (prompt, "")


def test_work_for_a_client_that_left_is_stopped(server: HttpServer):
    body = json.dumps({**ASKED, "input_prefix": "\n".join(f"value_{n} = compute({n})" for n in range(2000))})
    head = f"POST /infill HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    finished = sum("completion: " in line for line in server.log)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall((head + body).encode())
    assert server.post("/infill", **ASKED)["content"]
    wait_until("that was logged", lambda: sum("completion: " in line for line in server.log) > finished)
    assert sum("completion: " in line for line in server.log) == finished + 1  # not that of the client that left
