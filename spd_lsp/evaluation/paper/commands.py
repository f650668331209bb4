"""The commands of the paper's experiments. What is slow to import is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spd_lsp.checkpoints import locate
from spd_lsp.settings import UserError

if TYPE_CHECKING:
    from spd_lsp.evaluation.paper.drafting import Judge, Writer
    from spd_lsp.evaluation.paper.passages import Passage, Source
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


def progress_over(items: Iterable[Any], what: str, total: int | None = None) -> Any:
    """The items, with a bar on standard error where that is a terminal; `total` where they do not tell."""
    from rich.console import Console
    from rich.progress import track

    return track(items, total=total, description=what, console=Console(stderr=True), transient=True)


def read_sources(
    repos: Sequence[Path], tokens: Tokens, *, places: int, before: int, after: int, seed: int
) -> list[Source]:
    """The places of all repositories."""
    from spd_lsp.evaluation.paper.passages import read_source

    return [
        read_source(repo, tokens, places=places, before=before, after=after, seed=seed)
        for repo in progress_over(repos, "reading")
    ]


@dataclass(frozen=True, slots=True)
class Bench:
    """A model and the places it is asked about."""

    writer: Writer
    sources: list[Source]
    facts: dict[str, Any]

    @property
    def passages(self) -> list[Passage]:
        """All places, repository by repository."""
        return [passage for source in self.sources for passage in source.passages]

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Where each place is, for intervals."""
        return [(passage.repository, passage.file) for passage in self.passages]


def prepare(
    repos: Sequence[Path], model: str, device: str, *, places: int, before: int, after: int, seed: int
) -> Bench:
    """Read the repositories, count what is not asked about, and load the model."""
    from ngram_builders.tables import Table
    from spd_lsp.checkpoints import STARTER, built_in_domains
    from spd_lsp.interpolation import BUILT_IN_WEIGHT
    from spd_lsp.tokens import Tokens

    folder = locate(model, tell)
    tokens = Tokens(folder)
    sources = read_sources(repos, tokens, places=places, before=before, after=after, seed=seed)
    built_in = built_in_domains(folder) if model == STARTER else {}
    beside = [(Table.open(path, tokens.fingerprint).columns, BUILT_IN_WEIGHT) for path in built_in.values()]

    from spd_lsp.evaluation.paper.drafting import Writer, mixtures_of
    from spd_lsp.model import load

    writer = Writer(load(folder, device), tokens, mixtures_of(sources, tokens.vocab_size, beside))
    facts = {"model": model, "repositories": len(sources), "seed": seed,
             "places": sum(len(source.passages) for source in sources), "prefix tokens": before}  # fmt: skip
    return Bench(writer, sources, facts)


def judge_of(judge: str, model: str, device: str, bench: Bench) -> Judge:
    """The model that judges; by default the one that writes."""
    from spd_lsp.evaluation.paper.drafting import Judge
    from spd_lsp.model import load
    from spd_lsp.tokens import Tokens

    if judge in ("", model):
        return Judge(bench.writer.model, bench.writer.tokens, same=True)
    folder = locate(judge, tell)
    tokens = Tokens(folder)
    return Judge(load(folder, device), tokens, same=tokens.fingerprint == bench.writer.tokens.fingerprint)


def tell(text: str) -> None:
    """Say what goes on, beside the output."""
    click.echo(text, err=True)


def publish(report: Report, out: Path) -> None:
    """Write the results and show the tables."""
    from spd_lsp.evaluation.paper.report import figures_possible, write

    written = write(report, out)
    click.echo(report.markdown())
    tell(f"wrote {', '.join(map(str, written))}")
    if report.draw is not None and not figures_possible():
        tell("no figure: matplotlib is missing; pip install 'spd-lsp[bench]'")


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

    folder = locate(model, tell)
    sources = read_sources(repos, Tokens(folder), places=places, before=prefix, after=steps, seed=seed)

    from spd_lsp.evaluation.paper.linearity import open_network, traces
    from spd_lsp.evaluation.paper.linearity_report import summarise

    network = open_network(folder, device)
    passages = [passage for source in sources for passage in source.passages]
    prompts = [passage.prefix(prefix) for passage in passages]
    found = {
        temperature: list(
            progress_over(traces(network, prompts, drafts, steps, temperature), f"tau {temperature}", len(prompts))
        )
        for temperature in temperatures
    }
    facts = {"model": model, "k": drafts, "prefix tokens": prefix, "places": len(passages),
             "repositories": len(sources), "seed": seed}  # fmt: skip
    groups = [(passage.repository, passage.file) for passage in passages]
    publish(summarise(found, groups, facts), out)


K_OPTION = click.option("-k", "drafts", default=3, show_default=True, type=click.IntRange(1, 16), help="Drafts.")
TOKENS_OPTION = click.option(
    "--tokens", default=10, show_default=True, type=click.IntRange(1, 256), help="Length of drafts, in tokens."
)
JUDGE_OPTION = click.option(
    "--judge", default="", metavar="M", help="The model that judges drafts (default: the one that writes them)."
)


@experiments.command()
@source_options
@K_OPTION
@TOKENS_OPTION
@JUDGE_OPTION
def perplexity(
    repos: Sequence[Path],
    model: str,
    device: str,
    out: Path,
    seed: int,
    places: int,
    prefix: int,
    drafts: int,
    tokens: int,
    judge: str,
) -> None:
    """Perplexity of drafts by rank, against nucleus, greedy, beam and n-grams alone (tables 1 and 3)."""
    from spd_lsp.evaluation.paper.perplexity import measure, summarise

    bench = prepare(repos, model, device, places=places, before=prefix, after=tokens, seed=seed)
    judging = judge_of(judge, model, device, bench)
    measured = [
        measure(bench.writer, judging, passage, k=drafts, prefix=prefix, tokens=tokens)
        for passage in progress_over(bench.passages, "drafting")
    ]
    facts = {**bench.facts, "k": drafts, "tokens a draft": tokens, "judge": judge or model}
    publish(summarise(measured, bench.groups, facts, drafts), out)


@experiments.command()
@source_options
@K_OPTION
def diversity(
    repos: Sequence[Path], model: str, device: str, out: Path, seed: int, places: int, prefix: int, drafts: int
) -> None:
    """Repetition within drafts and likeness among them (Self-BLEU), by length (figure 8)."""
    from spd_lsp.evaluation.paper.diversity import LENGTHS, measure, summarise

    bench = prepare(repos, model, device, places=places, before=prefix, after=max(LENGTHS), seed=seed)
    measured = [
        measure(bench.writer, passage, k=drafts, prefix=prefix)
        for passage in progress_over(bench.passages, "drafting")
    ]
    publish(summarise(measured, bench.groups, {**bench.facts, "k": drafts}), out)


@experiments.command()
@source_options
@JUDGE_OPTION
def ablations(
    repos: Sequence[Path], model: str, device: str, out: Path, seed: int, places: int, prefix: int, judge: str
) -> None:
    """Drafts, prefix, length and n-gram orders, one changed at a time (figures 9 to 11, table 4).

    --prefix is what a place must have before it; what is tried stands in the table.
    """
    from spd_lsp.evaluation.paper.ablations import (
        LENGTHS,
        ORDERS,
        PREFIXES,
        attempt,
        mixtures,
        stored_bytes,
        summarise,
    )

    before = max(prefix, *PREFIXES)
    bench = prepare(repos, model, device, places=places, before=before, after=max(LENGTHS), seed=seed)
    judging = judge_of(judge, model, device, bench)
    size = bench.writer.tokens.vocab_size
    known = {name: mixtures(bench.sources, size, orders) for name, orders in ORDERS.items()}
    stored = {name: stored_bytes(bench.sources, bench.writer, orders) for name, orders in ORDERS.items()}
    measured = [
        attempt(known, bench.writer, judging, passage) for passage in progress_over(bench.passages, "drafting")
    ]
    publish(summarise(measured, bench.groups, {**bench.facts, "judge": judge or model}, stored), out)


@experiments.command()
@source_options
@K_OPTION
@click.option("--tokens", default=120, show_default=True, type=click.IntRange(8, 512), help="Length of drafts.")
@JUDGE_OPTION
def resets(
    repos: Sequence[Path],
    model: str,
    device: str,
    out: Path,
    seed: int,
    places: int,
    prefix: int,
    drafts: int,
    tokens: int,
    judge: str,
) -> None:
    """Repetition in long completions, with and without starting again (section 5.3)."""
    from spd_lsp.evaluation.paper.resets import measure, summarise

    bench = prepare(repos, model, device, places=places, before=prefix, after=tokens, seed=seed)
    judging = judge_of(judge, model, device, bench)
    measured = [
        measure(bench.writer, judging, passage, k=drafts, prefix=prefix, tokens=tokens)
        for passage in progress_over(bench.passages, "drafting")
    ]
    facts = {**bench.facts, "k": drafts, "tokens a draft": tokens, "judge": judge or model}
    publish(summarise(measured, bench.groups, facts, tokens), out)
