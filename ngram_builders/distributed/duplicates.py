"""Which documents of a shard are in an earlier one: the first two stages, in which no text is encoded.

Each task compares one range of digests of all shards, so that no digest is read twice.

Dimensions: D documents of a shard, N of all shards in a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import U64
from ngram_builders.distributed.plan import Plan, task_file
from ngram_builders.scratch import replace_file

_DIGEST_BYTES = 16
_ROW_BYTES = _DIGEST_BYTES + 4
_DUPLICATE = np.dtype([("shard", "<u4"), ("number", "<u4")])


class _Digests(NamedTuple):
    """Digests of a shard's documents, sorted, each once; in a file one array after the other."""

    high: U64  # [D] the first eight bytes
    low: U64  # [D] the others
    number: npt.NDArray[np.uint32]  # [D] of the document within the shard


def write_digests(work: Path, rank: int, digests: Sequence[bytes], numbers: Sequence[int]) -> int:
    """Store the digests of a shard's documents -> how many different ones there are."""
    halves = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64).reshape(-1, 2)
    high = halves[:, 0]
    low = halves[:, 1]
    number = np.array(numbers, dtype=np.uint32)
    order = np.lexsort((low, high))  # stable: of equal ones the first document comes first
    kept = order[~_equal_the_one_before(high[order], low[order])]
    columns = (column[kept].tobytes() for column in (high, low, number))
    replace_file(task_file(work, "digests", rank), columns)
    return len(kept)


def find_duplicates(work: Path, plan: Plan, rank: int, at_once: int) -> None:
    """Store which documents in one range of digests are in an earlier shard; `at_once` digests are in memory."""
    comparisons = plan.stages["duplicates"]
    size = sum(task_file(work, "digests", shard).stat().st_size for shard in range(plan.shards))
    steps = max(1, -(-size // (comparisons * at_once * _ROW_BYTES)))
    ranges = comparisons * steps
    found = [_compare(work, plan.shards, step, ranges) for step in range(rank * steps, (rank + 1) * steps)]
    rows = np.concatenate(found)
    rows = rows[np.argsort(rows["shard"], kind="stable")]
    ends = np.searchsorted(rows["shard"], np.arange(-1, plan.shards), side="right").astype("<i8")
    replace_file(task_file(work, "duplicates", rank), [ends.tobytes(), rows.tobytes()])


def find_new(work: Path, plan: Plan, rank: int) -> tuple[dict[int, bytes], int]:
    """Return a shard's documents that are in no earlier shard, by number, and how many are in one."""
    own = _read_digests(task_file(work, "digests", rank))
    files = (task_file(work, "duplicates", other) for other in range(plan.stages["duplicates"]))
    known = np.concatenate([_read_duplicates(file, plan.shards, rank) for file in files])
    new = ~np.isin(own.number, known)
    digests = np.stack((own.high[new], own.low[new]), axis=1).astype(">u8").tobytes()
    pieces = (digests[at : at + _DIGEST_BYTES] for at in range(0, len(digests), _DIGEST_BYTES))
    return dict(zip(own.number[new].tolist(), pieces, strict=True)), len(known)


def _compare(work: Path, shards: int, part: int, parts: int) -> npt.NDArray[np.void]:
    """Find the documents in one of equal ranges of digests that an earlier shard has, one file open at a time."""
    ranges = [_read_digests(task_file(work, "digests", shard), part, parts) for shard in range(shards)]
    high, low, number = (np.concatenate(columns) for columns in zip(*ranges, strict=True))
    owners = np.repeat(np.arange(shards), [len(one.high) for one in ranges])
    order = np.lexsort((low, high))  # stable: equal ones stay in the order of shards
    repeated = order[_equal_the_one_before(high[order], low[order])]
    found = np.empty(len(repeated), dtype=_DUPLICATE)
    found["shard"] = owners[repeated]
    found["number"] = number[repeated]
    return found


def _read_digests(file: Path, part: int = 0, parts: int = 1) -> _Digests:
    """Read those of a shard's digests that are in one of equal ranges."""
    length = file.stat().st_size // _ROW_BYTES
    if not length:
        return _Digests(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint32))
    data = np.memmap(file, np.uint8, "r")
    halves = data[: _DIGEST_BYTES * length].view(np.uint64)
    low, high = ((at << 64) // parts for at in (part, part + 1))
    start = int(np.searchsorted(halves[:length], np.uint64(low)))
    end = int(np.searchsorted(halves[:length], np.uint64(high - 1), side="right"))
    numbers = data[_DIGEST_BYTES * length :].view(np.uint32)
    return _Digests(
        np.array(halves[start:end]), np.array(halves[length + start : length + end]), np.array(numbers[start:end])
    )


def _read_duplicates(file: Path, shards: int, rank: int) -> npt.NDArray[np.uint32]:
    """Read the numbers of one shard's documents from the result of a comparison."""
    start, end = np.fromfile(file, "<i8", 2, offset=8 * rank).tolist()
    offset = 8 * (shards + 1) + start * _DUPLICATE.itemsize
    rows = np.fromfile(file, _DUPLICATE, end - start, offset=offset)
    return np.asarray(rows["number"])


def _equal_the_one_before(high: U64, low: U64) -> npt.NDArray[np.bool_]:
    """Which of some sorted digests equal the one before."""
    equal = np.zeros(len(high), dtype=bool)
    equal[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    return equal
