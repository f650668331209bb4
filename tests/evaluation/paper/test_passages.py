"""Passages of repositories."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.paper.passages import RepositorySplit, split_repository
from tests.conftest import STARTER


@pytest.fixture(scope="module")
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "shop"
    folder.mkdir()
    for n in range(12):
        lines = [f"def price_{n}_{i}(order, tax):\n    return order.total * {i} + tax\n" for i in range(30)]
        (folder / f"part_{n}.py").write_text("\n".join(lines))
    (folder / "copy.py").write_text((folder / "part_0.py").read_text())
    (folder / "notes.md").write_text("not python")
    return folder


def draw(repository: Path, tokens: ModelTokenizer, seed: int = 0) -> RepositorySplit:
    return split_repository(repository, tokens, examples=10, before=32, after=8, seed=seed)


def test_places_have_room_and_say_what_follows(repository: Path, tokens: ModelTokenizer) -> None:
    split = draw(repository, tokens)
    assert len(split.passages) == 10
    for passage in split.passages:
        text = (repository / passage.file).read_text()
        assert len(passage.prefix(32)) == 32
        assert len(passage.continuation(8)) == 8
        assert tokens.bytes_of([*passage.prefix(32), *passage.continuation(8)]).decode() in text


def test_what_is_asked_about_is_not_counted(repository: Path, tokens: ModelTokenizer) -> None:
    split = draw(repository, tokens)
    assert len(split.counted) == 12 - 3  # a copy counts once; one file in six, and one, is asked about
    counted = {tuple(ids[1:-1].tolist()) for ids in split.counted}
    assert not counted & {passage.ids for passage in split.passages}


def test_the_same_seed_draws_the_same_places(repository: Path, tokens: ModelTokenizer) -> None:
    assert draw(repository, tokens).passages == draw(repository, tokens).passages
    assert draw(repository, tokens).passages != draw(repository, tokens, seed=1).passages


def test_places_of_one_file_do_not_overlap(repository: Path, tokens: ModelTokenizer) -> None:
    split = draw(repository, tokens)
    taken = sorted((passage.file, passage.at) for passage in split.passages)
    assert all(a[0] != b[0] or b[1] - a[1] >= 8 for a, b in pairwise(taken))


def test_a_folder_without_source_is_refused(tmp_path: Path, tokens: ModelTokenizer) -> None:
    with pytest.raises(UserError, match=r"at least two are needed"):
        draw(tmp_path, tokens)
