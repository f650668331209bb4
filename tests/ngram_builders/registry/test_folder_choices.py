"""Choices about open folders outlive the process, and a damaged record is no choice."""

from __future__ import annotations

from pathlib import Path

from ngram_builders.registry.folder_choices import (
    FolderChoice,
    read_folder_choices,
    record_indexed,
    write_folder_choice,
)
from ngram_builders.registry.registry import Registry


def test_the_last_choice_counts_whatever_bytes_the_name_has(tmp_path: Path):
    data, odd = tmp_path / "data", Path("/code/caf\udce9")
    write_folder_choice(data, odd, FolderChoice.ALLOWED)
    write_folder_choice(data, Path("/code/shop"), FolderChoice.INDEXED)
    write_folder_choice(data, odd, FolderChoice.EXCLUDED)
    assert read_folder_choices(data) == {
        odd: FolderChoice.EXCLUDED,
        Path("/code/shop"): FolderChoice.INDEXED,
    }


def test_a_folder_is_new_once_and_the_first_of_all_once(tmp_path: Path):
    shop, bank = Path("/code/shop"), Path("/code/bank")
    assert record_indexed(shop, tmp_path) == (True, True)
    assert record_indexed(shop, tmp_path) == (False, False)
    assert record_indexed(bank, tmp_path) == (True, False)
    write_folder_choice(tmp_path, bank, FolderChoice.ALLOWED)
    record_indexed(bank, tmp_path)
    assert read_folder_choices(tmp_path)[bank] is FolderChoice.ALLOWED


def test_a_damaged_record_is_no_choice_and_is_replaced(tmp_path: Path):
    write_folder_choice(tmp_path, Path("/code/shop"), FolderChoice.EXCLUDED)
    (record,) = tmp_path.glob("*.msgpack")
    for damage in (b"", b"\xc1", b"\x90", record.read_bytes()[:-3], b"\x81\xa1a\xa1b"):
        record.write_bytes(damage)
        assert read_folder_choices(tmp_path) == {}
    write_folder_choice(tmp_path, Path("/code/shop"), FolderChoice.INDEXED)
    assert read_folder_choices(tmp_path) == {Path("/code/shop"): FolderChoice.INDEXED}


def test_pruning_forgets_folders_that_are_gone(tmp_path: Path):
    (tmp_path / "shop").mkdir()
    registry = Registry(tmp_path / "data")
    for folder in (tmp_path / "shop", tmp_path / "gone"):
        write_folder_choice(registry.folder, folder, FolderChoice.EXCLUDED)
    registry.prune()
    assert len(read_folder_choices(registry.folder)) == 2
    registry.prune(gone=True)
    assert read_folder_choices(registry.folder) == {tmp_path / "shop": FolderChoice.EXCLUDED}
