"""The command `build-ngrams`: builds a table of repositories or corpora, or explains which files are in it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import load_tokens, model_option, open_registry, print_status, with_settings
from spd_lsp.extras import install_command
from spd_lsp.models.checkpoint.hub import absolute_model_name
from spd_lsp.output.progress import ReportProgress, format_count, progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.build import BuildSummary
    from ngram_builders.sources.rules.selection import Selection

_PATH = click.Path(path_type=Path)


@click.command("build-ngrams", epilog="\b\nExample: spd-lsp build-ngrams . --name mine")
@click.argument("repos", metavar="REPO...", nargs=-1, type=_PATH)
@click.option("--name", metavar="NAME", help="Name of the table (default: the folder's name).")
@click.option("--language", metavar="L", help="Include only this language, such as python.")
@click.option(
    "--include", multiple=True, metavar="GLOB", help="Also include matching files, such as *_pb2.py. Repeatable."
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Skip matching files. Repeatable.")
@model_option("Model that will read the table.")
@click.option("--fresh", is_flag=True, help="Ignore the caches of earlier builds.")
@click.option("--replace", is_flag=True, help="Replace a table of the same name from another repository.")
@click.option("--why", metavar="FILE", type=_PATH, help="Explain why FILE is included or skipped.")
@click.option("--corpus", "corpora", multiple=True, metavar="ADDRESS", help="Build from a corpus. Repeatable.")
@click.option(
    "--executor", type=click.Choice(("local", "slurm", "ray")), help="With --corpus: scheduler of the tasks."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="With --corpus: number of parallel tasks.")
@click.option("--folder", metavar="DIR", type=_PATH, help="With --corpus: working folder that all machines share.")
@click.option(
    "--slurm", multiple=True, metavar="NAME=VALUE", help="Option for sbatch, such as partition=cpu. Repeatable."
)
@with_settings
def build_ngrams(
    settings: Settings,
    /,
    repos: tuple[Path, ...],
    name: str | None,
    language: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    fresh: bool,
    replace: bool,
    why: Path | None,
    corpora: tuple[str, ...],
    **tasks: Any,
) -> None:
    """Build or update an n-gram table of your code.

    REPO is a repository or any folder of source files, and GLOB a .gitignore pattern. A corpus is a folder, or
    .jsonl or .parquet files with a `text` field. ADDRESS is its path or an fsspec address such as s3://bucket/code.
    """
    from ngram_builders.sources.language_ids import check_language
    from ngram_builders.sources.rules.selection import Selection

    corpora = tuple(one if ":" in one else os.path.abspath(one) for one in corpora)  # noqa: PTH100, patterns too
    if corpora and any((repos, language, include, exclude, why, fresh)):
        raise UserError("--corpus takes no REPO, nor options that choose files; leave them out")
    if not corpora and (given := [option for option in tasks if tasks[option]]):
        raise UserError(f"--{given[0]} is for --corpus; add --corpus ADDRESS")
    if not repos and not corpora:
        raise click.MissingParameter(
            ctx=click.get_current_context(), param_hint="'REPO...'", param_type="argument"
        )
    selection = Selection(language and check_language(language), include, exclude)
    if why is not None:
        click.echo(_explain(why, repos, selection))
        return
    if name and not replace:
        _check_replacement(settings, name, repos, corpora)
    try:
        with progress() as report:
            if corpora:
                output = _build_corpora(settings, corpora, report, name, **tasks)
            else:
                output = describe_build(build_table(settings, repos, report, selection, name=name, fresh=fresh))
    except KeyboardInterrupt:
        print_status("interrupted: the table is unchanged; run the same command to continue")
        sys.exit(130)
    click.echo(output)


def build_table(
    settings: Settings, repos: Sequence[Path], report: ReportProgress, selection: Selection, **options: Any
) -> BuildSummary:
    """Build a table for the settings' model. options: `name` and `fresh`, as `ngram_builders.build` takes them."""
    from ngram_builders.build import build

    tokens = load_tokens(settings.model)
    options |= {"token_space": tokens.space, "registry": open_registry(settings), "report": report}
    model = absolute_model_name(settings.model)
    return build(repos, encode=tokens.encode_batch, selection=selection, model=model, **options)


def _build_corpora(
    settings: Settings, corpora: Sequence[str], report: ReportProgress, name: str | None, **tasks: Any
) -> str:
    """Build a table from corpora, or submit a job that does. -> what was done"""
    try:
        from ngram_builders.corpora import build_corpora
    except ModuleNotFoundError as error:
        raise UserError(f"--corpus needs {error.name}; run: {install_command('distributed')}") from error
    if name is None:
        raise UserError("the table of a corpus needs a name; give one with --name")
    slurm = dict(re.findall(r"(?m)^(?:--)?([a-z-]+)=(\S+)$", "\n".join(tasks["slurm"])))
    if slurm and tasks["executor"] != "slurm":
        raise UserError("--slurm is for --executor slurm; add that option")
    if len(slurm) < len(tasks["slurm"]):
        raise UserError(f"--slurm takes options of sbatch, each once, such as partition=cpu; not {tasks['slurm']}")
    tasks |= {"slurm": slurm, "registry": open_registry(settings), "report": report}
    model = absolute_model_name(settings.model)
    tasks |= {"model": model, "token_space": load_tokens(model).space}
    made = build_corpora(corpora, name, partial(_make_encoder, model), **tasks)
    return made if isinstance(made, str) else describe_build(made)


def _make_encoder(model: str) -> Callable[[Sequence[str]], Iterable[Sequence[int]]]:
    """Return a model's encoder; the processes of a corpus import this function by its name."""
    return load_tokens(model).encode_batch


def _check_replacement(settings: Settings, name: str, repos: Sequence[Path], corpora: Sequence[str]) -> None:
    """UserError if the name is that of a table with none of these sources, which would be lost."""
    table = next((one for one in open_registry(settings).tables() if one.name == name), None)
    if table is None or table.fault:
        return
    sources = [*map(str, table.roots), *table.recipe.get("corpus", ())]
    if {*corpora, *(str(repo.resolve()) for repo in repos)}.isdisjoint(sources):
        source = ", ".join(sources) or table.recipe.get("imported") or "elsewhere"
        remedy = "choose another name with --name, or add --replace"
        raise UserError(f"the table {name} is from {source} and would be replaced; {remedy}")


def describe_build(summary: BuildSummary) -> str:
    """Describe a build in lines: its files and tokens, processing time, skipped files, and the table's path."""
    lines = [
        f"{summary.name}: {format_count(summary.files, 'file')}, {summary.tokens:,} tokens, "
        f"{summary.bytes / 2**20:.1f} MiB, {summary.seconds:.1f} s"
    ]
    if not summary.changed:
        lines.append("nothing has changed since the last build")
    elif summary.encoded or summary.reused:  # else that is not known
        speed = summary.encoded / max(summary.encoding_seconds, 1e-3)
        unchanged = f"; {format_count(summary.reused, 'file')} unchanged" if summary.reused else ""
        took = f"{summary.encoding_seconds:.1f} s ({speed:,.0f} per second)"
        lines.append(f"tokenized: {summary.encoded:,} tokens in {took}{unchanged}")
    if summary.masked:
        what = "that look like secrets" if summary.masked > 1 else "that looks like a secret"
        lines.append(f"masked: {format_count(summary.masked, 'line')} {what}")
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in sorted(summary.skipped.items()))
    lines += [f"skipped: {skipped or 'nothing'}", f"table: {summary.path}"]
    return "\n".join([*lines, f"note: {summary.problem}"] if summary.problem else lines)


def _explain(file: Path, repos: Sequence[Path], selection: Selection) -> str:
    """Explain in one line why a file is counted or skipped, and which of its lines are masked as what."""
    from ngram_builders.sources.discovery import display_path, explain_skipped
    from ngram_builders.sources.filters import describe_secrets
    from ngram_builders.sources.language_ids import language_of

    around = [repo for repo in repos if file.parent.resolve().is_relative_to(repo.resolve())]
    if found := explain_skipped(file, (around or repos)[0], selection):
        return display_path(f"{file}: skipped: {found.reason}" + (f" ({found.rule})" if found.rule else ""))
    lines = enumerate(describe_secrets(str(file)).items())
    # Consecutive lines of a kind are one entry: their numbers grow as fast as their positions.
    groups = groupby(lines, lambda item: (item[1][0] - item[0], item[1][1]))
    runs = [[line for _, line in group] for _, group in groups]
    ranges = [f"{run[0][1]}: {run[0][0]}{f'-{run[-1][0]}' if len(run) > 1 else ''}" for run in runs]
    secrets = f", except lines that look like secrets ({'; '.join(ranges)})" if ranges else ""
    return f"{display_path(file)}: counted as {language_of(file, selection.languages) or 'other'}{secrets}"
