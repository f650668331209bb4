"""Tables kept up to date: real tables with what changed since, asked as a completion asks them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import deque
from functools import cache
from pathlib import Path

import pytest

from ngram_builders.build import build
from ngram_builders.index.mixture import Mixture
from ngram_builders.registry.registry import Registry
from ngram_builders.token_cache import IndexedState, read_indexed_files
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.ngrams import table_files
from spd_lsp.ngrams.background_process import Rebuilder
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.ngrams.serving_tables import OPEN_FILES, OpenFiles, ServingTables
from tests.conftest import STARTER

LINES = (
    "def read(path):\n",
    "    return path\n",
    "\n",
    "x = [1, 2]\n",
    "import os\n",
    "class A:\n",
    "    def f(self):\n",
)
ELSEWHERE = OpenDocument("elsewhere", None, None, "-")


@cache
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


def teach(root: Path, registry: Registry) -> None:
    build([root], "mine", tokens().encode_batch, token_space=tokens().space, registry=registry, model="starter")


def living(registry: Registry, rebuilder: Rebuilder | None = None) -> ServingTables:
    open_files = OpenFiles(tokens())
    return ServingTables(registry, tokens().fingerprint, open_files, rebuilder)


def opened(path: Path, text: str) -> OpenDocument:
    return OpenDocument(path.as_uri(), path, "python", text)


def show(tables: ServingTables, path: Path, text: str) -> None:
    assert tables.open_files
    one = opened(path, text)
    tables.open_files.update_documents({one.name: one})


def settle(tables: ServingTables) -> None:
    while tables.run_idle_work(1.0):
        pass


def serving(tables: ServingTables, file: Path) -> Mixture:
    found = tables.mixture_for(file, "python")
    assert found is not None
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in ("a.py", "b.py"):
        (folder / name).write_text(f"import os\n\n\ndef {name[0]}(path):\n    return os.listdir(path)\n")
    return folder


@pytest.fixture
def registry(tmp_path: Path, root: Path) -> Registry:
    registry = Registry(tmp_path / "data")
    teach(root, registry)
    return registry


def test_without_a_record_of_its_files_a_table_serves_as_it_was_built(registry: Registry, root: Path):
    home = registry.find("mine").path.parent
    for file in home.glob("*.sqlite*"):
        file.unlink()
    tables = living(registry)
    show(tables, root / "a.py", "zygote = frobnicator\n")
    settle(tables)
    assert serving(tables, root / "a.py").names == ("mine", OPEN_FILES)


def test_a_build_by_another_process_is_taken_over_with_what_is_unsaved(registry: Registry, root: Path):
    tables, file = living(registry), root / "a.py"
    assert tables.open_files
    serving(tables, file)
    show(tables, file, file.read_text() + "zygote = frobnicator\n")
    (root / "c.py").write_text("import sys\n")
    teach(root, registry)
    settle(tables)
    serving(tables, file)
    settle(tables)
    rebuilt = tables.open_files.tables["mine"]
    assert str(root / "c.py") in rebuilt.contents.files
    assert len(rebuilt.differences()) == 2
    show(tables, file, file.read_text())
    assert not rebuilt.differences()


def test_the_tables_of_an_open_document_are_open_before_the_first_request(registry: Registry, root: Path):
    tables = living(registry)
    show(tables, root / "a.py", "import os\n")
    settle(tables)
    assert tables.open_files and "mine" in tables.open_files.tables
    assert [one.table.name for one in tables.tables] == ["mine"]


def outgrow(tables: ServingTables, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "MAX_CHANGED_FILES", 0)
    serving(tables, root / "a.py")
    (root / "c.py").write_text("".join(f"value_{i} = compute({i})\n" for i in range(50)))
    settle(tables)


def test_a_table_far_behind_its_files_is_named_once_where_it_is_not_rebuilt(
    registry: Registry, root: Path, monkeypatch: pytest.MonkeyPatch
):
    tables = living(registry)
    outgrow(tables, root, monkeypatch)
    settle(tables)
    assert tables.problems == ["n-gram table mine is outdated; run: spd-lsp ngrams rebuild mine"]


def test_a_table_far_behind_its_files_is_rebuilt_and_compared_with_them_anew(
    registry: Registry, root: Path, monkeypatch: pytest.MonkeyPatch
):
    command = (sys.executable, "-m", "spd_lsp", "--data-dir", str(registry.folder), "ngrams", "rebuild")
    rebuilder = Rebuilder(lambda table: (*command, table.name))
    tables = living(registry, rebuilder)
    before = registry.find("mine").path
    outgrow(tables, root, monkeypatch)
    assert tables.open_files and tables.open_files.tables["mine"].differences()
    assert rebuilder.running is not None
    rebuilder.running[1].wait(120)
    settle(tables)  # nobody asks
    after = registry.find("mine")
    assert after.path != before
    mixture = serving(tables, root / "b.py")
    assert [[file.path for file in one.files] for one in tables.tables] == [[after.path]]
    assert "compute" in {
        tokens().bytes_of([i]).decode().strip() for i in mixture.successors([tokens().encode("value_7 =")], 9)
    }
    assert not tables.open_files.tables["mine"].differences()
    assert str(root / "c.py") in tables.open_files.tables["mine"].contents.files
    assert tables.problems == [] and rebuilder.running is None


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_server_follows_the_files_that_a_build_counts(registry: Registry, root: Path):
    """Build folders, notebooks and other encodings; not what is generated, vendored or ignored."""
    (root / "build").mkdir()
    (root / "build" / "a.py").write_text("".join(LINES))
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "add", "build"], check=True)
    teach(root, registry)
    tables = living(registry)
    serving(tables, root / "main.py")
    table = tables.open_files.tables["mine"]
    cells = [{"cell_type": "code", "source": "import os\n", "outputs": []}]
    new = {
        "build/b.py": b"x = [1, 2]\n",
        "study.ipynb": json.dumps({"cells": cells}).encode(),
        "latin.py": "# coding: latin-1\nname = 'é'\n".encode("latin-1"),
        "made.py": b"# Generated from A.g4 by ANTLR 4.13\nx = 1\n",
        "vendor/c.py": b"x = 1\n",
        "dist/d.py": b"x = 1\n",
        "ignored.py": b"x = 1\n",
        ".gitignore": b"ignored.py\n",
    }
    for name, data in new.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    deque(table.scan(), maxlen=0)
    followed = {name: str(root.resolve() / name) in table.changed for name in new}
    assert followed == {name: name in ("build/b.py", "dist/d.py", "study.ipynb", "latin.py") for name in new}
    teach(root, registry)
    assert read_indexed(registry).keys() == table.changed.keys() | table.contents.files.keys()


def read_indexed(registry: Registry) -> dict[str, IndexedState]:
    table = registry.find("mine")
    known = read_indexed_files(table.paths, tokens().fingerprint)
    assert known is not None
    return known.files


def test_where_nothing_is_open_and_nothing_changes_there_is_nothing_to_do(registry: Registry):
    tables = living(registry)
    assert not any(tables.run_idle_work(1.0) for _ in range(3))
