"""Generate the settings in the extension's package.json: `python editors/vscode/settings.py`.

In: the fields of Settings. Out: `contributes.configuration` with their defaults, bounds and descriptions, and
`restrictedConfigurations`, so that nothing is written twice.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from spd_lsp.settings import Settings

MANIFEST = Path(__file__).parent / "package.json"
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}

OWN = {
    "spd-lsp.serverCommand": {
        "type": "array",
        "items": {"type": "string"},
        "default": [],
        "scope": "machine",
        "markdownDescription": (
            'Command that starts spd-lsp, such as `["/home/me/venv/bin/spd-lsp"]`. '
            "Empty: `spd-lsp` from the PATH, or else `python3 -m spd_lsp`; never a program inside an open folder."
        ),
    },
    "spd-lsp.serverAddress": {
        "type": "string",
        "default": "",
        "scope": "machine",
        "markdownDescription": (
            "Unix socket or `HOST:PORT` of a running server to connect to with `spd-lsp connect`. "
            "Empty: start a server."
        ),
    },
    "spd-lsp.trace.server": {
        "type": "string",
        "enum": ["off", "messages", "verbose"],
        "default": "off",
        "scope": "machine",
        "markdownDescription": "Log messages between VS Code and the server; `verbose` includes your code.",
    },
}


def configuration() -> dict[str, Any]:
    """The manifest's `contributes.configuration`: the extension's own settings, then the server's."""
    return {
        "title": "spd-lsp",
        "properties": OWN | {key(field): schema(field) for field in dataclasses.fields(Settings)},
    }


def restricted(properties: dict[str, Any]) -> list[str]:
    """The settings that only the user may change, not the open folder, even when it is trusted."""
    return [name for name, entry in properties.items() if entry.get("scope") == "machine"]


def key(field: dataclasses.Field[Any]) -> str:
    """A setting's name in VS Code. Example: `max_order` -> `spd-lsp.advanced.maxOrder`."""
    group = "spd-lsp.advanced" if field.metadata["advanced"] else "spd-lsp"
    return f"{group}.{camel_case(field.name)}"


def camel_case(name: str) -> str:
    """Example: `max_tokens` -> `maxTokens`."""
    return re.sub("_([a-z])", lambda letter: letter[1].upper(), name)


def schema(field: dataclasses.Field[Any]) -> dict[str, Any]:
    """One setting as JSON schema."""
    description = field.metadata["description"]
    entry: dict[str, Any] = {} if field.metadata["workspace"] else {"scope": "machine"}
    entry |= {"markdownDescription": description[0].upper() + description[1:] + "."}
    if isinstance(field.default, tuple):
        return {"type": "array", "items": {"type": "string"}, "default": list(field.default), **entry}
    if field.metadata["low"] is not None:
        entry |= {"minimum": field.metadata["low"], "maximum": field.metadata["high"]}
    return {"type": TYPES[type(field.default)], "default": field.default, **entry}


def main() -> None:
    """Rewrite the settings in package.json."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    manifest["contributes"]["configuration"] = section = configuration()
    manifest["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] = restricted(section["properties"])
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    MANIFEST.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
