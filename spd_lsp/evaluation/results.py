"""Where commands put what they found, which holds pieces of the code it was found on: with the user, for the user.

Nothing goes to the working directory, which others may read or may have prepared, unless it was named.
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
    """`--out` of a command; without it, a folder of the user's for these repositories and this model."""

    def chosen(context: click.Context, option: click.Parameter, value: Path | None) -> Path:
        given = context.params
        asked = given.get("repos") or given.get("names") or ()
        return value or _folder(name, [Path(one).resolve() for one in asked], given.get("model") or "starter")

    kind = click.Path(path_type=Path, file_okay=False)
    return click.option(
        "--out", type=kind, callback=chosen, show_default="the user's folder for results", help=help
    )


def for_the_user_alone() -> None:
    """Until the command ends, whatever is written can be read by its user only."""
    before = os.umask(0o077)
    click.get_current_context().call_on_close(lambda: os.umask(before))


def _folder(name: str, repos: Sequence[Path], model: str) -> Path:
    """Example: `~/.local/state/spd-lsp/tune/my-repo-1f2e3d4c`."""
    place = Path(platformdirs.user_state_dir("spd-lsp", appauthor=False)) / name
    if not repos:
        return place
    asked = "\0".join([*map(str, repos), model])
    return place / f"{repos[0].name}-{blake2b(os.fsencode(asked), digest_size=4).hexdigest()}"
