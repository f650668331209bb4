"""The commands of the paper's experiments. What is slow to import is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from spd_lsp.evaluation.paper.setup import prepare_experiment, split_repositories, tell, track
from spd_lsp.evaluation.results import out_option
from spd_lsp.models.checkpoint.hub import locate

experiments = click.Group()  # `spd-lsp eval` lists them beside its own

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_MODEL = click.option(
    "--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder or an id."
)
_DEVICE = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
_OUT = out_option("results", "Folder of the table and the JSON file.")
_SEED = click.option("--seed", default=0, show_default=True, help="Seed of files, examples and samples.")
_REPOS = click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=_FOLDER)


def _publish(summary: Any, out: Path) -> None:
    """Write a report. Imported here, because the writer imports numpy and `--help` does without."""
    from spd_lsp.evaluation.report_writer import publish

    publish(summary, out)


def _number(flag: str, default: int, low: int, high: int | None, meaning: str) -> Callable[..., Any]:
    """An integer option within bounds."""
    return click.option(
        *flag.split(), default=default, show_default=True, type=click.IntRange(low, high), help=meaning
    )


_EXAMPLES = _number("--examples", 40, 1, None, "Held-out passages of each repository.")
_PREFIX = _number("--prefix", 128, 8, None, "Tokens that the model reads before the continuation.")


def _options(*chosen: Callable[..., Any]) -> Callable[..., Any]:
    """Options in this order, and those of every experiment: model, device, results, seed."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed((*chosen, _MODEL, _DEVICE, _OUT, _SEED)):
            command = option(command)
        return command

    return decorate


_ON_CODE = (_REPOS, _EXAMPLES, _PREFIX)


@experiments.command()
@_options(
    *_ON_CODE,
    _number("-k drafts", 3, 2, 16, "Number of beams."),
    _number("--steps", 24, 1, 200, "Number of timesteps."),
    click.option(
        "--temperature",
        "temperatures",
        multiple=True,
        type=click.FloatRange(0.001, 10),
        default=(1.0, 0.06),
        show_default=True,
        help="Temperature of the drafts' probabilities, which weight their tokens (tau); may be repeated.",
    ),
)
def linearity(repos: Sequence[Path], model: str, drafts: int, steps: int, prefix: int, **chosen: Any) -> None:
    """How linear a model is in its input (figure 3).

    The cosine between a superposed run and its separate drafts, by timestep.
    """
    from spd_lsp.completion.tokenizer import ModelTokenizer

    folder = locate(model, tell)
    seed = chosen["seed"]
    splits = split_repositories(
        repos, ModelTokenizer(folder), examples=chosen["examples"], before=prefix, after=steps, seed=seed
    )

    from spd_lsp.evaluation.paper.linearity import open_network, summarise, trace_passages

    network = open_network(folder, chosen["device"])
    passages = [passage for split in splits for passage in split.passages]
    prompts = [passage.prefix(prefix) for passage in passages]
    traces = {
        tau: list(track(trace_passages(network, prompts, drafts, steps, tau), f"tau {tau}", len(prompts)))
        for tau in chosen["temperatures"]
    }
    facts = {"model": model, "k": drafts, "prefix tokens": prefix, "examples": len(passages),
             "repositories": len(splits), "seed": seed}  # fmt: skip
    _publish(summarise(traces, [passage.group for passage in passages], facts), chosen["out"])


@experiments.command()
@_options(
    *_ON_CODE,
    _number("-k drafts", 3, 1, 16, "Number of drafts."),
    _number("--tokens", 10, 1, 256, "Length of drafts, in tokens."),
)
def perplexity(repos: Sequence[Path], drafts: int, prefix: int, tokens: int, model: str, **chosen: Any) -> None:
    """Perplexity of drafts by rank (tables 1 and 3).

    Beside nucleus sampling, greedy decoding and beam search.
    """
    from spd_lsp.evaluation.paper.perplexity import measure, summarise

    sample = {name: chosen[name] for name in ("examples", "seed")}
    setup = prepare_experiment(repos, model, chosen["device"], before=prefix, after=tokens, **sample)
    measured = [
        measure(setup.writer, passage, k=drafts, prefix=prefix, tokens=tokens)
        for passage in track(setup.passages, "drafting")
    ]
    facts = {**setup.facts, "k": drafts, "tokens a draft": tokens}
    _publish(summarise(measured, setup.groups, facts, drafts), chosen["out"])
