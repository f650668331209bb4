"""Ways to write drafts, all with the signature of `superpose`: for comparison, and as a setting.

`superposed` reads one position a pass for each stream that drafts share, `greedy` one; `verified` reads drafts of
one stream once more, in one pass; the others read one position for each draft that is not finished. All get the
same n-grams, stop rule and ranking.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spd_lsp.decoding.beam import beam, branches
from spd_lsp.decoding.multi_stream import streams
from spd_lsp.decoding.rescoring import verified
from spd_lsp.decoding.sampling import nucleus, nucleus_superposed
from spd_lsp.decoding.superposed import Drafts, Model, Start, superpose
from spd_lsp.settings import Settings

Check = Callable[[], None]
Decoder = Callable[[Model, Start, Settings, Check], Drafts]


def greedy(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """One draft, the most likely token at each step."""
    return superpose(model, start, replace(settings, drafts=1), check)


def superposed(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """k drafts that share their passes, and the rows of these."""
    return (superpose if settings.streams == 1 else streams)(model, start, settings, check)


DECODERS: dict[str, Decoder] = {
    "superposed": superposed,
    "verified": verified,
    "greedy": greedy,
    "nucleus": nucleus,
    "beam": beam,
    "branches": branches,
    "nucleus-superposed": nucleus_superposed,
}
