"""The command `bench`: how long drafts take on this machine, beside other decoders and libraries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_options
from spd_lsp.output.progress import progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.evaluation.report_writer import Report

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_MAX_DRAFTS = 16

_EXAMPLES = """\b
Examples:
  spd-lsp bench -k 1,3,8 --out bench.md
  spd-lsp bench --typing app.py --typing tests.py --keys 500"""


@click.command("bench", epilog=_EXAMPLES)
@model_options
@click.option("-k", "drafts", default="1,3,5,8", show_default=True, metavar="K,K", help="Draft counts to compare.")
@click.option(
    "--prompt-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Text whose last 512 tokens are the prompt (default: code of this package).",
)
@click.option(
    "--tokens", type=click.IntRange(2, 256), default=16, show_default=True, help="Length of a draft, in tokens."
)
@click.option("--repeat", type=click.IntRange(1, 1000), default=15, show_default=True, help="Number of rounds.")
@click.option(
    "--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Threads of each contender."
)
@click.option(
    "--typing",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Instead, type this file in real time, as in three editors; may be repeated.",
)
@click.option(
    "--keys",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="With --typing, keys to type in each editor; 1000 take about four minutes.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="With --typing, wait for every answer: a busy machine hardly changes the counts, but times mean nothing.",
)
@click.option("--memory/--no-memory", default=True, help="Measure memory, each contender in its own process.")
@click.option(
    "--out",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a .md or .json file; may be repeated.",
)
@click.pass_obj
def bench(
    settings: Settings,
    model: str,
    device: str,
    drafts: str,
    prompt_file: Path | None,
    tokens: int,
    repeat: int,
    threads: int,
    typing: tuple[Path, ...],
    keys: int,
    wait: bool,
    memory: bool,
    out: tuple[Path, ...],
) -> None:
    """Measure the speed of drafts on this machine.

    Superposed decoding beside greedy, nucleus and beam search, here and in transformers. All run in turn, round
    by round; medians and quartiles are printed. Use an idle machine.
    """
    for name in THREAD_VARIABLES:  # read when the libraries are loaded, which is below
        os.environ[name] = str(threads)
    from spd_lsp.completion import completer
    from spd_lsp.evaluation.bench.report import bench_report
    from spd_lsp.evaluation.bench.run import run_bench
    from spd_lsp.evaluation.bench.setup import BenchOptions
    from spd_lsp.evaluation.bench.typing_record import record_typing
    from spd_lsp.evaluation.report_writer import check_target
    from spd_lsp.models.checkpoint.hub import locate

    for path in out:
        check_target(path)
    if typing:
        with progress() as report:
            chosen = replace(settings, model=model, device=device)
            _write(record_typing(typing, keys, chosen, report, waits=wait), out)
        return
    options = BenchOptions(
        folder=locate(model),
        model=model,
        device=device,
        text=(prompt_file or Path(completer.__file__)).read_text(encoding="utf-8", errors="replace"),
        ks=parse_numbers(drafts),
        tokens=tokens,
        repeat=repeat,
        threads=threads,
        memory=memory,
    )
    with progress() as report:
        finished = bench_report(run_bench(options, report))
    _write(finished, out)


def _write(report: Report, out: Sequence[Path]) -> None:
    from spd_lsp.evaluation.report_writer import save

    for path in out:
        save(report, path)
    click.echo(report.markdown(), nl=False)


def parse_numbers(text: str) -> tuple[int, ...]:
    """Example: `3,1,8` -> (1, 3, 8)"""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 1 <= int(part) <= _MAX_DRAFTS for part in parts):
        raise UserError(f"-k takes numbers from 1 to {_MAX_DRAFTS}, such as 1,3,8, not {text!r}")
    return tuple(sorted(set(map(int, parts))))
