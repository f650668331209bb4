"""The commands of the paper's experiments. What is slow to import is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from spd_lsp.checkpoints import locate
from spd_lsp.evaluation.paper.subject import built_in, judge_of, prepare, publish, read_sources, tell
from spd_lsp.progress import track
from spd_lsp.results import out_option
from spd_lsp.settings import UserError

experiments = click.Group()  # `spd-lsp eval` has them beside its own


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """What every experiment is told: a model, a place for results, a seed."""
    for option in (
        click.option("--seed", default=0, show_default=True, help="Chooses files, places and samples."),
        out_option("results", "Folder for the table, the JSON file and the figure."),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps."),
        click.option(
            "--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder or an id."
        ),
    ):
        command = option(command)
    return command


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """For experiments on code: repositories, and how much of them."""
    for option in (
        click.option(
            "--prefix",
            type=click.IntRange(min=8),
            default=128,
            show_default=True,
            help="Tokens that the model reads before a place.",
        ),
        click.option(
            "--places",
            type=click.IntRange(min=1),
            default=40,
            show_default=True,
            help="Places in each repository.",
        ),
        click.argument(
            "repos",
            metavar="REPO...",
            nargs=-1,
            required=True,
            type=click.Path(exists=True, file_okay=False, path_type=Path),
        ),
    ):
        command = option(command)
    return shared_options(command)


@experiments.command()
@source_options
@click.option("-k", "drafts", default=3, show_default=True, type=click.IntRange(2, 16), help="Beams.")
@click.option("--steps", default=24, show_default=True, type=click.IntRange(1, 200), help="Timesteps.")
@click.option(
    "--temperature",
    "temperatures",
    multiple=True,
    type=click.FloatRange(0.001, 10),
    default=(1.0, 0.06),
    show_default=True,
    help="Of the drafts' probabilities, which weigh their tokens (tau); may be given again.",
)
def linearity(
    repos: Sequence[Path],
    model: str,
    device: str,
    out: Path,
    seed: int,
    places: int,
    prefix: int,
    drafts: int,
    steps: int,
    temperatures: Sequence[float],
) -> None:
    """Cosine between a superposed run and its separate drafts, by timestep and layer (figures 3 and 16)."""
    from spd_lsp.tokens import Tokens

    folder = locate(model, tell)
    sources = read_sources(repos, Tokens(folder), places=places, before=prefix, after=steps, seed=seed)

    from spd_lsp.evaluation.paper.linearity import open_network, traces
    from spd_lsp.evaluation.paper.linearity_report import summarise

    network = open_network(folder, device)
    passages = [passage for source in sources for passage in source.passages]
    prompts = [passage.prefix(prefix) for passage in passages]
    found = {
        temperature: list(
            track(traces(network, prompts, drafts, steps, temperature), f"tau {temperature}", len(prompts))
        )
        for temperature in temperatures
    }
    facts = {"model": model, "k": drafts, "prefix tokens": prefix, "places": len(passages),
             "repositories": len(sources), "seed": seed}  # fmt: skip
    groups = [(passage.repository, passage.file) for passage in passages]
    publish(summarise(found, groups, facts), out)


K_OPTION = click.option("-k", "drafts", default=3, show_default=True, type=click.IntRange(1, 16), help="Drafts.")
TOKENS_OPTION = click.option(
    "--tokens", default=10, show_default=True, type=click.IntRange(1, 256), help="Length of drafts, in tokens."
)
JUDGE_OPTION = click.option(
    "--judge", default="", metavar="M", help="The model that judges drafts (default: the one that writes them)."
)


def judged_drafts(measure: Any, summarise: Any, repos: Sequence[Path], **options: Any) -> None:
    """Write drafts at every place, have them judged, and publish what `summarise` makes of it."""
    model, device, drafts = options["model"], options["device"], options["drafts"]
    places, prefix, tokens = options["places"], options["prefix"], options["tokens"]
    subject = prepare(repos, model, device, places=places, before=prefix, after=tokens, seed=options["seed"])
    judging = judge_of(options["judge"], model, device, subject)
    measured = [
        measure(subject.writer, judging, passage, k=drafts, prefix=prefix, tokens=tokens)
        for passage in track(subject.passages, "drafting")
    ]
    facts = {**subject.facts, "k": drafts, "tokens a draft": tokens, "judge": options["judge"] or model}
    publish(summarise(measured, subject.groups, facts), options["out"])


@experiments.command()
@source_options
@K_OPTION
@TOKENS_OPTION
@JUDGE_OPTION
def perplexity(repos: Sequence[Path], **options: Any) -> None:
    """Perplexity of drafts by rank, against nucleus, greedy, beam and n-grams alone (tables 1 and 3)."""
    from spd_lsp.evaluation.paper.perplexity import measure, summarise

    judged_drafts(measure, partial(summarise, k=options["drafts"]), repos, **options)


@experiments.command()
@source_options
@K_OPTION
def diversity(
    repos: Sequence[Path], model: str, device: str, out: Path, seed: int, places: int, prefix: int, drafts: int
) -> None:
    """Repetition within drafts and likeness among them (Self-BLEU), by length (figure 8)."""
    from spd_lsp.evaluation.paper.diversity import LENGTHS, measure, summarise

    subject = prepare(repos, model, device, places=places, before=prefix, after=max(LENGTHS), seed=seed)
    measured = [
        measure(subject.writer, passage, k=drafts, prefix=prefix)
        for passage in track(subject.passages, "drafting")
    ]
    publish(summarise(measured, subject.groups, {**subject.facts, "k": drafts}), out)


@experiments.command()
@source_options
@JUDGE_OPTION
def ablations(
    repos: Sequence[Path], model: str, device: str, out: Path, seed: int, places: int, prefix: int, judge: str
) -> None:
    """Drafts, prefix, length and n-gram orders, one changed at a time (figures 9 to 11, table 4).

    --prefix is what a place must have before it; what is tried stands in the table.
    """
    from spd_lsp.evaluation.paper.ablations import (
        LENGTHS,
        ORDERS,
        PREFIXES,
        attempt,
        mixtures,
        stored_bytes,
        summarise,
    )

    before = max(prefix, *PREFIXES)
    subject = prepare(repos, model, device, places=places, before=before, after=max(LENGTHS), seed=seed)
    judging = judge_of(judge, model, device, subject)
    size = subject.writer.tokens.vocab_size
    known = {name: mixtures(subject.sources, size, orders) for name, orders in ORDERS.items()}
    stored = {name: stored_bytes(subject.sources, subject.writer, orders) for name, orders in ORDERS.items()}
    measured = [
        attempt(known, subject.writer, judging, passage) for passage in track(subject.passages, "drafting")
    ]
    publish(summarise(measured, subject.groups, {**subject.facts, "judge": judge or model}, stored), out)


@experiments.command()
@source_options
@K_OPTION
@click.option("--tokens", default=120, show_default=True, type=click.IntRange(8, 512), help="Length of drafts.")
@JUDGE_OPTION
def resets(repos: Sequence[Path], **options: Any) -> None:
    """Repetition in long completions, with and without starting again (section 5.3)."""
    from spd_lsp.evaluation.paper.resets import measure, summarise

    judged_drafts(measure, partial(summarise, tokens=options["tokens"]), repos, **options)


@experiments.command()
@source_options
@click.option("--tokens", default=24, show_default=True, type=click.IntRange(4, 256), help="Longest line.")
def coverage(
    repos: Sequence[Path], model: str, device: str, out: Path, seed: int, places: int, prefix: int, tokens: int
) -> None:
    """Nucleus samples against samples finished by superposed decoding, at equal compute (table 2).

    Of the places, those count whose line ends within the longest line.
    """
    from spd_lsp.evaluation.paper.coverage import measure, rest_of_line, summarise

    subject = prepare(repos, model, device, places=places, before=prefix, after=tokens, seed=seed)
    lines = [(one, rest_of_line(subject.writer.tokens, one, tokens)) for one in subject.passages]
    asked = [(passage, line) for passage, line in lines if line is not None]
    if not asked:
        raise UserError(
            f"expected places whose line ends within {tokens} tokens, found none; ask for more --places"
        )
    measured = [
        measure(subject.writer, passage, line, prefix=prefix, tokens=tokens)
        for passage, line in track(asked, "sampling")
    ]
    groups = [(passage.repository, passage.file) for passage, _ in asked]
    publish(summarise(measured, groups, {**subject.facts, "places": len(asked)}), out)


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@experiments.command()
@click.argument("tasks", metavar="TASKS", type=FILE)
@shared_options
@K_OPTION
@click.option("--limit", type=click.IntRange(min=1), help="So many tasks, drawn at random.")
@click.option(
    "--arms",
    default="greedy,superposed,nucleus,beam,paper",
    show_default=True,
    metavar="A,B,...",
    help="As in `eval quality`.",
)
@click.option("--priors", default="none,built-in", show_default=True, metavar="P,Q", help="What n-grams know.")
@click.option(
    "--max-tokens",
    default=24,
    show_default=True,
    type=click.IntRange(1, 512),
    help="Longest draft; blocks want more.",
)
@click.option("--weak-sandbox", is_flag=True, help="Run programs even where little guards this machine.")
def infilling(
    tasks: Path,
    model: str,
    device: str,
    out: Path,
    seed: int,
    drafts: int,
    limit: int | None,
    arms: str,
    priors: str,
    max_tokens: int,
    weak_sandbox: bool,
) -> None:
    """pass@k on functions with a hole, such as HumanEval-infilling; runs what the model writes.

    TASKS is a .jsonl or .jsonl.gz file. Programs run without network and without rights to change files where the
    system can take these away; what it cannot is said, and refused without --weak-sandbox.
    """
    from spd_lsp.evaluation.arms import Asker, parse_arms
    from spd_lsp.evaluation.paper import sandbox
    from spd_lsp.evaluation.paper.infilling import Solver, read_tasks, summarise
    from spd_lsp.interpolation import Mixture
    from spd_lsp.settings import Settings
    from spd_lsp.tokens import Tokens

    found = read_tasks(tasks, limit, seed)
    compared = parse_arms(arms.split(","), priors.split(","))
    guards = sandbox.require_guard(weak_sandbox)
    folder = locate(model, tell)
    tokens = Tokens(folder)
    known = built_in(folder, model, tokens)
    mixtures = {
        "none": None,
        "built-in": Mixture([[c] for c, _ in known], [w for _, w in known]) if known else None,
    }
    if foreign := {arm.prior for arm in compared} - set(mixtures):
        raise UserError(f"expected priors none or built-in here, found {', '.join(sorted(foreign))}; choose these")

    from spd_lsp.model import load

    asker = Asker(load(folder, device), tokens, Settings(drafts=drafts, max_tokens=max_tokens))
    solver = Solver(asker, mixtures, lambda program: sandbox.run(program).passed)
    solved = [solver.solve(task, compared, drafts) for task in track(found, "solving")]
    facts = {"model": model, "tasks": len(found), "of": tasks.name, "k": drafts, "seed": seed,
             "max_tokens": max_tokens, "programs run": solver.runs}  # fmt: skip
    publish(summarise(solved, found, facts, guards, drafts), out)


@experiments.command()
@click.argument("file", metavar="FILE", type=FILE)
@shared_options
@K_OPTION
@click.option("--limit", type=click.IntRange(min=1), help="So many questions, drawn at random.")
@click.option("--tokens", default=16, show_default=True, type=click.IntRange(1, 128), help="Longest answer.")
def questions(
    file: Path, model: str, device: str, out: Path, seed: int, drafts: int, limit: int | None, tokens: int
) -> None:
    """P@k on questions with short answers, in the formats of TriviaQA and Natural Questions (figure 5).

    Wants a large model: one that was made for code knows few answers.
    """
    from spd_lsp.evaluation.paper.answers import measure, read_questions, summarise
    from spd_lsp.tokens import Tokens

    asked = read_questions(file, limit, seed)
    folder = locate(model, tell)
    encoder = Tokens(folder)

    from spd_lsp.model import load

    network = load(folder, device)
    measured = [
        measure(network, encoder, question, k=drafts, longest=tokens) for question in track(asked, "answering")
    ]
    facts = {"model": model, "questions": len(asked), "of": file.name, "k": drafts, "seed": seed}
    publish(summarise(measured, facts, drafts), out)
