"""The commands of the paper's experiments. What is slow to import is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spd_lsp.checkpoints import locate
from spd_lsp.settings import UserError

if TYPE_CHECKING:
    from spd_lsp.evaluation.paper.passages import Source
    from spd_lsp.evaluation.paper.report import Report
    from spd_lsp.tokens import Tokens


class Experiments(click.Group):
    """Errors that a person can mend end as one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; say what went wrong in one line."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Experiments, context_settings={"help_option_names": ["-h", "--help"]})
def experiments() -> None:
    """Repeat an experiment of the Superposed Decoding paper on source code."""


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """What every experiment is told: a model, a place for results, a seed."""
    for option in (
        click.option("--seed", default=0, show_default=True, help="Chooses files, places and samples."),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path("results"),
            show_default=True,
            help="Folder for the table, the JSON file and the figure.",
        ),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps."),
        click.option(
            "--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder or an id."
        ),
    ):
        command = option(command)
    return command


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """For experiments on code: repositories, and how much of them."""
    for option in (
        click.option(
            "--prefix", default=128, show_default=True, help="Tokens that the model reads before a place."
        ),
        click.option("--places", default=40, show_default=True, help="Places in each repository."),
        click.argument(
            "repos",
            metavar="REPO...",
            nargs=-1,
            required=True,
            type=click.Path(exists=True, file_okay=False, path_type=Path),
        ),
    ):
        command = option(command)
    return shared_options(command)


def progress_over(items: Sequence[Any], what: str) -> Any:
    """The items, with a bar on standard error where that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    return track(items, description=what, console=Console(stderr=True), transient=True)


def read_sources(
    repos: Sequence[Path], tokens: Tokens, *, places: int, before: int, after: int, seed: int
) -> list[Source]:
    """The places of all repositories."""
    from spd_lsp.evaluation.paper.passages import read_source

    return [
        read_source(repo, tokens, places=places, before=before, after=after, seed=seed)
        for repo in progress_over(repos, "reading")
    ]


def publish(report: Report, out: Path) -> None:
    """Write the results and show the tables."""
    from spd_lsp.evaluation.paper.report import figures_possible, write

    written = write(report, out)
    click.echo(report.markdown())
    click.echo(f"wrote {', '.join(map(str, written))}", err=True)
    if report.draw is not None and not figures_possible():
        click.echo("no figure: matplotlib is missing; pip install 'spd-lsp[bench]'", err=True)


@experiments.command()
@source_options
@click.option("-k", "drafts", default=3, show_default=True, type=click.IntRange(2, 16), help="Beams.")
@click.option("--steps", default=24, show_default=True, type=click.IntRange(1, 200), help="Timesteps.")
@click.option(
    "--temperature",
    "temperatures",
    multiple=True,
    type=click.FloatRange(0.001, 10),
    default=(1.0, 0.06),
    show_default=True,
    help="Of the drafts' probabilities, which weigh their tokens (tau); may be given again.",
)
def linearity(
    repos: Sequence[Path],
    model: str,
    device: str,
    out: Path,
    seed: int,
    places: int,
    prefix: int,
    drafts: int,
    steps: int,
    temperatures: Sequence[float],
) -> None:
    """Cosine between a superposed run and its separate drafts, by timestep and layer (figures 3 and 16)."""
    from spd_lsp.tokens import Tokens

    folder = locate(model, lambda text: click.echo(text, err=True))
    sources = read_sources(repos, Tokens(folder), places=places, before=prefix, after=steps, seed=seed)

    from spd_lsp.evaluation.paper.linearity import trace
    from spd_lsp.evaluation.paper.linearity_report import summarise
    from spd_lsp.model import load

    network = load(folder, device).network
    passages = [passage for source in sources for passage in source.passages]
    traces = {
        temperature: [
            trace(network, passage.prefix(prefix), drafts, steps, temperature)
            for passage in progress_over(passages, f"tau {temperature}")
        ]
        for temperature in temperatures
    }
    facts = {"model": model, "k": drafts, "prefix tokens": prefix, "places": len(passages),
             "repositories": len(sources), "seed": seed}  # fmt: skip
    groups = [(passage.repository, passage.file) for passage in passages]
    publish(summarise(traces, groups, facts), out)
