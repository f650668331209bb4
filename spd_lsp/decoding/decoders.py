"""The decoders a user can choose between, all with the signature of `superpose`."""

from __future__ import annotations

from collections.abc import Callable

from spd_lsp.decoding.multi_stream import superpose_streams
from spd_lsp.decoding.rescoring import rescore
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Model, superpose
from spd_lsp.settings import Settings

DecodingFunction = Callable[[Model, DecodingRequest, Settings, Callable[[], None]], DecodingResult]


def choose_decoder(settings: Settings) -> DecodingFunction:
    """Return the decoder that the settings name: superposed drafts share `streams` rows, one if that is 0."""
    if settings.decoder == "superposed":
        return superpose if settings.streams <= 1 else superpose_streams
    return rescore
