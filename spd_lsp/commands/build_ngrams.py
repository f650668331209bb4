"""The command `build-ngrams`, and the program that a server runs to index a folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ngram_builders.errors import UserError
from spd_lsp.command_options import load_tokens, model_option, open_registry, print_status, with_settings
from spd_lsp.extras import install_command
from spd_lsp.models.hub import absolute_model_name
from spd_lsp.ngrams.background_process import end_with_input
from spd_lsp.output.progress import ReportProgress, format_bytes, format_count, progress
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from ngram_builders.build import BuildSummary
    from ngram_builders.sources.rules.selection import Selection

_PATH = click.Path(path_type=Path)
_MAX_FILES = 10_000  # of a folder that an editor opened
_MAX_BYTES = 25_000_000  # of its source code; a table takes about eight times as much
_READING = 0.8  # share of the build's time that reading and tokenizing takes
_MIN_STEP = 0.01  # between two reports of progress


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
    slurm = {key.removeprefix("--"): value for key, _, value in (one.partition("=") for one in tasks["slurm"])}
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
    """Explain in one line why a file is counted or skipped."""
    from ngram_builders.sources.discovery import display_path, explain_skipped
    from ngram_builders.sources.language_ids import language_of

    around = [repo for repo in repos if file.parent.resolve().is_relative_to(repo.resolve())]
    if found := explain_skipped(file, (around or repos)[0], selection):
        return display_path(f"{file}: skipped: {found.reason}" + (f" ({found.rule})" if found.rule else ""))
    return f"{display_path(file)}: counted as {language_of(file, selection.languages) or 'other'}"


def index_folder(folder: str, data_dir: str, model: str, unlimited: bool) -> None:
    """Build the table of a folder that an editor opened, with the options of its last build.

    Out: JSON objects, one a line: `progress` with the finished share, and at last `built`, `large`, `skipped` or
    `failed` with a text.
    """
    from ngram_builders.sources.rules.selection import Selection

    settings = Settings(data_dir=data_dir, model=model)
    root = Path(folder)
    try:
        own = (table for table in open_registry(settings).tables() if table.roots == (root,))
        chosen = (Selection.of(table.recipe) for table in own if table.model == model)
        selection = next(chosen, Selection())
        if not unlimited and (reason := _reason_not_to_build(root, selection)):
            _print_event(*reason)
            return
        _print_event("progress", 0.0)
        summary = build_table(settings, [root], partial(_report_progress, [0.0]), selection, name=None)
        _print_event("built", format_count(summary.files, "file"))
    except UserError as error:
        _print_event("failed", str(error))
    except OSError as error:  # such as a full disk, or a data folder that cannot be written
        _print_event("failed", f"{error.filename or data_dir}: {error.strerror}")


def _reason_not_to_build(folder: Path, selection: Selection) -> tuple[str, str] | None:
    """Whether a folder is `large` or to be `skipped`, and why; known as soon as a limit is reached."""
    from ngram_builders.sources.discovery import SourceFile, walk_sources
    from ngram_builders.sources.filters import MAX_SOURCE_BYTES

    files = size = 0
    for _, found in walk_sources(str(folder), selection):
        if isinstance(found, SourceFile):
            files += 1
            size += min(found.size, MAX_SOURCE_BYTES)  # the rest of a notebook is its outputs
        if files > _MAX_FILES or size > _MAX_BYTES:
            return "large", f"it has more than {files - 1:,} files, {format_bytes(size)}, of source code"
    return None if files else ("skipped", "it holds no source code")


def _report_progress(shown: list[float], stage: str, done: int, total: int) -> None:
    """Print the finished share, from one step to the next; `shown` holds the share that was printed last."""
    part = min(1.0, done / max(total, 1))
    share = {"bytes": _READING * part, "sorting": _READING + (1 - _READING) * part}.get(stage, 0.0)
    if share >= shown[0] + _MIN_STEP:
        shown[0] = share
        _print_event("progress", round(share, 3))


def _print_event(kind: str, value: object) -> None:
    print(json.dumps({kind: value}), flush=True)  # noqa: T201


if __name__ == "__main__":  # run by a server, with which it ends
    end_with_input()
    index_folder(**json.loads(sys.argv[1]))
