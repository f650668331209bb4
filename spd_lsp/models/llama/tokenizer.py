"""The tokenizer in a GGUF file's metadata as a tokenizer.json, checked against llama.cpp's own.

In SentencePiece vocabularies blanks are letters, and what no token spells becomes bytes. llama.cpp joins the two
neighbours whose token has the highest score, the leftmost of equals. So the merges are the pairs that make a
token, in the order of the scores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ngram_builders.errors import UserError
from spd_lsp.models.llama.header import GgufHeader
from spd_lsp.models.llama.pre_tokenizers import CUTTING_PROBE, OWN_CUTS, PATTERNS, pre_tokenizer

_PREFIX = "tokenizer.ggml."
_BYTE_LEVEL, _SENTENCEPIECE, _MERGED_SENTENCEPIECE = "gpt2", "llama", "gemma4"  # llama.cpp's names
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = range(1, 6)
_BLANK = "▁"
_MAX_LENGTH = 256  # characters of a token that is made of others; a crafted file may have longer ones
_FILL_MARKS = tuple(f"{_BLANK}<{name}>" for name in ("PRE", "MID", "SUF", "EOT"))  # of Code Llama


def cuts_itself(header: GgufHeader) -> bool:
    """Whether a file says how its texts are cut."""
    return bool(_own_cuts(header))


def build_tokenizer(
    header: GgufHeader, tokenize: Callable[[str], list[int]] = lambda text: [], bos: int | None = None
) -> Tokenizer:
    """The tokenizer of a file, which cuts texts as `tokenize` does; `UserError` if none is known that does.

    A file may hold its way of cutting, where llama.cpp knows no such way.
    bos: the id that stands before every text, if there is one.
    """
    if cuts := _own_cuts(header):
        return _parse(_byte_level_rules(header, bos), header, cuts)
    expected = tokenize(CUTTING_PROBE)
    for tokenizer in _possible_tokenizers(header, bos):
        if tokenizer.encode(CUTTING_PROBE, add_special_tokens=False).ids == expected:
            return tokenizer
    word = header.metadata.get(_PREFIX + "pre", "default")
    raise UserError(
        f"{header.path.name} uses a pre-tokenizer that spd-lsp does not know ({_PREFIX}pre = {word!r}); name the "
        "model's Hugging Face folder or another model"
    )


def _possible_tokenizers(header: GgufHeader, bos: int | None) -> Iterator[Tokenizer]:
    """The tokenizers that a file's metadata may mean."""
    kind = header.metadata.get(_PREFIX + "model")
    if kind in (_SENTENCEPIECE, _MERGED_SENTENCEPIECE):
        yield _sentencepiece(header, bos)
    elif kind == _BYTE_LEVEL:
        yield from _byte_level(header, bos)
    else:
        raise UserError(
            f"{header.path.name} has a tokenizer of the kind {kind!r}, and only byte-level and SentencePiece ones "
            "are read from GGUF files; name the model's Hugging Face folder or another model"
        )


def _own_cuts(header: GgufHeader) -> tuple[str, ...]:
    """The patterns by which a file says that its texts are cut."""
    cuts = header.metadata.get(OWN_CUTS)
    return tuple(map(str, cuts)) if isinstance(cuts, list) else ()


def _byte_level(header: GgufHeader, bos: int | None) -> Iterator[Tokenizer]:
    """A file names its way of cutting words by a word that only llama.cpp knows: all that are known here."""
    rules = _byte_level_rules(header, bos)
    for whole_words_first in (False, True):
        rules["model"]["ignore_merges"] = whole_words_first
        tokenizer = _parse(rules, header)
        for patterns in PATTERNS.values():
            tokenizer.pre_tokenizer = pre_tokenizer(patterns)
            yield tokenizer


def _byte_level_rules(header: GgufHeader, bos: int | None) -> dict[str, Any]:
    """All of a byte-level tokenizer but its cuts."""
    names, kinds = _vocabulary(header)
    vocabulary = {name: i for i, name in enumerate(names) if kinds[i] != _UNUSED}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "added_tokens": _added_tokens(names, kinds),
        "post_processor": _opening(names, bos) or byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": list(_merges(header, vocabulary))},
    }


def _sentencepiece(header: GgufHeader, bos: int | None) -> Tokenizer:
    """A vocabulary whose tokens have scores, or merges in the same letters."""
    names, kinds = _vocabulary(header)
    names = _original_names(names)
    kinds = [_CONTROL if _is_fill_mark(name) else kind for name, kind in zip(names, kinds, strict=True)]
    has_scores = header.metadata[_PREFIX + "model"] == _SENTENCEPIECE
    pieces = {name: i for i, name in enumerate(names) if kinds[i] == _NORMAL}
    merges = _merges_by_score(header, pieces) if has_scores else list(_merges(header, pieces))
    rules = _sentencepiece_rules(
        blank_first=bool(header.metadata.get(_PREFIX + "add_space_prefix", has_scores)),
        unknown=next((name for name, kind in zip(names, kinds, strict=True) if kind == _UNKNOWN), None),
    )
    rules["model"]["vocab"] = {name: i for i, name in enumerate(names) if kinds[i] != _UNUSED}
    rules["model"]["merges"] = merges
    rules["added_tokens"] = _added_tokens(names, kinds)
    rules["post_processor"] = _opening(names, bos)
    return _parse(rules, header)


def _parse(rules: dict[str, Any], header: GgufHeader, cuts: tuple[str, ...] = ()) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", **rules}))
        if cuts:
            tokenizer.pre_tokenizer = pre_tokenizer(cuts)
    except Exception as error:  # the tokenizers library raises bare Exception for every fault
        raise UserError(f"{header.path} has a damaged vocabulary ({error}); fetch it again") from error
    tokenizer.encode_special_tokens = True  # in code, they are characters
    return tokenizer


def _vocabulary(header: GgufHeader) -> tuple[list[str], list[int]]:
    """The name and the kind of each token."""
    names = header.metadata.get(_PREFIX + "tokens")
    kinds = header.metadata.get(_PREFIX + "token_type")
    if not isinstance(names, list) or kinds is None or len(kinds) != len(names) or not names:
        raise UserError(f"{header.path} has no vocabulary; choose a file that llama.cpp's converter wrote")
    return names, [int(kind) for kind in kinds]


def _added_tokens(names: list[str], kinds: list[int]) -> list[dict[str, Any]]:
    """The tokens that no merging makes."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = (_UNKNOWN, _CONTROL, _USER_DEFINED)
    return [
        {"id": i, "content": name, **flags, "special": kind != _USER_DEFINED}
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
        if kind in added
    ]


def _merges(header: GgufHeader, vocabulary: dict[str, int]) -> Iterator[tuple[str, str]]:
    """The pairs that are joined, first ones first."""
    for pair in header.metadata.get(_PREFIX + "merges", []):
        left, _, right = pair.partition(" ")
        if left in vocabulary and right in vocabulary and left + right in vocabulary:
            yield left, right


def _opening(names: list[str], bos: int | None) -> dict[str, Any] | None:
    """What puts the begin-of-text token before every text, if the model was trained so."""
    if bos is None or not 0 <= bos < len(names):
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


def _sentencepiece_rules(*, blank_first: bool, unknown: str | None) -> dict[str, Any]:
    """What a tokenizer.json says of such a vocabulary beside its tokens. blank_first: one before every text."""
    blanks = {"type": "Replace", "pattern": {"String": " "}, "content": _BLANK}
    back = {"type": "Replace", "pattern": {"String": _BLANK}, "content": " "}
    first = [{"type": "Prepend", "prepend": _BLANK}] if blank_first else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if blank_first else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*first, blanks]},
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": {"type": "BPE", "byte_fallback": True, "fuse_unk": True, "unk_token": unknown},
    }


def _original_names(names: Sequence[str]) -> list[str]:
    """The names that tokens had before llama.cpp's converter wrote blanks into those of marks."""
    return [mark if (mark := name.replace(" ", _BLANK)) in _FILL_MARKS else name for name in names]


def _is_fill_mark(name: str) -> bool:
    """Whether a token marks something although a file may say that it is text."""
    return name in _FILL_MARKS


def _merges_by_score(header: GgufHeader, pieces: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs of pieces that make a piece, highest score first."""
    scores = header.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) <= max(pieces.values(), default=0):
        raise UserError(f"{header.path} has no scores of its tokens; fetch it again")
    ordered = sorted(pieces, key=lambda name: (-float(scores[pieces[name]]), pieces[name]))
    return [pair for name in ordered if len(name) <= _MAX_LENGTH for pair in _pairs(name, pieces)]


def _pairs(name: str, pieces: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The pairs that make a piece, the longest beginning first: where two of them overlap, it is the leftmost."""
    for cut in range(len(name) - 1, 0, -1):
        left, right = name[:cut], name[cut:]
        if left in pieces and right in pieces:
            yield left, right
