"""Whether a person agrees to what would be lost. Without a terminal nobody is asked, and nothing is lost."""

from __future__ import annotations

import sys

import click

from ngram_builders.errors import UserError


def ask(loss: str, question: str, flag: str) -> None:
    """Return if a person agrees to a loss; UserError if not, or if there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UserError(f"{loss}; {flag}")
    if not click.confirm(f"{loss}. {question}", err=True):
        raise UserError("nothing was changed")
