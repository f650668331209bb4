"""What a `tokenizer.json` may cost: memory for its ids, and time to cut a text by its regular expressions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from ngram_builders.errors import UserError

_MAX_ID = 1 << 22  # lists are as long as the largest; the largest vocabularies have some 300,000
_RUN = 100  # letters: an expression that tries every way to divide them fails at thirty
# Runs of what code repeats, each before something else, and before what an expression may look for first.
_PROBES = [letter * _RUN + end for letter in "a0 \n\t_-=#/*().,\"'é" for end in ("!", "\n", "!xyzb0;:)\n")]


def count_ids(tokenizer: Tokenizer, path: Path) -> int:
    """One more than the largest id, as some vocabularies have holes.

    `UserError` for a tokenizer that would take much memory, or too long for usual text.
    """
    if (largest := max(tokenizer.get_vocab().values(), default=0)) > _MAX_ID:
        raise UserError(
            f"{path} has a token with the id {largest:,}, and ids up to {_MAX_ID:,} are read; restore the file"
        )
    with refusing_slow_expressions():
        for probe in _PROBES:
            tokenizer.encode(probe, add_special_tokens=False)
    return largest + 1


@contextmanager
def refusing_slow_expressions() -> Iterator[None]:
    """Turn what the tokenizers library raises when it gives up on a regular expression into a `UserError`.

    It is no `Exception`, and would end a thread.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(
            f"the model's tokenizer.json cannot cut this text into tokens ({error}): expected regular expressions "
            "that need a few steps a letter; restore the file, or choose another model"
        ) from None
