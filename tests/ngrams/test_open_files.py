"""What is being written: whatever is edited, saved, closed, deleted or made anew, the counts are those of now."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.index.mixture import ORDERS, Signed
from ngram_builders.index.suffix_array import SuffixArray, build_suffix_array
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.sources.filters import decode_source
from ngram_builders.sources.masking import MARK
from ngram_builders.token_cache import text_digest
from ngram_builders.token_space import with_boundaries
from spd_lsp.completion.context import normalize_newlines
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.ngrams.serving_tables import OpenFiles, line_around
from spd_lsp.ngrams.table_files import TableFiles
from tests.conftest import STARTER
from tests.planted import lines

NAMES = ("a.py", "b.py", "sub/c.py", "sub/d.py")
LINES = (
    "def read(path):\n", "    return path\n", "\n", "x = [1, 2, 3]\n", "class Élan:\n", "    '''😀'''\n",
    "import os\n", "        yield os.sep.join(parts)\n", "a", "    ", "#", "\r\n", "\r",
)  # fmt: skip


Counts = Counter[tuple[int, ...]]


@cache
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


def open_files_over(*followed: tuple[NgramTable, Any]) -> OpenFiles:
    files = OpenFiles(tokens())
    for table, contents in followed:
        files.tables[table.name] = TableFiles(table, contents, files.encoder, files._texts)
    return files


class Snapshot:
    """What a build of these files would have kept."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.files: dict[str, tuple[int, int, bytes]] = {}
        self.texts: dict[bytes, str] = {}
        self.known: dict[bytes, Any] = {}
        self.is_old = False
        self.documents: list[list[bytes | None]] = []
        for path in paths:
            text, fault = decode_source(path.read_bytes())
            if fault is None:
                digest, status = text_digest(text.encode()), path.stat()
                self.files[str(path)] = (status.st_size, status.st_mtime_ns, digest)
                self.texts[digest] = text
                self.known[digest] = np.array(tokens().encode(text))

    def ids(self, digest: bytes) -> Any:
        return self.known.get(digest)


def table_of(root: Path, name: str = "mine", **recipe: str) -> NgramTable:
    return NgramTable(name=name, paths=(root / f"{name}.ngt",), roots=(root,), recipe=recipe)


def streams(texts: Iterable[str]) -> list[list[int]]:
    """What a build reads: each text once, what is no source not at all."""
    known = {masked for text in texts for masked, fault in [decode_source(text.encode())] if fault is None}
    return [with_boundaries(tokens().encode(text), tokens().end_of_text).tolist() for text in sorted(known)]


def count(texts: Iterable[str]) -> Counts:
    """What a table built from scratch counts."""
    return ngrams_of(streams(texts))


def ngrams_of(known: Iterable[list[int]]) -> Counts:
    return Counter(tuple(ids[at : at + n]) for ids in known for n in ORDERS for at in range(len(ids) - n + 1))


def added_up(parts: Iterable[Counts]) -> Counts:
    """The sum of counts, which may be negative; what is left of nothing is left out."""
    total: Counts = Counter()
    for part in parts:
        total.update(part)
    return Counter({ngram: count for ngram, count in total.items() if count})


def counted(arrays: Iterable[Signed]) -> Counts:
    """What arrays add and subtract."""
    known = [(sign, ngrams_of(streams_in(array))) for array, sign in arrays]
    return added_up(Counter({ngram: sign * count for ngram, count in part.items()}) for sign, part in known)


def streams_in(array: SuffixArray) -> list[list[int]]:
    return [array.stream(number).tolist() for number in range(len(array.breaks) - 1)]


def held(files: OpenFiles, table: str = "mine") -> Counts:
    return counted(files.tables[table].differences())


def loose(files: OpenFiles, language: str = "python") -> Counts:
    return counted(files.arrays(language))


def opened(path: Path, text: str, language: str | None = "python") -> OpenDocument:
    return OpenDocument(path.as_uri(), path, language, text)


def show(files: OpenFiles, path: Path, text: str, *, saved: bool = False, **more: Any) -> None:
    """The editor says that a document reads so."""
    one = opened(path, text, **more)
    files.update_documents({one.name: one})
    if saved:
        files.update_files([path])
    settle(files)


def close(files: OpenFiles, path: Path) -> None:
    files.update_documents({path.as_uri(): None})
    settle(files)


def settle(files: OpenFiles) -> None:
    """Let the work between requests be done, but no scan that is not due."""
    while files.run_idle_work(1.0):
        pass


def rescan(files: OpenFiles) -> None:
    """Look at the disk now."""
    for table in files.tables.values():
        table.scan_soon()
    settle(files)


class Desk:
    """A folder of files and an editor with some of them open."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self.chance = chance
        self.clock = 10**18
        self.open: dict[Path, list[str]] = {}  # what each open document said, the newest last
        for name in NAMES[:3]:
            self.write(root / name, self.text())
        self.paths = [root / name for name in NAMES]
        self.base = Snapshot(path for path in self.paths if path.exists())
        self.files = open_files_over((table_of(root), self.base))
        settle(self.files)

    def text(self) -> str:
        return "".join(self.chance.choices(LINES, k=self.chance.choice((0, 1, 4, 40))))

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        self.clock += 1
        os.utime(path, ns=(self.clock, self.clock))

    def tell(self, path: Path, text: str, saved: bool = False) -> None:
        self.open.setdefault(path, []).append(text)
        if saved:
            self.files.update_files([path])
        if self.chance.random() < 0.3:
            plain_text, cursor = normalize_newlines(text, self.chance.randrange(len(text) + 1))
            self.files.set_active(opened(path, plain_text), cursor)
        else:
            self.files.update_documents({path.as_uri(): opened(path, text)})

    def step(self) -> None:
        """Something happens."""
        path, there = self.chance.choice(self.paths), [p for p in self.paths if p.exists()]
        kind = self.chance.choice(
            ("open", "type", "type", "type", "undo", "save", "close", "disk", "scan", "tidy")
        )
        if kind == "open" and path.exists() and path not in self.open:
            self.tell(path, path.read_bytes().decode())
        elif kind == "type" and path in self.open:
            old = self.open[path][-1]
            start = self.chance.randrange(len(old) + 1)
            end = min(len(old), start + self.chance.choice((0, 0, 3, 50)))
            new = "".join(self.chance.choices(LINES, k=self.chance.choice((0, 1, 2))))
            self.tell(path, old[:start] + new + old[end:])
        elif kind == "undo" and path in self.open:
            self.tell(path, self.chance.choice(self.open[path]))
        elif kind == "save" and path in self.open:
            self.write(path, self.open[path][-1])
            self.tell(path, self.open[path][-1], saved=True)
        elif kind == "close" and path in self.open:
            del self.open[path]
            self.files.update_documents({path.as_uri(): None})
        elif kind == "disk" and path not in self.open:
            self.change_on_disk(path, there)
        elif kind == "scan":
            rescan(self.files)
        else:
            self.files.run_idle_work(0.0)

    def change_on_disk(self, path: Path, there: list[Path]) -> None:
        """Another program makes, changes, copies, renames or deletes a file."""
        kind = self.chance.choice(("write", "copy", "rename", "delete"))
        if kind == "write" or not there:
            self.write(path, self.text())
        elif kind == "copy":
            self.write(path, self.chance.choice(there).read_bytes().decode())
        elif kind == "rename" and path.exists():
            other = self.chance.choice(self.paths)
            if other not in self.open and other.parent.exists():
                path.replace(other)
        else:
            path.unlink(missing_ok=True)

    def now(self) -> list[str]:
        """What each file says: its open document, or the disk."""
        on_disk = [path.read_bytes().decode() for path in self.paths if path.exists() and path not in self.open]
        return on_disk + [texts[-1] for texts in self.open.values()]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
def test_after_any_edits_table_and_ledger_count_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int
) -> None:
    """Edits, undo, saves, closes, and files that others write, copy, rename and delete."""
    desk = Desk(tmp_path_factory.mktemp("desk"), random.Random(seed))
    for _ in range(steps):
        desk.step()
    desk.files.set_active(opened(desk.root / "elsewhere.txt", "-", language=None), 0)  # no line is left out
    rescan(desk.files)
    apart = [ids for texts in desk.files.searched_texts("python") for ids in streams_in(texts.array)]
    assert sorted(map(list, {*map(tuple, searched(desk) + apart)})) == sorted(streams(desk.now()))
    if not apart:  # as where a document has text whose file is empty
        assert added_up([count(desk.base.texts.values()), held(desk.files)]) == count(desk.now())


def searched(desk: Desk) -> list[list[int]]:
    """Every text that a history is looked for in: the table's that are up to date, and those written since."""
    known = sorted(desk.base.known)
    desk.files.tables["mine"].differences()
    array = build_suffix_array(with_boundaries(desk.base.known[key], tokens().end_of_text) for key in known)
    desk.base.documents[:] = [known]
    return sorted(
        ids
        for texts in desk.files.tables["mine"].searched_texts([array], str, 1.0)
        for number, ids in enumerate(streams_in(texts.array))
        if number not in texts.skipped
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    for name in ("a.py", "b.py"):
        (root / name).write_text(f"def {name[0]}(x):\n    return x + 1\n" * 5)
    return root


@pytest.fixture
def files(repository: Path) -> OpenFiles:
    return following(repository)


def following(root: Path, **recipe: str) -> OpenFiles:
    files = open_files_over((table_of(root, **recipe), Snapshot(sorted(root.glob("*.py")))))
    settle(files)
    return files


def difference(now: Iterable[str], before: Iterable[str]) -> Counts:
    taken = {ngram: -count for ngram, count in count(before).items()}
    return added_up([count(now), Counter(taken)])


def test_the_file_that_is_written_is_counted_apart_from_its_repository_until_another_is(
    files: OpenFiles, repository: Path
):
    """Its few counts were lost in those of the repository: people type on in the way of the file."""
    first, second = (repository / name for name in ("a.py", "b.py"))
    text = first.read_text() + "y = unheard_of\n"
    files.set_active(opened(first, text + "\n"), len(text))
    assert len(loose(files))
    assert held(files) == difference([], [first.read_text()])
    files.set_active(opened(second, second.read_text()), len(second.read_text()))
    assert held(files) != difference([], [first.read_text()])
    files.set_active(opened(repository.parent / "elsewhere.txt", "-", language=None), 0)
    assert held(files) == difference([text + "\n"], [first.read_text()]) and not len(loose(files))


def test_typing_within_a_line_counts_nothing_anew_and_leaving_it_does(files: OpenFiles, monkeypatch: Any):
    file, text = Path("/elsewhere/e.py"), "import os\n\nimport sys\n"
    files.set_active(opened(file, text), 10)
    calls: list[str] = []
    real = files.encoder.encode
    monkeypatch.setattr(files.encoder, "encode", lambda text: (calls.append(text), real(text))[1])
    [before] = files.arrays("python")
    for end in range(1, 8):
        files.set_active(opened(file, text[:10] + "import re"[:end] + text[10:]), 10 + end)
    assert calls == []
    [after] = files.arrays("python")
    assert after.array is before.array
    whole = text[:10] + "import re\n" + text[10:]
    files.set_active(opened(file, whole), 20)
    assert len(calls) == 1
    assert len(loose(files)) > len(counted([before]))


def test_an_open_file_of_no_table_counts_for_languages_like_its_own(files: OpenFiles):
    show(files, Path("/elsewhere/e.ts"), "let x = 1;\n", language="typescript")
    assert files.arrays("javascript")
    assert not files.arrays("python")
    assert not files.arrays(None)
    close(files, Path("/elsewhere/e.ts"))
    assert not files.arrays("typescript")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", "TOKEN = 'abc'\n"),
        ("id_rsa", "words\n"),
        ("api_pb.py", "# Generated by the protocol buffer compiler.  DO NOT EDIT!\nx = 1\n"),
        ("empty.py", ""),
    ],
)
def test_secrets_and_what_nobody_wrote_are_never_counted(files: OpenFiles, repository: Path, name: str, text: str):
    for folder in (repository, Path("/elsewhere")):
        show(files, folder / name, text)
    assert not files.arrays("python") and not files.arrays("shellscript")
    assert not len(held(files))


@pytest.mark.parametrize("what", lines())
def test_a_secret_that_is_typed_is_never_counted_and_what_is_around_it_is(
    files: OpenFiles, repository: Path, what: str
):
    file = repository / "a.py"
    line, secret = lines()[what]
    line = line.strip()
    above, below = file.read_text() + "x = 1\n", "\ny = still_heard\n"
    for end in range(1, len(line) + 1):  # while the cursor is on its line, nothing of it is counted
        files.set_active(opened(file, above + line[:end] + below), len(above) + end)
        settle(files)
        assert spoken(files) == above + below[1:]
    for place in (len(above) - 3, len(above + line) + 3):  # and then that there is such a line, above or below
        files.set_active(opened(file, above + line + below), place)
        settle(files)
        masked = above + MARK + below
        start, end = line_around(masked, place if place < len(above) else len(above) + 4)
        assert spoken(files) == masked[:start] + masked[end:]
    show(files, file, above + line + below + "z = 1\n")
    together = added_up([held(files), loose(files)])
    assert together == difference([above + MARK + below + "z = 1\n"], [file.read_text()])
    assert secret not in files.text_at(str(file))


def spoken(files: OpenFiles) -> str:
    """What is counted of the document with the cursor."""
    ids = [ids for texts in files.searched_texts("python") for ids in streams_in(texts.array)]
    return b"".join(map(tokens().bytes_of, ids)).decode()


def test_a_table_of_before_secrets_were_masked_asks_for_a_build(repository: Path):
    contents = Snapshot(sorted(repository.glob("*.py")))
    table = table_of(repository)
    files = open_files_over((table, contents))
    assert not files.tables["mine"].is_outdated
    contents.is_old = True
    assert files.tables["mine"].is_outdated


def test_a_name_that_is_typed_in_one_document_is_one_of_another_at_once(files: OpenFiles, repository: Path):
    """Also where the first is the one that was typed in last, and not any more once its line is gone."""
    text = "zygomorphic = 1\n"
    files.set_active(opened(repository / "a.py", text), len(text))
    files.set_active(opened(repository / "b.py", "zyg"), 3)
    name = (repository / "b.py").as_uri()
    assert list(files.names("zyg", "python", name)) == ["zygomorphic"]
    assert not list(files.names("zyg", "go", name))
    assert not list(files.names("zyg", "python", (repository / "a.py").as_uri()))
    show(files, repository / "a.py", "x = 1\n")
    assert not list(files.names("zyg", "python", name))
