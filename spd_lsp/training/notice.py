"""Writes the NOTICE beside the bundled model: what it and its tables were made from, and under which licences.

In: the `training.json` that training writes. Run after it: `python -m spd_lsp.training.notice`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

# Models whose weights the bundled one continues, as "NAME, by WHOM: LICENCE".
_BASE_MODELS: Sequence[str] = ("SmolLM2-135M-Instruct, by Hugging Face: Apache-2.0",)
_HEAD = """\
spd-lsp
Its own code is under the MIT licence: see LICENSE.

The bundled model and its n-gram table were made from the model and the software below. They hold none of their
files, but may spell short parts of them. Their authors keep their copyright. Each line has a name, a version, and
the licence as the package states it; the package holds the authors' names and the licence's text (that of
Apache-2.0 is in LICENSE-APACHE beside this file). Of licences that are offered as alternatives, the permissive one
was accepted. The name and digest of each archive are in training.json, beside this file.
"""


def notice(training: Mapping[str, Any]) -> str:
    """The text for a model trained as `training.json` says."""
    return "\n".join([_HEAD, *_base_models(), *_sources(training["sources"])])


def _base_models() -> Iterator[str]:
    if _BASE_MODELS:
        yield from ("Weights that were trained on:", *(f"  {model}" for model in _BASE_MODELS), "")


def _sources(sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each package that was read, by language."""
    used = sorted((one for one in sources if not one["skipped"]), key=itemgetter("language", "name"))
    for language, group in groupby(used, itemgetter("language")):
        yield f"{language}:"
        yield from (f"  {one['name']} {one['version']}: {one['licence']}" for one in group)
        yield ""


def main() -> None:
    """Write it beside the bundled model."""
    folder = Path(str(files("spd_lsp") / "starter"))
    training = json.loads((folder / "training.json").read_bytes())
    (folder / "NOTICE").write_text(notice(training), encoding="utf-8")


if __name__ == "__main__":
    main()
