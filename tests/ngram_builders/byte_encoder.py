"""An encoder whose ids are the bytes of the text, as a process of its own can make it by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

END = 256
VOCABULARY = 257

Encode = Callable[[Sequence[str]], list[list[int]]]


def encode(texts: Sequence[str]) -> list[list[int]]:
    return [list(text.encode()) for text in texts]


def make_encode() -> Encode:
    return encode


def make_noting(notes: Path) -> Encode:
    """Leaves a note of every text."""

    def noting(texts: Sequence[str]) -> list[list[int]]:
        with notes.open("a") as file:
            file.writelines(f"{text!r}\n" for text in texts)
        return encode(texts)

    return noting


def make_dying(notes: Path, word: str) -> Encode:
    """Ends its process without a word at a text with this word."""

    def dying(texts: Sequence[str]) -> list[list[int]]:
        if any(word in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return make_noting(notes)(texts)

    return dying


def make_stuck(notes: Path, process: Path, word: str) -> Encode:
    """Says which process it is at a text with this word, and goes no further."""

    def stuck(texts: Sequence[str]) -> list[list[int]]:
        if any(word in text for text in texts):
            process.write_text(str(os.getpid()))
            time.sleep(300)
        return make_noting(notes)(texts)

    return stuck


def make_failing() -> Encode:
    raise ValueError("no tokenizer here")
