"""Indexes the folders that an editor opens, one at a time, and tells the user so once for each.

In: folders, settings, commands. Out: tables in the registry, where requests look for them. Runs on the event loop;
what reads the disk runs in threads, what counts in a process of low priority, which ends with the server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from ngram_builders.programs import python
from ngram_builders.registry.registry import FolderChoice, Registry
from spd_lsp.lsp.documents import file_path
from spd_lsp.lsp.protocol import work_done_progress
from spd_lsp.models.hub import absolute_model_name
from spd_lsp.ngrams.background_process import start_in_background
from spd_lsp.output.printable import printable
from spd_lsp.output.safe_logging import user_message
from spd_lsp.settings import Settings

_INDEX_COMMAND = "spd-lsp.indexFolder"
_EXCLUDE_COMMAND = "spd-lsp.excludeFolder"
_EXCLUDED = "you excluded it"
# Characters beside `LSP[spd_lsp] spd-lsp: `; a longer message stops whoever types in 80 columns of Vim.
_MAX_MESSAGE = 46

log = logging.getLogger(__name__)


class _Target(NamedTuple):
    """Where tables are kept, and for which tokenizer."""

    registry: Registry
    model: str
    fingerprint: str


class FolderIndexer:
    """The open folders of one session that are being indexed or wait for it."""

    def __init__(self, server: LanguageServer) -> None:
        self.progress: tuple[str, float] | None = None  # of the build that runs: the folder's name, and the share
        self.commands: dict[str, Callable[..., Awaitable[Any]]] = {  # with URIs of folders, or for all open ones
            _INDEX_COMMAND: self._index_anyway,
            _EXCLUDE_COMMAND: self._exclude,
        }
        self._server = server
        self._target: _Target | None = None
        self._folders: list[Path] = []  # all open ones
        self._tasks: dict[Path, asyncio.Task[None]] = {}  # by folder, also those that have ended; they take turns
        self._turn = asyncio.Lock()
        self._reasons: dict[Path, str] = {}  # folders that were not indexed, and why

    def update(self, uris: Iterable[str], settings: Settings, fingerprint: str | None) -> None:
        """Note which folders are open, and index those without a table. Without a model, `fingerprint` is None."""
        self._folders = [folder for uri in uris if (folder := local_folder(uri))]
        if self._target and self._target.fingerprint != fingerprint:
            self.stop()
        if fingerprint is None:
            return
        registry = Registry(Path(settings.data_dir) if settings.data_dir else None)
        self._target = _Target(registry, absolute_model_name(settings.model), fingerprint)
        wanted = self._folders if settings.enabled and settings.indexing != "off" else []
        for folder in self._tasks.keys() - set(wanted):
            self._tasks.pop(folder).cancel()
        for folder in wanted:
            if folder not in self._tasks:
                self._start(folder, requested=False)

    def stop(self) -> None:
        """Index nothing any more."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def tables_for(self, path: Path | None, language: str | None = None) -> list[str]:
        """The names of the tables that serve a file; none if it is not known which model completes."""
        if self._target is None:
            return []
        serving = self._target.registry.tables_for(path, language)
        return [table.name for table, _ in serving if table.fingerprint == self._target.fingerprint]

    def why_not_indexed(self, path: Path | None) -> str | None:
        """Why the open folder around a file has no table, empty if it has one; None if no such folder is open."""
        if path is None or self._target is None:
            return None
        if self.tables_for(path):
            return ""
        around = [folder for folder in self._folders if path.resolve().is_relative_to(folder)]
        return self._reasons.get(around[0], "its own names are unknown") if around else None

    async def _index_anyway(self, *uris: str) -> None:
        """Index folders at the user's request, whatever their size and earlier choices."""
        if self._target is None:
            self._tell("no folder can be indexed: the model is not loaded", shown=True)
            return
        for folder in filter(None, map(local_folder, uris)) if uris else self._folders:
            self._start(folder, requested=True)

    async def _exclude(self, *uris: str) -> None:
        """Never index folders by themselves again, and delete what was built from them."""
        for folder in filter(None, map(local_folder, uris)) if uris else self._folders:
            if (task := self._tasks.get(folder)) and task.cancel():
                await asyncio.wait([task])  # its process has ended then, and builds no table any more
            if self._target:
                self._reasons[folder] = _EXCLUDED
                self._tell(exclude_folder(folder, self._target.registry), shown=True)

    def _start(self, folder: Path, *, requested: bool) -> None:
        if task := self._tasks.get(folder):
            task.cancel()
        self._tasks[folder] = asyncio.ensure_future(self._index(folder, requested=requested))

    async def _index(self, folder: Path, *, requested: bool) -> None:
        """Index one folder after those before it, if it should be, and tell the user how that ended."""
        if (target := self._target) is None:
            return
        async with self._turn:
            self._reasons.pop(folder, None)
            try:
                fingerprint = None if requested else target.fingerprint
                reason = await asyncio.to_thread(reason_not_to_index, folder, target.registry, fingerprint)
                kind, text = ("skipped", reason) if reason else await self._build(folder, target, requested)
            except Exception as error:
                kind, text = "failed", user_message(error, "indexing")
        if kind == "built":
            is_first = not target.registry.folder_choices()  # of all, which a message says; others are in the log
            target.registry.choose_folder(folder, FolderChoice.INDEXED)
            if requested or is_first:
                room = _MAX_MESSAGE - len(f"indexed  ({text})")
                self._tell(f"indexed {folder.name[:room]} ({text})", shown=True)
            undo = f"the command {_EXCLUDE_COMMAND} undoes that, the setting `indexing` turns it off"
            self._tell(f"{folder} was indexed: {text}; {undo}")
            return
        self._reasons[folder] = text
        if kind == "large":
            text += f"; to index it, run: spd-lsp build-ngrams {folder}"
        log.info("an open folder is not indexed: %s", text)
        if requested or kind != "skipped":
            self._tell(f"{folder} is not indexed: {text}", shown=requested or kind == "large")

    async def _build(self, folder: Path, target: _Target, unlimited: bool) -> tuple[str, str]:
        """Run the build and show its progress; `built`, `large`, `skipped` or `failed`, and why or what."""
        data = str(target.registry.folder.absolute())
        task = {"folder": str(folder), "data_dir": data, "model": target.model, "unlimited": unlimited}
        process = start_in_background(python("spd_lsp.commands.build_ngrams", json.dumps(task)), subprocess.PIPE)
        assert process.stdout
        title = f"spd-lsp: indexing {printable(folder.name)}"
        self.progress = folder.name, 0.0
        try:
            with work_done_progress(self._server, title, self._tasks[folder].cancel) as show:
                # A thread reads: asyncio's own processes print tracebacks if the event loop ends first.
                while line := await asyncio.to_thread(process.stdout.readline):
                    ((kind, value),) = json.loads(line).items()
                    if kind != "progress":
                        return kind, value
                    self.progress = folder.name, value
                    show("", value)
        finally:
            self.progress = None
            process.kill()
            with process:
                pass
        return "failed", "the build ended early"

    def _tell(self, text: str, *, shown: bool = False) -> None:
        """Log a text at the editor, or show it."""
        text = f"spd-lsp: {printable(text)}"
        if shown:
            self._server.window_show_message(types.ShowMessageParams(types.MessageType.Info, text))
        else:
            self._server.window_log_message(types.LogMessageParams(types.MessageType.Info, text))


def local_folder(uri: str) -> Path | None:
    """The real path of a folder that an editor opened; None if it is not on this machine."""
    path = file_path(uri)
    return path.resolve() if path and path.is_dir() else None


def reason_not_to_index(folder: Path, registry: Registry, fingerprint: str | None) -> str:
    """Why a folder, a real path, is not indexed by itself; an empty string if it should be.

    fingerprint: that of the tokenizer; None if the user asks for it, whatever is there and was chosen.
    """
    if Path.home().resolve().is_relative_to(folder):
        return "it is a home directory, or holds one"
    if folder in {Path(name).resolve() for name in ("/tmp", "/var/tmp", tempfile.gettempdir())}:
        return "it is the folder for temporary files"
    if fingerprint is None:
        return ""
    if registry.folder_choices().get(folder) is FolderChoice.EXCLUDED:
        return _EXCLUDED
    if any(map(folder.is_relative_to, registry.assignments().workspaces)):
        return "you chose its tables"
    fitting = [one for one in registry.tables() if one.fault is None and one.fingerprint == fingerprint]
    if any(folder.is_relative_to(root) for table in fitting for root in table.roots):
        return "it has a table"
    return ""


def exclude_folder(folder: Path, registry: Registry) -> str:
    """Never index a folder by itself again, and delete the tables of it alone; what was done."""
    registry.choose_folder(folder, FolderChoice.EXCLUDED)
    own = [table.name for table in registry.tables() if table.roots == (folder,)]
    for name in own:
        registry.remove(name)
    deleted = f"; its tables were deleted: {', '.join(own)}" if own else ""
    return f"{folder} is not indexed any more{deleted}"
