"""Repositories -> files -> tokens -> counts -> table -> registry. The encoder is passed in: knows no tokenizer."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.counts import ORDERS, check_orders, stream
from ngram_builders.errors import UserError
from ngram_builders.files import UNREADABLE, akin, language_of, survey
from ngram_builders.registry import Domain, Registry, check_name
from ngram_builders.sources import source_of
from ngram_builders.spill import Counter as TokenCounter
from ngram_builders.tables import TableSummary
from ngram_builders.writer import write_table as write_file

__all__ = ["Summary", "build", "write_table"]

Encode = Callable[[Sequence[str]], Iterable[Sequence[int]]]
Report = Callable[[str, int, int], None]

BATCH_FILES = 64
BATCH_CHARACTERS = 1_000_000
DUPLICATE = "duplicate"
OTHER_LANGUAGE = "other language"


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """What a build counted, what it left out by reason, and where the table is."""

    domain: str
    files: int
    tokens: int
    ngrams: int
    bytes: int
    seconds: float
    left_out: dict[str, int]
    path: Path


def silent(stage: str, done: int, total: int) -> None:
    """Report to nobody."""


def build(
    roots: Sequence[Path],
    domain: str | None,
    encode: Encode,
    *,
    end_of_text: int,
    fingerprint: str,
    vocab_size: int,
    registry: Registry,
    orders: Sequence[int] = ORDERS,
    min_count: int | Mapping[int, int] = 1,
    language: str | None = None,
    report: Report = silent,
) -> Summary:
    """Count the sources of some repositories and install their table; without a domain the folder's name is used.

    encode turns texts into ids without end_of_text. The same files give the same table, byte for byte.
    """
    started = time.perf_counter()
    left_out: Counter[str] = Counter()
    sources = gather(roots, language, left_out, report)
    if not sources:
        raise nothing_found(roots, left_out)
    name = default_name(roots, registry) if domain is None else check_name(domain)
    write_sources = partial(
        write_table,
        sources,
        encode=encode,
        end_of_text=end_of_text,
        fingerprint=fingerprint,
        vocab_size=vocab_size,
        orders=orders,
        min_count=min_count,
        left_out=left_out,
        report=report,
    )
    return summarise(registry.install(name, write_sources, roots=roots), time.perf_counter() - started, left_out)


def summarise(domain: Domain, seconds: float, left_out: Counter[str]) -> Summary:
    """What a build tells its caller."""
    return Summary(
        domain=domain.name,
        files=domain.files,
        tokens=domain.tokens,
        ngrams=domain.ngrams,
        bytes=domain.size,
        seconds=seconds,
        left_out=dict(sorted(left_out.items())),
        path=domain.path,
    )


def write_table(
    files: Sequence[Path],
    path: Path,
    encode: Encode,
    *,
    end_of_text: int,
    fingerprint: str,
    vocab_size: int,
    orders: Sequence[int] = ORDERS,
    min_count: int | Mapping[int, int] = 1,
    left_out: Counter[str] | None = None,
    report: Report = silent,
) -> TableSummary:
    """Count these files into a table at path. Those that cannot be read are added to left_out by reason."""
    left_out = Counter() if left_out is None else left_out
    languages: Counter[str] = Counter()
    texts = read_texts(files, left_out, languages, report)
    orders = check_orders(orders)
    counter = TokenCounter(path.parent, orders=orders, vocab_size=vocab_size)
    counter.add(tokenise(texts, encode, end_of_text))
    if not counter.tokens:
        raise nothing_found([path.parent for path in files[:1]], left_out)
    report("write", 0, 1)
    summary = write_file(
        path,
        counter.runs(),
        fingerprint=fingerprint,
        vocab_size=vocab_size,
        orders=orders,
        min_count=dict.fromkeys(orders, min_count) if isinstance(min_count, int) else min_count,
        tokens=counter.tokens,
        files=sum(languages.values()),
        sources=languages,
    )
    report("write", 1, 1)
    return summary


def gather(roots: Sequence[Path], language: str | None, left_out: Counter[str], report: Report) -> list[Path]:
    """The sources of all roots, each once; the rest is added to left_out by reason."""
    sources: dict[Path, None] = {}
    for done, root in enumerate(roots):
        report("survey", done, len(roots))
        found = survey(root)
        for path in found.sources:
            fault = source_of(str(path))[1]
            if fault is None:
                sources[path] = None
            else:
                left_out[fault] += 1
        left_out.update(found.reasons())
    report("survey", len(roots), len(roots))
    wanted = [path for path in sources if language is None or language_of(path) in akin(language)]
    if len(wanted) < len(sources):
        left_out[OTHER_LANGUAGE] += len(sources) - len(wanted)
    return wanted


def read_texts(
    files: Sequence[Path], left_out: Counter[str], languages: Counter[str], report: Report
) -> Iterator[str]:
    """The text of each file as an editor holds it; copies of a file and what cannot be read are left out."""
    known: set[bytes] = set()
    for done, file in enumerate(files):
        report("tokens", done, len(files))
        try:
            data = file.read_bytes()
            text = data.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):  # it was fine in the survey, and has changed since
            left_out[UNREADABLE] += 1
            continue
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest in known:
            left_out[DUPLICATE] += 1
            continue
        known.add(digest)
        languages[language_of(file) or "other"] += 1
        yield text
    report("tokens", len(files), len(files))


def tokenise(texts: Iterable[str], encode: Encode, end_of_text: int) -> Iterator[npt.NDArray[np.int64]]:
    """Each text's ids, as they are counted."""
    for batch in batches(texts):
        for ids in encode(batch):
            yield stream(ids, end_of_text)


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in batches that keep an encoder's threads busy and its memory small."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == BATCH_FILES or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def nothing_found(roots: Sequence[Path], left_out: Counter[str]) -> UserError:
    """The error of a repository without source, with what was there instead."""
    where = ", ".join(map(str, roots)) or "the given files"
    others = ", ".join(f"{number:,} {reason}" for reason, number in left_out.most_common()) or "nothing"
    return UserError(
        f"expected source code in {where}, found none (left out: {others}); name a folder with sources"
    )


def default_name(roots: Sequence[Path], registry: Registry) -> str:
    """A name after the first folder; with a suffix where another repository already has that name."""
    places = tuple(root.resolve() for root in roots)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", places[0].name).strip("-.")[:56].rstrip(".") or "repository"
    taken = next((domain for domain in registry.domains() if domain.name == name), None)
    if taken is None or taken.roots in ((), places):
        return name
    return f"{name}-{hashlib.blake2b(str(places[0]).encode(), digest_size=3).hexdigest()}"
