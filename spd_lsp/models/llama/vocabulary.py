"""The vocabulary of a GGUF file: llama.cpp cuts text into tokens, and gives the bytes of each."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.errors import UserError
from spd_lsp.models.base import usable_cores
from spd_lsp.models.llama.gguf_file import LlamaModel, loaded, opening
from spd_lsp.models.llama.library import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from spd_lsp.models.vocabulary import Vocabulary, byte_level_piece, fingerprint_of, is_byte_level

_MAX_PIECE = 1 << 12  # bytes
_FILL_MARKS = (" <PRE>", " <SUF>", " <MID>")  # of Code Llama, as the converter writes them if they are text


class LlamaVocabulary(Vocabulary):
    """The vocabulary of a GGUF file, of the loaded model if there is one, or read without the weights."""

    def __init__(self, path: Path) -> None:
        with opening(path) as state:  # reading a large vocabulary takes most of a second
            self.model = loaded.get(state) or LlamaModel(path, vocab_only=True)
        self.library = library = self.model.library
        self.pointer = pointer = self.model.vocabulary
        kinds = np.array([library.llama_vocab_get_attr(pointer, i) for i in range(self.model.size)])
        self.ids = np.flatnonzero(kinds & UNUSED == 0).tolist()
        if not self.ids:
            raise UserError(f"{path} has no vocabulary; choose a file that llama.cpp's converter wrote")
        self.marks = self._marks(kinds)
        names = [(self._name(i), i) for i in self.ids]
        self.pieces = self._pieces(names, (kinds & NORMAL != 0).tolist())
        self.fingerprint = fingerprint_of(names, self.encode)
        self.opening = [int(library.llama_vocab_bos(pointer))] if library.llama_vocab_get_add_bos(pointer) else []
        self.config = {
            "model_type": self.model.metadata("general.architecture"),
            "name": self.model.metadata("general.name") or path.stem,
            "vocab_size": self.model.size,
            "eos_token_id": int(library.llama_vocab_eos(pointer)),
        }

    def encode(self, text: str) -> list[int]:
        """As in `Vocabulary`."""
        data = text.encode("utf-8", "replace")  # llama.cpp ends the process for half of a surrogate pair
        ids = np.empty(len(data) + 8, np.int32)  # tokens have a byte at least, but for a blank that is put first
        count = self.library.llama_tokenize(self.pointer, data, len(data), ids.ctypes.data, len(ids), False, False)
        found: list[int] = ids[:count].tolist()
        return found

    def encode_batch(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """As in `Vocabulary`. llama.cpp runs without the interpreter's lock."""
        with ThreadPoolExecutor(usable_cores()) as pool:
            yield from pool.map(self.encode, texts)

    def _name(self, i: int) -> str:
        name: str = self.library.llama_vocab_get_text(self.pointer, i).decode("utf-8", "replace")
        return name

    def _marks(self, kinds: npt.NDArray[np.int64]) -> dict[str, int]:
        """Return the tokens that mark something, by name.

        llama.cpp takes some tokens of text for control tokens, too, such as `</s>` in Qwen's vocabulary.
        """
        library = self.library
        is_special = (kinds & (UNKNOWN | CONTROL) != 0) & (kinds & (NORMAL | UNUSED) == 0)
        marks = set(np.flatnonzero(is_special).tolist())
        filling = (library.llama_vocab_fim_pre, library.llama_vocab_fim_suf, library.llama_vocab_fim_mid)
        marks |= {i for find in filling if (i := find(self.pointer)) >= 0}
        marks |= {i for i in np.flatnonzero(kinds & USER_DEFINED).tolist() if self._name(i) in _FILL_MARKS}
        names = {i: self._name(i) for i in sorted(marks)}
        return {name.replace(" ", "▁") if name in _FILL_MARKS else name: i for i, name in names.items()}

    def _pieces(self, names: Sequence[tuple[str, int]], normal: Sequence[bool]) -> list[bytes]:
        """Return the bytes of each id up to the last one in use: some models have more embeddings than tokens."""
        buffer = ctypes.create_string_buffer(_MAX_PIECE)
        pieces = [b""] * (self.ids[-1] + 1)
        marks = set(self.marks.values())
        if is_byte_level([name for name, _ in names]):  # asking llama.cpp takes three times as long
            for name, i in names:
                pieces[i] = b"" if i in marks else byte_level_piece(name) if normal[i] else name.encode()
            return pieces
        for i in set(self.ids) - marks:
            size = self.library.llama_token_to_piece(self.pointer, i, buffer, _MAX_PIECE, 0, True)
            pieces[i] = ctypes.string_at(buffer, max(0, size))
        return pieces
