"""What a session is configured with: the client is asked for it, and a model is loaded when another one is needed.

In: a session's server. Out: its settings, and a model that fits them. Nothing waits for clients without answers.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.capabilities import get_capability

from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION
from spd_lsp.completion.exclusions import OFF
from spd_lsp.lsp.options import SECTION, needs_reload, with_model_of
from spd_lsp.lsp.protocol import WorkDoneProgress, reply_or_none
from spd_lsp.lsp.request_scheduler import CancellationToken, CancelReason
from spd_lsp.lsp.status import LOADING, READY, SERVED, Status
from spd_lsp.models.checkpoint.hub import STARTER
from spd_lsp.settings import Settings, is_server

if TYPE_CHECKING:
    from spd_lsp.lsp.server import SpdServer

MAX_WAIT_FOR_CONFIGURATION = 0.5  # seconds; some clients answer no request
_SOURCE_FILES = f"**/*.{{{','.join(LANGUAGE_BY_EXTENSION)}}}"


def register_capabilities(ls: SpdServer) -> None:
    """Ask to be told of changed settings and of files that other programs change, where clients can be asked."""
    watchers = [{"globPattern": _SOURCE_FILES}]
    registrations = [
        types.Registration(method, method, options)
        for method, capability, options in (
            (types.WORKSPACE_DID_CHANGE_CONFIGURATION, "did_change_configuration", {"section": SECTION}),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, "did_change_watched_files", {"watchers": watchers}),
        )
        if get_capability(ls.client_capabilities, f"workspace.{capability}.dynamic_registration")
    ]
    if registrations:
        ls.client_register_capability(types.RegistrationParams(registrations))


async def configure_first(ls: SpdServer) -> None:
    """Load the model with the client's configuration; what comes late is applied when it comes."""
    pulling = asyncio.ensure_future(pull_configuration(ls))
    await asyncio.wait([pulling], timeout=MAX_WAIT_FOR_CONFIGURATION)
    loading = asyncio.ensure_future(configure(ls))
    await pulling
    await asyncio.gather(loading, configure(ls))


async def pull_configuration(ls: SpdServer) -> bool:
    """Request our section of the client's configuration; whether the client supports that."""
    if not get_capability(ls.client_capabilities, "workspace.configuration"):
        return False
    params = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
    if sections := await reply_or_none(ls.workspace_configuration_async(params)):
        ls.configuration.set_configuration(sections[0])
    return True


async def configure(ls: SpdServer) -> None:
    """Apply changed settings; reload the model only if they need another one, or loading had failed."""
    before = ls.settings
    ls.settings = ls.configuration.merged()
    for problem in ls.configuration.take_problems():
        ls.show_once(problem, types.MessageType.Warning)
    failed = ls.status.kind == "error" and ls.settings != before
    if not ls.settings.enabled and ls.model_settings is None:
        ls.status = Status("normal", OFF)
    elif needs_reload(ls.model_settings, ls.settings) or failed:
        await _reload(ls)
    elif ls.settings != before:
        ls.forget_results()
        ls.worker.executor.submit(ls.worker.apply_settings, ls.settings)
    ls.index_folders()


async def _reload(ls: SpdServer) -> None:
    """Load the model, or else keep the previous one, or else the bundled one; a newer call cancels this one."""
    ls.loading.cancel(CancelReason.SUPERSEDED)
    ls.loading = cancel = CancellationToken()
    ls.model_settings = ls.settings
    ls.forget_results()
    ls.status = Status("loading", LOADING)
    ls.loaded.clear()
    with closing(WorkDoneProgress(ls, "spd-lsp")) as progress:

        def report(text: str) -> None:
            ls.status.note_progress(text)
            progress.report(text)

        problem = await ls.worker.load(ls.settings, report, cancel)
        instead = ""
        if problem and cancel.reason is None and (fallback := _fallback(ls)):
            instead = f"{problem}; meanwhile completing with {fallback.model}"
            ls.show_once(instead)
            if ls.worker.has_model:
                ls.worker.executor.submit(ls.worker.apply_settings, fallback)
                problem = ""
            else:
                problem = await ls.worker.load(fallback, report, cancel)
    if cancel.reason is None:
        ready = SERVED if is_server((ls.worker.loaded_settings or ls.settings).model) else READY
        ls.status = Status("error", problem) if problem else Status("normal", ready, problem=instead)
        ls.show_once(problem)
        ls.recent.clear()  # answers of what stood in
        if ls.settings != ls.model_settings:  # changed meanwhile
            ls.worker.executor.submit(ls.worker.apply_settings, ls.settings)
        ls.worker.changes.reset()
        ls.index_changes()
        ls.loaded.set()


def _fallback(ls: SpdServer) -> Settings | None:
    """What to complete with where a model cannot be loaded: the model before it, or the bundled one."""
    if before := ls.worker.loaded_settings:
        return with_model_of(before, ls.settings)
    if ls.settings.model == STARTER:
        return None
    return replace(ls.settings, model=STARTER, device="auto", fill_format="auto")
