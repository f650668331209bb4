"""The folder for results, which hold pieces of the code they come from: the user's own, readable by the user only.

Nothing goes to the working directory, which others may read or may have prepared, unless it is named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import click
import platformdirs


def out_option(name: str, help: str) -> Callable[[Any], Any]:
    """`--out` of a command, by default a folder of the user's for these repositories and this model."""

    def choose_folder(context: click.Context, option: click.Parameter, value: Path | None) -> Path:
        given = context.params
        repos = given.get("repos") or filter(None, [given.get("benchmark")])
        return value or _default_folder(
            name, [Path(repo).resolve() for repo in repos], given.get("model") or "starter"
        )

    return click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        callback=choose_folder,
        show_default="the user's folder for results",
        help=help,
    )


def restrict_file_access() -> None:
    """Until the command ends, files it writes are readable by the user only."""
    before = os.umask(0o077)
    click.get_current_context().call_on_close(lambda: os.umask(before))


def _default_folder(name: str, repos: Sequence[Path], model: str) -> Path:
    """Example: `~/.local/state/spd-lsp/tune/my-repo-1f2e3d4c`."""
    folder = Path(platformdirs.user_state_dir("spd-lsp", appauthor=False)) / name
    if not repos:
        return folder
    identity = "\0".join([*map(str, repos), model])
    return folder / f"{repos[0].name}-{blake2b(os.fsencode(identity), digest_size=4).hexdigest()}"
