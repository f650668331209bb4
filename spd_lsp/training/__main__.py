"""The commands that make the model: corpus, base, rows, train and export, in this order."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import torch

from ngram_builders.errors import UserError
from spd_lsp.output.progress import progress
from spd_lsp.training import recipe
from spd_lsp.training.corpus.gather import LISTING, gather
from spd_lsp.training.train import Progress, TrainingPlan

_STARTER = Path(__file__).parents[1] / "starter"
_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_in_work_folder = click.option("--work", required=True, type=_FOLDER, help="Working folder (about 4 GB).")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Make the starter model from its sources."""


@main.command()
@_in_work_folder
@click.option(
    "--listing",
    type=_FILE,
    default=LISTING,
    help="List of packages (default: corpus.txt). evaluation_packages.txt lists those of the evaluation.",
)
def corpus(work: Path, listing: Path) -> None:
    """Download packages and keep their sources. Earlier downloads are reused."""
    for source in gather(listing, work / "archives", work / "corpus"):
        result = source.skipped or f"{source.files} files, {source.bytes / 1e6:.1f} MB"
        click.echo(f"{source.language}: {source.name} {source.version}: {result}")


@main.command()
@_in_work_folder
@click.argument("model", type=_FILE)
def base(work: Path, model: Path) -> None:
    """Start from SmolLM2-135M-Instruct in a GGUF file: keep the tokens that code needs."""
    recipe.make_base(work, model)


@main.command()
@_in_work_folder
def rows(work: Path) -> None:
    """Encode the corpus."""
    recipe.make_rows(work)


@main.command()
@_in_work_folder
@click.option("--threads", default=1, show_default=True, help="Processor threads.")
@click.option("--tokens", default=730_080, show_default=True, help="Number of training tokens.")
@click.option("--decay", default=300_000, show_default=True, help="Last tokens, with a falling rate.")
def train(work: Path, threads: int, tokens: int, decay: int) -> None:
    """Train or resume training. An interrupted run loses at most 40 steps."""
    torch.set_num_threads(threads)
    with progress() as show:

        def report(done: Progress, loss: float) -> None:
            show("tokens", done.tokens, tokens)
            click.echo(f"step {done.step}: loss {loss:.3f}, {done.tokens / done.seconds:.0f} tokens a CPU second")

        recipe.make_weights(work, TrainingPlan(tokens=tokens, decay=decay), report)


@main.command()
@_in_work_folder
@click.option("--out", type=_FOLDER, default=_STARTER, help="The bundled model's folder.")
def export(work: Path, out: Path) -> None:
    """Write the last checkpoint as a GGUF file, with its model card, training.json and NOTICE."""
    recipe.make_starter(work, out)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"Error: {error}")
