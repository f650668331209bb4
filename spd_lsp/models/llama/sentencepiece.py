"""SentencePiece vocabularies in GGUF files: blanks are letters, and what no token spells becomes bytes.

llama.cpp joins the two neighbours whose token has the highest score, the leftmost of equals. So the merges are the
pairs that make a token, in the order of the scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.models.llama.header import GgufHeader

_BLANK = "▁"
_MAX_LENGTH = 256  # characters of a token that is made of others; a crafted file may have longer ones
_FILL_MARKS = tuple(f"{_BLANK}<{name}>" for name in ("PRE", "MID", "SUF", "EOT"))  # of Code Llama


def sentencepiece_rules(*, blank_first: bool, unknown: str | None) -> dict[str, Any]:
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


def original_names(names: Sequence[str]) -> list[str]:
    """The names that tokens had before llama.cpp's converter wrote blanks into those of marks."""
    return [mark if (mark := name.replace(" ", _BLANK)) in _FILL_MARKS else name for name in names]


def is_fill_mark(name: str) -> bool:
    """Whether a token marks something although a file may say that it is text."""
    return name in _FILL_MARKS


def merges_by_score(header: GgufHeader, pieces: Mapping[str, int]) -> list[tuple[str, str]]:
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
