"""A real VS Code, our packaged extension and the shipped model: what a person sees, accepts and saves.

VS Code runs as a server and its window in a Chromium without a screen, driven with real keys. What was accepted is
read from the saved file: there ghost text does not count.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "editors" / "vscode"
SERVER = Path(os.environ.get("SPD_LSP_VSCODE", "missing"), "out", "server-main.js")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), "")

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

PATIENCE = 120.0  # seconds; a busy machine takes its time to start all of this
DRAFTS = 2  # not the default, so that the setting is seen to arrive
BEFORE = "import json\n\n\ndef load(path):\n    with open(path) as file:\n        return json.load(file)\n\n\n"
LINE = "def save(path, data):\n    with open(path, 'w') as file:\n        json"

QUIET = {
    "editor.quickSuggestions": {"other": "off"},
    "editor.suggestOnTriggerCharacters": False,  # the menu would hide what Tab does to ghost text
    "editor.wordBasedSuggestions": "off",
    "files.autoSave": "off",
    "git.enabled": False,
    "telemetry.telemetryLevel": "off",
    "workbench.startupEditor": "none",
    "spd-lsp.device": "cpu",
    "spd-lsp.drafts": DRAFTS,
}

CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]

# Errors are remembered as they appear: by the end of a test VS Code may have hidden them again.
WATCH = """
window.errors = [];
new MutationObserver(() => {
  for (const icon of document.querySelectorAll(".notification-list-item .codicon-error")) {
    const text = icon.closest(".notification-list-item").innerText;
    if (!window.errors.includes(text)) window.errors.push(text);
  }
}).observe(document, { childList: true, subtree: true });
"""


def until(what: str, condition: Callable[[], Any], pause: Callable[[], Any] = lambda: time.sleep(0.1)) -> Any:
    """Poll until the condition holds; its value."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        pause()
    return value


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(log: Path, *command: str, **environment: str) -> Iterator[None]:
    """A process that is ended with the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


class Window:
    """One window of VS Code with one Python file open in it."""

    def __init__(self, page: Any, file: Path, starts: Path) -> None:
        self.page, self.file, self.starts = page, file, starts

    def until(self, what: str, condition: Callable[[], Any]) -> Any:
        return until(what, condition, lambda: self.page.wait_for_timeout(100))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def texts(self, selector: str) -> list[str]:
        """What the elements show; VS Code shows spaces as no-break spaces."""
        return [text.replace("\u00a0", " ") for text in self.page.locator(selector).all_inner_texts()]

    @property
    def ghost(self) -> str:
        return "".join(self.texts(".ghost-text-decoration, .ghost-text-decoration-preview"))

    @property
    def menu(self) -> list[str]:
        return self.texts(".suggest-widget.visible .monaco-list-row .label-name")

    def open_menu(self) -> list[str]:
        """Ask until the server, which may still be loading, offers something; the labels."""

        def asked() -> list[str]:
            if not (rows := self.menu):
                self.press("Escape", "Control+Space")
                self.page.wait_for_timeout(500)
            return rows

        return self.until("the menu lists drafts", asked)

    @property
    def place(self) -> str:
        """Such as "Ln 11, Col 14"."""
        return self.texts(".statusbar-item:has-text('Ln ')")[0]

    def accept(self, key: str) -> None:
        before = self.place
        self.press(key)
        self.until("the cursor stands behind what was accepted", lambda: self.place != before)

    def saved(self) -> str:
        """The document, once it is written to its file."""
        self.press("Control+s")
        self.until("it is saved", lambda: not self.page.locator(".tab.dirty").count())
        return self.file.read_text()

    def servers(self) -> list[tuple[int, str]]:
        """Process id and first argument of every server that the extension started."""
        lines = self.starts.read_text().splitlines() if self.starts.exists() else []
        started = [line.split(maxsplit=1) for line in lines]
        return [(int(pid), rest) for pid, rest in started if rest != "--version"]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of extensions with ours in it, as a person builds and installs it."""
    folder = tmp_path_factory.mktemp("extensions")
    package = str(folder / "spd-lsp.vsix")
    subprocess.run(["npm", "run", "package", "--", "--out", package], cwd=EXTENSION, check=True)
    install = ["node", str(SERVER), "--accept-server-license-terms", "--user-data-dir", str(folder / "user")]
    install += ["--extensions-dir", str(folder / "installed"), "--install-extension", package]
    subprocess.run(install, check=True)
    return folder / "installed"


@pytest.fixture
def open_window(browser: Any, extensions: Path, tmp_path: Path) -> Iterator[Callable[..., Window]]:
    """Starts VS Code with settings of one's own; no error may have been shown by the end."""
    with open_vscode(browser, extensions, tmp_path) as open_one:
        yield open_one


@contextmanager
def open_vscode(browser: Any, extensions: Path, folder: Path) -> Iterator[Callable[..., Window]]:
    windows: list[Window] = []
    port = free_port()
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--without-connection-token"]
    arguments += ["--accept-server-license-terms", "--telemetry-level", "off", "--disable-workspace-trust"]
    arguments += ["--server-data-dir", str(folder / "server"), "--user-data-dir", str(folder / "user")]
    arguments += ["--extensions-dir", str(extensions)]
    with running(folder / "vscode.log", "node", str(SERVER), *arguments, **surroundings(folder)):
        until("VS Code answers", lambda: answers(port))

        def open_one(**settings: Any) -> Window:
            user = folder / "user" / "Machine" / "settings.json"
            user.parent.mkdir(parents=True, exist_ok=True)
            command = {"spd-lsp.serverCommand": [str(folder / "spd-lsp")]}
            user.write_text(json.dumps(QUIET | command | settings))
            windows.append(window := show(browser, port, folder))
            return window

        yield open_one
        for window in windows:
            window.page.screenshot(path=str(folder / "last.png"))
            assert window.page.evaluate("window.errors") == []
            window.page.context.close()
    for window in windows:
        until("the server has ended with VS Code", lambda w=window: not any(alive(pid) for pid, _ in w.servers()))


def surroundings(folder: Path) -> dict[str, str]:
    """A home of its own, and a program `spd-lsp` that notes when it is started."""
    program = folder / "spd-lsp"
    program.write_text(f'#!/bin/sh\necho "$$ $*" >> {folder}/starts\nexec {sys.executable} -m spd_lsp "$@"\n')
    program.chmod(0o755)
    names = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    homes = {name: str(folder / "home") for name in names}
    return homes | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "EXTENSIONS_GALLERY": '{"serviceUrl":"http://127.0.0.1:9/"}',  # else it would ask one on the internet
    }


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/version"):
            return True
    except OSError:
        return False


def show(browser: Any, port: int, folder: Path) -> Window:
    """A window with the cursor at the end of a Python file."""
    file = folder / "work" / "storage.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(BEFORE + LINE)
    row, column = (BEFORE + LINE).count("\n") + 1, len(LINE.split("\n")[-1]) + 1
    wanted = [["openFile", f"vscode-remote://127.0.0.1:{port}{file}:{row}:{column}"], ["gotoLineMode", "true"]]
    page = browser.new_context(viewport={"width": 1200, "height": 760}).new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.add_init_script(WATCH)
    page.goto(f"http://127.0.0.1:{port}/?payload={quote(json.dumps(wanted))}", wait_until="domcontentloaded")
    page.locator(".statusbar-item .codicon-list-selection").wait_for()  # the extension says: the server runs
    page.locator(f".statusbar-item:has-text('Ln {row}, Col {column}')").wait_for()
    page.locator(".editor-instance .monaco-editor.focused").wait_for()
    return Window(page, file, folder / "starts")


def test_drafts_are_listed_and_the_first_is_accepted(open_window: Callable[..., Window]):
    window = open_window()
    window.press(".")
    labels = window.open_menu()
    assert len(labels) == DRAFTS == len(set(labels))
    window.accept("Enter")
    assert window.saved() == BEFORE + LINE + "." + labels[0]


def test_ghost_text_is_shown_and_accepted_with_tab(open_window: Callable[..., Window]):
    window = open_window()
    window.open_menu()  # the model is loaded from here on
    window.press("Escape", ".")
    ghost = window.until("ghost text is shown", lambda: window.ghost)
    window.accept("Tab")
    assert window.saved() == BEFORE + LINE + "." + ghost
