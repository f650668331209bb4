"""Query a table while its file is truncated. Run in a separate process: PATH.

Says "asking" when its threads ask, waits for a line, asks each of them on for a while and says "survived".
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np

from ngram_builders.errors import UserError
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table

MORE = 300  # queries of each thread after the truncation


def main(path: str) -> None:
    """Ask, in threads as a server does."""
    table = Table.open(Path(path))
    cut = threading.Event()

    def find_places(contexts: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, None]:
        assert table.texts is not None
        history = [*range(20), *contexts[0].tolist()]
        return np.array([place.length for place in table.texts.find(history, 16, 8)], dtype=float), None

    asked = {
        "query": open_query([[table.columns]], [1.0]).probabilities,
        "texts": find_places,
    }
    begun = {name: threading.Event() for name in asked}
    ended = []

    def ask(name: str) -> None:
        random, left = np.random.default_rng(1), MORE
        while left:
            p, _ = asked[name](random.integers(0, 5000, size=(4, 1)), np.arange(0, 5000, 50))
            assert np.isfinite(p).all()
            begun[name].set()
            left -= cut.is_set()
        ended.append(name)

    threads = [threading.Thread(target=ask, args=(name,)) for name in asked]
    for thread in threads:
        thread.start()
    for one in begun.values():
        one.wait()
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    sys.stdin.readline()
    cut.set()
    for thread in threads:
        thread.join()
    try:
        table.verify()
    except UserError as error:
        sys.stdout.write(f"{error}\n")
    sys.stdout.write("survived\n" if len(ended) == len(asked) else "an error\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
