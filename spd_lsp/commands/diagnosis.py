"""The checks of `spd-lsp doctor`. Each yields findings, one line each, and raises nothing."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ngram_builders.errors import UserError
from ngram_builders.registry.model_match import (
    covering_tables,
    is_for_another_model,
    mismatch_message,
    model_label,
)
from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.registry.registry import Registry
from ngram_builders.table.kernel import load_kernel
from ngram_builders.table.reader import Table
from spd_lsp import __version__
from spd_lsp.commands.ngram_listing import megabytes, missing_sources
from spd_lsp.commands.ngrams import open_registry
from spd_lsp.completion.fill_formats import read_config, untrained_format
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.extras import MODELS, install_command
from spd_lsp.models.checkpoint.hub import absolute_model_name, built_in_tables, locate
from spd_lsp.models.llama.prepared import read_source
from spd_lsp.settings import NO_MODEL, Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer

_PACKAGES = (
    "pygls", "lsprotocol", "torch", "transformers", "xllamacpp", "tokenizers", "tree-sitter", "msgpack", "numpy",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; for an error, `text` says what to do."""

    subject: str
    state: Literal["ok", "error"]
    text: str


def diagnose(settings: Settings, load: Callable[[Settings], Completer]) -> Iterator[Finding]:
    """Check everything that a completion needs, in the order in which it is needed."""
    yield Finding("spd-lsp", "ok", f"{__version__}, Python {platform.python_version()} on {platform.platform()}")
    fault = ""
    needed: tuple[str, ...] = ("xllamacpp",)
    try:
        folder = locate(settings.model)
        needed = () if settings.model == NO_MODEL else MODELS if read_source(folder) is None else needed
        tokens = ModelTokenizer(folder, settings.fill_format)
    except UserError as error:
        fault = str(error)
    yield from check_packages(needed)
    yield check_kernel()
    yield _changed_settings(settings)
    if fault:
        yield Finding("model", "error", fault)
        return
    yield check_model(settings, load)
    yield _fill_format(tokens, folder)
    yield from check_tables(settings, tokens, folder)


def check_packages(needed: Collection[str]) -> Iterator[Finding]:
    """The versions of the packages that matter; of those that run models, some are needed by this one."""
    for name in _PACKAGES:
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            install = install_command("models") if name in MODELS else f"pip install {name}"
            if name in (*MODELS, "xllamacpp") and name not in needed:
                yield Finding(name, "ok", f"not installed; other models need it: {install}")
            else:
                yield Finding(name, "error", f"not installed; run: {install}")


def check_kernel() -> Finding:
    """Whether the compiled code can be loaded."""
    try:
        load_kernel()
    except UserError as error:
        return Finding("n-gram kernel", "error", str(error))
    return Finding("n-gram kernel", "ok", "compiled")


def _changed_settings(settings: Settings) -> Finding:
    changed = [
        f"{field.name}={value!r}"
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) != field.default
    ]
    return Finding("settings", "ok", ", ".join(changed) or "all defaults")


def check_model(settings: Settings, load: Callable[[Settings], Completer]) -> Finding:
    """Load the model and complete one line of code."""
    started = time.perf_counter()
    try:
        completer = load(settings)
    except UserError as error:
        return Finding("model", "error", str(error))
    load_seconds = time.perf_counter() - started
    source = "import os\n\n\ndef names(path):\n    for name in os."
    try:
        result = completer.complete(source, len(source), "python", explicit=True)
    except Exception as error:  # a broken model can raise anything
        reason = f"{type(error).__name__}: {error}"
        return Finding("model", "error", f"{settings.model} loads but cannot complete ({reason})")
    milliseconds = result.seconds * 1000 / max(result.passes, 1)
    speed = f"loaded in {load_seconds:.1f} s, {milliseconds:.0f} ms per forward pass"
    drafts = "drafts best first" if completer.settings.decoder == "best-first" else "drafts superposed"
    return Finding("model", "ok", f"{settings.model} on {completer.model.device}, {speed}, {drafts}")


def _fill_format(tokens: ModelTokenizer, folder: Path) -> Finding:
    """How the text right of the cursor enters the prompt."""
    chosen = tokens.fill_format
    config = read_config(folder)
    text = f"none is known for this model of type {config.get('model_type', 'unknown')}"
    if other := untrained_format(config, tokens.is_special):
        text = f"none: {config['name']} has the tokens of the format {other.name}, but was not trained with them"
    text += ": it does not see the text right of the cursor"
    if chosen:
        text = f"{chosen.name}, from {chosen.source}"
    return Finding("fill in the middle", "ok", text)


def check_tables(settings: Settings, tokens: ModelTokenizer, folder: Path) -> Iterator[Finding]:
    """Check every byte of every n-gram table, the tables in use, what is left over, and the data folder."""
    registry = open_registry(settings)
    for language, path in built_in_tables(folder).items():
        yield _check_table(f"n-grams {language} (built in)", [path])
    if fault := registry.fault():
        yield Finding("n-grams in use", "error", fault)
    tables = registry.tables()
    for table in tables:
        yield _check_registered(table, tables, absolute_model_name(settings.model), tokens.fingerprint)
    if missing := registry.assignments().names() - {table.name for table in tables}:
        text = f"in use but missing: {', '.join(sorted(missing))}; to stop using them, run: spd-lsp ngrams prune"
        yield Finding("n-grams in use", "error", text)
    yield from _leftovers(registry)
    yield _check_data_folder(registry.folder)


def _check_registered(table: NgramTable, tables: Sequence[NgramTable], model: str, fingerprint: str) -> Finding:
    """Check a table's record, tokenizer, files and sources."""
    subject = f"n-grams {table.name}"
    if table.fault:
        return Finding(subject, "error", table.fault)
    if table.fingerprint != fingerprint:
        fitting = [other for other in tables if other.fingerprint == fingerprint]
        if names := covering_tables(fitting, table):
            text = f"for {model_label(table)}; {', '.join(names)} takes its place here"
            return Finding(subject, "ok", text)
        state: Literal["ok", "error"] = "ok" if is_for_another_model(table, model, fingerprint) else "error"
        return Finding(subject, state, mismatch_message(table, model))
    finding = _check_table(subject, table.paths, table.tokens)
    if finding.state == "ok" and (gone := missing_sources(table)):
        where = ", ".join(map(str, gone))
        text = f"{finding.text}; its repository {where} is gone, see spd-lsp ngrams prune --gone"
        return Finding(subject, "ok", text)
    return finding


def _check_table(subject: str, paths: Sequence[Path], tokens: int = 0) -> Finding:
    """Read all files of a table and compare their checksums; `tokens` of all, which none of several files says."""
    try:
        tables = [Table.open(path) for path in paths]
        for table in tables:
            table.verify()
    except UserError as error:
        return Finding(subject, "error", str(error))
    size = megabytes(sum(path.stat().st_size for path in paths))
    files = f" in {len(paths)} files" if len(paths) > 1 else ""
    return Finding(subject, "ok", f"{tokens or tables[0].summary.tokens:,} tokens, {size}{files}, checksums match")


def _leftovers(registry: Registry) -> Iterator[Finding]:
    try:
        leftovers, _ = registry.prune(dry_run=True)
    except UserError:
        return  # a folder that cannot be written is reported by `_check_data_folder`
    if leftovers:
        size = megabytes(sum(leftover.size for leftover in leftovers))
        yield Finding("leftovers", "ok", f"{size} are not needed; to free them, run: spd-lsp ngrams prune")


def _check_data_folder(folder: Path) -> Finding:
    """Whether `build-ngrams` could write here. Nothing is left behind."""
    try:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
            return Finding("data folder", "ok", str(folder))
    except OSError as error:
        text = f"cannot write to {folder}: {error.strerror}; choose another folder with --data-dir"
        return Finding("data folder", "error", text)
