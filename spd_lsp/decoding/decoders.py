"""The decoders a user can choose between, all with the signature of `superpose`."""

from __future__ import annotations

from collections.abc import Callable

from spd_lsp.decoding.multi_stream import superpose_streams
from spd_lsp.decoding.rescoring import rescore
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Model, superpose
from spd_lsp.settings import Settings

Decoder = Callable[[Model, DecodingRequest, Settings, Callable[[], None]], DecodingResult]


def superposed(
    model: Model, request: DecodingRequest, settings: Settings, check: Callable[[], None]
) -> DecodingResult:
    """Superposed drafts, in as many streams as the settings say."""
    return (superpose if settings.streams == 1 else superpose_streams)(model, request, settings, check)


DECODERS: dict[str, Decoder] = {"superposed": superposed, "rescored": rescore}
