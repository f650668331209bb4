"""Repositories -> files -> ids -> counts -> table -> registry. The encoder is passed in: knows no tokenizer.

What an earlier build left is used: its ids, and its table, to which only the difference is added where little
changed. The table is the same, byte for byte, as if all had been made anew.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ngram_builders.counting.pipeline import FEW, Earlier, Lost, Task, Terms, count, streams_of
from ngram_builders.counting.token_cache import FILE, Store, remove
from ngram_builders.counting.tokenize import Encode, Reading, Report, digest_of, languages_of, learn
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, check_orders
from ngram_builders.registry.domains import Domain, check_name, resolve_roots, table_name
from ngram_builders.registry.model_match import is_for_another_model, name_for_model
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import Survey, display_path, survey
from ngram_builders.sources.filters import read_source_text
from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.masking import MARK, find_masked_lines
from ngram_builders.table.format import TableSummary
from ngram_builders.table.order_weights import measure_perplexity
from ngram_builders.table.reader import Table
from ngram_builders.table.writer import write_table

DUPLICATE = "duplicate"
_NO_TABLES: Mapping[str, Path] = MappingProxyType({})
_ATTEMPTS = 3  # at reading again what the store has lost
_BYTES_A_TOKEN = 60  # on the disk while a table is made: counts put aside, sections, and the table
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
    changed: bool = True  # whether the table is a new one
    masked: int = 0  # lines that are not counted, as they hold what looks like a secret
    reused: int = 0  # files that were not read again
    encoded: int = 0  # tokens that were not known before
    encoding_seconds: float = 0.0
    problem: str | None = None  # what went wrong without harm to the table
    # Of which tables -> among how many equally likely tokens one would choose as badly, in files not counted.
    perplexity: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a build would count, by language, and what it would leave out, by reason."""

    files: dict[str, int]
    bytes: dict[str, int]
    left_out: dict[str, int]
    masked: int = 0


def _silent(stage: str, done: int, total: int) -> None:
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
    min_files: int = 1,
    language: str | None = None,
    model: str = "",
    fresh: bool = False,
    beside: Mapping[str, Path] = _NO_TABLES,
    report: Report = _silent,
) -> Summary:
    """Count the sources of some repositories and install their table; without a domain the folder's name is used.

    encode turns texts into ids without end_of_text. The same files give the same table, byte for byte. What is as
    it was at the last build is neither read nor tokenised nor counted, unless all is to be fresh. model is only
    written down, so that the same build can be asked for again. beside: tables that serve the same files; the
    summary tells what each is worth. min_files: what fewer distinct texts say cannot be read back from the table.
    """
    started, began_ns = time.perf_counter(), time.time_ns()
    orders = check_orders(orders)
    least = {order: min_count if isinstance(min_count, int) else min_count.get(order, 1) for order in orders}
    terms = Terms(
        fingerprint=fingerprint,
        vocab_size=vocab_size,
        end_of_text=end_of_text,
        orders=orders,
        min_count=least,
        min_files=min_files,
    )
    chosen = _look_around(roots, language, report)
    name = default_name(roots, registry, model, fingerprint) if domain is None else check_name(domain)
    recipe: dict[str, Any] = {
        "orders": list(orders),
        "min_count": list(least.values()),
        "language": language,
        "model": model,
    }
    recipe |= {"min_files": min_files} if min_files > 1 else {}
    with registry.lock_for_build(name) as home:
        if fresh:
            remove(home / FILE)
        with Store(home / FILE, fingerprint) as store:
            job = Job(name, roots, recipe, terms, registry, store, fresh, beside, report)
            made = job.run(chosen, encode, began_ns)
    return summarise(made, chosen, store, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class Made:
    """What a job made."""

    domain: Domain
    changed: bool  # whether there is a new table
    reading: Reading
    task: Task
    perplexity: dict[str, float]


@dataclass(frozen=True, slots=True)
class Job:
    """One build, once it is known what to look at and where to keep it."""

    name: str
    roots: Sequence[Path]
    recipe: Mapping[str, Any]
    terms: Terms
    registry: Registry
    store: Store
    fresh: bool
    beside: Mapping[str, Path]
    report: Report
    perplexity: dict[str, float] = field(default_factory=dict)

    def run(self, chosen: Survey, encode: Encode, began_ns: int) -> Made:
        """Read what is new, count, and install the table."""
        for _ in range(_ATTEMPTS):
            reading = learn(chosen.files, self.store, encode, began_ns, self.report)
            _check_reading(reading, chosen, self.roots)
            task = Task(reading.documents, self.store.known(), self.terms)
            try:
                domain, changed = self.make(task)
            except Lost as lost:
                self.store.drop(lost.args)
                continue
            self.store.forget(domain.path.name, [found.path for found in chosen.files])
            return Made(domain, changed, reading, task, self.perplexity)
        raise UserError(
            f"expected to find the tokens again that were written to {FILE} of domain {self.name}, found them "
            "gone; run the same command with --fresh"
        )

    def make(self, task: Task) -> tuple[Domain, bool]:
        """The domain with a table of these documents, and whether that is a new one; Lost if ids are gone."""
        if lost := set(task.digests) - task.sizes.keys():
            raise Lost(*lost)
        domain = None if self.fresh else self.current()
        earlier = None if domain is None else self.earlier(domain)
        if domain and earlier and self.is_up_to_date(domain, earlier, task):
            self.store.record(domain.path.name, task.documents)  # paths and times may be others
            return domain, False
        made = self.registry.install(
            self.name, lambda path: self.write(path, task, earlier), roots=self.roots, recipe=self.recipe
        )
        return made, domain is None or made.path != domain.path

    def current(self) -> Domain | None:
        """The domain as it is, None if there is none that is sound."""
        with suppress(UserError):
            domain = self.registry.find(self.name)
            return None if domain.fault else domain
        return None

    def earlier(self, domain: Domain) -> Earlier | None:
        """The domain's table and what it was made of, None if it cannot be counted on with."""
        documents = self.store.contents(domain.path.name)
        with suppress(UserError):
            table = Table.open(domain.path, self.terms.fingerprint)
            had = table.summary
            least = [self.terms.min_count[order] for order in self.terms.orders]
            if documents and (
                had.orders,
                list(had.min_count),
                had.vocab_size,
                domain.recipe.get("min_files", 1),
            ) == (self.terms.orders, least, self.terms.vocab_size, self.terms.min_files):
                table.verify()  # what is damaged must not be copied into a sound table
                return Earlier(table, documents)
        return None

    def is_up_to_date(self, domain: Domain, earlier: Earlier, task: Task) -> bool:
        """Whether a build would only write what is there."""
        return (
            {document.digest for document in earlier.documents} == set(task.digests)
            and earlier.table.summary.sources == languages_of(task.documents)
            and domain.roots == resolve_roots(self.roots)
            and domain.recipe == self.recipe
        )

    def write(self, path: Path, task: Task, earlier: Earlier | None) -> TableSummary:
        """Write the table to a path, and write down what it was made of."""
        try:
            summary = write_table(
                path,
                count(task, earlier, self.store, path.parent, self.report),
                fingerprint=self.terms.fingerprint,
                vocab_size=self.terms.vocab_size,
                orders=self.terms.orders,
                min_count=self.terms.min_count,
                tokens=task.tokens(task.digests),
                files=len(task.digests),
                sources=languages_of(task.documents),
            )
        except (OSError, UserError) as error:
            raise _full_disk(error, path.parent, task) or error from error
        self.assess(path, task)
        self.store.record(table_name(path), task.documents)
        return summary

    def assess(self, path: Path, task: Task) -> None:
        """Tell what the table is worth, beside others and alone."""
        self.report("worth", 0, 1)
        beside = {}
        for name, other in self.beside.items():
            with suppress(UserError):  # a table that cannot serve is worth nothing
                beside[name] = Table.open(other, self.terms.fingerprint).columns
        sample = chain.from_iterable(streams_of(sorted(task.digests), task, self.store, FEW))
        self.perplexity.update(measure_perplexity(Table.open(path).columns, sample, self.terms.orders, beside))
        self.report("worth", 1, 1)


def _look_around(roots: Sequence[Path], language: str | None, report: Report) -> Survey:
    """All files that may be source by their names."""
    report("survey", 0, 1)
    chosen = survey(*roots, language=language)
    report("survey", 1, 1)
    if not chosen.files:
        raise nothing_found(roots, chosen.count_skipped())
    return chosen


def _check_reading(reading: Reading, chosen: Survey, roots: Sequence[Path]) -> None:
    """Refuse to replace a table by one of nothing, or of what was just being deleted."""
    for root in roots:
        if not root.is_dir():
            raise UserError(
                f"expected the folder {display_path(root)}, found it gone while it was read; run it again"
            )
    if not reading.documents:
        raise nothing_found(roots, chosen.count_skipped() + reading.left_out)


def _full_disk(error: Exception, folder: Path, task: Task) -> UserError | None:
    """The error of a disk without room for a table; None if the error is another one."""
    cause = error.__cause__ if isinstance(error, UserError) else error
    if not isinstance(cause, OSError) or cause.errno not in _FULL:
        return None
    needed = task.tokens(task.digests) * _BYTES_A_TOKEN / 2**20
    with suppress(OSError):
        free = shutil.disk_usage(folder).free / 2**20
        return UserError(
            f"expected up to {needed:,.0f} MiB of free space in {folder}, found {free:,.0f} MiB; free some and "
            "run the same command again, which goes on from here"
        )
    return None


def summarise(made: Made, chosen: Survey, store: Store, seconds: float) -> Summary:
    """What a build tells its caller."""
    left_out = chosen.count_skipped() + made.reading.left_out
    left_out[DUPLICATE] += len(made.task.documents) - len(made.task.digests)
    return Summary(
        domain=made.domain.name,
        files=made.domain.files,
        tokens=made.domain.tokens,
        ngrams=made.domain.ngrams,
        bytes=made.domain.size,
        seconds=seconds,
        left_out={reason: number for reason, number in sorted(left_out.items()) if number},
        path=made.domain.path,
        changed=made.changed,
        masked=made.reading.masked,
        reused=made.reading.reused,
        encoded=made.reading.encoded,
        encoding_seconds=made.reading.seconds,
        problem=store.problem,
        perplexity=made.perplexity,
    )


def preview(roots: Sequence[Path], language: str | None = None, report: Report = _silent) -> Preview:
    """What a build would count. Reads all and writes nothing."""
    chosen = _look_around(roots, language, report)
    files, sizes, left_out = Counter[str](), Counter[str](), chosen.count_skipped()
    known: set[bytes] = set()
    masked = 0
    for done, found in enumerate(chosen.files):
        report("files", done, len(chosen.files))
        text, fault = read_source_text(found.path)
        if fault is None and (digest := digest_of(text.encode())) in known:
            fault = DUPLICATE
        if fault is not None:
            left_out[fault] += 1
            continue
        known.add(digest)
        masked += len(find_masked_lines(text))
        of = language_of(found.path) or "other"
        files[of] += 1
        sizes[of] += found.size
    report("files", len(chosen.files), len(chosen.files))
    left_out_by_reason = dict(sorted(left_out.items()))
    return Preview(files=dict(files), bytes=dict(sizes), left_out=left_out_by_reason, masked=masked)


def counted_for(file: Path, roots: Sequence[Path], language: str | None = None) -> Path | None:
    """The file that a build counts in a source's stead: the first of the same text, None if that is itself."""
    path = str(file.parent.resolve() / file.name)
    text = read_source_text(path)[0].encode()
    most = len(text) + text.count(b"\n") + 3  # bytes, with long line ends and a byte order mark
    for found in survey(*roots, language=language).files:
        if found.path == path:
            return None
        alike = len(text) <= found.size <= most or MARK.encode() in text
        if alike and read_source_text(found.path) == (text.decode(), None):
            return Path(found.path)
    return None


def nothing_found(roots: Sequence[Path], left_out: Counter[str]) -> UserError:
    """The error of a repository without source, with what was there instead."""
    where = ", ".join(map(display_path, roots)) or "the given files"
    others = ", ".join(f"{number:,} {reason}" for reason, number in left_out.most_common()) or "nothing"
    return UserError(
        f"expected source code in {where}, found none (left out: {others}); name a folder with sources"
    )


def default_name(roots: Sequence[Path], registry: Registry, model: str = "", fingerprint: str = "") -> str:
    """The name of the model's own table of these folders, if it has one by default; else one that nobody has.

    After the first folder, or after it and the model where another model has that name, or with a digest.
    """
    places = resolve_roots(roots)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", places[0].name).strip("-.")[:56].rstrip(".") or "repository"
    known = {domain.name: domain for domain in registry.domains()}
    names = [
        name,
        name_for_model(name, model),
        _with_digest(name, places[0]),
        _with_digest(name, places[0], model),
    ]
    if name in known and known[name].roots not in ((), places):
        names[1:3] = names[2:0:-1]  # another repository has it, which the model's name would not tell apart

    def is_own(domain: Domain) -> bool:
        return not (fingerprint and is_for_another_model(domain, model, fingerprint))

    found = (one for one in names if one in known and known[one].roots == places and is_own(known[one]))
    free = (one for one in names if one not in known or (not known[one].roots and is_own(known[one])))
    return next(chain(found, free), names[-1])


def _with_digest(name: str, *parts: object) -> str:
    """A name that tells apart what has the same one."""
    whole = b"\0".join(os.fsencode(str(part)) for part in parts)
    return f"{name}-{hashlib.blake2b(whole, digest_size=3).hexdigest()}"
