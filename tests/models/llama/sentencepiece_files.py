"""GGUF files with SentencePiece vocabularies, and the tokenizer.json that each has on Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.models.llama.gguf_files import write_gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, _, BYTE = range(1, 7)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
BLANKS = ["▁" * count for count in range(2, 32)]  # as Gemma has them
SIZE = 1000
SNIPPETS = Path(__file__).parents[2] / "completion" / "snippets"


@cache
def trained_merges() -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The letters of some code, and pairs of pieces in the order in which they are joined; blanks begin words."""
    lines = [
        "▁" + line.replace(" ", "▁")
        for path in sorted(SNIPPETS.iterdir())
        for line in path.read_text(encoding="utf-8").splitlines(True)
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁?[^▁\n]+|▁+(?=▁)|▁|\n"), "isolated")
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=SIZE, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    letters = [name for name in model["vocab"] if len(name) == 1]
    return tuple(sorted({*letters, "▁", "Ġ"})), tuple((left, right) for left, right in model["merges"])


class Vocabulary:
    """The tokens of a family, with their scores and kinds."""

    def __init__(
        self, added: Sequence[tuple[str, int]] = (), *, blank_first: bool = True, kind: str = "llama"
    ) -> None:
        letters, merges = trained_merges()
        self.blank_first, self.kind = blank_first, kind
        first = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), *((byte, BYTE) for byte in BYTES)]
        pieces = [*("".join(pair) for pair in merges), *letters]
        other = dict(added)
        tokens = [*first, *((piece, NORMAL) for piece in dict.fromkeys(pieces) if piece not in other), *added]
        self.names = [name for name, _ in tokens]
        self.kinds = [kind for _, kind in tokens]
        self.scores = [float(len(first) - i) if kind == NORMAL else 0.0 for i, kind in enumerate(self.kinds)]

    def write(self, writer) -> int:
        """Add them to a file as llama.cpp's converter does."""
        writer.add_tokenizer_model(self.kind)
        writer.add_tokenizer_pre("default")
        if self.kind != "llama":
            writer.add_token_merges([" ".join(pair) for pair in trained_merges()[1]])
        writer.add_token_list(
            [self._written(name, kind) for name, kind in zip(self.names, self.kinds, strict=True)]
        )
        writer.add_token_scores(self.scores)
        writer.add_token_types(self.kinds)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_add_space_prefix(self.blank_first)
        return len(self.names)

    @staticmethod
    def _written(name: str, kind: int) -> str:
        return name.replace("▁", " ") if kind == USER_DEFINED else name

    def hugging_face_tokenizer(self) -> Tokenizer:
        """As transformers converts it: every pair of pieces that makes a piece, best pieces first."""
        vocabulary = {name: i for i, name in enumerate(self.names)}
        pieces = [i for i, kind in enumerate(self.kinds) if kind in (NORMAL, USER_DEFINED)]
        merges = [
            (name[:cut], name[cut:])
            for name in (self.names[i] for i in sorted(pieces, key=lambda i: -self.scores[i]))
            for cut in range(1, len(name))
            if name[:cut] in vocabulary and name[cut:] in vocabulary
        ]
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        first = [normalizers.Prepend("▁")] if self.blank_first else []
        tokenizer.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        named = list(zip(self.names, self.kinds, strict=True))
        tokenizer.add_special_tokens([name for name, kind in named if kind in (UNKNOWN, CONTROL)])
        tokenizer.add_tokens([AddedToken(name, normalized=False) for name, kind in named if kind == USER_DEFINED])
        return tokenizer


def write_sentencepiece(path: Path, vocabulary: Vocabulary, **over) -> Path:
    """Write a tiny Llama with such a vocabulary."""
    return write_gguf(path, "llama", write_vocabulary=vocabulary.write, **over)
