"""What commands of several rooms share: arguments and options, and where they say how far they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ngram_builders.errors import UserError


class LocalPath(click.Path):
    """A path on this machine; an address such as `s3://...` is refused, not read as a folder named `s3:`."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path, or a UserError."""
        from ngram_builders.registry.shared_folder import is_address

        if is_address(value):
            raise UserError(f"{value} is an address, and a folder or file is expected here; copy it, or mount it")
        return super().convert(value, parameter, context)


class PathOrAddress(LocalPath):
    """A path on this machine, or an address, which stays a text."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path or the address."""
        from ngram_builders.registry.shared_folder import is_address

        return value if is_address(value) else super().convert(value, parameter, context)


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every command that needs a model."""
    device = click.option(
        "--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ..., or mps."
    )
    model = click.option(
        "--model",
        default="starter",
        show_default=True,
        metavar="M",
        help="`starter`, a folder such as ./mine, a GGUF file, what `spd-lsp models` lists, a Hugging Face id, "
        "which is downloaded once, a model server's http://HOST:PORT, or `none`: n-grams alone.",
    )
    return model(device(command))


def print_status(text: str) -> None:
    """Print to standard error, apart from a command's output."""
    click.echo(text, err=True)
