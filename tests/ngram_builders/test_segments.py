"""A table and its segments answer as one table that was built from nothing, whatever was edited in between."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ngram_builders.build import BuildSummary, build
from ngram_builders.counting import pipeline
from ngram_builders.counting.token_cache import CACHE_FILE, read_indexed_files
from ngram_builders.errors import UserError
from ngram_builders.ngrams import TokenSpace
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.registry.registry import Registry
from ngram_builders.registry.transfer import export_table, import_table
from ngram_builders.table import suffix_array
from ngram_builders.table.format import Columns
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table, added_runs
from ngram_builders.table.suffix_array import SearchedTexts, find_occurrences
from tests.ngram_builders.byte_encoder import END, VOCABULARY, encode

WORDS = "abba ab = (x) return self.name\n"
EDIT = st.tuples(st.sampled_from(["a.py", "b.py", "c/d.py", "c/e.go"]), st.none() | st.text("ab =\n", max_size=30))


def run(registry: Registry, repo: Path, **options: Any) -> BuildSummary:
    tokens: dict[str, Any] = {"token_space": TokenSpace("bytes", VOCABULARY, END)}
    return build([repo], "mine", encode, registry=registry, **{**tokens, "incremental": True, **options})


def extend(registry: Registry, repo: Path) -> NgramTable:
    run(registry, repo)
    table = registry.find("mine")
    assert table.fault is None and len(table.segments) <= 1
    return table


def from_nothing(folder: Path, repo: Path, **options: Any) -> NgramTable:
    registry = Registry(folder)
    run(registry, repo, incremental=False, fresh=True, **options)
    return registry.find("mine")


def columns(table: NgramTable) -> list[Columns]:
    return [Table.open(path).columns for path in table.paths]


def searched(table: NgramTable) -> list[SearchedTexts]:
    """The texts of a table, as a server searches them."""
    contents = read_indexed_files(table.path.parent, table.layers, "bytes")
    assert contents is not None
    layers = [Table.open(path).texts for path in table.paths]
    return [
        SearchedTexts(texts, frozenset(number for number, digest in enumerate(digests) if digest is None))
        for texts, digests in zip(layers, contents.documents, strict=True)
    ]


def places(table: NgramTable, history: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """All places; a server looks at some of those that are many."""
    with patch.multiple(suffix_array, _MAX_PLACES=10**6, _PLACES_PER_LENGTH=10**6):
        found = find_occurrences(searched(table), history, 8)
    return sorted((place.length, tuple(takewhile(lambda one: one != END, place.next))) for place in found)


def check_equal(one: NgramTable, other: NgramTable, repo: Path, chance: random.Random) -> None:
    """Both answer alike."""
    text = [END, *(byte for file in sorted(repo.rglob("*.*")) for byte in [*file.read_bytes(), END])]
    ends = [chance.randrange(len(text)) for _ in range(12)]
    contexts = np.array([([-1] * 8 + text[: end + 1])[-8:] for end in ends])
    candidates = np.array([*sorted(set(text)), 300, -1])
    order_weights = np.tri(9, 8, -1) / 10
    p = np.linspace(0, 0.01, 257, dtype=np.float32)
    pools = [[columns(one)], [columns(other)]]
    answers = []
    for pool in pools:
        query = open_query(pool, [1.0])
        mixed = query.mix_candidates(contexts, p, 7, order_weights)
        answers.append((*query.probabilities(contexts, candidates), query.successors(contexts, 5), *mixed))
    for first, second in zip(*answers, strict=True):
        assert_array_equal(first, second)
    for end in (end for end in ends if text[end] != END):  # beyond it stands another document
        history = text[max(at for at in range(end) if text[at] == END) : end + 1]
        assert places(one, history) == places(other, history)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "c").mkdir(parents=True)
    for name in ("a.py", "b.py", "c/d.py"):
        (root / name).write_text(f"import {name[0]}\n" + WORDS * 9)
    (root / "kept.py").write_text("".join(f"name_{i} = value({i * i})\n" for i in range(120)))
    return root


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(steps=st.lists(st.lists(EDIT, min_size=1, max_size=3), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_after_any_edits_base_and_segments_answer_as_one_table_from_nothing(
    steps: list[list[tuple[str, str | None]]], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("edits")
    repo, registry, chance = tmp_path / "repo", Registry(tmp_path / "ngrams"), random.Random(seed)
    (repo / "c").mkdir(parents=True)
    (repo / "kept.py").write_text(WORDS * 20)
    with patch.object(pipeline, "MAX_CHANGED_SHARE", chance.choice([0.2, 100.0])):
        for number, edits in enumerate(steps):
            for name, text in edits:
                if text is None:
                    (repo / name).unlink(missing_ok=True)
                else:
                    (repo / name).write_text(text)
            table = extend(registry, repo)
            whole = from_nothing(tmp_path / f"fresh{number}", repo)
            assert (table.tokens, table.files, table.sources) == (whole.tokens, whole.files, whole.sources)
            check_equal(table, whole, repo, chance)
    summary = run(registry, repo, incremental=False)
    assert summary.path.read_bytes() == whole.path.read_bytes()
    assert list(summary.path.parent.glob("table-*")) == [summary.path]


def test_an_edit_is_written_beside_the_table_and_answers_as_a_rebuilt_one(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    base = extend(registry, repo)
    assert base.segments == ()
    (repo / "a.py").write_text("def new(name):\n    return abba\n")
    (repo / "c" / "d.py").unlink()
    table = extend(registry, repo)
    assert table.path == base.path
    assert len(table.segments) == 1
    assert table.segments[0].stat().st_size < base.path.stat().st_size
    assert table.size == sum(path.stat().st_size for path in table.paths)
    Table.open(table.segments[0]).verify()
    check_equal(table, from_nothing(tmp_path / "fresh", repo), repo, random.Random(0))


def test_a_build_that_is_asked_for_writes_one_table_with_the_bytes_of_one_from_nothing(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    extend(registry, repo)
    (repo / "a.py").write_text("x = 1\n")
    assert extend(registry, repo).segments
    summary = run(registry, repo, incremental=False)
    assert summary.changed
    assert registry.find("mine").segments == ()
    assert summary.path.read_bytes() == from_nothing(tmp_path / "fresh", repo).path.read_bytes()
    assert list(summary.path.parent.glob("table-*")) == [summary.path]


def test_a_segment_replaces_the_one_before(registry: Registry, repo: Path) -> None:
    base, segments = extend(registry, repo), set()
    for number in range(4):
        (repo / f"new{number}.py").write_text(f"number_{number} = {number}\n")
        segments |= set(extend(registry, repo).segments)
    assert registry.find("mine").path == base.path
    assert len(segments) == 4 and [path for path in segments if path.exists()] == list(
        registry.find("mine").segments
    )


def test_what_is_undone_leaves_no_counts(registry: Registry, repo: Path) -> None:
    extend(registry, repo)
    before = (repo / "a.py").read_bytes()
    (repo / "a.py").write_text("zygote = frobnicator\n")
    extend(registry, repo)
    (repo / "a.py").write_bytes(before)
    table = extend(registry, repo)
    assert sum(len(one.heads) for one in columns(table)[1:]) == 0
    assert all(b"zygote" not in bytes(Table.open(path).texts.text.astype("u1")) for path in table.segments)  # type: ignore[union-attr]


def test_more_than_a_fifth_is_written_as_a_new_base(registry: Registry, repo: Path) -> None:
    base = extend(registry, repo)
    (repo / "large.py").write_text(WORDS * 200)
    table = extend(registry, repo)
    assert table.segments == ()
    assert table.path != base.path


@pytest.mark.parametrize("options", [{"min_count": 2}, {"min_files": 2}, {"min_count": {4: 3}}])
def test_a_pruned_table_has_no_segments_as_what_was_pruned_is_not_known(
    registry: Registry, repo: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    run(registry, repo, **options)
    (repo / "new.py").write_text("x = 1\n")
    run(registry, repo, **options)
    table = registry.find("mine")
    assert table.segments == ()
    assert table.path.read_bytes() == from_nothing(tmp_path / "fresh", repo, **options).path.read_bytes()


def test_renamed_and_touched_files_need_no_segment(registry: Registry, repo: Path) -> None:
    extend(registry, repo)
    (repo / "new.py").write_text("x = 1\n")
    one = extend(registry, repo)
    (repo / "a.py").rename(repo / "renamed.py")
    os.utime(repo / "b.py", ns=(1, 1))
    two = extend(registry, repo)
    assert two.paths == one.paths
    contents = read_indexed_files(two.path.parent, two.layers, "bytes")
    assert contents is not None
    assert {Path(path).name for path in contents.files} == {"renamed.py", "b.py", "d.py", "new.py", "kept.py"}
    assert contents.files[str(repo / "b.py")][1] == 1


def test_without_a_record_of_its_files_a_table_is_built_anew(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    extend(registry, repo)
    (repo / "new.py").write_text("x = 1\n")
    table = extend(registry, repo)
    (table.path.parent / CACHE_FILE).unlink()
    (repo / "new.py").write_text("x = 2\n")
    table = extend(registry, repo)
    assert table.segments == ()
    assert table.path.read_bytes() == from_nothing(tmp_path / "fresh", repo).path.read_bytes()


def test_a_truncated_segment_is_refused_in_a_sentence_and_the_next_build_writes_a_new_base(
    registry: Registry, repo: Path
) -> None:
    extend(registry, repo)
    (repo / "new.py").write_text("x = 1\n")
    (segment,) = extend(registry, repo).segments
    segment.write_bytes(segment.read_bytes()[:-64])
    fault = Registry(registry.folder).find("mine").fault
    assert fault and str(segment) in fault and "instead of" in fault
    assert extend(registry, repo).segments == ()


def test_an_export_is_one_file_with_the_counts_of_a_rebuilt_table(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    extend(registry, repo)
    (repo / "new.py").write_text("x = 1\n" * 60)
    (repo / "a.py").unlink()
    assert extend(registry, repo).segments
    target = export_table(registry, "mine", tmp_path / "one.ngt")
    whole = from_nothing(tmp_path / "fresh", repo)
    exported, expected = Table.open(target), Table.open(whole.path)
    exported.verify()
    for mine, theirs in zip(added_runs([exported]), added_runs([expected]), strict=True):
        assert_array_equal(mine.records, theirs.records)
        assert_array_equal(mine.counts, theirs.counts)
    assert (exported.summary.tokens, exported.summary.sources) == (
        expected.summary.tokens,
        expected.summary.sources,
    )
    assert list(whole.path.parent.glob(".*.tmp")) == []


def test_a_segment_is_not_imported_as_a_table(registry: Registry, repo: Path) -> None:
    extend(registry, repo)
    (repo / "new.py").write_text("x = 1\n")
    (segment,) = extend(registry, repo).segments
    with pytest.raises(UserError, match="only what changed in another table; export it again"):
        import_table(registry, segment, "part")
