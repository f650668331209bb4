"""The browser in which VS Code runs, our extension for it, and folders for other editors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.nvim import environment
from tests.e2e.vscode import CHROMIUM, CHROMIUM_OPTIONS, install, package_ours


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which our extension is installed."""
    folder = tmp_path_factory.mktemp("extensions")
    return install(folder, package_ours(folder))


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's folders lie below `tmp_path`, and `spd-lsp` is this one."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
