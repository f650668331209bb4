"""Tasks on several workers and machines make the table that one process makes, and go on where one stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ngram_builders import build as local
from ngram_builders.distributed.plan import Plan
from ngram_builders.errors import UserError
from ngram_builders.ngrams import TokenSpace, merge
from ngram_builders.registry.locks import is_running
from ngram_builders.registry.registry import Registry
from ngram_builders.registry.transfer import export_table
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table, added_runs
from tests.ngram_builders.byte_encoder import (
    END,
    VOCABULARY,
    encode,
    make_crashing,
    make_encode,
    make_failing,
    make_recording,
)
from tests.ngram_builders.reference import as_dict

pytest.importorskip("datatrove", reason="needs the extra `distributed`")

from ngram_builders.distributed import build as distributed
from ngram_builders.distributed.build import InputFile, input_digest, split_into_shards
from ngram_builders.distributed.executors import Cluster, StageRunner

ROOT = Path(__file__).parents[3]
PLAN = Plan(
    shards=1,
    parts=1,
    orders=(2, 3),
    min_count={2: 1, 3: 1},
    token_space=TokenSpace("bytes", VOCABULARY, END),
    language=None,
)
OPTIONS: dict[str, Any] = {"token_space": TokenSpace("bytes", VOCABULARY, END)}


@pytest.fixture(autouse=True)
def few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "MIN_SHARDS", 3)


def run(
    registry: Registry, *roots: Path | str, make: Callable[[], Any] = make_encode, **options: Any
) -> local.BuildSummary:
    name = options.pop("name", "there")
    names = ("min_count", "orders", "language", "report")
    built = {key: options.pop(key) for key in names if key in options}
    cluster = Cluster(**{"workers": 2, **options})
    return distributed.build(roots, name, make, registry=registry, cluster=cluster, **OPTIONS, **built)


def here(registry: Registry, root: Path, **options: Any) -> local.BuildSummary:
    """The same input counted by one process."""
    return local.build([root], "here", encode, registry=registry, **OPTIONS, **options)


@pytest.mark.slow
def test_two_workers_make_the_same_bytes_as_one_process(
    registry: Registry, sources: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Pruned only where all is counted; copies in other shards count once; nothing is printed by the tasks."""
    seen: list[tuple[str, int, int]] = []
    kept: dict[str, int] = {}

    def report(stage: str, done: int, total: int) -> None:
        seen.append((stage, done, total))
        kept[stage] = len(list(registry.folder.glob("there/*.counting/counts/*")))

    made = run(registry, sources, min_count=2, report=report)
    assert (kept["merge-1"], kept["table"]) == (3, 0), "what was added up is deleted"
    assert capfd.readouterr() == ("", "")
    expected = here(registry, sources, min_count=2)
    assert made.path.read_bytes() == expected.path.read_bytes()
    assert (made.files, made.tokens, made.skipped) == (expected.files, expected.tokens, expected.skipped)
    assert registry.find("there").roots == registry.find("here").roots
    tasks = {"digests": 3, "duplicates": 1, "counts": 3, "merge-1": 4, "table": 1}
    assert {(stage, number, number) for stage, number in tasks.items()} <= set(seen)
    assert not list(registry.table_folder("there").glob("*.counting")), "nothing is left of the work"


@pytest.mark.slow
def test_rows_and_repositories_make_one_table(registry: Registry, sources: Path, tmp_path: Path) -> None:
    """Rows that are copies of files, and of one another, count once."""
    for number in range(3):
        rows = [{"text": path.read_text(), "path": path.name} for path in sorted(sources.iterdir())[number:]]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = run(registry, sources, tmp_path / "[012].jsonl")
    assert made.path.read_bytes() == here(registry, sources).path.read_bytes()


@pytest.mark.slow
def test_a_table_of_several_files_serves_as_one(
    registry: Registry, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier build are gone, and an export is one file again."""
    monkeypatch.setattr(distributed, "_FILE_BYTES", 1)
    for entries, files in ((10**6, 1), (100, 4)):
        monkeypatch.setattr(distributed, "_FILE_ENTRIES", entries)
        made = run(registry, sources, workers=1)
        expected, table = here(registry, sources), registry.find("there")
        assert len(table.paths) == 1 + len(table.partitions) == files
        assert (made.tokens, made.ngrams, made.bytes) == (expected.tokens, expected.ngrams, table.size)
        assert set(table.path.parent.glob("*.ngt")) == set(table.paths)
        pools = [[Table.open(path).columns for path in one] for one in ([expected.path], table.paths)]
        contexts = np.array([list(b"\nimport o"), list(b"\nvalue_3 ")])
        answers = [open_query([pool], [1.0]).probabilities(contexts, np.arange(VOCABULARY)) for pool in pools]
        assert [a.tolist() for a in answers[0]] == [a.tolist() for a in answers[1]]
        assert answers[0][0].max() > 0.5
    exported = export_table(registry, "there", tmp_path / "one.ngt")
    runs = [merge(list(added_runs([Table.open(path)]))) for path in (exported, expected.path)]
    assert as_dict(runs[0]) == as_dict(runs[1])


def start(sources: Path, data: Path, make: str) -> subprocess.Popen[bytes]:
    """The same build in a process of its own."""
    program = f"""
from pathlib import Path
import ngram_builders.distributed.build as distributed
from functools import partial
from ngram_builders.ngrams import TokenSpace
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.byte_encoder import make_stuck
distributed.MIN_SHARDS = 3
distributed.build(
    [Path({str(sources)!r})], "there", {make}, registry=Registry(Path({str(data)!r})),
    cluster=distributed.Cluster(workers=1), token_space=TokenSpace("bytes", {VOCABULARY}, {END}),
)
"""
    return subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)})


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_run_ends_its_workers_and_the_next_run_resumes(
    registry: Registry, sources: Path, tmp_path: Path
) -> None:
    """What was done stays done: no text is encoded twice, and the bytes are the same."""
    notes, process = tmp_path / "notes", tmp_path / "process"
    make = f"partial(make_stuck, Path({str(notes)!r}), Path({str(process)!r}), 'value_5')"
    with ended(start(sources, registry.folder, make)):
        wait_until(lambda: process.exists() and process.read_text() != "")
    wait_until(lambda: not is_running(int(process.read_text())))
    assert (done := notes.read_text().count("\n")) > 0
    made = run(registry, sources, make=partial(make_recording, notes))
    assert done < notes.read_text().count("\n") == made.files == 7
    assert made.path.read_bytes() == here(registry, sources).path.read_bytes()
    assert not list(registry.table_folder("there").glob("*.counting"))


class Killed(StageRunner):
    """Ends its process at the first task of each stage, as if the machine had lost it."""

    def __call__(self, data: object, rank: int, world_size: int) -> None:
        first = Path(os.environ["KILLED"]) / self.stage
        if rank == 0 and not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().__call__(data, rank, world_size)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "slurm", "ray"])
def test_what_a_killed_worker_did_not_finish_is_given_to_others(
    registry: Registry, sources: Path, tmp_path: Path, slurm: Commands, executor: str
) -> None:
    """One of three workers, in every stage. In a process of its own: pytest's warnings stop Ray's threads."""
    if executor == "ray":
        pytest.importorskip("ray", reason="needs Ray: pip install ray")
    killed = tmp_path / "killed"
    killed.mkdir()
    program = f"""
from pathlib import Path
from ngram_builders.distributed import build, executors, slurm
from ngram_builders.registry.registry import Registry
from tests.ngram_builders.distributed.test_build import Killed, run
build.MIN_SHARDS, executors.StageRunner, slurm.POLL_SECONDS = 3, Killed, 0.01
run(Registry(Path({str(registry.folder)!r})), Path({str(sources)!r}), executor={executor!r}, workers=3,
    folder=Path({str(tmp_path / "shared")!r}))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "KILLED": str(killed)}
    environment.pop("RAY_ADDRESS", None)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True, timeout=400)
    assert len(list(killed.iterdir())) == 5, "a worker was killed in every stage"
    assert registry.find("there").path.read_bytes() == here(registry, sources).path.read_bytes()


@pytest.mark.slow
def test_a_worker_that_is_killed_again_and_again_is_reported(
    registry: Registry, sources: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"stage counts was killed.*continues where this one stopped"):
        run(registry, sources, make=partial(make_crashing, tmp_path / "notes", "value_5"))


def test_other_inputs_or_options_have_another_folder() -> None:
    """What a stopped run left is never taken for something else."""
    one = InputFile("/a.py", 5, 7)
    others = [input_digest(PLAN, inputs) for inputs in ([], [one, one], [replace(one, path="/b.py")])]
    others += [input_digest(PLAN, [replace(one, **{name: 6})]) for name in ("size", "mtime_ns")]
    changes: dict[str, Any] = {
        "orders": (2,),
        "min_count": {2: 1, 3: 2},
        "language": "go",
        "shards": 2,
        "parts": 2,
    }
    changes["token_space"] = TokenSpace("x", VOCABULARY, END)
    others += [input_digest(replace(PLAN, **{name: value}), [one]) for name, value in changes.items()]
    assert len({input_digest(PLAN, [one]), *others}) == 1 + len(others)
    assert input_digest(replace(PLAN), [replace(one)]) == input_digest(PLAN, [one])


def test_what_fits_nowhere_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(text_bytes: int, folder: Path) -> str:
        return distributed._check_limits(text_bytes, replace(PLAN, **distributed.cut(text_bytes, 10**6)), folder)

    with pytest.raises(UserError, match=r"10,000\.0 GB of text, 2,777\.8 billion tokens; .* 550 billion apart"):
        check(10**13, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**9))
    with pytest.raises(UserError, match=r"take about 56 GB; .* has 1 GB free: free some space, or name another"):
        check(4 * 10**9, tmp_path / "not" / "there")
    said = check(8 * 10**7, tmp_path)
    assert re.match(
        r"counts of about 80\.0 MB of text take up to 1,\d+\.\d MB of the 1 GB free in /.*, in \d+ tasks", said
    )


def test_shards_have_similar_sizes_and_keep_the_order() -> None:
    inputs = [InputFile(f"/{number}.py", 1 + number % 7, 0) for number in range(100)]
    shards = split_into_shards(inputs, 8)
    assert [path for shard in shards for path in shard] == [one.path for one in inputs]
    sizes = {one.path: one.size for one in inputs}
    weights = [sum(sizes[path] for path in shard) for shard in shards]
    assert max(weights) - min(weights) <= 14
    assert InputFile("/a.jsonl.gz", 10, 0).text_bytes == 50


@pytest.mark.slow
def test_a_failed_task_is_reported_in_one_line_with_the_path_of_its_log(
    registry: Registry, sources: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"stage counts failed.*no tokenizer here.*logs in") as caught:
        run(registry, sources, make=make_failing, folder=tmp_path / "shared")
    logs = Path(str(caught.value).split("logs in ")[1].split(";")[0])
    assert "no tokenizer here" in "".join(log.read_text() for log in logs.rglob("*.log"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("root", "name", "fault"), [
    ("gone", "d", "is neither a folder of sources nor a corpus file"),
    ("*.gz", "d", "is neither a folder of sources nor a corpus file"),
    ("a.txt", "d", "is neither a folder of sources nor a corpus file"),
    ("empty", "d", "no source code in"),
    ("rows.jsonl", None, "give one with --name"),
])  # fmt: skip
def test_invalid_input_is_refused(
    registry: Registry, tmp_path: Path, root: str, name: str | None, fault: str
) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.jsonl").write_text('{"text": "x"}\n')
    with pytest.raises(UserError, match=fault):
        run(registry, tmp_path / root, name=name)


@pytest.mark.slow
def test_a_damaged_corpus_is_an_error(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "x = 1\\n", "path": "a.py"}\n{"text": "y')
    with pytest.raises(UserError, match=r"cannot read row 2 of .*rows\.jsonl"):
        run(registry, tmp_path / "rows.jsonl")


class Commands:
    """Stand-ins for Slurm's commands: `sbatch` does a job's tasks at once, unless the one before it failed."""

    SBATCH = """for file; do :; done
cp "$file" "$0.$$.script"
case "$*" in *afterok*) ;; *) rm -f "$0.failed";; esac
[ -e "$0.failed" ] && echo "Submitted batch job $$" && exit
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$file")
for task in $(seq 0 "$last"); do
  export SLURM_ARRAY_TASK_ID=$task SLURM_NODELIST=here SLURM_JOB_ID=$$
  bash "$file" > "$0.$$.out" 2>&1 || touch "$0.failed"
done
echo "Submitted batch job $$"
"""
    SRUN = 'while [ "$1" != launch_pickled_pipeline ]; do shift; done\nexec "$@"\n'

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.say("sbatch", self.SBATCH)
        self.say("srun", self.SRUN)
        self.say("scontrol", "echo here\n")
        self.say("squeue", "")

    def say(self, name: str, lines: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/bash\n{lines}")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def scripts(self) -> list[str]:
        return [file.read_text() for file in sorted(self.folder.glob("*.script"))]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr("ngram_builders.distributed.slurm.POLL_SECONDS", 0.01)
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Commands(tmp_path / "slurm")


SLURM: dict[str, Any] = {"executor": "slurm", "workers": 40, "sbatch": {"partition": "cpu"}}


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path(sys.executable).parent / "launch_pickled_pipeline").exists(),
    reason="datatrove's launch_pickled_pipeline is not installed beside this Python",
)
def test_slurm_jobs_make_the_same_bytes(registry: Registry, sources: Path, slurm: Commands) -> None:
    """With stand-ins for sbatch and srun: scripts and pickled executors are the real ones, the queue is not."""
    made = run(registry, sources, **SLURM)
    assert made.path.read_bytes() == here(registry, sources).path.read_bytes()
    assert len(slurm.scripts()) == 5
    for line in ("#SBATCH --partition=cpu", "%40\n", "#SBATCH --kill-on-invalid-dep=yes"):
        assert all(line in script for script in slurm.scripts())


NAMES = 'for all; do case "$all" in --name=*) names=${all#--name=}; esac; done; names=${names//,/ }\n'
COUNTED = (
    'echo x >> "$0.count"; n=$(wc -l < "$0.count"); echo "$n $*" >> "$0.asked"; echo "Submitted batch job $n"\n'
)


def submitted(slurm: Commands) -> int:
    """How many jobs were submitted by a stand-in that does nothing else."""
    count = slurm.folder / "sbatch.count"
    return count.read_text().count("x") if count.exists() else 0


def test_jobs_that_end_early_are_noticed_and_resubmitted_only_once_they_are_gone(
    registry: Registry, sources: Path, slurm: Commands
) -> None:
    slurm.say("sbatch", COUNTED)
    with pytest.raises(UserError, match="jobs ended before stage digests was done"):
        run(registry, sources, **SLURM)
    assert submitted(slurm) == 10, "once more, as none was finished"
    asked = (slurm.folder / "sbatch.asked").read_text().splitlines()
    assert [re.findall(r"afterok:(\d+)", line) for line in asked] == [
        *([], ["1"], ["2"], ["3"], ["4"]),
        *([], ["6"], ["7"], ["8"], ["9"]),
    ]
    queued = f'{NAMES}for one in $names; do echo "7|RUNNING|None|$one"; done\n'
    slurm.say("squeue", f'if [ ! -e "$0.asked" ]; then touch "$0.asked"\n{queued}fi\n')
    with pytest.raises(UserError, match="jobs ended"):
        run(registry, sources, **SLURM)
    assert submitted(slurm) == 15, "those in the queue were waited for"


def test_a_run_that_was_killed_while_it_submitted_is_continued_behind_its_jobs(
    registry: Registry, sources: Path, slurm: Commands
) -> None:
    """Two stages are in the queue, of which no file tells."""
    slurm.say("sbatch", COUNTED)
    once = '[ -e "$0.asked" ] && exit; touch "$0.asked"; set -- $names\n'
    slurm.say("squeue", f'{NAMES}{once}echo "40|PENDING|Priority|$1"; echo "41|PENDING|Dependency|$2"\n')
    with pytest.raises(UserError, match="jobs ended"):
        run(registry, sources, **SLURM)
    asked = (slurm.folder / "sbatch.asked").read_text().splitlines()
    assert [re.findall(r"afterok:(\d+)", line) for line in asked][:3] == [["41"], ["1"], ["2"]]


def test_a_queue_that_does_not_answer_is_not_an_empty_one(
    registry: Registry, sources: Path, slurm: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1\n'
    slurm.say("sbatch", COUNTED)
    slurm.say("squeue", failing)
    with pytest.raises(
        UserError, match=r"squeue fails \(.*Unable to contact slurm controller\); run the same command"
    ):
        run(registry, sources, **SLURM)
    assert submitted(slurm) == 0
    times = 'echo x >> "$0.times"; [ $(wc -l < "$0.times") -lt 9 ] && [ $(wc -l < "$0.times") -gt 1 ] && '
    slurm.say("squeue", times + "{ " + failing.replace("\n", "; }\n") + "true\n")
    with pytest.raises(UserError, match="jobs ended"):
        run(registry, sources, **SLURM)
    assert (slurm.folder / "squeue.times").read_text().count("x") >= 10
    monkeypatch.setattr("ngram_builders.distributed.slurm._SILENT_SECONDS", 0.0)
    (slurm.folder / "squeue.times").unlink()
    with pytest.raises(UserError, match="the jobs may still run: the same command finds them again"):
        run(registry, sources, **SLURM)


def test_a_job_that_slurm_will_never_start_is_told(registry: Registry, sources: Path, slurm: Commands) -> None:
    slurm.say("sbatch", COUNTED)
    slurm.say(
        "squeue", f'{NAMES}[ -e "$0.asked" ] && echo "7|PENDING|PartitionTimeLimit|$names"; touch "$0.asked"\n'
    )
    with pytest.raises(
        UserError, match="Slurm will not start job 7: PartitionTimeLimit; run: scancel 7, and then"
    ):
        run(registry, sources, **SLURM)


def test_a_job_that_slurm_refuses_is_one_sentence(registry: Registry, sources: Path, slurm: Commands) -> None:
    slurm.say("sbatch", 'echo "sbatch: error: invalid account" >&2; exit 1\n')
    with pytest.raises(UserError, match="Slurm refused a job, for the reason that sbatch gives above"):
        run(registry, sources, **SLURM)
