"""Token streams -> counts of every n-gram, one sorted set per order. Knows ids, not text, files or formats.

An n-gram is a context of n - 1 tokens and the token after it. It is kept as one 64-bit record: the
context's hash in the upper bits, the token in the lower `token_bits`. Sorting records therefore groups
contexts and orders their tokens, and equal records are equal n-grams: counting is sort and run-length,
merging is the same again on sorted runs. With 48 hash bits (vocabularies up to 65,536) the chance that any
two of a million contexts share a hash is 0.2 %, of ten million 16 %; such a pair counts as one context.

Dimensions: B tokens of a block, G distinct n-grams, R distinct contexts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ngram_builders.errors import UserError

__all__ = ["ORDERS", "Contexts", "Counts", "Run", "count", "group", "hash_bits", "hash_contexts", "merge"]

Ids = npt.NDArray[np.integer]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

ORDERS = (2, 3, 4, 5, 6)
HIGHEST_ORDER = 9
BLOCK_TOKENS = 8_000_000


def multiplier(place: int) -> int:
    """The odd 64-bit factor of the token `place` steps before the next one (splitmix64 of the place)."""
    z = (place * 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return (z ^ (z >> 31)) | 1


MULTIPLIERS: U64 = np.array([multiplier(place) for place in range(1, HIGHEST_ORDER)], dtype=np.uint64)
MULTIPLIERS.setflags(write=False)


@dataclass(frozen=True, slots=True)
class Run:
    """Distinct n-grams of one order with their counts, sorted. Runs of any blocks merge to the same run."""

    records: U64  # [G] context hash << token_bits | token
    counts: U32  # [G]


@dataclass(frozen=True, kw_only=True, slots=True)
class Contexts:
    """One order's counts by context: the entries of context r are tokens[pointers[r]:pointers[r + 1]]."""

    order: int
    keys: U64  # [R] sorted context hashes
    pointers: npt.NDArray[np.int64]  # [R + 1]
    tokens: U32  # [G] sorted within a context
    counts: U32  # [G]
    totals: U32  # [R] all that followed the context, pruned entries included


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What was counted, order by order, and of how much text."""

    vocab_size: int
    tokens: int
    documents: int
    min_count: tuple[int, ...]  # one per order
    by_order: tuple[Contexts, ...]


def count(
    documents: Iterable[Ids],
    *,
    end_of_text: int,
    vocab_size: int,
    orders: Sequence[int] = ORDERS,
    min_count: int | Mapping[int, int] = 1,
    block_tokens: int = BLOCK_TOKENS,
) -> Counts:
    """Count every n-gram of every document; n-grams do not reach from one document into the next.

    The caller has ended each document with end_of_text; here it also stands once before each document, as
    context only, so that the table knows how files begin. min_count drops rarer n-grams, for all orders or as
    {order: least}; totals still include them.
    Example: documents=[[5, 7, 0]], end_of_text=0, orders=(2,) -> 0 5: 1, 5 7: 1, 7 0: 1.
    """
    orders = check_orders(orders)
    bits = token_bits(vocab_size)
    pending: dict[int, list[Run]] = {order: [] for order in orders}
    tokens = files = 0
    for block in blocks(documents, end_of_text, block_tokens):
        check_ids(block, 2**bits)
        tokens += sum(len(document) - 1 for document in block)
        files += len(block)
        for order, records in block_records(block, orders, bits):
            push(pending[order], run_of(records))
    if tokens >= 2**32:
        raise UserError(f"expected fewer than 2^32 tokens, found {tokens:,}; build several smaller domains")
    least = [min_count if isinstance(min_count, int) else min_count.get(order, 1) for order in orders]
    return Counts(
        vocab_size=vocab_size,
        tokens=tokens,
        documents=files,
        min_count=tuple(least),
        by_order=tuple(
            group(order, flatten(pending.pop(order)), bits, at_least)
            for order, at_least in zip(orders, least, strict=True)
        ),
    )


def check_orders(orders: Sequence[int]) -> tuple[int, ...]:
    """The orders, ascending and each once."""
    chosen = tuple(sorted(set(orders)))
    if not chosen or chosen[0] < 2 or chosen[-1] > HIGHEST_ORDER:
        raise UserError(f"expected n-gram orders from 2 to {HIGHEST_ORDER}, found {orders}; choose of those")
    return chosen


def token_bits(vocab_size: int) -> int:
    """How many low bits of a record hold the token."""
    return max(16, (vocab_size - 1).bit_length())


def hash_bits(vocab_size: int) -> int:
    """How many bits of a context's hash are kept: what a record has left."""
    return 64 - token_bits(vocab_size)


def mix(values: U64) -> U64:
    """Spread every input bit over all 64 output bits, in place (the finaliser of MurmurHash3)."""
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
    return values


def hash_contexts(latest_first: Ids, vocab_size: int) -> U64:
    """Hash the contexts of 1, 2, 3 ... tokens that end at one place: [..., L] ids, nearest first -> [..., L].

    The same numbers as counting gives; contexts that contain an id of -1 mean nothing.
    """
    weighted = latest_first.astype(np.uint64) + np.uint64(1)
    weighted *= MULTIPLIERS[: latest_first.shape[-1]]
    sums: U64 = np.cumsum(weighted, axis=-1, dtype=np.uint64)
    hashes: U64 = mix(sums) >> np.uint64(token_bits(vocab_size))
    return hashes


def blocks(documents: Iterable[Ids], end_of_text: int, block_tokens: int) -> Iterator[list[Ids]]:
    """Whole documents, end_of_text before each, gathered to about block_tokens; empty ones are dropped."""
    block: list[Ids] = []
    size = 0
    for document in documents:
        if len(document) == 0:
            continue
        block.append(np.concatenate(([end_of_text], document)).astype(np.int64, copy=False))
        size += len(document)
        if size >= block_tokens:
            yield block
            block, size = [], 0
    if block:
        yield block


def check_ids(block: Sequence[Ids], room: int) -> None:
    """Refuse ids that the records cannot hold. Ids beyond vocab_size alone are fine: vocabularies have holes."""
    lowest = min(int(document.min()) for document in block)
    highest = max(int(document.max()) for document in block)
    if lowest < 0 or highest >= room:
        wrong = lowest if lowest < 0 else highest
        raise UserError(
            f"expected token ids from 0 to {room - 1}, found {wrong}; "
            "give the size of the tokenizer's whole vocabulary, added tokens included"
        )


def block_records(block: Sequence[Ids], orders: Sequence[int], bits: int) -> Iterator[tuple[int, U64]]:
    """Each order with the records of all its n-grams in the block, unsorted."""
    ids = np.concatenate(block).astype(np.uint64)  # [B]
    lengths = np.array([len(document) for document in block])
    starts = np.cumsum(lengths) - lengths
    position = np.arange(len(ids)) - np.repeat(starts, lengths)  # [B] within the document
    above = np.uint64(bits)
    context = np.zeros(len(ids), dtype=np.uint64)  # [B] grows by one token per order
    for order in range(2, orders[-1] + 1):
        back = order - 1
        context[back:] += (ids[:-back] + np.uint64(1)) * MULTIPLIERS[back - 1]
        if order in orders:
            whole = position >= back  # the window lies within one document
            yield order, ((mix(context[whole]) >> above) << above) | ids[whole]


def run_of(records: U64) -> Run:
    """Sort and count records."""
    records.sort()
    starts = group_starts(records)
    return Run(records[starts], np.diff(starts, append=len(records)).astype(np.uint32))


def group_starts(ordered: U64) -> npt.NDArray[np.intp]:
    """Where each run of equal values begins. Example: [4, 4, 9] -> [0, 2]"""
    changes = np.empty(len(ordered), dtype=bool)
    changes[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def merge(first: Run, second: Run) -> Run:
    """Add up two runs of one order."""
    records = np.concatenate((first.records, second.records))
    # A stable sort sees two sorted runs and merges them in one pass.
    order = np.argsort(records, kind="stable")
    records = records[order]
    counts = np.concatenate((first.counts, second.counts))[order]
    starts = group_starts(records)
    # Without a dtype reduceat would widen the counts to 64 bits.
    return Run(records[starts], np.add.reduceat(counts, starts, dtype=np.uint32) if len(starts) else counts)


def push(pending: list[Run], run: Run) -> None:
    """Append a run and merge neighbours of like size, so that an n-gram is merged only log(blocks) times."""
    pending.append(run)
    while len(pending) > 1 and len(pending[-2].records) < 2 * len(pending[-1].records):
        last = pending.pop()
        pending[-1] = merge(pending[-1], last)


def flatten(pending: list[Run]) -> Run:
    """Merge what is left into one run."""
    whole = Run(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint32))
    while pending:
        whole = merge(pending.pop(), whole)
    return whole


def group(order: int, run: Run, bits: int, min_count: int = 1) -> Contexts:
    """Lay one order's run out by context; n-grams rarer than min_count go, the totals still include them."""
    context = run.records >> np.uint64(bits)  # [G]
    starts = group_starts(context)
    keys = context[starts]
    totals = np.add.reduceat(run.counts, starts, dtype=np.uint32) if len(starts) else run.counts
    widths = np.diff(starts, append=len(context))
    tokens = (run.records & np.uint64(2**bits - 1)).astype(np.uint32)
    counts = run.counts
    if min_count > 1:
        kept = counts >= min_count
        widths = np.add.reduceat(kept, starts, dtype=np.int64) if len(starts) else widths
        tokens, counts = tokens[kept], counts[kept]
        keys, totals, widths = keys[widths > 0], totals[widths > 0], widths[widths > 0]
    pointers = np.concatenate(([0], np.cumsum(widths))).astype(np.int64)
    return Contexts(order=order, keys=keys, pointers=pointers, tokens=tokens, counts=counts, totals=totals)
