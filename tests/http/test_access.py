"""Who is refused, and what a client can cost: each promise of SECURITY.md about `serve --http`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("uvicorn")

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.extras import remedy_for
from spd_lsp.http.access import token_in
from spd_lsp.lsp.transport.access import parse_address
from tests.http.http_server import HttpServer, run_server

ASKED = json.dumps({"prompt": "import argparse\nparser = argparse.", "language": "python"})

HOSTILE_BODIES = {
    "not JSON": ("{prompt: 1}", "expected JSON"),
    "deep JSON": ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "expected JSON"),
    "a number of 5000 digits": ('{"n":' + "9" * 5000 + "}", "expected JSON"),
    "an infinite number": ('{"n_predict":1e999}', "Expected `int`, got `float` - at `$.n_predict`"),
    "half an alternative": ('{"n":1.5}', "Expected `int`, got `float` - at `$.n`"),
    "too many alternatives": ('{"n_cmpl":17}', "Expected `int` <= 16 - at `$.n_cmpl`"),
    "tokens for a text": ('{"prompt":[1,2]}', "Expected `str`, got `array` - at `$.prompt`"),
    "a text for an object": ('{"input_extra":["a"]}', "Expected `object`, got `str` - at `$.input_extra[0]`"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with run_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.mark.parametrize("body, told", HOSTILE_BODIES.values(), ids=HOSTILE_BODIES)
def test_a_hostile_body_is_refused_in_a_sentence_that_does_not_quote_it(server: HttpServer, body: Any, told: str):
    status, message = server.refusal("/infill", body)
    assert status == 400 and told in message and len(message) < 200
    assert "99999" not in message


def test_null_is_as_good_as_absent(server: HttpServer):
    asked = {"prompt": "x", "path": None, "input_extra": [{"filename": None, "text": "y"}]}
    assert server.request("POST", "/infill", json.dumps(asked))[0] == 200


REFUSED = {
    "no token": (401, {"Authorization": ""}),
    "another token": (401, {"Authorization": "Bearer x\xff"}),
    "a web page": (403, {"Origin": "https://example.com"}),
    "a page of a file or a sandbox": (403, {"Origin": "null"}),
    "a page that sends no Origin": (403, {"Sec-Fetch-Site": "cross-site"}),
    "a name that leads here": (403, {"Host": "evil.example:8012"}),
    "a name that looks like this machine": (403, {"Host": "127.0.0.1.evil.example"}),
    "no host": (403, {"Host": ""}),
}


@pytest.mark.parametrize("status, headers", REFUSED.values(), ids=REFUSED)
def test_only_programs_with_the_token_are_served_and_no_web_page(server: HttpServer, status: int, headers: Any):
    assert server.request("POST", "/infill", ASKED)[0] == 200
    found, text = server.request("POST", "/infill", ASKED, {"Content-Type": "application/json"} | headers)
    assert found == status and json.loads(text)["error"]["message"]
    if status == 403:
        assert server.request("GET", "/health", None, headers)[0] == 403


def test_every_path_but_health_needs_the_token(server: HttpServer):
    public = [path for path in ("/health", "/v1/models", "/infill", "/x") if served(server, path)]
    assert public == ["/health"]
    assert server.request("GET", "/x")[0] == 404 and server.request("GET", "/infill")[0] == 405


def served(server: HttpServer, path: str) -> bool:
    return server.request("GET", path, None, {"Authorization": ""})[0] != 401


@pytest.mark.parametrize("address", ["0.0.0.0:8012", "[::]:8012", "192.168.1.5:8012", "example.com:8012"])
def test_an_address_that_others_reach_is_refused_with_what_to_do(address: str, tmp_path: Path):
    done = CliRunner().invoke(main, ["--data-dir", str(tmp_path), "serve", "--http", address])
    assert done.exit_code == 1
    assert "other machines can reach" in done.output and "ssh -L" in done.output


@pytest.mark.parametrize("options", [["--socket"], ["--stdio"]])
def test_http_excludes_the_protocol_of_editors(options: list[str]):
    done = CliRunner().invoke(main, ["serve", "--http", "8012", *options])
    assert done.exit_code == 1 and "cannot be combined" in done.output
    assert "spd-lsp[http]" in remedy_for("uvicorn")


def test_addresses_of_this_machine_are_accepted():
    assert parse_address("8012") == parse_address("localhost:8012") == ("127.0.0.1", 8012)
    assert parse_address("[::1]:80") == ("::1", 80)
    with pytest.raises(UserError, match="expected an address such as"):
        parse_address("127.0.0.1:99999")


def test_the_token_is_kept_where_only_its_user_can_read_it(tmp_path: Path):
    token, file = token_in(tmp_path / "data")
    assert len(token) > 40 and file.stat().st_mode & 0o777 == 0o600
    assert token_in(tmp_path / "data") == (token, file)
    for mode in (0o640, 0o602):
        file.chmod(mode)
        with pytest.raises(UserError, match="others may know the token"):
            token_in(tmp_path / "data")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_read_the_token():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # everybody can get here
        with run_server(folder, "--model", "none") as server:
            command = ["cat", str(server.token_file)]
            assert subprocess.run(command, capture_output=True).returncode == 0
            assert subprocess.run(command, capture_output=True, user="nobody", cwd="/").returncode != 0
