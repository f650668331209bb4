"""What the server asks of its client: its configuration, and to be told of changes. Nothing waits for the answers.

In: a session's server. Out: what the client answered, if it did.
"""

from __future__ import annotations

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.lsp.server import LanguageServer

from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION
from spd_lsp.lsp.options import SECTION, Configuration
from spd_lsp.lsp.protocol import reply_or_none

_SOURCE_FILES = f"**/*.{{{','.join(LANGUAGE_BY_EXTENSION)}}}"


async def pull_configuration(ls: LanguageServer, configuration: Configuration) -> bool:
    """Request our section of the client's configuration; whether the client supports that."""
    if not get_capability(ls.client_capabilities, "workspace.configuration"):
        return False
    params = types.ConfigurationParams([types.ConfigurationItem(section=SECTION)])
    if sections := await reply_or_none(ls.workspace_configuration_async(params)):
        configuration.set_configuration(sections[0])
    return True


def register_capabilities(ls: LanguageServer) -> None:
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
