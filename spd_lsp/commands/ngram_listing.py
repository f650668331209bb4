"""What is known of n-gram domains -> lines for people and values for programs. Changes nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngram_builders.registry.assignments import Assignment, Assignments
    from ngram_builders.registry.domains import Domain
    from ngram_builders.registry.registry import Registry
    from ngram_builders.table.format import TableSummary


def megabytes(size: int) -> str:
    """Example: 3145728 -> 3.0 MiB."""
    return f"{size / 2**20:.1f} MiB"


def built(domain: Domain) -> str:
    """When, in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(domain.built))


def as_line(domain: Domain) -> str:
    """One domain in a line: its size, when it was built, whose tokens it counts, and of what."""
    from ngram_builders.registry.model_match import model_label

    if domain.fault:
        return f"{domain.name:24} broken: {mend(domain)}"
    size, owner = megabytes(domain.size), model_label(domain)
    facts = f"{domain.tokens:>12,} tokens {size:>12}  {built(domain)}  {owner:12}"
    return f"{domain.name:24} {facts} {origin(domain)}"


def built_in_line(language: str, summary: TableSummary) -> str:
    """A table that comes with the model in a line."""
    return (
        f"{f'{language} (built in)':24} {summary.tokens:>12,} tokens {megabytes(summary.size):>12}  "
        f"{'with the starter':16}  {'starter':12} serves {language} files besides the others"
    )


def origin(domain: Domain) -> str:
    """Where a domain's counts come from."""
    if "imported" in domain.recipe:
        return f"imported from {domain.recipe['imported']}"
    gone = sources_gone(domain)
    return ", ".join(f"{root} (gone)" if root in gone else str(root) for root in domain.roots) or "no sources"


def mend(domain: Domain) -> str:
    """A domain's fault with what to do; what was imported cannot be built again here."""
    fault = domain.fault or ""
    if "imported" not in domain.recipe:
        return fault
    found = fault.rsplit(";", 1)[0]
    return f"{found}; import it again: spd-lsp ngrams import FILE --domain {domain.name} --replace"


def choices(uses: Assignments) -> list[str]:
    """What people chose, a line for each workspace and language."""
    lines = [f"{workspace} is served by {_weighted(choice)}" for workspace, choice in uses.workspaces.items()]
    return lines + [
        f"{language} files are served by {_weighted(choice)} besides what was built around them"
        for language, choice in uses.languages.items()
    ]


def _weighted(choice: Assignment) -> str:
    """Example: (("mine", 0.7), ("team", 0.3)) -> mine (0.7), team (0.3)."""
    return ", ".join(f"{name} ({weight:g})" for name, weight in choice)


def header(domain: Domain) -> TableSummary | None:
    """What the table's own header says, if it can be opened."""
    from ngram_builders.table.reader import Table

    return None if domain.fault else Table.open(domain.path).summary


def as_object(domain: Domain, uses: Assignments) -> dict[str, Any]:
    """All that is known of a domain, for programs; sizes in bytes, times in UTC."""
    summary = header(domain)
    return {
        "name": domain.name,
        "sources": [str(root) for root in domain.roots],
        "imported": domain.recipe.get("imported"),
        "languages": list(domain.languages),
        "files": domain.files,
        "tokens": domain.tokens,
        "ngrams": domain.ngrams,
        "orders": list(domain.orders),
        "min_counts": list(summary.min_count) if summary else None,
        "bytes": domain.size,
        "cache_bytes": cache(domain),
        "bytes_per_ngram": round(domain.size / domain.ngrams, 2) if domain.ngrams else None,
        "tokenizer": domain.fingerprint,
        "model": domain.recipe.get("model"),
        "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(domain.built)),
        "weight": domain.weight,
        "order_weights": getattr(summary, "weights", None),
        "fitted_for": _fitted_for(domain),
        "used_by": _users(domain, uses),
        "table": str(domain.path),
        "fault": mend(domain) or None,
    }


def cache(domain: Domain) -> int:
    """Bytes that builds keep beside the table."""
    from ngram_builders.registry.cleanup import total_size

    return max(0, total_size(domain.path.parent) - domain.size)


def _fitted_for(domain: Domain) -> list[str]:
    """The models beside which it was fitted how much the orders are believed."""
    from ngram_builders.registry.fitted_weights import read_fitted_weights

    return sorted(read_fitted_weights(domain.path.parent))


def _users(domain: Domain, uses: Assignments) -> dict[str, dict[str, float]]:
    """The workspaces and languages that chose a domain, with its weight there."""
    return {
        kind: {user: dict(choice)[domain.name] for user, choice in chosen.items() if domain.name in dict(choice)}
        for kind, chosen in (("workspaces", uses.workspaces), ("languages", uses.languages))
    }


def uses_object(registry: Registry) -> dict[str, Any]:
    """What people chose, for programs."""
    uses = registry.assignments()
    return {
        "workspaces": {user: dict(choice) for user, choice in uses.workspaces.items()},
        "languages": {user: dict(choice) for user, choice in uses.languages.items()},
    }


def as_paragraph(domain: Domain, uses: Assignments) -> str:
    """All that is known of a domain, a fact a line."""
    summary = header(domain)
    least = summary.min_count if summary else ()
    facts: dict[str, object] = {
        "name": domain.name,
        "sources": origin(domain),
        "built": f"not recorded, imported {built(domain)}" if "imported" in domain.recipe else built(domain),
        "model": domain.recipe.get("model", "not recorded"),
        "tokenizer": domain.fingerprint,
        "languages": ", ".join(domain.languages),
        "files": f"{domain.files:,}",
        "tokens": f"{domain.tokens:,}",
        "n-grams": f"{domain.ngrams:,}",
        "orders": ", ".join(map(str, domain.orders)),
        "min counts": ", ".join(map(str, least)),
        "size": f"{megabytes(domain.size)}, {domain.size / max(domain.ngrams, 1):.1f} bytes an n-gram",
        "cache": f"{megabytes(cache(domain))} of token ids, for the next build",
        "weight": f"{domain.weight:g}",
        "fitted for": ", ".join(_fitted_for(domain)) or "no model; its orders are believed as shipped",
        "used by": served(domain, uses),
        "table": domain.path,
    }
    lines = [f"{fact:10} {value}" for fact, value in facts.items()]
    return "\n".join(lines + order_weights(domain.orders, getattr(summary, "weights", None)))


def served(domain: Domain, uses: Assignments) -> str:
    """Which files a domain serves, or how to make it serve some."""
    found = _users(domain, uses)
    told = [f"files in {user} ({weight:g})" for user, weight in found["workspaces"].items()]
    told += [f"{user} files ({weight:g})" for user, weight in found["languages"].items()]
    if domain.roots:
        told.append(f"files in its sources ({domain.weight:g}) that have no choice of their own")
    return ", ".join(told) or f"nothing; run: {_first_use(domain)}"


def _first_use(domain: Domain) -> str:
    """The command that makes a table serve that was not built here."""
    language = next((name for name in domain.languages if name != "other"), "python")
    return f"spd-lsp ngrams use {domain.name}={domain.weight:g} --language {language}"


def order_weights(orders: tuple[int, ...], weights: Any) -> list[str]:
    """How much each order is believed, a line for each highest order whose context was seen."""
    if weights is None:
        return []
    lines = []
    for seen in orders:
        row = ", ".join(f"{order}: {weights[seen - 2][order - 2]:.2f}" for order in orders if order <= seen)
        lines.append(f"{'believed' if seen == orders[0] else '':10} up to order {seen} seen: {row}")
    return lines


def sources_gone(domain: Domain) -> list[Path]:
    """The repositories of a domain that are not there any more."""
    return [root for root in domain.roots if not root.exists()]
