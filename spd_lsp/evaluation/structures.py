"""The comparison of n-gram structures: `python -m spd_lsp.evaluation.structures REPO... --out FILE`.

The sources are tokenised once and their end is held out; then every structure is built from the same ids and asked
the same questions. Repetitions take turns, so that a slow minute of the machine is everyone's.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ngram_builders.tables import Table
from spd_lsp.checkpoints import locate
from spd_lsp.evaluation import apart, comparison, kenlm_model
from spd_lsp.evaluation.comparison import Answers, Built, Comparison, Setting, label
from spd_lsp.evaluation.contenders import BUILDS, OWN, READERS, Site
from spd_lsp.evaluation.stream import Floats, Steps, Stream, read_sources, sample_steps, true_probabilities
from spd_lsp.settings import UserError
from spd_lsp.terminal import console, guard_output
from spd_lsp.tokens import Tokens

__all__ = ["Plan", "compare", "main"]

SETTINGS: tuple[Setting, ...] = ((3, 10), (3, 50), (8, 50))
CHECKED = 12  # steps whose answers are compared with the truth
PACKAGES = ("numpy", "pydivsufsort", "kenlm")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    repeat: int = 3
    steps: int = 300  # to a repetition
    settings: tuple[Setting, ...] = SETTINGS
    skip: frozenset[str] = field(default_factory=frozenset)  # builds


@dataclass(frozen=True, slots=True)
class Course:
    """A comparison on its way."""

    stream: Stream
    site: Site
    plan: Plan
    tell: Callable[[str], None]  # hears what is measured next

    def missing(self, build: str, needed: Callable[[Site], str]) -> str:
        """Why something is not measured."""
        return "skipped" if build in self.plan.skip else needed(self.site)

    def attempt(self, what: str, row: Built | Answers, task: Callable[..., None], *arguments: Any) -> None:
        """Measure something of a row; what fails becomes the row's note, and nothing more is measured of it."""
        self.tell(f"{what}: {row.name}")
        if row.note:
            return
        try:
            task(row, *arguments)
        except RuntimeError as error:
            row.note = str(error)


def compare(
    stream: Stream, site: Site, plan: Plan, facts: dict[str, Any], tell: Callable[[str], None] = lambda what: None
) -> Comparison:
    """Build, open and ask everything; what is not installed or fails is a row that says so."""
    course = Course(stream, site, plan, tell)
    stream.save(site.folder)
    builds = build_all(course)
    questions = {
        (drafts, candidates): sample_steps(
            stream, drafts=drafts, candidates=candidates, number=(plan.repeat + 1) * plan.steps, seed=0
        )
        for drafts, candidates in plan.settings
    }
    faults = {row.name: row.note for row in builds}
    answers = [
        Answers(name, reader.how, note=faults[reader.build] or course.missing(reader.build, reader.missing))
        for name, reader in READERS.items()
    ]
    for repetition in range(plan.repeat):
        steps = questions[plan.settings[0]].part(repetition, repetition + 1)
        for row in answers:
            course.attempt("open", row, open_one, site, steps)
    ask_all(course, answers, questions)
    ngrams = Table.open(BUILDS[OWN].paths(site)[0]).summary.ngrams
    return Comparison(facts, stream.tokens, ngrams, list(plan.settings), builds, answers)


def measurements(plan: Plan) -> int:
    """How often a comparison tells what it measures."""
    builds, readers = len(BUILDS), len(READERS)
    return plan.repeat * (builds + readers) + readers * (3 + (plan.repeat + 1) * len(plan.settings))


def build_all(course: Course) -> list[Built]:
    """Every build, as often as planned, in turns."""
    rows = [Built(name, course.missing(name, build.missing)) for name, build in BUILDS.items()]
    if any(BUILDS[row.name].folder == "kenlm" and not row.note for row in rows):
        kenlm_model.write_text(course.stream, course.site.of("kenlm"))
    for _ in range(course.plan.repeat):
        for row in rows:
            course.attempt("build", row, build_one, course.site)
    return rows


def build_one(row: Built, site: Site) -> None:
    """Build a structure once."""
    measured = apart.run_apart(apart.build, row.name, site)
    row.cpu_seconds.append(measured["cpu_seconds"])
    row.wall_seconds.append(measured["wall_seconds"])
    row.peak_bytes.append(measured["peak_bytes"])
    row.bytes = measured["bytes"]


def open_one(row: Answers, site: Site, steps: Steps) -> None:
    """Open a structure once, from a cold page cache."""
    measured = apart.run_apart(apart.open_cold, row.name, site, steps)
    row.open_ms.append(measured["open_ms"])
    row.first_ms.append(measured["first_ms"])


def ask_all(course: Course, rows: Sequence[Answers], questions: dict[Setting, Steps]) -> None:
    """Ask every structure the same questions: first for the truth, then for time, in turns, then what it holds."""
    plan = course.plan
    checked = questions[plan.settings[-1]].part(0, CHECKED)
    truth = [true_probabilities(course.stream, *one) for one in checked]
    with ExitStack() as stack:
        workers: dict[str, apart.Worker] = {}
        for row in rows:
            course.attempt("check", row, start_one, course.site, workers, stack)
            course.attempt("check", row, check_one, workers, checked, truth)
        for repetition in range(-1, plan.repeat):  # the first only warms up
            for setting, steps in questions.items():
                asked = steps.part((repetition + 1) * plan.steps, (repetition + 2) * plan.steps)
                for row in rows:
                    name = label(setting)
                    course.attempt(f"ask, {name}", row, time_one, workers, asked, name, repetition >= 0)
        for row in rows:
            course.attempt("size", row, weigh_one, course.site, workers)


def start_one(row: Answers, site: Site, workers: dict[str, apart.Worker], stack: ExitStack) -> None:
    """Start what answers for a structure."""
    workers[row.name] = worker = apart.Worker(apart.serve, row.name, site)
    stack.callback(worker.close)


def check_one(row: Answers, workers: dict[str, apart.Worker], steps: Steps, truth: Sequence[Floats]) -> None:
    """How far a structure's answers are from the truth; of a smoothed one, how well it predicts."""
    if READERS[row.name].smoothed:
        row.perplexity = workers[row.name].ask("perplexity")
        return
    answers = workers[row.name].ask("probabilities", steps)
    row.error = float(max(np.abs(one - other).max() for one, other in zip(answers, truth, strict=True)))


def time_one(row: Answers, workers: dict[str, apart.Worker], steps: Steps, setting: str, kept: bool) -> None:
    """The mean time of some steps."""
    spent = workers[row.name].ask("time", steps)
    if kept:
        row.step_us.setdefault(setting, []).append(spent)


def weigh_one(row: Answers, site: Site, workers: dict[str, apart.Worker]) -> None:
    """What a structure takes, after all questions."""
    reader = READERS[row.name]
    row.held_bytes = workers[row.name].ask("bytes")
    files = sum(path.stat().st_size for path in BUILDS[reader.build].paths(site))
    row.bytes = row.held_bytes if reader.loaded else files


def machine() -> str:
    """The processor's name, its cores, and the system."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


def versions() -> str:
    """Of what was measured with."""
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found)


def read(repos: Sequence[Path], model: str, limit: int | None, bars: Progress) -> Stream:
    """The stream of these folders, with progress."""
    tokens = Tokens(locate(model, lambda text: bars.console.print(text)))
    bar = bars.add_task("tokenise", total=None)
    return read_sources(
        repos,
        tokens.encode_batch,
        end_of_text=tokens.end_of_text,
        vocab_size=tokens.vocab_size,
        limit=limit,
        report=lambda done, total: bars.update(bar, completed=done, total=total),
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--model", default="starter", show_default=True, help="Whose tokenizer: `starter`, a folder or an id."
)
@click.option(
    "--tokens", type=click.IntRange(min=1), help="Stop reading after so many tokens (default: read all)."
)
@click.option(
    "--out",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write: a name in .md, .json or .png. May be given several times.",
)
@click.option("--lmplz", type=click.Path(path_type=Path), help="KenLM's lmplz (default: the one on the PATH).")
@click.option("--memory", default="1G", show_default=True, help="What lmplz may sort in.")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(min=1), help="Repetitions.")
@click.option("--steps", default=300, show_default=True, type=click.IntRange(min=1), help="Steps to a repetition.")
@click.option(
    "--skip", multiple=True, type=click.Choice(list(BUILDS)), help="Leave one out, dictionaries perhaps."
)
def main(
    repos: tuple[Path, ...],
    model: str,
    tokens: int | None,
    out: tuple[Path, ...],
    lmplz: Path | None,
    memory: str,
    repeat: int,
    steps: int,
    skip: tuple[str, ...],
) -> None:
    """Compare n-gram structures on the source code of some folders; prints Markdown."""
    guard_output()
    plan = Plan(repeat=repeat, steps=steps, skip=frozenset(skip))
    columns = (TextColumn("{task.description:50.50}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        for path in out:
            comparison.check_target(path)
        with (
            tempfile.TemporaryDirectory(prefix="structures-") as folder,
            Progress(*columns, console=console()) as bars,
        ):
            stream = read(repos, model, tokens, bars)
            bar = bars.add_task("compare", total=measurements(plan))
            facts = {
                "machine": machine(),
                "versions": versions(),
                "sources": ", ".join(repo.resolve().name for repo in repos),
                "tokenizer": f"{model}, {stream.vocab_size:,} tokens",
                "files counted": stream.known,
                "tokens counted": stream.tokens,
                "tokens held out": sum(map(len, stream.held_out)),
                "taken": f"{repeat} times, {steps} steps each",
            }
            found = compare(
                stream,
                Site(Path(folder), lmplz, memory),
                plan,
                facts,
                lambda what: bars.update(bar, advance=1, description=what),
            )
        for path in out:
            comparison.write(found, path)
        click.echo(comparison.as_markdown(found))
    except UserError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
