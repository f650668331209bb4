"""From repositories to a table that answers: the same bytes however it came about, with an account of the rest."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from ngram_builders.build import BuildSummary, build, default_name
from ngram_builders.counting import external_merge, pipeline, tokenize
from ngram_builders.counting.memory import MemoryLimits
from ngram_builders.counting.token_cache import CACHE_FILE, TokenCache
from ngram_builders.counting.tokenize import text_digest
from ngram_builders.errors import UserError
from ngram_builders.ngrams import TokenSpace, count_streams, with_boundaries
from ngram_builders.preview import preview
from ngram_builders.registry.registry import Registry
from ngram_builders.table.reader import Table, added_runs
from ngram_builders.table.suffix_array import build_suffix_array
from ngram_builders.table.writer import write_table
from tests.ngram_builders.byte_encoder import END, VOCABULARY, encode
from tests.ngram_builders.small_tables import writer

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
    (root / "copy.py").write_bytes(CODE)
    (root / "bom.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    (root / ".env").write_bytes(b"PASSWORD=1\n")
    (root / "README.md").write_bytes(b"# readme\n")
    return root


@pytest.fixture
def settled() -> Iterator[None]:
    """As if the files had been written long ago."""
    with patch.object(tokenize, "SETTLED_NS", -(10**18)):
        yield


def fresh_bytes(tmp_path: Path, *roots: Path, **options: Any) -> bytes:
    """What the table is if nothing was built before."""
    folder = tmp_path / "fresh"
    shutil.rmtree(folder, ignore_errors=True)
    return run(Registry(folder), *roots, name="fresh", **options).path.read_bytes()


def test_a_build_counts_sources_and_reports_skipped_files(registry: Registry, repo: Path) -> None:
    summary = run(registry, repo)
    table = registry.find("repo")
    assert (summary.name, summary.path, summary.bytes) == ("repo", table.path, table.size)
    assert summary.files == table.files == 3
    assert summary.tokens == len(TEXT) + len("package main\n") + len("x = 1\n") + 3
    assert summary.encoded == summary.tokens - 3
    assert summary.skipped == {"duplicate": 1, "not source code": 1, "secret": 1}
    assert summary.changed
    assert table.languages == ("go", "python")
    assert table.roots == (repo.resolve(),)
    assert table.recipe == {"orders": [2, 3, 4, 5, 6], "min_count": [1] * 5, "language": None, "model": ""}
    assert [served.name for served, _ in registry.tables_for(repo / "src" / "new.py", None)] == ["repo"]


def test_the_table_has_the_counts_of_the_texts_as_an_editor_sees_them(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    """Line ends stay, a byte order mark goes, an end of text stands before and after every text."""
    texts = [b"x = 1\n", TEXT, b"package main\n"]
    orders = (2, 3, 4, 5, 6)
    counted = count_streams([with_boundaries(list(text), END) for text in texts], orders=orders, vocab_size=257)
    expected = tmp_path / "expected"
    facts = {"tokens": sum(map(len, texts)) + 3, "files": 3, "sources": {"go": 1, "python": 2}}
    ordered = [np.array(list(text)) for text in sorted(texts, key=text_digest)]
    facts["texts"] = build_suffix_array(ordered, END, 257)
    write_table(expected, [counted], fingerprint="bytes", vocab_size=257, orders=orders, min_count={}, **facts)
    made = run(registry, repo).path
    assert made.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("options", [{"min_count": 2}, {"min_files": 2}])
def test_a_pruned_table_does_not_hold_the_texts(registry: Registry, repo: Path, options: dict[str, int]) -> None:
    """What was left out of it must not be there after all."""
    assert Table.open(run(registry, repo, **options).path).texts is None


def test_perplexity_is_measured_alone_and_with_the_table_of_the_main_language(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    for number in range(9):
        (repo / f"{number}.py").write_text(f"# {number}\n" + "value = compute(first, second)\n" * 40)
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.py").write_text("nothing alike\n" * 9)
    table = run(registry, other).path
    perplexity = run(registry, repo, companion_tables={"python": table, "go": table}).perplexity
    assert set(perplexity) == {"alone", "python only", "with python"}
    assert perplexity["alone"] < 2 < perplexity["python only"]
    (repo / "more.py").write_text("value = compute(first, second)\n" * 9)
    assert set(run(registry, repo, companion_tables={"python": tmp_path / "gone.ngt"}).perplexity) == {"alone"}
    for number in range(9):
        (repo / f"{number}.py").write_text(f"# {number}\n" + "other = compute(third, fourth)\n" * 40)
    assert run(registry, repo, incremental=True).perplexity == {}  # as a server builds, of which nobody reads it


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


@pytest.mark.parametrize("memory", [1, 200, 3000])
def test_counts_that_do_not_fit_in_memory_give_the_same_bytes(
    registry: Registry, repo: Path, tmp_path: Path, memory: int
) -> None:
    expected = fresh_bytes(tmp_path, repo)
    with patch.object(pipeline, "share_memory", lambda total: MemoryLimits(memory, 10, 500)):
        summary = run(registry, repo)
    assert summary.path.read_bytes() == expected
    assert {file.name for file in summary.path.parent.iterdir()} >= {summary.path.name, CACHE_FILE}
    assert not [file for file in summary.path.parent.iterdir() if "spill" in file.name or "tmp" in file.name]


def test_orders_and_pruning_are_passed_on(registry: Registry, repo: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"orders": (3, 2), "min_count": {3: 2}}
    table = Table.open(run(registry, repo, **options).path)
    assert (table.summary.orders, table.summary.min_count) == ((2, 3), (1, 2))
    (repo / "d.py").write_text("import os\n")
    assert run(registry, repo, **options).path.read_bytes() == fresh_bytes(tmp_path, repo, **options)


def expected_min_files_counts(texts: Sequence[str], least: int) -> dict[int, int]:
    """Record -> count of the n-grams that so many of the texts have, by dictionaries."""
    grams = [
        [tuple(ids[i : i + order]) for order in (2, 3, 4, 5, 6) for i in range(len(ids) - order + 1)]
        for ids in ([END, *text.encode(), END] for text in texts)
    ]
    counts = Counter(gram for one in grams for gram in one)
    kept = {gram for gram in counts if sum(gram in set(one) for one in grams) >= least}
    counts_by_record: Counter[int] = Counter()
    for gram, count in counts.items():
        record = int(count_streams([np.array(gram)], orders=(len(gram),), vocab_size=257).records[0])
        if gram in kept:
            counts_by_record[record] = count
        elif any(gram[:-1] == other[:-1] for other in kept):
            counts_by_record[record | 0xFFFF] += count
    return counts_by_record


@pytest.mark.parametrize("least", [2, 3])
def test_min_files_keeps_ngrams_of_at_least_so_many_distinct_texts(
    registry: Registry, repo: Path, tmp_path: Path, least: int
) -> None:
    """Against a count by dictionaries; a copy is no second file; updates give the bytes of fresh builds."""
    shutil.rmtree(repo)
    repo.mkdir()
    texts = ["import os\nx = 1\nx = 1\n", "import os\nx = 2\n", "import re\nx = 1\n", "import re\n"]
    for name, text in zip("abcde", [*texts[:3], texts[0], texts[3]], strict=True):
        (repo / f"{name}.py").write_bytes(text.encode())
    pieces = list(added_runs([Table.open(run(registry, repo, min_files=least).path)]))
    counted = {int(record): int(n) for run in pieces for record, n in zip(run.records, run.counts, strict=True)}
    assert counted == expected_min_files_counts(texts, least)
    for edit, options in (("x = 2\n", {}), ("y = 2\n", {"min_files": least}), ("x = 1\n", {"min_files": least})):
        (repo / "f.py").write_bytes(edit.encode())
        made = run(registry, repo, **options)
        assert made.path.read_bytes() == fresh_bytes(tmp_path, repo, **options)
    assert not run(registry, repo, min_files=least).changed
    assert registry.find("repo").recipe["min_files"] == least


def test_counting_min_files_in_pieces_gives_the_same_table(repo: Path, tmp_path: Path) -> None:
    for number in range(30):
        (repo / f"n{number}.py").write_text("".join(f"v{i % 7} = {number * i % 11}\n" for i in range(40)))
    whole = fresh_bytes(tmp_path, repo, min_files=2)
    with patch.object(pipeline, "share_memory", lambda total: MemoryLimits(20_000, 500, 300)):
        assert fresh_bytes(tmp_path, repo, min_files=2) == whole


@pytest.mark.usefixtures("settled")
def test_without_changes_nothing_is_read_tokenized_or_written(registry: Registry, repo: Path) -> None:
    first = run(registry, repo)
    before = first.path.stat()
    with patch.object(tokenize, "read_file", never):
        second = run(registry, repo, encode=never)
    assert not second.changed
    assert second.reused == 4
    assert (second.path, second.path.stat()) == (first.path, before)
    assert (second.files, second.tokens, second.skipped) == (first.files, first.tokens, first.skipped)


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
    with TokenCache(first.path.parent / CACHE_FILE, "bytes") as cache:
        recorded = {Path(d.path).name: d.mtime_ns for d in cache.indexed_files(first.path.name)}
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


def test_changed_roots_or_model_are_recorded(registry: Registry, repo: Path) -> None:
    run(registry, repo, name="d")
    run(registry, repo, repo / "src", name="d", model="other")
    assert registry.find("d").roots == (repo.resolve(), (repo / "src").resolve())
    assert registry.find("d").recipe["model"] == "other"


def test_a_folder_given_twice_is_one_source(registry: Registry, repo: Path) -> None:
    same = repo / ".." / "repo"
    run(registry, repo, same, name="d")
    assert registry.find("d").roots == (repo.resolve(),)
    assert not run(registry, same, repo, name="d").changed


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


def test_a_fresh_build_reuses_nothing(registry: Registry, repo: Path) -> None:
    first = run(registry, repo)
    again = run(registry, repo, fresh=True)
    assert (again.reused, again.encoded) == (0, first.encoded)
    assert again.path == first.path


def test_damaged_token_ids_are_computed_again(registry: Registry, repo: Path, tmp_path: Path) -> None:
    home = run(registry, repo).path.parent
    base = sqlite3.connect(home / CACHE_FILE)
    base.execute("UPDATE texts SET ids = zeroblob(length(ids))")
    base.commit()
    base.close()
    shutil.rmtree(home / "contents", ignore_errors=True)
    (repo / "copy.py").write_bytes(CODE * 100)
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

    with patch.object(tokenize, "BATCH_FILES", 1):
        with pytest.raises(KeyboardInterrupt):
            run(registry, repo, encode=stopping)
        assert registry.find("repo").path == old.path
        Table.open(old.path).verify()
        summary = run(registry, repo)
    assert summary.encoded < sum(len(f"number = {number}\n") for number in range(10))
    assert summary.path.read_bytes() == fresh_bytes(tmp_path, repo)


KILLED = """
import os, sys, threading, time
from pathlib import Path
sys.path.insert(0, sys.argv[4])
from ngram_builders.build import build
from ngram_builders.registry.registry import Registry

def encode(texts):
    time.sleep(0.002)
    return [list(text.encode()) for text in texts]

from ngram_builders.counting import tokenize
from ngram_builders.ngrams import TokenSpace
tokenize.BATCH_FILES = 2
threading.Timer(float(sys.argv[3]), os.kill, (os.getpid(), 9)).start()
build([Path(sys.argv[2])], "d", encode, token_space=TokenSpace("bytes", 257, 256),
      registry=Registry(Path(sys.argv[1])))
os._exit(0)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
@pytest.mark.slow
def test_after_a_kill_at_any_point_the_old_table_is_served_and_the_next_build_is_right(tmp_path: Path) -> None:
    registry, repo = Registry(tmp_path / "ngrams"), tmp_path / "repo"
    repo.mkdir()
    for number in range(60):
        (repo / f"{number}.py").write_text(f"def f{number}(x):\n    return x + {number}\n" * 9)
    run(registry, repo, name="d")
    for turn, seconds in enumerate(np.linspace(0.0, 0.25, 8)):
        for number in range(60):
            (repo / f"{number}.py").write_text(f"def f{number}(x):\n    return x + {turn}\n" * 9)
        arguments = [str(registry.folder), str(repo), str(seconds), str(Path(__file__).parents[2])]
        done = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, capture_output=True)
        assert done.returncode in (0, -9), done.stderr
        table = Registry(registry.folder).find("d")
        assert table.fault is None
        Table.open(table.path).verify()
    assert run(registry, repo, name="d").path.read_bytes() == fresh_bytes(tmp_path, repo)


def test_two_concurrent_builds_leave_one_valid_table(registry: Registry, repo: Path, tmp_path: Path) -> None:
    made: list[BuildSummary] = []
    threads = [threading.Thread(target=lambda: made.append(run(registry, repo))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3
    assert len({summary.path for summary in made}) == 1
    assert registry.find("repo").path.read_bytes() == fresh_bytes(tmp_path, repo)


LIMITED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from ngram_builders.build import build
from ngram_builders.errors import UserError
from ngram_builders.ngrams import TokenSpace
from ngram_builders.registry.registry import Registry

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), resource.RLIM_INFINITY))
try:
    build([Path(sys.argv[2])], "d", lambda texts: [list(text.encode()) for text in texts],
          token_space=TokenSpace("bytes", 257, 256), registry=Registry(Path(sys.argv[1])))
except UserError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
@pytest.mark.parametrize("room", [4_096, 20_000, 300_000])
@pytest.mark.slow
def test_where_files_may_not_be_large_the_old_table_is_served_and_the_error_names_the_limit(
    tmp_path: Path, room: int
) -> None:
    registry, repo = Registry(tmp_path / "ngrams"), tmp_path / "repo"
    repo.mkdir()
    (repo / "a.py").write_text("x = 1\n")
    old = run(registry, repo, name="d")
    for number in range(50):
        (repo / f"{number}.py").write_text("\n".join(f"name_{number}_{i} = {i * i}" for i in range(100)))
    arguments = [str(registry.folder), str(repo), str(Path(__file__).parents[2]), str(room)]
    done = subprocess.run([sys.executable, "-c", LIMITED, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "raise the limit for one file (`ulimit -f`" in done.stderr and "free" not in done.stderr
    assert "Traceback" not in done.stderr
    assert registry.find("d").path == old.path
    Table.open(old.path).verify()
    assert not [file for file in old.path.parent.iterdir() if file.suffix == ".tmp"]
    assert run(registry, repo, name="d").path.read_bytes() == fresh_bytes(tmp_path, repo)


def test_a_cache_that_fails_during_a_build_costs_only_time(registry: Registry, repo: Path, tmp_path: Path) -> None:
    run(registry, repo)
    (repo / "new.py").write_text("y = 2\n")

    def damaging(texts: Sequence[str]) -> list[list[int]]:
        (registry.folder / "repo" / CACHE_FILE).write_bytes(b"damaged " * 4000)
        return encode(texts)

    summary = run(registry, repo, encode=damaging)
    assert "started a new cache" in str(summary.problem)
    assert summary.path.read_bytes() == fresh_bytes(tmp_path, repo)


def test_more_code_than_a_table_holds_is_refused_before_it_is_read(
    registry: Registry, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokenizing it took days, at the end of which it was refused."""
    for number in range(16):
        with (repo / f"{number}.py").open("wb") as file:
            file.truncate(1_000_000)
    with (repo / "outputs.ipynb").open("wb") as file:
        file.truncate(9_000_000)
    monkeypatch.setattr(external_merge, "_MAX_TOKENS", 16_000_000 / 2 / 3.6)
    with pytest.raises(UserError, match=r"0 GB of code are too much for one file .* with --engine datatrove"):
        run(registry, repo, encode=never)
    (repo / "0.py").unlink()
    with pytest.raises(AssertionError):
        run(registry, repo, encode=never)


def test_a_repository_that_vanishes_keeps_its_table(registry: Registry, repo: Path) -> None:
    old = run(registry, repo)
    (repo / "new.py").write_text("y = 2\n")

    def vanishing(texts: Sequence[str]) -> list[list[int]]:
        shutil.rmtree(repo)
        return encode(texts)

    with pytest.raises(UserError, match="vanished during the build"):
        run(registry, repo, encode=vanishing)
    assert registry.find("repo").path == old.path
    with pytest.raises(UserError, match="does not exist"):
        run(registry, repo)


def test_files_that_vanish_or_change_during_a_build_are_reported(registry: Registry, repo: Path) -> None:
    def changing(texts: Sequence[str]) -> list[list[int]]:
        (repo / "src" / "b.go").unlink(missing_ok=True)
        (repo / "src" / "a.py").write_bytes(b"\xff\x81")
        return encode(texts)

    with patch.object(tokenize, "BATCH_FILES", 1), patch.object(tokenize, "_in_background", iter):
        summary = run(registry, repo, encode=changing)
    assert summary.files == 2
    assert summary.skipped["unreadable"] == 1
    assert summary.skipped["unknown encoding"] == 1


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


def test_many_files_are_encoded_in_batches_and_progress_is_reported(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "many").mkdir()
    for i in range(150):
        (tmp_path / "many" / f"{i}.py").write_text(f"x = {i}\n")
    sizes: list[int] = []

    def encode_some(texts: Sequence[str]) -> list[list[int]]:
        sizes.append(len(texts))
        return encode(texts)

    stages: list[tuple[str, int, int]] = []
    with patch.object(tokenize, "BATCH_FILES", 64):
        summary = run(registry, tmp_path / "many", encode=encode_some, report=lambda *stage: stages.append(stage))
    assert summary.files == sum(sizes) == 150
    assert max(sizes) == 64
    assert [stage[0] for stage in stages if stage[1] == stage[2]] == [
        "survey",
        "files",
        "bytes",
        "counting",
        "measuring",
    ]
    assert [stage[1] for stage in stages if stage[0] == "files"] == [64, 128, 150]


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


def test_an_invalid_table_name_is_refused_before_the_build(registry: Registry, repo: Path) -> None:
    with pytest.raises(UserError, match="invalid table name"):
        run(registry, repo, name="../evil", encode=never)
    assert not registry.folder.exists()


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_become_line_feeds_and_files_that_differ_only_in_them_are_copies(
    registry: Registry, tmp_path: Path, end: str
) -> None:
    first, second = (tmp_path / name for name in ("first", "second"))
    for root in (first, second):
        root.mkdir()
        (root / "a.py").write_bytes(TEXT)
    other = run(registry, first)
    (second / "b.py").write_bytes(b"\xef\xbb\xbf" + TEXT.replace(b"\n", end.encode()))
    summary = run(registry, second)
    assert (summary.files, summary.skipped) == (1, {"duplicate": 1})
    assert preview([second]).skipped == summary.skipped
    assert summary.path.read_bytes() == other.path.read_bytes()


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
        registry.install(names[-1], writer(5, fingerprint=mark), roots=[folder], recipe={"model": model})
    assert len(set(names)) == len(cases)
    assert names[:2] == ["shop", "shop-tiny"]
    again = [default_name([folder], registry, model, mark) for folder, model, mark in cases]
    assert again == names, "each is brought up to date"
    registry.remove("shop")
    assert default_name([folders[0]], registry, "/m/a/tiny", "b2") == "shop-tiny"
