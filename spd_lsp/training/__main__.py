"""The commands that make the model: corpus, base, rows, train, export and ngrams, in this order."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import torch
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from ngram_builders.errors import UserError
from ngram_builders.table.format import TableSummary
from spd_lsp.output.terminal import console, guard_output
from spd_lsp.training import handover, recipe
from spd_lsp.training.corpus.gather import CORPUS_LANGUAGES, read_listing
from spd_lsp.training.corpus.package import Source
from spd_lsp.training.memorization import SHORTEST_COPY
from spd_lsp.training.recipe import Recipe
from spd_lsp.training.train import Progress, TrainingPlan

STARTER_FOLDER = Path(__file__).parents[1] / "starter"
TOKENS = 730_080
DECAY = 300_000  # tokens, the last ones
STEPS_PER_LOG_LINE = 10  # steps between lines of a log


class RecipeGroup(click.Group):
    """Commands that report a user error in one sentence and exit with status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn a `UserError` into one line."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            raise click.ClickException(str(error)) from error


def common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every step."""
    seed = click.option("--seed", default=0, show_default=True, help="Determines the order of rows, and gaps.")
    work = click.option(
        "--work",
        required=True,
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for archives, corpus, rows and checkpoints; some 2 GB.",
    )
    return work(seed(command))


def model_folder_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add the output folder of the model."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=kind, default=STARTER_FOLDER, help="The bundled model's folder.")(command)


@contextmanager
def show_progress(name: str, plan: TrainingPlan) -> Iterator[Callable[[Progress, float], None]]:
    """Show a progress bar, or lines without a terminal; yield the callback for each step and its loss."""
    out = console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=out, disable=not out.is_terminal) as bars:
        bar = bars.add_task(name, total=1.0)
        first: list[float] = []  # tokens and seconds
        losses: list[float] = []

        def report(progress: Progress, loss: float) -> None:
            if not first:
                first.extend((progress.tokens, progress.seconds))
            losses.append(loss)
            speed = (progress.tokens - first[0]) / (progress.seconds - first[1] or math.inf)
            mean = sum(losses[-STEPS_PER_LOG_LINE:]) / len(losses[-STEPS_PER_LOG_LINE:])
            text = f"{progress.tokens / 1e6:.2f} M tokens, loss {mean:.3f}, {speed:.0f} tokens per CPU second"
            bars.update(bar, completed=progress.share(plan), description=text)
            if not out.is_terminal and progress.step % STEPS_PER_LOG_LINE == 0:
                out.print(
                    f"{datetime.now(timezone.utc):%m-%d %H:%M:%S} step {progress.step}: {text}", soft_wrap=True
                )

        yield report


def stop_on_signal() -> Callable[[Progress], bool]:
    """Return a condition that is true after SIGTERM or SIGINT, so that the run saves a checkpoint and ends."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.set())
    return lambda progress: stopped.is_set()


@click.group(cls=RecipeGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Make the starter model from its sources."""
    guard_output()


@contextmanager
def show_packages(listing: Path, more: int = 0) -> Iterator[Callable[[Source], None]]:
    """Show a progress bar over the packages of a list; yield the callback for each package."""
    with Bars(console=console()) as bars:
        bar = bars.add_task("corpus", total=sum(map(len, read_listing(listing).values())) + more)

        def report(source: Source) -> None:
            result = source.skipped or f"{source.files} files, {source.bytes / 1e6:.1f} MB"
            bars.console.print(f"{source.language}: {source.name} {source.version}: {result}", soft_wrap=True)
            bars.advance(bar)

        yield report


@main.command()
@common_options
@click.option(
    "--held-out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="A folder that the model will be judged on: copies of its files are left out; may be repeated.",
)
def corpus(work: Path, seed: int, held_out: tuple[Path, ...]) -> None:
    """Fetch the packages of corpus.txt and keep their sources."""
    make = Recipe(work=work, seed=seed)
    with show_packages(make.listing, more=1) as report:
        recipe.make_corpus(make, report, held_out)


@main.command()
@common_options
def evaluation_packages(work: Path, seed: int) -> None:
    """Fetch the packages that `spd-lsp eval quality` measures on; the model learns nothing from them."""
    with show_packages(recipe.EVALUATION_PACKAGES) as report:
        recipe.fetch_evaluation_packages(Recipe(work=work, seed=seed), report)


@main.command()
@common_options
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def base(work: Path, seed: int, model: Path) -> None:
    """Start from a model in a GGUF file: keep the tokens that code needs."""
    with console().status("trimming the vocabulary"):
        recipe.make_base(Recipe(work=work, seed=seed), model)


@main.command()
@common_options
def rows(work: Path, seed: int) -> None:
    """Encode the corpus."""
    with console().status("encoding the corpus"):
        recipe.make_rows(Recipe(work=work, seed=seed))


@main.command()
@common_options
@click.option("--threads", default=1, show_default=True, help="Processor threads.")
@click.option("--tokens", default=TOKENS, show_default=True, help="Tokens to learn from.")
@click.option("--decay", default=DECAY, show_default=True, help="Last tokens, over which the rate falls to 0.")
def train(work: Path, seed: int, threads: int, tokens: int, decay: int) -> None:
    """Train, or resume training."""
    torch.set_num_threads(threads)
    plan = TrainingPlan(tokens=tokens, seed=seed, decay=decay)
    with show_progress("train", plan) as report:
        recipe.make_weights(Recipe(work=work, seed=seed), plan, report, stop_on_signal())


@main.command()
@common_options
@model_folder_option
def export(work: Path, seed: int, out: Path) -> None:
    """Write the last checkpoint as a GGUF file with its model card, and DIR/exported for Hugging Face."""
    with console().status("measuring and writing the model"):
        facts = recipe.make_starter(Recipe(work=work, seed=seed), out)
    for language, kinds in facts["validation"].items():
        said = (f"{kind} {loss['bits_per_byte']:.3f}" for kind, loss in kinds.items())
        console().print(f"{language}, bits a byte: {', '.join(said)}")


@main.command()
@common_options
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--prompts", default=500, show_default=True, help="Number of prompts.")
def memorization(work: Path, seed: int, model: Path, prompts: int) -> None:
    """Measure how much training text an exported model repeats word for word after prompts from that text."""
    torch.set_num_threads(1)
    with console().status("continuing training text"):
        found = recipe.measure_copies(Recipe(work=work, seed=seed), model, prompts)
    longest = f", the longest of {max(found.copies)}" if found.copies else ""
    console().print(
        f"{found.prompts} prompts: {found.continued} continued as in the training text, "
        f"{len(found.copies)} continuations with copies of {SHORTEST_COPY} tokens or more{longest}",
        soft_wrap=True,
    )


@main.command()
@common_options
@model_folder_option
@click.option(
    "--language",
    "languages",
    type=click.Choice(CORPUS_LANGUAGES),
    multiple=True,
    default=("python",),
    show_default=True,
    help="Language of a table; may be repeated.",
)
def ngrams(work: Path, seed: int, out: Path, languages: Sequence[str]) -> None:
    """Write the built-in n-gram tables of the corpus beside the model, one for each language."""

    def report(language: str, table: TableSummary) -> None:
        console().print(
            f"{language}: {table.ngrams:,} n-grams of {table.tokens:,} tokens in {table.files:,} files, "
            f"{table.size / 1e6:.1f} MB, least counts {table.min_count}",
            soft_wrap=True,
        )

    with console().status("counting the corpus"):
        recipe.make_ngrams(Recipe(work=work, seed=seed), out, report, languages)


@main.command()
@common_options
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
def pack(work: Path, seed: int, archive: Path) -> None:
    """Write the run's weights, plan and tokenizer into one file, to continue it elsewhere."""
    size = handover.pack_run(work, archive)
    console().print(f"{archive}: {size / 2**20:.1f} MiB", soft_wrap=True)


@main.command()
@common_options
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def unpack(work: Path, seed: int, archive: Path) -> None:
    """Unpack a run that `pack` wrote; then run `corpus`, `rows` and `train`."""
    handover.unpack_run(archive, work)


if __name__ == "__main__":
    main()
