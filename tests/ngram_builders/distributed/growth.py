"""How a build in tasks grows with a corpus: `python -m tests.ngram_builders.distributed.growth 1e8 1e9`.

Simulated: plans the build of so many tokens, and runs all its tasks one after the other. One line stands for the
64 MB of text of each shard. So tasks and opens are those of the real build; bytes and times are not, nor printed.
Those are measured, of real tasks in processes of their own, with `--tokens-per-shard 1e6 1e7`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ngram_builders.counting.memory import DEFAULT_MEMORY
from ngram_builders.distributed.build import cut
from ngram_builders.distributed.plan import Plan, write_plan
from ngram_builders.distributed.stages import run_task
from ngram_builders.ngrams import ORDERS
from tests.ngram_builders.distributed import synthetic

_TEXT_BYTES_PER_TOKEN = 3.6
_SAMPLE_SECONDS = 0.05
_PROGRAM = """
import sys
from pathlib import Path
from ngram_builders.distributed.stages import run_task
from tests.ngram_builders.distributed.synthetic import make_encode
result = run_task(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), make_encode, int(sys.argv[4]))
print(result["peak"], result["cpu"])
"""


def plan_build(tokens: float) -> Plan:
    """The plan of a build of so many tokens."""
    return make_plan(**cut(int(tokens * _TEXT_BYTES_PER_TOKEN), sys.maxsize))


def make_plan(**sizes: int) -> Plan:
    """A plan of that size, for synthetic text."""
    return Plan(
        **sizes,
        orders=ORDERS,
        min_count=dict.fromkeys(ORDERS, 1),
        vocab_size=synthetic.VOCABULARY,
        end_of_text=synthetic.END,
        fingerprint="synthetic",
        language=None,
    )


def count_opens(plan: Plan, folder: Path, opened: list[str]) -> dict[str, list[int]]:
    """Run all tasks in a folder -> how often each of a stage's tasks opened a file there."""
    paths = [folder / f"{shard}.py" for shard in range(plan.shards)]
    for shard, path in enumerate(paths):
        path.write_text(f"x = {shard}\n")
    write_plan(folder / "work", plan, [[str(path)] for path in paths])
    opens: dict[str, list[int]] = {}
    for stage, tasks in plan.stages.items():
        for rank in range(tasks):
            opened.clear()
            run_task(stage, rank, folder / "work", synthetic.make_encode)
            opens.setdefault(stage, []).append(sum(name.startswith(str(folder)) for name in opened))
    return opens


def simulate(tokens: float, opened: list[str]) -> str:
    """Tasks and opens of a build of so many tokens."""
    plan = plan_build(tokens)
    with tempfile.TemporaryDirectory() as folder:
        opens = count_opens(plan, Path(folder), opened)
    merges = [most for stage, one in opens.items() if stage.startswith("merge") for most in one]
    tasks, total = sum(plan.stages.values()), sum(map(sum, opens.values()))
    return (
        f"{tokens:,.0f} tokens: {plan.shards:,} shards, {len(plan.rounds) - 1} rounds of merges, {tasks:,} tasks, "
        f"{total:,} opens, {max(merges)} in one merge\n"
    )


def measure(shards: int, tokens: float, memory: int, folder: Path) -> str:
    """Peak memory, processor time and bytes in the shared folder of tasks with so many tokens each."""
    work, parts = folder / "work", 1 << (shards - 1).bit_length()
    plan = make_plan(shards=shards, parts=parts)
    write_plan(work, plan, [synthetic.write_shard(folder / str(seed), tokens, seed) for seed in range(shards)])
    peaks: dict[str, float] = {}
    seconds, shared = 0.0, 0
    for stage, tasks in plan.stages.items():
        for rank in range(tasks):
            peak, cpu, scratch = _run_alone(stage, rank, work, memory)
            kind = stage.partition("-")[0]
            peaks[kind] = max(peaks.get(kind, 0), peak)
            seconds, shared = seconds + cpu, max(shared, _bytes_in(work) + scratch)
    total = shards * tokens
    return (
        f"{shards} shards of {tokens:,.0f} tokens: "
        + ", ".join(f"{kind} {peak / 1e6:,.0f} MB" for kind, peak in peaks.items())
        + f"; {seconds:,.0f} CPU s; shared folder: {shared / total:.1f} bytes a token at most, "
        f"{_bytes_in(work) / total:.1f} at the end, {next(work.glob('*.ngt')).stat().st_size / total:.1f} of them "
        "the table\n"
    )


def _run_alone(stage: str, rank: int, work: Path, memory: int) -> tuple[int, float, int]:
    """Run a task in a process of its own -> its peak memory, processor time and largest unnamed files."""
    command = [sys.executable, "-c", _PROGRAM, stage, str(rank), str(work), str(memory)]
    scratch = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as task:
        while task.poll() is None:
            scratch = max(scratch, _scratch_bytes(task.pid, work))
            time.sleep(_SAMPLE_SECONDS)
        output = (task.stdout and task.stdout.read()) or ""
    peak, cpu = output.split()
    return int(peak), float(cpu), scratch


def _scratch_bytes(process: int, work: Path) -> int:
    """Bytes of the files in a folder that a process has open and that have no name there, or an unfinished one."""
    total = 0
    with suppress(OSError):
        for link in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                name = str(link.readlink())
                if name.startswith(str(work)) and ("(deleted)" in name or "/." in name[len(str(work)) :]):
                    total += link.stat().st_size
    return total


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> None:
    """Print a row for each number of tokens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tokens", nargs="*", type=float, help="of builds to simulate")
    parser.add_argument("--shards", type=int, default=16, help="of measured builds")
    parser.add_argument("--tokens-per-shard", type=float, nargs="*", default=[], help="of measured builds")
    parser.add_argument("--memory", type=float, default=DEFAULT_MEMORY, help="of each measured task, in bytes")
    arguments = parser.parse_args()
    for tokens in arguments.tokens_per_shard:
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(measure(arguments.shards, tokens, int(arguments.memory), Path(folder)))
            sys.stdout.flush()
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    for tokens in arguments.tokens:
        sys.stdout.write(simulate(tokens, opened))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
