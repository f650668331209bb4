"""Downloads: only into their own folder, and with the digest that is known of a recommended model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ngram_builders.errors import UserError
from spd_lsp.models.hub import fetch, list_files
from spd_lsp.models.stored import models_folder
from tests.models.hub_server import Hub, running_hub

CONTENT = bytes(range(256)) * 4000
PLACE = "me/coder-GGUF/coder-q8_0.gguf"
NAME = "coder-q8_0.gguf"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)  # ten megabytes for others
    with running_hub(monkeypatch) as hub:
        hub.add(PLACE, CONTENT)
        yield hub


def fetched(*names: str, **more: Any) -> Path:
    return fetch("me/coder-GGUF", names or [NAME], lambda text: None, **more)


def test_a_file_is_fetched_once_and_its_progress_is_reported(hub: Hub):
    reports: list[str] = []
    folder = fetch("me/coder-GGUF", [NAME], reports.append)
    assert folder == models_folder() / "me" / "coder-GGUF"
    assert (folder / NAME).read_bytes() == CONTENT
    assert (reports[0], reports[-1]) == (f"downloading {NAME}: 0%", f"downloading {NAME}: 100%")
    fetched()
    assert hub.ranges == [""]


def test_a_broken_connection_is_continued_where_it_broke(hub: Hub):
    hub.cuts = [300_000]
    assert (fetched() / NAME).read_bytes() == CONTENT
    assert len(hub.ranges) == 2 and 0 < int(hub.ranges[1].removeprefix("bytes=").rstrip("-")) <= 300_000


def test_a_file_with_another_digest_than_the_known_one_is_not_kept(hub: Hub):
    with pytest.raises(UserError, match=r"its SHA-256 is [0-9a-f]{16}\.\.\., not 0{16}\.\.\.; nothing was kept"):
        fetched(sha256="0" * 64)
    assert not (models_folder() / "me/coder-GGUF" / NAME).exists()
    fetched(sha256=hashlib.sha256(CONTENT).hexdigest())


def test_what_is_not_there_is_said_in_one_sentence(hub: Hub):
    assert list_files("me/coder-GGUF") == [NAME]
    with pytest.raises(UserError, match="me/coder-GGUF is not stored here and could not be downloaded"):
        fetched("other.gguf")
    with pytest.raises(UserError, match="nobody/nothing is not stored here"):
        list_files("nobody/nothing")


def written(tmp_path: Path) -> set[Path]:
    """What lies anywhere but in the model's own folder."""
    own = models_folder() / "me" / "coder-GGUF"
    return {path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(own)}


@pytest.mark.parametrize("name", ["../../escape.gguf", "/etc/escape.gguf", "a\\..\\b.gguf", "a/../../b.gguf"])
def test_no_name_that_a_server_lists_leads_out_of_the_folder(hub: Hub, tmp_path: Path, name: str):
    hub.add(f"me/coder-GGUF/{name}", CONTENT)
    with pytest.raises(UserError, match="could not be downloaded"):
        fetched(name)
    assert written(tmp_path) == set()


@pytest.mark.parametrize("header", ["digests", "commits"])
@pytest.mark.parametrize("way", ["../../../../escaped", "{outside}/escaped"])
def test_no_header_of_a_server_leads_out_of_the_folder(hub: Hub, tmp_path: Path, header: str, way: str):
    getattr(hub, header)[PLACE] = way.replace("{outside}", str(tmp_path))
    try:
        fetched()
    except UserError as refused:
        assert "could not be downloaded" in str(refused)
    assert written(tmp_path) == set()
