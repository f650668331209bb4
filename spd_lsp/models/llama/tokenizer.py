"""The tokenizer in a GGUF file's metadata as a tokenizer.json, checked against llama.cpp's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tokenizers import Tokenizer

from ngram_builders.errors import UserError
from spd_lsp.models.llama.header import GgufHeader
from spd_lsp.models.llama.pre_tokenizers import CUTTING_PROBE, PATTERNS, pre_tokenizer

_PREFIX = "tokenizer.ggml."
_BYTE_LEVEL = "gpt2"  # llama.cpp's name of byte-level vocabularies
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5


def build_tokenizer(header: GgufHeader, tokenize: Callable[[str], list[int]], *, adds_bos: bool) -> Tokenizer:
    """The tokenizer of a file, which cuts texts as `tokenize` does; `UserError` if none is known that does."""
    kind = header.metadata.get(_PREFIX + "model")
    if kind != _BYTE_LEVEL:
        raise UserError(
            f"{header.path.name} has a tokenizer of the kind {kind!r}, and only byte-level ones are read from "
            "GGUF files; name the model's Hugging Face folder or another model"
        )
    expected = tokenize(CUTTING_PROBE)
    rules = _rules(header, adds_bos=adds_bos)
    for whole_words_first in (False, True):
        rules["model"]["ignore_merges"] = whole_words_first
        tokenizer = _parse(rules, header)
        for patterns in PATTERNS.values():
            tokenizer.pre_tokenizer = pre_tokenizer(patterns)
            if tokenizer.encode(CUTTING_PROBE, add_special_tokens=False).ids == expected:
                return tokenizer
    word = header.metadata.get(_PREFIX + "pre", "default")
    raise UserError(
        f"{header.path.name} cuts text in a way that is not known here ({_PREFIX}pre = {word!r}); name the "
        "model's Hugging Face folder or another model"
    )


def _parse(rules: dict[str, Any], header: GgufHeader) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(json.dumps(rules))
    except Exception as error:  # the tokenizers library raises bare Exception for every fault
        raise UserError(f"{header.path} has a damaged vocabulary ({error}); fetch it again") from error
    tokenizer.encode_special_tokens = True  # in code, they are characters
    return tokenizer


def _rules(header: GgufHeader, *, adds_bos: bool) -> dict[str, Any]:
    """A tokenizer.json but for the pre-tokenizer."""
    names, kinds = _vocabulary(header)
    added = [
        _added_token(i, name, kinds[i]) for i, name in enumerate(names) if kinds[i] in (_CONTROL, _USER_DEFINED)
    ]
    vocabulary = {name: i for i, name in enumerate(names) if kinds[i] != _UNUSED}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "post_processor": _opening(names, header.metadata.get(_PREFIX + "bos_token_id"), adds_bos) or byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": list(_merges(header, vocabulary))},
    }


def _vocabulary(header: GgufHeader) -> tuple[list[str], list[int]]:
    """The name and the kind of each token."""
    names = header.metadata.get(_PREFIX + "tokens")
    kinds = header.metadata.get(_PREFIX + "token_type")
    if not isinstance(names, list) or kinds is None or len(kinds) != len(names) or not names:
        raise UserError(f"{header.path} has no vocabulary; choose a file that llama.cpp's converter wrote")
    return names, [int(kind) for kind in kinds]


def _merges(header: GgufHeader, vocabulary: dict[str, int]) -> Iterator[tuple[str, str]]:
    """The pairs that are joined, first ones first."""
    for pair in header.metadata.get(_PREFIX + "merges", []):
        left, _, right = pair.partition(" ")
        if left in vocabulary and right in vocabulary and left + right in vocabulary:
            yield left, right


def _added_token(number: int, name: str, kind: int) -> dict[str, Any]:
    """A token that no merging makes."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": name, **flags, "special": kind == _CONTROL}


def _opening(names: list[str], bos: Any, adds_bos: bool) -> dict[str, Any] | None:
    """What puts the begin-of-text token before every text, if the model was trained so."""
    if not adds_bos or not isinstance(bos, int) or not 0 <= bos < len(names):
        return None
    begin = {"SpecialToken": {"id": names[bos], "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    known = {names[bos]: {"id": names[bos], "ids": [bos], "tokens": [names[bos]]}}
    return {
        "type": "TemplateProcessing",
        "single": [begin, first],
        "pair": [begin, first, second],
        "special_tokens": known,
    }
