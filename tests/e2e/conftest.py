"""The browser in which VS Code runs, and our extension for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
