"""The settings in use, merged from those of the command, the editor's options and its configuration.

In: plain objects as an editor sends them. Out: one Settings, and what was invalid. Knows nothing of LSP messages.

Editors merge a user's configuration with that of the open folder, such as `.vscode/settings.json` or
`.dir-locals.el`, and do not say which is which. So the configuration may set only what any folder may set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from spd_lsp.settings import FIELDS, Settings, converted, field_name, hint, invalid_reason

SECTION = "spd-lsp"
CLIENT_KEYS = ("serverCommand", "serverAddress", "trace")  # settings of the VS Code extension itself
_EDITORS = tuple(name for name, field in FIELDS.items() if field.metadata["in_editors"])
WORKSPACE_SETTINGS = tuple(name for name, field in FIELDS.items() if field.metadata["workspace"])
_NEED_RELOAD = ("model", "device", "data_dir", "indexing", "fill_format")  # fixed once a completer is made


class Configuration:
    """The editor's configuration overrides its options, and these the command's settings but the fixed ones."""

    def __init__(self, settings: Settings, fixed: Collection[str] = ()) -> None:
        self.settings = settings
        self.fixed = fixed
        self.options: dict[str, Any] = {}
        self.workspace: dict[str, Any] = {}
        self.problems: list[str] = []

    def set_options(self, options: object) -> None:
        """Replace the options from the user's own editor; an invalid value is left out."""
        self.options = self._validated(options, _EDITORS)

    def set_configuration(self, section: object) -> None:
        """Replace our section of the configuration, as far as any folder may set it."""
        self.workspace = self._validated(section, WORKSPACE_SETTINGS)

    def merged(self) -> Settings:
        """The settings in use."""
        return dataclasses.replace(self.settings, **{**self.options, **self.workspace})

    def take_problems(self) -> list[str]:
        """What was invalid since the last call."""
        problems, self.problems = self.problems, []
        return problems

    def _validated(self, options: object, settable: Collection[str]) -> dict[str, Any]:
        """The valid values of an object, those that may not be set here left out."""
        if not isinstance(options, Mapping):
            if options:  # Lua encodes an empty object as an empty list
                self.problems.append(f"settings must be an object, not {type(options).__name__}; ignored")
            return {}
        used = self.merged()
        refused = []
        valid: dict[str, Any] = {}
        for key, value in options.items():
            name = field_name(str(key))
            if value is None or key in CLIENT_KEYS:
                continue
            if name not in _EDITORS:
                self.problems.append(f"unknown setting {key!r} ignored{hint(str(key), _EDITORS)}")
            elif name in self.fixed:
                continue
            elif name not in settable:
                refused += [key] if value != getattr(used, name) else []
            elif reason := invalid_reason(FIELDS[name], value):
                self.problems.append(f"setting {key!r} {reason}; ignored")
            else:
                valid[name] = converted(value, FIELDS[name].default)
        if refused:
            self.problems.append(
                f"{', '.join(map(repr, refused))} ignored: this configuration may come from the open folder, "
                f"which may only set {', '.join(WORKSPACE_SETTINGS)}; use the editor's initializationOptions "
                "(Neovim: init_options)"
            )
        return valid


def needs_reload(before: Settings | None, now: Settings) -> bool:
    """Whether a completer must be made: there is none, or its model or tables are others."""
    return before is None or any(getattr(before, name) != getattr(now, name) for name in _NEED_RELOAD)
