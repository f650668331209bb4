"""The vocabulary of a model, and that of a tokenizer.json; `llama/gguf_file.py` reads those of GGUF files."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from ngram_builders.errors import UserError

_END_OF_TEXT = (
    *("<|endoftext|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>", "<|end_of_text|>", "<|im_end|>"),
    "<[end▁of▁sentence]>",
)
_MARK = re.compile(r"▁?(?:<.+>|\[.+\])", re.DOTALL)  # other added tokens are text, such as runs of blanks
_TAG = re.compile(
    r"</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|strong|em|[bius]|sub|sup|code)>"
)  # of HTML, which is text, too: Gemma has a token for each
# What code is made of, and what vocabularies cut in different ways.
_CUTTING_PROBE = '''def naïve_sum(items: list[int], *, start=0x1F) -> "int":
\t"""It's the sum; we'll add 1234567890 to 3.14159e-10, don't WE'RE…"""
    total = start  # größer als €100, 中文字符, 日本語 한국어 русский язык 🙂👍🏽

    for i,x in enumerate(items):\r\n        if x>=10 and not(x%2==0):   total+=x**2;
            print(f"{i:>5}\\t{x!r}", file=sys.stderr)\n\n\n\n    return total
<div class="a-b">&nbsp;</div>  \n  x = {'a':[1,22,333,4444]}  // ../path_to/file.cpp::std::vector<int>&&
SELECT * FROM t WHERE a<>'b' AND c LIKE '%_d';\n\n\t\t}\n});\n#include <stdio.h>\n!?!?...---===>>><<<@@@###$$$
'''


class Vocabulary(ABC):
    """Text to ids, and the bytes of each id."""

    pieces: list[bytes]  # the bytes of each id; marks have none
    marks: Mapping[str, int]  # the tokens that mark something and are not text, by name
    opening: list[int]  # ids that the model was trained to read before every text, such as a begin-of-text token
    config: Mapping[str, Any]  # the values of a config.json, and the `name` of the model
    fingerprint: str  # identifies a vocabulary and how it cuts text, in whatever format it is stored

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text, without marks: what looks like one in source code is characters."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The ids of many texts, cut on all cores."""

    @cached_property
    def end_of_text(self) -> int:
        """The id that ends a document: that of a name which means it, or the one of the configuration."""
        if name := next((name for name in _END_OF_TEXT if name in self.marks), None):
            return self.marks[name]
        configured = self.config.get("eos_token_id")
        first = next(iter(configured), None) if isinstance(configured, list) else configured
        if isinstance(first, int) and first in self.marks.values():
            return first
        raise UserError(
            f"expected a tokenizer with an end-of-text token (one of {', '.join(_END_OF_TEXT)}), found none; "
            "name another model with --model"
        )


def fingerprint_of(names: list[tuple[str, int]], encode: Callable[[str], list[int]]) -> str:
    """Return 16 hex digits that identify the names of all tokens, ordered by id, and how text is cut."""
    if not is_byte_level([name for name, _ in names]):  # runs of blanks have either name
        names = [(name.replace(" ", "▁"), i) for name, i in names]
    content = json.dumps([names, encode(_CUTTING_PROBE)]).encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def is_byte_level(names: Sequence[str]) -> bool:
    """Whether words begin with the letter that stands for a blank's byte; others may have that letter, too."""
    first = [name[:1] for name in names]
    return first.count("Ġ") > first.count("▁")


class JsonVocabulary(Vocabulary):
    """The vocabulary in a `tokenizer.json`, as Hugging Face folders have it."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        try:
            self.tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for every fault of the file
            raise UserError(f"{path} is not a readable tokenizer ({error}); restore it and try again") from error
        # Source code that mentions <|endoftext|> means the characters, not the end of the text.
        self.tokenizer.encode_special_tokens = True
        self.marks = _separate_marks(self.tokenizer)
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        names = sorted(vocabulary.items(), key=lambda item: item[1])
        self.fingerprint = fingerprint_of(names, self.encode)
        self.pieces = self._pieces({i: name for name, i in names})
        self.opening = list(self.tokenizer.encode("", add_special_tokens=True).ids)
        self.config = _read_config(folder)

    def encode(self, text: str) -> list[int]:
        """As in `Vocabulary`."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """As in `Vocabulary`."""
        for encoding in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
            yield list(encoding.ids)

    def _pieces(self, named: Mapping[int, str]) -> list[bytes]:
        """The bytes of each id; vocabularies may have holes."""
        names = [named.get(i, "") for i in range(max(named, default=-1) + 1)]
        read = byte_level_piece if is_byte_level(names) else _sentencepiece_piece
        marks = set(self.marks.values())
        pieces = [b"" if i in marks else read(name) for i, name in enumerate(names)]
        for i in self.tokenizer.get_added_tokens_decoder().keys() - marks:
            pieces[i] = _sentencepiece_piece(names[i]) if read is _sentencepiece_piece else names[i].encode()
        return pieces


def _read_config(folder: Path) -> dict[str, Any]:
    """Return a model's config.json and `name`; the name alone where it cannot be read, as opening reports that.

    The name is the folder's, or the repository's in Hugging Face's store.
    """
    name = folder.parents[1].name if folder.parent.name == "snapshots" else folder.name
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        config = {}
    return {"name": name, **(config if isinstance(config, dict) else {})}


def _separate_marks(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the tokens that mark something and are not text, by name.

    Not all are declared special. Added tokens that are text: runs of blanks (GPT-NeoX), rare letters (DeepSeek),
    tags of HTML (Gemma).
    """
    marks = {
        i: token
        for i, token in tokenizer.get_added_tokens_decoder().items()
        if token.special or (_MARK.fullmatch(token.content) and not _TAG.fullmatch(token.content))
    }
    if undeclared := [token.content for token in marks.values() if not token.special]:
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in undeclared])
    return {token.content: i for i, token in marks.items()}


# The letters by which byte-level vocabularies write bytes: printable ones stand for themselves.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_LEVEL = {**{chr(b): b for b in _PRINTABLE}, **{chr(256 + i): b for i, b in enumerate(_OTHERS)}}


def byte_level_piece(name: str) -> bytes:
    """Return the bytes of a byte-level token. Example: `Ġif` -> b" if"."""
    try:
        return name.encode() if name.isascii() else bytes(map(_BYTE_LEVEL.__getitem__, name))
    except KeyError:  # a letter that stands for no byte
        return name.encode()


def _sentencepiece_piece(name: str) -> bytes:
    """Return the bytes of a SentencePiece token. Example: `▁if` -> b" if", `<0x0A>` -> b"\\n"."""
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)])
    return name.replace("▁", " ").encode()
