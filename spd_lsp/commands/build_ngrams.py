"""The command `build-ngrams`: counts repositories into a table, and says what it did, would do, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.commands.distributed_build import OPTIONS as WHERE
from spd_lsp.commands.distributed_build import cluster_options, count_in_tasks
from spd_lsp.commands.ngrams import open_registry
from spd_lsp.progress import Report, progress, size
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.build import Preview, Summary

_ENGINES = ("local", "datatrove")
_MANY = 50_000  # n-grams


@click.command("build-ngrams", epilog="\b\nExample: spd-lsp build-ngrams . --domain mine --dry-run")
@click.argument("repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--domain", metavar="NAME", help="Name of the table (default: the folder's name).")
@click.option("--language", metavar="L", help="Count only this language, such as python.")
@click.option("--orders", default="2-6", show_default=True, help="Lengths of the n-grams.")
@click.option(
    "--min-count", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Drop rarer n-grams."
)
@click.option(
    "--min-files",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Drop what fewer files say.",
)
@click.option("--engine", type=click.Choice(_ENGINES), default=_ENGINES[0], show_default=True, help="What counts.")
@click.option("--model", default="starter", show_default=True, metavar="M", help="Whose tokens are counted.")
@click.option("--fresh", is_flag=True, help="Use nothing that earlier builds kept.")
@click.option("--dry-run", is_flag=True, help="Say what would be counted and left out; write nothing.")
@click.option("--why", metavar="FILE", type=click.Path(path_type=Path), help="Say why this file is in or out.")
@cluster_options
@click.pass_context
def build_ngrams(
    context: click.Context,
    /,
    repos: tuple[Path, ...],
    language: str | None,
    dry_run: bool,
    why: Path | None,
    orders: str,
    **options: Any,
) -> None:
    """Teach completions your code: count the n-grams of the sources in repositories and folders."""
    _check_language(language)
    if why is not None:
        click.echo(_explain(why, repos, language))
        return
    try:
        with progress() as report:
            if dry_run:
                from ngram_builders.build import preview

                told = _describe_preview(preview(repos, language, report))
            else:
                asked = {"orders": parse_orders(orders), "language": language, **options}
                where = {name: value for name in WHERE if (value := asked.pop(name)) is not None}
                made, stages = count(context.obj, repos, report, where=where, **asked)
                told = "\n".join([describe_build(made), *stages])
    except KeyboardInterrupt:
        click.echo("interrupted: the table is as it was, and the same command goes on from here", err=True)
        context.exit(130)
    click.echo(told)


def count(
    settings: Settings,
    repos: Sequence[Path],
    report: Report,
    *,
    domain: str | None,
    engine: str,
    model: str,
    where: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> tuple[Summary, list[str]]:
    """Run the build; what was made, and lines on what it took beside that."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import STARTER, built_in_domains, lasting, locate

    folder = locate(model)
    tokens = ModelTokenizer(folder)
    facts: dict[str, Any] = {
        "end_of_text": tokens.end_of_text,
        "fingerprint": tokens.fingerprint,
        "vocab_size": tokens.vocab_size,
        "registry": open_registry(settings),
        "report": report,
    }
    if engine == "datatrove":
        if options.pop("min_files", 1) > 1:
            raise UserError("expected --min-files with --engine local, found datatrove; leave one of the two out")
        return count_in_tasks(repos, domain, lasting(model), where={**WHERE, **where}, **facts, **options)
    if where:
        option = "--" + next(iter(where)).replace("_", "-")
        raise UserError(f"expected {option} beside --engine datatrove, found another engine; name that engine")
    from ngram_builders.build import build

    beside = built_in_domains(folder) if model == STARTER else {}
    made = build(repos, domain, tokens.encode_batch, model=lasting(model), beside=beside, **facts, **options)
    return made, []


def _check_language(language: str | None) -> None:
    """Refuse a language that no file is in."""
    from ngram_builders.registry.assignments import KNOWN_LANGUAGES

    if language is not None and language not in KNOWN_LANGUAGES:
        known = ", ".join(sorted(KNOWN_LANGUAGES))
        raise UserError(f"expected a language, one of {known}; found {language!r}")


def _explain(file: Path, repos: Sequence[Path], language: str | None) -> str:
    """Why a file is counted or not, in a line."""
    from ngram_builders.build import DUPLICATE, counted_for
    from ngram_builders.sources.discovery import OTHER_LANGUAGE, display_path, explain_skipped
    from ngram_builders.sources.language_ids import language_of, related_languages

    around = [repo for repo in repos if file.parent.resolve().is_relative_to(repo.resolve())]
    fault, rule = explain_skipped(file, (around or repos)[0])
    if fault is None and language is not None and language_of(file) not in related_languages(language):
        fault = OTHER_LANGUAGE
    if fault is None and (first := counted_for(file, repos, language)):
        fault, rule = DUPLICATE, f"of {first}"
    if fault is None:
        return f"{display_path(file)}: counted as {language_of(file)}{_describe_hidden(file)}"
    return display_path(f"{file}: left out: {fault}" + (f" ({rule})" if rule else ""))


def _describe_hidden(file: Path) -> str:
    """Which lines of a file are not counted, and what they look like; never what they say."""
    from ngram_builders.sources.filters import describe_secrets

    found = describe_secrets(str(file))
    begins = [number for number, what in found.items() if found.get(number - 1) != what]
    ends = [number for number, what in found.items() if found.get(number + 1) != what]
    places = [str(first) if first == last else f"{first}-{last}" for first, last in zip(begins, ends, strict=True)]
    told = "; ".join(f"{found[first]}: {place}" for first, place in zip(begins, places, strict=True))
    return f", but for lines that hold what looks like a secret ({told})" if told else ""


def parse_orders(text: str) -> tuple[int, ...]:
    """Example: `2-4` -> (2, 3, 4); `3` -> (3,)."""
    match = re.fullmatch(r"([2-6])(?:-([2-6]))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high:
        raise UserError(f"expected --orders as a range within 2-6 such as 2-6 or 3-5, found {text!r}")
    return tuple(range(low, high + 1))


def _describe_preview(preview: Preview) -> str:
    """What would be counted and left out."""
    by_language = sorted(preview.files, key=lambda language: (-preview.bytes[language], language))
    parts = [f"{preview.files[of]:,} {of} ({size(preview.bytes[of])})" for of in by_language]
    total = f"{sum(preview.files.values()):,} files, {size(sum(preview.bytes.values()))}"
    lines = [f"would count {total}: {', '.join(parts) or 'none'}", *_describe_masked(preview.masked)]
    return "\n".join([*lines, _describe_rest(preview.left_out)])


def describe_build(summary: Summary) -> str:
    """What was counted, what that took, what was left out and why, and where the table is."""
    lines = [
        f"{summary.domain}: {summary.files:,} files, {summary.tokens:,} tokens, {summary.ngrams:,} n-grams, "
        f"{_describe_size(summary)}, {summary.seconds:.1f} s",
        *_describe_work(summary),
        *_describe_worth(summary),
        *_describe_masked(summary.masked),
        _describe_rest(summary.left_out),
        f"table: {summary.path}",
    ]
    return "\n".join([*lines, f"note: {summary.problem}"] if summary.problem else lines)


def _describe_size(summary: Summary) -> str:
    """How large the table is; for an n-gram too, where that is not only what every table takes."""
    each = f" ({summary.bytes / summary.ngrams:.1f} bytes each)" if summary.ngrams >= _MANY else ""
    return f"{summary.bytes / 2**20:.1f} MiB{each}"


def _describe_work(summary: Summary) -> list[str]:
    """What was new, if that is known."""
    if not summary.changed:
        return ["nothing has changed since it was built"]
    if not summary.encoded and not summary.reused:
        return []
    speed = summary.encoded / max(summary.encoding_seconds, 1e-3)
    told = f"tokenised: {summary.encoded:,} tokens in {summary.encoding_seconds:.1f} s, {speed:,.0f} a second"
    return [told + (f"; {summary.reused:,} files are as they were" if summary.reused else "")]


def _describe_worth(summary: Summary) -> list[str]:
    """What the table is worth, beside others and alone."""
    found = [f"{value:.1f} {arm}" for arm, value in summary.perplexity.items()]
    return [f"perplexity of its files, each judged by the others: {', '.join(found)}"] if found else []


def _describe_masked(lines: int) -> list[str]:
    """How many lines of the files are not counted."""
    return (
        [f"masked: {lines:,} line{'s' * (lines > 1)} that hold{'s' * (lines == 1)} what looks like a secret"]
        if lines
        else []
    )


def _describe_rest(left_out: dict[str, int]) -> str:
    """What was left out and why."""
    return "left out: " + (
        ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items())) or "nothing"
    )
