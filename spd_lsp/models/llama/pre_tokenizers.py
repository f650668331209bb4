"""How byte-level vocabularies cut a text into words before they merge its bytes, as patterns.

A GGUF file names this by a word that only llama.cpp knows. Which of these means the same is found by comparing
tokens, not by the word. A file of this project may hold patterns that llama.cpp has no word for.
"""

from __future__ import annotations

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

OWN_CUTS = "spd_lsp.cuts"  # the patterns in a file's metadata
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CJK = "[一-龥\u0800-\u4e00\uac00-\ud7ff]+"  # as DeepSeek wrote it
_AFTER_NUMBERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What code is made of, and what vocabularies cut in different ways.
CUTTING_PROBE = '''def naïve_sum(items: list[int], *, start=0x1F) -> "int":
\t"""It's the sum; we'll add 1234567890 to 3.14159e-10, don't WE'RE…"""
    total = start  # größer als €100, 中文字符, 日本語 한국어 русский язык 🙂👍🏽

    for i,x in enumerate(items):\r\n        if x>=10 and not(x%2==0):   total+=x**2;
            print(f"{i:>5}\\t{x!r}", file=sys.stderr)\n\n\n\n    return total
<div class="a-b">&nbsp;</div>  \n  x = {'a':[1,22,333,4444]}  // ../path_to/file.cpp::std::vector<int>&&
SELECT * FROM t WHERE a<>'b' AND c LIKE '%_d';\n\n\t\t}\n});\n#include <stdio.h>\n!?!?...---===>>><<<@@@###$$$
'''

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
