"""The command `ngrams tune`: fit order weights of tables to a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import model_options
from spd_lsp.commands.ngrams import help_example, open_registry
from spd_lsp.models.checkpoint.hub import absolute_model_name
from spd_lsp.output.progress import ReportProgress, progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ngram_builders.registry.ngram_table import NgramTable
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.ngrams.weight_fitting import FitResult

_KNOWN = 5  # tokens, whose trust is told


@click.command("tune", epilog=help_example("tune my-repo --model Qwen/Qwen2.5-Coder-0.5B"))
@click.argument("names", metavar="TABLE...", nargs=-1, required=True)
@model_options
@click.option("--dry-run", is_flag=True, help="Report, but keep nothing.")
@click.option("--undo", is_flag=True, help="Discard the fitted weights.")
@click.pass_obj
def tune(settings: Settings, /, names: tuple[str, ...], model: str, undo: bool, **options: Any) -> None:
    """Fit the weights of n-gram orders to a model and your code.

    The model reads some of the text that a TABLE was built from, and a weight is fitted for each n-gram order, in
    seconds with the starter. The shipped weights were fitted beside it; how sure a model is of each token makes
    them suit others.
    """
    registry = open_registry(settings)
    tables = [registry.find(name) for name in names]
    if undo:
        click.echo("\n".join(_forget(table, model) for table in tables))
        return
    with progress() as report:
        lines = [_tune_table(table, options | {"model": model}, report) for table in tables]
    click.echo("\n".join(lines))


def _forget(table: NgramTable, model: str) -> str:
    """Discard the weights of a table."""
    from ngram_builders.registry.fitted_weights import delete_fitted_weights

    had_weights = delete_fitted_weights(table.path.parent, absolute_model_name(model))
    return f"{table.name}: {'forgot its weights' if had_weights else 'had no weights'} for {model}"


def _tune_table(table: NgramTable, options: dict[str, Any], report: ReportProgress) -> str:
    """Fit the order weights of a table for a model, keep them, and describe the gain."""
    from ngram_builders.registry.fitted_weights import write_fitted_weights

    if table.fault:
        raise UserError(f"n-gram table {table.name} is broken: {table.fault}")
    fitted = _fit_table(table, options["model"], options["device"], report)
    if not options["dry_run"]:
        write_fitted_weights(table.path.parent, absolute_model_name(options["model"]), fitted.weights)
    return (
        f"{table.name}: perplexity of its own files, each left out of the counts (lower is better): "
        f"{fitted.model_alone:.2f} for {options['model']} alone, {fitted.shipped:.2f} with the table, "
        f"{fitted.fitted:.2f} with weights fitted on {fitted.places:,} tokens; where the table knows {_KNOWN} "
        f"tokens of context, n-grams now weigh {sum(fitted.weights[_KNOWN - 1]):.0%}, where it knows one, "
        f"{sum(fitted.weights[0]):.0%}"
    )


def _fit_table(table: NgramTable, model: str, device: str, report: ReportProgress) -> FitResult:
    """Let the model read some of the text behind a table, and fit."""
    from ngram_builders.sources.language_ids import closest_language
    from ngram_builders.table.reader import Table
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import bundled_tables, locate
    from spd_lsp.ngrams.serving_tables import BUILT_IN_WEIGHT
    from spd_lsp.ngrams.weight_fitting import MIN_FIT_TOKENS, fit_weights, observe_documents

    folder = locate(model)
    tokens = ModelTokenizer(folder)
    counted = [Table.open(path, tokens.fingerprint).columns for path in table.paths]

    from spd_lsp.models.load import load

    network = load(folder, device)
    built_in = bundled_tables(model, folder)
    served = {closest_language(language, built_in) for language in table.languages}
    other_tables = [Table.open(path).columns for name, path in built_in.items() if name in served]
    read = observe_documents(
        network,
        [counted, *([columns] for columns in other_tables)],
        [table.weight, *(BUILT_IN_WEIGHT for _ in other_tables)],
        _read_streams(table, tokens),
        table.orders,
        report=lambda done, total: report("fit", done, total),
    )
    fitted = fit_weights([*read])
    if fitted is None:
        raise UserError(
            f"n-gram table {table.name} was built from fewer than {MIN_FIT_TOKENS} tokens; add code and run: "
            f"spd-lsp build-ngrams REPO --name {table.name}"
        )
    return fitted


def _read_streams(table: NgramTable, tokens: ModelTokenizer) -> Iterator[npt.NDArray[np.int64]]:
    """The token streams that a table was built from, in the order of their digests, which mixes the files."""
    from ngram_builders.counting.token_cache import read_indexed_files
    from ngram_builders.ngrams import with_boundaries

    contents = read_indexed_files(table.path.parent, table.layers, tokens.fingerprint)
    for digest in sorted({digest for _, _, digest in contents.files.values()}) if contents else []:
        ids = contents.ids(digest) if contents else None
        if ids is not None:
            yield with_boundaries(ids, tokens.end_of_text)
