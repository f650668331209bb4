"""Encoding around a change gives the ids of encoding the whole text, with tokenizers of several families."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import spd_lsp
from spd_lsp.completion.tokenizer import ModelTokenizer, byte_level_piece
from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
from tests.conftest import STARTER

SOURCES = [path.read_text(encoding="utf-8") for path in sorted(Path(spd_lsp.__file__).parent.glob("*.py"))]
GPT4 = r"(?i:'s|'t|'ve|'m)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BITS = (
    "\n",
    "\n\n",
    "    ",
    " ",
    "\t",
    "=",
    "==",
    "a",
    "ab",
    "é",
    "😀",
    "(",
    '"""',
    "#",
    "\r\n",
    "x" * 30,
    "  \n",
    "\x0c",
)


class Learned:
    """A byte-level tokenizer learned from this package's code."""

    def __init__(self, split: pre_tokenizers.PreTokenizer) -> None:
        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = split
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=2_000, show_progress=False, initial_alphabet=alphabet)
        self.tokenizer.train_from_iterator(SOURCES, trainer)
        names = map(self.tokenizer.id_to_token, range(self.tokenizer.get_vocab_size()))
        self.pieces = [byte_level_piece(name) for name in names]

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text).ids)


class Shouting(ModelTokenizer):
    """A tokenizer that changes what it reads, so that ids do not spell the text."""

    def encode(self, text: str) -> list[int]:
        return super().encode(" " + text)


def by_rule(pattern: str) -> pre_tokenizers.PreTokenizer:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain])


@cache
def incremental_tokenizer(name: str) -> IncrementalTokenizer:
    if name == "starter":
        return IncrementalTokenizer(ModelTokenizer(STARTER))
    if name == "shouting":
        return IncrementalTokenizer(Shouting(STARTER))
    if name == "gpt-2":
        return IncrementalTokenizer(Learned(pre_tokenizers.ByteLevel(add_prefix_space=False)))
    return IncrementalTokenizer(Learned(by_rule(GPT4 if name == "gpt-4" else r"\n")))


FAMILIES = ("starter", "gpt-2", "gpt-4", "lines", "shouting")


def changed(text: str, chance: random.Random) -> str:
    """The text after an edit as people make them: a few letters, a line gone, a stretch pasted."""
    start = chance.randrange(len(text) + 1)
    end = min(len(text), start + chance.choice((0, 0, 1, 5, 40, 400)))
    if chance.random() < 0.3:
        start = text.rfind("\n", 0, start) + 1
        end = text.find("\n", start) + 1 or len(text)
    new = "".join(chance.choices(BITS, k=chance.choice((0, 1, 2, 5))))
    if chance.random() < 0.1:
        other = chance.choice(SOURCES)
        at = chance.randrange(len(other))
        new += other[at : at + chance.choice((5, 100, 1_000))]
    return text[:start] + new + text[end:]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), noise=st.booleans())
@pytest.mark.slow
def test_any_edits_give_the_ids_of_the_whole_text(family: str, seed: int, noise: bool) -> None:
    chance, encoder = random.Random(seed), incremental_tokenizer(family)
    text = "".join(chance.choices(BITS, k=chance.choice((0, 3, 30, 300)))) if noise else chance.choice(SOURCES)
    encoded = encoder.encode(text)
    for _ in range(6):
        text = changed(text, chance)
        encoded = encoder.update(encoded, text)
        assert encoded.data == text.encode()
        assert encoded.ids.tolist() == encoder.tokenizer.encode(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_read_gradually_has_the_ids_of_the_whole(family: str) -> None:
    encoder, text = incremental_tokenizer(family), "\n".join(SOURCES)
    pauses, reading = 0, encoder.encode_in_steps(text)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            encoded = end.value
            break
        pauses += 1
    assert pauses == len(text) // 16_000
    assert encoded.ids.tolist() == encoder.tokenizer.encode(text)


def test_an_edit_gives_the_tokenizer_little_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, text = incremental_tokenizer("starter"), "\n".join(SOURCES)
    encoded, read = encoder.encode(text), []
    real = encoder.tokenizer.encode
    monkeypatch.setattr(encoder.tokenizer, "encode", lambda part: (read.append(len(part)), real(part))[1])
    middle = text.index("\n", len(text) // 2)
    encoder.update(encoded, text[:middle] + "\n    changed = here" + text[middle:])
    assert len(read) == 1
    assert read[0] < 500
