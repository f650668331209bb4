"""The command `doctor`: checks an installation and says how to fix it. Each check yields findings."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple

import click

from ngram_builders.errors import UserError
from spd_lsp import __version__
from spd_lsp.command_options import Choices, config_path, model_options, open_registry, with_choices
from spd_lsp.commands.ngrams import megabytes, missing_sources
from spd_lsp.completion.loading import load_completer
from spd_lsp.models.hub import absolute_model_name, locate
from spd_lsp.output.progress import format_count
from spd_lsp.settings import FIELDS, Settings

if TYPE_CHECKING:
    from ngram_builders.registry.ngram_table import NgramTable
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
    """The problems in the configuration file, and the source of each value that is not the default."""
    for problem in choices.problems:
        yield Finding("configuration", problem, is_error=True)
    if not choices.problems:
        absent = "" if config_path().exists() else ", which is not there"
        yield Finding("configuration", f"{config_path()}{absent}")
    for name, origin in choices.origins.items():
        if (value := getattr(choices.settings, name)) != FIELDS[name].default:
            yield Finding(name.replace("_", "-"), f"{value!r}, from {origin}")


def _diagnose(settings: Settings) -> Iterator[Finding]:
    """Check everything that a completion needs, in the order in which it is needed."""
    from spd_lsp.completion.tokenizer import ModelTokenizer

    yield Finding("spd-lsp", f"{__version__}, Python {platform.python_version()} on {platform.platform()}")
    versions = []
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    yield Finding("packages", ", ".join(versions))
    try:
        tokens = ModelTokenizer(locate(settings.model), settings.fill_format)
    except UserError as error:
        yield Finding("model", str(error), is_error=True)
        return
    yield check_model(settings)
    yield fill_format(tokens)
    yield from check_tables(settings, tokens.fingerprint)


def check_model(settings: Settings) -> Finding:
    """Load the model and complete one line of code."""
    started = time.perf_counter()
    try:
        completer = load_completer(settings, lambda text: None)
    except UserError as error:
        return Finding("model", str(error), is_error=True)
    load_seconds = time.perf_counter() - started
    source = "import os\n\n\ndef names(path):\n    for name in os."
    try:
        completer.complete(source, len(source), "python", explicit=True)
    except Exception as error:  # a broken model can raise anything
        reason = f"{type(error).__name__}: {error}"
        return Finding("model", f"{settings.model} loads but cannot complete ({reason})", is_error=True)
    speed = f"loaded in {load_seconds:.1f} s, {completer.model.pass_seconds * 1000:.0f} ms per forward pass"
    return Finding("model", f"{settings.model} on {completer.model.device}, {speed}")


def fill_format(tokens: ModelTokenizer) -> Finding:
    """How the text right of the cursor enters the prompt."""
    kind = tokens.vocabulary.config.get("model_type", "unknown")
    text = f"none is known for this model of type {kind}: it does not see the text right of the cursor"
    if chosen := tokens.fill_format:
        text = f"{chosen.name}, from {chosen.source}"
    return Finding("fill in the middle", text)


def check_tables(settings: Settings, fingerprint: str) -> Iterator[Finding]:
    """Check every byte of every n-gram table, the tables in use, and the data folder."""
    registry = open_registry(settings)
    if fault := registry.fault():
        yield Finding("n-grams in use", fault, is_error=True)
    tables = registry.tables()
    for table in tables:
        subject = f"n-grams {table.name}"
        try:
            yield Finding(subject, _check_table(table, absolute_model_name(settings.model), fingerprint))
        except UserError as error:
            yield Finding(subject, str(error), is_error=True)
    if missing := registry.assignments().names() - {table.name for table in tables}:
        text = f"in use but missing: {', '.join(sorted(missing))}; to stop using them, run: spd-lsp ngrams unuse"
        yield Finding("n-grams in use", text, is_error=True)
    yield Finding("data folder", str(registry.folder))


def _check_table(table: NgramTable, model: str, fingerprint: str) -> str:
    """Describe a table; UserError if its record, tokenizer or checksums are wrong."""
    from ngram_builders.index.table_file import Table
    from ngram_builders.registry.ngram_table import is_for_another_model, mismatch_message

    if table.fault:
        raise UserError(table.fault)
    if is_for_another_model(table, model, fingerprint):
        return mismatch_message(table, model)
    if table.fingerprint != fingerprint:
        raise UserError(mismatch_message(table, model))
    for path in table.paths:
        Table.open(path).verify()
    missing = ", ".join(map(str, missing_sources(table)))
    hint = f"; its repository {missing} is gone, see spd-lsp ngrams remove {table.name}" if missing else ""
    return f"{table.tokens:,} tokens, {megabytes(table.size)}, checksums match{hint}"
