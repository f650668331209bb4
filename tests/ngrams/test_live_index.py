"""What is being written: whatever is edited, saved, closed, deleted or made anew, the counts are those of now."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngram_builders.counting.tokenize import text_digest
from ngram_builders.ngrams import ORDERS, Run, count_streams, merge, with_boundaries
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.sources.filters import decode_source
from ngram_builders.sources.masking import MARK
from ngram_builders.sources.rules.ignores import Exclusion
from ngram_builders.table.suffix_array import build_suffix_array
from spd_lsp.completion.context import normalize_newlines
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.ngrams import followed_tables
from spd_lsp.ngrams.followed_tables import Due
from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
from spd_lsp.ngrams.live_index import LiveIndex, line_around
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from tests.conftest import STARTER
from tests.planted import lines

NAMES = ("a.py", "b.py", "sub/c.py", "sub/d.py")
LINES = (
    "def read(path):\n", "    return path\n", "\n", "x = [1, 2, 3]\n", "class Élan:\n", "    '''😀'''\n",
    "import os\n", "        yield os.sep.join(parts)\n", "a", "    ", "#", "\r\n", "\r",
)  # fmt: skip


@cache
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


@cache
def incremental_tokenizer() -> IncrementalTokenizer:
    return IncrementalTokenizer(tokens())


def live_over(*followed: tuple[NgramTable, Any]) -> LiveIndex:
    live = LiveIndex(incremental_tokenizer())
    for table, contents in followed:
        live.columns(table, lambda contents=contents: contents)  # type: ignore[misc]
    return live


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
    return NgramTable(name=name, path=root / f"{name}.ngt", roots=(root,), orders=ORDERS, recipe=recipe)


def streams(texts: Iterable[str]) -> list[list[int]]:
    """What a build reads: each text once, what is no source not at all."""
    known = {masked for text in texts for masked, fault in [decode_source(text.encode())] if fault is None}
    return [with_boundaries(tokens().encode(text), tokens().end_of_text).tolist() for text in sorted(known)]


def count(texts: Iterable[str]) -> Run:
    """What a table built from scratch counts."""
    known = [np.array(ids) for ids in streams(texts)]
    return count_streams(known, orders=ORDERS, vocab_size=tokens().vocab_size)


def held(live: LiveIndex, table: str = "mine") -> Run:
    return merge(live.synced[table].ledger.overlay.levels)


def loose(live: LiveIndex, language: str = "python") -> Run:
    ledgers = [ledger for group, ledger in live.unassigned.items() if language in group]
    return merge([run for ledger in ledgers for run in ledger.overlay.levels])


def same(first: Run, second: Run) -> bool:
    return first.records.tolist() == second.records.tolist() and first.counts.tolist() == second.counts.tolist()


def opened(path: Path, text: str, language: str | None = "python") -> OpenDocument:
    return OpenDocument(path.as_uri(), path, language, text)


def show(live: LiveIndex, path: Path, text: str, *, saved: bool = False, **more: Any) -> None:
    """The editor says that a document reads so."""
    one = opened(path, text, **more)
    live.update_documents({one.name: DocumentChange(one, saved)})
    settle(live)


def close(live: LiveIndex, path: Path) -> None:
    live.update_documents({path.as_uri(): DocumentChange(None, False)})
    settle(live)


def settle(live: LiveIndex) -> None:
    """Let the work between requests be done, but no scan that is not due."""
    while live.run_idle_work(1.0):
        pass


def rescan(live: LiveIndex) -> None:
    """Look at the disk now."""
    for name in live.tables.due:
        live.tables.due[name] = Due(0, 0)
    settle(live)


class Desk:
    """A folder of files and an editor with some of them open."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self.chance = chance
        self.clock = 10**18
        self.open: dict[Path, list[str]] = {}  # what each open document said, the newest last
        for name in NAMES[:3]:
            self.write(root / name, self.text())
        self.files = [root / name for name in NAMES]
        self.base = Snapshot(path for path in self.files if path.exists())
        self.live = live_over((table_of(root), self.base))
        settle(self.live)

    def text(self) -> str:
        return "".join(self.chance.choices(LINES, k=self.chance.choice((0, 1, 4, 40))))

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        self.clock += 1
        os.utime(path, ns=(self.clock, self.clock))

    def tell(self, path: Path, text: str, saved: bool = False) -> None:
        self.open.setdefault(path, []).append(text)
        if self.chance.random() < 0.3:
            plain_text, cursor = normalize_newlines(text, self.chance.randrange(len(text) + 1))
            self.live.set_active(opened(path, plain_text), cursor)
        else:
            self.live.update_documents({path.as_uri(): DocumentChange(opened(path, text), saved)})

    def step(self) -> None:
        """Something happens."""
        path, there = self.chance.choice(self.files), [p for p in self.files if p.exists()]
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
            self.live.update_documents({path.as_uri(): DocumentChange(None, False)})
        elif kind == "disk" and path not in self.open:
            self.change_on_disk(path, there)
        elif kind == "scan":
            rescan(self.live)
        else:
            self.live.run_idle_work(0.0)

    def change_on_disk(self, path: Path, there: list[Path]) -> None:
        """Another program makes, changes, copies, renames or deletes a file."""
        kind = self.chance.choice(("write", "copy", "rename", "delete"))
        if kind == "write" or not there:
            self.write(path, self.text())
        elif kind == "copy":
            self.write(path, self.chance.choice(there).read_bytes().decode())
        elif kind == "rename" and path.exists():
            other = self.chance.choice(self.files)
            if other not in self.open and other.parent.exists():
                path.replace(other)
        else:
            path.unlink(missing_ok=True)

    def now(self) -> list[str]:
        """What each file says: its open document, or the disk."""
        on_disk = [path.read_bytes().decode() for path in self.files if path.exists() and path not in self.open]
        return on_disk + [texts[-1] for texts in self.open.values()]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
def test_after_any_edits_table_and_overlay_count_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int
) -> None:
    """Edits, undo, saves, closes, and files that others write, copy, rename and delete."""
    desk = Desk(tmp_path_factory.mktemp("desk"), random.Random(seed))
    for _ in range(steps):
        desk.step()
    desk.live.set_active(opened(desk.root / "elsewhere.txt", "-", language=None), 0)  # no line is left out
    rescan(desk.live)
    together = merge([count(desk.base.texts.values()), held(desk.live)])
    assert same(together, count(desk.now()))
    assert searched(desk) == sorted(streams(desk.now()))
    assert not len(loose(desk.live))


def searched(desk: Desk) -> list[list[int]]:
    """Every text that a history is looked for in: the table's that are up to date, and those written since."""
    known = [ids for _, ids in sorted(desk.base.known.items())]
    array = build_suffix_array(known, tokens().end_of_text, tokens().vocab_size)
    texts = desk.live.synced["mine"].ledger.searched_texts([array], [sorted(desk.base.known)])[0]
    kept = [with_boundaries(ids, tokens().end_of_text) for n, ids in enumerate(known) if n not in texts.removed]
    breaks = np.flatnonzero(texts.added < 0)
    added = [texts.added[start + 1 : end][::-1] for start, end in itertools.pairwise(breaks)]
    return sorted(ids.tolist() for ids in (*kept, *added))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    for name in ("a.py", "b.py"):
        (root / name).write_text(f"def {name[0]}(x):\n    return x + 1\n" * 5)
    return root


@pytest.fixture
def live(repository: Path) -> LiveIndex:
    return following(repository)


def following(root: Path, **recipe: str) -> LiveIndex:
    live = live_over((table_of(root, **recipe), Snapshot(sorted(root.glob("*.py")))))
    settle(live)
    return live


def difference(now: Iterable[str], before: Iterable[str]) -> Run:
    taken = count(before)
    return merge([count(now), Run(taken.records, -taken.counts)])


def test_the_file_that_is_written_is_counted_apart_from_its_repository_until_another_is(
    live: LiveIndex, repository: Path
):
    """Its few counts were lost in those of the repository: people type on in the way of the file."""
    first, second = (repository / name for name in ("a.py", "b.py"))
    text = first.read_text() + "y = unheard_of\n"
    live.set_active(opened(first, text + "\n"), len(text))
    assert len(loose(live))
    assert same(held(live), difference([], [first.read_text()]))
    live.set_active(opened(second, second.read_text()), len(second.read_text()))
    assert not same(held(live), difference([], [first.read_text()]))
    live.set_active(opened(repository.parent / "elsewhere.txt", "-", language=None), 0)
    assert same(held(live), difference([text + "\n"], [first.read_text()])) and not len(loose(live))


def test_typing_within_a_line_counts_nothing_anew_and_leaving_it_does(live: LiveIndex, monkeypatch: Any):
    file, text = Path("/elsewhere/e.py"), "import os\n\nimport sys\n"
    live.set_active(opened(file, text), 10)
    calls: list[str] = []
    real = live.tokenizer.update
    monkeypatch.setattr(live.tokenizer, "update", lambda old, new: (calls.append(new), real(old, new))[1])
    before = loose(live)
    for end in range(1, 8):
        live.set_active(opened(file, text[:10] + "import re"[:end] + text[10:]), 10 + end)
    assert calls == []
    assert loose(live).records is before.records
    whole = text[:10] + "import re\n" + text[10:]
    live.set_active(opened(file, whole), 20)
    assert len(calls) == 1
    assert len(loose(live)) > len(before)


def test_an_open_file_of_no_table_counts_for_languages_like_its_own(live: LiveIndex):
    show(live, Path("/elsewhere/e.ts"), "let x = 1;\n", language="typescript")
    assert live.open_files("javascript")
    assert not live.open_files("python")
    assert not live.open_files(None)
    close(live, Path("/elsewhere/e.ts"))
    assert not live.open_files("typescript")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", "TOKEN = 'abc'\n"),
        ("id_rsa", "words\n"),
        ("api_pb.py", "# Generated by the protocol buffer compiler.  DO NOT EDIT!\nx = 1\n"),
        ("empty.py", ""),
    ],
)
def test_secrets_and_what_nobody_wrote_are_never_counted(live: LiveIndex, repository: Path, name: str, text: str):
    for folder in (repository, Path("/elsewhere")):
        show(live, folder / name, text)
    assert not live.unassigned
    assert not len(held(live))


@pytest.mark.parametrize("what", lines())
def test_a_secret_that_is_typed_is_never_counted_and_what_is_around_it_is(
    live: LiveIndex, repository: Path, what: str
):
    file = repository / "a.py"
    line, secret = lines()[what]
    line = line.strip()
    above, below = file.read_text() + "x = 1\n", "\ny = still_heard\n"
    for end in range(1, len(line) + 1):  # while the cursor is on its line, nothing of it is counted
        live.set_active(opened(file, above + line[:end] + below), len(above) + end)
        settle(live)
        assert spoken(live, file) == above + below[1:]
    for place in (len(above) - 3, len(above + line) + 3):  # and then that there is such a line, above or below
        live.set_active(opened(file, above + line + below), place)
        settle(live)
        masked = above + MARK + below
        start, end = line_around(masked, place if place < len(above) else len(above) + 4)
        assert spoken(live, file) == masked[:start] + masked[end:]
    show(live, file, above + line + below + "z = 1\n")
    counted = merge([held(live), loose(live)])
    assert same(counted, difference([above + MARK + below + "z = 1\n"], [file.read_text()]))
    assert not any(secret.encode() in buffer.encoded.data for buffer in live.buffers.values() if buffer.encoded)


def spoken(live: LiveIndex, file: Path) -> str:
    """What is counted of a document."""
    document = live.buffers[file.as_uri()].document
    assert document is not None
    return b"".join(tokens().bytes_of(ids.tolist()) for ids in document.streams).decode()


def test_a_table_of_before_secrets_were_masked_asks_for_a_build(repository: Path):
    contents = Snapshot(sorted(repository.glob("*.py")))
    table = table_of(repository)
    live = live_over((table, contents))
    assert live.tables.outdated() == []
    contents.is_old = True
    assert live.tables.outdated() == [table]


def test_a_folder_that_cannot_be_listed_loses_nothing(live: LiveIndex, repository: Path, monkeypatch: Any):
    found = [(str(repository), Exclusion("unreadable"))]
    monkeypatch.setattr("spd_lsp.ngrams.file_sync.walk_sources", lambda *_: iter(found))
    rescan(live)
    assert not len(held(live))


def test_a_long_document_is_read_between_requests(live: LiveIndex, monkeypatch: Any):
    file = Path("/elsewhere/long.py")
    text = "".join(f"value_{i} = compute({i})\n" for i in range(2_000))
    live.set_active(opened(file, text), len(text))
    assert not live.open_files("python")
    steps = 0
    while live.run_idle_work(0.0):
        steps += 1
    assert steps >= len(text) // 16_000
    live.set_active(opened(Path("/elsewhere/f.py"), "x"), 1)
    assert same(loose(live), count([text]))


def test_a_document_that_changed_while_it_was_read_is_counted_as_it_is_now(live: LiveIndex):
    file, text = Path("/elsewhere/long.py"), "x = [1, 2]\n" * 5_000
    live.set_active(opened(file, text), len(text))
    live.run_idle_work(0.0)
    live.set_active(opened(file, text + "y = 2\n"), 0)
    show(live, file, "z = 3\n" + text)
    assert same(loose(live), count(["z = 3\n" + text]))


def test_what_the_table_knows_is_not_encoded_again(live: LiveIndex, repository: Path, monkeypatch: Any):
    read: list[int] = []
    real = tokens().encode
    monkeypatch.setattr(tokens(), "encode", lambda text: (read.append(len(text)), real(text))[1])
    file = repository / "long.py"
    file.write_text("".join(f"value_{i} = compute({i})\n" for i in range(500)))
    again = following(repository)
    read.clear()
    show(again, file, file.read_text() + "more = 1\n")
    assert sum(read) < 500


def test_a_table_that_was_removed_is_let_go(live: LiveIndex, repository: Path):
    show(live, repository / "a.py", "x = 1\n")
    live.retain([])
    assert not live.synced
    assert same(loose(live), count(["x = 1\n"]))


def test_the_list_of_a_large_table_is_read_between_requests(repository: Path, monkeypatch: Any):
    monkeypatch.setattr(followed_tables, "MAX_FILES_AT_ONCE", -1)
    live, contents = live_over(), Snapshot(sorted(repository.glob("*.py")))
    table = table_of(repository)
    assert live.columns(table, lambda: contents) == ()
    assert not live.synced
    settle(live)
    assert live.synced


def test_thousands_of_changed_files_fill_half_of_the_room_and_ask_for_a_build(repository: Path, monkeypatch: Any):
    monkeypatch.setattr("ngram_builders.table.overlay.MAX_NGRAMS", 4_000)
    live = following(repository)
    live.synced["mine"].ledger.overlay.max_ngrams = 4_000
    for number in range(40):
        (repository / f"n{number}.py").write_text("".join(f"v{i} = {number * i}\n" for i in range(60)))
    rescan(live)
    one = live.synced["mine"]
    assert one.is_outdated
    assert one.ledger.overlay.size < 4_000
    text = (repository / "a.py").read_text()
    size = one.ledger.overlay.size
    show(live, repository / "a.py", text + "y = still_heard\n")
    assert one.ledger.overlay.size > size


def test_a_scan_pauses_after_each_changed_file(live: LiveIndex, repository: Path):
    for number in range(30):
        (repository / f"n{number}.py").write_text(f"v = {number}\n")
    live.tables.due["mine"] = Due(0, 0)
    pauses = 0
    while live.run_idle_work(0.0):
        pauses += 1
    assert pauses >= 30


def test_deleted_files_are_searched_no_more_at_once(repository: Path):
    """Before they are subtracted, which takes its time, or never happens as there are too many."""
    files = [repository / f"n{number}.py" for number in range(60)]
    for file in files:
        file.write_text(f"v = '{file.name}'\n")
    snapshot = Snapshot(sorted(repository.glob("*.py")))
    live = live_over((table_of(repository), snapshot))
    settle(live)
    live.synced["mine"].ledger.overlay.max_ngrams = 0
    known = sorted(snapshot.known.items())
    array = build_suffix_array([ids for _, ids in known], tokens().end_of_text, tokens().vocab_size)

    def searched_files() -> int:
        texts = live.synced["mine"].ledger.searched_texts([array], [[digest for digest, _ in known]])[0]
        return len(known) - len(texts.removed)

    assert searched_files() == 62
    before = live.revision
    for file in files:
        file.unlink()
    live.update_files(files)
    assert searched_files() == 2 and live.revision != before
    for file in files:
        file.write_text(f"v = '{file.name}'\n")
    live.update_files(files)
    settle(live)
    assert searched_files() == 62


def test_an_edit_of_a_long_text_without_places_to_begin_again_waits_for_idle_time(tmp_path: Path):
    """As nothing but line ends: encoding all of it took seconds, of a request or of what is computed ahead."""
    live, path, half = live_over(), tmp_path / "ends.py", "\n" * 100_000
    show(live, path, half * 2)
    edited = f"{half}x = learnt_late\n{half}"
    live.set_active(opened(path, edited), len(edited))
    assert list(live.deferred) == [path.as_uri()]
    settle(live)
    encoded = live.buffers[path.as_uri()].encoded
    assert not live.deferred and encoded and encoded.data.decode() == edited
