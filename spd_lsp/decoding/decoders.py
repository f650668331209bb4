"""The decoders a user can choose between, all with the signature of `superpose`."""

from __future__ import annotations

from collections.abc import Callable

from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.multi_stream import superpose_streams
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Model, superpose
from spd_lsp.settings import Settings

DecodingFunction = Callable[[Model, DecodingRequest, Settings, Callable[[], None]], DecodingResult]


def choose_decoder(settings: Settings, *, forks_are_free: bool = False) -> DecodingFunction:
    """Return the decoder that the settings name; `auto` is best-first where a model can go on from any draft.

    But for what only superposed drafts have: the paper's formula and ranking, streams and resets.
    """
    is_plain = (settings.interpolation, settings.ranking) == ("linear", "probability")
    is_plain = is_plain and settings.streams <= 1 and not settings.reset_every
    if settings.decoder == "best-first" or (settings.decoder == "auto" and forks_are_free and is_plain):
        return best_first
    return superpose if settings.streams <= 1 else superpose_streams
