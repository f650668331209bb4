"""How byte-level vocabularies of some families cut a text into words before they merge its bytes."""

from __future__ import annotations

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CJK = "[一-龥\u0800-\u4e00\uac00-\ud7ff]+"  # as DeepSeek wrote it
_AFTER_NUMBERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Each pattern cuts what those before it left.
PATTERNS: dict[str, tuple[str, ...]] = {
    "Qwen": (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _AFTER_NUMBERS,),
    "Llama 3": (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _AFTER_NUMBERS,),
    "StarCoder": (r"\p{N}", _GPT2),
    "GPT-2": (_GPT2,),
    "DeepSeek-Coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"),
    "DeepSeek-V3": (
        r"\p{N}{1,3}",
        _CJK,
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
}


def pre_tokenizer(patterns: tuple[str, ...]) -> Sequence:
    """Cut by each pattern in turn, then write bytes as letters."""
    cuts = [Split(Regex(pattern), "isolated") for pattern in patterns]
    return Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])
