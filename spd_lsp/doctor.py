"""What is installed, what would run, what is wrong and how to mend it. Each finding is a line; none is raised."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ngram_builders.registry import Registry
from ngram_builders.tables import Table
from spd_lsp import __version__
from spd_lsp.checkpoints import built_in_domains, locate
from spd_lsp.settings import Settings, UserError
from spd_lsp.tokens import Tokens

if TYPE_CHECKING:
    from spd_lsp.completer import Completer

PACKAGES = ("pygls", "lsprotocol", "torch", "transformers", "tokenizers", "tree-sitter", "msgpack", "numpy")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `text` says what was found, and for `wrong` what to do."""

    subject: str
    state: Literal["ok", "wrong"]
    text: str


def examine(settings: Settings, load: Callable[[Settings], Completer]) -> Iterator[Finding]:
    """Look at everything a completion needs, in the order in which it is needed."""
    yield Finding("spd-lsp", "ok", f"{__version__}, Python {platform.python_version()} on {platform.platform()}")
    yield from packages()
    yield settings_in_use(settings)
    try:
        folder = locate(settings.model)
        tokens = Tokens(folder)
    except UserError as error:
        yield Finding("model", "wrong", str(error))
        return
    yield model(settings, load)
    yield from tables(settings, tokens, folder)


def packages() -> Iterator[Finding]:
    """The versions of the packages that matter."""
    for name in PACKAGES:
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding(name, "wrong", f"expected the package {name}, found none; run: pip install {name}")


def settings_in_use(settings: Settings) -> Finding:
    """Settings that differ from their defaults."""
    changed = [
        f"{field.name}={value!r}"
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) != field.default
    ]
    return Finding("settings", "ok", ", ".join(changed) or "all at their defaults")


def model(settings: Settings, load: Callable[[Settings], Completer]) -> Finding:
    """Load the model and complete one line of code with it."""
    started = time.perf_counter()
    try:
        completer = load(settings)
    except UserError as error:
        return Finding("model", "wrong", str(error))
    loaded = time.perf_counter() - started
    source = "import os\n\n\ndef names(path):\n    for name in os."
    answer = completer.complete(source, len(source), "python", forced=True)
    each = answer.seconds * 1000 / max(answer.passes, 1)
    return Finding(
        "model",
        "ok",
        f"{settings.model} on {completer.model.device}, loaded in {loaded:.1f} s, {each:.0f} ms a forward pass",
    )


def tables(settings: Settings, tokens: Tokens, folder: Path) -> Iterator[Finding]:
    """Every n-gram table, read whole, and whether new ones can be written."""
    registry = Registry(Path(settings.data_dir) if settings.data_dir else None)
    for language, path in built_in_domains(folder).items():
        yield table(f"n-grams {language} (built in)", path, tokens.fingerprint)
    if fault := registry.fault():
        yield Finding("n-grams in use", "wrong", fault)
    for domain in registry.domains():
        subject = f"n-grams {domain.name}"
        if domain.fault:
            yield Finding(subject, "wrong", domain.fault)
        else:
            yield table(subject, domain.path, tokens.fingerprint)
    yield writable(registry.folder)


def table(subject: str, path: Path, fingerprint: str) -> Finding:
    """Read one table whole and compare its checksums."""
    try:
        opened = Table.open(path, fingerprint=fingerprint)
        opened.verify()
    except UserError as error:
        return Finding(subject, "wrong", str(error))
    return Finding(
        subject, "ok", f"{opened.summary.tokens:,} tokens, {path.stat().st_size / 2**20:.1f} MiB, checksums right"
    )


def writable(folder: Path) -> Finding:
    """Whether `build-ngrams` could write here; nothing is left behind."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return Finding("data folder", "ok", str(folder))
    except OSError as error:
        return Finding(
            "data folder",
            "wrong",
            f"expected to write in {there}, found: {error.strerror}; name another with --data-dir",
        )
