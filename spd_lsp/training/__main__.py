"""The commands of the recipe: `python -m spd_lsp.training all --work DIR` runs every step in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from spd_lsp.settings import UserError
from spd_lsp.terminal import console as standard_error
from spd_lsp.terminal import guard_output
from spd_lsp.tokens import Tokens
from spd_lsp.training import recipe
from spd_lsp.training.corpus import Source, requirements
from spd_lsp.training.lengths import measure_lengths, measure_reach
from spd_lsp.training.recipe import Recipe
from spd_lsp.training.tokenizer import MERGES, VOCABULARY
from spd_lsp.training.train import Plan, Progress

STARTER = Path(__file__).parents[1] / "starter"
TOKENS = 17_000_000
console = standard_error()


class Steps(click.Group):
    """Commands whose errors a person can mend end as one sentence and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; say what went wrong in one line."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise click.ClickException(str(error)) from error


def chosen(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every step."""
    seed = click.option("--seed", default=0, show_default=True, help="Decides order, gaps and first weights.")
    work = click.option(
        "--work",
        required=True,
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for archives, corpus, rows and checkpoints; some 2 GB.",
    )
    return work(seed(command))


def budget(command: Callable[..., None]) -> Callable[..., None]:
    """The options of training."""
    threads = click.option("--threads", default=1, show_default=True, help="Processor threads.")
    minutes = click.option("--minutes", default=0.0, help="Be done after so many minutes at the latest.")
    tokens = click.option("--tokens", default=TOKENS, show_default=True, help="Tokens to learn from.")
    return tokens(minutes(threads(command)))


def spelling(command: Callable[..., None]) -> Callable[..., None]:
    """The options of the tokenizer; every later step uses the one that lies in the work folder."""
    size = click.option("--vocabulary", default=VOCABULARY, show_default=True, help="Tokens it may have.")
    merges = click.option(
        "--merges",
        type=click.Choice(MERGES),
        default=MERGES[0],
        show_default=True,
        help="Whether tokens stay inside of words, or go across the blanks of a line.",
    )
    return size(merges(command))


def target(command: Callable[..., None]) -> Callable[..., None]:
    """Where the finished model goes."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=kind, default=STARTER, help="The exported folder.")(command)


@contextmanager
def following(name: str, plan: Plan) -> Iterator[Callable[[Progress, float], None]]:
    """A progress bar; what is yielded hears of every step and its loss."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console) as bars:
        bar = bars.add_task(name, total=1.0)
        began, first = time.monotonic(), -1

        def report(progress: Progress, loss: float) -> None:
            nonlocal first
            first = progress.tokens if first < 0 else first
            speed = (progress.tokens - first) / (time.monotonic() - began)
            text = f"{progress.tokens / 1e6:.2f} M tokens, loss {loss:.3f}, {speed:.0f} tokens/s"
            bars.update(bar, completed=progress.share(plan), description=text)

        yield report


@click.group(cls=Steps, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Make the starter model from its sources."""
    guard_output()


@main.command()
@chosen
def corpus(work: Path, seed: int) -> None:
    """Fetch the packages of corpus.txt and keep their Python files."""
    make = Recipe(work=work, seed=seed)
    with Bars(console=console) as bars:
        bar = bars.add_task("corpus", total=len(requirements(make.listing)) + 1)

        def report(source: Source) -> None:
            bars.console.print(f"{source.name} {source.version}: {source.skipped or f'{source.files} files'}")
            bars.advance(bar)

        recipe.make_corpus(make, report)


@main.command()
@chosen
@spelling
def tokenizer(work: Path, seed: int, vocabulary: int, merges: str) -> None:
    """Learn the tokenizer."""
    with console.status("learning the tokenizer"):
        recipe.make_tokenizer(Recipe(work=work, seed=seed, vocabulary=vocabulary, merges=merges))


@main.command()
@chosen
@click.option(
    "--source-bytes", default=recipe.ROWS_BYTES, show_default=True, help="How much source text to learn from."
)
def rows(work: Path, seed: int, source_bytes: int = recipe.ROWS_BYTES) -> None:
    """Encode the corpus."""
    with console.status("encoding the corpus"):
        recipe.make_rows(Recipe(work=work, seed=seed, rows_bytes=source_bytes))


@main.command()
@chosen
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def lengths(work: Path, seed: int, folders: tuple[Path, ...]) -> None:
    """Say how short the tokenizer writes the Python files of some folders, and what cursors keep out of reach."""
    tokens = Tokens(Recipe(work=work, seed=seed).needed("tokenizer/tokenizer.json", "tokenizer").parent)
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    texts = [path.read_bytes().decode("utf-8", errors="replace") for path in paths]
    found = measure_lengths(texts, tokens)
    console.print(f"{found.bytes / found.tokens:.3f} bytes a token")
    console.print(f"{found.tokens / found.lines:.3f} tokens a line that is not blank")
    for where, (missed, places) in measure_reach(texts, tokens).items():
        console.print(f"out of reach {where}: {missed} of {places} lines")


@main.command()
@chosen
@budget
@click.option("--batch", default=8, show_default=True, help="Rows a step; fewer make more of a short run.")
def train(work: Path, seed: int, tokens: int, minutes: float, threads: int, batch: int = 8) -> None:
    """Train, or go on training."""
    torch.set_num_threads(threads)
    plan = Plan(tokens=tokens, minutes=minutes, seed=seed, rows_a_step=batch)
    with following("train", plan) as report:
        recipe.make_weights(Recipe(work=work, seed=seed), plan, report)


@main.command()
@chosen
@budget
@click.option("--kind", type=click.Choice(list(recipe.PHASES)), default="superposed", show_default=True)
@click.option("--start", type=click.Path(exists=True, file_okay=False, path_type=Path), default=STARTER)
@click.option("--rate", default=recipe.SMALL_RATE, show_default=True, help="Highest learning rate of matrices.")
@click.option(
    "--decay-from", default=0.05, show_default=True, help="Share of the budget from which the rate falls to 0."
)
def phase(
    work: Path,
    seed: int,
    tokens: int,
    minutes: float,
    threads: int,
    kind: str,
    start: Path,
    rate: float,
    decay_from: float,
) -> None:
    """Go on from an exported model, on plain inputs or on superposed ones."""
    torch.set_num_threads(threads)
    plan = recipe.phase_plan(tokens, minutes, seed, rate, decay_from)
    with following(kind, plan) as report:
        recipe.make_phase(Recipe(work=work, seed=seed), kind, start, plan, report)


@main.command()
@chosen
@target
@click.option("--kind", type=click.Choice(["run", *recipe.PHASES]), default="run", show_default=True)
def export(work: Path, seed: int, out: Path, kind: str = "run") -> None:
    """Write the last checkpoint as a Hugging Face folder with its model card."""
    with console.status("measuring and writing the model"):
        facts = recipe.make_starter(Recipe(work=work, seed=seed), out, kind)
    for kind, loss in facts["validation"].items():
        console.print(
            f"{kind}: {loss['nats_per_token']:.3f} nats a token, {loss['bits_per_byte']:.3f} bits a byte"
        )


@main.command()
@chosen
@target
def ngrams(work: Path, seed: int, out: Path) -> None:
    """Write the built-in n-gram domain of the corpus beside the model."""
    with console.status("encoding all of the corpus") as status:
        table = recipe.make_ngrams(
            Recipe(work=work, seed=seed), out, lambda order: status.update(f"counted order {order}")
        )
    size = table.size / 2**20
    console.print(f"{table.ngrams:,} n-grams of {table.tokens:,} tokens in {table.files:,} files, {size:.1f} MiB")


@main.command(name="all")
@chosen
@spelling
@budget
@target
@click.pass_context
def run_all(
    ctx: click.Context, /, work: Path, seed: int, out: Path, vocabulary: int, merges: str, **options: Any
) -> None:
    """Every step in order; what is there already is not made again."""
    ctx.invoke(corpus, work=work, seed=seed)
    ctx.invoke(tokenizer, work=work, seed=seed, vocabulary=vocabulary, merges=merges)
    ctx.invoke(rows, work=work, seed=seed)
    ctx.invoke(train, work=work, seed=seed, **options)
    for step in (export, ngrams):
        ctx.invoke(step, work=work, seed=seed, out=out)


if __name__ == "__main__":
    main()
