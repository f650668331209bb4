"""Tables and corpora on a real S3 server, whose connections break."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ngram_builders.registry import shared_folder
from ngram_builders.registry.registry import Registry
from ngram_builders.registry.sharing import pull, push
from tests.ngram_builders.distributed.test_build import here, run
from tests.ngram_builders.s3_server import Proxy, s3_server

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "_PAUSES", (0.0, 0.0))


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with s3_server(monkeypatch) as proxy:
        yield proxy


def test_tables_go_to_s3_and_back_over_connections_that_break(
    s3: Proxy, registry: Registry, tmp_path: Path, sources: Path
):
    made = here(registry, sources)
    assert push(registry, "here", "s3://team/ngrams")
    other = Registry(tmp_path / "other")
    s3.cuts, s3.after = 2, 2_000
    pulled = pull(other, "here", "s3://team/ngrams")
    assert s3.cuts == 0, "connections were cut"
    assert pulled and pulled.tokens == made.tokens


def test_a_corpus_on_s3_makes_the_bytes_that_it_makes_on_a_disk(
    s3: Proxy, registry: Registry, tmp_path: Path, sources: Path
):
    import s3fs

    for number in range(3):
        rows = [{"text": path.read_text() * 40, "path": path.name} for path in sorted(sources.iterdir())[number:]]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        s3fs.S3FileSystem().put_file(str(tmp_path / f"{number}.jsonl"), f"team/corpus/{number}.jsonl")
    expected = run(registry, tmp_path / "[012].jsonl", name="disk").path.read_bytes()
    s3.cuts, s3.after = 2, 3_000
    made = run(registry, "s3://team/corpus/*.jsonl", name="store")
    assert s3.cuts == 0, "connections were cut"
    assert made.path.read_bytes() == expected
