"""Every distinct text is tokenized once, and every file is accounted for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ngram_builders.sources.discovery import survey
from ngram_builders.token_cache import TokenCache
from ngram_builders.tokenized_files import TokenizedFiles, count_languages, text_digest, tokenize_files
from tests.planted import lines

CODE = "import os\n"


def tokenize(root: Path, cache: TokenCache, encoded: list[str]) -> TokenizedFiles:
    def encode(texts: Sequence[str]) -> list[list[int]]:
        encoded.extend(texts)
        return [list(text.encode()) for text in texts]

    return tokenize_files(survey(root).files, cache, encode, time.time_ns(), lambda *stage: None)


def test_copies_are_tokenized_once_and_the_first_path_decides_the_language(tmp_path: Path) -> None:
    for name, text in {"a.go": CODE, "b.py": CODE, "c.py": "x = 1\n"}.items():
        (tmp_path / name).write_text(text)
    encoded: list[str] = []
    with TokenCache(None, "f") as cache:
        result = tokenize(tmp_path, cache, encoded)
        assert cache.token_counts() == {text_digest(text.encode()): len(text) for text in (CODE, "x = 1\n")}
    assert sorted(encoded) == [CODE, "x = 1\n"]
    assert [Path(state.file.path).name for state in result.files] == ["a.go", "b.py", "c.py"]
    assert result.encoded == len(CODE) + len("x = 1\n")
    assert count_languages(result.files) == {"go": 1, "python": 1}


def test_other_files_are_skipped_and_masked_lines_of_copies_count_once(tmp_path: Path) -> None:
    secret, _ = lines()["GitHub"]
    for name, text in {
        "a.py": f"{secret}\n",
        "b.py": f"{secret}\n",
        "c.py": "# do not edit\n",
        "d.py": "x\0",
    }.items():
        (tmp_path / name).write_text(text)
    encoded: list[str] = []
    with TokenCache(None, "f") as cache:
        result = tokenize(tmp_path, cache, encoded)
        assert result.skipped == {"generated": 1, "binary": 1, "unreadable": 0}
        assert result.masked == 1
        assert secret not in encoded[0]
        again = tokenize(tmp_path, cache, encoded)
    assert (again.skipped, again.masked, again.encoded) == (result.skipped, 1, 0)
    assert len(encoded) == 1
