"""The commands `spd-lsp eval ...`: how good completions are, on any repositories. Slow imports are made late."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spd_lsp.evaluation.paper.commands import experiments
from spd_lsp.settings import Settings, UserError

if TYPE_CHECKING:
    from spd_lsp.evaluation.arms import Arm, Asker
    from spd_lsp.evaluation.leaks import Finding
    from spd_lsp.evaluation.places import Cursor, Package
    from spd_lsp.evaluation.quality import Report
    from spd_lsp.evaluation.store import Store
    from spd_lsp.tokens import Tokens

ARMS = "superposed,verified,greedy,nucleus,beam,branches,nucleus-superposed,paper,no-lm"
DIFFERENT_PRIORS = ("superposed@built-in", "superposed@repository")


@click.group("eval")
def evaluate() -> None:
    """Measure how good completions are, on repositories that no table and no model has seen."""


for experiment in experiments.commands.values():  # those of the Superposed Decoding paper
    evaluate.add_command(experiment)


@evaluate.command()
@click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder, or an id.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option(
    "--arms",
    default=ARMS,
    show_default=True,
    metavar="A,B,...",
    help="DECODER[:SETTING=VALUE]...[@PRIOR], such as beam:drafts=5@built-in.",
)
@click.option(
    "--priors",
    default="repository+file,none",
    show_default=True,
    metavar="P,Q,...",
    help="For arms without @: none, built-in, repository, repository+file.",
)
@click.option("-k", "drafts", type=click.IntRange(1, 16), default=3, show_default=True, help="Drafts.")
@click.option("--places", type=click.IntRange(min=1), help="At most so many, spread over all packages.")
@click.option("--typed", type=click.IntRange(min=0), default=100, show_default=True, help="Lines typed through.")
@click.option(
    "--drawn",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Places where samplers draw 20 times, for what they score on average.",
)
@click.option("--files", type=click.IntRange(min=1), default=25, show_default=True, help="Files a package.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which places.")
@click.option(
    "--against",
    default="greedy,nucleus,beam",
    show_default=True,
    metavar="A,B,...",
    help="What all arms are compared with, in pairs.",
)
@click.option("--max-tokens", type=click.IntRange(1, 512), default=24, show_default=True, help="Longest draft.")
@click.option("--left-only", is_flag=True, help="Show the model and the n-grams nothing right of the cursor.")
@click.option(
    "--language", multiple=True, default=("python",), show_default=True, help="Of the files with places."
)
@click.option(
    "--training",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the model's training corpus, for the leak checks. May be given several times.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("eval-quality"),
    show_default=True,
    help="Folder of the results; holds pieces of the code. The same command again goes on.",
)
@click.option("--figures/--no-figures", default=True, help="Draw PNG figures (needs matplotlib).")
@click.pass_context
def quality(context: click.Context, /, repos: tuple[Path, ...], **options: Any) -> None:
    """Compare ways to complete at places where a cursor might stand.

    REPO is a package or repository: its other files are what the n-grams know. Results go to a folder as they are
    found; the tables are printed. Example: spd-lsp eval quality ~/code/*/ --places 200
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:24.24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task("", total=None)

        def report(what: str, done: int, total: int) -> None:
            bars.update(bar, description=what, completed=done, total=total)

        try:
            told = run_quality(repos, options, report, bars.console.print)
        except KeyboardInterrupt:
            console.print("interrupted: the same command goes on from here")
            context.exit(130)
    click.echo(told)


def run_quality(repos: Sequence[Path], options: dict[str, Any], report: Report, tell: Any) -> str:
    """Check for leaks, measure, write; gives the report as Markdown."""
    from spd_lsp.checkpoints import STARTER, built_in_domains, locate
    from spd_lsp.evaluation.arms import parse_arms
    from spd_lsp.evaluation.figures import pyplot
    from spd_lsp.evaluation.places import read_packages
    from spd_lsp.evaluation.prior import PackagePrior
    from spd_lsp.evaluation.quality import measure
    from spd_lsp.evaluation.report import as_markdown, write
    from spd_lsp.evaluation.store import Store
    from spd_lsp.evaluation.tables import Results
    from spd_lsp.tokens import Tokens

    arms = parse_arms(split(options["arms"]), split(options["priors"]))
    if options["arms"] == ARMS:
        arms += parse_arms(DIFFERENT_PRIORS, [])
    if options["figures"]:
        pyplot()
    folder = locate(options["model"], tell)
    tokens = Tokens(folder)
    packages = read_packages(repos, lambda done, total: report("read", done, total))
    plan = plan_of(packages, arms, options)
    store = Store(options["out"] / "places.jsonl", facts_of(options, packages, folder))
    findings = refuse_leaks(packages, tokens, folder, options["training"], store, report)
    built_in = built_in_domains(folder) if options["model"] == STARTER else {}
    asker = load_asker(folder, tokens, options, tell)
    measure(plan, packages, lambda package: PackagePrior(package, tokens, built_in), asker, store, report)
    chosen = {cursor.key for cursor in plan.cursors}
    results = Results(
        [r for r in store.records() if r["key"] in chosen], arms, options["drafts"], split(options["against"])
    )
    run = facts_of(options, packages, folder)
    write(options["out"], results, run, findings, options["figures"])
    return as_markdown(results, run, findings)


def split(text: str) -> list[str]:
    """Example: `a, b` -> a and b"""
    return [part.strip() for part in text.split(",") if part.strip()]


def plan_of(packages: Sequence[Package], arms: Sequence[Arm], options: dict[str, Any]) -> Any:
    """The places; of those of the primary strata the first ones are typed through, and drawn at more often."""
    from spd_lsp.evaluation.places import PRIMARY, sample
    from spd_lsp.evaluation.quality import Plan

    cursors = sample(packages, options["seed"], options["files"], options["language"])
    cursors = cursors[: options["places"]]
    primary: list[Cursor] = [cursor for cursor in cursors if cursor.stratum in PRIMARY]
    typed, drawn = (frozenset(cursor.key for cursor in primary[: options[name]]) for name in ("typed", "drawn"))
    return Plan(cursors, arms, typed, drawn, right=not options["left_only"])


def facts_of(options: dict[str, Any], packages: Sequence[Package], folder: Path) -> dict[str, Any]:
    """What decides the results at a place; results with other facts are not mixed with these."""
    import hashlib

    from spd_lsp import __version__

    weights = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        weights.update(path.read_bytes())
    return {
        "model": options["model"],
        "weights": weights.hexdigest()[:16],
        "packages": ", ".join(package.name for package in packages),
        "seed": options["seed"],
        "k": options["drafts"],
        "max_tokens": options["max_tokens"],
        "right context": not options["left_only"],
        "version": __version__,
    }


def refuse_leaks(
    packages: Sequence[Package],
    tokens: Tokens,
    folder: Path,
    training: Sequence[Path],
    store: Store,
    report: Report,
) -> list[Finding]:
    """Run the leak checks, or take those of the run that goes on; raise if anything was seen in training."""
    from spd_lsp.evaluation.leaks import Finding, check

    asked = sorted(str(path.resolve()) for path in training)
    kept = store.kept("leaks")
    if kept and kept["training"] == asked:
        findings = [Finding(**finding) for finding in kept["findings"]]
    else:
        findings = check(packages, tokens, folder, training, lambda done, total: report("leaks", done, total))
        told = [dataclasses.asdict(finding) for finding in findings]
        store.append({"leaks": {"training": asked, "findings": told}})
    leaks = [f"{found.subject}: {found.check}, {found.text}" for found in findings if found.verdict == "leak"]
    if leaks:
        raise UserError(
            f"expected repositories that the model has not seen, found {'; '.join(leaks)}; leave these out"
        )
    return findings


def load_asker(folder: Path, tokens: Tokens, options: dict[str, Any], tell: Any) -> Asker:
    """The model, ready to be asked."""
    from spd_lsp.evaluation.arms import Asker
    from spd_lsp.model import load

    settings = Settings(drafts=options["drafts"], max_tokens=options["max_tokens"])
    return Asker(load(folder, options["device"], tell), tokens, settings)
