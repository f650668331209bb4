"""The commands of the paper's experiments. What is slow to import is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ngram_builders.errors import UserError
from spd_lsp.evaluation.paper.setup import (
    ExperimentSetup,
    load_judge,
    prepare_experiment,
    split_repositories,
    tell,
    track,
)
from spd_lsp.evaluation.results import out_option
from spd_lsp.models.checkpoint.hub import locate

experiments = click.Group()  # `spd-lsp eval` lists them beside its own

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_MODEL = click.option(
    "--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder or an id."
)
_DEVICE = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
_OUT = out_option("results", "Folder of the table, the JSON file and the figure.")
_SEED = click.option("--seed", default=0, show_default=True, help="Seed of files, examples and samples.")
_REPOS = click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=_FOLDER)
_JUDGE = click.option(
    "--judge", default="", metavar="M", help="The model that judges drafts (default: the one that writes them)."
)


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
_DRAFTS = _number("-k drafts", 3, 1, 16, "Number of drafts.")


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
    """How linear a model is in its input (figures 3 and 16).

    The cosine between a superposed run and its separate drafts, by timestep and layer.
    """
    from spd_lsp.completion.tokenizer import ModelTokenizer

    folder, seed = locate(model, tell), chosen["seed"]
    splits = split_repositories(
        repos, ModelTokenizer(folder), examples=chosen["examples"], before=prefix, after=steps, seed=seed
    )

    from spd_lsp.evaluation.paper.linearity import open_network, trace_passages
    from spd_lsp.evaluation.paper.linearity_report import summarise

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


def _prepare(repos: Sequence[Path], chosen: dict[str, Any], before: int, after: int) -> ExperimentSetup:
    """The model and the passages that a command's options describe."""
    sample = {name: chosen[name] for name in ("examples", "seed")}
    return prepare_experiment(repos, chosen["model"], chosen["device"], before=before, after=after, **sample)


@experiments.command()
@_options(*_ON_CODE, _DRAFTS, _number("--tokens", 10, 1, 256, "Length of drafts, in tokens."), _JUDGE)
def perplexity(repos: Sequence[Path], drafts: int, prefix: int, tokens: int, judge: str, **chosen: Any) -> None:
    """Perplexity of drafts by rank (tables 1 and 3).

    Beside nucleus sampling, greedy decoding and beam search.
    """
    from spd_lsp.evaluation.paper.perplexity import measure, summarise

    setup = _prepare(repos, chosen, prefix, tokens)
    judging = load_judge(judge, chosen["model"], chosen["device"], setup)
    measured = [
        measure(setup.writer, judging, passage, k=drafts, prefix=prefix, tokens=tokens)
        for passage in track(setup.passages, "drafting")
    ]
    facts = {**setup.facts, "k": drafts, "tokens a draft": tokens, "judge": judge or chosen["model"]}
    _publish(summarise(measured, setup.groups, facts, drafts), chosen["out"])


@experiments.command()
@_options(*_ON_CODE, _number("--tokens", 24, 4, 256, "Longest line, in tokens."))
def coverage(repos: Sequence[Path], prefix: int, tokens: int, **chosen: Any) -> None:
    """Compare kinds of samples at equal compute (table 2).

    Nucleus samples, and those that superposed decoding finishes. Only passages whose line ends within the longest
    line count.
    """
    from spd_lsp.evaluation.paper.coverage import measure, rest_of_line_ids, summarise

    setup = _prepare(repos, chosen, prefix, tokens)
    lines = [(passage, rest_of_line_ids(setup.writer.tokens, passage, tokens)) for passage in setup.passages]
    ended = [(passage, line) for passage, line in lines if line is not None]
    if not ended:
        raise UserError(f"no line ends within {tokens} tokens; use more --examples")
    measured = [
        measure(setup.writer, passage, line, prefix=prefix, tokens=tokens)
        for passage, line in track(ended, "sampling")
    ]
    facts = {**setup.facts, "examples": len(ended)}
    _publish(summarise(measured, [passage.group for passage, _ in ended], facts), chosen["out"])
