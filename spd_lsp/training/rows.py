"""Turn the corpus into rows of token ids: an array [rows, length] on disk that can be memory-mapped.

A run on a CPU learns from a fraction of the corpus, so every language contributes its share and, within it,
every package about the same. A quarter of a package's files are one stream of plain text, each below its path.
The others have gaps: such a row holds whole documents, and before them neighbours, files of the same package. So
about half of all tokens are plain.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from ngram_builders.arrays import U16
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES
from spd_lsp.training.documents import file_document, strip_copyright, with_gaps

_LANGUAGE_SHARES = dict.fromkeys(CORPUS_LANGUAGES, 0.05) | {"python": 0.5, "typescript": 0.25}
_PLAIN_SHARE = 0.25  # of the files
_NEIGHBOUR_SHARES = (0.0, 0.25, 0.5)  # of a row with gaps; one of them, at random


def select_files(corpus: Path, budget: int, seed: int) -> dict[str, list[list[Path]]]:
    """Select files of about `budget` bytes, by language and package. The same seed gives the same files."""
    languages = [language for language in CORPUS_LANGUAGES if (corpus / language).is_dir()]
    total = sum(_LANGUAGE_SHARES[language] for language in languages)
    selected: dict[str, list[list[Path]]] = {}
    for language in languages:
        rng = random.Random(seed)
        folders = sorted(path for path in (corpus / language).iterdir() if path.is_dir())
        packages = [sorted(path for path in folder.rglob("*") if path.is_file()) for folder in folders]
        sizes = [sum(path.stat().st_size for path in paths) for paths in packages]
        cap = _even_share(sizes, int(budget * _LANGUAGE_SHARES[language] / total))
        selected[language] = []
        for paths in packages:
            drawn = rng.sample(paths, len(paths))
            before = accumulate((path.stat().st_size for path in drawn), initial=0)  # bytes before each file
            selected[language].append(
                sorted(path for path, size in zip(drawn, before, strict=False) if size < cap)
            )
        rng.shuffle(selected[language])
    return selected


def _even_share(sizes: Sequence[int], budget: int) -> int:
    """Return the cap that makes sizes add up to the budget. Example: 1, 5, 9, 11 and 18 give 6: 1 + 5 + 6 + 6."""
    rest = budget
    ordered = sorted(sizes)
    for left, size in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if size * left >= rest:
            return rest // left
        rest -= size
    return max(sizes, default=0)


def write_rows(
    languages: dict[str, list[list[Path]]], corpus: Path, tokenizer: Tokenizer, length: int, seed: int, path: Path
) -> dict[str, int]:
    """Write the rows of all languages, shuffled, as ids [rows, length]. Return the number of each language's."""
    parts = {}
    for language, packages in languages.items():
        rng = random.Random(seed)
        stream = array("H")
        gaps: list[U16] = []
        for files in packages:
            names = [file.relative_to(corpus / language).as_posix() for file in files]
            texts = [strip_copyright(file.read_text(encoding="utf-8")) for file in files]
            encoded = [file_document(name, text, tokenizer) for name, text in zip(names, texts, strict=True)]
            cut = [place for place in range(len(files)) if rng.random() >= _PLAIN_SHARE]
            for place in sorted({*range(len(files))} - {*cut}):
                stream.extend(encoded[place])
            documents = [(at, document) for at in cut for document in with_gaps(texts[at], tokenizer, length, rng)]
            gaps += (np.array(row, dtype=np.uint16) for row in gap_rows(documents, encoded, length, rng))
        whole = len(stream) // length * length
        plain = np.array(stream[:whole], dtype=np.uint16).reshape(-1, length)
        parts[language] = [*plain, *gaps]
    rows = np.stack([row for part in parts.values() for row in part])
    np.random.default_rng(seed).shuffle(rows)
    temporary = path.with_name(f"new.{path.name}")
    np.save(temporary, rows)
    temporary.replace(path)
    return {language: len(part) for language, part in parts.items()}


def gap_rows(
    documents: Iterable[tuple[int, list[int]]], files: Sequence[list[int]], length: int, rng: random.Random
) -> Iterator[list[int]]:
    """Pack whole documents into rows, neighbours before them; a row that no neighbours fill is the last.

    documents: each with its file's place among `files`, the encoded files of the package.
    """
    waiting = deque(documents)
    while waiting:
        # 1. Pack as many documents as fit beside the neighbours' share.
        room = length - int(length * rng.choice(_NEIGHBOUR_SHARES))
        first, packed = waiting.popleft()
        last = first
        while waiting and len(packed) + len(waiting[0][1]) <= room:
            last, document = waiting.popleft()
            packed = [*packed, *document]

        # 2. Fill the row with the files before `first`, nearest last, or after `last`; the farthest is cut.
        head: list[int] = []
        for file in (*reversed(files[:first]), *files[last + 1 :]):
            head = [*file[: length - len(packed) - len(head)], *head]
        if len(head) + len(packed) < length:
            return
        yield [*head, *packed]
