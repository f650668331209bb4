"""VS Code without a screen: its own server, and a Chromium in which its window is driven with real keys.

Comes in: a folder of installed extensions and settings. Goes out: windows that tell what a person sees. Knows what
our extension shows in the status bar, but nothing of completions.
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

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "editors" / "vscode"
SERVER = Path(os.environ.get("SPD_LSP_VSCODE", "missing"), "out", "server-main.js")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), "")
PATIENCE = 120.0  # seconds; a busy machine takes its time to start all of this

RUNS, FAILED = "list-selection", "error"  # icons of the extension in the status bar

QUIET = {
    "editor.quickSuggestions": {"other": "off"},
    "editor.suggestOnTriggerCharacters": False,  # the menu would hide what Tab does to ghost text
    "editor.wordBasedSuggestions": "off",
    "files.autoSave": "off",
    "git.enabled": False,
    "telemetry.telemetryLevel": "off",
    "workbench.startupEditor": "none",
    "spd-lsp.device": "cpu",
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
const seen = new Set();
new MutationObserver(() => {
  for (const icon of document.querySelectorAll(".notification-list-item .codicon-error")) {
    const item = icon.closest(".notification-list-item");
    const text = item.querySelector(".notification-list-item-message").innerText;
    if (text && !seen.has(text)) window.errors.push(text);
    seen.add(text);
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
    """A port of this machine that nothing listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def alive(pid: int) -> bool:
    """Whether a process has not ended; one whose parent has not asked how it ended, has."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc").exists()  # a system that tells no states


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
    """One window of VS Code with one file open in it."""

    def __init__(self, page: Any, folder: Path, text: str, workspace: Path | None = None) -> None:
        self.page, self.folder, self.workspace = page, folder, workspace
        self.file = (workspace or folder / "work") / "storage.py"
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(text)

    def until(self, what: str, condition: Callable[[], Any]) -> Any:
        """Poll while the window goes on."""
        return until(what, condition, lambda: self.page.wait_for_timeout(100))

    def press(self, *keys: str) -> None:
        """Press keys, one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def texts(self, selector: str) -> list[str]:
        """What the elements show; VS Code shows spaces as no-break spaces."""
        return [text.replace("\u00a0", " ") for text in self.page.locator(selector).all_inner_texts()]

    @property
    def ghost(self) -> str:
        """The ghost text."""
        return "".join(self.texts(".ghost-text-decoration, .ghost-text-decoration-preview"))

    @property
    def menu(self) -> list[str]:
        """The labels in the suggestion menu."""
        return self.texts(".suggest-widget.visible .monaco-list-row .label-name")

    @property
    def place(self) -> str:
        """Such as "Ln 11, Col 14"."""
        return self.texts(".statusbar-item:has-text('Ln ')")[0]

    def shows(self, icon: str) -> None:
        """Wait until the extension shows this icon."""
        self.page.locator(f".statusbar-item:has-text('spd') .codicon-{icon}").wait_for()

    def open_menu(self) -> list[str]:
        """Ask until the server, which may still be loading, offers something; the labels."""

        def asked() -> list[str]:
            if not (rows := self.menu):
                self.press("Escape", "Control+Space")
                self.page.wait_for_timeout(500)
            return rows

        return list(self.until("the menu lists drafts", asked))

    def accept(self, key: str) -> None:
        """Press the key and wait until the cursor has moved."""
        before = self.place
        self.press(key)
        self.until("the cursor stands behind what was accepted", lambda: self.place != before)

    def command(self, title: str) -> None:
        """Run a command from the command palette."""
        self.press("F1")
        self.page.keyboard.type(title)
        self.page.locator(".quick-input-list .monaco-list-row.focused", has_text=title).wait_for()
        self.press("Enter")

    def saved(self) -> str:
        """The document, once it is written to its file: there ghost text does not count."""
        self.press("Control+s")
        self.until("it is saved", lambda: not self.page.locator(".tab.dirty").count())
        return self.file.read_text()

    def errors(self) -> list[str]:
        """The errors that were shown since this was last asked."""
        return list(self.page.evaluate("window.errors.splice(0)"))

    def servers(self) -> list[tuple[int, str]]:
        """Process id and arguments of every server that the extension started."""
        lines = (self.folder / "starts").read_text().splitlines()
        started = [line.split(maxsplit=1) for line in lines]
        return [(int(pid), rest) for pid, rest in started if rest != "--version" and "--check" not in rest]


def install(folder: Path) -> Path:
    """A folder of extensions with ours in it, as a person builds and installs it."""
    package = str(folder / "spd-lsp.vsix")
    subprocess.run(["npm", "run", "package", "--", "--out", package], cwd=EXTENSION, check=True)
    command = ["node", str(SERVER), "--accept-server-license-terms", "--user-data-dir", str(folder / "user")]
    command += ["--extensions-dir", str(folder / "installed"), "--install-extension", package]
    subprocess.run(command, check=True)
    return folder / "installed"


@contextmanager
def vscode(
    browser: Any, extensions: Path, folder: Path, workspace: Path | None = None, **environment: str
) -> Iterator[Callable[..., Window]]:
    """VS Code; what it gives opens the window. No error may be left by the end, and no server.

    Windows have the workspace open, if there is one, and do not trust it.
    """
    windows: list[Window] = []
    port = free_port()
    command = ["node", str(SERVER), "--host", "127.0.0.1", "--port", str(port), "--without-connection-token"]
    command += ["--accept-server-license-terms", "--telemetry-level", "off"]
    command += ["--force-disable-user-env"]  # else PATH would be that of a new shell
    command += [] if workspace else ["--disable-workspace-trust"]
    command += ["--server-data-dir", str(folder / "server"), "--user-data-dir", str(folder / "user")]
    command += ["--extensions-dir", str(extensions)]

    def open_window(text: str, settings: dict[str, Any], icon: str = RUNS, **screen: Any) -> Window:
        configure(folder, settings)
        page = browser.new_context(**{"viewport": {"width": 1200, "height": 760}, **screen}).new_page()
        windows.append(window := Window(page, folder, text, workspace))
        show(window, port)
        window.shows(icon)
        return window

    with running(folder / "vscode.log", *command, **surroundings(folder), **environment):
        until("VS Code answers", lambda: answers(port))
        try:
            yield open_window
        finally:
            left = [error for window in windows for error in close(window)]
    assert not left, left
    for window in windows:
        until("the server has ended with VS Code", lambda w=window: not any(alive(pid) for pid, _ in w.servers()))


def close(window: Window) -> list[str]:
    """Close it, with a picture for whoever looks for what went wrong; its errors."""
    window.page.screenshot(path=str(window.folder / "last.png"))
    errors = window.errors()
    window.page.context.close()
    return errors


def configure(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings, which a running VS Code follows."""
    file = folder / "user" / "Machine" / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(QUIET | {"spd-lsp.serverCommand": [str(folder / "spd-lsp")]} | settings))


def homes(folder: Path) -> dict[str, str]:
    """Where a person keeps everything: VS Code's servers find there what other servers put there."""
    names = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return {name: str(folder / "home") for name in names}


def surroundings(folder: Path) -> dict[str, str]:
    """A home of its own, and a program `spd-lsp` that notes when it is started."""
    program = folder / "spd-lsp"
    program.write_text(f'#!/bin/sh\necho "$$ $*" >> {folder}/starts\nexec {sys.executable} -m spd_lsp "$@"\n')
    program.chmod(0o755)
    return homes(folder) | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "EXTENSIONS_GALLERY": '{"serviceUrl":"http://127.0.0.1:9/"}',  # else it would ask one on the internet
    }


def answers(port: int) -> bool:
    """Whether VS Code's server is up."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/version"):
            return True
    except OSError:
        return False


def show(window: Window, port: int) -> None:
    """Load the window, with the cursor at the end of its file."""
    lines = window.file.read_text().split("\n")
    row, column = len(lines), len(lines[-1]) + 1
    file = f"vscode-remote://127.0.0.1:{port}{window.file}:{row}:{column}"
    wanted = json.dumps([["openFile", file], ["gotoLineMode", "true"]])
    window.page.set_default_timeout(PATIENCE * 1000)
    window.page.add_init_script(WATCH)
    place = f"folder={quote(str(window.workspace))}&" if window.workspace else ""
    window.page.goto(f"http://127.0.0.1:{port}/?{place}payload={quote(wanted)}", wait_until="domcontentloaded")
    if window.workspace:
        window.page.locator(".monaco-dialog-box .monaco-button", has_text="No, I don't trust the authors").click()
    window.page.locator(f".statusbar-item:has-text('Ln {row}, Col {column}')").wait_for()
    window.page.locator(".editor-instance .monaco-editor.focused").wait_for()
