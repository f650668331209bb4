"""What a `tokenizer.json` may cost: memory for its ids, and time to cut a text by its regular expressions."""

from __future__ import annotations

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
    try:
        for probe in _PROBES:
            tokenizer.encode(probe, add_special_tokens=False)
    except BaseException as error:
        raise refusal(error) from None
    return largest + 1


def refusal(error: BaseException) -> BaseException:
    """What to raise instead of an error in cutting a text: a `UserError` where a regular expression was given up.

    The tokenizers library raises what is no `Exception` then, and would end a thread.
    """
    if type(error).__name__ != "PanicException":
        return error
    return UserError(
        f"the model's tokenizer.json cannot tokenize this text ({error}): expected regular expressions "
        "that need a few steps a letter; restore the file, or choose another model"
    )
