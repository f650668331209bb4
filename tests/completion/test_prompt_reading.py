"""Whoever types makes the model read what was typed and hardly anything that it has read, in every format."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.fill_formats import FILL_FORMATS
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.no_model import NoModel
from spd_lsp.ngrams.serving_tables import OpenFiles, ServingTables
from spd_lsp.settings import NO_FILL_FORMAT, Settings
from tests.conftest import STARTER_FILES

MEAN, P95 = 5, 5  # tokens that a key may cost
FORMATS = {one.name: one for one in FILL_FORMATS}
KEY = re.compile(r"\n[ \t]*|.", re.DOTALL)  # Enter brings the indentation of the next line
CLOSERS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}


def after_each_key(text: str) -> Iterator[tuple[str, str]]:
    """What stands left and right of the cursor after each key in an editor that closes brackets and quotes."""
    left, right = "", ""
    for key in KEY.findall(text):
        is_apostrophe = key in "\"'" and left[-1:].isalnum()
        left += key
        if key[0] == "\n":
            right = ""
        elif key == right[:1]:
            right = right[1:]
        elif key in CLOSERS and not is_apostrophe:
            right = CLOSERS[key] + right
        yield left, right


def tokens_read(folder: Path, fill_format: str) -> list[int]:
    """What is read at each key of twenty lines typed into the middle of a module; nothing is computed."""
    tokens = tokenizer(folder, fill_format)
    tables = ServingTables(None, tokens.fingerprint, OpenFiles(tokens))
    settings = Settings(drafts=1, max_tokens=1, context_tokens=1024)
    completer = Completer(NoModel(tokens.vocab_size, tokens.end_of_text), tokens, tables, settings)
    path, found = folder / "wrap.py", Path(textwrap.__file__).read_text(encoding="utf-8").splitlines(keepends=True)
    middle = len(found) // 2
    above, typed, below = map("".join, (found[:middle], found[middle : middle + 20], found[middle + 20 :]))
    counts = []
    for left, right in after_each_key(typed.rstrip("\n")):
        source = f"{above}{left}{right}\n{below}"
        result = completer.complete(source, len(above + left), "python", path, name=path.as_uri())
        counts += [result.read_tokens] * bool(result.prompt_tokens)
    return counts


def tokenizer(folder: Path, fill_format: str) -> ModelTokenizer:
    """The starter's vocabulary with the special tokens of a format, chosen by the model's type."""
    chosen = FORMATS.get(fill_format)
    marks = [] if chosen is None else [*chosen.marks, *chosen.family_tokens]
    extended = Tokenizer.from_file(str(STARTER_FILES / "tokenizer.json"))
    extended.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    extended.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")
    return ModelTokenizer(folder, fill_format)


@pytest.mark.slow
@pytest.mark.parametrize("fill_format", [*FORMATS, NO_FILL_FORMAT])
def test_a_key_makes_a_model_read_little(fill_format: str, tmp_path: Path):
    first, *read = tokens_read(tmp_path, fill_format)
    assert len(read) > 150 and first > 400
    assert np.mean(read) <= MEAN and np.percentile(read, 95) <= P95, np.mean(read)
