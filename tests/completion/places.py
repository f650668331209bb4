"""Contexts for tests: what stands around a cursor, without a model's budget."""

from __future__ import annotations

from spd_lsp.completion.context import CompletionShape, Context
from spd_lsp.completion.surroundings import Surroundings


def context_at(
    shape: CompletionShape = "line", indent: str = "", after: str = "", left: str = "", language: str = ""
) -> Context:
    """The context of a cursor between two texts."""
    return Context(left, after, shape, indent, Surroundings.at(left + after, len(left), language))
