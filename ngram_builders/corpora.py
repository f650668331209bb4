"""Corpora -> an n-gram table of several shards: one pipeline of datatrove, on workers here, on Slurm or on Ray.

A task reads its share of the files, filters, masks and tokenizes their texts, and sorts them into shards of its
own: there is nothing to merge. The shares depend on the corpus alone, so any number of workers writes the same
bytes, and the same command goes on where one was stopped: datatrove marks the tasks that are complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from glob import has_magic
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.readers import JsonlReader, ParquetReader
from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from loguru import logger

from ngram_builders.build import (
    DUPLICATE,
    SHARD_TOKENS,
    BuildSummary,
    Encode,
    ReportProgress,
    ignore_progress,
    write_shard,
)
from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD
from ngram_builders.registry.ngram_table import check_name
from ngram_builders.registry.registry import Registry
from ngram_builders.scratch import read_record, write_record
from ngram_builders.sources.discovery import survey
from ngram_builders.sources.filters import UNREADABLE, check_size, decode_source
from ngram_builders.sources.language_ids import language_of
from ngram_builders.sources.masking import MARK
from ngram_builders.sources.name_rules import check_row_path
from ngram_builders.token_cache import text_digest
from ngram_builders.token_space import TokenSpace, with_boundaries

_ROWS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
_TASK_BYTES = 48_000_000  # about 13 million tokens, less than a shard may have, unless they are compressed
_MAX_TASKS = 1_000  # Slurm's usual limit of an array

CorpusFile = tuple[str, str, int, str]  # its address, its path there, bytes, and when it changed


@dataclass(frozen=True, slots=True)
class Task:
    """A step of datatrove's: files -> texts that count, masked, each once -> their ids -> sorted shards."""

    work: Path
    make_encode: Callable[[], Encode]  # found by its name where the task runs
    space: TokenSpace

    def __call__(self, data: object, rank: int, world_size: int) -> None:
        """Write each shard once it is full, then a record of skipped files; a second run replaces both."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # tasks run side by side, not the threads of one
        encode = self.make_encode()
        skipped: Counter[str] = Counter()
        masked = tokens = 0
        seen: set[bytes] = set()
        shards: list[str] = []
        streams: list[tuple[Any, list[str]]] = []
        for source, path, why in self._read(rank):
            reason = why or check_size(len(source), path)
            text, reason = ("", reason) if reason else decode_source(source, path)
            digest = text_digest(text.encode())
            if reason := reason or (DUPLICATE if digest in seen else None):
                skipped[reason] += 1
                continue
            seen.add(digest)
            masked += text.count(MARK)
            stream = with_boundaries(next(iter(encode([text]))), self.space.end_of_text).astype(np.int32)
            if tokens + len(stream) > SHARD_TOKENS:
                shards.append(self._write(streams, rank, len(shards)))
                tokens = 0
            tokens += len(stream)
            streams.append((stream, [language_of(path) or "other"] if path else []))
        if streams:
            shards.append(self._write(streams, rank, len(shards)))
        write_record(
            self.work / f"{rank:05d}.done", {"skipped": dict(skipped), "masked": masked, "shards": shards}
        )

    def _read(self, rank: int) -> Iterator[tuple[bytes, str, str | None]]:
        """The bytes of sources, and with datatrove's readers of rows; their paths, and why one does not count."""
        for address, path, *_ in read_record(self.work / f"{rank:05d}.files"):
            system = url_to_fs(address)[0]
            if path.endswith(_ROWS):
                folder, _, name = path.rpartition("/")
                reader = ParquetReader if path.endswith(_ROWS[-1]) else JsonlReader
                for row in reader((folder, system)).read_files_shard([name]):
                    named = str(row.metadata.get("path") or "")
                    yield str(row.text).encode(errors="replace"), named, check_row_path(named) if named else None
                continue
            try:
                yield system.cat_file(path), path, None
            except OSError:
                yield b"", path, UNREADABLE

    def _write(self, streams: list[tuple[Any, list[str]]], rank: int, number: int) -> str:
        """Write a shard of these texts, which are dropped, and return its name."""
        sources = Counter(language for _, languages in streams for language in languages)
        name = f"{rank:05d}-{number:03d}.ngt"
        write_shard(self.work / name, (ids for ids, _ in streams), sources, self.space)
        streams.clear()
        return name


def build_corpora(
    addresses: Sequence[str],
    name: str,
    make_encode: Callable[[], Encode],
    *,
    token_space: TokenSpace,
    registry: Registry,
    model: str = "",
    executor: str | None = None,
    workers: int | None = None,
    folder: Path | None = None,
    slurm: Mapping[str, str] = {},
    report: ReportProgress = ignore_progress,
) -> BuildSummary | str:
    """Build the table of some addresses and install it. -> the summary, or the state of Slurm's job in a sentence.

    An address is a folder, a file of rows or a pattern, here or wherever fsspec reads. make_encode is called once
    in each task: a function of a module, or a `functools.partial` of one. folder: one that all machines reach.
    """
    started = time.perf_counter()
    logger.remove()  # what datatrove says is in its logs
    check_name(name)
    skipped: Counter[str] = Counter()
    tasks = _split_into_tasks([file for address in addresses for file in _list_files(address, skipped)])
    recipe = {"corpus": list(addresses), "model": model}
    digest = hashlib.blake2b(msgpack.packb([tasks, recipe, token_space.fingerprint]), digest_size=8).hexdigest()
    with registry.lock_for_build(name) as home:
        work = (folder or home).resolve() / f"{name}-{digest}.tasks"
        work.mkdir(mode=0o700, parents=True, exist_ok=True)  # code can be read from it
        for rank, files in enumerate(tasks):
            write_record(work / f"{rank:05d}.files", files)
        step = Task(work, make_encode, token_space)
        options = {"pipeline": [step], "tasks": len(tasks), "logging_dir": str(work / "logs")}
        if executor != "slurm":
            _run_tasks(work, options, executor or "local", workers or 0, report)
        elif waiting := _run_on_slurm(work, options, workers or 0, slurm):
            return waiting
        done = [read_record(work / f"{rank:05d}.done") for rank in range(len(tasks))]
        skipped.update(sum((Counter(one["skipped"]) for one in done), Counter[str]()))
        shards = [work / shard for one in done for shard in one["shards"]]
        if not shards:
            raise UserError(f"no source code at {' '.join(addresses)} (skipped: {dict(skipped) or 'nothing'})")
        table = registry.install(name, [partial(shutil.copy, shard) for shard in shards], recipe=recipe)
        for old in (work, *home.glob("*.tasks")):
            shutil.rmtree(old, ignore_errors=True)
    return BuildSummary.of(table, started, skipped, masked=sum(one["masked"] for one in done))


def _list_files(address: str, skipped: Counter[str]) -> list[CorpusFile]:
    """The files to read at an address: of a folder its sources, or where it has none its rows."""
    try:
        system, path = url_to_fs(address)
        is_here = "file" in system.protocol
        if is_here and Path(path).is_dir() and (surveyed := survey(Path(path))).files:
            skipped.update(surveyed.count_skipped())
            return [(address, one.path, one.size, str(one.mtime_ns)) for one in surveyed.files]
        whole = not has_magic(address) and not system.isdir(path)
        search = system.glob if has_magic(address) else system.find
        found = {path: system.info(path)} if whole else search(path, detail=True)
    except (ImportError, ValueError, OSError) as error:
        cause = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {address}: {cause}; correct it, or install what it needs") from error
    sources = {one: facts for one, facts in found.items() if not is_here and check_row_path(one) is None}
    if not (chosen := sources or {one: facts for one, facts in found.items() if one.endswith(_ROWS)}):
        kinds = f"a folder of sources, files that end in {', '.join(_ROWS)}, or a quoted pattern of their names"
        raise UserError(f"nothing to read at {address}; name {kinds}")
    states = ((one, int(facts.get("size") or 0), facts) for one, facts in sorted(chosen.items()))
    return [(address, one, size, str(facts.get("mtime") or facts.get("ETag"))) for one, size, facts in states]


def _split_into_tasks(files: Sequence[CorpusFile]) -> list[list[CorpusFile]]:
    """Split files into tasks of about as much text; copies of a source, which have one size, are in one task."""
    most = max(_TASK_BYTES, -(-sum(size for _, _, size, _ in files) // _MAX_TASKS))
    tasks: list[list[CorpusFile]] = []
    filled = most
    for file in sorted(files, key=lambda file: (file[2], file)):
        if filled >= most and (not tasks or file[1].endswith(_ROWS) or tasks[-1][-1][2] != file[2]):
            tasks.append([])
            filled = 0
        tasks[-1].append(file)
        filled += file[2]
    return tasks


def _run_tasks(work: Path, options: dict[str, Any], executor: str, workers: int, report: ReportProgress) -> None:
    """Run what is not complete: here each task in a process of its own, so that a killed one is noticed."""
    state = LocalPipelineExecutor(**options)
    ranks = state.get_incomplete_ranks()
    here = [{"workers": 1, "local_tasks": 1, "local_rank_offset": rank} for rank in ranks]
    waiting = here if executor == "local" else [{"workers": workers or -1, "mem_per_cpu_gb": 1}] * bool(ranks)
    running: list[Any] = []
    failed: list[Any] = []
    try:
        while (waiting or running) and not failed:
            if waiting and len(running) < (workers or os.cpu_count() or 1):
                arguments = (executor, {**options, **waiting.pop(0)})
                running.append(get_context("spawn").Process(target=_run_apart, args=arguments))
                running[-1].start()
                continue
            wait([one.sentinel for one in running], 0.5)
            failed = [one for one in running if one.exitcode]
            running = [one for one in running if one.exitcode is None]
            report("tasks", options["tasks"] - len(state.get_incomplete_ranks()), options["tasks"])
    finally:
        codes = [one.exitcode for one in failed]
        for one in (*running, *failed):
            one.terminate()
            with suppress(OSError):  # what a killed one had started
                os.killpg(one.pid, signal.SIGTERM)
    if codes or state.get_incomplete_ranks():
        cause = "a worker was killed, perhaps for lack of memory" if min(codes, default=0) < 0 else "a task failed"
        raise UserError(f"{cause}; see {work / 'logs'}; the same command goes on where this one stopped")


def _run_apart(executor: str, options: dict[str, Any]) -> None:
    """Run an executor of datatrove's, silently: what it says is in its logs."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    os.setpgid(0, 0)  # what it starts, such as datatrove's manager, ends with it
    (RayPipelineExecutor if executor == "ray" else LocalPipelineExecutor)(**options).run()


def _run_on_slurm(work: Path, options: dict[str, Any], workers: int, slurm: Mapping[str, str]) -> str | None:
    """Submit what is not complete, unless its job is in the queue, and say so; None once all is complete."""
    env = f'export PYTHONSAFEPATH=1 PATH="{Path(sys.executable).parent}:$PATH"'
    known = {"time": "04:00:00", "partition": "", "qos": "", **slurm}
    options |= {name: known[name] for name in ("time", "partition", "qos")}
    # srun asks the controller, and a task that starts while that is away would fail.
    options |= {"workers": workers or -1, "job_name": work.stem, "env_command": env, "with_srun": False}
    executor = SlurmPipelineExecutor(**options, sbatch_args=slurm)
    if not (left := len(executor.get_incomplete_ranks())):
        return None
    if not known["partition"]:
        raise UserError("Slurm needs a partition; run the same command again with --slurm partition=NAME")
    try:
        command = ["squeue", "--noheader", "--format=%F", f"--name={work.stem}"]
        queue = subprocess.check_output(command, text=True, cwd=NEUTRAL_CWD, timeout=60).split()
        job = queue[0] if queue else executor.run() or executor.job_id
    except (subprocess.SubprocessError, OSError) as error:
        raise UserError(f"Slurm does not do that: {error}; correct it and run the same command again") from error
    again = "when it has ended, run the same command again, which installs the table"
    return f"job {job} has {left} of {options['tasks']} tasks to do; {again}; logs: {work / 'logs'}"
