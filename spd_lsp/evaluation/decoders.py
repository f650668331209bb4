"""All decoders by name: the two of the product and their baselines.

All have the signature of `superpose` and get the same n-grams, stop rule and ranking. In each pass `superposed`
reads one position per stream, `greedy` and `best-first` one, the others one per unfinished draft.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spd_lsp.decoding.decoders import DecodingFunction, decoder_for
from spd_lsp.decoding.superposed import DecodingRequest, DecodingResult, Model, superpose
from spd_lsp.evaluation.beam_search import Check, beam
from spd_lsp.evaluation.sampling import nucleus
from spd_lsp.settings import Settings


def _product_decoder(
    name: str, model: Model, start: DecodingRequest, settings: Settings, check: Check
) -> DecodingResult:
    """The decoder that a user gets by this value of the setting."""
    chosen = replace(settings, decoder=name)
    return decoder_for(model, chosen)(model, start, chosen, check)


def _greedy(model: Model, start: DecodingRequest, settings: Settings, check: Check) -> DecodingResult:
    """One draft, the most likely token at each step."""
    return superpose(model, start, replace(settings, drafts=1), check)


DECODERS: dict[str, DecodingFunction] = {
    "superposed": partial(_product_decoder, "superposed"),
    "best-first": partial(_product_decoder, "best-first"),
    "greedy": _greedy,
    "nucleus": nucleus,
    "beam": beam,
}
