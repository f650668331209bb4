"""A table that somebody made by hand, its checksums right, is refused or bears questions; it is never imported.

SPD_LSP_FUZZ_SECONDS: how long tables are made up and asked, 20 by default; SPD_LSP_FUZZ_SEED: which ones, beside
those of seed 0, which are always among them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ngram_builders import compile_kernel
from ngram_builders.compile_kernel import PACKAGE, SOURCES
from ngram_builders.errors import UserError
from ngram_builders.registry.registry import Registry
from ngram_builders.registry.transfer import import_table
from ngram_builders.table import validation
from ngram_builders.table.format import COUNT_OVERFLOW, ONES, POINTERS, WIDE, WIDE_ROW
from ngram_builders.table.reader import Table
from tests.ngram_builders.crafted import Never, Parts, columns_of, read_parts, real_tables, write_parts

Harm = Callable[[Parts], object]

ROOT = Path(compile_kernel.__file__).parent.parent
SECONDS = os.environ.get("SPD_LSP_FUZZ_SECONDS", "20")
SEED = os.environ.get("SPD_LSP_FUZZ_SEED") or str(secrets.randbelow(2**32))
FLAGS = ("-std=c99", "-O1", "-g", "-shared", "-fPIC", "-ffp-contract=off", "-DCHECKED")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
BOUND = "    start = at_most(start, s->entries);\n"  # without this a row may begin beyond the last entry


class SanitizedKernel:
    """Compiles a kernel with sanitizers, and asks it crafted tables in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gcc = shutil.which("gcc") or ""
        if not (sys.platform == "linux" and self.gcc):
            pytest.skip("there is no gcc")
        asked = [self.gcc, "-print-file-name=libasan.so"]
        self.libasan = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(self.libasan).is_absolute():
            pytest.skip("there is no libasan")

    def compile(self, sources: Path) -> Path:
        """The kernel in a folder, which says that it is the one of the tree."""
        library = self.folder / "libchecked.so"
        digest = compile_kernel.digest_flag([ROOT / PACKAGE / name for name in SOURCES])
        source = str(sources / SOURCES[0])
        command = [self.gcc, *FLAGS, *SANITIZERS, digest, "-o", str(library), source]
        done = subprocess.run(command, capture_output=True, text=True)
        if "cannot find" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        return library

    def ask(self, library: Path, seconds: str) -> subprocess.CompletedProcess[str]:
        """Ask crafted tables for so long."""
        asan = {"LD_PRELOAD": self.libasan, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
        command = [
            sys.executable,
            "-m",
            "tests.ngram_builders.crafted",
            str(library),
            str(self.folder),
            seconds,
            SEED,
        ]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **asan}, capture_output=True, text=True)


@pytest.fixture
def sanitized(tmp_path: Path) -> SanitizedKernel:
    return SanitizedKernel(tmp_path)


@pytest.mark.slow
def test_no_crafted_table_makes_the_kernel_access_memory_out_of_bounds(sanitized: SanitizedKernel) -> None:
    """Nor raises it anything but a sentence, nor do kernel and numpy answer differently from sound ones."""
    done = sanitized.ask(sanitized.compile(ROOT / PACKAGE), SECONDS)
    case = sanitized.folder / "case"
    found = f"seed and case: {case.read_text() if case.exists() else SEED}{done.stderr[-6000:]}"
    assert done.returncode == 0 and done.stdout.startswith("survived"), found
    assert all(kind in done.stdout for kind in ("refused", "unsound", "sound")), done.stdout
    sys.stdout.write(f"seed {SEED}: {done.stdout}")


@pytest.mark.slow
def test_a_kernel_without_its_bounds_check_is_detected(sanitized: SanitizedKernel) -> None:
    for name in SOURCES:
        source = (ROOT / PACKAGE / name).read_text(encoding="utf-8")
        assert (BOUND in source) == (name == "rows.h")
        (sanitized.folder / name).write_text(source.replace(BOUND, ""), encoding="utf-8")
    done = sanitized.ask(sanitized.compile(sanitized.folder), "0")
    assert done.returncode != 0
    assert "AddressSanitizer: heap-" in done.stderr
    assert "rows.h" in done.stderr


def widest(parts: Parts) -> slice:
    """Where the entries of the widest row lie."""
    widths, _ = columns_of(parts).layout(0, len(parts[1]["heads"]))
    row = int(widths.argmax())
    return slice(int(widths[:row].sum()), int(widths[: row + 1].sum()))


def put(section: str, place: int, value: int) -> Harm:
    """Change one number of a section."""
    return lambda parts: parts[1][section].__setitem__(place, value)


def add(section: str, place: int, value: int) -> Harm:
    return lambda parts: parts[1][section].__setitem__(place, int(parts[1][section][place]) + value)


def repeat_a_token(parts: Parts) -> None:
    parts[1]["tokens"][widest(parts)] = 7


def swap_two_tokens(parts: Parts) -> None:
    place = widest(parts).start
    parts[1]["tokens"][place : place + 2] = parts[1]["tokens"][place : place + 2][::-1].copy()


def drop_rows(parts: Parts) -> None:
    section = parts[1]["directory"]
    section[section == section.max()] -= 1


def repeat_a_context(parts: Parts) -> None:
    borders = parts[1]["directory"]
    borders[borders == 1] = 0  # the first two contexts come into one bucket
    heads = parts[1]["heads"]
    heads[1] = heads[0] & ~np.uint32(WIDE) | heads[1] & WIDE


def widen_a_row(parts: Parts) -> None:
    parts[1]["heads"][0] ^= 1  # the shape of a row with one entry more, or one less


def store_ones(parts: Parts) -> None:
    """Let a row have its counts stored though each is 1."""
    widths, is_stored = columns_of(parts).layout(0, len(parts[1]["heads"]))
    row = np.flatnonzero(is_stored & (widths <= ONES))[0]
    start = int((widths * is_stored)[:row].sum())
    parts[1]["counts"][start : start + int(widths[row])] = 1


DAMAGES: dict[str, Harm] = {
    "a token is repeated": repeat_a_token,
    "tokens are not sorted": swap_two_tokens,
    "a row is left out": put("pointers", POINTERS, 0),
    "rows start later": put("pointers", 0, 1),
    "a directory is not sorted": put("directory", 1, 2**32 - 1),
    "rows are in no bucket": drop_rows,
    "a context is repeated": repeat_a_context,
    "a row has another width": widen_a_row,
    "a wide row is narrow": put("wide_widths", 0, WIDE_ROW - 1),
    "ones are stored": store_ones,
    "a count is 0": put("counts", 3, 0),
    "a large count is elsewhere": add("overflow_places", 0, 1),
    "a large count is small": put("overflow_counts", 0, COUNT_OVERFLOW - 1),
    "a total is wrong": add("wide_totals", 0, 1),
    "wide rows are miscounted": put("pointers", 2, 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("piece", [validation.CHUNK_LENGTH, 7])
def test_rows_that_no_build_writes_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, piece: int
) -> None:
    """Every checksum is right. It opens, since opening reads no rows, and is refused by what reads it whole."""
    monkeypatch.setattr(validation, "CHUNK_LENGTH", piece)
    parts = read_parts(real_tables(tmp_path)[1])
    DAMAGES[damage](parts)
    path = tmp_path / "team.ngt"
    path.write_bytes(write_parts(parts, Never(np.random.PCG64())))
    Table.open(path)
    registry = Registry(tmp_path / "registry")
    with pytest.raises(UserError, match=r"invalid data in section .*; export it again where it was built"):
        import_table(registry, path)
    assert registry.tables() == []


@pytest.mark.parametrize("piece", [validation.CHUNK_LENGTH, 1, 7, 64])
def test_what_a_build_writes_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(validation, "CHUNK_LENGTH", piece)
    for path in real_tables(tmp_path):
        Table.open(path).verify()
