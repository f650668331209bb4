"""From repositories to a table that answers: the same bytes however it came about, with an account of the rest."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ngram_builders import build as building
from ngram_builders.build import BuildSummary, build, default_name
from ngram_builders.errors import UserError
from ngram_builders.index.table_file import Table
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.registry.registry import Registry
from ngram_builders.token_cache import CACHE_FILE, TokenCache, read_indexed_files, text_digest
from ngram_builders.token_space import TokenSpace
from tests.ngram_builders.byte_encoder import END, VOCABULARY, encode
from tests.ngram_builders.small_tables import writer
from tests.planted import lines

CODE = b"import os\r\nprint(os.name)\r\n"
TEXT = b"import os\nprint(os.name)\n"


def run(registry: Registry, *roots: Path, name: str | None = None, **options: Any) -> BuildSummary:
    encoder = options.pop("encode", encode)
    space = TokenSpace(options.pop("fingerprint", "bytes"), VOCABULARY, END)
    return build(roots, name, encoder, token_space=space, registry=registry, **options)


def never(*arguments: object) -> Any:
    raise AssertionError(arguments)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_bytes(CODE)
    (root / "src" / "b.go").write_bytes(b"package main\n")
    (root / "copy.py").write_bytes(b"\xef\xbb\xbf" + TEXT)  # to an editor the same
    (root / "bom.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    (root / ".env").write_bytes(b"PASSWORD=1\n")
    (root / "README.md").write_bytes(b"# readme\n")
    return root


@pytest.fixture
def settled() -> Iterator[None]:
    """As if the files had been written long ago."""
    with patch.object(building, "SETTLED_NS", -(10**18)):
        yield


def streams(table: NgramTable) -> list[list[bytes]]:
    """The texts of each shard, with their boundaries as zeros."""
    found = []
    for array in (Table.open(path).array for path in table.paths):
        found.append([bytes((array.stream(n) % END).tolist()) for n in range(len(array.breaks) - 1)])
    return found


def fresh_bytes(tmp_path: Path, *roots: Path, **options: Any) -> bytes:
    """What the table is if nothing was built before."""
    folder = tmp_path / "fresh"
    shutil.rmtree(folder, ignore_errors=True)
    return run(Registry(folder), *roots, name="fresh", **options).path.read_bytes()


def test_a_build_counts_sources_and_reports_skipped_files(registry: Registry, repo: Path) -> None:
    (repo / "z.go").write_bytes(TEXT)  # the first path of a text decides its language
    summary = run(registry, repo)
    table = registry.find("repo")
    assert (summary.name, summary.path, summary.bytes) == ("repo", table.path, table.size)
    assert summary.files == table.files == 3
    assert summary.tokens == len(TEXT) + len("package main\n") + len("x = 1\n") + 6
    assert summary.encoded == summary.tokens - 6
    assert summary.skipped == {"duplicate": 2, "not source code": 1, "secret": 1}
    assert summary.changed
    assert table.sources == {"go": 1, "python": 2}
    assert table.roots == (repo.resolve(),)
    assert table.recipe == {"language": None, "model": ""}
    assert [served.name for served, _ in registry.tables_for(repo / "src" / "new.py", None)] == ["repo"]


def test_the_table_has_the_texts_as_an_editor_sees_them_without_secrets(registry: Registry, repo: Path) -> None:
    """Line ends become line feeds, a byte order mark goes, an end of text stands before and behind every text."""
    line, secret = lines()["GitHub"]
    (repo / "token.py").write_text(f"x = 2\n{line}\ny = 3\n")
    summary = run(registry, repo)
    (texts,) = streams(registry.find("repo"))
    masked = next(text for text in texts if b"x = 2" in text)
    assert sorted(texts) == sorted([b"\0x = 1\n\0", b"\0" + TEXT + b"\0", b"\0package main\n\0", masked])
    assert masked.endswith(b"y = 3\n\0") and masked.count(b"\n") == 3
    assert (summary.masked, secret.encode() in b"".join(texts)) == (1, False)


@pytest.mark.usefixtures("settled")
def test_a_table_of_several_shards_has_the_texts_of_one(registry: Registry, repo: Path) -> None:
    for number in range(11):
        (repo / f"{number}.py").write_text(f"def f(x):\n    return x + {number % 7}\n" * (number // 7 + 1))
    with patch.object(building, "SHARD_TOKENS", 100):
        run(registry, repo, name="many")
        assert not run(registry, repo, name="many", encode=never).changed
    one, many = registry.find(run(registry, repo, name="one").name), registry.find("many")
    assert len(many.paths) > 4
    assert (many.files, many.tokens, many.sources) == (one.files, one.tokens, one.sources)
    texts = streams(many)
    assert [text for shard in texts for text in shard] == streams(one)[0]
    assert all(sum(map(len, shard)) <= 100 or len(shard) == 1 for shard in texts)
    known = [read_indexed_files(table.paths, "bytes") for table in (many, one)]
    assert known[0] is not None and known[1] is not None
    assert known[0].files == known[1].files
    assert [[text_digest(text[1:-1]) for text in shard] for shard in texts] == known[0].documents


def test_roots_in_any_order_give_the_same_bytes_and_overlaps_count_once(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "c.rs").write_bytes(CODE)
    both = run(registry, repo, tmp_path / "other", repo / "src", name="both")
    assert both.path.read_bytes() == fresh_bytes(tmp_path, tmp_path / "other", repo)
    assert both.tokens == run(registry, repo).tokens
    assert registry.find("both").roots == (
        repo.resolve(),
        (tmp_path / "other").resolve(),
        (repo / "src").resolve(),
    )


@pytest.mark.usefixtures("settled")
def test_without_changes_nothing_is_read_or_tokenized(registry: Registry, repo: Path) -> None:
    first = run(registry, repo)
    with patch.object(building, "read_file", never):
        second = run(registry, repo, encode=never)
    assert not second.changed
    assert second.reused == 4
    assert second.path == first.path
    assert (second.files, second.tokens, second.skipped) == (first.files, first.tokens, first.skipped)
    fresh = run(registry, repo, fresh=True)
    assert (fresh.reused, fresh.encoded, fresh.path) == (0, first.encoded, first.path)


def test_files_written_a_moment_ago_are_read_again(registry: Registry, repo: Path, tmp_path: Path) -> None:
    """Within one tick of the clock a file can change without a trace."""
    run(registry, repo)
    before = (repo / "src" / "b.go").stat()
    (repo / "src" / "b.go").write_bytes(b"package boat\n")
    os.utime(repo / "src" / "b.go", ns=(before.st_atime_ns, before.st_mtime_ns))
    again = run(registry, repo)
    assert again.reused == 0
    assert again.path.read_bytes() == fresh_bytes(tmp_path, repo)


@pytest.mark.usefixtures("settled")
def test_a_renamed_or_touched_file_is_not_tokenized_again(registry: Registry, repo: Path) -> None:
    first = run(registry, repo)
    (repo / "src" / "b.go").rename(repo / "src" / "c.go")
    os.utime(repo / "src" / "a.py", ns=(1, 1))
    second = run(registry, repo, encode=never)
    assert second.path == first.path
    assert not second.changed
    known = read_indexed_files([first.path], "bytes")
    assert known is not None
    recorded = {Path(path).name: mtime_ns for path, (_, mtime_ns, _) in known.files.items()}
    assert recorded.keys() == {"a.py", "bom.py", "c.go", "copy.py"}
    assert recorded["a.py"] == 1


def test_deleted_code_leaves_no_counts(registry: Registry, repo: Path) -> None:
    home = run(registry, repo).path.parent
    (repo / "src" / "b.go").unlink()
    run(registry, repo)
    with TokenCache(home / CACHE_FILE, "bytes") as cache:
        assert sorted(cache.token_counts().values()) == sorted([len(TEXT), len("x = 1\n")])
        assert {Path(path).name for path in cache.file_states()} <= {"a.py", "bom.py", "copy.py"}
    assert b"package main" not in (home / CACHE_FILE).read_bytes()


def test_a_table_for_another_model_does_not_replace_the_first(registry: Registry, repo: Path) -> None:
    tiny = {"model": "/models/tiny", "fingerprint": "others"}
    assert run(registry, repo, model="starter").name == "repo"
    assert run(registry, repo, **tiny).name == "repo-tiny"
    assert run(registry, repo, **tiny).changed is False
    assert run(registry, repo, model="like the starter").name == "repo"
    assert run(registry, repo, model="like the starter", fingerprint="a newer tokenizer").name == "repo"
    assert [table.name for table in registry.tables()] == ["repo", "repo-tiny"]


@pytest.mark.parametrize("place", [-1, 5000, 100])
def test_a_damaged_table_is_not_updated_but_rebuilt(
    registry: Registry, repo: Path, tmp_path: Path, place: int
) -> None:
    (repo / "large.py").write_text("\n".join(f"name_{i} = {i * i}" for i in range(300)))
    path = run(registry, repo).path
    data = bytearray(path.read_bytes())
    data[-64 if place < 0 else place] ^= 1  # the last section has few bytes and ends on a boundary
    path.write_bytes(data)
    for change in ("", "x = 2\n"):
        (repo / "bom.py").write_text(f"x = 1\n{change}")
        assert run(registry, repo).path.read_bytes() == fresh_bytes(tmp_path, repo)


def test_an_interrupted_build_resumes(registry: Registry, repo: Path, tmp_path: Path) -> None:
    old = run(registry, repo)
    for number in range(20):
        (repo / f"{number}.py").write_text(f"number = {number}\n")
    encoded: list[str] = []

    def stopping(texts: Sequence[str]) -> list[list[int]]:
        if len(encoded) == 12:
            raise KeyboardInterrupt
        encoded.extend(texts)
        return encode(texts)

    with patch.object(building, "BATCH_FILES", 1):
        with pytest.raises(KeyboardInterrupt):
            run(registry, repo, encode=stopping)
        assert registry.find("repo").path == old.path
        Table.open(old.path).verify()
        summary = run(registry, repo)
    assert summary.encoded < sum(len(f"number = {number}\n") for number in range(10))
    assert summary.path.read_bytes() == fresh_bytes(tmp_path, repo)


@pytest.mark.parametrize("kind", ["text", "cut", "zeros in the middle", "a text is gone"])
def test_a_damaged_cache_costs_only_time(registry: Registry, repo: Path, tmp_path: Path, kind: str) -> None:
    (repo / "large.py").write_text("\n".join(f"name_{i} = {i * i}" for i in range(3000)))
    file = run(registry, repo).path.parent / CACHE_FILE
    data = file.read_bytes()
    with sqlite3.connect(file) as base:
        base.execute("DELETE FROM texts WHERE rowid = 1")
    base.close()
    changed = {
        "text": b"this is not a database, and long enough to be looked at" * 100,
        "cut": data[: len(data) // 2],
        "zeros in the middle": data[:4096] + bytes(len(data) - 4096),
    }
    if kind in changed:
        file.write_bytes(changed[kind])
    for repaired in (kind == "a text is gone", True):
        summary = run(registry, repo)
        assert repaired == (summary.problem is None) or "; started a new cache" in str(summary.problem)
        assert summary.path.read_bytes() == fresh_bytes(tmp_path, repo)
    assert not summary.problem


def test_a_full_disk_is_an_error_and_the_table_stays(registry: Registry, repo: Path) -> None:
    first = run(registry, repo)
    (repo / "large.py").write_text("\n".join(f"name_{i} = {i * i}" for i in range(3000)))

    def fill(path: Path, fingerprint: str) -> TokenCache:
        cache = TokenCache(path, fingerprint)
        (pages,) = cache.base.execute("PRAGMA page_count").fetchone()
        cache.base.execute(f"PRAGMA max_page_count = {pages + 1}").fetchone()
        return cache

    with (
        patch.object(building, "TokenCache", fill),
        pytest.raises(UserError, match=r"cannot write to .*full; free space there and run the same"),
    ):
        run(registry, repo)
    assert registry.find("repo").path == first.path


def test_a_repository_without_source_is_refused_with_the_skipped_files(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("a.md", "b.md", ".env"):
        (tmp_path / "docs" / name).write_text("text")
    with pytest.raises(UserError, match=r"no source code in .*docs \(skipped: 2 not source code, 1 sec"):
        run(registry, tmp_path / "docs")
    assert not registry.folder.exists()
    (tmp_path / "docs" / "c.py").write_bytes(b"\xff\x81")
    with pytest.raises(UserError, match="1 unknown encoding"):
        run(registry, tmp_path / "docs")
    assert registry.tables() == []


@pytest.mark.parametrize("folder", ["my repo!", ".dots.", "ä", os.fsdecode(b"caf\xe9")])
def test_a_folder_with_an_unusual_name_gets_a_valid_table_name(
    registry: Registry, tmp_path: Path, folder: str
) -> None:
    table = {"my repo!": "my-repo", ".dots.": "dots", "ä": "repository"}.get(folder, "caf")
    try:
        (tmp_path / folder).mkdir()
    except OSError:
        pytest.skip("this file system refuses such names")
    (tmp_path / folder / os.fsdecode(b"\xc3\xa4.py")).write_text("x = 1\n")
    assert run(registry, tmp_path / folder).name == table
    assert registry.find(table).roots == ((tmp_path / folder).resolve(),)


def test_a_default_name_never_replaces_a_table_of_another_repository_or_model(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "data")
    long = "my-long-monorepo-with-a-very-descriptive-folder-name-indeed"
    folders = [tmp_path / name for name in ("shop", "n1/shop", "shop-tiny", f"n1/{long}", f"n2/{long}")]
    models = {"starter": "a1", "/m/a/tiny": "b2", "/m/b/tiny": "c3", "org/" + "x" * 60: "d4"}
    for folder in folders:
        folder.mkdir(parents=True)
    cases = [(folder, model, mark) for folder in folders for model, mark in models.items()]
    names = []
    for folder, model, mark in cases:
        names.append(default_name([folder], registry, model, mark))
        registry.install(names[-1], [writer(5, fingerprint=mark)], roots=[folder], recipe={"model": model})
    assert len(set(names)) == len(cases)
    assert names[:2] == ["shop", "shop-tiny"]
    again = [default_name([folder], registry, model, mark) for folder, model, mark in cases]
    assert again == names, "each is brought up to date"
    registry.remove("shop")
    assert default_name([folders[0]], registry, "/m/a/tiny", "b2") == "shop-tiny"
