"""A count cut into tasks that any number of machines do in any order, in four stages over one shared folder.

    digests   a shard of the files -> the digest of each document
    counts    a shard of the files -> the counts of those documents that no earlier one equals: a sorted run
    merge     a range of contexts of all runs -> their sum, pruned: a sorted run
    table     all ranges in order -> the table

A task knows its number and what lies in the folder, and replaces its results as a whole: one that was killed is
done again. Comes in: a plan and lists of files. Goes out: the same table as one process would write of them. Knows
no engine that runs tasks. Files are raw arrays, as `spill` writes runs, and msgpack.

Dimensions: D distinct documents of a shard, G n-grams.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import Ints
from ngram_builders.counting.external_merge import Counter as TokenCounter
from ngram_builders.counting.external_merge import merged, read_run
from ngram_builders.distributed.readers import Document, documents
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDER_SHIFT, Run, prune, stream
from ngram_builders.sources.masking import find_masked_lines
from ngram_builders.table.format import replace_file
from ngram_builders.table.order_weights import MAX_POSITIONS, measure_perplexity
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import write_table

Encode = Callable[[Sequence[str]], Iterable[Sequence[int]]]
Digests = npt.NDArray[np.bytes_]

STAGES = ("digests", "counts", "merge", "table")
TABLE = "table.ngt"
_PLAN = "plan.msgpack"
_DIGEST_BYTES = 16
_PLACE_BYTES = 4
_BATCH_CHARACTERS = 1_000_000
MOST_TOKENS = 2**31  # what a count can reach
_DUPLICATE = "duplicate"
CHANGED = "changed during the build"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What all tasks have to know."""

    shards: int
    parts: int  # ranges of each order's contexts; a power of two
    orders: tuple[int, ...]
    min_count: Mapping[int, int]  # order -> least count
    vocab_size: int
    end_of_text: int
    fingerprint: str  # of the tokenizer
    language: str | None

    def tasks(self, stage: str) -> int:
        """How many tasks a stage has."""
        return {"merge": len(self.orders) * self.parts, "table": 1}.get(stage, self.shards)


def prepare(work: Path, plan: Plan, shards: Sequence[Sequence[str]]) -> None:
    """Lay down the plan and what each shard holds; a folder that has them keeps them.

    It is its owner's alone, also where all machines reach it: n-grams can be read as the code that they count.
    """
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in ("shards", "facts", "samples", *STAGES):
        (work / folder).mkdir(exist_ok=True)
    if (work / _PLAN).exists():
        return
    for rank, paths in enumerate(shards):
        _write_record(work / "shards" / name(rank), [path.encode(errors="surrogateescape") for path in paths])
    _write_record(work / _PLAN, asdict(plan))


def _read_plan(work: Path) -> Plan:
    """The plan of a folder."""
    facts = msgpack.unpackb((work / _PLAN).read_bytes(), strict_map_key=False)
    return Plan(**{**facts, "orders": tuple(facts["orders"])})


def work_on(stage: str, rank: int, work: Path, make_encode: Callable[[], Encode]) -> dict[str, Any]:
    """Do one task, and keep and return what it found; make_encode is called where texts are to be encoded."""
    started = time.process_time()
    plan = _read_plan(work)
    if stage == "digests":
        facts = _note_digests(work, plan, rank)
    elif stage == "counts":
        facts = _count_shard(work, plan, rank, make_encode())
    elif stage == "merge":
        facts = _merge_range(work, plan, rank)
    else:
        facts = _put_together(work, plan)
    facts |= {"cpu": time.process_time() - started, "peak": peak_memory()}
    _write_record(work / "facts" / f"{stage}-{name(rank)}", facts)
    return facts


def peak_memory() -> int:
    """The most bytes this process ever held; 0 where the system does not say."""
    with suppress(OSError, TypeError):
        # What `getrusage` says on Linux may be what the process that started this one held.
        told = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(told[1]) * 1024  # type: ignore[index]
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def facts_of(work: Path, stage: str) -> list[dict[str, Any]]:
    """What each task of a finished stage found."""
    # By name: on a network file system the list of a folder may be a minute old.
    files = [work / "facts" / f"{stage}-{name(rank)}" for rank in range(_read_plan(work).tasks(stage))]
    return [msgpack.unpackb(file.read_bytes()) for file in files]


def _note_digests(work: Path, plan: Plan, rank: int) -> dict[str, Any]:
    """First stage: which documents a shard holds."""
    left_out: Counter[str] = Counter()
    digests, places = [], []
    for place, document in enumerate(_shard(work, plan, rank)):
        if document.fault is not None:
            left_out[document.fault] += 1
            continue
        digests.append(document.digest)
        places.append(place)
    distinct, first = np.unique(np.array(digests, dtype=f"S{_DIGEST_BYTES}"), return_index=True)
    if len(distinct) < len(digests):
        left_out[_DUPLICATE] += len(digests) - len(distinct)
    own = np.array(places, dtype="<u4")[first]
    replace_file(work / "digests" / name(rank), [distinct.tobytes(), own.tobytes()])
    return {"left_out": dict(left_out), "documents": len(distinct)}


def _read_digests(work: Path, rank: int) -> tuple[Digests, npt.NDArray[np.uint32]]:
    """A shard's digests [D], sorted, and the places [D] of their first documents."""
    data = (work / "digests" / name(rank)).read_bytes()
    length = len(data) // (_DIGEST_BYTES + _PLACE_BYTES)
    digests = np.frombuffer(data, f"S{_DIGEST_BYTES}", length)
    return digests, np.frombuffer(data, "<u4", length, _DIGEST_BYTES * length)


def _first_places(work: Path, rank: int) -> dict[int, bytes]:
    """The places of a shard's documents that no document before equals, in this shard or an earlier one."""
    own, places = _read_digests(work, rank)
    new = np.ones(len(own), dtype=bool)
    for earlier in range(rank):
        new &= ~np.isin(own, _read_digests(work, earlier)[0], assume_unique=True)
    return {
        int(place): digest.ljust(_DIGEST_BYTES, b"\0") for place, digest in zip(places[new], own[new], strict=True)
    }


def _count_shard(work: Path, plan: Plan, rank: int, encode: Encode) -> dict[str, Any]:
    """Second stage: the counts of a shard's documents."""
    wanted = _first_places(work, rank)
    noted = len(_read_digests(work, rank)[0])
    languages: Counter[str] = Counter()
    files = masked = 0
    sample = Sample(MAX_POSITIONS)
    digests: deque[bytes] = deque()  # of texts on their way to being counted

    def texts() -> Iterator[str]:
        nonlocal files, masked
        for place, document in enumerate(_shard(work, plan, rank)):
            if place in wanted and document.fault is None and document.digest == wanted[place]:
                files += 1
                masked += len(find_masked_lines(document.text))
                if document.language is not None:
                    languages[document.language] += 1
                digests.append(document.digest)
                yield document.text

    counter = TokenCounter(work / "counts", orders=plan.orders, vocab_size=plan.vocab_size)
    for ids in streams(texts(), encode, plan.end_of_text):
        sample.add(digests.popleft(), ids)
        counter.add([ids])
    _write_record(work / "samples" / name(rank), sample.kept())
    ngrams = write_pieces(work / "counts" / name(rank), counter.runs())
    left_out = {_DUPLICATE: noted - len(wanted), CHANGED: len(wanted) - files}
    return {
        "left_out": {reason: number for reason, number in left_out.items() if number},
        "files": files,
        "masked": masked,
        "tokens": counter.tokens,
        "ngrams": ngrams,
        "languages": dict(languages),
    }


def _merge_range(work: Path, plan: Plan, rank: int) -> dict[str, Any]:
    """Third stage: the sum of all shards' counts over a range of contexts, without what is too rare in all."""
    tokens = sum(facts["tokens"] for facts in facts_of(work, "counts"))
    if tokens >= MOST_TOKENS:
        raise UserError(f"expected fewer than 2^31 tokens, found {tokens:,}; build several smaller domains")
    order, part = plan.orders[rank // plan.parts], rank % plan.parts
    runs = [
        _within(read_run(work / "counts" / name(shard)), order, part, plan.parts) for shard in range(plan.shards)
    ]
    pieces = (prune(piece, plan.min_count, plan.vocab_size) for piece in merged(runs, plan.vocab_size))
    return {"ngrams": write_pieces(work / "merge" / name(rank), pieces), "read": sum(map(len, runs))}


def _within(run: Run, order: int, part: int, parts: int) -> Run:
    """What a run holds of one range; ranges differ in the upper bits of hashes, so that no context is cut."""
    width = 2**ORDER_SHIFT // parts
    low = ((order - 2) << ORDER_SHIFT) + part * width
    start = int(np.searchsorted(run.records, np.uint64(low)))
    end = int(np.searchsorted(run.records, np.uint64(low + width - 1), side="right"))
    return Run(run.records[start:end], run.counts[start:end])


def _put_together(work: Path, plan: Plan) -> dict[str, Any]:
    """Last stage: the table of all ranges."""
    counted = facts_of(work, "counts")
    ranges = (read_run(work / "merge" / name(rank)) for rank in range(plan.tasks("merge")))
    summary = write_table(
        work / TABLE,
        (piece for run in ranges for piece in merged([run], plan.vocab_size)),
        fingerprint=plan.fingerprint,
        vocab_size=plan.vocab_size,
        orders=plan.orders,
        min_count=plan.min_count,
        tokens=sum(facts["tokens"] for facts in counted),
        files=sum(facts["files"] for facts in counted),
        sources=sum((Counter(facts["languages"]) for facts in counted), Counter()),
    )
    perplexity = measure_perplexity(Table.open(work / TABLE).columns, _samples(work, plan), plan.orders)
    return {"ngrams": summary.ngrams, "bytes": summary.size, "perplexity": perplexity}


class Sample:
    """The documents with the lowest digests, as many as have enough places: files in any order give the same."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.documents: dict[bytes, Ints] = {}

    def add(self, digest: bytes, ids: Ints) -> None:
        """Offer a document."""
        self.documents[digest] = ids
        if sum(map(len, self.documents.values())) > 4 * self.places:
            self.documents = dict(self.lowest())

    def lowest(self) -> Iterator[tuple[bytes, Ints]]:
        """What is needed of what was offered, lowest digest first."""
        told = 0
        for digest, ids in sorted(self.documents.items(), key=lambda document: document[0]):
            if told >= self.places:
                return
            yield digest, ids
            told += len(ids) - 1

    def kept(self) -> list[tuple[bytes, bytes]]:
        """What is needed, for a file."""
        return [(digest, ids.astype("<u4").tobytes()) for digest, ids in self.lowest()]


def _samples(work: Path, plan: Plan) -> Iterator[Ints]:
    """The documents with the lowest digests of all shards."""
    sample = Sample(MAX_POSITIONS)
    for rank in range(plan.shards):
        for digest, data in msgpack.unpackb((work / "samples" / name(rank)).read_bytes()):
            sample.add(digest, np.frombuffer(data, "<u4").astype(np.int64))
    yield from (ids for _, ids in sample.lowest())


def _shard(work: Path, plan: Plan, rank: int) -> Iterator[Document]:
    """The documents of a shard."""
    paths = msgpack.unpackb((work / "shards" / name(rank)).read_bytes())
    yield from documents((path.decode(errors="surrogateescape") for path in paths), plan.language)


def streams(texts: Iterable[str], encode: Encode, end_of_text: int) -> Iterator[Ints]:
    """Each text's ids as they are counted, encoded in batches."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_CHARACTERS:
            yield from (stream(ids, end_of_text) for ids in encode(batch))
            batch, size = [], 0
    if batch:
        yield from (stream(ids, end_of_text) for ids in encode(batch))


def write_pieces(path: Path, pieces: Iterable[Run]) -> int:
    """Put sorted pieces into one file, as `read_run` takes it, one in memory at a time; -> how many n-grams."""
    with tempfile.TemporaryFile(dir=path.parent, prefix=".counts") as counts:
        length = 0

        def parts() -> Iterator[bytes | memoryview]:
            nonlocal length
            for piece in pieces:
                length += len(piece)
                counts.write(piece.counts.data)
                yield piece.records.data
            counts.seek(0)
            while chunk := counts.read(1 << 22):
                yield chunk

        replace_file(path, parts())
    return length


def _write_record(file: Path, record: object) -> None:
    """Replace a small msgpack file."""
    replace_file(file, [msgpack.packb(record)])


def name(rank: int) -> str:
    """The name of a task's file."""
    return f"{rank:05d}"
