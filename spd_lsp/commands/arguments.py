"""Kinds of arguments that several commands take."""

from __future__ import annotations

import re
from typing import Any

import click

from ngram_builders.errors import UserError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://")


class LocalPath(click.Path):
    """A path on this machine; an address such as `s3://...` is refused, not read as a folder named `s3:`."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path, or a UserError."""
        if isinstance(value, str) and _ADDRESS.match(value):
            raise UserError(f"{value} is an address, and a folder or file is expected here; copy it, or mount it")
        return super().convert(value, parameter, context)
