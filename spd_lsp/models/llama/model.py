"""A GGUF file that llama.cpp has opened."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from weakref import WeakValueDictionary

import platformdirs

from ngram_builders.errors import UserError
from spd_lsp.first_use import first_use
from spd_lsp.models.llama.library import last_error, load_library, model_settings
from spd_lsp.models.stored import find_parts

_MAX_VALUE = 1 << 12  # bytes of a metadata value
# Bytes of weights that each process reads into memory of its own. More are mapped: they open a second sooner, and
# a second process takes next to nothing; but whoever cuts the file short while it is used ends the processes.
_READ_BYTES = 1 << 28


class LlamaModel:
    """The weights of a GGUF file and its vocabulary; or its vocabulary alone."""

    def __init__(self, path: Path, gpu_layers: int = 0, *, vocab_only: bool = False) -> None:
        self.path = path
        self.library = load_library()
        self.file_size = sum(part.stat().st_size for part in find_parts(path))
        settings = model_settings(gpu_layers, vocab_only=vocab_only, mapped=self.file_size > _READ_BYTES)
        last_error()  # of whatever was opened before
        self.pointer = self.library.llama_model_load_from_file(str(path).encode(), settings)
        if not self.pointer:
            raise UserError(
                f"llama.cpp cannot open {path}: {last_error()}; fetch the file again, or choose another one"
            )
        self.vocabulary = self.library.llama_model_get_vocab(self.pointer)
        self.size = int(self.library.llama_vocab_n_tokens(self.vocabulary))
        self.width = int(self.library.llama_model_n_embd_inp(self.pointer))
        self.max_positions = int(self.library.llama_model_n_ctx_train(self.pointer))
        weakref.finalize(self, self.library.llama_model_free, self.pointer)

    @property
    def keeps_positions(self) -> bool:
        """Whether what it has read can be taken back position by position: it has a KV cache and nothing else."""
        return not self._is_any(self.library.llama_model_is_recurrent, self.library.llama_model_is_hybrid)

    @property
    def predicts_next_token(self) -> bool:
        """Whether it continues a text: others encode it, or write it in no order."""
        return not self._is_any(self.library.llama_model_is_diffusion, self.library.llama_model_has_encoder)

    def _is_any(self, *kinds: Callable[[int], bool]) -> bool:
        return any(is_one(self.pointer) for is_one in kinds)

    def metadata(self, key: str) -> str:
        """A value of the file's metadata; an empty string if there is none. Example: `general.name`."""
        buffer = ctypes.create_string_buffer(_MAX_VALUE)
        self.library.llama_model_meta_val_str(self.pointer, key.encode(), buffer, _MAX_VALUE)
        return buffer.value.decode("utf-8", "replace")


loaded: WeakValueDictionary[str, LlamaModel] = WeakValueDictionary()  # with weights, by what `opening` yields


@contextmanager
def opening(path: Path) -> Iterator[str]:
    """Open a file within: llama.cpp may end the process, and then the next one leaves the file alone.

    Yields what identifies the file's content.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    folder = platformdirs.user_cache_path("spd-lsp", appauthor=False) / "first-use"
    state = f"{path} {status.st_size} {status.st_mtime_ns} {version('xllamacpp')}"
    with first_use(folder, f"the model {path.name}", state):
        yield state
