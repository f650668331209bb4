"""What an editor wants of the server, put together from all the places where it may say so.

In: the options that the editor's own program sends, its configuration, the command's flags. Out: one Settings and
what was wrong. Knows neither how the editor was asked nor what the settings are for.

Editors put a configuration together from a person's files and those of the folder that is open, such as
`.vscode/settings.json` and `.dir-locals.el`, and do not tell them apart. So it may set what any folder may.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from spd_lsp.settings import Settings, no_object, objection, read_options

SECTION = "spd-lsp"
EDITORS_OWN = ("serverCommand", "serverAddress", "trace")  # keys that the editor's side reads itself
_OPENED_WITH = ("model", "device", "data_dir", "refresh")  # what a completer is made of; the rest it is told
ANY_FOLDER = tuple(field.name for field in dataclasses.fields(Settings) if field.metadata["any_folder"])


class Configuration:
    """The configuration over the options of the editor's own program, the flags over both."""

    def __init__(self, given: Settings, fixed: Sequence[str] = ()) -> None:
        """`given` counts where it differs from the defaults, and in the fields named `fixed`."""
        plain, ours = dataclasses.asdict(Settings()), dataclasses.asdict(given)
        self.flags = {key: value for key, value in ours.items() if key in fixed or value != plain[key]}
        self.options: dict[str, Any] = {}
        self.configured: dict[str, Any] = {}
        self.problems: list[str] = []

    def start(self, options: object) -> None:
        """Take over the options of the editor's own program; a value that is wrong leaves the one before."""
        self.options = self.valid(options, self.options)

    def send(self, settings: object) -> None:
        """Take over what an editor sends of all its settings: our section of it."""
        self.configure(settings.get(SECTION) if isinstance(settings, Mapping) else None)

    def configure(self, section: object) -> None:
        """Take over our section of the configuration, as far as any folder may set it."""
        self.configured = self.valid(section, self.configured, ANY_FOLDER)

    def valid(
        self, options: object, before: Mapping[str, Any], allowed: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """What may be used of options; for the rest, what was used of those before."""
        if not isinstance(options, Mapping):
            if options:  # Lua writes an empty object as an empty list
                self.problems.append(no_object(options))
            return dict(before) if options else {}
        used, refused = self.merged(), []
        chosen: dict[str, Any] = {}
        for one in read_options({k: v for k, v in options.items() if v is not None and k not in EDITORS_OWN}):
            if one.name in self.flags:
                continue
            if one.name and allowed is not None and one.name not in allowed:
                refused += [one.key] if one.value != getattr(used, one.name) else []
            elif one.fault:
                self.problems.append(objection(one, getattr(used, one.name, None)))
                chosen |= {one.name: before[one.name]} if one.name in before else {}
            else:
                chosen[one.name] = one.value
        if refused:
            self.problems.append(_not_for_folders(refused))
        return chosen

    def merged(self) -> Settings:
        """What all of it comes to."""
        return Settings(**{**self.options, **self.configured, **self.flags})

    def settings(self) -> tuple[Settings, list[str]]:
        """What all of it comes to, and what of it was unknown or wrong since this was asked."""
        problems, self.problems = self.problems, []
        return self.merged(), problems


def _not_for_folders(keys: Sequence[str]) -> str:
    """What to tell of settings that may be those of the folder that is open."""
    return (
        f"{', '.join(map(repr, keys))} of the configuration may come from the folder that is open, which may not "
        "choose it; set it in the editor's initializationOptions (Neovim: init_options)"
    )


def opens_anew(before: Settings | None, now: Settings) -> bool:
    """Whether there is no completer, or one with another model or other tables, so that one must be made."""
    return before is None or any(getattr(before, name) != getattr(now, name) for name in _OPENED_WITH)


def opened_as(before: Settings, now: Settings) -> Settings:
    """The settings as they are now, with model and tables as they were before."""
    return dataclasses.replace(now, **{name: getattr(before, name) for name in _OPENED_WITH})
