"""What is open is counted as it is, saved or not; nothing that is disabled; requests never wait for it."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ngram_builders.build import build
from ngram_builders.registry.registry import Registry
from spd_lsp.completion.tokenizer import ModelTokenizer
from tests.conftest import STARTER
from tests.lsp.lsp_client import URI, Editor, FakeCompleter, at, edit, opened, session, texts, until
from tests.lsp.test_server_process import COMPLETION, end, process
from tests.processes import TIMEOUT

OTHER = "file:///code/other.py"

HABIT = """\
def {name}(frobnicator):
    zygote = frobnicator.quench_all(depth=4)
    return zygote


"""
HABITS = "".join(HABIT.format(name=name) for name in ("first", "second", "third", "fourth"))
ASKED = "def fifth(frobnicator):\n    zygote = frob"
LEARNED = "frobnicator.quench_all(depth=4)"


async def test_the_completer_gets_documents_that_open_change_and_close():
    fake = FakeCompleter()
    async with session(fake) as editor:
        await opened(editor, "x = \n")
        editor.open("y = 1\n", OTHER)
        await until(lambda: OTHER in fake.changes)
        assert fake.changes[OTHER].text == "y = 1\n"
        assert fake.changes[OTHER].language == "python"
        editor.send(edit("z", 0, 0, 1, uri=OTHER))
        await editor.request(COMPLETION, at(0, 4))
        assert fake.changes[OTHER].text == "z = 1\n"
        editor.notify("textDocument/didSave", {"textDocument": {"uri": OTHER}})
        await until(lambda: fake.files == [Path("/code/other.py")])
        editor.notify("textDocument/didClose", {"textDocument": {"uri": OTHER}})
        await until(lambda: fake.changes[OTHER] is None)


async def test_the_completer_gets_no_secrets_and_no_disabled_languages():
    fake = FakeCompleter()
    async with session(fake) as editor:
        await opened(editor)
        editor.open("TOKEN=1\n", "file:///code/.env", "shellscript")
        editor.open("# Title\n", "file:///code/README.md", "markdown")
        editor.open("y = 1\n", OTHER)
        await until(lambda: OTHER in fake.changes)
        assert fake.changes.keys() == {URI, OTHER}


class Busy(FakeCompleter):
    """There is always more idle work."""

    def run_idle_work(self, seconds: float) -> bool:
        assert seconds <= 0.01
        time.sleep(seconds)
        return bool(super().run_idle_work(seconds)) or True


async def test_requests_are_answered_while_there_is_always_more_idle_work():
    fake = Busy("a")
    async with session(fake) as editor:
        await opened(editor)
        await until(lambda: fake.idle_slices > 3)
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["a"]
        before = fake.idle_slices
        await until(lambda: fake.idle_slices > before + 3)


class Broken(FakeCompleter):
    """Idle work fails."""

    def run_idle_work(self, seconds: float) -> bool:
        super().run_idle_work(seconds)
        raise ValueError("terces"[::-1])


async def test_an_error_in_idle_work_is_logged_without_its_text_and_costs_no_answer(caplog: Any):
    fake = Broken("a")
    async with session(fake) as editor:
        await opened(editor)
        await until(lambda: fake.idle_slices)
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["a"]
        await until(lambda: fake.idle_slices > 1)
    assert "idle work failed: ValueError" in caplog.text
    assert "secret" not in caplog.text


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "app.py").write_text("import os\n\n\ndef names(path):\n    return os.listdir(path)\n")
    return root


@pytest.fixture
def data(tmp_path: Path, repository: Path) -> Path:
    """A registry with a table of the repository."""
    return build_table(repository, tmp_path)


def build_table(repository: Path, tmp_path: Path, name: str = "mine") -> Path:
    """The folder of a registry with a table of a repository."""
    tokens = ModelTokenizer(STARTER)
    build([repository], name, tokens.encode_batch, token_space=tokens.space, registry=Registry(tmp_path / "data"))
    return tmp_path / "data"


async def served(editor: Editor) -> Editor:
    await editor.start()
    await editor.ready()
    return editor


async def offers(editor: Editor, uri: str, kind: int) -> list[str]:
    line = ASKED.count("\n")
    return texts(await editor.request(COMPLETION, at(line, len(ASKED.split("\n")[-1]), kind, uri=uri)))


async def until_offered(editor: Editor, uri: str, wanted: bool = True, kind: int = 1) -> None:
    """Ask until what was learned is offered, or no more: counting happens between requests."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT
    begun = LEARNED.partition("(")[0]
    while any(text.startswith(begun) for text in await offers(editor, uri, kind)) is not wanted:
        assert asyncio.get_running_loop().time() < deadline, f"{'never' if wanted else 'still'} offered"
        await asyncio.sleep(0.05)


def replaced(text: str, uri: str, version: int) -> dict[str, Any]:
    """A `didChange` of the whole document."""
    return {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]}


async def leave(child: Any, editor: Editor) -> str:
    """End the server; what it logged."""
    await editor.request("shutdown")
    editor.notify("exit")
    assert await end(child) == 0
    return (await child.stderr.read()).decode()


SERVE = ("serve", "--device", "cpu", "-vv")


@pytest.mark.slow
async def test_text_of_another_unsaved_document_is_offered_until_it_is_deleted(tmp_path: Path):
    asked, other = ((tmp_path / name).as_uri() for name in ("asked.py", "other.py"))
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path / "data"), *SERVE) as (child, editor):
        await served(editor)
        editor.open(ASKED, asked)
        await until_offered(editor, asked, False)
        editor.open(HABITS, other)
        await until_offered(editor, asked)
        editor.notify("textDocument/didChange", replaced("import os\n", other, 2))
        await until_offered(editor, asked, False)
        editor.notify("textDocument/didChange", replaced(HABITS, other, 3))
        await until_offered(editor, asked)
        editor.notify("textDocument/didClose", {"textDocument": {"uri": other}})
        await until_offered(editor, asked, False)
        log = await leave(child, editor)
        assert "completion:" in log
        assert not any(word in log for word in ("frob", "zygote", "quench", "Traceback"))
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} <= {"usage.json", ".usage.json.lock"}


@pytest.mark.slow
async def test_documents_that_are_no_files_are_served_by_the_table_of_the_open_folder(
    data: Path, repository: Path
):
    uri = "untitled:Untitled-1"
    (repository / "app.py").write_text(HABITS)
    async with process("-m", "spd_lsp", "--data-dir", str(data), *SERVE) as (child, editor):
        await editor.start(workspaceFolders=[{"uri": repository.as_uri(), "name": "mine"}])
        await editor.ready()
        editor.open(ASKED, uri)
        await until_offered(editor, uri, True)
        assert "Traceback" not in await leave(child, editor)


# A server that looks at the disk once, when it opens a table; later changes it must be told.
TOLD = """
from spd_lsp import cli
from spd_lsp.ngrams import table_files

table_files._SCAN_PAUSE = 1e6
cli.main()
"""
CREATED, CHANGED, DELETED = 1, 2, 3


@pytest.mark.slow
async def test_files_written_by_other_programs_are_offered_once_the_editor_reports_them(
    data: Path, repository: Path
):
    asked, other = (repository / name for name in ("asked.py", "other.py"))

    def tell(kind: int, editor: Editor) -> None:
        changes = [{"uri": other.as_uri(), "type": kind}, {"uri": "untitled:x", "type": kind}]
        editor.notify("workspace/didChangeWatchedFiles", {"changes": changes})

    async with process("-c", TOLD, "--data-dir", str(data), *SERVE) as (child, editor):
        await served(editor)
        editor.open(ASKED, asked.as_uri())
        await until_offered(editor, asked.as_uri(), False, 3)
        for text, kind in ((HABITS, CREATED), ("import os\n", CHANGED), (HABITS, CHANGED)):
            other.write_text(text)
            tell(kind, editor)
            await until_offered(editor, asked.as_uri(), text == HABITS, 3)
        other.unlink()
        tell(DELETED, editor)
        await until_offered(editor, asked.as_uri(), False, 3)
        assert "Traceback" not in await leave(child, editor)


async def test_clients_that_can_watch_files_are_registered():
    watches = {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}}
    async with session(FakeCompleter()) as editor:
        await editor.start(watches)
        await until(lambda: editor.received("client/registerCapability"))
        ((registered,),) = [asked["registrations"] for asked in editor.received("client/registerCapability")]
        (watcher,) = registered["registerOptions"]["watchers"]
        extensions = re.fullmatch(r"\*\*/\*\.\{(.*)\}", watcher["globPattern"])
        assert extensions and {"py", "ts", "go"} <= set(extensions[1].split(","))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["above", "closed", "other table"])
async def test_a_copy_names_the_file_and_line_that_it_comes_from(tmp_path: Path, where: str):
    folders = {"closed": tmp_path / "mine", "other table": tmp_path / "team"}
    for folder in folders.values():
        (folder / "inner").mkdir(parents=True)
        (folder / "app.py").write_text("import os\n")
    inner = folders.get(where, tmp_path) / "inner" / "habits.py"
    if where in folders:
        inner.write_text(f"import os\n\n{HABITS}")
    for folder in folders.values():
        build_table(folder, tmp_path, folder.name)
    Registry(tmp_path / "data").assign_workspace(tmp_path / "mine", [("mine", 0.7), ("team", 0.7)])
    text = ASKED if where in folders else f"{HABITS}{ASKED}"
    asked = (tmp_path / "mine" / "asked.py").as_uri()
    async with process("-m", "spd_lsp", "--data-dir", str(tmp_path / "data"), *SERVE) as (_, editor):
        await served(editor)
        editor.open(text, asked)

        async def detail() -> str:
            place = at(text.count("\n"), len(text.rpartition("\n")[2]), None, asked)
            drafts = await editor.request("spd-lsp/drafts", place)
            return next((one["details"] for one in drafts if LEARNED in one["label"]), "")

        deadline = asyncio.get_running_loop().time() + TIMEOUT
        while not re.search(r"[\w.]+:\d+", found := await detail()):
            assert asyncio.get_running_loop().time() < deadline, found
            await asyncio.sleep(0.05)
    named, number = re.search(r"((?:\w+: )?[\w./]+):(\d+)", found).groups()
    expected = {"closed": "inner/habits.py", "other table": "team: inner/habits.py"}.get(where, "asked.py")
    assert named == expected, found
    source = inner.read_text() if where in folders else text
    assert LEARNED in source.splitlines()[int(number) - 1], (found, source)
