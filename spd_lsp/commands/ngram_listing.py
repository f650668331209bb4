"""What is known about n-gram tables, in lines for people. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ngram_builders.registry.assignments import Assignment, Assignments
    from ngram_builders.registry.ngram_table import NgramTable


def megabytes(size: int) -> str:
    """Example: 3145728 -> 3.0 MiB."""
    return f"{size / 2**20:.1f} MiB"


def list_line(table: NgramTable) -> str:
    """One table: its size, when it was built, for which model, and from what."""
    from ngram_builders.registry.ngram_table import model_label

    if table.fault:
        return f"{table.name:24} broken: {table.fault}"
    facts = f"{table.tokens:>12,} tokens {megabytes(table.size):>12}  {_built(table)}  {model_label(table):12}"
    return f"{table.name:24} {facts} {_origin(table)}"


def assignment_lines(assignments: Assignments) -> Iterator[str]:
    """What the user chose, a line for each folder and language."""
    yield from (workspace_line(user, chosen) for user, chosen in assignments.workspaces.items() if chosen)
    yield from (language_line(user, chosen) for user, chosen in assignments.languages.items() if chosen)


def workspace_line(workspace: str | Path, assignment: Assignment) -> str:
    """Which tables serve a folder."""
    return f"{workspace} is served by {_weights(assignment) or 'the tables built from it'}"


def language_line(language: str, assignment: Assignment) -> str:
    """Which tables serve a language."""
    if not assignment:
        return f"{language} files are served by the tables built from their folders"
    return f"{language} files are also served by {_weights(assignment)}"


def _weights(assignment: Assignment) -> str:
    """Example: {"mine": 0.7, "team": None} -> mine (0.7), team (default weight)."""
    return ", ".join(
        f"{name} ({'default weight' if weight is None else format(weight, 'g')})"
        for name, weight in assignment.items()
    )


def _built(table: NgramTable) -> str:
    """When, in local time; of an imported table as its file says."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(table.origin.get("built") or table.built))


def _origin(table: NgramTable) -> str:
    """Where a table's counts come from."""
    if table.is_imported:
        source = table.origin.get("sources")
        return f"imported from {table.recipe['imported']}" + (f": {source}" if source else "")
    missing = missing_sources(table)
    roots = (f"{root} (gone)" if root in missing else str(root) for root in table.roots)
    return ", ".join([*roots, *table.recipe.get("corpus", ())]) or "no sources"


def missing_sources(table: NgramTable) -> list[Path]:
    """A table's repositories that no longer exist."""
    return [root for root in table.roots if not root.exists()]


def details(table: NgramTable, assignments: Assignments) -> str:
    """What is known about a table, a fact a line, and what it serves or how to make it serve something."""
    from ngram_builders.sources.rules.selection import Selection

    facts: dict[str, object] = {
        "name": table.name,
        "sources": _origin(table),
        "built": _built(table),
        "model": table.model or table.origin.get("model") or "not recorded",
        "tokenizer": table.fingerprint,
        "languages": ", ".join(table.languages),
        "files": f"{table.files:,}",
        "tokens": f"{table.tokens:,}",
        "size": megabytes(table.size),
        "table": table.path,
        "options": " ".join(Selection.of(table.recipe).as_options()) or "none",
        "shards": len(table.paths),
    }
    uses = list(assignment_lines(assignments.only([table.name])))
    if not uses and not table.roots:
        language = table.languages[0] if len(table.languages) == 1 else "LANGUAGE"
        uses = [f"nothing is served by it; run: spd-lsp ngrams use {table.name} --language {language}"]
    return "\n".join([*(f"{fact:10} {value}" for fact, value in facts.items()), *uses])
