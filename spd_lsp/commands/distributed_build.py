"""`build-ngrams --engine datatrove`: its options, what it prints, and what its tasks on other machines need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.arguments import LocalPath
from spd_lsp.extras import install_command

if TYPE_CHECKING:
    from ngram_builders.build import BuildSummary
    from ngram_builders.distributed.build import StageCost

_FOLDER = LocalPath(path_type=Path)
CLUSTER_DEFAULTS: dict[str, Any] = {
    "executor": "local",
    "workers": 0,
    "shared_folder": None,
    "share": "1/1",
    "slurm_partition": None,
    "skip_damaged": False,
    "slurm_account": None,
    "slurm_qos": None,
    "slurm_time": None,
    "slurm_memory": None,
}
_SLURM_NAMES = {"slurm_memory": "mem"}  # of sbatch, where they differ


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where tasks run, and what of a corpus they read."""
    for option in (
        click.option(
            "--skip-damaged",
            is_flag=True,
            default=None,
            help="Leave out damaged rows of a corpus, and count them.",
        ),
        click.option("--slurm-memory", metavar="4G", help="Memory of each Slurm task."),
        click.option("--slurm-time", metavar="D-HH:MM", help="Time limit of each Slurm task."),
        click.option("--slurm-qos", metavar="Q", help="Slurm quality of service."),
        click.option("--slurm-account", metavar="A", help="Slurm account to charge."),
        click.option("--slurm-partition", metavar="P", help="Slurm partition to use."),
        click.option("--share", metavar="I/N", help="This is machine I of N that share the folder."),
        click.option("--shared-folder", type=_FOLDER, metavar="DIR", help="Folder that all machines can reach."),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Number of parallel tasks."),
        click.option(
            "--executor", type=click.Choice(("local", "slurm", "ray")), help="Where datatrove's tasks run."
        ),
    ):
        command = option(command)
    return command


def count_in_tasks(
    repos: Sequence[Path], domain: str | None, model: str, *, fresh: bool, where: dict[str, Any], **options: Any
) -> tuple[BuildSummary, list[str]]:
    """Build in tasks; return the summary, and a line on what each stage took.

    Nothing of earlier builds is reused, so every build is a fresh one.
    """
    try:
        from ngram_builders.distributed.build import build
        from ngram_builders.distributed.executors import Cluster
    except ModuleNotFoundError as error:
        raise UserError(
            f"--engine datatrove needs the package {error.name}; run: {install_command('distributed')}"
        ) from error
    slurm = {name: value for name, value in where.items() if name.startswith("slurm_") and value}
    if slurm and where["executor"] != "slurm":
        raise UserError(
            f"--{next(iter(slurm)).replace('_', '-')} works with --executor slurm only; add that option"
        )
    cluster = Cluster(
        executor=where["executor"],
        workers=where["workers"],
        share=_parse_share(where["share"]),
        folder=where["shared_folder"],
        options={_SLURM_NAMES.get(name, name.removeprefix("slurm_")): value for name, value in slurm.items()},
    )
    options |= {"model": model, "cluster": cluster, "skip_damaged": where["skip_damaged"]}
    summary, costs = build(repos, domain, partial(_make_encoder, model), **options)
    if summary is None:
        raise UserError("this machine has done its share; machine 1 makes and installs the table")
    return summary, [_describe_cost(cost, summary.tokens) for cost in costs]


def _make_encoder(model: str) -> Callable[[Sequence[str]], Iterable[Sequence[int]]]:
    """Return a model's encoder; tasks on other machines find this function by its name."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import locate

    return ModelTokenizer(locate(model)).encode_batch


def _parse_share(text: str) -> tuple[int, int]:
    """Example: `2/3` -> (2, 3)."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise UserError(f"--share is a machine of several, such as 1/2 or 2/2, not {text!r}")
    return int(match[1]), int(match[2])


def _describe_cost(cost: StageCost, tokens: int) -> str:
    """Example: `counts: 16 tasks, 33.1 CPU s (2.6 per million tokens), peak memory 412 MB, 68.2 MB written`"""
    each = cost.cpu_seconds / max(tokens, 1) * 1e6
    return (
        f"{cost.stage}: {cost.tasks:,} tasks, {cost.cpu_seconds:.1f} CPU s ({each:.2f} per million tokens), "
        f"peak memory {cost.peak_bytes / 1e6:,.0f} MB, {cost.written_bytes / 1e6:,.1f} MB written"
    )
