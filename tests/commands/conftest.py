"""A data folder, its registry, and commands that use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ngram_builders.registry.registry import Registry
from spd_lsp.cli import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def registry(data: Path) -> Registry:
    return Registry(data)


@pytest.fixture
def invoke(data: Path) -> Callable[..., Result]:
    """Run a command and check its exit status."""

    def invoke(*arguments: object, status: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(main, ["--data-dir", str(data), *map(str, arguments)], input=stdin)
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result

    return invoke


@pytest.fixture
def run(invoke: Callable[..., Result]) -> Callable[..., str]:
    """Run a command, check its exit status and return its output."""
    return lambda *arguments, **options: invoke(*arguments, **options).output


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository: two files that count, and of each kind that does not."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text("def sell(item):\n    return item.price\n" * 20, encoding="utf-8")
    (folder / "shop.go").write_text("package shop\n\nfunc sell() {}\n", encoding="utf-8")
    (folder / ".gitignore").write_text("# mine\nprivate.py\n", encoding="utf-8")
    (folder / "private.py").write_text("secret = 1\n", encoding="utf-8")
    (folder / ".env").write_text("KEY=1\n", encoding="utf-8")
    return folder
