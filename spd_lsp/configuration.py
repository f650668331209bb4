"""What an editor wants of the server, put together from all the places where it may say so.

In: the options of `initialize`, the configuration that came later, the command's flags. Out: one Settings and what
was wrong with the options. Knows neither how the editor was asked nor what the settings are for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from spd_lsp.settings import Settings, parse_options

__all__ = ["SECTION", "Configuration", "opens_anew"]

SECTION = "spd-lsp"
EDITORS_OWN = ("serverCommand", "serverAddress", "trace")  # keys that the editor's side reads itself
OPENED_WITH = ("model", "device", "data_dir", "refresh")  # what a completer is made of; the rest it is told


class Configuration:
    """The configuration over the options that an editor started with, the flags over both."""

    def __init__(self, given: Settings, fixed: Sequence[str] = ()) -> None:
        """`given` counts where it differs from the defaults, and in the fields named `fixed`."""
        plain, ours = dataclasses.asdict(Settings()), dataclasses.asdict(given)
        self.flags = {key: value for key, value in ours.items() if key in fixed or value != plain[key]}
        self.started_with: object = None
        self.configured: object = None

    def send(self, settings: object) -> None:
        """Take over what an editor sends of all its settings: our section of it."""
        self.configured = settings.get(SECTION) if isinstance(settings, Mapping) else None

    def settings(self) -> tuple[Settings, list[str]]:
        """What all of it comes to, and what of it is unknown or wrong."""
        merged: dict[str, Any] = {}
        problems: list[str] = []
        for layer in (self.started_with, self.configured):
            if isinstance(layer, Mapping):
                merged |= {k: v for k, v in layer.items() if v is not None and k not in EDITORS_OWN}
            else:
                problems += parse_options(layer or None)[1]  # Lua writes an empty object as an empty list
        chosen, more = parse_options(merged)
        return dataclasses.replace(chosen, **self.flags), problems + more


def opens_anew(before: Settings, now: Settings) -> bool:
    """Whether the model or the tables are others, so that a completer must be made again."""
    return any(getattr(before, name) != getattr(now, name) for name in OPENED_WITH)
