"""`build-ngrams --engine datatrove`: its options, and what its tasks on other machines need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import LocalPath, print_status
from spd_lsp.extras import install_command

if TYPE_CHECKING:
    from ngram_builders.build import BuildSummary

CLUSTER_DEFAULTS: dict[str, Any] = {"executor": "local", "workers": 0, "shared_folder": None, "slurm": ()}


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where tasks run."""
    for option in (
        click.option(
            "--slurm",
            multiple=True,
            metavar="NAME=VALUE",
            help="Option of sbatch for Slurm's jobs, such as partition=cpu or time=1-00:00; may be repeated.",
        ),
        click.option(
            "--shared-folder",
            type=LocalPath(path_type=Path),
            metavar="DIR",
            help="Folder that all machines can reach.",
        ),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Number of parallel tasks."),
        click.option(
            "--executor", type=click.Choice(("local", "slurm", "ray")), help="Where datatrove's tasks run."
        ),
    ):
        command = option(command)
    return command


def count_in_tasks(
    repos: Sequence[Path | str],
    name: str | None,
    model: str,
    *,
    fresh: bool,
    where: dict[str, Any],
    **options: Any,
) -> BuildSummary:
    """Build in tasks. Nothing of earlier builds is reused, so every build is a fresh one."""
    try:
        from ngram_builders.distributed.build import build
        from ngram_builders.distributed.executors import Cluster
    except ModuleNotFoundError as error:
        raise UserError(
            f"--engine datatrove needs the package {error.name}; run: {install_command('distributed')}"
        ) from error
    if where["slurm"] and where["executor"] != "slurm":
        raise UserError("--slurm works with --executor slurm only; add that option")
    cluster = Cluster(
        executor=where["executor"],
        workers=where["workers"],
        folder=where["shared_folder"],
        sbatch=dict(map(_parse_option, where["slurm"])),
    )
    return build(
        repos, name, partial(_make_encoder, model), model=model, cluster=cluster, say=print_status, **options
    )


def _make_encoder(model: str) -> Callable[[Sequence[str]], Iterable[Sequence[int]]]:
    """Return a model's encoder; tasks on other machines find this function by its name."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    return ModelTokenizer(locate(model)).encode_batch


def _parse_option(text: str) -> tuple[str, str]:
    """Example: `partition=cpu` -> ("partition", "cpu")."""
    match = re.fullmatch(r"(?:--)?([a-z-]+)=(\S+)", text)
    if not match:
        raise UserError(f"--slurm is an option of sbatch such as partition=cpu, not {text!r}")
    return match[1], match[2]
