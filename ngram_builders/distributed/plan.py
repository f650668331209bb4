"""What all tasks of a build have to know, and the files in which they find each other's results.

Files are found by name, never by listing: on a network file system a folder's list may be a minute old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]

from ngram_builders.counting.external_merge import FAN_IN
from ngram_builders.ngrams import TokenSpace, order_shift
from ngram_builders.scratch import replace_file

_PLAN = "plan.msgpack"
_SHARDS_PER_COMPARISON = 1024  # each of this many shards opens one file more per comparison


@dataclass(frozen=True, slots=True)
class Round:
    """A round of merges: each adds up one group of shards, over one of several equal ranges of hashes."""

    stage: str
    groups: int
    parts: int  # a power of two


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What all tasks have to know."""

    shards: int
    parts: int  # ranges of hashes of the last merges; a power of two
    orders: tuple[int, ...]
    min_count: Mapping[int, int]  # by order
    token_space: TokenSpace
    language: str | None
    fan_in: int = FAN_IN  # groups that one merge adds up, and files that it opens
    most_files: int = 1  # of the table, whatever is counted; a power of two, at most `parts`
    most_entries: int = 2**32  # of one of them

    @property
    def rounds(self) -> list[Round]:
        """The counts of the shards, and then of larger groups in more parts, until one group is all."""
        rounds = [Round("counts", self.shards, 1)]
        while len(rounds) == 1 or rounds[-1].groups > 1:
            groups = -(-rounds[-1].groups // self.fan_in)
            wanted = 1 << (self.shards // groups - 1).bit_length()  # as many tasks as shards
            parts = self.parts if groups == 1 else min(wanted, self.parts)
            rounds.append(Round(f"merge-{len(rounds)}", groups, parts))
        return rounds

    @property
    def stages(self) -> dict[str, int]:
        """The stages in order, and how many tasks each has."""
        comparisons = -(-self.shards // _SHARDS_PER_COMPARISON)
        merges = {one.stage: one.groups * one.parts for one in self.rounds}
        return {"digests": self.shards, "duplicates": comparisons, **merges, "table": self.most_files}

    def added_up_in(self, stage: str) -> str | None:
        """The stage whose runs a stage of merges adds up: they are not needed once all of it is done."""
        stages = [one.stage for one in self.rounds]
        return stages[stages.index(stage) - 1] if stage in stages[1:] else None

    def count_files(self, entries: int) -> int:
        """How many files the table takes: a power of two. entries: of the first part; all have about as many."""
        files = 1
        while files < self.most_files and entries * self.parts > files * self.most_entries:
            files *= 2
        return files

    def starts_of(self, number: int, rank: int) -> list[int]:
        """Where the ranges begin that tasks of the next round read of a run: of each order in turn, equally many.

        A range holds all records of some hashes and of one order; no context is cut.
        """
        rounds = self.rounds
        shift = order_shift(self.token_space.vocab_size)
        now = rounds[number]
        after = rounds[min(number + 1, len(rounds) - 1)]
        width = (1 << shift) // after.parts
        each = after.parts // now.parts
        first = rank % now.parts * each
        return [
            (order - 2 << shift) + part * width for order in self.orders for part in range(first, first + each)
        ]


def write_plan(work: Path, plan: Plan, shards: Sequence[Sequence[str]]) -> None:
    """Write the plan and each shard's paths to a folder, unless it has a plan.

    The folder is its owner's alone, also where all machines reach it: n-grams can be read back as code.
    """
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in ("shards", "results", "texts", *plan.stages):
        (work / folder).mkdir(exist_ok=True)
    if (work / _PLAN).exists():
        return
    for rank, paths in enumerate(shards):
        write_record(task_file(work, "shards", rank), [path.encode(errors="surrogateescape") for path in paths])
    write_record(work / _PLAN, asdict(plan))


def read_plan(work: Path) -> Plan:
    """Read the plan of a folder."""
    fields = msgpack.unpackb((work / _PLAN).read_bytes(), strict_map_key=False)
    return Plan(
        **{**fields, "orders": tuple(fields["orders"]), "token_space": TokenSpace(**fields["token_space"])}
    )


def read_shard_paths(work: Path, rank: int) -> list[str]:
    """Read the paths of a shard's files."""
    return [path.decode(errors="surrogateescape") for path in read_record(task_file(work, "shards", rank))]


def delete_added_up(work: Path, plan: Plan, stage: str) -> None:
    """Delete what a finished stage has added up, so that the folder holds what two rounds read and write."""
    if before := plan.added_up_in(stage):
        for file in (*(work / before).iterdir(), *(work / "texts").glob(f"{before}-*")):
            file.unlink(missing_ok=True)


def task_file(work: Path, folder: str, rank: int) -> Path:
    """The file that a task writes to a folder."""
    return work / folder / f"{rank:05d}"


def result_file(work: Path, stage: str, rank: int) -> Path:
    """The file with a task's result."""
    return work / "results" / f"{stage}-{rank:05d}"


def read_stage_results(work: Path, stage: str) -> list[dict[str, Any]]:
    """Read the results of all tasks of a finished stage."""
    return [read_record(result_file(work, stage, rank)) for rank in range(read_plan(work).stages[stage])]


def write_record(file: Path, record: object) -> None:
    """Replace a small msgpack file."""
    replace_file(file, [msgpack.packb(record)])


def read_record(file: Path) -> Any:
    """Read a small msgpack file."""
    return msgpack.unpackb(file.read_bytes())
