"""Write the server's settings into the extension's manifest: `python editors/vscode/settings.py`.

Comes in: the fields of Settings. Goes out: `contributes.configuration` of package.json, with the same defaults,
bounds and meanings, and what a folder that is opened may not set, so that none of it is edited twice.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from spd_lsp.settings import Settings

MANIFEST = Path(__file__).parent / "package.json"
KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}

OWN = {
    "spd-lsp.serverCommand": {
        "type": "array",
        "items": {"type": "string"},
        "default": [],
        "scope": "machine",
        "markdownDescription": (
            'Command that runs spd-lsp, such as `["/home/me/venv/bin/spd-lsp"]`. '
            "Empty: `spd-lsp` on the PATH, else `python3 -m spd_lsp`, never from a folder that is open."
        ),
    },
    "spd-lsp.serverAddress": {
        "type": "string",
        "default": "",
        "scope": "machine",
        "markdownDescription": (
            "Unix socket or `HOST:PORT` of a server that runs already, for `spd-lsp connect`. "
            "Empty: a server is started here."
        ),
    },
    "spd-lsp.trace.server": {
        "type": "string",
        "enum": ["off", "messages", "verbose"],
        "default": "off",
        "scope": "machine",
        "markdownDescription": "Log the messages between VS Code and the server; `verbose` logs your code.",
    },
}


def configuration() -> dict[str, Any]:
    """The manifest's section: what the extension reads itself, then every setting of the server."""
    ours = {f"spd-lsp.{camel(field.name)}": schema(field) for field in dataclasses.fields(Settings)}
    return {"title": "spd-lsp", "properties": OWN | ours}


def restricted(properties: dict[str, Any]) -> list[str]:
    """The settings that VS Code takes from a person only, never from a folder, trusted or not."""
    return [key for key, entry in properties.items() if entry.get("scope") == "machine"]


def camel(name: str) -> str:
    """Example: `max_tokens` -> `maxTokens`."""
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)


def schema(field: dataclasses.Field[Any]) -> dict[str, Any]:
    """One setting in JSON schema."""
    meaning = field.metadata["meaning"]
    entry: dict[str, Any] = {} if field.metadata["any_folder"] else {"scope": "machine"}
    entry |= {"markdownDescription": meaning[0].upper() + meaning[1:] + "."}
    if isinstance(field.default, tuple):
        return {"type": "array", "items": {"type": "string"}, "default": list(field.default), **entry}
    if field.metadata["low"] is not None:
        entry |= {"minimum": field.metadata["low"], "maximum": field.metadata["high"]}
    return {"type": KINDS[type(field.default)], "default": field.default, **entry}


def main() -> None:
    """Bring the manifest up to date."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    manifest["contributes"]["configuration"] = section = configuration()
    manifest["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] = restricted(section["properties"])
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    MANIFEST.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
