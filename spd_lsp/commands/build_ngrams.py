"""The command `build-ngrams`: counts repositories into a table, and reports what it did, would do, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.arguments import LocalPath
from spd_lsp.commands.consent import ask
from spd_lsp.commands.dependencies import count_dependencies, describe_dependencies
from spd_lsp.commands.distributed_build import CLUSTER_DEFAULTS, cluster_options, count_in_tasks
from spd_lsp.commands.ngrams import open_registry
from spd_lsp.progress import ReportProgress, format_bytes, format_count, progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.build import BuildSummary
    from ngram_builders.preview import Preview

_ENGINES = ("local", "datatrove")
_MIN_NGRAMS_FOR_SIZE = 50_000  # in smaller tables the fixed parts dominate
_POSITIVE = click.IntRange(1)
_PATH = LocalPath(path_type=Path)


@click.command("build-ngrams", epilog="\b\nExample: spd-lsp build-ngrams . --domain mine --dry-run")
@click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=_PATH)
@click.option("--domain", metavar="NAME", help="Name of the table (default: the folder's name).")
@click.option("--language", metavar="L", help="Count only this language, such as python.")
@click.option("--orders", default="2-6", show_default=True, help="Lengths of the n-grams.")
@click.option("--min-count", type=_POSITIVE, default=1, show_default=True, metavar="N", help="Drop rarer n-grams.")
@click.option(
    "--min-files", type=_POSITIVE, default=1, show_default=True, metavar="N", help="Drop n-grams of fewer files."
)
@click.option("--memory", metavar="SIZE", help="Most memory of a process, such as 500M (default: 1G).")
@click.option("--engine", type=click.Choice(_ENGINES), default="local", show_default=True, help="How to count.")
@click.option("--model", default="starter", show_default=True, metavar="M", help="Model whose tokens are counted.")
@click.option(
    "--dependencies", is_flag=True, help="Count the installed packages that REPO imports or declares instead."
)
@click.option("--fresh", is_flag=True, help="Reuse nothing of earlier builds.")
@click.option("--replace", is_flag=True, help="Replace another repository's table of that name.")
@click.option("--dry-run", is_flag=True, help="Show what would be counted and skipped; write nothing.")
@click.option("--why", metavar="FILE", type=_PATH, help="Explain why a file is counted or skipped.")
@cluster_options
@click.pass_context
def build_ngrams(
    context: click.Context,
    /,
    repos: tuple[Path, ...],
    language: str | None,
    dependencies: bool,
    replace: bool,
    dry_run: bool,
    why: Path | None,
    orders: str,
    memory: str | None,
    **options: Any,
) -> None:
    """Teach completions your code: count its n-grams.

    REPO is a repository or any folder of sources; with --engine datatrove also a corpus.
    """
    _check_language(language)
    if why is not None:
        click.echo(_explain(why, repos, language))
        return
    if options["domain"] and not (dry_run or dependencies or replace):
        _check_domain(context.obj, options["domain"], repos)
    try:
        with progress() as report:
            if dry_run:
                from ngram_builders.preview import preview

                output = _describe_preview(preview(repos, language, report))
            elif dependencies:
                made = [(repo, count_dependencies(context.obj, repo, options["model"], report)) for repo in repos]
                output = "\n".join(describe_dependencies(*one) for one in made)
            else:
                options |= {"orders": parse_orders(orders), "language": language}
                options |= {} if memory is None else {"memory": parse_memory(memory)}
                where = {name: value for name in CLUSTER_DEFAULTS if (value := options.pop(name)) is not None}
                summary, stages = count(context.obj, repos, report, where=where, **options)
                output = "\n".join([describe_build(summary), *stages])
    except KeyboardInterrupt:
        click.echo("interrupted: the table is unchanged; run the same command to continue", err=True)
        context.exit(130)
    click.echo(output)


def count(
    settings: Settings,
    repos: Sequence[Path],
    report: ReportProgress,
    *,
    domain: str | None,
    engine: str,
    model: str,
    where: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> tuple[BuildSummary, list[str]]:
    """Run the build; return its summary, and lines on what each of its stages took."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import bundled_domains, lasting, locate

    folder = locate(model)
    tokens = ModelTokenizer(folder)
    options |= {
        "end_of_text": tokens.end_of_text,
        "fingerprint": tokens.fingerprint,
        "vocab_size": tokens.vocab_size,
        "registry": open_registry(settings),
        "report": report,
    }
    if engine == "datatrove":
        if options.pop("min_files", 1) > 1:
            raise UserError("--min-files works with --engine local only; leave one of the two out")
        return count_in_tasks(repos, domain, lasting(model), where={**CLUSTER_DEFAULTS, **where}, **options)
    if where:
        option = "--" + next(iter(where)).replace("_", "-")
        raise UserError(f"{option} works with --engine datatrove only; add that option")
    from ngram_builders.build import build

    beside = bundled_domains(model, folder)
    return build(repos, domain, tokens.encode_batch, model=lasting(model), beside=beside, **options), []


def _check_language(language: str | None) -> None:
    """Refuse a language that no file is in."""
    from ngram_builders.registry.assignments import KNOWN_LANGUAGES

    if language is not None and language not in KNOWN_LANGUAGES:
        raise UserError(f"unknown language {language!r}; choose one of {', '.join(sorted(KNOWN_LANGUAGES))}")


def _check_domain(settings: Settings, name: str, repos: Sequence[Path]) -> None:
    """Ask before a table is lost that was not built from these repositories, nor from one that has moved."""
    domain = next((one for one in open_registry(settings).domains() if one.name == name), None)
    if domain is None or (domain.fault and not domain.roots):
        return
    roots = [*domain.roots, *map(Path, domain.recipe.get("rows", ()))]
    named = {path for repo in repos for path in (repo.resolve(), repo.absolute())}
    if any(root in named or not root.exists() for root in roots):
        return
    source = ", ".join(map(str, roots)) or domain.recipe.get("imported") or domain.recipe.get("package")
    loss = f"the table {name} is from {source or 'elsewhere'} and would be replaced"
    ask(loss, "Replace it?", "choose another name with --domain, or add --replace")


def _explain(file: Path, repos: Sequence[Path], language: str | None) -> str:
    """Explain in a line why a file is counted or skipped."""
    from ngram_builders.build import DUPLICATE
    from ngram_builders.preview import find_first_copy
    from ngram_builders.sources.discovery import OTHER_LANGUAGE, display_path, explain_skipped
    from ngram_builders.sources.language_ids import language_of, related_languages

    around = [repo for repo in repos if file.parent.resolve().is_relative_to(repo.resolve())]
    languages = None if language is None else related_languages(language)
    reason, rule = explain_skipped(file, (around or repos)[0], languages)
    if reason is None and languages is not None and language_of(file, languages) not in languages:
        reason = OTHER_LANGUAGE
    if reason is None and (first := find_first_copy(file, repos, language)):
        reason, rule = DUPLICATE, f"of {first}"
    if reason is None:
        return f"{display_path(file)}: counted as {language_of(file, languages)}{_describe_secrets(file)}"
    return display_path(f"{file}: skipped: {reason}" + (f" ({rule})" if rule else ""))


def _describe_secrets(file: Path) -> str:
    """Say which lines of a file are not counted, and what kind of secret they look like; never what they say."""
    from ngram_builders.sources.filters import describe_secrets

    lines = enumerate(describe_secrets(str(file)).items())
    # Consecutive lines of a kind are one entry: their numbers grow as fast as their positions.
    runs = [
        [line for _, line in run] for _, run in groupby(lines, lambda item: (item[1][0] - item[0], item[1][1]))
    ]
    ranges = [f"{run[0][1]}: {run[0][0]}{f'-{run[-1][0]}' if len(run) > 1 else ''}" for run in runs]
    return f", except lines that look like secrets ({'; '.join(ranges)})" if ranges else ""


def parse_orders(text: str) -> tuple[int, ...]:
    """Example: `2-4` -> (2, 3, 4); `3` -> (3,)."""
    match = re.fullmatch(r"([2-6])(?:-([2-6]))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high:
        raise UserError(f"--orders is a range within 2-6, such as 2-6 or 3-5, not {text!r}")
    return tuple(range(low, high + 1))


def parse_memory(text: str) -> int:
    """Example: `500M` -> 500000000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([MG])B?", text, re.IGNORECASE)
    if match is None:
        raise UserError(f"--memory is a size such as 500M or 2G, not {text!r}")
    return int(float(match[1]) * {"M": 10**6, "G": 10**9}[match[2].upper()])


def _describe_preview(preview: Preview) -> str:
    by_size = sorted(preview.files, key=lambda language: (-preview.bytes[language], language))
    parts = [
        f"{preview.files[language]:,} {language} ({format_bytes(preview.bytes[language])})" for language in by_size
    ]
    total = f"{format_count(sum(preview.files.values()), 'file')}, {format_bytes(sum(preview.bytes.values()))}"
    lines = [f"would count {total}: {', '.join(parts) or 'none'}", *_describe_masked(preview.masked)]
    return "\n".join([*lines, _describe_skipped(preview.skipped)])


def describe_build(summary: BuildSummary) -> str:
    """Describe what was counted, what that took, what was skipped and why, and where the table is."""
    each = f" ({summary.bytes / summary.ngrams:.1f} bytes each)" if summary.ngrams >= _MIN_NGRAMS_FOR_SIZE else ""
    lines = [
        f"{summary.domain}: {format_count(summary.files, 'file')}, {summary.tokens:,} tokens, "
        f"{summary.ngrams:,} n-grams, {summary.bytes / 2**20:.1f} MiB{each}, {summary.seconds:.1f} s",
        *_describe_work(summary),
        *_describe_perplexity(summary),
        *_describe_masked(summary.masked),
        _describe_skipped(summary.skipped),
        f"table: {summary.path}",
    ]
    return "\n".join([*lines, f"note: {summary.problem}"] if summary.problem else lines)


def _describe_work(summary: BuildSummary) -> list[str]:
    """Describe what was new, if that is known."""
    if not summary.changed:
        return ["nothing has changed since the last build"]
    if not summary.encoded and not summary.reused:
        return []
    speed = summary.encoded / max(summary.encoding_seconds, 1e-3)
    line = f"tokenized: {summary.encoded:,} tokens in {summary.encoding_seconds:.1f} s ({speed:,.0f} per second)"
    return [line + (f"; {format_count(summary.reused, 'file')} unchanged" if summary.reused else "")]


def _describe_perplexity(summary: BuildSummary) -> list[str]:
    """Describe how well the table predicts files that it does not count, alone and with other tables."""
    values = [f"{value:.1f} {tables}" for tables, value in summary.perplexity.items()]
    return [f"held-out perplexity: {', '.join(values)}"] if values else []


def _describe_masked(lines: int) -> list[str]:
    if not lines:
        return []
    return [
        f"masked: {lines:,} lines that look like secrets"
        if lines > 1
        else "masked: 1 line that looks like a secret"
    ]


def _describe_skipped(skipped: Mapping[str, int]) -> str:
    counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
    return f"skipped: {counts or 'nothing'}"
