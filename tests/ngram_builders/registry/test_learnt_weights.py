"""A weight is learnt within bounds from what was accepted; what was learnt is numbers, and outlives a server."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ngram_builders.registry.learnt_weights import (
    LEARNT_FILE,
    START,
    WEIGHTS,
    Learnt,
    add_learnt_weight,
    read_learnt_weights,
)
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.small_tables import names, writer


def lesson(slope: float, tokens: int = 10) -> Learnt:
    """Tokens that a weight makes likelier by this power of it."""
    return Learnt(tokens, tuple(tokens * slope * math.log(weight) for weight in WEIGHTS))


def test_a_weight_begins_where_nothing_harms_and_moves_with_what_is_accepted() -> None:
    assert Learnt().weight == START
    assert Learnt(10).weight == pytest.approx(START, abs=0.002)  # what says nothing changes nothing
    weights = [lesson(slope).weight for slope in (-5.0, -0.1, -0.02, 0.02, 0.1, 5.0)]
    assert weights == sorted(weights)
    assert (weights[0], weights[-1]) == (WEIGHTS[0], WEIGHTS[-1])
    assert weights[2] < START < weights[3]


def test_what_was_accepted_long_ago_counts_less() -> None:
    up, down = lesson(0.02, 2_000), lesson(-0.02, 2_000)
    assert down.plus(up).weight > START > up.plus(down).weight


def test_each_folder_has_its_own_weight_of_a_table_and_a_given_one_stays(registry: Registry, repo: Path) -> None:
    registry.install("own", writer(5), roots=[repo])
    for name in ("team", "fixed"):
        registry.install(name, writer(6))
    registry.add_to_folder(repo, [("team", None), ("fixed", 0.3)])
    registry.assign_language("python", [("team", None)])
    other = repo.with_name("other")
    for name in ("own", "team", "fixed"):
        add_learnt_weight(registry.folder, str(repo), name, lesson(9.0))
    assert names(registry.tables_for(repo / "a.py", "python")) == [("own", 0.7), ("team", 0.7), ("fixed", 0.3)]
    assert names(registry.tables_for(other / "a.py", "python")) == [("team", START)]
    choices = registry.choices_for(repo / "a.py", "python")
    assert (choices["team"].learnt_in, choices["team"].tokens) == (str(repo), 10)
    assert choices["own"].learnt_in is choices["fixed"].learnt_in is None


def test_a_table_chosen_for_the_folder_that_it_was_built_from_has_its_own_weight(
    registry: Registry, repo: Path
) -> None:
    registry.install("own", writer(5), roots=[repo])
    registry.assign_workspace(repo, [("own", None)])
    assert names(registry.tables_for(repo / "a.py", "python")) == [("own", 0.7)]


def test_for_a_language_it_is_learnt_by_the_folders_that_have_tables(registry: Registry, repo: Path) -> None:
    registry.install("own", writer(5), roots=[repo])
    registry.install("team", writer(6))
    registry.assign_language("python", [("team", None)])
    assert registry.choices_for(repo / "inner" / "a.py", "python")["team"].learnt_in == str(repo)
    assert registry.choices_for(repo.with_name("other") / "a.py", "python")["team"].learnt_in is None


def test_nothing_is_left_of_tables_and_folders_that_are_gone(registry: Registry, repo: Path) -> None:
    for name in ("team", "old"):
        registry.install(name, writer(6))
        add_learnt_weight(registry.folder, str(repo), name, lesson(9.0))
    add_learnt_weight(registry.folder, str(repo / "gone"), "team", lesson(9.0))
    registry.remove("old")
    registry.prune(gone=True)
    assert {folder: [*tables] for folder, tables in read_learnt_weights(registry.folder).items()} == {
        str(repo): ["team"]
    }


@pytest.mark.parametrize("noise", [b"", b"\xc1", b"\x81\xa1a\x05", b"\x81\xa1a\x81\xa1b\x92\x05\x06"])
def test_a_damaged_record_is_nothing_learnt(tmp_path: Path, noise: bytes) -> None:
    (tmp_path / LEARNT_FILE).write_bytes(noise)
    assert read_learnt_weights(tmp_path) == {}
    add_learnt_weight(tmp_path, "/code", "team", lesson(9.0))
    assert read_learnt_weights(tmp_path)["/code"]["team"].weight == WEIGHTS[-1]
