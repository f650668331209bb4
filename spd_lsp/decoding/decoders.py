"""The decoders a user can choose between, all with the signature of `superpose`."""

from __future__ import annotations

from collections.abc import Callable

from spd_lsp.decoding.multi_stream import streams
from spd_lsp.decoding.rescoring import rescored
from spd_lsp.decoding.superposed import Drafts, Model, Start, superpose
from spd_lsp.settings import Settings

Decoder = Callable[[Model, Start, Settings, Callable[[], None]], Drafts]


def superposed(model: Model, start: Start, settings: Settings, check: Callable[[], None]) -> Drafts:
    """k drafts that share their passes, and the rows of these."""
    return (superpose if settings.streams == 1 else streams)(model, start, settings, check)


DECODERS: dict[str, Decoder] = {"superposed": superposed, "rescored": rescored}
