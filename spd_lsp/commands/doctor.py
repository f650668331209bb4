"""The command `doctor`: what is wrong with an installation, and how to fix it. Each check yields lines."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ngram_builders.errors import UserError
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION, LANGUAGE_BY_NAME
from spd_lsp import __version__
from spd_lsp.command_options import Choices, model_options, with_choices
from spd_lsp.commands.ngram_listing import megabytes, missing_sources
from spd_lsp.commands.ngrams import open_registry
from spd_lsp.completion.loading import load_completer
from spd_lsp.config_file import config_path
from spd_lsp.models.checkpoint.hub import absolute_model_name, locate
from spd_lsp.output.progress import format_count
from spd_lsp.settings import FIELDS, Settings

if TYPE_CHECKING:
    from ngram_builders.registry.ngram_table import NgramTable
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.tokenizer import ModelTokenizer

_PACKAGES = ("xllamacpp", "torch", "transformers", "tokenizers", "tree-sitter", "numpy")


class Finding(NamedTuple):
    """The result of one check; for an error, `text` says what to do."""

    subject: str
    text: str
    is_error: bool = False


@click.command()
@model_options
@with_choices
def doctor(choices: Choices) -> None:
    """Check the installation, the configuration, the model and the tables.

    Each problem is printed with its remedy.
    """
    errors = 0
    for subject, text, is_error in (*_check_choices(choices), *_diagnose(choices.settings)):
        click.echo(f"{'error' if is_error else 'ok':5}  {subject:20} {text}")
        errors += is_error
    if errors:
        raise UserError(f"{format_count(errors, 'problem')} found, see above")


def _check_choices(choices: Choices) -> Iterator[Finding]:
    """What is wrong in the configuration file, and where each value came from that is not the default."""
    for problem in choices.problems:
        yield Finding("configuration", problem, is_error=True)
    if not choices.problems:
        absent = "" if config_path().exists() else ", which is not there"
        yield Finding("configuration", f"{config_path()}{absent}")
    for name, origin in choices.origins.items():
        if (value := getattr(choices.settings, name)) != FIELDS[name].default:
            yield Finding(name.replace("_", "-"), f"{value!r}, from {origin}")
    known = {*LANGUAGE_BY_EXTENSION.values(), *LANGUAGE_BY_NAME.values(), *Settings().disabled_languages}
    for language in choices.settings.disabled_languages:
        if language.casefold() not in known and (near := get_close_matches(language.casefold(), known, 1, 0.8)):
            text = f"no language is called {language!r}; did you mean {near[0]!r}?"
            yield Finding("disabled-languages", text, is_error=True)


def _diagnose(settings: Settings) -> Iterator[Finding]:
    """Check everything that a completion needs, in the order in which it is needed."""
    from spd_lsp.completion.tokenizer import ModelTokenizer

    yield Finding("spd-lsp", f"{__version__}, Python {platform.python_version()} on {platform.platform()}")
    yield Finding("packages", ", ".join(_versions()))
    try:
        tokens = ModelTokenizer(locate(settings.model), settings.fill_format)
    except UserError as error:
        yield Finding("model", str(error), is_error=True)
        return
    yield check_model(settings, lambda settings: load_completer(settings, lambda text: None))
    yield fill_format(tokens)
    yield from check_tables(settings, tokens.fingerprint)


def _versions() -> Iterator[str]:
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def check_model(settings: Settings, load: Callable[[Settings], Completer]) -> Finding:
    """Load the model and complete one line of code."""
    started = time.perf_counter()
    try:
        completer = load(settings)
    except UserError as error:
        return Finding("model", str(error), is_error=True)
    load_seconds = time.perf_counter() - started
    source = "import os\n\n\ndef names(path):\n    for name in os."
    try:
        result = completer.complete(source, len(source), "python", explicit=True)
    except Exception as error:  # a broken model can raise anything
        reason = f"{type(error).__name__}: {error}"
        return Finding("model", f"{settings.model} loads but cannot complete ({reason})", is_error=True)
    milliseconds = result.seconds * 1000 / max(result.passes, 1)
    speed = f"loaded in {load_seconds:.1f} s, {milliseconds:.0f} ms per forward pass"
    return Finding("model", f"{settings.model} on {completer.model.device}, {speed}")


def fill_format(tokens: ModelTokenizer) -> Finding:
    """How the text right of the cursor enters the prompt."""
    from spd_lsp.completion.fill_formats import FILL_FORMATS

    subject = "fill in the middle"
    if chosen := tokens.fill_format:
        return Finding(subject, f"{chosen.name}, from {chosen.source}")
    config = tokens.vocabulary.config
    text = f"none is known for this model of type {config.get('model_type', 'unknown')}"
    if other := next((one for one in FILL_FORMATS if one.could_fit(config, tokens.is_special)), None):
        text = f"none: {config['name']} has the tokens of the format {other.name}, but was not trained with them"
    return Finding(subject, f"{text}: it does not see the text right of the cursor")


def check_tables(settings: Settings, fingerprint: str) -> Iterator[Finding]:
    """Check every byte of every n-gram table, the tables in use, and the data folder."""
    registry = open_registry(settings)
    if fault := registry.fault():
        yield Finding("n-grams in use", fault, is_error=True)
    tables = registry.tables()
    for table in tables:
        yield _check_table(table, tables, absolute_model_name(settings.model), fingerprint)
    if missing := registry.assignments().names() - {table.name for table in tables}:
        text = f"in use but missing: {', '.join(sorted(missing))}; to stop using them, run: spd-lsp ngrams unuse"
        yield Finding("n-grams in use", text, is_error=True)
    yield _check_data_folder(registry.folder)


def _check_table(table: NgramTable, tables: Sequence[NgramTable], model: str, fingerprint: str) -> Finding:
    """Check a table's record, tokenizer, checksums and sources."""
    from ngram_builders.index.table_file import Table
    from ngram_builders.registry.ngram_table import (
        covering_tables,
        is_for_another_model,
        mismatch_message,
        model_label,
    )

    subject = f"n-grams {table.name}"
    if table.fault:
        return Finding(subject, table.fault, is_error=True)
    if table.fingerprint != fingerprint:
        fitting = [other for other in tables if other.fingerprint == fingerprint]
        if names := covering_tables(fitting, table):
            return Finding(subject, f"for {model_label(table)}; {', '.join(names)} takes its place here")
        is_error = not is_for_another_model(table, model, fingerprint)
        return Finding(subject, mismatch_message(table, model), is_error)
    try:
        for path in table.paths:
            Table.open(path).verify()
    except UserError as error:
        return Finding(subject, str(error), is_error=True)
    files = f" in {len(table.paths)} files" if len(table.paths) > 1 else ""
    text = f"{table.tokens:,} tokens, {megabytes(table.size)}{files}, checksums match"
    if gone := missing_sources(table):
        where = ", ".join(map(str, gone))
        text += f"; its repository {where} is gone, see spd-lsp ngrams remove {table.name}"
    return Finding(subject, text)


def _check_data_folder(folder: Path) -> Finding:
    """Whether `build-ngrams` could write here. Nothing is left behind."""
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            return Finding("data folder", str(folder))
    except OSError as error:
        text = f"cannot write to {folder}: {error.strerror}; choose another folder with --data-dir"
        return Finding("data folder", text, is_error=True)
