"""A count cut into tasks that any number of machines do in any order, in four stages over one shared folder.

    digests   a shard of the files -> the digest of each document
    counts    a shard of the files -> the counts of the documents that no earlier one equals: a sorted run
    merge     a range of contexts of all runs -> their sum, pruned: a sorted run
    table     all ranges in order -> the table

A task knows its number and what lies in the folder, and replaces its results as a whole: one that was killed is
done again. In: a plan and lists of files. Out: the table that one process would write of them. Knows nothing of
what runs tasks. Files are raw arrays, as `external_merge` writes runs, and msgpack.

Dimensions: D distinct documents of a shard, G n-grams.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import Ints
from ngram_builders.build import DUPLICATE, keeps_texts
from ngram_builders.counting.external_merge import NgramCounter, check_token_count, merge_in_pieces
from ngram_builders.counting.memory import DEFAULT_MEMORY, MemoryLimits, share_memory
from ngram_builders.counting.stored_run import StoredRun, read_run, write_run
from ngram_builders.counting.tokenize import Encode
from ngram_builders.distributed.readers import CorpusDocument, read_documents
from ngram_builders.ngrams import order_shift, prune, stream
from ngram_builders.sources.masking import find_masked_lines
from ngram_builders.table.format import replace_file
from ngram_builders.table.order_weights import MAX_POSITIONS, measure_perplexity
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import SuffixArray, build_suffix_array
from ngram_builders.table.writer import write_table

Digests = npt.NDArray[np.bytes_]

STAGES = ("digests", "counts", "merge", "table")
TABLE = "table.ngt"
_PLAN = "plan.msgpack"
_DIGEST_BYTES = 16
_NUMBER_BYTES = 4
_BATCH_CHARACTERS = 1_000_000
_CHANGED = "changed during the build"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What all tasks have to know."""

    shards: int
    parts: int  # ranges of each order's contexts; a power of two
    orders: tuple[int, ...]
    min_count: Mapping[int, int]  # by order
    vocab_size: int
    end_of_text: int
    fingerprint: str  # of the tokenizer
    language: str | None
    skip_damaged: bool = False  # or damaged rows are an error

    def count_tasks(self, stage: str) -> int:
        """Return the number of tasks of a stage."""
        return {"merge": len(self.orders) * self.parts, "table": 1}.get(stage, self.shards)


def write_plan(work: Path, plan: Plan, shards: Sequence[Sequence[str]]) -> None:
    """Write the plan and each shard's paths to a folder, unless it has a plan.

    The folder is its owner's alone, also where all machines reach it: n-grams can be read back as code.
    """
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in ("shards", "results", "samples", "texts", *STAGES):
        (work / folder).mkdir(exist_ok=True)
    if (work / _PLAN).exists():
        return
    for rank, paths in enumerate(shards):
        _write_record(
            work / "shards" / _file_name(rank), [path.encode(errors="surrogateescape") for path in paths]
        )
    _write_record(work / _PLAN, asdict(plan))


def _read_plan(work: Path) -> Plan:
    """Read the plan of a folder."""
    fields = msgpack.unpackb((work / _PLAN).read_bytes(), strict_map_key=False)
    return Plan(**{**fields, "orders": tuple(fields["orders"])})


def run_task(
    stage: str, rank: int, work: Path, make_encode: Callable[[], Encode], memory: int = DEFAULT_MEMORY
) -> dict[str, Any]:
    """Run one task, and store and return its result; make_encode is called where texts are encoded."""
    limits = share_memory(memory)
    started = time.process_time()
    plan = _read_plan(work)
    if stage == "digests":
        result = _digest_shard(work, plan, rank)
    elif stage == "counts":
        result = _count_shard(work, plan, rank, make_encode(), limits)
    elif stage == "merge":
        result = _merge_range(work, plan, rank, limits)
    else:
        result = _write_table(work, plan, limits)
    result |= {"cpu": time.process_time() - started, "peak": peak_memory()}
    _write_record(work / "results" / f"{stage}-{_file_name(rank)}", result)
    return result


def peak_memory() -> int:
    """Return the most bytes that this process ever held; 0 where the system does not say."""
    with suppress(OSError, TypeError):
        # On Linux `getrusage` may give the peak of the process that started this one.
        peak = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(peak[1]) * 1024  # type: ignore[index]
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def read_stage_results(work: Path, stage: str) -> list[dict[str, Any]]:
    """Read the results of all tasks of a finished stage."""
    # By name: on a network file system the listing of a folder may be a minute old.
    ranks = range(_read_plan(work).count_tasks(stage))
    return [msgpack.unpackb((work / "results" / f"{stage}-{_file_name(rank)}").read_bytes()) for rank in ranks]


def _digest_shard(work: Path, plan: Plan, rank: int) -> dict[str, Any]:
    """First stage: store the digests of a shard's documents, and the number of the first of each."""
    skipped: Counter[str] = Counter()
    digests, numbers = [], []
    for number, document in enumerate(_read_shard(work, plan, rank)):
        if document.skip_reason is not None:
            skipped[document.skip_reason] += 1
        else:
            digests.append(document.digest)
            numbers.append(number)
    distinct, first = np.unique(np.array(digests, dtype=f"S{_DIGEST_BYTES}"), return_index=True)
    if len(distinct) < len(digests):
        skipped[DUPLICATE] += len(digests) - len(distinct)
    first_numbers = np.array(numbers, dtype="<u4")[first]
    replace_file(work / "digests" / _file_name(rank), [distinct.tobytes(), first_numbers.tobytes()])
    return {"skipped": dict(skipped)}


def _read_digests(work: Path, rank: int) -> tuple[Digests, npt.NDArray[np.uint32]]:
    """Read a shard's digests [D], sorted, and the numbers [D] of their first documents."""
    data = (work / "digests" / _file_name(rank)).read_bytes()
    length = len(data) // (_DIGEST_BYTES + _NUMBER_BYTES)
    digests = np.frombuffer(data, f"S{_DIGEST_BYTES}", length)
    return digests, np.frombuffer(data, "<u4", length, _DIGEST_BYTES * length)


def _find_new(work: Path, rank: int) -> tuple[dict[int, bytes], int]:
    """Return a shard's documents that are in no earlier shard, by number, and how many are in one."""
    digests, numbers = _read_digests(work, rank)
    new = np.ones(len(digests), dtype=bool)
    for earlier in range(rank):
        new &= ~np.isin(digests, _read_digests(work, earlier)[0], assume_unique=True)
    padded = (digest.ljust(_DIGEST_BYTES, b"\0") for digest in digests[new])
    return dict(zip(numbers[new].tolist(), padded, strict=True)), int((~new).sum())


def _count_shard(work: Path, plan: Plan, rank: int, encode: Encode, limits: MemoryLimits) -> dict[str, Any]:
    """Second stage: store the counts of a shard's new documents."""
    new, duplicates = _find_new(work, rank)
    languages: Counter[str] = Counter()
    files = masked = 0
    sample: dict[bytes, Ints] = {}
    texts: dict[bytes, Ints] = {}
    counter = NgramCounter(work / "counts", orders=plan.orders, vocab_size=plan.vocab_size, limits=limits)
    unchanged = (
        document
        for number, document in enumerate(_read_shard(work, plan, rank))
        if document.skip_reason is None and document.digest == new.get(number)
    )
    for batch in _batch(unchanged):
        ids = [stream(ids, plan.end_of_text) for ids in encode([document.text for document in batch])]
        counter.add(ids)
        streams = dict(zip((document.digest for document in batch), ids, strict=True))
        sample = _take_sample(sample | streams)
        texts = texts | streams if keeps_texts(counter.tokens, plan.min_count.values()) else {}
        files += len(batch)
        masked += sum(len(find_masked_lines(document.text)) for document in batch)
        languages.update(document.language for document in batch if document.language is not None)
    _write_streams(work / "samples" / _file_name(rank), sample)
    _write_streams(work / "texts" / _file_name(rank), texts)
    write_run(work / "counts" / _file_name(rank), counter.runs())
    skipped = {DUPLICATE: duplicates, _CHANGED: len(new) - files}
    return {
        "skipped": {reason: number for reason, number in skipped.items() if number},
        "files": files,
        "masked": masked,
        "tokens": counter.tokens,
        "languages": dict(languages),
    }


def _merge_range(work: Path, plan: Plan, rank: int, limits: MemoryLimits) -> dict[str, Any]:
    """Third stage: store the sum of all shards' counts over a range of contexts, pruned by the counts of all."""
    check_token_count(sum(result["tokens"] for result in read_stage_results(work, "counts")))
    order, part = plan.orders[rank // plan.parts], rank % plan.parts
    runs = [read_run(work / "counts" / _file_name(shard)) for shard in range(plan.shards)]
    ranges = [_select_range(run, order, part, plan) for run in runs]
    merged = merge_in_pieces(ranges, plan.vocab_size, limits.piece_records)
    pieces = (prune(piece, plan.min_count, plan.vocab_size) for piece in merged)
    write_run(work / "merge" / _file_name(rank), pieces)
    return {}


def _select_range(run: StoredRun, order: int, part: int, plan: Plan) -> StoredRun:
    """Select one range of a run; ranges differ in the upper bits of hashes, so no context is cut."""
    shift = order_shift(plan.vocab_size)
    width = 2**shift // plan.parts
    low = ((order - 2) << shift) + part * width
    return run.part(run.find(low), run.find(low + width))


def _write_table(work: Path, plan: Plan, limits: MemoryLimits) -> dict[str, Any]:
    """Last stage: write the table of all ranges."""
    counts = read_stage_results(work, "counts")
    tokens = sum(result["tokens"] for result in counts)
    ranges = (read_run(work / "merge" / _file_name(rank)) for rank in range(plan.count_tasks("merge")))
    write_table(
        work / TABLE,
        (piece for run in ranges for piece in merge_in_pieces([run], plan.vocab_size, limits.piece_records)),
        fingerprint=plan.fingerprint,
        vocab_size=plan.vocab_size,
        orders=plan.orders,
        min_count=plan.min_count,
        tokens=tokens,
        files=sum(result["files"] for result in counts),
        sources=sum((Counter(result["languages"]) for result in counts), Counter()),
        texts=_sort_texts(work, plan) if keeps_texts(tokens, plan.min_count.values()) else None,
    )
    sample = _take_sample(_read_streams(work, "samples", plan)).values()
    return {"perplexity": measure_perplexity(Table.open(work / TABLE).columns, sample, plan.orders)}


def _sort_texts(work: Path, plan: Plan) -> SuffixArray:
    """Return the suffix array of all texts, in the order of their digests."""
    streams = _read_streams(work, "texts", plan)
    return build_suffix_array(
        [streams[digest][1:-1] for digest in sorted(streams)], plan.end_of_text, plan.vocab_size
    )


def _take_sample(documents: Mapping[bytes, Ints]) -> dict[bytes, Ints]:
    """Return the documents with the lowest digests, enough to measure on: the same whatever the order of files."""
    sample: dict[bytes, Ints] = {}
    tokens = 0
    for digest in sorted(documents):
        if tokens >= MAX_POSITIONS:
            break
        sample[digest] = documents[digest]
        tokens += len(documents[digest]) - 1
    return sample


def _read_shard(work: Path, plan: Plan, rank: int) -> Iterator[CorpusDocument]:
    """Read the documents of a shard."""
    paths = msgpack.unpackb((work / "shards" / _file_name(rank)).read_bytes())
    names = (path.decode(errors="surrogateescape") for path in paths)
    yield from read_documents(names, plan.language, skip_damaged=plan.skip_damaged)


def _batch(documents: Iterator[CorpusDocument]) -> Iterator[list[CorpusDocument]]:
    """Group documents into batches to encode."""
    batch: list[CorpusDocument] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_streams(file: Path, streams: Mapping[bytes, Ints]) -> None:
    """Store the ids of documents by their digests."""
    _write_record(file, [(digest, ids.astype("<u4").tobytes()) for digest, ids in streams.items()])


def _read_streams(work: Path, folder: str, plan: Plan) -> dict[bytes, Ints]:
    """Read the ids of documents of all shards."""
    shards = [msgpack.unpackb((work / folder / _file_name(rank)).read_bytes()) for rank in range(plan.shards)]
    return {digest: np.frombuffer(data, "<u4").astype(np.int64) for shard in shards for digest, data in shard}


def _write_record(file: Path, record: object) -> None:
    """Replace a small msgpack file."""
    replace_file(file, [msgpack.packb(record)])


def _file_name(rank: int) -> str:
    """Return the name of a task's file."""
    return f"{rank:05d}"
