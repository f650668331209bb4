"""The path of a completion through the code: few files, and from stage to stage without a way back."""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner
from lsprotocol.types import TEXT_DOCUMENT_COMPLETION

from spd_lsp.cli import main
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.loading import load_completer
from spd_lsp.lsp import server
from spd_lsp.lsp.worker import Worker
from spd_lsp.ngrams.serving_tables import ServingTables
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import at, session

ROOT = Path(__file__).parents[1]
PACKAGES = tuple(str(ROOT / name) for name in ("spd_lsp", "ngram_builders"))
COMPLETER = "spd_lsp/completion/completer.py"
MOST_FILES = 26  # of a request, from its handler to the items

SOURCE = """class Reader:
    def __init__(self, path, rows=None):
        self.path = path
        self.rows = rows or []

    def read_rows(self):
        self.rows = self.path.read_text().splitlines()
        return self.ro
"""

# The stages of `Completer.complete`, in order, by the files that it calls.
STAGES = {
    "ngram_builders/sources/masking.py": "context",  # whether the cursor is in a secret
    "spd_lsp/completion/context.py": "context",
    "spd_lsp/completion/tokenizer.py": "prompt",
    "spd_lsp/ngrams/serving_tables.py": "n-grams",
    "spd_lsp/completion/draft_text.py": "decoding",
    "spd_lsp/lsp/worker.py": "decoding",  # is asked before each pass whether to go on
    "spd_lsp/models/base.py": "decoding",
    "spd_lsp/decoding/best_first.py": "decoding",
    "spd_lsp/completion/ranking.py": "offer",
    "spd_lsp/completion/offer.py": "offer",
    "spd_lsp/ngrams/open_documents.py": "offer",  # the names in open documents and in what they import
}


UPKEEP = (Completer.update_documents.__code__, ServingTables.serve.__code__)


class Trace:
    """The files whose functions run during one request, in the event loop and in the worker thread.

    Not those that bring the index up to date: a reader takes each call of `UPKEEP` as one step.
    """

    def __init__(self) -> None:
        self.upkeep: FrameType | None = None  # the call of it that has not returned
        self.files: list[str] = []
        self.calls: list[str] = []  # of `Completer.complete` to other files, in order

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame is self.upkeep:
            self.upkeep = None
        if event != "call" or self.upkeep or not frame.f_code.co_filename.startswith(PACKAGES):
            return
        file = Path(frame.f_code.co_filename).relative_to(ROOT).as_posix()
        if frame.f_code in UPKEEP:
            self.upkeep = frame
        if file not in self.files:
            self.files.append(file)
        if file == COMPLETER and frame.f_code.co_name == "complete":
            self.calls.clear()
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        if caller == str(ROOT / COMPLETER) and file != COMPLETER:
            self.calls.append(file)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs in this thread."""
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Of a completion in an open file of an indexed repository, and not the first one, which opens tables.

    It is the shortest of three: now and then one looks whether tables were replaced.
    """
    with pytest.MonkeyPatch.context() as patch:
        return asyncio.run(record_completion(tmp_path_factory.mktemp("path"), patch))


async def record_completion(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    repository, data = folder / "code", folder / "data"
    repository.mkdir()
    file = repository / "reader.py"
    file.write_text(SOURCE.replace("self.ro\n", "self.rows\n"))
    built = CliRunner().invoke(main, ["--data-dir", str(data), "build-ngrams", str(repository)])
    assert built.exit_code == 0, built.output

    traces: list[Trace] = []
    handler, options = server._FEATURES[TEXT_DOCUMENT_COMPLETION]
    work = Worker.complete

    async def traced_handler(ls: Any, params: Any) -> Any:
        traces.append(Trace())
        with traces[-1].recording():
            return await handler(ls, params)

    def traced_work(*arguments: Any) -> Any:
        with traces[-1].recording():
            return work(*arguments)

    monkeypatch.setitem(server._FEATURES, TEXT_DOCUMENT_COMPLETION, (traced_handler, options))
    monkeypatch.setattr(Worker, "complete", traced_work)
    async with session(load_completer, Settings(data_dir=str(data))) as editor:
        await editor.start()
        editor.open(SOURCE, uri=file.as_uri())
        await editor.ready()
        for _ in range(4):
            reply = await editor.request("textDocument/completion", at(7, 22, uri=file.as_uri()))
            assert reply["items"]
    return min(traces[1:], key=lambda trace: len(trace.files))


def test_a_completion_passes_each_stage_once_in_order(trace: Trace) -> None:
    stages = [STAGES[file] for file in trace.calls]
    assert [stage for stage, _ in itertools.groupby(stages)] == list(dict.fromkeys(STAGES.values()))


def test_a_completion_opens_few_files(trace: Trace) -> None:
    assert len(trace.files) <= MOST_FILES, "\n".join(trace.files)


def test_contributors_are_told_to_read_the_files_that_a_completion_enters(trace: Trace) -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = contributing.partition("To follow one completion")[2].partition("`tests/test_path.py`")[0]
    named = re.findall(r"`([\w/]+\.py)`", told)
    files = [name if name.startswith("ngram_builders/") else f"spd_lsp/{name}" for name in named]
    completer = files.index(COMPLETER)
    assert files[: completer + 1] == trace.files[: completer + 1]
    assert files[-1] == trace.files[-1]
    assert sorted(files) == sorted(trace.files)
    assert f"these {len(files)} files" in told
