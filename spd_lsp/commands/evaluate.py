"""The commands `spd-lsp eval ...`: how good completions are, on any repositories. Slow imports are made late."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.wiring import model_options, print_status
from spd_lsp.evaluation.paper.commands import experiments
from spd_lsp.evaluation.results import out_option, restrict_file_access
from spd_lsp.progress import ReportProgress, resumable_progress

if TYPE_CHECKING:
    from spd_lsp.evaluation.quality.run import QualityRun

_ARMS = "superposed,superposed:streams=2,best-first,greedy,nucleus,beam,branches,paper,no-lm"
_OTHER_PRIORS = ("superposed@built-in", "superposed@repository")  # added to the default arms


@click.group("eval")
def evaluate() -> None:
    """Measure how good completions are.

    On repositories that no table and no model has seen.
    """
    restrict_file_access()


for experiment in experiments.commands.values():  # those of the Superposed Decoding paper
    evaluate.add_command(experiment)


@evaluate.command(epilog="\b\nExample: spd-lsp eval quality ~/code/*/ --examples 200")
@click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path))
@model_options
@click.option("-k", "drafts", type=click.IntRange(1, 20), default=3, show_default=True, help="Number of drafts.")
@click.option(
    "--max-tokens", type=click.IntRange(1, 512), default=24, show_default=True, help="Maximum length of a draft."
)
@click.option(
    "--arms",
    default=_ARMS,
    show_default=True,
    metavar="A,B,...",
    help="DECODER[:SETTING=VALUE]...[@PRIOR], such as beam:drafts=5@built-in; VALUE/VALUE/... tries each.",
)
@click.option(
    "--priors",
    default="repository+file,none",
    show_default=True,
    metavar="P,Q,...",
    help="N-grams of arms without @: none, built-in, file, repository, repository+file, dependencies.",
)
@click.option(
    "--against",
    default="greedy,nucleus,beam",
    show_default=True,
    metavar="A,B,...",
    help="Arms that all others are compared with, paired; at the same prior, unless one is named with @.",
)
@click.option("--examples", type=click.IntRange(min=1), help="At most so many, spread over all packages.")
@click.option(
    "--primary", is_flag=True, help="Only examples at the start of a line or after a trigger such as a dot."
)
@click.option(
    "--files", type=click.IntRange(min=1), default=25, show_default=True, help="Files of a package with examples."
)
@click.option(
    "--language",
    multiple=True,
    default=("python",),
    show_default=True,
    help="Language of the files with examples; may be repeated.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sample of examples.")
@click.option("--left-only", is_flag=True, help="Hide the text right of the cursor from model and n-grams.")
@click.option(
    "--typed", type=click.IntRange(min=0), default=100, show_default=True, help="Number of lines to type."
)
@click.option(
    "--training",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the model's training corpus, for the leak checks; may be repeated.",
)
@click.option(
    "--show", type=click.IntRange(min=0), default=12, show_default=True, help="Number of random examples to print."
)
@click.option("--show-seed", type=int, default=0, show_default=True, help="Seed of the examples to print.")
@click.option("--figures/--no-figures", default=True, help="Draw PNG figures (needs matplotlib).")
@out_option("eval-quality", "Folder of the results; holds pieces of the code. The same command resumes.")
def quality(repos: tuple[Path, ...], **options: Any) -> None:
    """Compare decoders on held-out lines of repositories.

    An example is a position where a cursor might stand. REPO is a package or repository; an example's n-grams are
    counted from the other files. Results are stored as they are measured.
    """
    from spd_lsp.evaluation.quality.arms import parse_arms
    from spd_lsp.evaluation.quality.report import RandomExamples, quality_report
    from spd_lsp.evaluation.quality.statistics import Results
    from spd_lsp.evaluation.report_writer import publish

    arms = parse_arms(_split(options["arms"]), _split(options["priors"]))
    if options["arms"] == _ARMS:
        arms += parse_arms(_OTHER_PRIORS, [])
    with resumable_progress() as report:
        run = open_quality_run(repos, options, report)
        examples = run.primary_examples() if options["primary"] else run.examples
        records = run.measure(examples[: options["examples"]], arms, typed=options["typed"])
    results = Results(records, arms, options["drafts"], _split(options["against"]))
    shown = RandomExamples(options["show"], options["show_seed"])
    finished = quality_report(results, run.facts, run.leak_checks, shown)
    publish(finished if options["figures"] else dataclasses.replace(finished, panels=()), options["out"])


@evaluate.command()
@click.argument("results", metavar="RESULTS", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--arms",
    default="superposed@repository+file,superposed@none",
    show_default=True,
    metavar="A,B,...",
    help="Arms whose candidates to calibrate: those of the product.",
)
def confidence(results: Path, arms: str) -> None:
    """Calibrate the probabilities of completions.

    From the RESULTS of `eval quality`. Prints weights for completion/calibration.py, cross-validated by package.
    """
    from spd_lsp.evaluation.calibration import describe_fit, read_candidates
    from spd_lsp.evaluation.quality.store import read_results

    records = read_results(results)
    for label in _split(arms):
        click.echo(describe_fit(label, read_candidates(records, label)))


@evaluate.command(epilog="\b\nExample: spd-lsp eval infilling HumanEval-SingleLineInfilling.jsonl.gz --run-code")
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
    help="As of `eval quality`.",
)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many tasks, drawn from all.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the tasks that are drawn.")
@click.option("--run-code", is_flag=True, help="Allow that programs that the model wrote are run on this machine.")
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
    from spd_lsp.settings import Settings

    if not options["run_code"]:
        raise UserError("this runs programs that a model wrote, on this machine; if you want that, add --run-code")
    if not is_confined():
        print_status("only limits hold here: what the model writes can reach files, processes and the network")
    tasks = sample_tasks(read_tasks(benchmark), options["limit"], options["seed"])
    arms = parse_arms(_split(options["arms"]), ["none"])
    settings = Settings(**{name: options[name] for name in ("model", "device", "drafts", "max_tokens")})
    with resumable_progress() as report:
        run = open_run(settings, benchmark, out, report, print_status)
        records = run.measure(tasks, arms)
    publish(infilling_report(records, [arm.label for arm in arms], settings.drafts, run.facts), out)


def open_quality_run(
    repos: Sequence[Path],
    options: dict[str, Any],
    report: ReportProgress,
    report_status: Callable[[str], None] = print_status,
    *,
    refuse_leaks: bool = True,
) -> QualityRun:
    """Open the run that a command's options describe; folders are read before anything that takes long."""
    from spd_lsp.evaluation.quality.examples import read_packages
    from spd_lsp.evaluation.quality.run import RunOptions, open_run

    packages = read_packages(repos, lambda done, total: report("read", done, total))
    names = {field.name for field in dataclasses.fields(RunOptions)}
    chosen = RunOptions(**{name: value for name, value in options.items() if name in names})
    return open_run(packages, chosen, report, report_status, refuse_leaks=refuse_leaks)


def _split(text: str) -> list[str]:
    """Example: `a, b` -> a and b"""
    return [part.strip() for part in text.split(",") if part.strip()]
