"""Was the model trained on packages under test? By name, as far as the model says what it was trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ngram_builders.errors import UserError
from spd_lsp.evaluation.quality.examples import PackageFiles
from spd_lsp.models.checkpoint.hub import companion_folder


def refuse_leaks(packages: Sequence[PackageFiles], model: Path) -> str:
    """Say what was compared; raise UserError for a package of a name in the model's training.json."""
    record = companion_folder(model) / "training.json"
    if not record.is_file():
        return f"unknown: {model.name} does not say what it was trained on"
    sources = json.loads(record.read_text(encoding="utf-8")).get("sources", [])
    trained_on = {normalised_name(source["name"]) for source in sources}
    if leaked := [package.name for package in packages if normalised_name(package.name) in trained_on]:
        raise UserError(f"the model was trained on packages of these names: {', '.join(leaked)}; leave these out")
    return f"other packages by name, compared with the {len(trained_on)} of training.json"


def normalised_name(name: str) -> str:
    """A package's name as registries compare it. Example: `Foo_Bar.baz-1.2.0` -> `foo-bar-baz`"""
    return re.sub(r"[-_.]+", "-", re.sub(r"-v?\d[\w.]*$", "", name)).lower()
