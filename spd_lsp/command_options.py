"""What commands of several rooms share: arguments and options, and where they say how far they are."""

from __future__ import annotations

from collections.abc import Callable

import click


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every command that needs a model."""
    device = click.option(
        "--device", default="auto", show_default=True, help="Device for the model: auto, cpu, mps, cuda or cuda:N."
    )
    model = click.option(
        "--model",
        default="starter",
        show_default=True,
        metavar="M",
        help="Model to use: `starter`, a GGUF file, a folder such as ./mine, a name from `spd-lsp models`, a "
        "Hugging Face id, the http:// address of a model server, or `none` for n-grams only.",
    )
    return model(device(command))


def print_status(text: str) -> None:
    """Print to standard error, apart from a command's output."""
    click.echo(text, err=True)
