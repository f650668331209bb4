"""Query crafted tables through a kernel compiled with AddressSanitizer, which ends the process at the first fault.

Run in a separate process with libasan preloaded: LIBRARY FOLDER SECONDS SEED [CASE]. A crafted table is a real
one, changed with knowledge of its parts, with valid checksums. It must be refused with a message, or be queried
without a fault; if `verify` accepts it, kernel and dictionaries give the same results. FOLDER keeps the last table
and the seed and number of its case; given as SEED and CASE, they run it again.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from ngram_builders.errors import UserError
from ngram_builders.ngrams import merge, negate
from ngram_builders.table.format import (
    BLOCK_ROWS,
    FILE_PREFIX,
    POINTERS,
    SECTION_DTYPES,
    VERSION,
    WIDE,
    Columns,
    align,
    read_header,
)
from ngram_builders.table.kernel import open_library
from ngram_builders.table.query import Query
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import write_table
from tests.ngram_builders.pools import Expected, counted
from tests.ngram_builders.reference import run_of_texts, write_texts

Random = np.random.Generator
Parts = tuple[dict[str, Any], dict[str, np.ndarray]]  # a table's header, and its sections

POWERS = (16, 31, 32, 40, 63, 64)
NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 31, 32, 63, 64, 255, 2**31, *(2**power - 1 for power in POWERS))
NONSENSE = (None, "", "x", b"", [], {}, True, 0.5, math.inf, -math.inf, math.nan)
TEXT = [0, *np.random.default_rng(5).integers(0, 9, size=300).tolist()]
WIDE_ROW = [token for i in range(40) for token in (1, i)]
NARROW_ROW = [token for i in range(31) for token in (45, i)]
CONTEXTS = [*([-1] * (8 - i) + TEXT[:i] for i in range(1, 8)), *(TEXT[i : i + 8] for i in range(0, 290, 9))]
EQUAL_WEIGHTS = np.tri(9, 8, -1)[None] / 10
CONTEXTS = np.array([*CONTEXTS, [-1] * 7 + [1], [-1] * 7 + [45], [-1] * 8, [2**62] * 8])


class Never(np.random.Generator):
    """Chance that never strikes: tables are put together as they are."""

    def random(self, *_: object) -> float:  # type: ignore[override]
        return 1.0


def real_tables(folder: Path) -> list[Path]:
    """Write small tables of every kind: of two and four bytes a token, pruned or not, with signs or not."""
    texts = [TEXT, WIDE_ROW, NARROW_ROW, [3, 4] * 300]
    kinds = ((50, (2, 3, 4), 1), (70_000, (2, 9), 1), (50, (2, 3), 2), (50, (5,), 1))
    made = [folder / f"real{number}.ngt" for number in range(len(kinds) + 1)]
    for path, (vocab_size, orders, least) in zip(made[1:], kinds, strict=True):
        write_texts(path, texts, vocab_size, orders=orders, least=least)
    write_texts(made[0], [], 50)
    change = merge([run_of_texts(texts[:2], 50, (2, 3)), negate(run_of_texts(texts[2:], 50, (2, 3)))])
    facts = {"fingerprint": "a1b2", "vocab_size": 50, "orders": (2, 3), "min_count": {}, "sources": {}}
    write_table(folder / "segment.ngt", [change], **facts, tokens=1, files=0, is_segment=True)  # type: ignore[arg-type]
    return [*made, folder / "segment.ngt"]


def read_parts(path: Path) -> Parts:
    """Read a table's header and sections."""
    fields, _ = read_header(path, path.read_bytes())
    columns = Table.open(path).columns
    return fields, {name: getattr(columns, name).copy() for name in fields.pop("sections")}


def write_parts(parts: Parts, random: Random) -> bytes:
    """Return the file with valid checksums; now and then with wrong offsets or header bytes."""
    fields, sections = parts
    places, body = {}, b""
    for name, section in sections.items():
        data = section.tobytes()
        places[name] = [len(body), len(data), section.dtype.str, zlib.crc32(data)]
        body += data.ljust(align(len(data)), b"\0")
    while random.random() < 0.1:
        place = places[random.choice(list(places))]
        place[random.integers(3)] = pick(random, (*NUMBERS, *NONSENSE, 64, 128, "<u4", "<u2", "<f8", "O"))
    header = bytearray(msgpack.packb({**fields, "sections": places}))
    while random.random() < 0.05:
        header[random.integers(len(header))] = random.integers(256)
    prefix = FILE_PREFIX.pack(b"SPDNGT\0", VERSION, len(header), zlib.crc32(header))
    return (prefix + header).ljust(align(len(prefix) + len(header)), b"\0") + body


def pick(random: Random, values: Any) -> Any:
    """Pick one of several values of any type."""
    return values[random.integers(len(values))]


def change_header(parts: Parts, random: Random) -> None:
    """Change a field, or a number in one."""
    fields, _ = parts
    place: Any = fields
    key: Any = pick(random, list(fields))
    while isinstance(place[key], list) and place[key] and random.random() < 0.8:
        place = place[key]
        key = int(random.integers(len(place)))
    place[key] = pick(random, (*NUMBERS, *NONSENSE))


def repeat_a_token(parts: Parts, random: Random) -> None:
    """Fill a row with one token."""
    _, sections = parts
    start, end = row_of(parts, random)
    sections["tokens"][start:end] = pick(random, (0, 1, 2, 30, 49, 2**16 - 1))


def disorder_a_row(parts: Parts, random: Random) -> None:
    """Reorder a row's tokens."""
    start, end = row_of(parts, random)
    random.shuffle(parts[1]["tokens"][start:end])


def row_of(parts: Parts, random: Random) -> tuple[int, int]:
    """Pick a row, the widest ones most often, and return the range of its entries."""
    rows = len(parts[1]["heads"])
    if not rows:
        return 0, 0
    widths = np.ones(rows, dtype=np.int64)
    with suppress(IndexError, ValueError):  # another change may have taken the wide rows away
        widths, _ = columns_of(parts).layout(0, rows)
    row = int(widths.argmax()) if random.random() < 0.5 else int(random.integers(rows))
    return int(widths[:row].sum()), int(widths[: row + 1].sum())


def columns_of(parts: Parts) -> Columns:
    """Return the sections as columns."""
    return Columns(**{name: parts[1][name] for name in SECTION_DTYPES}, orders={}, vocab_size=50)


def change_numbers(parts: Parts, random: Random) -> None:
    """Change a few numbers of one section to extremes or by one or two."""
    section = pick(random, [section for section in parts[1].values() if len(section)] or [np.zeros(1)])
    info = np.iinfo(section.dtype) if section.dtype.kind in "iu" else np.iinfo(np.int64)
    for place in random.integers(len(section), size=random.integers(1, 4)):
        neighbour = int(section[place]) + int(random.integers(-2, 3))
        section[place] = min(max(pick(random, (neighbour, *NUMBERS)), info.min), info.max)


def fill(parts: Parts, random: Random) -> None:
    """Fill a range of one section with one value."""
    section = pick(random, [section for section in parts[1].values() if len(section)] or [np.zeros(1)])
    start, end = sorted(random.integers(len(section) + 1, size=2))
    section[start:end] = section[random.integers(len(section))]


def change_length(parts: Parts, random: Random) -> None:
    """Grow or shrink a section; the header agrees half of the time."""
    fields, sections = parts
    name = pick(random, list(sections))
    length = int(random.choice([0, 1, len(sections[name]) - 1, len(sections[name]) + 1, len(sections[name]) * 2]))
    lengths = {name: max(length, 0)}
    if random.random() < 0.5:
        twins = {"overflow_places": ["overflow_counts"], "wide_widths": ["wide_totals"]}
        lengths |= dict.fromkeys(twins.get(name, ()), lengths[name])
        if name == "heads":
            fields["contexts"], lengths["pointers"] = (
                lengths[name],
                POINTERS * (-(-lengths[name] // BLOCK_ROWS) + 1),
            )
        if name in ("tokens", "counts") and len(sections["pointers"]) >= POINTERS:
            fields["entries"] = lengths.get("tokens", fields["entries"])
            tokens = lengths.get(
                "tokens", len(sections["tokens"])
            )  # an earlier change may have left no number there
            sections["pointers"][-3:-1] = tokens, lengths.get("counts", len(sections["counts"]))
    for changed, wanted in lengths.items():
        sections[changed] = np.resize(np.append(sections[changed], 0).astype(sections[changed].dtype), wanted)


def join_rows(parts: Parts, random: Random) -> None:
    """Let every block of rows begin at the same entry, or all rows be of one shape."""
    sections = parts[1]
    if random.random() < 0.5:
        sections["pointers"][:-POINTERS] = random.integers(len(sections["tokens"]) + 1)
    else:
        sections["heads"][:] = sections["heads"] & ~np.uint32(WIDE) | np.uint32(random.integers(WIDE + 1))


CHANGES: tuple[Callable[[Parts, Random], None], ...] = (
    *(change_header, repeat_a_token, disorder_a_row),
    *(change_numbers, change_numbers, fill, change_length, join_rows),
)


def crafted(real: list[Parts], random: Random) -> bytes:
    """Return a crafted table."""
    parts = deepcopy(pick(random, real))
    for _ in range(random.integers(0, 4)):
        pick(random, CHANGES)(parts, random)
    return write_parts(parts, random)


def in_separate_memory(columns: Columns) -> Columns:
    """Copy each array to its own memory of exactly its size, so that out-of-bounds reads are detected."""
    return replace(columns, **{name: getattr(columns, name).copy() for name in SECTION_DTYPES})


def query_results(query: Any, contexts: np.ndarray, random: Random) -> list[np.ndarray]:
    """Return the results of one query; check that the numbers make sense."""
    candidates = random.choice([-1, 0, 1, 2, 30, 49, 2**16 - 1, 2**31], size=int(pick(random, (0, 1, 1, 2, 60))))
    n = int(pick(random, (0, 1, 2, 20, 300)))
    likely = np.where(random.random(60) < pick(random, (0, 0.5, 1)), -1, random.integers(0, 9, 60) / 64)
    given = () if isinstance(query, Expected) else (contexts,)
    p, matched = query.probabilities(*given, candidates)
    ids = np.array(query.successors(*given, n))
    weights = EQUAL_WEIGHTS.repeat(len(query.pools), axis=0)
    both, p_f = query.mix_candidates(*given, likely.astype(np.float32), min(n, 60), weights)
    assert np.isfinite(p).all() and (p >= 0).all() and (p <= 1 + 1e-9).all() and np.isfinite(matched).all()
    assert (np.diff(ids) > 0).all() and (ids >= 0).all()
    assert np.isfinite(p_f).all() and (np.diff(both) > 0).all() and (both < 60).all()
    return [p, matched, ids, both, p_f]


def query_tables(library: ctypes.CDLL, tables: list[Table], sound: bool, random: Random) -> None:
    """Query several tables with the kernel; of valid ones of one vocabulary it says what dictionaries say."""
    columns = [in_separate_memory(table.columns) for table in tables]
    one_pool = random.random() < 0.5
    pools, weights = ([columns], [0.5]) if one_pool else ([[table] for table in columns], [0.3] * len(columns))
    compiled = Query(library, pools, weights)
    for seed in random.integers(2**32, size=2):
        contexts = CONTEXTS[random.integers(len(CONTEXTS), size=random.integers(0, 5)), random.integers(0, 8) :]
        results = query_results(compiled, contexts, np.random.default_rng(seed))
        known = (contexts < columns[0].vocab_size).all()  # of other ids some sums are those of known contexts
        if sound and known and len({one.vocab_size for one in columns}) == 1:
            expected = Expected(list(map(counted, pools)), weights, columns[0].vocab_size, contexts)
            for left, right in zip(
                results, query_results(expected, contexts, np.random.default_rng(seed)), strict=True
            ):
                assert left.shape == right.shape and (abs(left - right) <= 1e-12).all(), (left, right)


def run_case(library: ctypes.CDLL, real: list[Table], parts: list[Parts], path: Path, random: Random) -> str:
    """Return whether a crafted table was refused when opened, queried although invalid, or valid."""
    path.write_bytes(crafted(parts, random))
    try:
        table = Table.open(path)
    except UserError:
        return "refused"
    try:
        table.verify()
        sound = True
    except UserError:
        sound = False
    beside = [pick(random, real)] if random.random() < 0.5 else []
    with np.errstate(all="ignore"):
        query_tables(library, [table, *beside], sound, random)
    return "sound" if sound else "unsound"


def run_known_cases(library: ctypes.CDLL, table: Table) -> None:
    """Query what failed once: a narrow row that repeats one token; rows that begin beyond the last entry."""
    columns = in_separate_memory(table.columns)
    one_token = replace(columns, tokens=np.zeros_like(columns.tokens))
    beyond = replace(columns, pointers=columns.pointers + np.uint32(len(columns.tokens) + 1))
    for pool in ([one_token], [one_token] * 3, [beyond]):
        query = Query(library, [pool], [1.0])
        assert query.probabilities(np.array([[45], [1]]), np.array([0]))[0].max() <= 1
        nothing = query.mix_candidates(np.array([[45], [1]]), np.full(50, -1, np.float32), 1, EQUAL_WEIGHTS)
        assert nothing[1].shape == (2, 0)


def main(library: str, folder: str, seconds: str, seed: str, *case: str) -> None:
    """Run cases until the time is over, alternating between seed 0 and the given seed."""
    path, kernel, found = Path(folder, "crafted.ngt"), open_library(Path(library)), Counter[str]()
    files = real_tables(Path(folder))
    real, parts = [Table.open(file) for file in files], [read_parts(file) for file in files]
    run_known_cases(kernel, real[1])
    end = time.monotonic() + float(seconds)
    with Path(folder, "case").open("wb", buffering=0) as name:
        for number in (int(only) for only in case) if case else count():
            if time.monotonic() > end and not case:
                break
            source = int(seed) if case or number % 2 else 0
            name.seek(0)
            name.write(b"%d %d\n" % (source, number))
            found[run_case(kernel, real, parts, path, np.random.default_rng([source, number]))] += 1
    sys.stdout.write(f"survived {dict(sorted(found.items()))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
