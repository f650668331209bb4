"""A file uses its workspace's assignment alone, or else what was built around it and its language's assignment."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from ngram_builders.errors import UserError
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.small_tables import names, writer


def test_files_use_the_tables_built_around_them_innermost_first(registry: Registry, repo: Path) -> None:
    registry.install("outer", [writer(5)], roots=[repo])
    registry.install("inner", [writer(6)], roots=[repo / "inner"])
    assert names(registry.tables_for(repo / "inner" / "a.py", "python")) == [("inner", 0.7), ("outer", 0.7)]
    assert names(registry.tables_for(repo / "a.py", "python")) == [("outer", 0.7)]
    assert registry.tables_for(repo.with_name("repo2") / "a.py", "python") == []
    assert registry.tables_for(None, "python") == []


def test_only_known_languages_can_have_assignments(registry: Registry) -> None:
    registry.install("mine", [writer(5)])
    with pytest.raises(UserError, match=r"unknown language 'pyhton'; did you mean 'python'\\?"):
        registry.assign_language("pyhton", [("mine", 0.5)])
    registry.assign_language("pyhton", [])


def test_a_table_is_used_for_its_languages_and_related_ones(registry: Registry, repo: Path) -> None:
    registry.install("web", [writer(5, language="typescript")], roots=[repo])
    assert names(registry.tables_for(repo / "a.tsx", "typescriptreact")) == [("web", 0.7)]
    assert names(registry.tables_for(repo / "a", None)) == [("web", 0.7)]
    assert registry.tables_for(repo / "a.py", "python") == []


def test_damaged_assignments_count_as_none(registry: Registry, repo: Path) -> None:
    registry.install("mine", [writer(5)], roots=[repo])
    registry.assign_workspace(repo, [("mine", 0.2)])
    newer = msgpack.packb({"format": 99})
    for noise in (b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa1a\x05", newer):
        (registry.folder / "workspaces.msgpack").write_bytes(noise)
        assert names(registry.tables_for(repo / "a.py", None)) == [("mine", 0.7)]
        assert "choose again with: spd-lsp ngrams use" in (registry.fault() or "")
    registry.assign_workspace(repo, [("mine", 0.3)])
    assert names(registry.tables_for(repo / "a.py", None)) == [("mine", 0.3)]
