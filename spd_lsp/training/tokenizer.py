"""The starter's tokenizer: byte-level BPE whose merges stop where code has its joints.

Texts go in, a `tokenizers` tokenizer and the two files transformers reads come out. Any text survives encode and
decode unchanged. It knows nothing of models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 16_384
JOINING, PHRASE = 4, 8  # one token in so many joins words: at most so many of them
END, SUFFIX, PREFIX, MIDDLE, PAD = "<|endoftext|>", "<|suffix|>", "<|prefix|>", "<|middle|>", "<|pad|>"
SPECIAL = (END, SUFFIX, PREFIX, MIDDLE, PAD)  # their ids are their places: END is 0

# A newline takes the blanks around it along: "\n        " can be one token; none has text before a newline.
_ENDS = r"(?:[ \t]*\r?\n)+[ \t]*"  # ends of lines and the indentation that follows
_WORD = r" ?[\p{L}_][\p{L}_\p{N}]*"  # identifiers, whole
_NUMBER = r"\p{N}{1,3}"
_SIGNS = r" ?[^\s\p{L}\p{N}_]+"  # runs of punctuation
_JOINTS = {
    "words": "|".join((_ENDS, _WORD, _NUMBER, _SIGNS, r"\s+")),
    # " = self." can be one token: any words and punctuation of a line that a single blank holds apart.
    "lines": "|".join((_ENDS, f"(?:{_WORD}|{_SIGNS})+", _NUMBER, r"\s+")),
}
MERGES = tuple(_JOINTS)


def _blank_tokenizer(merges: str = MERGES[0]) -> Tokenizer:
    """A tokenizer that knows the joints and no merges yet; `merges` names what they stay inside of."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_JOINTS[merges]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def learn_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY, merges: str = MERGES[0]) -> Tokenizer:
    """Learn the merges from texts. The same texts in the same order give the same tokenizer.

    `words`: merges stay inside of words and runs of punctuation. `lines`: the last quarter of the vocabulary joins
    whole ones across single blanks, but no number and no end of a line.
    """
    if merges == "words":
        return learn_word_merges(texts, vocabulary)
    kept = list(texts)  # read twice
    joining = vocabulary // JOINING
    return _join_words(learn_word_merges(kept, vocabulary - joining), kept, joining)


def learn_word_merges(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A tokenizer whose merges stay inside of words and runs of punctuation."""
    tokenizer = _blank_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=48,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _join_words(words: Tokenizer, texts: Iterable[str], joining: int) -> Tokenizer:
    """So many more tokens: a second round of byte-pair encoding, whose letters are the tokens of the first."""
    names = {_letter(place): name for name, place in words.get_vocab().items()}
    second = Tokenizer(models.BPE())
    second.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(names) + joining,
        initial_alphabet=sorted(names),
        max_token_length=PHRASE,
        show_progress=False,
    )
    whole = whole_word_ids(words)
    second.train_from_iterator((_spelt(text, words, whole) for text in texts), trainer)
    rules = json.loads(words.to_str())
    vocabulary: dict[str, int] = rules["model"]["vocab"]
    for pair in json.loads(second.to_str())["model"]["merges"]:
        left, right = ("".join(names[sign] for sign in part) for part in pair)
        rules["model"]["merges"].append([left, right])
        vocabulary.setdefault(left + right, len(vocabulary))
    rules["pre_tokenizer"] = json.loads(_blank_tokenizer("lines").to_str())["pre_tokenizer"]
    return Tokenizer.from_str(json.dumps(rules))


def _letter(place: int) -> str:
    """What stands for a token in the second round: a character of a plane that no text uses."""
    return chr(0xF0000 + place)


def whole_word_ids(words: Tokenizer) -> frozenset[int]:
    """The tokens that are a word or a run of punctuation, with or without a blank before it."""
    texts = {place: words.decode([place]).removeprefix(" ") for place in words.get_vocab().values()}
    return frozenset(
        place
        for place, text in texts.items()
        if text and "\ufffd" not in text and not text[0].isnumeric() and not any(map(str.isspace, text))
    )


def _spelt(text: str, words: Tokenizer, whole: frozenset[int]) -> str:
    """A text in the letters of the second round; a blank stands where no merge may be.

    Example: `foo = self.x1[0]` of the tokens `foo`, ` =`, ` self`, `.`, `x`, `1`, `[`, `0`, `]` is `foo = self.`,
    a blank for `x1`, which is no single token, `[`, a blank for the number, `]`.
    """
    encoding = words.encode(text, add_special_tokens=False)
    parts = encoding.word_ids
    alone = [a != b != c for a, b, c in zip([None, *parts], parts, [*parts[1:], None], strict=False)]
    return "".join(
        _letter(place) if one and place in whole else " " for place, one in zip(encoding.ids, alone, strict=True)
    )


def save_tokenizer(tokenizer: Tokenizer, folder: Path, length: int) -> None:
    """Write tokenizer.json and the configuration transformers reads beside it; length is the model's context."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": [SUFFIX, PREFIX, MIDDLE],
        "clean_up_tokenization_spaces": False,
        "model_max_length": length,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")


def open_tokenizer(folder: Path) -> Tokenizer:
    """Open a saved tokenizer so that a special token's text inside source code stays ordinary text."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    return tokenizer


def merges_kind(tokenizer: Tokenizer) -> str:
    """What the merges of a tokenizer of this recipe stay inside of."""
    found = json.loads(tokenizer.to_str())["pre_tokenizer"]
    return next(name for name in MERGES if json.loads(_blank_tokenizer(name).to_str())["pre_tokenizer"] == found)
