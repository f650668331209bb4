"""A count cut into tasks that any number of machines do in any order, in stages over one shared folder.

    digests     a shard of the files -> the digest of each document
    duplicates  a range of digests of all shards -> the documents that an earlier shard has
    counts      a shard of the files -> the counts of its other documents: a sorted run
    merge-1 ... a range of contexts of a group of runs -> their sum: a sorted run; in the last round pruned
    table       all ranges in order -> the table, or some of them -> one of its files if a file cannot hold all

A task knows its number and what lies in the folder, and replaces its results as a whole: one that was killed is
done again. No merge opens more files than the plan's fan-in, however many shards there are; more shards take more
rounds. In: a plan and lists of files. Out: the table that one
process would write of them. Knows nothing of what runs tasks. Files are raw arrays, as `stored_run` writes runs,
and msgpack.

Dimensions: G n-grams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.arrays import Ints
from ngram_builders.build import DUPLICATE
from ngram_builders.counting.external_merge import NgramCounter, merge_in_pieces
from ngram_builders.counting.memory import DEFAULT_MEMORY, MemoryLimits, share_memory
from ngram_builders.counting.stored_run import read_ranges, write_run
from ngram_builders.counting.tokenize import Encode
from ngram_builders.distributed.duplicates import find_duplicates, find_new, write_digests
from ngram_builders.distributed.plan import (
    Plan,
    read_plan,
    read_record,
    read_shard_paths,
    result_file,
    task_file,
    write_record,
)
from ngram_builders.distributed.readers import CorpusDocument, read_documents
from ngram_builders.ngrams import Run, prune, with_boundaries
from ngram_builders.sources.masking import find_masked_lines
from ngram_builders.table.order_weights import MAX_POSITIONS, measure_perplexity
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import SuffixArray, build_suffix_array
from ngram_builders.table.writer import write_table
from ngram_builders.table_update import keeps_texts

_BATCH_CHARACTERS = 1_000_000
_CHANGED = "changed during the build"


def run_task(
    stage: str, rank: int, work: Path, make_encode: Callable[[], Encode], memory: int = DEFAULT_MEMORY
) -> dict[str, Any]:
    """Run one task, and store and return its result; make_encode is called where texts are encoded."""
    plan = read_plan(work)
    limits = share_memory(memory)
    result: dict[str, Any] = {}
    if stage == "digests":
        result = _digest_shard(work, plan, rank)
    elif stage == "duplicates":
        find_duplicates(work, plan, rank, limits.piece_records)
    elif stage == "counts":
        result = _count_shard(work, plan, rank, make_encode(), limits)
    elif stage == "table":
        result = _write_table(work, plan, rank, limits)
    else:
        result = _merge(work, plan, [one.stage for one in plan.rounds].index(stage), rank, limits)
    write_record(result_file(work, stage, rank), result)
    return result


def _digest_shard(work: Path, plan: Plan, rank: int) -> dict[str, Any]:
    """Store the digests of a shard's documents."""
    skipped: Counter[str] = Counter()
    digests = []
    numbers = []
    for number, document in enumerate(read_documents(read_shard_paths(work, rank), plan.language)):
        if document.skip_reason is not None:
            skipped[document.skip_reason] += 1
        else:
            digests.append(document.digest)
            numbers.append(number)
    distinct = write_digests(work, rank, digests, numbers)
    if distinct < len(digests):
        skipped[DUPLICATE] += len(digests) - distinct
    return {"skipped": dict(skipped)}


def _count_shard(work: Path, plan: Plan, rank: int, encode: Encode, limits: MemoryLimits) -> dict[str, Any]:
    """Store the counts of a shard's new documents."""
    new, duplicates = find_new(work, plan, rank)
    languages: Counter[str] = Counter()
    files = masked = 0
    sample: dict[bytes, Ints] = {}
    texts: dict[bytes, Ints] = {}
    counter = NgramCounter(
        work / "counts", orders=plan.orders, vocab_size=plan.token_space.vocab_size, limits=limits
    )
    unchanged = (
        document
        for number, document in enumerate(read_documents(read_shard_paths(work, rank), plan.language))
        if document.skip_reason is None and document.digest == new.get(number)
    )
    for batch in _batch(unchanged):
        ids = [
            with_boundaries(ids, plan.token_space.end_of_text)
            for ids in encode([document.text for document in batch])
        ]
        counter.add(ids)
        streams = dict(zip((document.digest for document in batch), ids, strict=True))
        sample = _take_sample(sample | streams)
        texts = texts | streams if keeps_texts(counter.tokens, plan.min_count.values()) else {}
        files += len(batch)
        masked += sum(len(find_masked_lines(document.text)) for document in batch)
        languages.update(document.language for document in batch if document.language is not None)
    _write_texts(work, "counts", rank, sample, texts)
    write_run(task_file(work, "counts", rank), counter.runs(), plan.starts_of(0, rank))
    skipped = {DUPLICATE: duplicates, _CHANGED: len(new) - files}
    return {
        "skipped": {reason: number for reason, number in skipped.items() if number},
        "files": files,
        "masked": masked,
        "tokens": counter.tokens,
        "languages": dict(languages),
    }


def _merge(work: Path, plan: Plan, number: int, rank: int, limits: MemoryLimits) -> dict[str, Any]:
    """Store the sum of some groups' counts over a range of contexts; pruned once that is the sum of all."""
    before, now = plan.rounds[number - 1 : number + 1]
    group, part = divmod(rank, now.parts)
    groups = range(plan.fan_in * group, min(plan.fan_in * (group + 1), before.groups))
    each = now.parts // before.parts  # ranges of an order in one file
    files = [read_ranges(task_file(work, before.stage, one * before.parts + part // each)) for one in groups]
    facts = {} if part else _gather(work, plan, number, groups)

    def merged() -> Iterator[Run]:
        for ranges in list(zip(*files, strict=True))[part % each :: each]:
            yield from merge_in_pieces(ranges, plan.token_space.vocab_size, limits.piece_records)

    pieces = (
        (prune(piece, plan.min_count, plan.token_space.vocab_size) for piece in merged())
        if now.groups == 1
        else merged()
    )
    entries = write_run(task_file(work, now.stage, rank), pieces, plan.starts_of(number, rank))
    return {**facts, "entries": entries}


def _gather(work: Path, plan: Plan, number: int, groups: range) -> dict[str, Any]:
    """Add up what else is known of some groups, and store their sample and their texts."""
    before, now = plan.rounds[number - 1 : number + 1]
    ranks = [group * before.parts for group in groups]
    results = [read_record(result_file(work, before.stage, rank)) for rank in ranks]
    tokens = sum(result["tokens"] for result in results)
    sample: dict[bytes, Ints] = {}
    texts: dict[bytes, Ints] = {}
    for rank in ranks:
        more = _read_texts(work, before.stage, rank)
        sample = _take_sample(sample | more[0])
        texts = texts | more[1] if keeps_texts(tokens, plan.min_count.values()) else {}
    _write_texts(work, now.stage, groups[0] // plan.fan_in * now.parts, sample, texts)
    return {
        "tokens": tokens,
        "files": sum(result["files"] for result in results),
        "languages": dict(sum((Counter(result["languages"]) for result in results), Counter())),
    }


def _write_table(work: Path, plan: Plan, rank: int, limits: MemoryLimits) -> dict[str, Any]:
    """Write the table of all ranges, or one of its files: they share the ranges among them."""
    last = plan.rounds[-1]
    facts = read_record(result_file(work, last.stage, 0))
    files = plan.count_files(facts["entries"])
    if rank >= files:
        return {"files": files, "perplexity": {}}
    sample, texts = _read_texts(work, last.stage, 0)
    is_searched = files == 1 and keeps_texts(facts["tokens"], plan.min_count.values())

    def pieces() -> Iterator[Run]:
        for number in range(len(plan.orders)):
            for part in range(rank * last.parts // files, (rank + 1) * last.parts // files):
                run = read_ranges(task_file(work, last.stage, part))[number]  # one file is open at a time
                yield from merge_in_pieces([run], plan.token_space.vocab_size, limits.piece_records)

    path = table_path(work, rank)
    write_table(
        path,
        pieces(),
        fingerprint=plan.token_space.fingerprint,
        vocab_size=plan.token_space.vocab_size,
        orders=plan.orders,
        min_count=plan.min_count,
        tokens=facts["tokens"],
        files=facts["files"],
        sources=facts["languages"],
        texts=_sort_texts(texts, plan) if is_searched else None,
    )
    streams = sample.values() if files == 1 else ()  # one file alone would predict little
    table = Table.open(path)
    perplexity = measure_perplexity(table.columns, streams, plan.orders, release=table.release_pages)
    return {"files": files, "perplexity": perplexity}


def table_path(work: Path, rank: int) -> Path:
    """One of the table's files."""
    return work / f"table-{rank:05d}.ngt"


def _sort_texts(texts: Mapping[bytes, Ints], plan: Plan) -> SuffixArray:
    """Return the suffix array of all texts, in the order of their digests."""
    in_order = [texts[digest][1:-1] for digest in sorted(texts)]
    return build_suffix_array(in_order, plan.token_space.end_of_text, plan.token_space.vocab_size)


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


def _batch(documents: Iterator[CorpusDocument]) -> Iterator[list[CorpusDocument]]:
    """Group documents into batches to encode."""
    batch: list[CorpusDocument] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= _BATCH_CHARACTERS:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


def _write_texts(
    work: Path, stage: str, rank: int, sample: Mapping[bytes, Ints], texts: Mapping[bytes, Ints]
) -> None:
    """Store the ids of a sample of a group's documents, and of all of them if they are few, by their digests."""
    streams = [[(digest, ids.astype("<u4").tobytes()) for digest, ids in some.items()] for some in (sample, texts)]
    write_record(_texts_file(work, stage, rank), streams)


def _read_texts(work: Path, stage: str, rank: int) -> tuple[dict[bytes, Ints], dict[bytes, Ints]]:
    """Read what `_write_texts` stored."""
    sample, texts = read_record(_texts_file(work, stage, rank))
    return _unpack(sample), _unpack(texts)


def _unpack(streams: list[tuple[bytes, bytes]]) -> dict[bytes, Ints]:
    return {digest: np.frombuffer(data, "<u4").astype(np.int64) for digest, data in streams}


def _texts_file(work: Path, stage: str, rank: int) -> Path:
    return work / "texts" / f"{stage}-{rank:05d}"
