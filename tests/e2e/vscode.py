"""VS Code without a screen: its own server, and a Chromium in which its window is driven with real keys.

In: a folder of installed extensions, and settings. Out: windows that report what a user sees. Knows what our
extension shows in the status bar, but nothing about completions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from filelock import FileLock

from tests.e2e.installed import FOLDER, program
from tests.processes import TIMEOUT, free_port, is_alive, wait_until

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "editors" / "vscode"
SERVER = FOLDER / "node_modules" / "code-server" / "lib" / "vscode" / "out" / "server-main.js"
CHROMIUM = program("chromium-headless-shell", "chromium")
PYTHON_EXTENSION = Path(__file__).parent / "python_extension"
MISSING = [
    part
    for part, is_present in {
        "VS Code": SERVER.is_file(),
        "node and npm": shutil.which("node") and shutil.which("npm"),
        "chromium or chromium-headless-shell": CHROMIUM,
        "`npm ci` in editors/vscode": (EXTENSION / "node_modules").is_dir(),
        "the Python package playwright": find_spec("playwright"),
    }.items()
    if not is_present
]
RUNNING_ICON, ERROR_ICON = "list-selection", "error"  # icons of the extension in the status bar

QUIET = {  # and nothing that changes how VS Code suggests: users have its defaults
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

# Errors are recorded as they appear: VS Code may have hidden them by the end of a test.
RECORD_ERRORS = """
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

# Likewise every row of our server that the suggestion menu showed.
RECORD_ROWS = """
window.rows = new Set();
new MutationObserver(() => {
  for (const row of document.querySelectorAll(".suggest-widget.visible .monaco-list-row")) {
    const details = row.querySelector(".details-label")?.textContent ?? "";
    if (/^((< )?\\d+ %|model$|name in)/.test(details)) window.rows.add(row.getAttribute("aria-label"));
  }
}).observe(document, { attributes: true, childList: true, subtree: true });
"""

FIND_NUMBER = """
(() => {
  const added = (one) => getComputedStyle(one, "::after").content;
  const found = [...document.querySelectorAll(".view-line [class*='ced-']")].find((one) => added(one) !== "none");
  const ghosts = [...document.querySelectorAll(".ghost-text-decoration, .ghost-text-decoration-preview")];
  const right = Math.max(...ghosts.map((one) => one.getBoundingClientRect().right));
  return found && [added(found), Math.round(found.getBoundingClientRect().right - right)];
})()
"""


@contextmanager
def running(log: Path, *command: str, **environment: str) -> Iterator[None]:
    """Run a process for the length of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(TIMEOUT)


EDITOR_ONLY = {
    "breadcrumbs.enabled": False,
    "editor.minimap.enabled": False,
    "editor.scrollBeyondLastLine": False,
    "window.commandCenter": False,
    "workbench.activityBar.location": "hidden",
    "workbench.layoutControl.enabled": False,
}
PICTURE: dict[str, Any] = {"viewport": {"width": 600, "height": 350}, "device_scale_factor": 1.5}


class Window:
    """One window of VS Code with one file open in it."""

    def __init__(self, page: Any, folder: Path, text: str, workspace: Path | None, name: str) -> None:
        self.page, self.folder, self.workspace = page, folder, workspace
        self.file = (workspace or folder / "work") / name
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(text)

    def picture(self, name: str) -> None:
        """Keep what is seen now as a picture of the extension, if SPD_LSP_PICTURE=1 asks for that."""
        if os.environ.get("SPD_LSP_PICTURE"):
            self.page.set_viewport_size(PICTURE["viewport"])
            self.wait(1)
            self.page.screenshot(path=str(EXTENSION / name))

    def until(self, event: str, condition: Callable[[], Any]) -> Any:
        """Wait for the condition while the window keeps running; return its value."""
        return wait_until(event, condition, lambda: self.page.wait_for_timeout(100))

    def press(self, *keys: str) -> None:
        """Press keys, one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def texts(self, selector: str) -> list[str]:
        """Return what the elements show; VS Code shows spaces as no-break spaces."""
        return [text.replace("\u00a0", " ") for text in self.page.locator(selector).all_inner_texts()]

    @property
    def ghost(self) -> str:
        """Return the ghost text."""
        return "".join(self.texts(".ghost-text-decoration, .ghost-text-decoration-preview"))

    @property
    def number(self) -> tuple[str, float]:
        """Return what a decoration adds to a line, such as "(1/3)", and how far right of the ghost text."""
        found: list[Any] = self.page.evaluate(FIND_NUMBER)
        text, distance = found or ('""', 0)
        return json.loads(text).strip().replace("\u00a0", " "), distance

    @property
    def ghost_below(self) -> str:
        """Return the other lines of the ghost text, without white space."""
        return "".join("".join(self.texts(".suggest-preview-text")).split())

    @property
    def menu(self) -> list[str]:
        """Return the labels in the suggestion menu."""
        return self.texts(".suggest-widget.visible .monaco-list-row .label-name")

    def type(self, char: str) -> None:
        """Press the key of a character."""
        self.page.keyboard.type(char)

    def wait(self, seconds: float) -> None:
        """Let VS Code work."""
        self.page.wait_for_timeout(1000 * seconds)

    @property
    def cursor(self) -> tuple[int, int]:
        """Return line and column, from 0, once the status bar has caught up with the keys."""
        before, now = "", self.cursor_position
        while now != before:
            self.wait(0.1)
            before, now = now, self.cursor_position
        line, column = map(int, re.findall(r"\d+", now))
        return line - 1, column - 1

    @property
    def own_rows(self) -> list[str]:
        """Return the rows of our server that the menu has shown."""
        return list(self.page.evaluate("[...window.rows]"))

    def forget_rows(self) -> None:
        """Begin to record the menu's rows anew."""
        self.page.evaluate("window.rows.clear()")

    @property
    def cursor_position(self) -> str:
        """Return the status bar's text, such as "Ln 11, Col 14"."""
        return self.texts(".statusbar-item:has-text('Ln ')")[0]

    @property
    def status(self) -> str:
        """Return the text of the extension's item in the status bar."""
        return self.texts(".statusbar-item:has-text('spd')")[0].strip()

    def choose(self, label: str) -> None:
        """Click the extension's item in the status bar, and an entry of its menu."""
        self.page.locator(".statusbar-item:has-text('spd')").click()
        self.page.locator(".quick-input-list .monaco-list-row", has_text=label).click()

    def shows_icon(self, icon: str) -> bool:
        """Return whether the extension shows this icon."""
        return bool(self.page.locator(f".statusbar-item:has-text('spd') .codicon-{icon}").count())

    def wait_for_icon(self, icon: str) -> None:
        """Wait until the extension shows this icon."""
        self.page.locator(f".statusbar-item:has-text('spd') .codicon-{icon}").wait_for()

    def open_menu(self) -> list[str]:
        """Open the menu, again while the model is loading, until it lists drafts; return their labels."""

        def visible_rows() -> list[str]:
            if not (rows := self.menu):
                self.press("Escape", "Control+Space")
                self.page.wait_for_timeout(500)
            return rows

        return list(self.until("the menu lists drafts", visible_rows))

    def accept(self, key: str) -> None:
        """Press the key that accepts, and wait until the cursor has moved."""
        before = self.cursor_position
        self.press(key)
        self.until("the cursor has moved", lambda: self.cursor_position != before)

    def command(self, title: str) -> None:
        """Run a command from the command palette."""
        self.press("F1")
        self.page.keyboard.type(title)
        self.page.locator(".quick-input-list .monaco-list-row.focused", has_text=title).wait_for()
        self.press("Enter")

    def saved(self) -> str:
        """Save the document and return the file's text, which has no ghost text."""
        self.press("Control+s")
        self.until("it is saved", lambda: not self.page.locator(".tab.dirty").count())
        return self.file.read_text()

    def errors(self) -> list[str]:
        """Return the errors shown since the last call."""
        return list(self.page.evaluate("window.errors.splice(0)"))

    def servers(self) -> list[tuple[int, str]]:
        """Return the process id and arguments of each server that the extension has started."""
        starts = self.folder / "starts"
        lines = starts.read_text().splitlines() if starts.exists() else []
        started = [line.split(maxsplit=1) for line in lines]
        return [(int(pid), rest) for pid, rest in started if rest != "--version" and "--check" not in rest]


def install(folder: Path, *packages: Path) -> Path:
    """Install extensions as a user would; return their folder."""
    command = ["node", str(SERVER), "--accept-server-license-terms", "--user-data-dir", str(folder / "user")]
    command += ["--extensions-dir", str(folder / "installed")]
    for package in packages:
        subprocess.run([*command, "--install-extension", str(package)], check=True)
    (folder / "installed").mkdir(exist_ok=True)
    return folder / "installed"


def package_ours(folder: Path) -> Path:
    """Build our extension as a user would; return its package."""
    package = folder / "spd-lsp.vsix"
    environment = os.environ | {"PYTHON": sys.executable}  # has hatchling, which builds the server's archive
    command = ["npm", "run", "package", "--", "--out", str(package)]
    with FileLock(Path(tempfile.gettempdir(), "spd-lsp-package.lock")):  # tests run in several processes
        subprocess.run(command, cwd=EXTENSION, env=environment, check=True)
    return package


def package_python_extension(folder: Path) -> Path:
    """Build an extension that is asked for the chosen interpreter; return its package."""
    source = shutil.copytree(PYTHON_EXTENSION, folder / "python_extension")
    command = ["package", "--no-dependencies", "--allow-missing-repository", "--skip-license", "-o", "test.vsix"]
    subprocess.run([EXTENSION / "node_modules" / ".bin" / "vsce", *command], cwd=source, check=True)
    return source / "test.vsix"


@contextmanager
def vscode(
    browser: Any,
    extensions: Path,
    folder: Path,
    workspace: Path | None = None,
    trusted: bool = False,
    **environment: str,
) -> Iterator[Callable[..., Window]]:
    """Run VS Code; the value opens a window. By the end no error was shown and no server is left.

    A workspace is opened without being trusted, unless all are.
    """
    windows: list[Window] = []
    port = free_port()
    command = ["node", str(SERVER), "--host", "127.0.0.1", "--port", str(port), "--without-connection-token"]
    command += ["--accept-server-license-terms", "--telemetry-level", "off"]
    command += ["--force-disable-user-env"]  # otherwise PATH is that of a new shell
    asks_for_trust = workspace is not None and not trusted
    command += [] if asks_for_trust else ["--disable-workspace-trust"]
    command += ["--server-data-dir", str(folder / "server"), "--user-data-dir", str(folder / "user")]
    command += ["--extensions-dir", str(extensions)]

    def open_window(
        text: str, settings: dict[str, Any], icon: str = RUNNING_ICON, name: str = "storage.py", **screen: Any
    ) -> Window:
        configure(folder, settings)
        page = browser.new_context(**{"viewport": {"width": 1200, "height": 760}, **screen}).new_page()
        windows.append(window := Window(page, folder, text, workspace, name))
        show(window, port, asks_for_trust)
        if icon:
            window.wait_for_icon(icon)
        return window

    with running(folder / "vscode.log", *command, **environment_for(folder) | environment):
        wait_until("VS Code is up", lambda: is_up(port))
        try:
            yield open_window
        finally:
            errors = [error for window in windows for error in close(window)]
    assert not errors, errors
    for window in windows:
        started = [pid for pid, _ in window.servers()]
        wait_until("the servers have ended with VS Code", lambda pids=started: not any(map(is_alive, pids)))


def close(window: Window) -> list[str]:
    """Close the window, leaving a screenshot for whoever investigates a failure; return its errors."""
    window.page.screenshot(path=str(window.folder / "last.png"))
    errors = window.errors()
    window.page.context.close()
    return errors


def configure(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings; a running VS Code applies them."""
    file = folder / "user" / "Machine" / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(QUIET | {"spd-lsp.serverCommand": [str(folder / "spd-lsp")]} | settings))


def home_variables(folder: Path) -> dict[str, str]:
    """Return the environment variables that put the user's folders below this one."""
    names = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return {name: str(folder / "home") for name in names}


def environment_for(folder: Path) -> dict[str, str]:
    """Return an environment with its own home, after writing an `spd-lsp` that records each start."""
    program = folder / "spd-lsp"
    program.write_text(f'#!/bin/sh\necho "$$ $*" >> {folder}/starts\nexec {sys.executable} -m spd_lsp "$@"\n')
    program.chmod(0o755)
    return home_variables(folder) | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "EXTENSIONS_GALLERY": '{"serviceUrl":"http://127.0.0.1:9/"}',  # by default one on the internet
    }


def is_up(port: int) -> bool:
    """Return whether VS Code's server accepts requests."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/version"):
            return True
    except OSError:
        return False


def show(window: Window, port: int, asks_for_trust: bool) -> None:
    """Load the window with the cursor at the end of its file."""
    lines = window.file.read_text().split("\n")
    row, column = len(lines), len(lines[-1]) + 1
    file = f"vscode-remote://127.0.0.1:{port}{window.file}:{row}:{column}"
    payload = json.dumps([["openFile", file], ["gotoLineMode", "true"]])
    window.page.set_default_timeout(TIMEOUT * 1000)
    window.page.add_init_script(RECORD_ERRORS + RECORD_ROWS)
    query = f"folder={quote(str(window.workspace))}&" if window.workspace else ""
    window.page.goto(f"http://127.0.0.1:{port}/?{query}payload={quote(payload)}", wait_until="domcontentloaded")
    if asks_for_trust:
        window.page.locator(".monaco-dialog-box .monaco-button", has_text="No, I don't trust the authors").click()
    window.page.locator(f".statusbar-item:has-text('Ln {row}, Col {column}')").wait_for()
    window.page.locator(".editor-instance .monaco-editor.focused").wait_for()
