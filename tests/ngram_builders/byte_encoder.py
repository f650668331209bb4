"""An encoder whose ids are the bytes of the text; another process can create it by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

END = 256
VOCABULARY = 257

Encode = Callable[[Sequence[str]], list[list[int]]]


def encode(texts: Sequence[str]) -> list[list[int]]:
    return [list(text.encode()) for text in texts]


def make_encode() -> Encode:
    return encode


def make_recording(notes: Path) -> Encode:
    """Return an encoder that appends a line to a file for every text."""

    def recording(texts: Sequence[str]) -> list[list[int]]:
        with notes.open("a") as file:
            file.writelines(f"{text!r}\n" for text in texts)
        return encode(texts)

    return recording


def make_crashing(notes: Path, word: str) -> Encode:
    """Return an encoder that kills its process at a text with this word."""

    def crashing(texts: Sequence[str]) -> list[list[int]]:
        if any(word in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return make_recording(notes)(texts)

    return crashing


def make_failing() -> Encode:
    raise ValueError("no tokenizer here")
