"""Secrets in ordinary sources get into no table, cache or export, and are never offered to an editor."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ngram_builders.index.table_file import Table
from ngram_builders.registry.registry import Registry
from ngram_builders.token_cache import CACHE_FILE, TokenCache
from spd_lsp.cli import main
from spd_lsp.completion.offer import SECRET_REASON
from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.conftest import STARTER
from tests.lsp.lsp_client import at
from tests.lsp.test_server_process import COMPLETION, process
from tests.planted import lines, private_key

PIECE = 10  # letters of a secret that must not come back
SECRETS = {what: secret for what, (_, secret) in lines().items()}
CODE = "import os\n\n\ndef connect(url):\n    return os.popen(url)\n\n\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every kind of secret in it, several times."""
    folder = tmp_path_factory.mktemp("shop")
    for number in range(3):
        said = "".join(f"{line}\nname{number} = {number}\n" for line, _ in lines().values())
        (folder / f"settings{number}.py").write_text(f"{CODE}{said}end = {number}\n")
    (folder / "sign.py").write_text(f'KEY = """{private_key()}"""\n{CODE}')
    return folder


@pytest.fixture(scope="module")
def data(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build of it keeps, and an export beside it."""
    folder = tmp_path_factory.mktemp("data")
    told = run(folder, "build-ngrams", str(shop), "--name", "shop")
    number = 3 * len(lines()) + private_key().count("\n") + 1
    assert f"masked: {number} lines that look like secrets\n" in told
    run(folder, "ngrams", "export", "shop", str(folder / "shop.ngt"))
    return folder


def run(data: Path, *arguments: str) -> str:
    result = CliRunner().invoke(main, ["--data-dir", str(data), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def pieces() -> set[str]:
    """What must not come back."""
    whole = [*SECRETS.values(), *(line for line in private_key().split("\n")[1:-1])]
    return {secret[i : i + PIECE] for secret in whole for i in range(len(secret) - PIECE + 1)}


def test_no_text_of_a_build_or_an_export_has_a_secret(data: Path) -> None:
    tokens, array = ModelTokenizer(STARTER), Table.open(data / "shop.ngt").array
    exported = [array.stream(number) for number in range(len(array.breaks) - 1)]
    home = Registry(data).find("shop").path.parent
    with TokenCache(home / CACHE_FILE, tokens.fingerprint) as cache:
        cached = [cache.ids(digest) for digest in cache.token_counts()]
    texts = [tokens.bytes_of(ids.tolist()).decode() for ids in (*exported, *cached)]
    assert len(texts) == 8 and all(CODE in text for text in texts), "the code can be read"
    assert not [piece for piece in pieces() if any(piece in text for text in texts)]


@pytest.mark.slow
async def test_no_editor_is_offered_a_secret_of_the_table_or_of_an_open_file(data: Path, shop: Path) -> None:
    """Over real stdio: the beginning of each line is typed, in a file that says it once already."""
    arguments = ("-m", "spd_lsp", "--data-dir", str(data), "serve", "--device", "cpu")
    async with process(*arguments) as (_, editor):
        await editor.start_and_load()
        options = {"drafts": 5, "maxTokens": 48}
        editor.notify("workspace/didChangeConfiguration", {"settings": {"spd-lsp": options}})
        offered: list[str] = []
        reasons: set[str] = set()
        for number, (line, secret) in enumerate(lines().values()):
            uri = (shop / f"new{number}.py").as_uri()
            start = line[: line.index(secret)]
            typed = [start, start + secret[:5]]
            for version, text in enumerate(f"{CODE}{line}\nx = 1\n\n{line}\ny = 1\n\n{one}" for one in typed):
                document = {"uri": uri, "languageId": "python", "version": version, "text": text}
                editor.notify("textDocument/didOpen", {"textDocument": document})
                rows = text.split("\n")
                place = {**at(len(rows) - 1, len(rows[-1])), "textDocument": {"uri": uri}}
                answer = await editor.request(COMPLETION, place)
                reasons.add((await editor.status())["reason"])
                before = rows[-1][-PIECE:]
                offered += [before + item["textEdit"]["newText"] for item in answer["items"]]
                editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        assert len(offered) > len(lines()) // 2
        assert SECRET_REASON in reasons
        assert not [text for text in offered if any(piece in text for piece in pieces())]
