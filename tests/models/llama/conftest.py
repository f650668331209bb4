"""Tiny GGUF files, made once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def needs_llama() -> None:
    """Skip where llama.cpp is not installed."""
    pytest.importorskip("xllamacpp")


@pytest.fixture(scope="session")
def gguf_folder(tmp_path_factory, needs_llama) -> Path:
    """A folder with a file of each data type."""
    from tests.models.llama.gguf_files import write_gguf

    folder = tmp_path_factory.mktemp("gguf")
    for kind in ("F32", "F16", "Q8_0", "Q4_K"):
        write_gguf(folder / f"{kind}.gguf", kind=kind)
    return folder
