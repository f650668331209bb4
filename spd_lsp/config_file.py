"""The user's configuration file: settings of commands and the server, in kebab-case as in ruff.toml and uv.toml.

In: `config.toml` in the user's configuration folder. Out: what it sets, and a sentence for each thing wrong in it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from spd_lsp.settings import FIELDS, converted, hint, invalid_reason

_KEYS = {name.replace("_", "-"): field for name, field in FIELDS.items()}


def config_path() -> Path:
    """Where the file is, if there is one. Example: `~/.config/spd-lsp/config.toml` on Linux."""
    return platformdirs.user_config_path("spd-lsp", appauthor=False) / "config.toml"


def read_config() -> tuple[dict[str, Any], list[str]]:
    """The valid settings in the file by their fields' names, and what is wrong with the others."""
    path = config_path()
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors on Windows begin with a mark
    except (FileNotFoundError, NotADirectoryError):
        return {}, []
    except OSError as error:
        return {}, [f"cannot read {path}: {error.strerror}; make it readable, or delete it"]
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML
        return {}, [f"{path} must be TOML, such as `drafts = 5`, but is not: {error}"]
    valid: dict[str, Any] = {}
    problems = []
    for key, value in written.items():
        if key not in _KEYS:
            problems.append(f"{path}: unknown setting {key!r}{hint(key, _KEYS)}")
        elif reason := invalid_reason(_KEYS[key], value):
            problems.append(f"{path}: {key!r} {reason}")
        else:
            valid[_KEYS[key].name] = converted(value, _KEYS[key].default)
    return valid, problems
