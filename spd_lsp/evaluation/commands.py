"""The commands `spd-lsp eval ...`: how good completions are, on any repositories. Slow imports are made late."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spd_lsp.command_options import model_options, print_status
from spd_lsp.evaluation.results import out_option, restrict_file_access
from spd_lsp.output.progress import ReportProgress, resumable_progress

if TYPE_CHECKING:
    from spd_lsp.evaluation.quality.run import QualityRun

_ARMS = "superposed,best-first,greedy,nucleus,beam,paper"
_FROM_CLONE = (
    "spd_lsp.evaluation.infilling.command",
    "spd_lsp.evaluation.infilling.blocks",
    "spd_lsp.evaluation.paper.commands",
)
_OTHER_PRIORS = ("superposed@built-in", "superposed@repository")  # added to the default arms


class _Evaluations(click.Group):
    """With what contributors measure, in a clone: filled gaps, and the Superposed Decoding paper's experiments."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return sorted([*self.commands, *(_from_clone() if find_spec("spd_lsp.evaluation.paper") else ())])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name."""
        return self.commands.get(name) or _from_clone().get(name)


def _from_clone() -> Mapping[str, click.Command]:
    """Contributors' commands by name; ModuleNotFoundError where they are not installed."""
    infilling, blocks, paper = map(import_module, _FROM_CLONE)
    return {"infilling": infilling.infilling, "blocks": blocks.blocks, **paper.experiments.commands}


@click.group("eval", cls=_Evaluations)
def evaluate() -> None:
    """Measure how good completions are.

    Use repositories that no model or table has seen.
    """
    restrict_file_access()


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
    help="N-grams of arms without @: none, built-in, file, repository, repository+file.",
)
@click.option(
    "--against",
    default="greedy,nucleus,beam",
    show_default=True,
    metavar="A,B,...",
    help="Arms that all others are compared with, paired; at the same prior, unless one is named with @.",
)
@click.option("--examples", type=click.IntRange(min=1), help="Maximum number of examples, over all packages.")
@click.option(
    "--primary", is_flag=True, help="Only examples at the start of a line or after a trigger such as a dot."
)
@click.option(
    "--files",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    help="Maximum number of files per package.",
)
@click.option(
    "--language",
    multiple=True,
    default=("python",),
    show_default=True,
    help="Language of the files with examples; may be repeated.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sample of examples.")
@click.option(
    "--typed", type=click.IntRange(min=0), default=100, show_default=True, help="Number of lines to type."
)
@out_option("eval-quality", "Folder of the results; holds pieces of the code. The same command resumes.")
def quality(repos: tuple[Path, ...], **options: Any) -> None:
    """Compare decoders on held-out lines of repositories.

    An example is a position where a cursor might stand. REPO is a package or repository; an example's n-grams are
    counted from the other files. Results are stored as they are measured.
    """
    from spd_lsp.evaluation.quality.arms import parse_arms
    from spd_lsp.evaluation.quality.report import quality_report
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
    publish(quality_report(results, run.facts), options["out"])


@evaluate.command()
@click.argument("results", metavar="RESULTS", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--arms",
    default="superposed@repository+file,superposed@none",
    show_default=True,
    metavar="A,B,...",
    help="Arms whose candidates are used (default: those of the product).",
)
def confidence(results: Path, arms: str) -> None:
    """Calibrate the probabilities of completions from the RESULTS of `eval quality`.

    Prints weights for completion/ranking.py, cross-validated by package.
    """
    from spd_lsp.evaluation.calibration import describe_fit, read_candidates
    from spd_lsp.evaluation.quality.store import read_results

    records = read_results(results)
    for label in _split(arms):
        click.echo(describe_fit(label, read_candidates(records, label)))


@evaluate.command(epilog="\b\nExample: spd-lsp eval edits ~/code/*/ --fit")
@click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--commits", type=click.IntRange(min=1), default=150, show_default=True, help="Newest commits per repository."
)
@click.option(
    "--fit", is_flag=True, help="Fit to every other repository, print the weights, and judge by the rest."
)
def edits(repos: tuple[Path, ...], commits: int, fit: bool) -> None:
    """Measure next edits on git history.

    In each file that a commit of REPO changes, one changed line is redone, and what is then proposed is compared
    with what its author changed like it.
    """
    from spd_lsp.evaluation.edits.measure import describe_edits

    for line in describe_edits(repos, commits, fit=fit):
        click.echo(line)


def open_quality_run(
    repos: Sequence[Path],
    options: dict[str, Any],
    report: ReportProgress,
    report_status: Callable[[str], None] = print_status,
    *,
    may_leak: bool = False,
) -> QualityRun:
    """Open the run that a command's options describe; folders are read before anything that takes long."""
    from spd_lsp.evaluation.quality.examples import read_packages
    from spd_lsp.evaluation.quality.run import RunOptions, open_run

    packages = read_packages(repos, lambda done, total: report("read", done, total))
    names = {field.name for field in dataclasses.fields(RunOptions)}
    chosen = RunOptions(**{name: value for name, value in options.items() if name in names})
    return open_run(packages, chosen, report, report_status, may_leak=may_leak)


def _split(text: str) -> list[str]:
    """Example: `a, b` -> a and b"""
    return [part.strip() for part in text.split(",") if part.strip()]
