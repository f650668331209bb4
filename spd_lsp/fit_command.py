"""The command `ngrams fit`: a model reads some of a domain's text, and how much to believe the counts follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from spd_lsp.build_command import progress
from spd_lsp.checkpoints import lasting
from spd_lsp.ngram_commands import open_registry
from spd_lsp.settings import Settings, UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ngram_builders.registry import Domain
    from spd_lsp.fitting import Fitted
    from spd_lsp.tokens import Tokens


@click.command("fit")
@click.argument("name")
@click.option(
    "--model", default="starter", show_default=True, metavar="M", help="The model beside which they serve."
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps.")
@click.option("--undo", is_flag=True, help="Go back to the weights that come with spd-lsp.")
@click.pass_obj
def fit(settings: Settings, name: str, model: str, device: str, undo: bool) -> None:
    """Fit how much a model believes a table, on the table's own files.

    Seconds with the starter model; worth it with any other, since the weights that come with spd-lsp suit the
    starter. Example: spd-lsp ngrams fit my-repo --model Qwen/Qwen2.5-Coder-0.5B
    """
    from ngram_builders.fits import forget_fit, write_fit

    domain = open_registry(settings).find(name)
    if domain.fault:
        raise UserError(f"n-gram table {name} is broken: {domain.fault}")
    home = domain.path.parent
    if undo:
        told = "forgot its weights" if forget_fit(home, lasting(model)) else "had no weights"
        click.echo(f"{name}: {told} for {model}")
        return
    fitted = fit_domain(domain, model, device)
    write_fit(home, lasting(model), fitted.weights)
    click.echo(describe_fit(name, model, fitted))


def fit_domain(domain: Domain, model: str, device: str) -> Fitted:
    """Load the model, let it read, and fit."""
    from ngram_builders.tables import Table
    from spd_lsp.checkpoints import STARTER, built_in_domains, locate
    from spd_lsp.fitting import FEWEST, fit_beside
    from spd_lsp.interpolation import BUILT_IN_WEIGHT
    from spd_lsp.tokens import Tokens

    folder = locate(model)
    tokens = Tokens(folder)
    table = Table.open(domain.path, tokens.fingerprint)

    from spd_lsp.model import load

    network = load(folder, device)
    built_in = built_in_domains(folder) if model == STARTER else {}
    beside = [Table.open(path).columns for language, path in built_in.items() if language in domain.languages]
    pools = [[table.columns], *([columns] for columns in beside)]
    shares = [domain.weight, *(BUILT_IN_WEIGHT for _ in beside)]
    with progress() as report:
        fitted = fit_beside(
            network,
            pools,
            shares,
            streams(domain, tokens),
            domain.orders,
            report=lambda done, total: report("fit", done, total),
        )
    if fitted is None:
        raise UserError(
            f"expected {FEWEST} tokens or more of what n-gram table {domain.name} was built from, found less; "
            f"run: spd-lsp build-ngrams REPO --domain {domain.name}"
        )
    return fitted


def streams(domain: Domain, tokens: Tokens) -> Iterator[npt.NDArray[np.int64]]:
    """The documents that the domain's table was built from, in an order that mixes its files."""
    from ngram_builders.counts import stream
    from ngram_builders.store import read_contents

    contents = read_contents(domain.path.parent, domain.path.name, tokens.fingerprint)
    for digest in sorted({digest for _, _, digest in contents.files.values()}) if contents else []:
        ids = contents.ids(digest) if contents else None
        if ids is not None:
            yield stream(ids, tokens.end_of_text)


def describe_fit(name: str, model: str, fitted: Fitted) -> str:
    """What the weights gain."""
    return (
        f"{name}: perplexity of its own files, each judged without itself: {fitted.model_alone:.2f} by {model} "
        f"alone, {fitted.shipped:.2f} with the table, {fitted.fitted:.2f} with weights fitted on "
        f"{fitted.places:,} tokens"
    )
