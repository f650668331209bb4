"""From a repository to a table that answers, the same bytes each time, with an account of what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngram_builders.build import Summary, build, write_table
from ngram_builders.counts import count
from ngram_builders.errors import UserError
from ngram_builders.registry import Registry
from ngram_builders.tables import Table, write

END = 256
OPTIONS: dict[str, Any] = {"end_of_text": END, "fingerprint": "bytes", "vocab_size": 257}


def encode(texts: Sequence[str]) -> list[list[int]]:
    return [list(text.encode()) for text in texts]


def run(registry: Registry, *roots: Path, domain: str | None = None, **options: Any) -> Summary:
    return build(roots, domain, encode, registry=registry, **{**OPTIONS, **options})


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "ngrams")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_bytes(b"import os\r\nprint(os.name)\r\n")
    (root / "src" / "b.go").write_bytes(b"package main\n")
    (root / "copy.py").write_bytes(b"import os\r\nprint(os.name)\r\n")
    (root / "bom.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    (root / ".env").write_bytes(b"PASSWORD=1\n")
    (root / "README.md").write_bytes(b"# readme\n")
    return root


def test_a_build_counts_the_sources_and_accounts_for_the_rest(registry: Registry, repo: Path) -> None:
    summary = run(registry, repo)
    domain = registry.find("repo")
    assert (summary.domain, summary.path, summary.bytes) == ("repo", domain.path, domain.size)
    assert summary.files == domain.files == 3
    assert summary.tokens == len("import os\r\nprint(os.name)\r\n") + len("package main\n") + len("x = 1\n") + 3
    assert summary.left_out == {"duplicate": 1, "not source code": 1, "secret": 1}
    assert domain.languages == ("go", "python")
    assert domain.roots == (repo.resolve(),)
    assert names(registry, repo / "src" / "new.py") == ["repo"]


def names(registry: Registry, file: Path) -> list[str]:
    return [domain.name for domain, _ in registry.serving(file, None)]


def test_the_table_holds_the_counts_of_the_texts_as_an_editor_has_them(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    """Line ends stay, a byte order mark goes, every text ends with end_of_text."""
    texts = ["x = 1\n", "import os\r\nprint(os.name)\r\n", "package main\n"]
    counts = count([np.array([*text.encode(), END]) for text in texts], end_of_text=END, vocab_size=257)
    write(tmp_path / "expected", counts, fingerprint="bytes", sources={"python": 2, "go": 1})
    assert run(registry, repo).path.read_bytes() == (tmp_path / "expected").read_bytes()


def test_the_start_of_a_file_is_known(registry: Registry, repo: Path) -> None:
    table = Table.open(run(registry, repo).path)
    p, seen = table.lookup(np.array([[-1, -1, -1, -1, END]]), np.frombuffer(b"ipxz", np.uint8).astype(np.int64))
    np.testing.assert_allclose(p[0, 0], [1 / 3, 1 / 3, 1 / 3, 0])
    assert seen[0].tolist() == [True, False, False, False, False]


def test_the_same_repository_gives_the_same_bytes(tmp_path: Path, repo: Path) -> None:
    first, second = (run(Registry(tmp_path / name), repo).path for name in ("one", "two"))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_several_roots_make_one_domain_and_overlaps_count_once(registry: Registry, repo: Path) -> None:
    both = run(registry, repo, repo / "src", domain="both")
    assert both.tokens == run(registry, repo).tokens
    assert registry.find("both").roots == (repo.resolve(), (repo / "src").resolve())


def test_one_language_can_be_chosen(registry: Registry, repo: Path) -> None:
    summary = run(registry, repo, language="go")
    assert summary.files == 1
    assert summary.left_out["other language"] == 3
    assert registry.find("repo").languages == ("go",)


def test_orders_and_pruning_are_passed_on(registry: Registry, repo: Path) -> None:
    table = Table.open(run(registry, repo, orders=(2, 3), min_count={3: 2}).path)
    assert table.orders == (2, 3)
    assert table.summary.min_count == (1, 2)


def test_a_repository_without_source_is_refused_with_what_was_there(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("text")
    (tmp_path / "docs" / "b.md").write_text("text")
    (tmp_path / "docs" / ".env").write_text("text")
    with pytest.raises(
        UserError, match=r"expected source code in .*docs, found none \(left out: 2 not source code, 1 sec"
    ):
        run(registry, tmp_path / "docs")
    assert not registry.folder.exists()


def test_an_unreadable_file_is_left_out_and_the_build_goes_on(tmp_path: Path, repo: Path) -> None:
    left_out: Counter[str] = Counter()
    (repo / "src" / "b.go").write_bytes(b"\xff")
    files = [repo / "gone.py", repo / "src", repo / "src" / "a.py", repo / "src" / "b.go"]
    summary = write_table(files, tmp_path / "t.ngt", encode, left_out=left_out, **OPTIONS)
    assert summary.files == 1
    assert left_out == {"unreadable": 3}


def test_only_unreadable_files_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="1 unreadable"):
        write_table([tmp_path / "gone.py"], tmp_path / "t.ngt", encode, **OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_many_files_are_encoded_in_batches(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "many").mkdir()
    for i in range(150):
        (tmp_path / "many" / f"{i}.py").write_text(f"x = {i}\n")
    sizes: list[int] = []

    def encode_some(texts: Sequence[str]) -> list[list[int]]:
        sizes.append(len(texts))
        return encode(texts)

    stages: list[tuple[str, int, int]] = []
    summary = build(
        [tmp_path / "many"],
        None,
        encode_some,
        registry=registry,
        report=lambda *stage: stages.append(stage),
        **OPTIONS,
    )
    assert summary.files == sum(sizes) == 150
    assert max(sizes) == 64
    assert [stage for stage in stages if stage[1] == stage[2]] == [
        ("survey", 1, 1),
        ("tokens", 150, 150),
        ("write", 1, 1),
    ]


def test_repositories_of_one_name_do_not_replace_each_other(
    registry: Registry, repo: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "repo"
    other.mkdir(parents=True)
    (other / "a.py").write_text("y = 2\n")
    assert run(registry, repo).domain == "repo"
    second = run(registry, other).domain
    assert second.startswith("repo-")
    assert run(registry, other).domain == second
    assert run(registry, repo).domain == "repo"
    assert [domain.name for domain in registry.domains()] == ["repo", second]


@pytest.mark.parametrize(("folder", "domain"), [("my repo!", "my-repo"), (".dots.", "dots"), ("ä", "repository")])
def test_a_folder_with_an_unusual_name_gets_a_usual_one(
    registry: Registry, tmp_path: Path, folder: str, domain: str
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "a.py").write_text("x = 1\n")
    assert run(registry, tmp_path / folder).domain == domain


def test_a_bad_domain_name_is_refused_before_the_work(registry: Registry, repo: Path) -> None:
    with pytest.raises(UserError, match="expected a domain name"):
        run(registry, repo, domain="../evil")
    assert not registry.folder.exists()
