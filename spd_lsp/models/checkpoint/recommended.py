"""The models worth fetching, and which of them suit a machine. The rows are in recommended.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from spd_lsp.models.checkpoint.stored_models import repository_file_name

_MOST = 3  # that are recommended at once
_MAX_BYTES_ON_CPU = 2_000_000_000  # a completion of ten passes reads larger weights for more than a second


@dataclass(frozen=True, slots=True)
class RecommendedModel:
    """A model worth fetching, a row of recommended.json.

    Base models trained to fill in code, under licences that allow any use (so not Qwen2.5-Coder-3B, whose licence
    is for research), and whose files run here: with `extra`, in torch on a GPU, else in llama.cpp. Without a
    SHA-256 the size is rounded. `memory` is what opening takes; for a GGUF file 1.7 times its size.
    """

    name: str  # by which `spd-lsp models get` knows it
    repository: str
    file: str  # empty: all of the repository
    bytes: int
    sha256: str  # empty: none is known
    licence: str
    extra: str  # of pyproject.toml, that it needs
    memory: int
    parameters: int

    @property
    def model(self) -> str:
        """The name that `--model` takes."""
        return repository_file_name(self.repository, Path(self.file)) if self.file else self.repository


def read_table() -> list[RecommendedModel]:
    """All rows, the smallest model first."""
    rows = json.loads(files("spd_lsp.models.checkpoint").joinpath("recommended.json").read_bytes())
    return [RecommendedModel(**row) for row in rows]


def recommend(memory: int | None, gpu_memory: int | None) -> list[RecommendedModel]:
    """The best models for a machine, the best first: those that fit into the free memory, as far as it is known,
    and are fast enough.
    """

    def fits(row: RecommendedModel) -> bool:
        if row.extra:
            return gpu_memory is not None and row.memory <= gpu_memory
        return row.bytes <= _MAX_BYTES_ON_CPU and (memory is None or row.memory <= memory)

    return [row for row in read_table() if fits(row)][: -_MOST - 1 : -1]
