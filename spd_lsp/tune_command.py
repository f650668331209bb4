"""The command `tune`: which settings complete most of a person's code with a model. Slow imports are made late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spd_lsp.checkpoints import lasting
from spd_lsp.ngram_commands import open_registry
from spd_lsp.printable import printable
from spd_lsp.settings import Settings, UserError
from spd_lsp.terminal import console

if TYPE_CHECKING:
    from spd_lsp.evaluation.session import Session
    from spd_lsp.evaluation.walk import Outcome

FEWEST = 20  # places below which a choice would follow chance


@click.command("tune")
@click.argument("repos", metavar="REPO...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder, or an id.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option("-k", "drafts", type=click.IntRange(1, 16), default=3, show_default=True, help="Drafts.")
@click.option("--places", type=click.IntRange(min=FEWEST), default=400, show_default=True, help="At most so many.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("tune"),
    show_default=True,
    help="Folder of the grid; holds pieces of the code. The same command again goes on.",
)
@click.option("--dry-run", is_flag=True, help="Keep nothing.")
@click.option("--undo", is_flag=True, help="Go back to the settings that come with spd-lsp.")
@click.pass_context
def tune(context: click.Context, /, repos: tuple[Path, ...], model: str, undo: bool, **options: Any) -> None:
    """Find the settings that complete most lines of some repositories, and use them with this model.

    The formula, the weights and longest order of the n-grams, trust, alpha, temperature, candidates and ranking
    are varied one after the other, at places in every other file where a cursor might stand; the remaining files
    tell whether it was worth it. Then the probability is chosen below which drafts are not offered. What is found
    serves wherever a setting is as it comes. Example: spd-lsp tune ~/code/mine
    """
    from spd_lsp.tuning import write_tuned

    settings: Settings = context.obj
    folder = open_registry(settings).folder
    if undo:
        write_tuned(folder, lasting(model), {})
        click.echo(f"{model}: the settings that come with spd-lsp")
        return
    if not repos:
        raise UserError("expected a repository to tune on, found none; name one or more folders")
    with progress(context) as report:
        outcome = run_tune(repos, model, options, report)
    if not options["dry_run"]:
        write_tuned(folder, lasting(model), outcome.kept)
    click.echo(told(outcome, model, options))


def run_tune(
    repos: Sequence[Path], model: str, options: dict[str, Any], report: Callable[[str, int, int], None]
) -> Outcome:
    """Walk the grid, or what is left of it, and write it down."""
    from spd_lsp.evaluation.paper.report import write
    from spd_lsp.evaluation.walk import tune

    session = opened(repos, model, options, report)
    cursors = session.primary(options["places"])
    files = {(cursor.package, cursor.file) for cursor in cursors}
    if len(cursors) < FEWEST or len(files) < 2:
        raise UserError(
            f"expected {FEWEST} places or more where a cursor might stand, in two files or more, "
            f"found {len(cursors)} in {len(files)}; name more repositories"
        )
    outcome = tune(session, cursors)
    write(outcome.report, options["out"])
    return outcome


def opened(
    repos: Sequence[Path], model: str, options: dict[str, Any], report: Callable[[str, int, int], None]
) -> Session:
    """Places and a model to ask. What the model may have seen in training is no matter here."""
    from spd_lsp.checkpoints import locate
    from spd_lsp.evaluation.arms import Asker
    from spd_lsp.evaluation.places import FILES, read_packages, sample
    from spd_lsp.evaluation.session import Options, Session, facts_of
    from spd_lsp.evaluation.store import Store
    from spd_lsp.model import load
    from spd_lsp.tokens import Tokens

    packages = read_packages(repos, lambda done, total: report("read", done, total))
    asked = Options(model=model, device=options["device"], drafts=options["drafts"], out=options["out"])
    cursors = sample(packages, files=max(FILES, options["places"] // len(packages)))
    folder = locate(model)
    tokens = Tokens(folder)
    store = Store(asked.out / "places.jsonl", facts_of(asked, packages, folder))
    asker = Asker(load(folder, asked.device), tokens, Settings(drafts=asked.drafts))
    return Session(asked, packages, cursors, tokens, folder, (), store, asker, report)


def told(outcome: Outcome, model: str, options: dict[str, Any]) -> str:
    """What was found, what it is worth, and where the grid lies."""
    from spd_lsp.evaluation.walk import NAME, named

    first, _, confidence = outcome.report.tables
    kept = {name: value for name, value in outcome.kept.items() if name != "weights"}
    kept |= {"weights": "fitted"} if "weights" in outcome.kept else {}
    verb = "would be kept" if options["dry_run"] else "kept"
    end = f"{verb} for {model}: {named(kept)}" if kept else f"nothing is {verb} for {model}: as they come is best"
    tried = f"{len(outcome.walk.tried)} settings tried: {options['out'] / NAME}.md"
    return "\n\n".join([first.markdown(), confidence.markdown(), f"{tried}\n{end}"])


@contextmanager
def progress(context: click.Context) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error; an interrupted walk can go on."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:24.24}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    out = console()
    try:
        with Progress(*columns, console=out, transient=True) as bars:
            bar = bars.add_task("", total=None)
            yield lambda what, done, total: bars.update(
                bar, description=printable(what), completed=done, total=total
            )
    except KeyboardInterrupt:
        out.print("interrupted: the same command goes on from here")
        context.exit(130)
