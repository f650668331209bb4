"""The command `build-ngrams`: counts repositories into a table, and reports what it did, would do, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from ngram_builders.registry.shared_folder import path_or_address
from spd_lsp.command_options import LocalPath, PathOrAddress
from spd_lsp.commands import skipped_files
from spd_lsp.commands.consent import ask
from spd_lsp.commands.dependencies import count_dependencies, describe_dependencies
from spd_lsp.commands.distributed_build import CLUSTER_DEFAULTS, cluster_options, count_in_tasks
from spd_lsp.commands.ngrams import open_registry
from spd_lsp.output.progress import ReportProgress, format_bytes, format_count, progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.build import BuildSummary
    from ngram_builders.preview import Preview

_ENGINES = ("local", "datatrove")
_MIN_NGRAMS_FOR_SIZE = 50_000  # in smaller tables the fixed parts dominate
_POSITIVE = click.IntRange(1)
_PATH = LocalPath(path_type=Path)


@click.command("build-ngrams", epilog="\b\nExample: spd-lsp build-ngrams . --name mine --dry-run")
@click.argument("repos", metavar="REPO...", nargs=-1, type=PathOrAddress(path_type=Path))
@click.option("--name", metavar="NAME", help="Name of the table (default: the folder's name).")
@click.option("--language", metavar="L", help="Count only this language, such as python.")
@click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="Count also what matches, such as deps/lua/ or *_pb2.py; as in .gitignore. May be repeated.",
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out what matches. May be repeated.")
@click.option("--orders", default="2-6", show_default=True, help="Lengths of the n-grams.")
@click.option("--min-count", type=_POSITIVE, default=1, show_default=True, metavar="N", help="Drop rarer n-grams.")
@click.option(
    "--min-files",
    type=_POSITIVE,
    default=1,
    show_default=True,
    metavar="N",
    help="Drop n-grams found in fewer files.",
)
@click.option("--memory", metavar="SIZE", help="Memory limit of a process, such as 500M (default: 1G).")
@click.option("--engine", type=click.Choice(_ENGINES), default="local", show_default=True, help="How to count.")
@click.option("--model", default="starter", show_default=True, metavar="M", help="Model whose tokens are counted.")
@click.option(
    "--dependencies", is_flag=True, help="Count the installed packages that REPO imports or declares instead."
)
@click.option("--fresh", is_flag=True, help="Reuse nothing of earlier builds.")
@click.option("--replace", is_flag=True, help="Replace another repository's table of that name.")
@click.option("--dry-run", is_flag=True, help="Show what would be counted and skipped; write nothing.")
@click.option(
    "--list-skipped",
    is_flag=False,
    flag_value="",
    metavar="[REASON]",
    help="List the files that are left out, such as those that are `vendored`, and build nothing.",
)
@click.option("--why", metavar="FILE", type=_PATH, help="Explain why a file is counted or skipped.")
@cluster_options
@click.pass_context
def build_ngrams(
    context: click.Context,
    /,
    repos: tuple[Path | str, ...],
    language: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    dependencies: bool,
    replace: bool,
    dry_run: bool,
    list_skipped: str | None,
    why: Path | None,
    orders: str,
    memory: str | None,
    **options: Any,
) -> None:
    """Teach completions your code: count its n-grams.

    REPO is a repository or any folder of sources; with --engine datatrove also a corpus,
    which may be at an address such as s3://bucket/corpus/*.jsonl.gz.
    """
    from ngram_builders.sources.rules.selection import Selection

    if not repos and list_skipped and Path(list_skipped).is_dir():  # `--list-skipped .`
        repos = (Path(list_skipped),)
        list_skipped = ""
    if not repos:
        raise click.MissingParameter(ctx=context, param_hint="'REPO...'", param_type="argument")
    _check_language(language)
    selection = Selection(language, include, exclude)
    reads_only = dry_run or list_skipped is not None or why is not None
    folders = [one for one in repos if isinstance(one, Path)]
    if len(folders) < len(repos) and (reads_only or dependencies or options["engine"] != "datatrove"):
        address = next(one for one in repos if isinstance(one, str))
        raise UserError(
            f"{address} is an address, and a folder or file is expected here; copy it, or mount it; "
            "a corpus at an address is counted with --engine datatrove"
        )
    if why is not None:
        click.echo(skipped_files.explain(why, folders, selection))
        return
    if options["name"] and not (reads_only or dependencies or replace):
        _check_replacement(context.obj, options["name"], repos)
    try:
        with progress() as report:
            if list_skipped is not None:
                output = "\n".join(skipped_files.list_skipped(folders, selection, list_skipped, report))
            elif dry_run:
                from ngram_builders.preview import preview

                output = _describe_preview(preview(folders, selection, report))
            elif dependencies:
                made = [
                    (repo, count_dependencies(context.obj, repo, options["model"], report)) for repo in folders
                ]
                output = "\n".join(describe_dependencies(*one) for one in made)
            else:
                options |= {"orders": _parse_orders(orders), "selection": selection}
                options |= {} if memory is None else {"memory": _parse_memory(memory)}
                where = {name: value for name in CLUSTER_DEFAULTS if (value := options.pop(name))}
                output = describe_build(count(context.obj, repos, report, where=where, **options))
    except KeyboardInterrupt:
        click.echo("interrupted: the table is unchanged; run the same command to continue", err=True)
        context.exit(130)
    if output:
        click.echo(output)


def count(
    settings: Settings,
    repos: Sequence[Path | str],
    report: ReportProgress,
    *,
    name: str | None,
    engine: str,
    model: str,
    where: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> BuildSummary:
    """Run the build."""
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.checkpoint.hub import absolute_model_name, bundled_tables, locate

    folder = locate(model)
    tokens = ModelTokenizer(folder)
    options |= {
        "token_space": tokens.space,
        "registry": open_registry(settings),
        "report": report,
    }
    if engine == "datatrove":
        if options.pop("min_files", 1) > 1:
            raise UserError("--min-files works with --engine local only; leave one of the two out")
        where = {**CLUSTER_DEFAULTS, **where}
        return count_in_tasks(repos, name, absolute_model_name(model), where=where, **options)
    if where:
        option = "--" + next(iter(where)).replace("_", "-")
        raise UserError(f"{option} works with --engine datatrove only; add that option")
    from ngram_builders.build import build

    companions = bundled_tables(model, folder)
    options |= {"model": absolute_model_name(model), "companion_tables": companions}
    return build([Path(repo) for repo in repos], name, tokens.encode_batch, **options)


def _check_language(language: str | None) -> None:
    """Refuse a language that no file is in."""
    from ngram_builders.registry.assignments import KNOWN_LANGUAGES

    if language is not None and language not in KNOWN_LANGUAGES:
        raise UserError(f"unknown language {language!r}; choose one of {', '.join(sorted(KNOWN_LANGUAGES))}")


def _check_replacement(settings: Settings, name: str, repos: Sequence[Path | str]) -> None:
    """Ask before a table is lost that was not built from these repositories, nor from one that has moved."""
    table = next((one for one in open_registry(settings).tables() if one.name == name), None)
    if table is None or (table.fault and not table.roots):
        return
    roots = [*table.roots, *map(path_or_address, table.recipe.get("rows", ()))]
    folders = [repo for repo in repos if isinstance(repo, Path)]
    named = {*repos, *(path for repo in folders for path in (repo.resolve(), repo.absolute()))}
    if any(root in named or (isinstance(root, Path) and not root.exists()) for root in roots):
        return
    source = ", ".join(map(str, roots)) or table.recipe.get("imported") or table.recipe.get("package")
    loss = f"the table {name} is from {source or 'elsewhere'} and would be replaced"
    ask(loss, "Replace it?", "choose another name with --name, or add --replace")


def _parse_orders(text: str) -> tuple[int, ...]:
    """Example: `2-4` -> (2, 3, 4); `3` -> (3,)."""
    match = re.fullmatch(r"([2-6])(?:-([2-6]))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high:
        raise UserError(f"--orders is a range within 2-6, such as 2-6 or 3-5, not {text!r}")
    return tuple(range(low, high + 1))


def _parse_memory(text: str) -> int:
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
        f"{summary.name}: {format_count(summary.files, 'file')}, {summary.tokens:,} tokens, "
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
    """Describe how well n-grams predict new code with the table, and without it if there is another one."""
    if not summary.perplexity:
        return []
    *others, best = summary.perplexity.values()  # alone, the other tables, and with them
    about = "perplexity of new code (lower is better)"
    if not others:
        return [f"{about}: {best:.1f}"]
    effect = "so this table helps completions here" if best < others[-1] else "so it needs more code to help"
    return [f"{about}: {others[-1]:.1f} -> {best:.1f}, {effect}"]


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
