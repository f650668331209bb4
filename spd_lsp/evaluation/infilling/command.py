"""The command `eval infilling`: gaps in programs are filled, and the programs run. Slow imports are made late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_options, print_status
from spd_lsp.evaluation.results import out_option
from spd_lsp.output.progress import resumable_progress
from spd_lsp.settings import Settings


@click.command(epilog="\b\nExample: spd-lsp eval infilling HumanEval-SingleLineInfilling.jsonl.gz --run-code")
@click.argument("benchmark", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@model_options
@click.option("-k", "drafts", type=click.IntRange(1, 20), default=3, show_default=True, help="Number of drafts.")
@click.option(
    "--max-tokens", type=click.IntRange(1, 512), default=64, show_default=True, help="Maximum length of a draft."
)
@click.option(
    "--arms",
    default="best-first-alone,uncopied,greedy,beam",
    show_default=True,
    metavar="A,B,...",
    help="As for `eval quality`.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of tasks, drawn at random.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the tasks that are drawn.")
@click.option("--run-code", is_flag=True, help="Allow programs that the model wrote to run on this machine.")
@out_option("eval-infilling", "Folder of the results. The same command resumes.")
def infilling(benchmark: Path, out: Path, **options: Any) -> None:
    """Fill gaps in programs and run their tests.

    FILE is HumanEval-Infilling's file of single lines or of multiple lines. Drafts become programs that run with
    your rights, within limits of time and memory; on Linux on x86-64 the kernel also keeps them from the network,
    from other processes and from writing files.
    """
    from spd_lsp.evaluation.infilling.report import infilling_report
    from spd_lsp.evaluation.infilling.run import open_run
    from spd_lsp.evaluation.infilling.sandbox import is_confined
    from spd_lsp.evaluation.infilling.tasks import read_tasks, sample_tasks
    from spd_lsp.evaluation.quality.arms import parse_arms
    from spd_lsp.evaluation.report_writer import publish

    if not options["run_code"]:
        raise UserError("this runs programs that a model wrote, on this machine; if you want that, add --run-code")
    if not is_confined():
        print_status("only limits hold here: what the model writes can reach files, processes and the network")
    tasks = sample_tasks(read_tasks(benchmark), options["limit"], options["seed"])
    arms = parse_arms(options["arms"].split(","), ["none"])
    settings = Settings(**{name: options[name] for name in ("model", "device", "drafts", "max_tokens")})
    with resumable_progress() as report:
        run = open_run(settings, benchmark, out, report, print_status)
        records = run.measure(tasks, arms)
    publish(infilling_report(records, [arm.label for arm in arms], settings.drafts, run.facts), out)
