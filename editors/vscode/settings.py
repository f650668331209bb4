"""Generate the settings in the extension's package.json: `python editors/vscode/settings.py`.

In: the fields of Settings, and the languages of source files. Out: `contributes.configuration` with defaults,
bounds and descriptions, `restrictedConfigurations` and `activationEvents`, so that nothing is written twice.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION, LANGUAGE_BY_NAME, related_languages
from spd_lsp.settings import Settings

MANIFEST = Path(__file__).parent / "package.json"
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}

# Settings about the machine that the server runs on: in a remote window, VS Code keeps a value of its own for it.
_OF_THE_MACHINE = ("model", "device", "threads", "data_dir")
_ONLY_USERS = ("machine", "application")  # scopes that an open folder cannot set

OWN: dict[str, dict[str, Any]] = {
    "spd-lsp.serverCommand": {
        "type": "array",
        "items": {"type": "string"},
        "default": [],
        "scope": "machine",
        "markdownDescription": (
            'Command that starts spd-lsp, such as `["/home/me/venv/bin/spd-lsp"]`. Empty: the first that is found '
            "in the chosen Python environment, `.venv`, the PATH, the tools of uv and pipx, `~/.venvs/spd-lsp`, "
            "and the extension's own environment. A program inside an open folder is only run if the folder is "
            "trusted."
        ),
    },
    "spd-lsp.serverAddress": {
        "type": "string",
        "default": "",
        "scope": "machine",
        "markdownDescription": (
            "Unix socket of a running server to connect to with `spd-lsp connect`, on another machine if "
            "`#spd-lsp.serverCommand#` goes through ssh. "
            "Empty: start a server."
        ),
    },
    "spd-lsp.trace.server": {
        "type": "string",
        "enum": ["off", "messages", "verbose"],
        "default": "off",
        "scope": "application",
        "markdownDescription": "Log messages between VS Code and the server; `verbose` includes your code.",
    },
}


def configuration() -> list[dict[str, Any]]:
    """The manifest's `contributes.configuration`: a section each for completions and the server."""
    fields = dataclasses.fields(Settings)
    sections = {"Completions": {key(field): schema(field) for field in fields if field.metadata["in_editors"]}}
    sections["Server"] = OWN
    return [{"title": title, "properties": _ordered(properties)} for title, properties in sections.items()]


def _ordered(properties: dict[str, Any]) -> dict[str, Any]:
    """The settings with their place in the settings page, which is otherwise alphabetical."""
    return {name: {"order": order, **properties[name]} for order, name in enumerate(properties)}


def properties_of(sections: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings of all sections by name."""
    return {name: entry for section in sections for name, entry in section["properties"].items()}


def activation_events() -> list[str]:
    """An event for each language whose files are source code, under every name that editors have for it."""
    languages = (*LANGUAGE_BY_EXTENSION.values(), *LANGUAGE_BY_NAME.values())
    names = (name for language in languages for name in (language, *sorted(related_languages(language))))
    return [f"onLanguage:{name}" for name in dict.fromkeys(names)]


def restricted(properties: dict[str, Any]) -> list[str]:
    """The settings that only the user may change, not the open folder, even when it is trusted."""
    return [name for name, entry in properties.items() if entry.get("scope") in _ONLY_USERS]


def key(field: dataclasses.Field[Any]) -> str:
    """A setting's name in VS Code. Example: `max_tokens` -> `spd-lsp.maxTokens`."""
    return f"spd-lsp.{camel_case(field.name)}"


def camel_case(name: str) -> str:
    """Example: `max_tokens` -> `maxTokens`."""
    return re.sub("_([a-z])", lambda letter: letter[1].upper(), name)


def schema(field: dataclasses.Field[Any]) -> dict[str, Any]:
    """One setting as JSON schema."""
    description = field.metadata["description"]
    entry: dict[str, Any] = {}
    if not field.metadata["workspace"]:
        entry["scope"] = "machine" if field.name in _OF_THE_MACHINE else "application"
    if field.metadata["choices"]:
        entry["enum"] = list(field.metadata["choices"])
    entry |= {"markdownDescription": description[0].upper() + description[1:] + "."}
    if isinstance(field.default, tuple):
        return {"type": "array", "items": {"type": "string"}, "default": list(field.default), **entry}
    if field.metadata["low"] is not None:
        entry |= {"minimum": field.metadata["low"], "maximum": field.metadata["high"]}
    return {"type": TYPES[type(field.default)], "default": field.default, **entry}


def main() -> None:
    """Rewrite the settings and activation events in package.json."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    manifest["contributes"]["configuration"] = sections = configuration()
    untrusted = manifest["capabilities"]["untrustedWorkspaces"]
    untrusted["restrictedConfigurations"] = restricted(properties_of(sections))
    manifest["activationEvents"] = activation_events()
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    MANIFEST.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
