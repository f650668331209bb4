"""The decoders a user can choose between, all with the signature of `superpose`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.multi_stream import superpose_streams
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Model, superpose
from spd_lsp.decoding.without_model import without_model
from spd_lsp.settings import Settings

DecodingFunction = Callable[[Model, DecodingRequest, Settings, Callable[[], None]], DecodingResult]


def settings_for(settings: Settings, *, second_row_is_free: bool, forks_are_free: bool) -> Settings:
    """Return the settings with a decoder and a number of streams that suit the model, where they leave it open.

    Only superposed drafts have streams, resets, and the paper's formula and ranking.
    """
    automatic = 2 if second_row_is_free and settings.drafts > 1 else 1
    settings = replace(settings, streams=settings.streams or automatic)
    if settings.decoder != "auto":
        return settings
    is_plain = (settings.interpolation, settings.ranking) == ("linear", "probability")
    is_best_first = forks_are_free and is_plain and settings.streams == 1 and not settings.reset_every
    return replace(settings, decoder="best-first" if is_best_first else "superposed")


def choose_decoder(settings: Settings) -> DecodingFunction:
    """Return the decoder that the settings name: superposed drafts share `streams` rows, one if that is 0."""
    if settings.decoder == "best-first":
        return best_first
    return superpose if settings.streams <= 1 else superpose_streams


def decoder_for(model: object, settings: Settings) -> DecodingFunction:
    """Return the decoder that the settings name; where no model predicts, n-grams alone are asked, at no pass."""
    chosen = choose_decoder(settings)
    return chosen if getattr(model, "predicts", True) else partial(_decode_alone, chosen)


def _decode_alone(
    decode: DecodingFunction,
    model: Model,
    request: DecodingRequest,
    settings: Settings,
    check: Callable[[], None],
) -> DecodingResult:
    request = without_model(request, cast(Any, model).end_of_text)
    result = decode(model, request, replace(settings, interpolation="linear"), check)
    return replace(result, passes=0, rows=0)
