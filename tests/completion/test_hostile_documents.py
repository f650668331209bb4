"""Whatever an open document holds, what it costs grows as it does, and between requests stays in slices."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.loading import load_completer
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.ngrams.incremental_tokenizer import EncodedText, IncrementalTokenizer
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from spd_lsp.settings import Settings
from tests.conftest import STARTER
from tests.ngram_builders.sources.test_linear import LINEAR, growth
from tests.planted import lines

HALF = 500_000  # characters
UNITS = {
    "secrets": "\n".join(line for line, _ in lines().values()) + "\n",
    "one line": "a",
    "words on one line": "word_of_it ",
    "brackets": "[",
    "lines of brackets": "[\n",
    "line ends": "\n",
    "open strings": "'''\n",
    "calls": "f(g(h(\n",
    "imports": "from ..a.b import c, d\n",
}


@pytest.fixture
def completer(tmp_path: Path) -> Iterator[Completer]:
    yield load_completer(Settings(data_dir=str(tmp_path)), lambda text: None)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_a_document_is_learnt_and_completed_in_linear_time(completer: Completer, unit: str):
    numbers = itertools.count()

    def work(text: str) -> None:
        name = f"file:///{next(numbers)}.py"
        document = OpenDocument(name, Path(name[7:]), "python", text)
        completer.update_documents({name: DocumentChange(document, False)})
        while completer.run_idle_work(0.005):
            pass
        above = text[: text.find("\n", len(text) // 2) + 1]
        edited = f"{above}x = ab\n{text[len(above) :]}"
        completer.complete(edited, len(above) + 6, "python", document.path, name=name, explicit=True)
        completer.update_documents({name: DocumentChange(None, False)})

    assert growth(work, UNITS[unit], HALF) < LINEAR


def finish(steps: Generator[None, None, EncodedText]) -> EncodedText:
    """What is returned at the end of the steps."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\n", "\t\n", "[\n", "ab "])
def test_a_text_without_places_to_begin_again_is_encoded_few_times_over(unit: str):
    """As nothing but line ends: each part was encoded with all before it."""
    tokens, encoded = ModelTokenizer(STARTER), 0
    encode = tokens.encode

    def count(text: str) -> list[int]:
        nonlocal encoded
        encoded += len(text)
        return encode(text)

    tokens.encode = count  # type: ignore[method-assign]
    text = (unit * HALF)[:HALF]
    read = finish(IncrementalTokenizer(tokens).encode_in_steps(text))
    assert read.data == text.encode()
    assert encoded < 7 * len(text)
