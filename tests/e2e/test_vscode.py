"""A real VS Code with our packaged extension and the bundled model: what a user sees, accepts and saves."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installed import HOW
from tests.e2e.vscode import (
    EDITOR_ONLY,
    ERROR_ICON,
    MISSING,
    PICTURE,
    ROOT,
    RUNNING_ICON,
    Window,
    configure,
    home_variables,
    install,
    package_ours,
    package_python_extension,
    running,
    vscode,
)
from tests.hostile import Trap
from tests.lsp.test_blocks import SOURCE
from tests.processes import is_alive, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}; {HOW}")]

DRAFTS = 2  # not the default, so the tests see that the setting takes effect
SETTINGS = {"spd-lsp.drafts": DRAFTS}
TEXT = """import json


def load(path):
    with open(path) as file:
        return json.load(file)


def save(path, data):
    with open(path, "w") as file:
        json"""

PICTURE_TEXT = """class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __eq__(self, other):
        return self.x == other.x and """
BLOCK_BEGINS = SOURCE.rstrip()
Open = Callable[..., Window]


@pytest.fixture
def open_window(browser: Any, extensions: Path, tmp_path: Path) -> Iterator[Open]:
    with vscode(browser, extensions, tmp_path) as open_window_with:
        yield partial(open_window_with, TEXT)


@contextmanager
def listening(folder: Path, address: str) -> Iterator[None]:
    """Run a server that listens at a socket."""
    log = folder / "listening.log"
    command = [sys.executable, "-m", "spd_lsp", "serve", "--device", "cpu", "--socket", address]
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with running(log, *command, **environment, **home_variables(folder)):
        wait_until("it listens", lambda: f"listening at {address}" in log.read_text())
        yield


def test_drafts_are_listed_and_the_first_is_accepted(open_window: Open):
    window = open_window(SETTINGS)
    window.press(".")
    labels = window.open_menu()
    assert len(labels) == DRAFTS == len(set(labels))
    window.accept("Enter")
    assert window.saved() == f"{TEXT}.{labels[0]}"


def test_a_block_is_shown_once_it_is_written_and_accepted_with_one_key(
    browser: Any, extensions: Path, tmp_path: Path
):
    with vscode(browser, extensions, tmp_path) as open_window_with:
        window = open_window_with(BLOCK_BEGINS, SETTINGS)
        window.open_menu()
        window.press("Escape", "Enter")
        line = window.until("a first line is shown", lambda: window.ghost)
        below = window.until("the block is shown", lambda: window.ghost_below)
        window.page.screenshot(path=str(tmp_path / "block.png"))
        window.accept("Tab")
        written = window.saved().removeprefix(f"{BLOCK_BEGINS}\n")
        assert written.startswith(f"        {line}\n        self.") and written.count("\n") == 1
        assert "".join(written.partition("\n")[2].split()) == below


def test_the_pictures_of_the_extension_show_these_drafts_and_the_menu(
    browser: Any, extensions: Path, tmp_path: Path
):
    with vscode(
        browser, extensions, tmp_path, SPD_LSP_STARTER=""
    ) as open_window_with:  # not the tests' small model
        window = open_window_with(PICTURE_TEXT, EDITOR_ONLY, **PICTURE)
        labels = window.open_menu()
        window.picture("drafts.png")
        assert len(labels) == 3 and labels[0] == "self.y == other.y"
        window.press("Escape", "Escape")
        window.page.locator(".statusbar-item:has-text('spd')").click()
        window.page.locator(".quick-input-list", has_text="Pause completions").wait_for()
        window.picture("menu.png")


def test_the_menu_shows_the_last_completion_and_can_restart_the_server(open_window: Open):
    window = open_window(SETTINGS)
    window.open_menu()
    window.press("Escape")
    window.page.locator(".statusbar-item:has-text('spd')").click()
    window.page.locator(".quick-input-list", has_text=re.compile(r"last completion: .*\d+ ms")).wait_for()
    window.press("Escape")
    window.choose("Restart the server")
    window.until("there is a second server", lambda: len(window.servers()) == 2)
    (old, _), (new, arguments) = window.servers()
    window.until("the first has ended", lambda: not is_alive(old))
    window.wait_for_icon(RUNNING_ICON)
    assert is_alive(new) and arguments == "serve"


def test_the_users_own_settings_apply_in_a_remote_window(open_window: Open, tmp_path: Path):
    """Those about the machine of the server are in the settings that `configure` writes; all others are here."""
    file = tmp_path / "user" / "User" / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"spd-lsp.maxTokens": 1}))
    window = open_window(SETTINGS)
    window.press(".")
    labels = window.open_menu()
    assert labels and not any("(" in label for label in labels), labels


def test_completions_can_be_paused_and_turned_off_for_a_language(open_window: Open):
    window = open_window(SETTINGS)
    assert len(window.open_menu()) == DRAFTS
    window.press("Escape")
    for turn_off, shown, reason, turn_on in (
        ("Pause completions", "spd: paused", "paused in this window", "Resume completions"),
        ("Turn off for Python", "spd: off", "off for python", "Turn on for Python"),
    ):
        window.choose(turn_off)
        window.until("it is off", lambda shown=shown: window.status == shown)
        window.press("Control+Space")
        window.page.wait_for_timeout(1000)
        assert not window.menu
        window.press("Escape")
        window.choose("Why is there no suggestion?")
        window.page.locator(".notification-toast", has_text=reason).wait_for()
        window.press("Escape")
        window.choose(turn_on)
        window.until("it is on", lambda: window.shows_icon(RUNNING_ICON))
        assert len(window.open_menu()) == DRAFTS
        window.press("Escape")


def test_a_server_that_hangs_can_be_restarted(open_window: Open):
    window = open_window(SETTINGS)
    old = window.servers()[0][0]
    os.kill(old, signal.SIGSTOP)
    window.wait_for_icon("warning")
    window.wait(3)  # so that the next request for the status is given up while the server is being stopped
    window.command("spd-lsp: Restart the server")
    window.until("there is a second server", lambda: len(window.servers()) == 2)
    window.until("the first was killed", lambda: not is_alive(old))
    window.wait_for_icon(RUNNING_ICON)
    assert len(window.open_menu()) == DRAFTS


def test_a_server_that_crashed_is_started_again(open_window: Open):
    window = open_window(SETTINGS)
    os.kill(window.servers()[0][0], signal.SIGKILL)
    window.until("there is a second server", lambda: len(window.servers()) == 2)
    window.wait_for_icon(RUNNING_ICON)
    assert len(window.open_menu()) == DRAFTS


def test_a_remote_server_that_dies_is_used_again_when_it_is_back(open_window: Open, tmp_path: Path):
    address = str(tmp_path / "private" / "server.sock")
    with listening(tmp_path, address):
        window = open_window(SETTINGS | {"spd-lsp.serverAddress": address})
    window.wait_for_icon(ERROR_ICON)
    [error] = window.until("an error is shown", window.errors)
    assert f"Cannot connect to {address}" in error
    with listening(tmp_path, address):
        window.wait_for_icon(RUNNING_ICON)
        assert len(window.open_menu()) == DRAFTS
        configure(window.folder, SETTINGS)
        window.until("it no longer connects", lambda: window.servers()[-1][1] == "serve")


def test_the_environment_chosen_in_the_python_extension_comes_first(browser: Any, tmp_path: Path):
    chosen = tmp_path / "chosen" / "bin"
    chosen.mkdir(parents=True)
    installed = install(tmp_path, package_ours(tmp_path), package_python_extension(tmp_path))
    variables = {"SPD_LSP_TEST_INTERPRETER": str(chosen / "python"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with vscode(browser, installed, tmp_path, **variables) as open_window_with:
        program = (tmp_path / "spd-lsp").read_text()
        (chosen / "spd-lsp").write_text(program.replace("$*", "$* chosen"))
        (chosen / "spd-lsp").chmod(0o755)
        window = open_window_with(TEXT, SETTINGS | {"spd-lsp.serverCommand": []})
        assert len(window.open_menu()) == DRAFTS
        assert [arguments for _, arguments in window.servers() if "--version" not in arguments] == ["serve chosen"]


@pytest.mark.slow
def test_without_a_server_one_click_installs_it(browser: Any, extensions: Path, tmp_path: Path):
    """Into an environment of the extension's own, from the package and the network alone."""
    folders = (Path(str(shutil.which("node"))).parent, Path(sys.base_prefix, "bin"), "/usr/bin", "/bin")
    path = os.pathsep.join(map(str, folders))
    (tmp_path / "starts").touch()  # by the program in the settings, which is not used
    with vscode(browser, extensions, tmp_path, PATH=path, PYTHONPATH="") as open_window_with:
        window = open_window_with(TEXT, SETTINGS | {"spd-lsp.serverCommand": []}, ERROR_ICON)
        [error] = window.until("an error is shown", window.errors)
        assert "The language server is not installed" in error
        window.page.locator(".notification-toast .monaco-button", has_text="Install").click()
        for _ in range(5):  # packages are downloaded
            with suppress(AssertionError):
                window.until("the server runs", lambda: window.shows_icon(RUNNING_ICON))
                break
        assert len(window.open_menu()) == DRAFTS
        (environment,) = tmp_path.glob("user/**/globalStorage/*/server-*")
        assert (environment / "finished").exists()
        assert not list(environment.glob("lib/*/site-packages/torch"))
        assert (tmp_path / "starts").read_text() == ""


def test_an_untrusted_folder_runs_nothing_and_chooses_nothing(browser: Any, extensions: Path, tmp_path: Path):
    """Restricted Mode, a PATH that leads into the folder, and hostile settings in it."""
    trap = Trap(tmp_path)
    hostile = {"serverCommand": [str(trap.folder / "spd-lsp")], "device": "meta", "model": "evil/model"}
    (trap.folder / ".vscode").mkdir()
    (trap.folder / ".vscode" / "settings.json").write_text(
        json.dumps({f"spd-lsp.{key}": value for key, value in {**hostile, "drafts": DRAFTS}.items()})
    )
    path = os.pathsep.join([".", "", str(trap.folder), str(tmp_path), os.environ["PATH"]])
    with vscode(browser, extensions, tmp_path, trap.folder, PATH=path) as open_window_with:
        window = open_window_with(TEXT, {"spd-lsp.serverCommand": []})
        window.page.locator(".statusbar-item:has-text('Restricted Mode')").wait_for()
        window.press(".")
        assert len(window.open_menu()) == DRAFTS
        assert [arguments for _, arguments in window.servers()] == ["serve"]
    names = {"spd_lsp", "program spd-lsp", "program python3", "sitecustomize", "numpy", "json"}
    assert not names & set(trap.sprung)
