"""What is installed, what would run, what is wrong and how to mend it. Each finding is a line; none is raised."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ngram_builders.errors import UserError
from ngram_builders.registry.domains import Domain
from ngram_builders.registry.model_match import (
    covering_domains,
    is_for_another_model,
    mismatch_message,
    model_label,
)
from ngram_builders.registry.registry import Registry
from ngram_builders.table.reader import Table
from spd_lsp import __version__
from spd_lsp.commands.ngram_listing import megabytes, mend, sources_gone
from spd_lsp.commands.ngrams import open_registry
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.completion.tuned_settings import read_order_weights, read_tuned
from spd_lsp.models.checkpoint.hub import built_in_domains, locate
from spd_lsp.settings import Settings

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer

_PACKAGES = ("pygls", "lsprotocol", "torch", "transformers", "tokenizers", "tree-sitter", "msgpack", "numpy")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `text` says what was found, and for `wrong` what to do."""

    subject: str
    state: Literal["ok", "wrong"]
    text: str


def examine(settings: Settings, load: Callable[[Settings], Completer], lasting: str = "") -> Iterator[Finding]:
    """Look at everything a completion needs, in the order in which it is needed.

    lasting: the model's name as what was tuned for it is kept under, if that differs from the setting.
    """
    yield Finding("spd-lsp", "ok", f"{__version__}, Python {platform.python_version()} on {platform.platform()}")
    yield from packages()
    yield _settings_in_use(settings)
    yield tuned(settings, lasting or settings.model)
    try:
        folder = locate(settings.model)
        tokens = ModelTokenizer(folder)
    except UserError as error:
        yield Finding("model", "wrong", str(error))
        return
    yield model(settings, load)
    yield from tables(settings, tokens, folder, lasting)


def packages() -> Iterator[Finding]:
    """The versions of the packages that matter."""
    for name in _PACKAGES:
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding(name, "wrong", f"expected the package {name}, found none; run: pip install {name}")


def _settings_in_use(settings: Settings) -> Finding:
    """Settings that differ from their defaults."""
    changed = [
        f"{field.name}={value!r}"
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) != field.default
    ]
    return Finding("settings", "ok", ", ".join(changed) or "all at their defaults")


def tuned(settings: Settings, name: str) -> Finding:
    """What `spd-lsp ngrams tune` found for the model; it serves wherever a setting is at its default."""
    folder = open_registry(settings).folder
    found = [f"{setting}={value!r}" for setting, value in read_tuned(folder, name).items()]
    found += ["weights of n-grams"] if read_order_weights(folder, name) else []
    return Finding("tuned", "ok", ", ".join(found) or f"nothing for {name}")


def model(settings: Settings, load: Callable[[Settings], Completer]) -> Finding:
    """Load the model and complete one line of code with it."""
    started = time.perf_counter()
    try:
        completer = load(settings)
    except UserError as error:
        return Finding("model", "wrong", str(error))
    loaded = time.perf_counter() - started
    source = "import os\n\n\ndef names(path):\n    for name in os."
    try:
        answer = completer.complete(source, len(source), "python", forced=True)
    except Exception as error:  # whatever a model's numbers may lead to is a finding
        return Finding(
            "model", "wrong", f"{settings.model} opens and fails to complete ({type(error).__name__}: {error})"
        )
    each = answer.seconds * 1000 / max(answer.passes, 1)
    return Finding(
        "model",
        "ok",
        f"{settings.model} on {completer.model.device}, loaded in {loaded:.1f} s, {each:.0f} ms a forward pass",
    )


def tables(settings: Settings, tokens: ModelTokenizer, folder: Path, lasting: str = "") -> Iterator[Finding]:
    """Every n-gram table, read whole, who uses them, what is left over, and whether new ones can be written."""
    registry = open_registry(settings)
    for language, path in built_in_domains(folder).items():
        yield table(f"n-grams {language} (built in)", path)
    if fault := registry.fault():
        yield Finding("n-grams in use", "wrong", fault)
    domains = registry.domains()
    for domain in domains:
        yield _checked(domain, domains, lasting or settings.model, tokens.fingerprint)
    if unknown := registry.assignments().names() - {domain.name for domain in domains}:
        found = f"expected the tables that were chosen, found no {', '.join(sorted(unknown))}"
        yield Finding("n-grams in use", "wrong", f"{found}; to forget the choice, run: spd-lsp ngrams prune")
    yield from leftovers(registry)
    yield _writable(registry.folder)


def _checked(domain: Domain, domains: Sequence[Domain], model: str, fingerprint: str) -> Finding:
    """One domain of all: its index, its table's every byte, its tokenizer, its sources."""
    subject = f"n-grams {domain.name}"
    if domain.fault:
        return Finding(subject, "wrong", mend(domain))
    if domain.fingerprint != fingerprint:
        fitting = [one for one in domains if one.fingerprint == fingerprint]
        if beside := covering_domains(fitting, domain):
            return Finding(subject, "ok", f"for {model_label(domain)}; here {', '.join(beside)} serves")
        state: Literal["ok", "wrong"] = "ok" if is_for_another_model(domain, model, fingerprint) else "wrong"
        return Finding(subject, state, mismatch_message(domain, model))
    found = table(subject, domain.path)
    if found.state == "ok" and (gone := sources_gone(domain)):
        where = ", ".join(map(str, gone))
        return Finding(
            subject, "ok", f"{found.text}; its repository {where} is gone, see spd-lsp ngrams prune --gone"
        )
    return found


def table(subject: str, path: Path) -> Finding:
    """Read one table whole and compare its checksums."""
    try:
        opened = Table.open(path)
        opened.verify()
    except UserError as error:
        return Finding(subject, "wrong", str(error))
    size = megabytes(path.stat().st_size)
    return Finding(subject, "ok", f"{opened.summary.tokens:,} tokens, {size}, checksums right")


def leftovers(registry: Registry) -> Iterator[Finding]:
    """What nobody needs; no fault, only space."""
    try:
        found, _ = registry.prune(dry_run=True)
    except UserError:
        return  # a folder that cannot be written is named by `_writable`
    if found:
        size = megabytes(sum(leftover.size for leftover in found))
        yield Finding("leftovers", "ok", f"{size} that nobody needs; to free them, run: spd-lsp ngrams prune")


def _writable(folder: Path) -> Finding:
    """Whether `build-ngrams` could write here; nothing is left behind."""
    try:
        there = _nearest(folder)
        with tempfile.TemporaryFile(dir=there):
            return Finding("data folder", "ok", str(folder))
    except OSError as error:
        return Finding(
            "data folder",
            "wrong",
            f"expected to write in {folder}, found: {error.strerror}; name another with --data-dir",
        )


def _nearest(folder: Path) -> Path:
    """The folder itself or, as long as there is none, the one in which it would be made."""
    return next(place for place in (folder, *folder.parents) if place.exists())
