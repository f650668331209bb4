"""The settings in use, merged from the command's flags, the editor's options and its configuration.

In: plain objects as an editor sends them. Out: one Settings, and what was invalid. Knows nothing of LSP messages.

Editors merge a user's configuration with that of the open folder, such as `.vscode/settings.json` or
`.dir-locals.el`, and do not say which is which. So the configuration may set only what any folder may set.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from spd_lsp.settings import Settings, invalid_reason

SECTION = "spd-lsp"
CLIENT_KEYS = ("serverCommand", "serverAddress", "trace")  # settings of the VS Code extension itself
_FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
_EDITORS = tuple(name for name, field in _FIELDS.items() if field.metadata["in_editors"])
WORKSPACE_SETTINGS = tuple(name for name, field in _FIELDS.items() if field.metadata["workspace"])
_NEED_RELOAD = ("model", "device", "data_dir", "indexing", "fill_format")  # fixed once a completer is made


class Configuration:
    """Flags override the configuration, which overrides the editor's options."""

    def __init__(self, settings: Settings, fixed: Sequence[str] = ()) -> None:
        """The flags are those settings that differ from their defaults, and those named `fixed`."""
        self.flags = {
            name: getattr(settings, name)
            for name, field in _FIELDS.items()
            if name in fixed or getattr(settings, name) != field.default
        }
        self.options: dict[str, Any] = {}
        self.workspace: dict[str, Any] = {}
        self.problems: list[str] = []

    def set_options(self, options: object) -> None:
        """Replace the options from the user's own editor; an invalid value keeps the previous one."""
        self.options = self._validated(options, self.options, _EDITORS)

    def set_configuration(self, section: object) -> None:
        """Replace our section of the configuration, as far as any folder may set it."""
        self.workspace = self._validated(section, self.workspace, WORKSPACE_SETTINGS)

    def merged(self) -> Settings:
        """The settings in use."""
        return Settings(**{**self.options, **self.workspace, **self.flags})

    def take_problems(self) -> list[str]:
        """What was invalid since the last call."""
        problems, self.problems = self.problems, []
        return problems

    def _validated(self, options: object, before: Mapping[str, Any], settable: Collection[str]) -> dict[str, Any]:
        """The valid values of an object, those that may not be set here left out."""
        if not isinstance(options, Mapping):
            if options:  # Lua encodes an empty object as an empty list
                self.problems.append(f"settings must be an object, not {type(options).__name__}; ignored")
            return dict(before) if options else {}
        used = self.merged()
        refused = []
        valid: dict[str, Any] = {}
        for key, value in options.items():
            name = field_name(str(key))
            if value is None or key in CLIENT_KEYS:
                continue
            if name not in _EDITORS:
                self.problems.append(f"unknown setting {key!r} ignored{hint(str(key), _EDITORS)}")
            elif name in self.flags:
                continue
            elif name not in settable:
                refused += [key] if value != getattr(used, name) else []
            elif reason := invalid_reason(_FIELDS[name], value):
                self.problems.append(f"setting {key!r} {reason}; using {getattr(used, name)!r}")
                valid |= {name: before[name]} if name in before else {}
            else:
                valid[name] = converted(value, _FIELDS[name].default)
        if refused:
            self.problems.append(
                f"{', '.join(map(repr, refused))} ignored: this configuration may come from the open folder, "
                f"which may only set {', '.join(WORKSPACE_SETTINGS)}; use the editor's initializationOptions "
                "(Neovim: init_options)"
            )
        return valid


def field_name(key: str) -> str | None:
    """The setting that a key stands for, in either spelling. Example: `maxTokens` -> `max_tokens`."""
    name = re.sub(r"(?<=[a-z])([A-Z])", lambda letter: "_" + letter[1].lower(), key)
    return name if name in _FIELDS else None


def hint(key: str, names: Collection[str] = tuple(_FIELDS)) -> str:
    """Name the setting that an unknown key may mean. Example: `draft` -> "; did you mean 'drafts'?"."""
    near = get_close_matches(key, names, 1, 0.75)
    return f"; did you mean {near[0]!r}?" if near else ""


def converted(value: Any, default: Any) -> Any:
    """The value in its setting's type: JSON has no tuples, and editors write 1 for 1.0."""
    return type(default)(value) if isinstance(default, (float, tuple)) else value


def needs_reload(before: Settings | None, now: Settings) -> bool:
    """Whether a completer must be made: there is none, or its model or tables are others."""
    return before is None or any(getattr(before, name) != getattr(now, name) for name in _NEED_RELOAD)


def with_model_of(before: Settings, now: Settings) -> Settings:
    """The new settings, but with the model and tables of those before."""
    return dataclasses.replace(now, **{name: getattr(before, name) for name in _NEED_RELOAD})
