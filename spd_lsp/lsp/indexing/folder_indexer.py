"""Indexes the folders that an editor opens, one at a time, and tells the user so once for each.

In: folders, settings, commands. Out: tables in the registry, and a call when there are others.
Runs on the event loop; what reads the disk runs in threads, what counts in a process of low priority.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from ngram_builders.errors import UserError
from ngram_builders.registry.folder_choices import (
    FolderChoice,
    read_folder_choices,
    record_indexed,
    write_folder_choice,
)
from ngram_builders.registry.registry import Registry
from spd_lsp.lsp.documents import file_path
from spd_lsp.lsp.indexing.build_process import (
    BUILT,
    LARGE,
    PROGRESS,
    SKIPPED,
    BuildEvent,
    BuildTask,
    run_build,
)
from spd_lsp.lsp.indexing.eligibility import (
    EXCLUDED,
    HAS_TABLE,
    exclude_folder,
    local_folder,
    reason_not_to_index,
    refusal,
)
from spd_lsp.lsp.protocol import WorkDoneProgress
from spd_lsp.models.checkpoint.hub import absolute_model_name
from spd_lsp.output.printable import printable
from spd_lsp.output.progress import format_count
from spd_lsp.output.safe_logging import safe_traceback
from spd_lsp.settings import Settings

_INDEX_COMMAND = "spd-lsp.indexFolder"
_EXCLUDE_COMMAND = "spd-lsp.excludeFolder"
_LIST_TABLES_COMMAND = "spd-lsp.listTables"
_USE_TABLES_COMMAND = "spd-lsp.useTables"
_INDEX, _EXCLUDE = "Index", "Never for this folder"  # answers to the question
_MAX_MESSAGE = (
    46  # characters beside `LSP[spd_lsp] spd-lsp: `; a longer one stops whoever types in 80 columns of Vim
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Target:
    """Where tables are kept, and for which tokenizer."""

    registry: Registry
    model: str
    fingerprint: str
    dependencies: bool  # whether packages are indexed, too
    interpreter: str  # whose packages these are


class FolderIndexer:
    """The open folders of one session that are being indexed or wait for it."""

    def __init__(self, server: LanguageServer, on_change: Callable[[], object] = lambda: None) -> None:
        """`on_change` is called when other tables serve a folder than before."""
        self.progress: tuple[str, float] | None = None  # of the build that runs: the folder's name, and the share
        self._server = server
        self._on_change = on_change
        self._target: _Target | None = None
        self._folders: list[str] = []  # the URIs of all open ones
        self._opened: set[str] = set()  # those of them that are to be indexed by themselves
        self._waiting: dict[str, bool] = {}  # URIs, and whether the user asked for it
        self._building: tuple[str, asyncio.Future[BuildEvent]] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._questions: set[asyncio.Task[None]] = set()
        self._reasons: dict[str, str] = {}  # URIs of folders that were not indexed, and why

    @property
    def commands(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """What `workspace/executeCommand` runs, with URIs of folders or for all open ones."""
        indexing = {_INDEX_COMMAND: self.index, _EXCLUDE_COMMAND: self.exclude}
        return {**indexing, _LIST_TABLES_COMMAND: self.list_tables, _USE_TABLES_COMMAND: self.use_tables}

    def update(self, uris: list[str], settings: Settings, fingerprint: str | None) -> None:
        """Note which folders are open, and index those without a table. Without a model, `fingerprint` is None."""
        self._folders = uris
        if fingerprint is None:
            self.stop()
            return
        registry = Registry(Path(settings.data_dir) if settings.data_dir else None)
        packages = settings.indexing == "dependencies", settings.python_interpreter
        before = self._target
        self._target = _Target(registry, absolute_model_name(settings.model), fingerprint, *packages)
        if before and (before.fingerprint, before.dependencies, before.interpreter) != (fingerprint, *packages):
            self.stop()
        wanted = set(uris) if settings.enabled and settings.indexing != "off" else set()
        for uri in self._opened - wanted:
            self._drop(uri)
        for uri in uris:
            if uri in wanted - self._opened:
                self._enqueue(uri, requested=False)
        self._opened = wanted

    def stop(self) -> None:
        """Index nothing any more."""
        self._waiting.clear()
        self._opened.clear()
        for task in (*self._questions, *([self._runner] if self._runner else [])):
            task.cancel()
        self._runner = None

    async def index(self, *uris: str) -> None:
        """Index folders because the user wants it, whatever their size and the earlier answers."""
        if self._target is None:
            self._tell("no folder can be indexed: the model is not loaded", shown=True)
            return
        for uri in map(str, uris or self._folders):
            self._enqueue(uri, requested=True)

    async def exclude(self, *uris: str) -> None:
        """Never index folders by themselves again, and delete what was built from them."""
        for uri in map(str, uris or self._folders):
            was_indexed = self._drop(uri)
            folder = await asyncio.to_thread(local_folder, uri)
            if folder and (target := self._target):
                answer = await asyncio.to_thread(exclude_folder, folder, target.registry)
                if not was_indexed:
                    self._drop(uri)  # it may have begun meanwhile
                self._reasons[uri] = EXCLUDED
                self._on_change()
                self._tell(answer, shown=True)

    async def list_tables(self, uri: str) -> list[dict[str, Any]]:
        """The tables that can serve a folder, and whether they do."""
        folder = await asyncio.to_thread(local_folder, str(uri))
        target = self._target
        if folder is None or target is None:
            return []
        return await asyncio.to_thread(_list_tables, target.registry, folder, target.fingerprint)

    async def use_tables(self, uri: str, *names: str) -> None:
        """Serve a folder from these tables only; without names, from those that fit."""
        folder = await asyncio.to_thread(local_folder, str(uri))
        target = self._target
        if folder and target:
            try:
                await asyncio.to_thread(_use_tables, target.registry, folder, names)
                self._on_change()
            except UserError as error:
                self._tell(str(error), shown=True)

    def has_table(self, path: Path | None) -> bool | None:
        """Whether a table of its folder serves a file; None if unknown, or if no folder around it is open."""
        if path is None or self._target is None:
            return None
        folders = [folder for uri in self._folders if (folder := file_path(uri))]
        is_inside = any(map(path.is_relative_to, folders))
        serving = self._target.registry.tables_for(path, None)
        has_table = any(table.fingerprint == self._target.fingerprint for table, _ in serving)
        return has_table or (False if is_inside else None)

    def reason_not_indexed(self, path: Path | None) -> str:
        """Why the innermost open folder around a file was not indexed; empty if it was, or is not known."""
        folders = {folder: reason for uri, reason in self._reasons.items() if (folder := file_path(uri))}
        around = [folder for folder in folders if path and path.is_relative_to(folder)]
        return folders[max(around, key=lambda folder: len(folder.parts))] if around else ""

    def _enqueue(self, uri: str, *, requested: bool) -> None:
        self._waiting[uri] = requested
        if self._runner is None or self._runner.done():
            self._runner = asyncio.ensure_future(self._run())

    def _drop(self, uri: str) -> bool:
        """Do not index a folder that waits, or is being indexed; whether it was."""
        self._waiting.pop(uri, None)
        if self._building is None or self._building[0] != uri:
            return False
        self._building[1].cancel()
        return True

    async def _run(self) -> None:
        """Index what waits, in order."""
        while self._waiting and (target := self._target):
            uri = next(iter(self._waiting))
            try:
                await self._index(uri, target, requested=self._waiting.pop(uri))
            except (OSError, UserError) as error:
                self._reasons[uri] = str(error)
                self._tell(f"a folder was not indexed: {error}")
            except Exception as error:
                self._reasons[uri] = "an error in the server, see its log"
                log.error("indexing failed: %s", safe_traceback(error))

    async def _index(self, uri: str, target: _Target, *, requested: bool) -> None:
        """Index one folder, if it is one that should be."""
        self._reasons.pop(uri, None)
        folder = await asyncio.to_thread(local_folder, uri)
        if folder is None:
            return
        reason = await asyncio.to_thread(
            refusal if requested else reason_not_to_index, folder, target.registry, target.fingerprint
        )
        if reason and not (reason == HAS_TABLE and target.dependencies):
            self._explain(uri, folder, reason, requested=requested)
            return
        unlimited = requested or read_folder_choices(target.registry.folder).get(folder) is FolderChoice.ALLOWED
        data = str(target.registry.folder.absolute())
        packages = target.dependencies, target.interpreter
        task = BuildTask(str(folder), data, target.model, unlimited, not reason, *packages)
        build = asyncio.ensure_future(self._build(folder, target, task))
        self._building = uri, build
        try:
            event = await build
        except asyncio.CancelledError:
            if not build.cancelled() or self._runner is not asyncio.current_task():
                raise
            self._reasons.setdefault(uri, "it was cancelled")  # unless the user excluded it
            return  # by the user, who may have closed the folder
        finally:
            self._building = self.progress = None
        await self._conclude(uri, folder, event, target.registry, requested=requested)

    async def _conclude(
        self, uri: str, folder: Path, event: BuildEvent, registry: Registry, *, requested: bool
    ) -> None:
        """Tell the user how a build ended: once that a folder was indexed, in a message the first time of all."""
        if event.kind == LARGE:
            self._reasons[uri] = f"it has {event.text}, and the question whether to index it was not answered"
            question = asyncio.ensure_future(self._ask(uri, folder, event, registry))
            self._questions.add(question)
            question.add_done_callback(self._questions.discard)
        elif event.kind == BUILT:
            self._on_change()
            is_new, is_first = await asyncio.to_thread(record_indexed, folder, registry.folder)
            if requested or is_first:
                self._tell(_short_message(folder.name, event.text), shown=True)
            undo = f"; the command {_EXCLUDE_COMMAND} undoes that, the setting `indexing` turns it off"
            self._tell(f"{folder} was indexed: {event.text}{undo if is_new else ''}")
        elif event.kind == SKIPPED:
            self._explain(uri, folder, event.text, requested=requested)
        else:
            self._reasons[uri] = event.text
            self._tell(f"{folder} could not be indexed: {event.text}", shown=requested)

    def _explain(self, uri: str, folder: Path, reason: str, *, requested: bool) -> None:
        """Note why a folder is not indexed, and say so if the user asked for it."""
        self._reasons[uri] = reason
        log.info("an open folder is not indexed: %s", reason)
        if requested:
            self._tell(f"{folder} is not indexed: {reason}", shown=True)

    async def _build(self, folder: Path, target: _Target, task: BuildTask) -> BuildEvent:
        """Run the build; how it ended. Nothing is shown before there is something to do."""
        async with AsyncExitStack() as stack:
            display = None
            event = None
            events = await stack.enter_async_context(aclosing(run_build(task)))
            async for event in events:
                if event.kind == PROGRESS:
                    if display is None:
                        title = f"spd-lsp: indexing {printable(folder.name)}"
                        display = WorkDoneProgress(self._server, title, lambda: self._cancel(folder, target))
                        stack.callback(display.close)
                    self.progress = folder.name, event.share
                    display.report("", event.share)
            assert event
            return event

    def _cancel(self, folder: Path, target: _Target) -> None:
        """The user cancelled a build: do not start it again at every opening."""
        if self._building:
            self._building[1].cancel()
        write_folder_choice(target.registry.folder, folder, FolderChoice.EXCLUDED)
        self._tell(f"{folder} is not indexed; to do so, run: spd-lsp build-ngrams {folder}")

    async def _ask(self, uri: str, folder: Path, event: BuildEvent, registry: Registry) -> None:
        """Ask whether to index a large folder, and remember the answer; without one, ask again next time."""
        question = f"spd-lsp: {folder} has {event.text}. Index it in the background, for completions of its names?"
        actions = [types.MessageActionItem(_INDEX), types.MessageActionItem(_EXCLUDE)]
        params = types.ShowMessageRequestParams(types.MessageType.Info, printable(question), actions)
        try:
            answer = await self._server.window_show_message_request_async(params)
        except JsonRpcException:
            return  # the editor cannot ask
        title = answer.title if answer else None
        if title == _INDEX:
            await asyncio.to_thread(write_folder_choice, registry.folder, folder, FolderChoice.ALLOWED)
            self._enqueue(uri, requested=False)
        elif title == _EXCLUDE:
            await asyncio.to_thread(write_folder_choice, registry.folder, folder, FolderChoice.EXCLUDED)
            self._reasons[uri] = EXCLUDED

    def _tell(self, text: str, *, shown: bool = False) -> None:
        """Log a text at the editor, or show it."""
        text = f"spd-lsp: {printable(text)}"
        if shown:
            self._server.window_show_message(types.ShowMessageParams(types.MessageType.Info, text))
        else:
            self._server.window_log_message(types.LogMessageParams(types.MessageType.Info, text))


def _short_message(folder: str, counted: str) -> str:
    """Say that a folder was indexed. Example: ("shop", "2 files") -> `indexed shop (2 files)`."""
    room = _MAX_MESSAGE - len(f"indexed  ({counted})")
    return f"indexed {folder[:room]} ({counted})"


def _list_tables(registry: Registry, folder: Path, fingerprint: str) -> list[dict[str, Any]]:
    """Each table that the model can use, and whether it serves files in the folder."""
    serving = {table.name for table, _ in registry.tables_for(folder / "file", None)}
    return [
        {
            "name": table.name,
            "detail": f"{format_count(table.files, 'file')}, {', '.join(table.languages)}",
            "isUsed": table.name in serving,
        }
        for table in registry.tables()
        if table.fault is None and table.fingerprint == fingerprint
    ]


def _use_tables(registry: Registry, folder: Path, names: Sequence[str]) -> None:
    """Serve the folder from these tables only; without names, from those that fit."""
    registry.assign_workspace(folder, [(registry.find(name).name, None) for name in map(str, names)])
