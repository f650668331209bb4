"""Files at addresses are read on where a connection broke, and have another state once they are others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ngram_builders.registry import shared_folder
from ngram_builders.registry.shared_folder import list_at, open_at

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "_PAUSES", (0.0, 0.0))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A file of 100,000 bytes in memory, and how often reading it may still fail."""
    system = fsspec.filesystem("memory")
    system.pipe("/team/a.jsonl", bytes(range(250)) * 400)
    left = [0]
    whole = type(system.open("/team/a.jsonl")).read

    def read(file: Any, size: int = -1) -> bytes:
        if left[0] and file.tell() > 30_000:
            left[0] -= 1
            raise ConnectionError("reset by peer")
        return bytes(whole(file, min(size, 10_000)))

    monkeypatch.setattr(type(system.open("/team/a.jsonl")), "read", read)
    yield left
    system.store.clear()


def test_a_file_whose_connection_breaks_is_read_on(broken: list[int]):
    broken[0] = 2
    with open_at("memory://team/a.jsonl") as file:
        assert file.read() == bytes(range(250)) * 400
    assert broken[0] == 0
    broken[0] = 9
    with pytest.raises(ConnectionError), open_at("memory://team/a.jsonl") as file:
        file.read()


def test_a_file_that_changes_has_another_state(broken: list[int]):
    ((address, size, state),) = list_at("memory://team/*.jsonl")
    assert (address, size) == ("memory:///team/a.jsonl", 100_000)
    assert list_at("memory://team/*.jsonl") == [(address, size, state)]
    fsspec.filesystem("memory").pipe("/team/a.jsonl", b"y" * size)
    assert list_at("memory://team/*.jsonl") != [(address, size, state)]
