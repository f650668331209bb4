"""Runs a piece of the VS Code extension in node, beside stand-ins of the modules that VS Code brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

EXTENSION = Path(__file__).parents[1] / "editors" / "vscode"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node on PATH")


def run_node(folder: Path, script: str, *values: Any, modules: Mapping[str, str] = MappingProxyType({})) -> Any:
    """What a script prints as JSON; it gets `sources`, a copy of the extension's, and `values`."""
    sources = shutil.copytree(EXTENSION, folder / "extension", ignore=lambda *_: ["node_modules"]) / "src"
    for name, text in modules.items():
        path = folder / "modules" / f"{name}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    given = "const [sources, values] = [process.argv[1], JSON.parse(process.argv[2])];\n"
    command = [str(shutil.which("node")), "-e", given + script, str(sources), json.dumps(values)]
    environment = os.environ | {"NODE_PATH": str(folder / "modules")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
