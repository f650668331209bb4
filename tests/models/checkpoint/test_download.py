"""Downloads: resumed where they broke off, and kept only with the digest that the server named."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.download import fetch, list_files, models_folder
from tests.models.checkpoint.hub_server import Hub, running_hub

CONTENT = bytes(range(256)) * 4000
PLACE = "me/coder-GGUF/coder-q8_0.gguf"
NAME = "coder-q8_0.gguf"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)  # ten megabytes for others
    with running_hub() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
        template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        hub.add(PLACE, CONTENT)
        yield hub


def fetched(*names: str, **more: Any) -> Path:
    return fetch("me/coder-GGUF", names or [NAME], lambda done, total: None, **more)


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_a_file_is_fetched_once_and_its_progress_is_reported(hub: Hub):
    reports: list[tuple[int, int]] = []
    folder = fetch("me/coder-GGUF", [NAME], lambda *report: reports.append(report))
    assert folder == models_folder() / "me" / "coder-GGUF"
    assert (folder / NAME).read_bytes() == CONTENT
    assert files_in(folder) == {NAME}
    assert reports[0] == (0, len(CONTENT)) and reports[-1] == (len(CONTENT), len(CONTENT))
    fetched()
    assert hub.ranges == [""]


def test_a_broken_connection_is_continued_where_it_broke(hub: Hub):
    hub.cuts = [300_000]
    assert (fetched() / NAME).read_bytes() == CONTENT
    assert len(hub.ranges) == 2 and 0 < int(hub.ranges[1].removeprefix("bytes=").rstrip("-")) <= 300_000


@pytest.mark.parametrize("begun", [0, 300_000])
def test_a_server_that_never_ends_is_read_no_further_than_the_size_that_it_named(hub: Hub, begun: int):
    if begun:
        hub.cuts = [begun, *[0] * 10]
        with pytest.raises(UserError, match="could not be downloaded"):
            fetched()
    hub.is_endless = True
    with pytest.raises(UserError, match=r"sends more than the 1\.0 MB that it named for coder-q8_0\.gguf"):
        fetched()
    assert hub.written < 20 * len(CONTENT)
    assert files_in(models_folder()) == set()
    hub.is_endless, hub.cuts = False, []
    assert (fetched() / NAME).read_bytes() == CONTENT


def test_a_download_that_fails_is_resumed_by_the_next_one(hub: Hub):
    hub.cuts = [300_000, *[0] * 10]  # bytes: the server is lost for good
    with pytest.raises(UserError, match=r"could not be downloaded .*what was fetched so far is kept"):
        fetched()
    (part,) = (path for path in models_folder().rglob("*.part"))
    begun = part.stat().st_size
    hub.cuts, hub.ranges = [], []
    assert (fetched() / NAME).read_bytes() == CONTENT
    assert begun > 0 and hub.ranges == [f"bytes={begun}-"]


def test_a_server_that_begins_again_is_followed(hub: Hub):
    hub.cuts, hub.ignores_ranges = [300_000], True
    assert (fetched() / NAME).read_bytes() == CONTENT


def test_a_file_with_another_digest_is_not_kept(hub: Hub):
    hub.digests[PLACE] = "0" * 64
    with pytest.raises(UserError, match=r"its digest is [0-9a-f]{16}\.\.\., not 0{16}\.\.\.; nothing was kept"):
        fetched()
    assert files_in(models_folder()) == set()


def test_a_known_digest_is_asked_for_before_anything_is_fetched(hub: Hub):
    with pytest.raises(UserError, match="is not the file that was expected"):
        fetched(sha256="0" * 64)
    assert hub.ranges == []
    fetched(sha256=hashlib.sha256(CONTENT).hexdigest())


def test_a_server_that_names_no_digest_is_refused(hub: Hub):
    hub.digests[PLACE] = "version-7"
    with pytest.raises(UserError, match="gives no size and digest"):
        fetched()


def test_small_files_have_the_digest_that_git_gives_them(hub: Hub):
    hub.add("me/coder-GGUF/config.json", b"{}")
    hub.digests["me/coder-GGUF/config.json"] = hashlib.sha1(b"blob 2\0{}").hexdigest()
    assert (fetched("config.json") / "config.json").read_bytes() == b"{}"


def test_what_is_not_there_is_said_in_one_sentence(hub: Hub):
    assert list_files("me/coder-GGUF") == [NAME]
    with pytest.raises(UserError, match="me/coder-GGUF is not stored here and could not be downloaded"):
        fetched("other.gguf")
    with pytest.raises(UserError, match="nobody/nothing is not stored here"):
        list_files("nobody/nothing")


@pytest.mark.parametrize("name", ["../../escape.gguf", "/etc/escape.gguf", "a\\..\\b.gguf", "a/../../b.gguf"])
def test_no_name_that_a_server_lists_leads_out_of_the_folder(hub: Hub, name: str):
    with pytest.raises(UserError, match="expected the name of a file in a repository"):
        fetched(name)
