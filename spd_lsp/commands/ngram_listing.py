"""What is known about n-gram tables -> lines for people and values for programs. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngram_builders.registry.origin import read_origin

if TYPE_CHECKING:
    from ngram_builders.registry.assignments import Assignment, Assignments
    from ngram_builders.registry.ngram_table import NgramTable
    from ngram_builders.table.format import TableSummary


def megabytes(size: int) -> str:
    """Example: 3145728 -> 3.0 MiB."""
    return f"{size / 2**20:.1f} MiB"


def list_line(table: NgramTable) -> str:
    """One table: its size, when it was built, for which model, and from what."""
    from ngram_builders.registry.model_match import model_label

    if table.fault:
        return f"{table.name:24} broken: {table.fault}"
    facts = f"{table.tokens:>12,} tokens {megabytes(table.size):>12}  {_built(table)}  {model_label(table):12}"
    return f"{table.name:24} {facts} {_origin(table)}"


def built_in_line(language: str, summary: TableSummary) -> str:
    """A table that comes with the model."""
    return (
        f"{f'{language} (built in)':24} {summary.tokens:>12,} tokens {megabytes(summary.size):>12}  "
        f"{'with the starter':16}  {'starter':12} serves {language} files together with the others"
    )


def assignment_lines(assignments: Assignments) -> Iterator[str]:
    """What the user assigned, a line for each workspace, project and language."""
    for project, packages in assignments.dependencies.items():
        yield f"{project} is also served by tables of packages that it depends on: {len(packages)}"
    for users, line in (
        (assignments.workspaces, workspace_line),
        (assignments.additions, addition_line),
        (assignments.languages, language_line),
    ):
        yield from (line(user, assignment) for user, assignment in users.items() if assignment)


def workspace_line(workspace: str | Path, assignment: Assignment) -> str:
    """Which tables serve a workspace."""
    return f"{workspace} is served by {_weights(assignment) or 'the tables built from it'}"


def addition_line(folder: str | Path, assignment: Assignment) -> str:
    """Which tables serve a folder besides its own."""
    return f"{folder} is also served by {_weights(assignment)}" if assignment else workspace_line(folder, ())


def language_line(language: str, assignment: Assignment) -> str:
    """Which tables serve a language."""
    if not assignment:
        return f"{language} files are served by the tables built from their folders"
    return f"{language} files are also served by {_weights(assignment)}"


def _weights(assignment: Assignment) -> str:
    """Example: (("mine", 0.7), ("team", None)) -> mine (0.7), team (learnt weight)."""
    return ", ".join(f"{name} ({_weight(weight)})" for name, weight in assignment)


def _weight(weight: float | None) -> str:
    return "learnt weight" if weight is None else f"{weight:g}"


def _built(table: NgramTable) -> str:
    """When, in local time; of an imported table as its file says."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(read_origin(table.recipe).built or table.built))


def _origin(table: NgramTable) -> str:
    """Where a table's counts come from."""
    if "imported" in table.recipe:
        source = read_origin(table.recipe).sources
        return f"imported from {table.recipe['imported']}" + (f": {source}" if source else "")
    if "package" in table.recipe:
        return str(table.recipe["package"])
    missing = missing_sources(table)
    roots = (f"{root} (gone)" if root in missing else str(root) for root in table.roots)
    return ", ".join(roots) or "no sources"


def missing_sources(table: NgramTable) -> list[Path]:
    """A table's repositories that no longer exist."""
    return [root for root in table.roots if not root.exists()]


def table_as_json(table: NgramTable, assignments: Assignments) -> dict[str, Any]:
    """All that is known about a table, for programs; sizes in bytes, times in seconds since 1970."""
    used_by = {kind: _users(table, users) for kind, users in assignments.by_kind().items()}
    return {**asdict(table), "used_by": used_by}


def _min_counts(table: NgramTable) -> list[int]:
    """The least count per order in the table; none if it cannot be opened."""
    from ngram_builders.table.reader import Table

    return [] if table.fault else list(Table.open(table.path).summary.min_count)


def _cache_size(table: NgramTable) -> int:
    """Bytes that builds keep beside the table."""
    from ngram_builders.registry.cleanup import total_size

    return max(0, total_size(table.path.parent) - table.size)


def _users(table: NgramTable, assigned: Mapping[str, Assignment]) -> dict[str, float | None]:
    """The workspaces or languages that a table is assigned to, with its weight there."""
    return {user: dict(given)[table.name] for user, given in assigned.items() if table.name in dict(given)}


def details(table: NgramTable, assignments: Assignments) -> str:
    """All that is known about a table, a fact a line."""
    from ngram_builders.sources.rules.selection import Selection

    facts: dict[str, object] = {
        "name": table.name,
        "sources": _origin(table),
        "built": _describe_built(table),
        "model": table.recipe.get("model") or read_origin(table.recipe).model or "not recorded",
        "tokenizer": table.fingerprint,
        "languages": ", ".join(table.languages),
        "files": f"{table.files:,}",
        "tokens": f"{table.tokens:,}",
        "n-grams": f"{table.ngrams:,}",
        "orders": ", ".join(map(str, table.orders)),
        "min counts": ", ".join(map(str, _min_counts(table))),
        "size": f"{megabytes(table.size)}, {table.size / max(table.ngrams, 1):.1f} bytes per n-gram",
        "cache": f"{megabytes(_cache_size(table))} of token ids, for the next build",
        "weight": f"{table.weight:g}",
        "used by": _describe_users(table, assignments),
        "table": table.path,
        **({"options": " ".join(options)} if (options := Selection.of(table.recipe).as_options()) else {}),
        **({"segments": f"{len(table.segments)}, with what changed since"} if table.segments else {}),
    }
    return "\n".join(f"{fact:10} {value}" for fact, value in facts.items())


def _describe_built(table: NgramTable) -> str:
    if "imported" not in table.recipe:
        return _built(table)
    imported = time.strftime("%Y-%m-%d %H:%M", time.localtime(table.built))
    return f"{_built(table) if read_origin(table.recipe).built else 'not recorded'}, imported {imported}"


def _describe_users(table: NgramTable, assignments: Assignments) -> str:
    """Which files a table serves, or how to make it serve some."""
    users = [
        f"{text.format(user)} ({_weight(weight)})"
        for assigned, text in (
            (assignments.workspaces, "files in {}"),
            (assignments.additions, "files in {} besides their own"),
            (assignments.dependencies, "files in {}, which depends on it"),
            (assignments.languages, "{} files"),
        )
        for user, weight in _users(table, assigned).items()
    ]
    if table.roots:
        users.append(f"files in its sources ({table.weight:g}), unless their workspace has tables of its own")
    language = next((name for name in table.languages if name != "other"), "python")
    command = f"spd-lsp ngrams use {table.name} --language {language}"
    return ", ".join(users) or f"nothing; run: {command}"
