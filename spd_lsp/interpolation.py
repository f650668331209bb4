"""What n-gram tables say of the next token: p_ngram for k drafts at once, from several weighted tables.

Comes in: the ids of each draft with the text before it, and candidates. Goes out: probabilities. Knows no text.

Legend: K drafts, C candidates, N orders from 2 on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngram_builders.counts import HIGHEST_ORDER
from ngram_builders.layout import Columns
from ngram_builders.registry import Domain, Registry
from ngram_builders.tables import Table, query
from spd_lsp.settings import UserError

Floats = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]

LONGEST = HIGHEST_ORDER - 1  # tokens of context
LAMBDAS = np.array([0.01, 0.04, 0.15, 0.18, 0.12, 0, 0, 0])  # the paper's weights of orders 2 ... 6, appendix B
# How much a longer context is believed over all shorter ones and the model; chosen for the starter model on files
# that neither it nor any table has seen. A weaker model wants more, a stronger one less.
NEST_WEIGHTS = (0.005, 0.02, 0.1, 0.2, 0.3)
BUILT_IN_WEIGHT = 0.3  # against 0.7 for a person's own code: the best split measured on unseen packages


class Mixture:
    """Several pools of counts, heard as one; calling it gives p_ngram. A pool's members add their counts up."""

    def __init__(
        self, pools: Sequence[Sequence[Columns]], weights: Sequence[float], names: Sequence[str] = ()
    ) -> None:
        self.query = query(pools, weights)
        self.names = tuple(names)

    def __call__(self, histories: Sequence[Sequence[int]], candidates: Ids) -> Floats:
        """p_ngram(x) = sum_n lambda_n p_n(x | last n-1 tokens), section 3.2. -> [K, C].

        An order whose context no table has seen adds nothing, as in the paper.
        """
        p_n, _ = self.by_order(histories, candidates)
        return np.asarray(np.einsum("n,knc->kc", LAMBDAS, p_n))

    def nest(self, histories: Sequence[Sequence[int]], candidates: Ids, p: Floats) -> Floats:
        """Through ever longer contexts: p <- (1 - w_n) p + w_n p_n where the context was seen. [C] -> [K, C].

        Example: p .1, seen bigram context with p_2 .5 and w_2 .005 -> .102; an unseen context changes nothing.
        """
        p_n, heard = self.by_order(histories, candidates)
        nested = np.broadcast_to(p, (len(histories), len(candidates)))
        for place, weight in enumerate(NEST_WEIGHTS):
            w = weight * heard[:, place, None]  # [K, 1]
            nested = (1 - w) * nested + w * p_n[:, place]
        return nested

    def by_order(self, histories: Sequence[Sequence[int]], candidates: Ids) -> tuple[Floats, Floats]:
        """p_n, the mean over the pools that have seen the context, by their weights; and whether any has.

        -> [K, N, C] and [K, N], orders from 2 on.
        """
        p_n, heard = self.query.mean(last_tokens(histories, LONGEST), candidates)
        return p_n, (heard > 0).astype(float)

    def successors(self, histories: Sequence[Sequence[int]], n: int) -> Ids:
        """Up to n tokens of each pool that followed the longest known context of each history, each once."""
        return self.query.successors(last_tokens(histories, LONGEST), n)


def last_tokens(histories: Sequence[Sequence[int]], n: int) -> Ids:
    """The last n ids of each history, -1 where it is shorter. Example: [[5, 7]], 3 -> [[-1, 5, 7]]."""
    contexts = np.full((len(histories), n), -1, dtype=np.int64)
    for row, history in zip(contexts, histories, strict=True):
        tail = history[-n:]
        row[n - len(tail) :] = tail
    return contexts


class Domains:
    """The tables that serve a file: what the registry names for it, and the built-in one of its language.

    Tables are opened once and opened again when the registry says that something was rebuilt. What cannot be
    used is left out; `problems` says why.
    """

    def __init__(
        self,
        registry: Registry | None,
        fingerprint: str,
        built_in: dict[str, Path],
    ) -> None:
        self.registry = registry
        self.fingerprint = fingerprint
        self.built_in = built_in
        self.problems: list[str] = []
        self.generation: Hashable = None
        self.opened: dict[Path, Table | None] = {}

    def serving(self, file: Path | None, language: str | None) -> Mixture | None:
        """What is known of code like this file's, or None if no table serves it."""
        self.refresh()
        sources = [(domain.name, domain.path, weight) for domain, weight in self.chosen(file, language)]
        if language in self.built_in:
            sources.append((language, self.built_in[language], BUILT_IN_WEIGHT))
        found = [(name, table, weight) for name, path, weight in sources if (table := self.open(path))]
        if not found:
            return None
        names, tables, weights = zip(*found, strict=True)
        return Mixture([[table.columns] for table in tables], weights, names)

    def refresh(self) -> None:
        """Forget what was opened if anything was rebuilt, chosen or removed since."""
        if self.registry and (generation := self.registry.generation()) != self.generation:
            self.generation = generation
            self.opened = {}
            faults = [self.registry.fault(), *(domain.fault for domain in self.registry.domains())]
            self.problems = [fault for fault in faults if fault]

    def chosen(self, file: Path | None, language: str | None) -> list[tuple[Domain, float]]:
        """The registry's word, if there is a registry."""
        return self.registry.serving(file, language) if self.registry else []

    def open(self, path: Path) -> Table | None:
        """The table at a path, or None if it cannot be used."""
        if path not in self.opened:
            try:
                self.opened[path] = Table.open(path, fingerprint=self.fingerprint)
            except UserError as error:
                self.opened[path] = None
                self.problems.append(str(error))
        return self.opened[path]
