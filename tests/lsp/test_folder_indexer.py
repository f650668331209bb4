"""Which open folders are indexed: decided by their paths, the tables that are there and the user's choices."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from ngram_builders.registry.registry import FolderChoice, Registry
from spd_lsp.lsp.folder_indexer import exclude_folder, local_folder, reason_not_to_index
from tests.ngram_builders.small_tables import writer

TOKENIZER = "a1b2"


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "data" / "ngrams")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "lib").mkdir(parents=True)
    return folder


def install(registry: Registry, root: Path, fingerprint: str = TOKENIZER) -> None:
    registry.install("shop", [writer(5, fingerprint=fingerprint)], roots=[root])


def test_homes_roots_and_temporary_folders_are_never_indexed(
    tmp_path: Path, registry: Registry, shop: Path, monkeypatch: pytest.MonkeyPatch
):
    assert "temporary" in reason_not_to_index(Path(tempfile.gettempdir()).resolve(), registry, None)
    assert "temporary" in reason_not_to_index(Path("/var/tmp").resolve(), registry, None)
    monkeypatch.setenv("HOME", str(tmp_path / "homes" / "me"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "homes" / "me"))
    for folder in (tmp_path / "homes" / "me", tmp_path / "homes"):
        assert "home directory" in reason_not_to_index(folder, registry, None)
    assert "home directory" in reason_not_to_index(Path(shop.anchor), registry, None)
    for folder in (shop, tmp_path / "homes" / "me" / "code"):
        assert reason_not_to_index(folder, registry, None) == ""


@pytest.mark.parametrize("uri", ["untitled:one", "vscode-remote://ssh/code", "file:///not/there"])
def test_a_folder_that_is_not_on_this_machine_is_none(uri: str):
    assert local_folder(uri) is None


def test_a_folder_with_a_table_of_its_own_or_around_it_is_not_built_again(registry: Registry, shop: Path):
    assert reason_not_to_index(shop, registry, TOKENIZER) == ""
    install(registry, shop)
    assert reason_not_to_index(shop, registry, TOKENIZER) == "it has a table"
    assert reason_not_to_index(shop / "lib", registry, TOKENIZER) == "it has a table"
    assert reason_not_to_index(shop.parent / "other", registry, TOKENIZER) == ""


def test_a_table_of_a_part_of_another_tokenizer_or_broken_does_not_count(registry: Registry, shop: Path):
    install(registry, shop / "lib")
    assert reason_not_to_index(shop, registry, TOKENIZER) == ""
    install(registry, shop, fingerprint="other")
    assert reason_not_to_index(shop, registry, TOKENIZER) == ""
    install(registry, shop)
    registry.find("shop").path.write_bytes(b"")
    assert reason_not_to_index(shop, registry, TOKENIZER) == ""


def test_what_the_user_chose_stands(registry: Registry, shop: Path):
    install(registry, shop.parent / "elsewhere")
    registry.assign_workspace(shop.parent, [("shop", 0.3)])
    assert reason_not_to_index(shop, registry, TOKENIZER) == "you chose its tables"
    registry.assign_workspace(shop.parent, [])
    registry.choose_folder(shop, FolderChoice.EXCLUDED)
    assert reason_not_to_index(shop, registry, TOKENIZER) == "you excluded it"
    registry.choose_folder(shop, FolderChoice.INDEXED)
    assert reason_not_to_index(shop, registry, TOKENIZER) == ""


def test_excluding_a_folder_deletes_its_own_tables_only(registry: Registry, shop: Path):
    install(registry, shop)
    registry.install("both", [writer(5, fingerprint=TOKENIZER)], roots=[shop, shop.parent / "elsewhere"])
    assert exclude_folder(shop, registry) == f"{shop} is not indexed any more; its tables were deleted: shop"
    assert [table.name for table in registry.tables()] == ["both"]
    assert exclude_folder(shop, registry) == f"{shop} is not indexed any more"
