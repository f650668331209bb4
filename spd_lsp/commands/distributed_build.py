"""`build-ngrams --engine datatrove`: its options, what it prints, what a task elsewhere needs of us."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError

if TYPE_CHECKING:
    from ngram_builders.build import Summary
    from ngram_builders.distributed.build import Cost


# Options of the command -> what they are without being named.
OPTIONS: dict[str, Any] = {
    "executor": "local",
    "workers": 0,
    "shared_folder": None,
    "share": "1/1",
    "slurm_partition": None,
}


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where tasks run."""
    folder = click.Path(path_type=Path)
    for option in reversed((
        click.option("--executor", type=click.Choice(("local", "slurm", "ray")), help="Who runs its tasks."),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="How many of them at once."),
        click.option("--shared-folder", type=folder, metavar="DIR", help="What all machines reach."),
        click.option("--share", metavar="I/N", help="This is machine I of N that have the shared folder."),
        click.option("--slurm-partition", metavar="P", help="Where Slurm runs them."),
    )):  # fmt: skip
        command = option(command)
    return command


def count_in_tasks(
    repos: Sequence[Path], domain: str | None, model: str, *, fresh: bool, where: dict[str, Any], **options: Any
) -> tuple[Summary, list[str]]:
    """Count in tasks; what was made, and lines on what each stage took.

    Nothing is known of earlier builds here, so that every build is a fresh one.
    """
    try:
        from ngram_builders.distributed.build import build
        from ngram_builders.distributed.executors import Cluster
    except ModuleNotFoundError as error:
        raise UserError(
            f"expected the package {error.name} for --engine datatrove, found none; "
            "run: pip install 'spd-lsp[distributed]'"
        ) from error
    partition = where["slurm_partition"]
    cluster = Cluster(
        executor=where["executor"],
        workers=where["workers"],
        share=_parse_share(where["share"]),
        folder=where["shared_folder"],
        options={"partition": partition} if partition else {},
    )
    made = build(repos, domain, partial(_encoder, model), model=model, cluster=cluster, **options)
    if made.summary is None:
        raise UserError("this machine's share is done; the table is made by machine 1, where it is installed")
    return made.summary, [_describe_cost(cost, made.summary.tokens) for cost in made.costs]


def _encoder(model: str) -> Callable[[Sequence[str]], Iterable[Sequence[int]]]:
    """What turns texts into a model's ids; a task on another machine finds it by its name."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    return ModelTokenizer(locate(model)).encode_batch


def _parse_share(text: str) -> tuple[int, int]:
    """Example: `2/3` -> (2, 3)."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"expected --share such as 1/2 or 2/2, found {text!r}; count from 1")
    return int(match[1]), int(match[2])


def _describe_cost(cost: Cost, tokens: int) -> str:
    """What a stage took. Example: `counts: 16 tasks, 33.1 CPU s (2.6 a million tokens), 412 MB at most, ...`"""
    each = cost.cpu / max(tokens, 1) * 1e6
    return (
        f"{cost.stage}: {cost.tasks:,} tasks, {cost.cpu:.1f} CPU s ({each:.2f} a million tokens), "
        f"{cost.peak / 1e6:,.0f} MB at most in one, {cost.written / 1e6:,.1f} MB written"
    )
