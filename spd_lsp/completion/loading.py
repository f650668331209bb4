"""From settings to a completer, whoever asks for completions: the model, its tokenizer and the n-gram tables.

What is slow to import is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spd_lsp.models import hub
from spd_lsp.settings import Settings, is_server

if TYPE_CHECKING:
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.model_server import ModelServer

NOT_SUPERPOSED = "superposed drafts need the model in this process"


def load_completer(
    settings: Settings,
    report: Callable[[str], None],
    *,
    ngrams: bool = True,
    open_model: Callable[..., Any] | None = None,
    open_tokens: Callable[[Path, str], ModelTokenizer] | None = None,
) -> Completer:
    """Make a completer from its parts; several may share a model and its tokenizer.

    Takes seconds: imports torch for most models, and reads the weights.
    """
    from ngram_builders.programs import python
    from ngram_builders.registry.registry import Registry
    from spd_lsp.completion.completer import Completer
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.models.load import load
    from spd_lsp.ngrams.background_process import Rebuilder
    from spd_lsp.ngrams.serving_tables import OpenFiles, ServingTables

    registry = Registry(Path(settings.data_dir) if settings.data_dir else None)
    server: ModelServer | None = None
    if is_server(settings.model):  # which need not answer yet
        from spd_lsp.models.model_server import ModelServer, key_in

        report(f"{settings.model} is asked for whole drafts: {NOT_SUPERPOSED}")
        server = ModelServer(settings.model, key_in(registry.folder))
    place = hub.locate(settings.model, report)
    fill_format = "auto" if server else settings.fill_format
    model = (open_model or load)(place, settings.device, report)
    tokens = (open_tokens or ModelTokenizer)(place, fill_format)
    tables = ServingTables(None, tokens.fingerprint)
    if ngrams:
        data = ("--data-dir", str(registry.folder.absolute()))
        rebuild = python("spd_lsp", *data, "ngrams", "rebuild", "--end-with-input")
        rebuilder = Rebuilder(lambda table: (*rebuild, table.name)) if settings.indexing != "off" else None
        name = hub.STARTER if server else hub.absolute_model_name(settings.model)
        tables = ServingTables(registry, tokens.fingerprint, OpenFiles(tokens), rebuilder, name)
    languages = None if server else hub.known_languages(place)
    tuned = partial(_with_shipped, shipped=hub.shipped_settings(settings.model, place))
    return Completer(model, tokens, tables, settings, tuned, languages, server)


def _with_shipped(settings: Settings, shipped: Mapping[str, int]) -> Settings:
    """Return the settings with defaults replaced by those that a model was made for."""
    defaults = Settings()
    unset: dict[str, Any] = {
        name: value for name, value in shipped.items() if getattr(settings, name) == getattr(defaults, name)
    }
    return replace(settings, **unset)
