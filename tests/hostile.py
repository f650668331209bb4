"""A hostile folder: modules and programs with common names, each of which records when it runs."""

from __future__ import annotations

from pathlib import Path

MODULES = (
    *("spd_lsp", "ngram_builders", "sitecustomize", "usercustomize", "click", "numpy", "msgpack", "torch"),
    *("transformers", "tokenizers", "safetensors", "pygls", "lsprotocol", "tree_sitter", "tree_sitter_python"),
    *("filelock", "platformdirs", "huggingface_hub", "rich", "pip", "pydivsufsort"),
    *("asyncio", "ctypes", "json", "logging", "multiprocessing", "pickle", "random", "re", "runpy", "select"),
    *("signal", "socket", "sqlite3", "struct", "subprocess", "tempfile", "threading", "typing", "warnings"),
)
PROGRAMS = ("python", "python3", "spd-lsp", "cc", "c++", "gcc", "uname", "ldconfig", "git")


class Trap:
    """The folder; `sprung` lists what was imported or run from it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.marks = folder / "workspace", folder / "marks"
        self.folder.mkdir()
        for name in MODULES:
            module = self.folder / name / "__init__.py"
            module.parent.mkdir()
            module.write_text(f"open({str(self.marks)!r}, 'a').write({name + chr(10)!r})\n")
        for name in PROGRAMS:
            program = self.folder / name
            if not program.exists():
                program.write_text(f"#!/bin/sh\necho program {name} >> '{self.marks}'\nexit 1\n")
                program.chmod(0o755)

    @property
    def sprung(self) -> list[str]:
        return self.marks.read_text().splitlines() if self.marks.exists() else []
