"""Which models fit into memory, and which of them are worth fetching: the rows of recommended.json."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD
from spd_lsp.models.stored import repository_file_name

_GIB = 1 << 30
_MOST = 3  # recommended models at once
_MAX_BYTES_ON_CPU = 2_000_000_000  # a completion of ten passes reads larger weights for more than a second
_COMPUTED = {"F64", "F32", "F16", "BF16"}  # become the type that is computed with


class DoesNotFit(UserError):
    """The weights need more memory than there is."""


def memory_needed(folder: Path, bytes_each: int = 4) -> int:
    """Return about how many bytes the weights in a folder take, which are computed in 32 bits on a CPU.

    Packed ones, of 8 bits or fewer each, stay as they are stored: bitsandbytes, GPTQ, AWQ and their like.
    """
    from huggingface_hub import get_local_safetensors_metadata

    try:
        files = get_local_safetensors_metadata(folder).files_metadata.values()
        return sum(
            bytes_each * one.parameter_count
            if one.dtype in _COMPUTED
            else one.data_offsets[1] - one.data_offsets[0]
            for file in files
            for one in file.tensors.values()
        )
    except Exception:  # of many kinds; a damaged file is reported as it is opened
        return 0


def check_memory(name: str, needed: int, free: int | None, device: str = "this machine") -> None:
    """Raise `DoesNotFit` if weights of this many bytes are larger than the free memory of a device."""
    if free is not None and needed > free:
        raise DoesNotFit(
            f"{name} takes {needed / _GIB:.1f} GiB, but {device} has {free / _GIB:.1f} GiB of free memory; "
            "choose a smaller model, or one with fewer bits a weight"
        )


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return the bytes that a program can take without swapping; None where the system does not say."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def free_gpu_memory() -> int | None:
    """Return the free bytes of the NVIDIA GPU that has most; None without one. Importing torch takes seconds."""
    if (program := shutil.which("nvidia-smi")) is None:
        return None
    query = [program, "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True, cwd=NEUTRAL_CWD)
        return max(int(line) for line in done.stdout.split()) << 20
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


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
    """Return all rows, the smallest model first."""
    rows = json.loads(files("spd_lsp.models").joinpath("recommended.json").read_bytes())
    return [RecommendedModel(**row) for row in rows]


def recommend(memory: int | None, gpu_memory: int | None) -> list[RecommendedModel]:
    """Return the best models that fit into these free bytes of memory and are fast enough, the best first.

    None: the free memory is not known, or there is no GPU.
    """

    def fits(row: RecommendedModel) -> bool:
        if row.extra:
            return gpu_memory is not None and row.memory <= gpu_memory
        return row.bytes <= _MAX_BYTES_ON_CPU and (memory is None or row.memory <= memory)

    return [row for row in read_table() if fits(row)][: -_MOST - 1 : -1]
