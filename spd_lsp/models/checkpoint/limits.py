"""Whether a model fits into memory, as far as this can be told before anything is allocated."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD

_GIB = 1 << 30
_COMPUTED = {"F64", "F32", "F16", "BF16"}  # become the type that is computed with


class DoesNotFit(UserError):
    """The weights need more memory than there is."""


def memory_needed(folder: Path, bytes_each: int = 4) -> int:
    """About how many bytes the weights in a folder take, which are computed in 32 bits on a CPU.

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
    """Bytes that a program can take without swapping, if the system says so."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def free_gpu_memory() -> int | None:
    """Free bytes of the NVIDIA GPU that has most; None without one. Importing torch would take seconds."""
    if (program := shutil.which("nvidia-smi")) is None:
        return None
    query = [program, "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True, cwd=NEUTRAL_CWD)
        return max(int(line) for line in done.stdout.split()) << 20
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
