"""Repositories and corpora -> a registered table, counted in tasks that datatrove spreads over machines.

The table is the one that `ngram_builders.build` makes of the same input. `stages` has what the tasks do,
`executors` where they run. Their shared folder is named after input and options: the same command continues where
it was stopped, and another one has nothing to do with what is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from glob import glob
from pathlib import Path

import msgpack  # type: ignore[import-untyped]

from ngram_builders.build import BuildSummary, default_name, min_count_by_order, no_sources
from ngram_builders.counting.external_merge import BYTES_PER_TOKEN
from ngram_builders.counting.memory import DEFAULT_MEMORY, share_memory
from ngram_builders.counting.tokenize import Encode, ReportProgress
from ngram_builders.distributed.executors import Cluster, run_stages
from ngram_builders.distributed.plan import Plan, read_stage_results, write_plan
from ngram_builders.distributed.readers import EXPANSION, is_corpus
from ngram_builders.distributed.stages import table_path
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, TokenSpace, check_orders, hash_bits
from ngram_builders.registry.cleanup import TASKS_PATTERN
from ngram_builders.registry.registry import Registry
from ngram_builders.registry.shared_folder import is_address, list_at
from ngram_builders.sources.discovery import survey
from ngram_builders.sources.rules.selection import EVERYTHING, Selection
from ngram_builders.table.format import TableSummary
from ngram_builders.table.reader import Table

_FORMAT = 8  # of what lies in a shared folder
_SHARD_BYTES = 64_000_000  # of text, about 17 M tokens; larger shards repeat fewer n-grams of each other
MIN_SHARDS = 16  # small inputs too are spread over workers
_SHARED_BYTES_PER_TOKEN = 50  # at once: what a round of merges reads and writes, or the table and its counts
_HASHES_PER_TOKEN = 2  # with fewer, a fifth of all unseen contexts would have the hash of one that was seen
_FILE_BYTES = 1 << 31  # of text; one file of a table surely holds its n-grams
_FILE_ENTRIES = 7 << 29  # of one file, whose pointers address 2^32
_CERTAIN = 1.5  # times what would fit; how much text a file holds is an estimate
_MAX_SHARDS = 1 << 14  # of the largest inputs, whose shards are larger: a scheduler has to hold all tasks


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to count, in a certain state."""

    path: str
    size: int  # bytes
    mtime_ns: int  # at an address another number that changes with it

    @property
    def text_bytes(self) -> int:
        """About how many bytes of text it holds."""
        return self.size * next((times for end, times in EXPANSION.items() if self.path.endswith(end)), 1)


def build(
    roots: Sequence[Path | str],
    name: str | None,
    make_encode: Callable[[], Encode],
    *,
    token_space: TokenSpace,
    registry: Registry,
    orders: Sequence[int] = ORDERS,
    min_count: int | Mapping[int, int] = 1,
    memory: int = DEFAULT_MEMORY,
    selection: Selection = EVERYTHING,
    model: str = "",
    report: ReportProgress = lambda stage, done, total: None,
    say: Callable[[str], None] = lambda text: None,
    cluster: Cluster | None = None,
) -> BuildSummary:
    """Count folders and corpus files, and install the table: byte for byte the one of the local build.

    make_encode is called once in each task that encodes, and is found there by its name: a function of a module,
    or a `functools.partial` of one. memory: of each task, in bytes. Roots may be patterns of file names, and texts
    are addresses of corpus files. `say` is told before the work how much the shared folder will hold.
    """
    started = time.perf_counter()
    share_memory(memory)
    cluster = cluster or Cluster()
    folders, corpus = _split_roots([Path(root) for root in roots if not is_address(root)])
    remote = [file for root in roots if is_address(root) for file in _list_remote(str(root))]
    inputs, skipped = _list_inputs(folders, corpus, selection, report)
    inputs += sorted(set(remote), key=lambda file: file.path)
    if not inputs:
        raise no_sources([Path(root) for root in roots], skipped)
    name = _choose_name(name, folders, registry, model, token_space.fingerprint)
    orders = check_orders(orders)
    least = min_count_by_order(orders, min_count)
    recipe = {
        "engine": "datatrove",
        "orders": list(orders),
        "min_count": list(least.values()),
        **selection.as_recipe(),
        "model": model,
        "rows": [
            str(root) if is_address(root) else os.path.abspath(root)  # noqa: PTH100, patterns too
            for root in roots
            if root not in folders
        ],
    }
    size = sum(file.text_bytes for file in inputs)
    plan = Plan(
        **cut(size, len(inputs)),
        orders=orders,
        min_count=least,
        token_space=token_space,
        language=selection.language,
    )
    with registry.lock_for_build(name) as home:
        work = (cluster.folder or home).resolve() / f"{name}-{input_digest(plan, inputs)}.counting"
        say(_check_limits(size, plan, work))
        write_plan(work, plan, split_into_shards(inputs, plan.shards))
        run_stages(work, plan, cluster, make_encode, report, memory)
        counts = read_stage_results(work, "counts")
        table = read_stage_results(work, "table")[0]
        for result in (*read_stage_results(work, "digests"), *counts):
            skipped.update(result["skipped"])
        tables = [table_path(work, rank) for rank in range(table["files"])]
        made = registry.install(
            name,
            lambda scratch: _link_tables(tables, scratch),
            roots=folders,
            recipe=recipe,
            partitions=[partial(_link, table) for table in tables[1:]],
        )
        for old in (work, *home.glob(TASKS_PATTERN)):  # and what earlier runs left in the table's folder
            shutil.rmtree(old, ignore_errors=True)
    masked = sum(result["masked"] for result in counts)
    return BuildSummary.of(made, started, skipped, masked=masked, perplexity=table["perplexity"])


def _split_roots(roots: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Split roots into folders of sources and corpus files, and resolve patterns."""
    folders: list[Path] = []
    corpus: set[Path] = set()
    for root in roots:
        paths = [root] if root.exists() else [Path(path) for path in glob(str(root), recursive=True)]  # noqa: PTH207
        files = [path for path in paths if is_corpus(path.name) and path.is_file()]
        if root.is_dir():
            folders.append(root)
        elif files:
            corpus.update(path.resolve() for path in files)
        else:
            raise UserError(
                f"{root} is neither a folder of sources nor a corpus file ({', '.join(EXPANSION)}); "
                "name a folder, files, or a quoted pattern such as 'corpus/*.jsonl.gz'"
            )
    return folders, sorted(corpus)


def _list_remote(address: str) -> list[InputFile]:
    """The corpus files at an address, which may be a pattern."""
    if found := [InputFile(*file) for file in list_at(address) if is_corpus(file[0])]:
        return found
    raise UserError(
        f"{address} has no corpus file ({', '.join(EXPANSION)}); name files, or a quoted pattern such as "
        "'s3://bucket/corpus/*.jsonl.gz'"
    )


def _list_inputs(
    folders: Sequence[Path], corpus: Sequence[Path], selection: Selection, report: ReportProgress
) -> tuple[list[InputFile], Counter[str]]:
    """List all files to count in a stable order, and count the skipped ones by reason."""
    report("survey", 0, 1)
    surveyed = survey(*folders, selection=selection)
    inputs = [InputFile(file.path, file.size, file.mtime_ns) for file in surveyed.files]
    inputs += [InputFile(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in corpus]
    report("survey", 1, 1)
    return inputs, surveyed.count_skipped()


def _choose_name(
    name: str | None, folders: Sequence[Path], registry: Registry, model: str, fingerprint: str
) -> str:
    """Return the table's name; by default the first folder's."""
    if name is not None:
        return registry.check_new_name(name)
    if not folders:
        raise UserError("the table of a corpus needs a name; give one with --name")
    return default_name(folders, registry, model, fingerprint)


def input_digest(plan: Plan, inputs: Sequence[InputFile]) -> str:
    """Return a digest of the files in their state and of the options."""
    digest = hashlib.blake2b(msgpack.packb([_FORMAT, asdict(plan)]), digest_size=8)
    for file in inputs:
        digest.update(b"%b\0%d %d\0" % (os.fsencode(file.path), file.size, file.mtime_ns))
    return digest.hexdigest()


def cut(text_bytes: int, inputs: int) -> dict[str, int]:
    """Return into how many shards, ranges and files a build is cut: fields of its plan."""
    shards = min(inputs, max(MIN_SHARDS, -(-text_bytes // _SHARD_BYTES)), _MAX_SHARDS)
    parts = 1 << (shards - 1).bit_length()  # as many tasks
    files = 1 << (text_bytes // _FILE_BYTES).bit_length()
    return {"shards": shards, "parts": parts, "most_files": min(parts, files), "most_entries": _FILE_ENTRIES}


def split_into_shards(inputs: Sequence[InputFile], shards: int) -> list[list[str]]:
    """Split the paths into shards of similar size, neighbours together. Files are not cut."""
    total = sum(file.text_bytes for file in inputs) or 1
    paths: list[list[str]] = [[] for _ in range(shards)]
    before = 0
    for file in inputs:
        paths[min(shards - 1, (before + file.text_bytes // 2) * shards // total)].append(file.path)
        before += file.text_bytes
    return paths


def _check_limits(text_bytes: int, plan: Plan, work: Path) -> str:
    """Refuse what hashes cannot tell apart, or certainly exceeds the shared folder; else say what it will hold."""
    tokens = text_bytes / BYTES_PER_TOKEN
    about = f"the input holds about {text_bytes / 1e9:,.1f} GB of text, {tokens / 1e9:,.1f} billion tokens"
    if (most := (1 << hash_bits(plan.token_space.vocab_size)) // _HASHES_PER_TOKEN) < tokens:
        raise UserError(
            f"{about}; one table can tell the contexts of {most / 1e9:,.0f} billion apart; build several tables"
        )
    folder = next(one for one in (work, *work.parents) if one.exists())
    free = shutil.disk_usage(folder).free
    needed = tokens * _SHARED_BYTES_PER_TOKEN
    if needed > _CERTAIN * free:
        raise UserError(
            f"{about}, whose counts take about {needed / 1e9:,.0f} GB; {folder} has {free / 1e9:,.0f} GB free: "
            "free some space, or name another --shared-folder"
        )
    room = f"up to {needed / 1e6:,.1f} MB of the {free / 1e9:,.0f} GB free in {folder}"
    return (
        f"counts of about {text_bytes / 1e6:,.1f} MB of text take {room}, in {sum(plan.stages.values()):,} tasks"
    )


def _link_tables(tables: Sequence[Path], path: Path) -> TableSummary:
    """Link the first of a table's files to a path of the registry, and summarize all of them."""
    _link(tables[0], path)
    parts = [Table.open(table).summary for table in tables]
    sums = {name: sum(getattr(part, name) for part in parts) for name in ("contexts", "entries", "ngrams", "size")}
    return replace(parts[0], **sums)


def _link(table: Path, path: Path) -> TableSummary:
    """Link a finished file to a path of the registry, or copy it where the two are on different disks."""
    try:
        os.link(table, path)
    except OSError:
        shutil.copyfile(table, path)
    return Table.open(path).summary
