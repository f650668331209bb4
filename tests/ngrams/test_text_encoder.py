"""Encoding piece by piece gives the ids of the whole text, with tokenizers of several families."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import spd_lsp
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.vocabulary import byte_level_piece
from spd_lsp.ngrams.text_encoder import TextEncoder
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

    end_of_text = 0

    def __init__(self, split: pre_tokenizers.PreTokenizer) -> None:
        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = split
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=2_000, show_progress=False, initial_alphabet=alphabet)
        self.tokenizer.train_from_iterator(SOURCES, trainer)
        self.vocab_size = self.tokenizer.get_vocab_size()
        self.pieces = [byte_level_piece(self.tokenizer.id_to_token(i)) for i in range(self.vocab_size)]

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text).ids)


class BlankFirst(ModelTokenizer):
    """Puts a blank before every text, as SentencePiece vocabularies do."""

    def __init__(self) -> None:
        super().__init__(STARTER)
        self.encode = lambda text: self.vocabulary.encode(" " + text)


def by_rule(pattern: str) -> pre_tokenizers.PreTokenizer:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain])


@cache
def encoder(name: str) -> TextEncoder:
    if name == "starter":
        return TextEncoder(ModelTokenizer(STARTER))
    if name == "blank first":
        return TextEncoder(BlankFirst())
    if name == "gpt-2":
        return TextEncoder(Learned(pre_tokenizers.ByteLevel(add_prefix_space=False)))
    # Without a rule, words go on across line ends.
    return TextEncoder(Learned(by_rule(GPT4)) if name == "gpt-4" else Learned(by_rule("@@")))


FAMILIES = ("starter", "gpt-2", "gpt-4", "no rule", "blank first")


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), noise=st.booleans())
@pytest.mark.slow
def test_any_edits_give_the_ids_of_the_whole_text(family: str, seed: int, noise: bool) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choices(BITS, k=chance.choice((0, 3, 30, 300)))) if noise else chance.choice(SOURCES)
    encoder(family).encode(text)
    for _ in range(6):
        start = chance.randrange(len(text) + 1)
        new = "".join(chance.choices(BITS, k=chance.choice((0, 1, 2, 5))))
        text = text[:start] + new + text[start + chance.choice((0, 0, 1, 5, 40, 400)) :]
        encoded = encoder(family).encode(text)
        assert encoded.tolist() == encoder(family).tokenizer.encode(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_is_cut_where_that_changes_no_ids_and_else_is_one_piece(family: str) -> None:
    assert (len(list(encoder(family).pieces("a = b\nc = d\n"))) > 1) is (family in FAMILIES[:3])


def test_an_edit_gives_the_tokenizer_little_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, text = ModelTokenizer(STARTER), "\n".join(SOURCES)
    read: list[int] = []
    real = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda part: (read.append(len(part)), real(part))[1])
    one = TextEncoder(tokenizer)
    one.encode(text)
    read.clear()
    middle = text.index("\n", len(text) // 2)
    one.encode(text[:middle] + "\n    changed = here" + text[middle:])
    assert 0 < len(read) <= 2 and sum(read) < len(text) / 10


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_around_a_line_are_whole_tokens(family: str) -> None:
    one, text = encoder(family), "def f(x):\n    return x\n\n\ny = f(1)\n"
    start, end = text.index("    return"), text.index("\n\n\n") + 1
    before, after = one.around(text, start, end)
    spelled = [b"".join(one.tokenizer.pieces[i] for i in ids) for ids in (before, after)]
    assert text[:start].startswith(spelled[0].decode().strip(" "))
    assert text[end:].endswith(spelled[1].decode().lstrip(" "))
