"""A run in one file: a work folder goes in, an archive comes out, and from it a work folder on another machine.

It holds the weights, the plan, the tokenizer and what the corpus was made from, not the corpus: `corpus` and
`rows` make that again. A tokenizer that is there is not learnt again: the weights know its tokens.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.training import checkpoint

_REQUIRED = (
    f"run/{checkpoint.WEIGHTS_FILE}",
    "run/plan.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
)
_START_FILES = (
    "run/start.json",
    "run/start/config.json",
)  # of a run that began with a model: its past and its shape
_RECORDS = ("rows/rows.json", "corpus/sources.json")  # for who wants to know; the steps make their own
_RECORDS_FOLDER = "handover"  # where those are put: in their places they would say that the steps are done


def pack_run(work: Path, archive: Path) -> int:
    """Write the archive; its size in bytes is returned."""
    if missing := [name for name in _REQUIRED if not (work / name).exists()]:
        raise UserError(
            f"expected {missing[0]} in {work}, found nothing; run: python -m spd_lsp.training train --work {work}"
        )
    temporary = archive.with_name(f"{archive.name}.new")
    with tarfile.open(temporary, "w:xz") as packed:
        for name in (*_REQUIRED, *(name for name in _START_FILES if (work / name).exists())):
            packed.add(work / name, name)
        for name in _RECORDS:
            if (work / name).exists():
                packed.add(work / name, f"{_RECORDS_FOLDER}/{Path(name).name}")
    temporary.replace(archive)
    return archive.stat().st_size


def unpack_run(archive: Path, work: Path) -> None:
    """Put a run into a work folder that has none."""
    if (work / "run").exists() or (work / "tokenizer").exists():
        raise UserError(f"expected a work folder without a run and a tokenizer, found one in {work}; name another")
    try:
        with tarfile.open(archive) as packed:
            known = {*_REQUIRED, *_START_FILES, *(f"{_RECORDS_FOLDER}/{Path(name).name}" for name in _RECORDS)}
            members = [member for member in packed.getmembers() if member.isfile() and member.name in known]
            if not {*_REQUIRED} <= {member.name for member in members}:
                raise UserError(f"expected a run that `pack` wrote in {archive}, found something else")
            for member in members:
                path = work / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                if file := packed.extractfile(member):
                    path.write_bytes(file.read())
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(
            f"expected a run that `pack` wrote in {archive}, found an archive that breaks off"
        ) from error
