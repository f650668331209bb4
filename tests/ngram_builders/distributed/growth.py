"""How tasks and opened files grow with a corpus: `python -m tests.ngram_builders.distributed.growth 1e8 1e9`.

Plans the build of so many tokens, and runs all its tasks one after the other. Each shard's 64 MB of text are stood
for by one line: the numbers of tasks and opens are those of the real build; bytes and times are not, nor printed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ngram_builders.distributed.build import cut
from ngram_builders.distributed.plan import Plan, write_plan
from ngram_builders.distributed.stages import run_task
from ngram_builders.ngrams import ORDERS
from tests.ngram_builders.byte_encoder import END, VOCABULARY, make_encode

_TEXT_BYTES_PER_TOKEN = 3.6


def plan_build(tokens: float) -> Plan:
    """The plan of a build of so many tokens."""
    return Plan(
        **cut(int(tokens * _TEXT_BYTES_PER_TOKEN), sys.maxsize),
        orders=ORDERS,
        min_count=dict.fromkeys(ORDERS, 1),
        vocab_size=VOCABULARY,
        end_of_text=END,
        fingerprint="bytes",
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
            run_task(stage, rank, folder / "work", make_encode)
            opens.setdefault(stage, []).append(sum(name.startswith(str(folder)) for name in opened))
    return opens


def main() -> None:
    """Print a row for each number of tokens."""
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    for tokens in map(float, sys.argv[1:]):
        plan = plan_build(tokens)
        with tempfile.TemporaryDirectory() as folder:
            opens = count_opens(plan, Path(folder), opened)
        merges = [most for stage, one in opens.items() if stage.startswith("merge") for most in one]
        total = sum(map(sum, opens.values()))
        sys.stdout.write(
            f"{tokens:,.0f} tokens: {plan.shards:,} shards, {len(plan.rounds) - 1} rounds of merges, "
            f"{sum(plan.stages.values()):,} tasks, {total:,} opens, {max(merges)} in one merge\n"
        )


if __name__ == "__main__":
    main()
