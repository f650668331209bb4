"""C or C++ source -> functions, for this process only. What is compared is compiled where it is compared."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ngram_builders.programs import AWAY, find_program

__all__ = ["compile_library", "run"]


def compile_library(compiler: str, source: Path, arguments: Sequence[str | Path] = ()) -> ctypes.CDLL:
    """The compiled source, loaded; RuntimeError with the compiler's words if it cannot be."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        run([find_program(compiler) or compiler, "-O3", "-shared", "-fPIC", "-o", library, source, *arguments])
        return ctypes.CDLL(str(library))


def run(command: Sequence[str | Path]) -> None:
    """Run a program silently, away from the working folder; its own words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=AWAY)
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-500:]}")
