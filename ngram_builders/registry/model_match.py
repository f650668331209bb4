"""Which model a table was built for, and what to tell a user whose model has another tokenizer.

A repository may have a table for each of several models. Each model uses its own and skips the others without a
message, unless it has none. Knows tables by their index, and no tokenizer.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from ngram_builders.registry.ngram_table import NgramTable
from ngram_builders.registry.origin import read_origin
from ngram_builders.sources.rules.selection import Selection

_MAX_NAME_LENGTH = 62  # of a name that is made up here


def _recorded_model(table: NgramTable) -> str:
    """The model that a table was built for, "" if that was not recorded."""
    return str(table.recipe.get("model") or "")


def _short_name(model: str) -> str:
    """A model's name without where it is from. Example: `Qwen/Qwen2.5-Coder-0.5B` -> `Qwen2.5-Coder-0.5B`."""
    return Path(model).name or model


def model_label(table: NgramTable) -> str:
    """The model or at least the tokenizer that a table was built for."""
    model = _recorded_model(table) or read_origin(table.recipe).model
    return _short_name(model) or f"tokenizer {table.fingerprint}"


def is_for_another_model(table: NgramTable, model: str, fingerprint: str) -> bool:
    """Whether a table was built for another model, with another tokenizer."""
    return table.fingerprint != fingerprint and _recorded_model(table) not in ("", model)


def covering_tables(tables: Iterable[NgramTable], other: NgramTable) -> list[str]:
    """Names of usable tables that together have all sources of another; none if a source is missing.

    An imported table has no sources; any other imported one covers it.
    """
    usable = [table for table in tables if table.fault is None]
    if not other.roots:
        return [table.name for table in usable if not table.roots]
    around = [[one.name for one in usable if any(map(root.is_relative_to, one.roots))] for root in other.roots]
    return list(dict.fromkeys(name for names in around for name in names)) if all(around) else []


def mismatch_message(table: NgramTable, model: str) -> str:
    """Say that a model cannot use a table, and how to build one that it can use. model: as the user names it."""
    recorded = _recorded_model(table)
    short = _short_name(model)
    built_for = f"an earlier tokenizer of {short}" if recorded == model else model_label(table)
    if built_for == short:  # models of the same name from different places
        built_for = recorded
        short = model
    remedy = _remedy(table, model)
    return f"n-gram table {table.name} was built for {built_for}, and {short} has another tokenizer; {remedy}"


def _remedy(table: NgramTable, model: str) -> str:
    """The command that makes a table for a model; one that serves another model is kept beside it."""
    if "imported" in table.recipe:
        return f"import one built with {model}, or run: spd-lsp ngrams remove {table.name}"
    if _recorded_model(table) not in ("", model) and table.roots:
        roots = " ".join(shlex.quote(str(root)) for root in table.roots)
        options = "".join(f" {option}" for option in Selection.of(table.recipe).as_options())
        return f"run: spd-lsp build-ngrams {roots}{options} --model {shlex.quote(model)}"
    return f"run: spd-lsp ngrams rebuild {table.name} --model {shlex.quote(model)}"


def name_for_model(name: str, model: str) -> str:
    """The name of another table of the same sources. Example: shop, `/models/Tiny 2` -> `shop-Tiny-2`."""
    suffix = re.sub(r"[^A-Za-z0-9._-]+", "-", _short_name(model)).strip("-.")[:24] or "other"
    return f"{name[: _MAX_NAME_LENGTH - len(suffix)]}-{suffix}".rstrip(".")
