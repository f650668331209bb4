"""Which corpus files are learnt from and which are held out: a corpus folder goes in, lists of paths come out.

A run on a CPU sees a fraction of the corpus, so every package gives about the same share. It reads no texts.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HELD_OUT = 3  # of 256: about one file in a hundred


@dataclass(frozen=True, slots=True)
class Selection:
    """Files to learn from, in a shuffled order, and files that are only ever measured on."""

    learnt: list[Path]
    held_out: list[Path]


def select(corpus: Path, budget: int, seed: int) -> Selection:
    """Choose files of about budget bytes in all, evenly over the packages. The same seed gives the same files."""
    rng = random.Random(seed)
    packages = sorted(path for path in corpus.iterdir() if path.is_dir())
    files = {package: sorted(package.rglob("*.py")) for package in packages}
    held_out = [path for paths in files.values() for path in paths if is_held_out(path, corpus)]
    learnable = [[path for path in paths if not is_held_out(path, corpus)] for paths in files.values()]
    cap = even_share([sum(path.stat().st_size for path in paths) for paths in learnable], budget)
    learnt = [path for paths in learnable for path in take(paths, cap, rng)]
    rng.shuffle(learnt)
    rng.shuffle(held_out)
    return Selection(learnt, held_out)


def is_held_out(path: Path, corpus: Path) -> bool:
    """Whether a file is held out; its name alone decides, so that it stays out of every run."""
    name = path.relative_to(corpus).as_posix()
    return hashlib.sha256(name.encode()).digest()[0] < HELD_OUT


def even_share(sizes: Sequence[int], budget: int) -> int:
    """The cap that makes sizes add up to budget. Example: 1, 5, 9 and 11 with budget 18 give 6: 1 + 5 + 6 + 6."""
    rest = budget
    ordered = sorted(sizes)
    for left, size in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if size * left >= rest:
            return rest // left
        rest -= size
    return max(sizes, default=0)


def take(paths: Sequence[Path], cap: int, rng: random.Random) -> list[Path]:
    """Files in a random order until the cap in bytes is reached."""
    taken: list[Path] = []
    total = 0
    for path in rng.sample(paths, len(paths)):
        if total >= cap:
            break
        taken.append(path)
        total += path.stat().st_size
    return taken
