"""Repositories and corpora -> a domain's table, counted in tasks that datatrove spreads over workers and machines.

The table is the one that `build` makes of the same input. What the tasks do is in `stages`, where they run in
`clusters`. The folder that they share is named after input and settings: the same command goes on where it was
stopped, and another one has nothing to do with what is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from glob import glob
from pathlib import Path

import msgpack  # type: ignore[import-untyped]

from ngram_builders.build import Summary, default_name, nothing_found
from ngram_builders.distributed.executors import EXECUTORS, Cluster, Report, run
from ngram_builders.distributed.readers import PACKED, is_corpus
from ngram_builders.distributed.stages import STAGES, TABLE, Encode, Plan, facts_of, prepare
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, check_orders
from ngram_builders.registry.domains import check_name
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.discovery import survey
from ngram_builders.table.format import TableSummary
from ngram_builders.table.reader import Table

_FORMAT = 4  # of what lies in a shared folder
_SHARD_BYTES = (
    64_000_000  # of text a task, about 17 M tokens; the larger, the fewer n-grams stand in several shards
)
FEWEST_SHARDS = 16  # small inputs too are spread over workers
_PART_BYTES = 64_000_000  # of text whose n-grams of one order are merged in one task


@dataclass(frozen=True, slots=True)
class Input:
    """A file to count, in a certain state."""

    path: str
    size: int  # bytes
    mtime_ns: int

    @property
    def weight(self) -> int:
        """About how many bytes of text it holds."""
        return self.size * next((times for end, times in PACKED.items() if self.path.endswith(end)), 1)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage took."""

    stage: str
    tasks: int
    cpu: float  # seconds, of all tasks
    peak: int  # bytes, of the largest worker
    written: int  # bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a build made; without a summary another machine makes the table."""

    summary: Summary | None
    costs: tuple[Cost, ...]


def build(
    roots: Sequence[Path],
    domain: str | None,
    make_encode: Callable[[], Encode],
    *,
    end_of_text: int,
    fingerprint: str,
    vocab_size: int,
    registry: Registry,
    orders: Sequence[int] = ORDERS,
    min_count: int | Mapping[int, int] = 1,
    language: str | None = None,
    model: str = "",
    report: Report = lambda stage, done, total: None,
    cluster: Cluster | None = None,
) -> Outcome:
    """Count folders and files of rows, and install the table: byte for byte the one that `build.build` makes.

    make_encode is called once in each task that encodes, and is brought there by its name: a function of a module,
    or a `functools.partial` of one. Roots may be patterns of file names.
    """
    started = time.perf_counter()
    cluster = cluster or Cluster()
    if cluster.executor not in EXECUTORS:
        raise UserError(f"expected one of {', '.join(EXECUTORS)}, found {cluster.executor!r}; choose one of those")
    folders, rows = _told_apart(roots)
    inputs, left_out = gather(folders, rows, language, report)
    if not inputs:
        raise nothing_found(roots, left_out)
    name = _name_of(domain, folders, registry, model, fingerprint)
    orders = check_orders(orders)
    least = min_count if isinstance(min_count, Mapping) else dict.fromkeys(orders, min_count)
    recipe = {
        "engine": "datatrove",
        "orders": list(orders),
        "min_count": [least.get(order, 1) for order in orders],
        "language": language,
        "model": model,
        "rows": [os.path.abspath(root) for root in roots if root not in folders],  # noqa: PTH100, patterns too
    }
    size = sum(one.weight for one in inputs)
    plan = Plan(
        shards=min(len(inputs), max(FEWEST_SHARDS, -(-size // _SHARD_BYTES))),
        parts=1 << (size // _PART_BYTES).bit_length(),
        orders=orders,
        min_count={order: least.get(order, 1) for order in orders},
        vocab_size=vocab_size,
        end_of_text=end_of_text,
        fingerprint=fingerprint,
        language=language,
    )
    work = (cluster.folder or registry.domain_folder(name)).resolve() / f"{name}-{digest(plan, inputs)}.counting"
    prepare(work, plan, cut(inputs, plan.shards))
    if not run(work, plan, cluster, make_encode, report):
        return Outcome(None, ())
    costs = tuple(_cost(work, plan, stage) for stage in STAGES)
    perplexity = facts_of(work, "table")[0]["perplexity"]
    masked = sum(facts["masked"] for facts in facts_of(work, "counts"))
    for facts in [*facts_of(work, "digests"), *facts_of(work, "counts")]:
        left_out.update(facts["left_out"])
    made = registry.install(name, lambda scratch: adopt(work / TABLE, scratch), roots=folders, recipe=recipe)
    for old in (
        work,
        *registry.domain_folder(name).glob("*.counting"),
    ):  # what earlier runs left in the domain's folder too
        shutil.rmtree(old, ignore_errors=True)
    return Outcome(
        Summary(
            domain=made.name,
            files=made.files,
            tokens=made.tokens,
            ngrams=made.ngrams,
            bytes=made.size,
            seconds=time.perf_counter() - started,
            left_out=dict(sorted(left_out.items())),
            path=made.path,
            masked=masked,
            perplexity=perplexity,
        ),
        costs,
    )


def _told_apart(roots: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Folders of sources, and files of rows, patterns resolved."""
    folders: list[Path] = []
    rows: set[Path] = set()
    for root in roots:
        found = [root] if root.exists() else [Path(path) for path in glob(str(root), recursive=True)]  # noqa: PTH207
        files = [path for path in found if is_corpus(path.name) and path.is_file()]
        if found == [root] and root.is_dir():
            folders.append(root)
        elif files:
            rows.update(path.resolve() for path in files)
        else:
            raise UserError(
                f"expected a folder of sources or files of rows ({', '.join(PACKED)}), found neither at {root}; "
                "name a folder, files, or a quoted pattern such as 'corpus/*.jsonl.gz'"
            )
    return folders, sorted(rows)


def gather(
    folders: Sequence[Path], rows: Sequence[Path], language: str | None, report: Report
) -> tuple[list[Input], Counter[str]]:
    """All files to count in a stable order, and how many others there are for each reason."""
    report("survey", 0, 1)
    surveyed = survey(*folders, language=language)
    inputs = [Input(found.path, found.size, found.mtime_ns) for found in surveyed.files]
    inputs += [Input(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in rows]
    report("survey", 1, 1)
    return inputs, surveyed.count_skipped()


def _name_of(domain: str | None, folders: Sequence[Path], registry: Registry, model: str, fingerprint: str) -> str:
    """The domain's name; without one, the first folder's."""
    if domain is not None:
        return check_name(domain)
    if not folders:
        raise UserError("expected a name for the table of a corpus, found none; give one with --domain")
    return default_name(folders, registry, model, fingerprint)


def digest(plan: Plan, inputs: Sequence[Input]) -> str:
    """What stands for an input in this state and what is asked of it."""
    state = hashlib.blake2b(msgpack.packb([_FORMAT, asdict(plan)]), digest_size=8)
    for one in inputs:
        state.update(b"%b\0%d %d\0" % (os.fsencode(one.path), one.size, one.mtime_ns))
    return state.hexdigest()


def cut(inputs: Sequence[Input], shards: int) -> list[list[str]]:
    """The paths in shards of like size, neighbours together. No file is cut, so large corpora are many files."""
    whole = sum(one.weight for one in inputs) or 1
    cuts: list[list[str]] = [[] for _ in range(shards)]
    before = 0
    for one in inputs:
        cuts[min(shards - 1, (before + one.weight // 2) * shards // whole)].append(one.path)
        before += one.weight
    return cuts


def _cost(work: Path, plan: Plan, stage: str) -> Cost:
    """What a finished stage took."""
    facts = facts_of(work, stage)
    files = [work / TABLE] if stage == STAGES[-1] else (work / stage).iterdir()
    return Cost(
        stage=stage,
        tasks=plan.tasks(stage),
        cpu=sum(one["cpu"] for one in facts),
        peak=max(one["peak"] for one in facts),
        written=sum(file.stat().st_size for file in files),
    )


def adopt(table: Path, scratch: Path) -> TableSummary:
    """Give a finished table the registry's name for it, without copying where the two are on one disk."""
    try:
        os.link(table, scratch)
    except OSError:
        shutil.copyfile(table, scratch)
    return Table.open(scratch).summary
