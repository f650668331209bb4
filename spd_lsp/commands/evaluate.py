"""The commands `spd-lsp eval ...`: how good completions are, on any repositories. Slow imports are made late."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.evaluation.paper.commands import experiments
from spd_lsp.evaluation.paper.subject import publish, tell
from spd_lsp.evaluation.results import for_the_user_alone, out_option
from spd_lsp.progress import Report, resumable

if TYPE_CHECKING:
    from spd_lsp.evaluation.session import Session

_ARMS = "superposed,superposed:streams=2,rescored,greedy,nucleus,beam,branches,nucleus-superposed,paper,no-lm"
_DIFFERENT_PRIORS = ("superposed@built-in", "superposed@repository")


@click.group("eval")
def evaluate() -> None:
    """Measure how good completions are, on repositories that no table and no model has seen."""
    for_the_user_alone()


for experiment in experiments.commands.values():  # those of the Superposed Decoding paper
    evaluate.add_command(experiment)


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    """What all commands that ask at places are told; what was asked is kept in --out, and shared by them."""
    for option in (
        click.option("--figures/--no-figures", default=True, help="Draw PNG figures (needs matplotlib)."),
        out_option(
            "eval-quality", "Folder of the results; holds pieces of the code. The same command again goes on."
        ),
        click.option(
            "--training",
            multiple=True,
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="Folder of the model's training corpus, for the leak checks. May be given several times.",
        ),
        click.option(
            "--language", multiple=True, default=("python",), show_default=True, help="Of the files with places."
        ),
        click.option(
            "--left-only", is_flag=True, help="Show the model and the n-grams nothing right of the cursor."
        ),
        click.option(
            "--max-tokens", type=click.IntRange(1, 512), default=24, show_default=True, help="Longest draft."
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="Which places."),
        click.option(
            "--files", type=click.IntRange(min=1), default=25, show_default=True, help="Files a package."
        ),
        click.option("-k", "drafts", type=click.IntRange(1, 16), default=3, show_default=True, help="Drafts."),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps."),
        click.option(
            "--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder, or an id."
        ),
        click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


@evaluate.command()
@_place_options
@click.option(
    "--arms",
    default=_ARMS,
    show_default=True,
    metavar="A,B,...",
    help="DECODER[:SETTING=VALUE]...[@PRIOR], such as beam:drafts=5@built-in.",
)
@click.option(
    "--priors",
    default="repository+file,none",
    show_default=True,
    metavar="P,Q,...",
    help="For arms without @: none, built-in, repository, repository+file.",
)
@click.option("--places", type=click.IntRange(min=1), help="At most so many, spread over all packages.")
@click.option("--primary", is_flag=True, help="Only at the start of a line and after a dot, bracket or the like.")
@click.option("--typed", type=click.IntRange(min=0), default=100, show_default=True, help="Lines typed through.")
@click.option(
    "--drawn",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Places where samplers draw 20 times, for what they score on average.",
)
@click.option(
    "--against",
    default="greedy,nucleus,beam",
    show_default=True,
    metavar="A,B,...",
    help="What all arms are compared with, in pairs.",
)
@click.option("--tuned", is_flag=True, help="Also the best of each way that `eval baselines` found in --out.")
@click.option(
    "--show", type=click.IntRange(min=0), default=12, show_default=True, help="Places to print, at random."
)
@click.option("--show-seed", type=int, default=0, show_default=True, help="Which of them.")
def quality(repos: tuple[Path, ...], **options: Any) -> None:
    """Compare ways to complete at places where a cursor might stand.

    REPO is a package or repository: its other files are what the n-grams know. Results go to a folder as they are
    found; the tables are printed. Example: spd-lsp eval quality ~/code/*/ --places 200
    """
    with resumable() as report:
        _run_quality(repos, options, report)


@evaluate.command()
@_place_options
@click.option("--places", type=click.IntRange(min=20), default=300, show_default=True, help="At most so many.")
def baselines(repos: tuple[Path, ...], **options: Any) -> None:
    """Try five to ten settings of each way to write drafts, and name the best of each.

    Nucleus sampling by temperature and top-p, beam search by length penalty and temperature, branches of the
    first token, greedy and superposed decoding, all with the same n-grams. `eval quality --tuned` compares with
    the best.
    """
    from spd_lsp.evaluation.baselines import arms_of, summarise

    with resumable() as report:
        session = opened(repos, options, report)
        cursors = session.primary(options["places"])
        records = session.ask(cursors, arms_of())
        publish(
            summarise(records, {**session.facts, "places": len(cursors)}, options["drafts"]),
            options["out"],
            figure=options["figures"],
        )


@evaluate.command("drafts")
@_place_options
@click.option("--places", type=click.IntRange(min=1), help="At most so many.")
@click.option("--typed", type=click.IntRange(min=0), default=30, show_default=True, help="Lines typed through.")
@click.option(
    "--by", default="2,3,5,8", show_default=True, metavar="K,L,...", help="How many drafts, 2 to 16 each."
)
@click.option("--tuned", is_flag=True, help="Each way at the best that `eval baselines` found in --out.")
def by_drafts(repos: tuple[Path, ...], **options: Any) -> None:
    """Compare superposed decoding, beam search and nucleus sampling by the number of drafts.

    Beside them stands the ceiling: how often what was written is among 20 drafts of a beam search.
    """
    from spd_lsp.evaluation.baselines import best_of
    from spd_lsp.evaluation.by_drafts import PLAIN, arms_of, summarise

    numbers = _numbers_of(options["by"])
    ways = [best_of(options["out"]).get(way, way) for way in PLAIN] if options["tuned"] else PLAIN
    arms = arms_of(numbers, ways)
    with resumable() as report:
        session = opened(repos, options, report)
        cursors = session.primary(options["places"])
        records = session.ask(cursors, [arm for one in arms.values() for arm in one], typed=options["typed"])
        found = summarise(records, arms, session.facts)
    publish(found, options["out"], figure=options["figures"])


@evaluate.command()
@click.argument("results", metavar="RESULTS", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--arms",
    default="superposed@repository+file,superposed@none",
    show_default=True,
    metavar="A,B,...",
    help="Whose drafts, with their n-grams.",
)
def confidence(results: Path, arms: str) -> None:
    """Find how often drafts with some probability are right, from the RESULTS of `eval quality`.

    Each package is judged by weights from the others; confidence.py holds those of the starter.
    """
    from spd_lsp.evaluation.calibration import as_line, observed
    from spd_lsp.evaluation.store import read_places

    records = read_places(results / "places.jsonl")
    for label in split(arms):
        click.echo(as_line(label, observed(records, label)))


def opened(repos: Sequence[Path], options: dict[str, Any], report: Report) -> Session:
    """The session that a command's options ask for; folders are looked at before anything that takes long."""
    from spd_lsp.evaluation.places import read_packages
    from spd_lsp.evaluation.session import Options, open_session

    packages = read_packages(repos, lambda done, total: report("read", done, total))
    known = {field.name for field in dataclasses.fields(Options)}
    chosen = {name: value for name, value in options.items() if name in known}
    return open_session(packages, Options(**chosen), report, tell)


def _run_quality(repos: Sequence[Path], options: dict[str, Any], report: Report) -> None:
    """Check for leaks, measure, publish."""
    from spd_lsp.evaluation.arms import parse_arms
    from spd_lsp.evaluation.report import Shown, report_of
    from spd_lsp.evaluation.tables import Results

    arms = parse_arms([*split(options["arms"]), *(tuned := _tuned_arms(options))], split(options["priors"]))
    if options["arms"] == _ARMS:
        arms += parse_arms(_DIFFERENT_PRIORS, [])
    session = opened(repos, options, report)
    cursors = session.primary() if options["primary"] else session.cursors
    records = session.ask(cursors[: options["places"]], arms, typed=options["typed"], drawn=options["drawn"])
    against = [*split(options["against"]), *(arm.partition("@")[0] for arm in tuned)]
    results = Results(records, arms, options["drafts"], list(dict.fromkeys(against)))
    shown = Shown(options["show"], options["show_seed"])
    found = report_of(results, session.facts, session.findings, shown)
    publish(found, options["out"], figure=options["figures"])


def _tuned_arms(options: dict[str, Any]) -> list[str]:
    """The best of each way, with the prior they were chosen with, if they are asked for."""
    from spd_lsp.evaluation.arms import FULL
    from spd_lsp.evaluation.baselines import best_of

    return [f"{arm}@{FULL}" for arm in best_of(options["out"]).values()] if options["tuned"] else []


def split(text: str) -> list[str]:
    """Example: `a, b` -> a and b"""
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers_of(text: str) -> list[int]:
    """Numbers of drafts. Example: `2,3` -> 2 and 3"""
    found = sorted({int(part) if part.isdecimal() else 0 for part in split(text)})
    if not found or found[0] < 2 or found[-1] > 16:
        raise UserError(f"expected numbers of drafts from 2 to 16, such as 2,3,5,8, found {text!r}; write others")
    return found
