"""The command `tune`: which settings complete most of a person's code with a model. Slow imports are made late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from spd_lsp.build_command import lasting, progress
from spd_lsp.ngram_commands import open_registry
from spd_lsp.settings import Settings, UserError

if TYPE_CHECKING:
    from spd_lsp.evaluation.arms import Arm
    from spd_lsp.tuning import Tuned

FEWEST = 20  # places below which a choice would follow chance


@click.command("tune")
@click.argument("repos", metavar="REPO...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder, or an id.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option("-k", "drafts", type=click.IntRange(1, 16), default=3, show_default=True, help="Drafts.")
@click.option("--places", type=click.IntRange(min=FEWEST), default=400, show_default=True, help="At most so many.")
@click.option("--undo", is_flag=True, help="Go back to the settings that come with spd-lsp.")
@click.pass_obj
def tune(
    settings: Settings, repos: tuple[Path, ...], model: str, device: str, drafts: int, places: int, undo: bool
) -> None:
    """Find the settings that complete most lines of some repositories, and use them with this model.

    Temperature and candidates are tried, at places where a cursor might stand; the repositories' other files are
    what the n-grams know. What is chosen serves wherever a setting is as it comes. How much a model believes
    n-grams is fitted by `ngrams fit`. Example: spd-lsp tune ~/code/mine
    """
    from spd_lsp.tuning import write_tuned

    folder = open_registry(settings).folder
    if undo:
        write_tuned(folder, lasting(model), {})
        click.echo(f"{model}: the settings that come with spd-lsp")
        return
    if not repos:
        raise UserError("expected a repository to tune on, found none; name one or more folders")
    chosen, told = run_tune(repos, model, device, drafts, places)
    write_tuned(folder, lasting(model), chosen)
    click.echo(told)


def run_tune(repos: Sequence[Path], model: str, device: str, drafts: int, places: int) -> tuple[Tuned, str]:
    """Ask at all places in every way; the settings to keep, and what to tell."""
    import numpy as np

    from spd_lsp.evaluation.arms import parse_arms
    from spd_lsp.evaluation.bootstrap import Draws
    from spd_lsp.tuning import GRID, choose, crossed

    arms = parse_arms([as_arm(way) for way in GRID], ["repository+file"])
    records = ask(repos, arms, model, device, drafts, places)
    if len(records) < FEWEST:
        raise UserError(f"expected {FEWEST} places or more where a cursor might stand, found {len(records)}; "
                        "name more repositories")  # fmt: skip
    hits = np.array([[hit(record, arm.label, drafts) for arm in arms] for record in records])  # [P, A]
    where = [record["place"] for record in records]
    packages, files = [place["package"] for place in where], [place["file"] for place in where]
    gains = crossed(hits, [f"{package}/{file}" for package, file in zip(packages, files, strict=True)])
    (gain,) = Draws(packages, files).intervals(gains[:, None], np.ones((len(gains), 1)))
    way = choose(hits)
    kept = GRID[way] if gain.mean > 0 else {}
    lines = [f"{100 * hits[:, a].mean():5.1f} %  {named(GRID[a])}" for a in range(len(GRID))]
    judged = f"{100 * gain.mean:+.1f} points, 95 % interval {100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
    end = f"kept for {model}: {named(kept)}" if kept else f"nothing is kept for {model}: as they come is best"
    heading = f"lines completed by one of {drafts} drafts, at {len(records)} places:"
    return kept, "\n".join([heading, *lines, f"choosing gains, where it was not chosen by: {judged}", end])


def as_arm(way: Tuned) -> str:
    """Example: {"temperature": 0.8} -> `superposed:temperature=0.8`."""
    return ":".join(["superposed", *(f"{name}={value}" for name, value in way.items())])


def named(way: Tuned) -> str:
    """How a way is called."""
    return ", ".join(f"{name} {value}" for name, value in way.items()) or "settings as they come"


def hit(record: dict[str, Any], label: str, k: int) -> float:
    """Whether one of an arm's drafts is what was written."""
    return float(record["place"]["target"] in record["arms"][label]["drafts"][:k])


def ask(
    repos: Sequence[Path], arms: Sequence[Arm], model: str, device: str, drafts: int, places: int
) -> list[dict[str, Any]]:
    """Every arm at every place."""
    from spd_lsp.checkpoints import STARTER, built_in_domains, locate
    from spd_lsp.evaluation.arms import Asker
    from spd_lsp.evaluation.places import read_packages, sample
    from spd_lsp.evaluation.prior import PackagePrior
    from spd_lsp.evaluation.quality import Plan, measure
    from spd_lsp.evaluation.store import Store
    from spd_lsp.model import load
    from spd_lsp.tokens import Tokens

    folder = locate(model)
    tokens = Tokens(folder)
    packages = read_packages(repos)
    plan = Plan(sample(packages)[:places], arms)
    built_in = built_in_domains(folder) if model == STARTER else {}
    asker = Asker(load(folder, device), tokens, Settings(drafts=drafts))
    with TemporaryDirectory() as passing, progress() as report:
        store = Store(Path(passing) / "places.jsonl", {})
        measure(plan, packages, lambda one: PackagePrior(one, tokens, built_in), asker, store,
                lambda _, done, total: report("tune", done, total))  # fmt: skip
        return store.records()
