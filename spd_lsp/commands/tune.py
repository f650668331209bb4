"""The command `ngrams tune`: fit order weights of tables and settings to a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.evaluate import open_quality_run
from spd_lsp.commands.ngrams import help_example, open_registry
from spd_lsp.commands.wiring import model_options
from spd_lsp.evaluation.results import out_option, restrict_file_access
from spd_lsp.models.checkpoint.hub import lasting
from spd_lsp.progress import ReportProgress, resumable_progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ngram_builders.registry.domains import Domain
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.evaluation.tuning import TuningResult
    from spd_lsp.ngrams.weight_fitting import FitResult

_KNOWN = 5  # tokens, whose trust is told
MIN_EXAMPLES = 20  # with fewer, choices would be chance


@click.command("tune", epilog=help_example("tune my-repo --model Qwen/Qwen2.5-Coder-0.5B"))
@click.argument("names", metavar="[DOMAIN | REPO]...", nargs=-1)
@model_options
@click.option(
    "--examples",
    type=click.IntRange(min=MIN_EXAMPLES),
    default=400,
    show_default=True,
    help="Held-out examples of all REPOs together, at most.",
)
@out_option("tune", "Folder of the results for a REPO; holds pieces of the code. The same command resumes.")
@click.option("--dry-run", is_flag=True, help="Report, but keep nothing.")
@click.option("--undo", is_flag=True, help="Forget the weights of a DOMAIN, or else all tuned settings.")
@click.pass_obj
def tune(settings: Settings, /, names: tuple[str, ...], model: str, undo: bool, **options: Any) -> None:
    """Fit n-gram weights and settings to a model and your code.

    DOMAIN is a table: the model reads some of the text it was built from, and a weight is fitted for each n-gram
    order. This takes seconds with the starter. The shipped weights were fitted beside it; how sure a model is of
    each token makes them suit others.

    REPO is a folder: formula, order weights, n-gram weight, alpha, temperature, candidates, longest order and
    ranking are varied one at a time on examples of every other file; the remaining files judge the result. Last
    comes the probability below which drafts are hidden. Tuned values apply to settings left at their defaults.
    """
    restrict_file_access()
    registry = open_registry(settings)
    known = {domain.name for domain in registry.domains()}
    repos = [Path(name) for name in names if name not in known and Path(name).is_dir()]
    domains = [registry.find(name) for name in names if Path(name) not in repos]
    options |= {"model": model, "drafts": settings.drafts}
    if undo:
        click.echo("\n".join(_undo(registry, domains, model)))
        return
    if not names:
        raise UserError("nothing to tune on; name one or more n-gram tables or repositories")
    with resumable_progress() as report:
        lines = [_tune_domain(domain, options, report) for domain in domains]
        lines += [_tune_settings(registry, repos, options, report)] if repos else []
    click.echo("\n".join(lines))


def _undo(registry: Registry, domains: Sequence[Domain], model: str) -> Iterator[str]:
    """Forget the weights of domains, or the tuned settings of the model where no domain is named."""
    from ngram_builders.registry.fitted_weights import delete_fitted_weights
    from spd_lsp.ngrams.tuned_settings import write_tuned

    for domain in domains:
        outcome = (
            "forgot its weights" if delete_fitted_weights(domain.path.parent, lasting(model)) else "had no weights"
        )
        yield f"{domain.name}: {outcome} for {model}"
    if not domains:
        write_tuned(registry.folder, lasting(model), {})
        yield f"{model}: back to the default settings"


def _tune_domain(domain: Domain, options: dict[str, Any], report: ReportProgress) -> str:
    """Fit the order weights of a domain for a model, keep them, and describe the gain."""
    from ngram_builders.registry.fitted_weights import write_fitted_weights

    if domain.fault:
        raise UserError(f"n-gram table {domain.name} is broken: {domain.fault}")
    fitted = _fit_domain(domain, options["model"], options["device"], report)
    if not options["dry_run"]:
        write_fitted_weights(domain.path.parent, lasting(options["model"]), fitted.weights)
    return (
        f"{domain.name}: perplexity of its own files, each judged without itself: {fitted.model_alone:.2f} by "
        f"{options['model']} alone, {fitted.shipped:.2f} with the table, {fitted.fitted:.2f} with weights fitted "
        f"on {fitted.places:,} tokens, which trust the n-grams by {sum(fitted.weights[_KNOWN - 1]):.0%} where "
        f"{_KNOWN} tokens of context are known, by {sum(fitted.weights[0]):.0%} where one is"
    )


def _fit_domain(domain: Domain, model: str, device: str, report: ReportProgress) -> FitResult:
    """Let the model read some of the text behind a table, and fit."""
    from ngram_builders.sources.language_ids import closest_language
    from ngram_builders.table.reader import Table
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import bundled_domains, locate
    from spd_lsp.ngrams.interpolation import BUILT_IN_WEIGHT
    from spd_lsp.ngrams.weight_fitting import MIN_FIT_TOKENS, fit_weights, observe_documents

    folder = locate(model)
    tokens = ModelTokenizer(folder)
    table = [Table.open(path, tokens.fingerprint).columns for path in domain.paths]

    from spd_lsp.models.load import load

    network = load(folder, device)
    built_in = bundled_domains(model, folder)
    served = {closest_language(language, built_in) for language in domain.languages}
    other_tables = [Table.open(path).columns for name, path in built_in.items() if name in served]
    read = observe_documents(
        network,
        [table, *([columns] for columns in other_tables)],
        [domain.weight, *(BUILT_IN_WEIGHT for _ in other_tables)],
        _read_streams(domain, tokens),
        domain.orders,
        report=lambda done, total: report("fit", done, total),
    )
    fitted = fit_weights([*read])
    if fitted is None:
        raise UserError(
            f"n-gram table {domain.name} was built from fewer than {MIN_FIT_TOKENS} tokens; add code and run: "
            f"spd-lsp build-ngrams REPO --domain {domain.name}"
        )
    return fitted


def _read_streams(domain: Domain, tokens: ModelTokenizer) -> Iterator[npt.NDArray[np.int64]]:
    """The token streams that a table was built from, in the order of their digests, which mixes the files."""
    from ngram_builders.counting.token_cache import read_indexed_files
    from ngram_builders.ngrams import stream

    contents = read_indexed_files(domain.path.parent, domain.layers, tokens.fingerprint)
    for digest in sorted({digest for _, _, digest in contents.files.values()}) if contents else []:
        ids = contents.ids(digest) if contents else None
        if ids is not None:
            yield stream(ids, tokens.end_of_text)


def _tune_settings(
    registry: Registry, repos: Sequence[Path], options: dict[str, Any], report: ReportProgress
) -> str:
    """Search, keep what is best, write the report and summarise it. Leaks do not matter here."""
    from spd_lsp.evaluation.quality.examples import DEFAULT_FILES
    from spd_lsp.evaluation.report_writer import write
    from spd_lsp.evaluation.tuning import tune_settings
    from spd_lsp.ngrams.tuned_settings import write_tuned

    files = max(DEFAULT_FILES, options["examples"] // len(repos))
    run = open_quality_run(repos, {**options, "files": files}, report, lambda text: None, refuse_leaks=False)
    examples = run.primary_examples(options["examples"])
    files = len({(example.package, example.file) for example in examples})
    if len(examples) < MIN_EXAMPLES or files < 2:
        raise UserError(
            f"these repositories have {len(examples)} examples in {files} files; tuning needs at least "
            f"{MIN_EXAMPLES} in two files, so name more repositories"
        )
    result = tune_settings(run, examples)
    write(result.report, options["out"])
    if not options["dry_run"]:
        write_tuned(registry.folder, lasting(options["model"]), result.kept)
    return _summary(result, options)


def _summary(result: TuningResult, options: dict[str, Any]) -> str:
    """The gain, what is kept, and where the report is."""
    from spd_lsp.evaluation.tuning import REPORT_NAME, describe_settings

    gain, _, bounds = result.report.parts
    kept = {**result.kept, **({"weights": "fitted"} if "weights" in result.kept else {})}
    verb, model = "would be kept" if options["dry_run"] else "kept", options["model"]
    end = f"{verb} for {model}: {describe_settings(kept)}" if kept else f"nothing is {verb}: the defaults are best"
    tried = f"{len(result.search.tried)} settings tried: {options['out'] / REPORT_NAME}.md"
    return "\n\n".join([str(gain), str(bounds), f"{tried}\n{end}"])
