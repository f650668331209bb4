"""Pack a run into one archive, and unpack it into a work folder on another machine.

It contains the weights, the plan and the tokenizer, not the corpus: `corpus` and `rows` recreate that.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.training import checkpoint

_REQUIRED = (
    f"run/{checkpoint.WEIGHTS_FILE}",
    "run/plan.json",
    "run/start/config.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
)


def pack_run(work: Path, archive: Path) -> int:
    """Write the archive. Return its size in bytes."""
    if missing := [name for name in _REQUIRED if not (work / name).exists()]:
        raise UserError(f"{work} has no {missing[0]}; run: python -m spd_lsp.training train --work {work}")
    temporary = archive.with_name(f"{archive.name}.new")
    with tarfile.open(temporary, "w:xz") as packed:
        for name in _REQUIRED:
            packed.add(work / name, name)
    temporary.replace(archive)
    return archive.stat().st_size


def unpack_run(archive: Path, work: Path) -> None:
    """Unpack a run into a work folder that has none."""
    if (work / "run").exists() or (work / "tokenizer").exists():
        raise UserError(f"{work} already has a run or a tokenizer; choose another work folder")
    try:
        with tarfile.open(archive) as packed:
            members = [member for member in packed.getmembers() if member.isfile() and member.name in _REQUIRED]
            if {*_REQUIRED} != {member.name for member in members}:
                raise UserError(f"{archive} is not an archive written by `pack`; choose another file")
            for member in members:
                path = work / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                if file := packed.extractfile(member):
                    path.write_bytes(file.read())
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(f"{archive} is damaged or not an archive written by `pack`; copy it again") from error
