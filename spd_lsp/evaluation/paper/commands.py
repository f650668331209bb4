"""The commands of the paper's experiments. What is slow to import is imported where it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from ngram_builders.errors import UserError
from spd_lsp.evaluation.paper.subject import Subject, built_in, judge_of, prepare, publish, read_sources, tell
from spd_lsp.evaluation.results import out_option
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.progress import track

experiments = click.Group()  # `spd-lsp eval` has them beside its own

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_MODEL = click.option(
    "--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder or an id."
)
_DEVICE = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
_OUT = out_option("results", "Folder for the table, the JSON file and the figure.")
_SEED = click.option("--seed", default=0, show_default=True, help="Chooses files, places and samples.")
_REPOS = click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=_FOLDER)
_JUDGE = click.option(
    "--judge", default="", metavar="M", help="The model that judges drafts (default: the one that writes them)."
)
_LIMIT = click.option("--limit", type=click.IntRange(min=1), help="So many of them, drawn at random.")


def number(flag: str, default: int, low: int, high: int | None, meaning: str) -> Callable[..., Any]:
    """An option that is a whole number within bounds."""
    return click.option(
        *flag.split(), default=default, show_default=True, type=click.IntRange(low, high), help=meaning
    )


_PLACES = number("--places", 40, 1, None, "Places in each repository.")
_PREFIX = number("--prefix", 128, 8, None, "Tokens that the model reads before a place.")
_DRAFTS = number("-k drafts", 3, 1, 16, "Drafts.")


def options(*chosen: Callable[..., Any]) -> Callable[..., Any]:
    """Options in this order, and those of every experiment: a model, a place for results, a seed."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed((*chosen, _MODEL, _DEVICE, _OUT, _SEED)):
            command = option(command)
        return command

    return decorate


_ON_CODE = (_REPOS, _PLACES, _PREFIX)


@experiments.command()
@options(
    *_ON_CODE,
    number("-k drafts", 3, 2, 16, "Beams."),
    number("--steps", 24, 1, 200, "Timesteps."),
    click.option(
        "--temperature",
        "temperatures",
        multiple=True,
        type=click.FloatRange(0.001, 10),
        default=(1.0, 0.06),
        show_default=True,
        help="Of the drafts' probabilities, which weigh their tokens (tau); may be given again.",
    ),
)
def linearity(repos: Sequence[Path], model: str, drafts: int, steps: int, prefix: int, **asked: Any) -> None:
    """Cosine between a superposed run and its separate drafts, by timestep and layer (figures 3 and 16)."""
    from spd_lsp.completion.tokenizer import Tokens

    folder, seed = locate(model, tell), asked["seed"]
    sources = read_sources(repos, Tokens(folder), places=asked["places"], before=prefix, after=steps, seed=seed)

    from spd_lsp.evaluation.paper.linearity import open_network, traces
    from spd_lsp.evaluation.paper.linearity_report import summarise

    network = open_network(folder, asked["device"])
    passages = [passage for source in sources for passage in source.passages]
    prompts = [passage.prefix(prefix) for passage in passages]
    found = {
        tau: list(track(traces(network, prompts, drafts, steps, tau), f"tau {tau}", len(prompts)))
        for tau in asked["temperatures"]
    }
    facts = {"model": model, "k": drafts, "prefix tokens": prefix, "places": len(passages),
             "repositories": len(sources), "seed": seed}  # fmt: skip
    groups = [(passage.repository, passage.file) for passage in passages]
    publish(summarise(found, groups, facts), asked["out"])


def _subject_of(repos: Sequence[Path], asked: dict[str, Any], before: int, after: int) -> Subject:
    """The model and the places that a command asks for."""
    where = {name: asked[name] for name in ("places", "seed")}
    return prepare(repos, asked["model"], asked["device"], before=before, after=after, **where)


def _judged_drafts(measure: Any, summarise: Any, repos: Sequence[Path], **asked: Any) -> None:
    """Write drafts at every place, have them judged, and publish what `summarise` makes of it."""
    model, drafts, prefix, tokens = (asked[name] for name in ("model", "drafts", "prefix", "tokens"))
    subject = _subject_of(repos, asked, prefix, tokens)
    judging = judge_of(asked["judge"], model, asked["device"], subject)
    measured = [
        measure(subject.writer, judging, passage, k=drafts, prefix=prefix, tokens=tokens)
        for passage in track(subject.passages, "drafting")
    ]
    facts = {**subject.facts, "k": drafts, "tokens a draft": tokens, "judge": asked["judge"] or model}
    publish(summarise(measured, subject.groups, facts), asked["out"])


@experiments.command()
@options(*_ON_CODE, _DRAFTS, number("--tokens", 10, 1, 256, "Length of drafts, in tokens."), _JUDGE)
def perplexity(repos: Sequence[Path], **asked: Any) -> None:
    """Perplexity of drafts by rank, against nucleus, greedy, beam and n-grams alone (tables 1 and 3)."""
    from spd_lsp.evaluation.paper.perplexity import measure, summarise

    _judged_drafts(measure, partial(summarise, k=asked["drafts"]), repos, **asked)


@experiments.command()
@options(*_ON_CODE, _DRAFTS)
def diversity(repos: Sequence[Path], drafts: int, prefix: int, **asked: Any) -> None:
    """Repetition within drafts and likeness among them (Self-BLEU), by length (figure 8)."""
    from spd_lsp.evaluation.paper.diversity import LENGTHS, measure, summarise

    subject = _subject_of(repos, asked, prefix, max(LENGTHS))
    measured = [
        measure(subject.writer, passage, k=drafts, prefix=prefix)
        for passage in track(subject.passages, "drafting")
    ]
    publish(summarise(measured, subject.groups, {**subject.facts, "k": drafts}), asked["out"])


@experiments.command()
@options(*_ON_CODE, _JUDGE)
def ablations(repos: Sequence[Path], judge: str, **asked: Any) -> None:
    """Drafts, prefix, length and n-gram orders, one changed at a time (figures 9 to 11, table 4).

    --prefix is what a place must have before it; what is tried stands in the table.
    """
    from spd_lsp.evaluation.paper import ablations as trials

    subject = _subject_of(repos, asked, max(asked["prefix"], *trials.PREFIXES), max(trials.LENGTHS))
    judging = judge_of(judge, asked["model"], asked["device"], subject)
    writer, sources = subject.writer, subject.sources
    known = {
        name: trials.mixtures(sources, writer.tokens.vocab_size, orders) for name, orders in trials.ORDERS.items()
    }
    stored = {name: trials.stored_bytes(sources, writer, orders) for name, orders in trials.ORDERS.items()}
    measured = [trials.attempt(known, writer, judging, passage) for passage in track(subject.passages, "drafting")]
    facts = {**subject.facts, "judge": judge or asked["model"]}
    publish(trials.summarise(measured, subject.groups, facts, stored), asked["out"])


@experiments.command()
@options(*_ON_CODE, _DRAFTS, number("--tokens", 120, 8, 512, "Length of drafts."), _JUDGE)
def resets(repos: Sequence[Path], **asked: Any) -> None:
    """Repetition in long completions, with and without starting again (section 5.3)."""
    from spd_lsp.evaluation.paper.resets import measure, summarise

    _judged_drafts(measure, partial(summarise, tokens=asked["tokens"]), repos, **asked)


@experiments.command()
@options(*_ON_CODE, number("--tokens", 24, 4, 256, "Longest line."))
def coverage(repos: Sequence[Path], prefix: int, tokens: int, **asked: Any) -> None:
    """Nucleus samples against samples finished by superposed decoding, at equal compute (table 2).

    Of the places, those count whose line ends within the longest line.
    """
    from spd_lsp.evaluation.paper.coverage import measure, rest_of_line, summarise

    subject = _subject_of(repos, asked, prefix, tokens)
    lines = [(one, rest_of_line(subject.writer.tokens, one, tokens)) for one in subject.passages]
    ended = [(passage, line) for passage, line in lines if line is not None]
    if not ended:
        raise UserError(
            f"expected places whose line ends within {tokens} tokens, found none; ask for more --places"
        )
    measured = [
        measure(subject.writer, passage, line, prefix=prefix, tokens=tokens)
        for passage, line in track(ended, "sampling")
    ]
    groups = [(passage.repository, passage.file) for passage, _ in ended]
    publish(summarise(measured, groups, {**subject.facts, "places": len(ended)}), asked["out"])


@experiments.command()
@options(
    click.argument("tasks", metavar="TASKS", type=FILE),
    _DRAFTS,
    _LIMIT,
    click.option(
        "--arms",
        default="greedy,superposed,nucleus,beam,paper",
        show_default=True,
        metavar="A,B,...",
        help="As in `eval quality`.",
    ),
    click.option("--priors", default="none,built-in", show_default=True, metavar="P,Q", help="What n-grams know."),
    number("--max-tokens", 24, 1, 512, "Longest draft; blocks want more."),
    click.option("--weak-sandbox", is_flag=True, help="Run programs even where little guards this machine."),
)
def infilling(tasks: Path, model: str, drafts: int, max_tokens: int, **asked: Any) -> None:
    """pass@k on functions with a hole, such as HumanEval-infilling; runs what the model writes.

    TASKS is a .jsonl or .jsonl.gz file. Programs run without network and without rights to change files where the
    system can take these away; what it cannot is said, and refused without --weak-sandbox.
    """
    from spd_lsp.completion.tokenizer import Tokens
    from spd_lsp.evaluation.arms import Asker, parse_arms
    from spd_lsp.evaluation.paper import sandbox
    from spd_lsp.evaluation.paper.infilling import Solver, read_tasks, summarise
    from spd_lsp.ngrams.interpolation import Mixture
    from spd_lsp.settings import Settings

    found = read_tasks(tasks, asked["limit"], asked["seed"])
    arms = parse_arms(asked["arms"].split(","), asked["priors"].split(","))
    guards = sandbox.require_guard(asked["weak_sandbox"])
    folder = locate(model, tell)
    tokens = Tokens(folder)
    known = built_in(folder, model, tokens)
    mixtures = {
        "none": None,
        "built-in": Mixture([[c] for c, _ in known], [w for _, w in known]) if known else None,
    }
    if foreign := {arm.prior for arm in arms} - set(mixtures):
        raise UserError(f"expected priors none or built-in here, found {', '.join(sorted(foreign))}; choose these")

    from spd_lsp.models.load import load

    asker = Asker(load(folder, asked["device"]), tokens, Settings(drafts=drafts, max_tokens=max_tokens))
    solver = Solver(asker, mixtures, lambda program: sandbox.run(program).passed)
    solved = [solver.solve(task, arms, drafts) for task in track(found, "solving")]
    facts = {"model": model, "tasks": len(found), "of": tasks.name, "k": drafts, "seed": asked["seed"],
             "max_tokens": max_tokens, "programs run": solver.runs}  # fmt: skip
    publish(summarise(solved, found, facts, guards, drafts), asked["out"])


@experiments.command()
@options(
    click.argument("file", metavar="FILE", type=FILE),
    _DRAFTS,
    _LIMIT,
    number("--tokens", 16, 1, 128, "Longest answer."),
)
def questions(file: Path, model: str, drafts: int, tokens: int, **asked: Any) -> None:
    """P@k on questions with short answers, in the formats of TriviaQA and Natural Questions (figure 5).

    Wants a large model: one that was made for code knows few answers.
    """
    from spd_lsp.completion.tokenizer import Tokens
    from spd_lsp.evaluation.paper.answers import measure, read_questions, summarise

    found = read_questions(file, asked["limit"], asked["seed"])
    folder = locate(model, tell)
    encoder = Tokens(folder)

    from spd_lsp.models.load import load

    network = load(folder, asked["device"])
    measured = [
        measure(network, encoder, question, k=drafts, longest=tokens) for question in track(found, "answering")
    ]
    facts = {"model": model, "questions": len(found), "of": file.name, "k": drafts, "seed": asked["seed"]}
    publish(summarise(measured, facts, drafts), asked["out"])
