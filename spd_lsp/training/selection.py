"""Select the corpus files to train on and to hold out.

A run on a CPU uses a fraction of the corpus, so every language contributes its share and, within it, every package
about the same. File contents are not read.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES

HELD_OUT = 3  # of 256: about one file in a hundred
_LANGUAGE_SHARES = dict.fromkeys(CORPUS_LANGUAGES, 0.05) | {"python": 0.5, "typescript": 0.25}


@dataclass(frozen=True, slots=True)
class Selection:
    """Files of one language: for training, by package and sorted by name, and held out."""

    learnt: list[list[Path]]
    held_out: list[Path]


def select_files(corpus: Path, budget: int, seed: int) -> dict[str, Selection]:
    """Select files of about `budget` bytes in total, by language. The same seed gives the same files."""
    languages = [language for language in CORPUS_LANGUAGES if (corpus / language).is_dir()]
    total = sum(_LANGUAGE_SHARES[language] for language in languages)
    return {
        language: select_language_files(corpus / language, int(budget * _LANGUAGE_SHARES[language] / total), seed)
        for language in languages
    }


def select_language_files(folder: Path, budget: int, seed: int) -> Selection:
    """Select files of about `budget` bytes of one language, evenly over its packages."""
    rng = random.Random(seed)
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    packages = [sorted(path for path in package.rglob("*") if path.is_file()) for package in folders]
    held_out = [path for paths in packages for path in paths if is_held_out(path, folder)]
    learnable = [[path for path in paths if not is_held_out(path, folder)] for paths in packages]
    cap = even_share([sum(path.stat().st_size for path in paths) for paths in learnable], budget)
    learnt = [sorted(_sample_files(paths, cap, rng)) for paths in learnable]
    rng.shuffle(learnt)
    random.Random(seed).shuffle(held_out)  # independent of the budget
    return Selection(learnt, held_out)


def is_held_out(path: Path, folder: Path) -> bool:
    """Whether a file of a language's folder is held out; its name alone decides, so it stays out of every run."""
    name = path.relative_to(folder).as_posix()
    return hashlib.sha256(name.encode()).digest()[0] < HELD_OUT


def even_share(sizes: Sequence[int], budget: int) -> int:
    """Return the cap that makes sizes add up to the budget. Example: 1, 5, 9, 11 and 18 give 6: 1 + 5 + 6 + 6."""
    rest = budget
    ordered = sorted(sizes)
    for left, size in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if size * left >= rest:
            return rest // left
        rest -= size
    return max(sizes, default=0)


def _sample_files(paths: Sequence[Path], cap: int, rng: random.Random) -> list[Path]:
    """Sample files until the cap in bytes is reached."""
    taken: list[Path] = []
    total = 0
    for path in rng.sample(paths, len(paths)):
        if total >= cap:
            break
        taken.append(path)
        total += path.stat().st_size
    return taken
