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
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from ngram_builders.programs import python
from ngram_builders.registry.registry import FolderChoice, Registry
from spd_lsp.lsp.documents import file_path
from spd_lsp.lsp.protocol import WorkDoneProgress
from spd_lsp.models.checkpoint.hub import absolute_model_name
from spd_lsp.ngrams.background_process import start_in_background
from spd_lsp.output.printable import printable
from spd_lsp.output.safe_logging import user_message
from spd_lsp.settings import Settings

_INDEX_COMMAND = "spd-lsp.indexFolder"
_EXCLUDE_COMMAND = "spd-lsp.excludeFolder"
_EXCLUDED = "you excluded it"
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/private/tmp")
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
        self._folders: list[str] = []  # the URIs of all open ones
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by URI, also those that have ended; they take turns
        self._turn = asyncio.Lock()
        self._reasons: dict[str, str] = {}  # URIs of folders that were not indexed, and why

    def update(self, uris: list[str], settings: Settings, fingerprint: str | None) -> None:
        """Note which folders are open, and index those without a table. Without a model, `fingerprint` is None."""
        self._folders = uris
        if self._target and self._target.fingerprint != fingerprint:
            self.stop()
        if fingerprint is None:
            return
        registry = Registry(Path(settings.data_dir) if settings.data_dir else None)
        self._target = _Target(registry, absolute_model_name(settings.model), fingerprint)
        wanted = uris if settings.enabled and settings.indexing != "off" else []
        for uri in self._tasks.keys() - set(wanted):
            self._tasks.pop(uri).cancel()
        for uri in wanted:
            if uri not in self._tasks:
                self._start(uri, requested=False)

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

    def has_table(self, path: Path | None) -> bool | None:
        """Whether a table of its folder serves a file; None if unknown, or if no folder around it is open."""
        if path is None or self._target is None:
            return None
        is_inside = any(path.is_relative_to(folder) for uri in self._folders if (folder := file_path(uri)))
        return bool(self.tables_for(path)) or (False if is_inside else None)

    def reason_not_indexed(self, path: Path | None) -> str:
        """Why the innermost open folder around a file was not indexed; empty if it was, or is not known."""
        folders = {folder: reason for uri, reason in self._reasons.items() if (folder := file_path(uri))}
        around = [folder for folder in folders if path and path.is_relative_to(folder)]
        return folders[max(around, key=lambda folder: len(folder.parts))] if around else ""

    async def _index_anyway(self, *uris: str) -> None:
        """Index folders because the user wants it, whatever their size and the earlier answers."""
        if self._target is None:
            self._tell("no folder can be indexed: the model is not loaded", shown=True)
            return
        for uri in map(str, uris or self._folders):
            self._start(uri, requested=True)

    async def _exclude(self, *uris: str) -> None:
        """Never index folders by themselves again, and delete what was built from them."""
        for uri in map(str, uris or self._folders):
            if (task := self._tasks.get(uri)) and task.cancel():
                await asyncio.wait([task])  # its process has ended then, and builds no table any more
            folder = await asyncio.to_thread(local_folder, uri)
            if folder and (target := self._target):
                answer = await asyncio.to_thread(exclude_folder, folder, target.registry)
                self._reasons[uri] = _EXCLUDED
                self._tell(answer, shown=True)

    def _start(self, uri: str, *, requested: bool) -> None:
        if task := self._tasks.get(uri):
            task.cancel()
        self._tasks[uri] = asyncio.ensure_future(self._index_in_turn(uri, requested=requested))

    async def _index_in_turn(self, uri: str, *, requested: bool) -> None:
        """Index one folder after those before it; failures are logged."""
        try:
            async with self._turn:
                self._reasons.pop(uri, None)
                await self._index(uri, requested=requested)
        except Exception as error:
            self._reasons[uri] = str(error) if isinstance(error, OSError) else user_message(error, "indexing")
            self._tell(f"a folder was not indexed: {self._reasons[uri]}")

    async def _index(self, uri: str, *, requested: bool) -> None:
        """Index one folder, if it is one that should be, and tell the user how that ended.

        The first time of all that a folder is indexed, a message says so; later, once for each folder, the log.
        """
        folder = await asyncio.to_thread(local_folder, uri)
        if folder is None or (target := self._target) is None:
            return
        registry, fingerprint = target.registry, None if requested else target.fingerprint
        reason = await asyncio.to_thread(reason_not_to_index, folder, registry, fingerprint)
        kind, text = ("skipped", reason) if reason else await self._build(uri, folder, target, unlimited=requested)
        if kind == "built":
            known = registry.folder_choices()
            await asyncio.to_thread(registry.choose_folder, folder, FolderChoice.INDEXED)
            if requested or not known:
                room = _MAX_MESSAGE - len(f"indexed  ({text})")
                self._tell(f"indexed {folder.name[:room]} ({text})", shown=True)
            undo = f"; the command {_EXCLUDE_COMMAND} undoes that, the setting `indexing` turns it off"
            self._tell(f"{folder} was indexed: {text}{undo if folder not in known else ''}")
            return
        if kind == "large":
            text += f"; to index it, run: spd-lsp build-ngrams {folder}"
        self._reasons[uri] = text
        if kind == "failed":
            self._tell(f"{folder} could not be indexed: {text}", shown=requested)
        else:
            log.info("an open folder is not indexed: %s", text)
            if requested or kind == "large":
                self._tell(f"{folder} is not indexed: {text}", shown=True)

    async def _build(self, uri: str, folder: Path, target: _Target, *, unlimited: bool) -> tuple[str, str]:
        """Run the build, and show its progress once there is some; how it ended, and what to say of that."""
        data = str(target.registry.folder.absolute())
        task = {"folder": str(folder), "data_dir": data, "model": target.model, "unlimited": unlimited}
        command = python("spd_lsp.commands.build_ngrams", json.dumps(task))
        display = None
        process = start_in_background(command, subprocess.PIPE)
        assert process.stdout
        try:
            # A thread reads: asyncio's own processes print tracebacks if the event loop ends first.
            while line := await asyncio.to_thread(process.stdout.readline):
                ((kind, value),) = json.loads(line).items()
                if kind != "progress":
                    return kind, value
                if display is None:
                    title = f"spd-lsp: indexing {printable(folder.name)}"
                    display = WorkDoneProgress(self._server, title, self._tasks[uri].cancel)
                self.progress = folder.name, value
                display.report("", value)
        except asyncio.CancelledError:
            self._reasons[uri] = "it was cancelled"
            raise
        finally:
            self.progress = None
            if display:
                display.close()
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
    try:
        return path.resolve() if path and path.is_dir() else None
    except (OSError, RuntimeError):
        return None


def reason_not_to_index(folder: Path, registry: Registry, fingerprint: str | None) -> str:
    """Why a folder, a real path, is not indexed by itself; an empty string if it should be.

    fingerprint: that of the tokenizer; None if the user asks for it, whatever is there and was chosen.
    """
    if folder == Path(folder.anchor):
        return "it is the root of a file system"
    with suppress(RuntimeError):  # there is no home directory
        if Path.home().resolve().is_relative_to(folder):
            return "it is a home directory, or holds one"
    if folder in {Path(name).resolve() for name in (*_TEMPORARY, tempfile.gettempdir())}:
        return "it is the folder for temporary files"
    tables = registry.folder.resolve()
    if tables.is_relative_to(folder) or folder.is_relative_to(tables):
        return "the n-gram tables are in it"
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
