"""Ways to write drafts, all with the signature of `superpose`: for comparison, and as a setting.

`superposed` and `greedy` read one position a pass; `verified` reads superposed drafts once more, in one pass;
`streams` reads one position for each stream; the others read one for each draft that is not finished. All get the
same n-grams, stop rule and ranking.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spd_lsp.beam import beam, branches
from spd_lsp.drafts import Drafts, Model, Start, superpose
from spd_lsp.sampling import nucleus, nucleus_superposed
from spd_lsp.settings import Settings
from spd_lsp.streams import streams
from spd_lsp.verification import verified

Check = Callable[[], None]
Decoder = Callable[[Model, Start, Settings, Check], Drafts]


def greedy(model: Model, start: Start, settings: Settings, check: Check) -> Drafts:
    """One draft, the most likely token at each step."""
    return superpose(model, start, replace(settings, drafts=1), check)


DECODERS: dict[str, Decoder] = {
    "superposed": superpose,
    "verified": verified,
    "greedy": greedy,
    "nucleus": nucleus,
    "beam": beam,
    "branches": branches,
    "nucleus-superposed": nucleus_superposed,
    "streams": streams,
}
