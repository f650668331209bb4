"""A real VS Code, our packaged extension and the shipped model: what a person sees, accepts and saves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.vscode import (
    CHROMIUM,
    CHROMIUM_OPTIONS,
    EXTENSION,
    FAILED,
    ROOT,
    RUNS,
    SERVER,
    Window,
    alive,
    configure,
    free_port,
    homes,
    install,
    running,
    until,
    vscode,
)
from tests.hostile import Trap

MISSING = [
    part
    for part, found in {
        "VS Code in $SPD_LSP_VSCODE": SERVER.is_file(),
        "node and npm on PATH": shutil.which("node") and shutil.which("npm"),
        "chromium or chromium-headless-shell on PATH": CHROMIUM,
        "`npm ci` in editors/vscode": (EXTENSION / "node_modules").is_dir(),
    }.items()
    if not found
]
HOW = "how to get them: editors/README.md"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}"),
]

playwright = pytest.importorskip("playwright.sync_api", reason=f"needs the Python package playwright; {HOW}")

DRAFTS = 2  # not the default, so that the setting is seen to arrive
SETTINGS = {"spd-lsp.drafts": DRAFTS}
TEXT = """import json


def load(path):
    with open(path) as file:
        return json.load(file)


def save(path, data):
    with open(path, "w") as file:
        json"""

# README's picture; SPD_LSP_PICTURE=1 takes it anew.
PICTURE = ROOT / "editors" / "vscode" / "drafts.png"
PICTURED = """from dataclasses import dataclass


@dataclass
class Point:
    x: float
    y: float

    def __add__(self, other):
        return Point(self.x + other.x, self.y + """
ONLY_THE_EDITOR = {
    "breadcrumbs.enabled": False,
    "editor.minimap.enabled": False,
    "editor.scrollBeyondLastLine": False,
    "window.commandCenter": False,
    "workbench.activityBar.location": "hidden",
    "workbench.layoutControl.enabled": False,
}

Open = Callable[..., Window]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("extensions"))


@pytest.fixture
def open_window(browser: Any, extensions: Path, tmp_path: Path) -> Iterator[Open]:
    with vscode(browser, extensions, tmp_path) as open_one:
        yield partial(open_one, TEXT)


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[str]:
    """The address of a server that runs already."""
    address = f"127.0.0.1:{free_port()}"
    log = tmp_path / "listening.log"
    command = [sys.executable, "-m", "spd_lsp", "serve", "--device", "cpu", "--tcp", address]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with running(log, *command, **environment, **homes(tmp_path)):
        until("it listens", lambda: f"listening at {address}" in log.read_text())
        yield address


def ghost_below(window: Window) -> tuple[str, str]:
    """The document with a new line at its end, and the ghost text there."""
    window.open_menu()  # waits for the model, as ghost text does not
    window.press("Escape", "Enter")
    ghost = window.until("ghost text is shown", lambda: window.ghost)
    return f"{TEXT}\n{' ' * 8}", ghost


def test_drafts_are_listed_and_the_first_is_accepted(open_window: Open):
    window = open_window(SETTINGS)
    window.press(".")
    labels = window.open_menu()
    assert len(labels) == DRAFTS == len(set(labels))
    window.accept("Enter")
    assert window.saved() == f"{TEXT}.{labels[0]}"


def test_ghost_text_is_shown_and_accepted_with_tab(open_window: Open):
    window = open_window(SETTINGS)
    text, ghost = ghost_below(window)
    window.accept("Tab")
    assert window.saved() == text + ghost


def test_the_next_ghost_text_can_be_had_instead(open_window: Open):
    window = open_window(SETTINGS)
    text, first = ghost_below(window)
    window.press("Alt+BracketRight")
    second = window.until("another is shown", lambda: window.ghost not in ("", first) and window.ghost)
    window.accept("Tab")
    assert window.saved() == text + second


def test_readme_shows_what_is_seen(browser: Any, extensions: Path, tmp_path: Path):
    with vscode(browser, extensions, tmp_path) as open_one:
        size = {"width": 600, "height": 350}
        window = open_one(PICTURED, ONLY_THE_EDITOR, viewport=size, device_scale_factor=1.5)
        labels = window.open_menu()
        if os.environ.get("SPD_LSP_PICTURE"):
            window.page.screenshot(path=str(PICTURE))
        assert len(labels) == 3 and labels[0] == "other.y)"


def test_the_status_tells_of_the_last_completion_and_restarts_the_server(open_window: Open):
    window = open_window(SETTINGS)
    window.open_menu()
    window.page.locator(".statusbar-item:has-text('spd')").click()
    notice = window.page.locator(".notification-toast", has_text="spd-lsp: last completion:")
    notice.locator(".monaco-button", has_text="Restart").click()
    window.until("there is a second server", lambda: len(window.servers()) == 2)
    (old, _), (new, arguments) = window.servers()
    window.until("the first has ended", lambda: not alive(old))
    window.shows(RUNS)
    assert alive(new) and arguments == "serve"


def test_a_server_that_hangs_can_be_restarted(open_window: Open):
    window = open_window(SETTINGS)
    old = window.servers()[0][0]
    os.kill(old, signal.SIGSTOP)
    window.command("spd-lsp: Restart the server")
    window.until("there is a second server", lambda: len(window.servers()) == 2)
    window.until("the first was killed", lambda: not alive(old))
    window.shows(RUNS)
    assert len(window.open_menu()) == DRAFTS


def test_a_server_that_died_is_started_again(open_window: Open):
    window = open_window(SETTINGS)
    os.kill(window.servers()[0][0], signal.SIGKILL)
    window.until("there is a second server", lambda: len(window.servers()) == 2)
    window.shows(RUNS)
    assert len(window.open_menu()) == DRAFTS


def test_a_server_that_runs_already_is_used(open_window: Open, listening: str):
    window = open_window(SETTINGS | {"spd-lsp.serverAddress": listening})
    assert [arguments for _, arguments in window.servers()] == [f"connect {listening}"]
    window.press(".")
    labels = window.open_menu()
    assert len(labels) == DRAFTS
    window.accept("Enter")
    assert window.saved() == f"{TEXT}.{labels[0]}"


def test_another_address_in_the_settings_is_followed(open_window: Open, listening: str):
    window = open_window(SETTINGS)
    configure(window.folder, SETTINGS | {"spd-lsp.serverAddress": listening})
    window.until("the server is the other one", lambda: window.servers()[-1][1] == f"connect {listening}")
    window.until("its own one has ended", lambda: not alive(window.servers()[0][0]))
    window.shows(RUNS)
    assert len(window.open_menu()) == DRAFTS


def test_an_address_without_a_server_is_told_and_can_be_mended(open_window: Open):
    address = f"127.0.0.1:{free_port()}"
    window = open_window(SETTINGS | {"spd-lsp.serverAddress": address}, FAILED)
    [told] = window.until("an error is shown", window.errors)
    assert f"Cannot connect to {address}: no server at {address}" in told
    configure(window.folder, SETTINGS)
    window.shows(RUNS)
    assert len(window.open_menu()) == DRAFTS


def test_a_folder_that_is_not_trusted_runs_nothing_and_chooses_nothing(
    browser: Any, extensions: Path, tmp_path: Path
):
    """Restricted Mode, a PATH that leads into the folder, and a folder that says what a hostile one would."""
    trap = Trap(tmp_path)
    hostile = {"serverCommand": [str(trap.folder / "spd-lsp")], "device": "meta", "model": "evil/model"}
    (trap.folder / ".vscode").mkdir()
    (trap.folder / ".vscode" / "settings.json").write_text(
        json.dumps({f"spd-lsp.{key}": value for key, value in {**hostile, "drafts": DRAFTS}.items()})
    )
    path = os.pathsep.join([".", "", str(trap.folder), str(tmp_path), os.environ["PATH"]])
    with vscode(browser, extensions, tmp_path, trap.folder, PATH=path) as open_one:
        window = open_one(TEXT, {"spd-lsp.serverCommand": []})
        window.page.locator(".statusbar-item:has-text('Restricted Mode')").wait_for()
        window.press(".")
        assert len(window.open_menu()) == DRAFTS
        assert [arguments for _, arguments in window.servers()] == ["serve"]
    ours = set(trap.sprung) & {"spd_lsp", "program spd-lsp", "program python3", "sitecustomize", "numpy", "json"}
    assert not ours
