"""The command `ngrams tune`: how much a model believes tables, and which settings suit it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.ngrams import example, open_registry
from spd_lsp.evaluation.results import for_the_user_alone, out_option
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.progress import Report, resumable
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ngram_builders.registry.domains import Domain
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.tokenizer import Tokens
    from spd_lsp.evaluation.session import Session
    from spd_lsp.evaluation.walk import Outcome
    from spd_lsp.ngrams.weight_fitting import Fitted

FEWEST = 20  # places below which a choice would follow chance


@click.command("tune", epilog=example("tune my-repo --model Qwen/Qwen2.5-Coder-0.5B"))
@click.argument("names", metavar="[DOMAIN | REPO]...", nargs=-1)
@click.option("--model", default="starter", show_default=True, metavar="M", help="`starter`, a folder, or an id.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option(
    "--places", type=click.IntRange(min=FEWEST), default=400, show_default=True, help="At most so many, of a REPO."
)
@out_option("tune", "Folder of the grid of a REPO; holds pieces of the code. The same command again goes on.")
@click.option("--dry-run", is_flag=True, help="Keep nothing.")
@click.option("--undo", is_flag=True, help="Go back to what comes with spd-lsp: of a DOMAIN, or all settings.")
@click.pass_obj
def tune(settings: Settings, /, names: tuple[str, ...], model: str, undo: bool, **options: Any) -> None:
    """Fit n-gram weights and settings to a model and your code.

    DOMAIN is a table: the model reads some of the text it was built from, and how much to believe each order
    beside this very model follows. Seconds with the starter; worth it with any other, since the weights that come
    with spd-lsp suit the starter.

    REPO is a folder: formula, weights, trust, alpha, temperature, candidates, longest order and ranking are varied
    one after the other, at places in every other file where a cursor might stand; the remaining files tell whether
    it was worth it. Then the probability is chosen below which drafts are not offered. What is found serves
    wherever a setting is as it comes.
    """
    for_the_user_alone()
    registry = open_registry(settings)
    known = {domain.name for domain in registry.domains()}
    repos = [Path(name) for name in names if name not in known and Path(name).is_dir()]
    domains = [registry.find(name) for name in names if Path(name) not in repos]
    options |= {"model": model, "drafts": settings.drafts}
    if undo:
        click.echo("\n".join(_undone(registry, domains, model)))
        return
    if not names:
        raise UserError("expected an n-gram table or a repository to tune on, found none; name one or more")
    with resumable() as report:
        told = [_tune_domain(domain, options, report) for domain in domains]
        told += [_tune_settings(registry, repos, options, report)] if repos else []
    click.echo("\n".join(told))


def _undone(registry: Registry, domains: Sequence[Domain], model: str) -> Iterator[str]:
    """Forget what was fitted for domains, or where none is named what was tuned for the model."""
    from ngram_builders.registry.fitted_weights import delete_fitted_weights
    from spd_lsp.completion.tuned_settings import write_tuned

    for domain in domains:
        told = (
            "forgot its weights" if delete_fitted_weights(domain.path.parent, lasting(model)) else "had no weights"
        )
        yield f"{domain.name}: {told} for {model}"
    if not domains:
        write_tuned(registry.folder, lasting(model), {})
        yield f"{model}: the settings that come with spd-lsp"


# --- a table --------------------------------------------------------------------------------------------------


def _tune_domain(domain: Domain, options: dict[str, Any], report: Report) -> str:
    """Fit the weights of a domain beside a model, keep them, and say what they gain."""
    from ngram_builders.registry.fitted_weights import write_fitted_weights

    if domain.fault:
        raise UserError(f"n-gram table {domain.name} is broken: {domain.fault}")
    fitted = _fit_domain(domain, options["model"], options["device"], report)
    if not options["dry_run"]:
        write_fitted_weights(domain.path.parent, lasting(options["model"]), fitted.weights)
    return (
        f"{domain.name}: perplexity of its own files, each judged without itself: {fitted.model_alone:.2f} by "
        f"{options['model']} alone, {fitted.shipped:.2f} with the table, {fitted.fitted:.2f} with weights fitted "
        f"on {fitted.places:,} tokens"
    )


def _fit_domain(domain: Domain, model: str, device: str, report: Report) -> Fitted:
    """Load the model, let it read, and fit."""
    from ngram_builders.table.reader import Table
    from spd_lsp.completion.tokenizer import Tokens
    from spd_lsp.models.checkpoint.hub import STARTER, built_in_domains, locate
    from spd_lsp.ngrams.interpolation import BUILT_IN_WEIGHT
    from spd_lsp.ngrams.weight_fitting import FEWEST, judge, read_beside

    folder = locate(model)
    tokens = Tokens(folder)
    table = Table.open(domain.path, tokens.fingerprint)

    from spd_lsp.models.load import load

    network = load(folder, device)
    built_in = built_in_domains(folder) if model == STARTER else {}
    beside = [Table.open(path).columns for language, path in built_in.items() if language in domain.languages]
    read = read_beside(
        network,
        [[table.columns], *([columns] for columns in beside)],
        [domain.weight, *(BUILT_IN_WEIGHT for _ in beside)],
        streams(domain, tokens),
        domain.orders,
        report=lambda done, total: report("fit", done, total),
    )
    fitted = judge([*read])
    if fitted is None:
        raise UserError(
            f"expected {FEWEST} tokens or more of what n-gram table {domain.name} was built from, found less; "
            f"run: spd-lsp build-ngrams REPO --domain {domain.name}"
        )
    return fitted


def streams(domain: Domain, tokens: Tokens) -> Iterator[npt.NDArray[np.int64]]:
    """The documents that the domain's table was built from, in an order that mixes its files."""
    from ngram_builders.counting.token_cache import read_contents
    from ngram_builders.ngrams import stream

    contents = read_contents(domain.path.parent, domain.path.name, tokens.fingerprint)
    for digest in sorted({digest for _, _, digest in contents.files.values()}) if contents else []:
        ids = contents.ids(digest) if contents else None
        if ids is not None:
            yield stream(ids, tokens.end_of_text)


# --- settings -------------------------------------------------------------------------------------------------


def _tune_settings(registry: Registry, repos: Sequence[Path], options: dict[str, Any], report: Report) -> str:
    """Walk the grid, or what is left of it; keep what is best, write all of it down, and say so."""
    from spd_lsp.completion.tuned_settings import write_tuned
    from spd_lsp.evaluation.report_writer import write
    from spd_lsp.evaluation.walk import walk_grid

    session = opened(repos, options, report)
    cursors = session.primary(options["places"])
    files = {(cursor.package, cursor.file) for cursor in cursors}
    if len(cursors) < FEWEST or len(files) < 2:
        raise UserError(
            f"expected {FEWEST} places or more where a cursor might stand, in two files or more, "
            f"found {len(cursors)} in {len(files)}; name more repositories"
        )
    outcome = walk_grid(session, cursors)
    write(outcome.report, options["out"])
    if not options["dry_run"]:
        write_tuned(registry.folder, lasting(options["model"]), outcome.kept)
    return described(outcome, options)


def opened(repos: Sequence[Path], options: dict[str, Any], report: Report) -> Session:
    """Places and a model to ask. What the model may have seen in training is no matter here."""
    from spd_lsp.evaluation.places import FILES, read_packages
    from spd_lsp.evaluation.session import Options, open_session

    packages = read_packages(repos, lambda done, total: report("read", done, total))
    chosen = {name: options[name] for name in ("model", "device", "drafts", "out")}
    files = max(FILES, options["places"] // len(packages))
    return open_session(packages, Options(**chosen, files=files), report, lambda text: None, check_leaks=False)


def described(outcome: Outcome, options: dict[str, Any]) -> str:
    """What was found, what it is worth, and where the grid lies."""
    from spd_lsp.evaluation.walk import NAME, named

    judged, _, confidence = outcome.report.parts
    kept = {**outcome.kept, **({"weights": "fitted"} if "weights" in outcome.kept else {})}
    verb = "would be kept" if options["dry_run"] else "kept"
    model = options["model"]
    end = f"{verb} for {model}: {named(kept)}" if kept else f"nothing is {verb} for {model}: as they come is best"
    tried = f"{len(outcome.walk.tried)} settings tried: {options['out'] / NAME}.md"
    return "\n\n".join([str(judged), str(confidence), f"{tried}\n{end}"])
