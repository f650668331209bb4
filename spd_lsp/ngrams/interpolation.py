"""What n-gram tables say of the next token: p_ngram for k drafts at once, from several weighted tables.

Comes in: the ids of each draft with the text before it, and candidates. Goes out: probabilities. Knows no text.

Legend: K drafts, C candidates, N orders from 2 on.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import Floats, Ids
from ngram_builders.counting.token_cache import read_indexed_files
from ngram_builders.errors import UserError
from ngram_builders.ngrams import HIGHEST_ORDER, ORDERS
from ngram_builders.registry.domains import DEFAULT_WEIGHT, Domain
from ngram_builders.registry.fitted_weights import read_fitted_weights
from ngram_builders.registry.model_match import covering_domains, mismatch_message
from ngram_builders.registry.registry import Registry, file_stamp
from ngram_builders.table.format import Columns
from ngram_builders.table.order_weights import OrderWeights, longest_match
from ngram_builders.table.query import Query
from ngram_builders.table.reader import Table
from spd_lsp.ngrams.auto_rebuild import Rebuilder, outdated_message
from spd_lsp.ngrams.live_index import LiveIndex
from spd_lsp.settings import Settings

Histories = Sequence[Sequence[int]] | Ids

MAX_CONTEXT = HIGHEST_ORDER - 1  # tokens of context
PAPER_LAMBDAS = np.array(
    [0.01, 0.04, 0.15, 0.18, 0.12, 0, 0, 0]
)  # the paper's weights of orders 2 ... 6, appendix B
# How much each order is believed beside the model: a row for each longest context seen. Fitted by expectation
# maximisation for the starter model on packages that neither it nor any table had seen, for each on the others:
# perplexity 16.7 without n-grams, 9.5 so. A stronger model wants less; `spd-lsp ngrams tune` finds out.
ORDER_WEIGHTS = (
    (0.089,),
    (0.048, 0.090),
    (0.030, 0.090, 0.102),
    (0.019, 0.056, 0.119, 0.092),
    (0.005, 0.035, 0.075, 0.123, 0.383),
)
OPEN_FILES = "open files"  # what they say stands beside the domains under this name
BUILT_IN_WEIGHT = 0.1  # against 0.7 for a person's own code: less surprised on unseen packages than with more


class Mixture:
    """Several pools of counts, heard as one; calling it gives p_ngram. A pool's members add their counts up."""

    def __init__(
        self,
        pools: Sequence[Sequence[Columns]],
        weights: Sequence[float],
        names: Sequence[str] = (),
        order_weights: Sequence[Sequence[float]] = ORDER_WEIGHTS,
    ) -> None:
        self.query = Query(pools, weights)
        self.names = tuple(names)
        self.order_weights = expand_order_weights(order_weights)
        self.model_weight = 1 - self.order_weights.sum(axis=1, keepdims=True)  # what the model keeps
        self.reach = MAX_CONTEXT

    def adjusted(self, trust: float, longest: int) -> Mixture:
        """The same tables with their odds beside the model times `trust`, and no n-gram longer than `longest`.

        Example: trust 2, a row that gives them a half in all -> two thirds, shared among orders as before.
        """
        if trust == 1 and longest >= ORDERS[-1]:
            return self
        other = copy(self)
        other.order_weights = (
            trust
            * self.order_weights
            / (self.model_weight + trust * self.order_weights.sum(axis=1, keepdims=True))
        )
        other.model_weight = 1 - other.order_weights.sum(axis=1, keepdims=True)
        other.reach = longest - 1
        return other

    def with_order_weights(self, order_weights: Sequence[Sequence[float]]) -> Mixture:
        """The same tables, believed as other rows say."""
        other = copy(self)
        other.order_weights = expand_order_weights(order_weights)
        other.model_weight = 1 - other.order_weights.sum(axis=1, keepdims=True)
        return other

    def contexts(self, histories: Histories) -> Ids:
        """The tokens that tables are asked with, -1 before them. -> [K, MAX_CONTEXT]."""
        contexts = last_tokens(histories, MAX_CONTEXT)
        if self.reach < MAX_CONTEXT:
            contexts = contexts.copy()
            contexts[:, : MAX_CONTEXT - self.reach] = -1
        return contexts

    def __call__(self, histories: Histories, candidates: Ids) -> Floats:
        """p_ngram(x) = sum_n lambda_n p_n(x | last n-1 tokens), section 3.2. -> [K, C].

        An order whose context no table has seen adds nothing, as in the paper.
        """
        p_n, _ = self.by_order(histories, candidates)
        return np.asarray(np.einsum("n,knc->kc", PAPER_LAMBDAS, p_n))

    def mix(self, histories: Histories, candidates: Ids, p: Floats) -> Floats:
        """p <- (1 - sum_n w[m, n]) p + sum_n w[m, n] p_n, m the highest order seen of a history.

        [C] or [K, C] -> [K, C].

        Example: p .1, of a history only the bigram context seen, with p_2 .5 and w[2, 2] .09 -> .136.
        """
        p_n, heard = self.query.probabilities(self.contexts(histories), candidates)
        m = longest_match(heard)
        return np.asarray(self.model_weight[m] * p + np.matmul(self.order_weights[m, None], p_n)[:, 0])

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """The n likeliest tokens by p [V] and the `successors`, and `nest` of them, in one call: [C], [K, C].

        Where p is below 0 a token may not follow.
        """
        contexts = self.contexts(histories)
        return self.query.mix_candidates(
            contexts, np.ascontiguousarray(p, dtype=np.float32), n, self.order_weights
        )

    def by_order(self, histories: Histories, candidates: Ids) -> tuple[Floats, Floats]:
        """p_n, the mean over the pools that have seen the context, by their weights; and whether any has.

        -> [K, N, C] and [K, N], orders from 2 on.
        """
        p_n, heard = self.query.probabilities(self.contexts(histories), candidates)
        return p_n, (heard > 0).astype(float)

    def successors(self, histories: Histories, n: int) -> Ids:
        """Up to n tokens of each pool that followed the longest known context of each history, each once."""
        return self.query.successors(self.contexts(histories), n)


def expand_order_weights(rows: Sequence[Sequence[float]]) -> npt.NDArray[np.float64]:
    """Weights for every longest order, none (row 0) included: orders beyond the last row are believed like it."""
    table: npt.NDArray[np.float64] = np.zeros((MAX_CONTEXT + 1, MAX_CONTEXT))
    for m in range(1, MAX_CONTEXT + 1):
        row = rows[min(m, len(rows)) - 1]
        table[m, : len(row)] = row
    return table


def last_tokens(histories: Histories, n: int) -> Ids:
    """The last n ids of each history, -1 where it is shorter. Example: [[5, 7]], 3 -> [[-1, 5, 7]]."""
    if isinstance(histories, np.ndarray) and histories.shape[1] >= n:
        return histories[:, -n:]
    contexts = np.full((len(histories), n), -1, dtype=np.int64)
    for row, history in zip(contexts, histories, strict=True):
        tail = history[-n:]
        row[n - len(tail) :] = tail
    return contexts


def adjusted(mixture: Mixture | None, settings: Settings) -> Mixture | None:
    """A mixture as the settings want it heard."""
    return mixture and mixture.adjusted(settings.ngram_weight, settings.max_order)


class Domains:
    """The tables that serve a file: what the registry names for it, and the built-in one of its language.

    Tables are opened once and opened again when the registry says that something was rebuilt, or their files were
    written over. What cannot be used is left out; `problems` says why. With `live`, what was edited since a table
    was built counts as well, and what is open; with `rebuilder`, a table that fell far behind is replaced.
    """

    def __init__(
        self,
        registry: Registry | None,
        fingerprint: str,
        built_in: dict[str, Path],
        live: LiveIndex | None = None,
        rebuilder: Rebuilder | None = None,
        model: str = "",
        order_weights: OrderWeights = ORDER_WEIGHTS,
    ) -> None:
        self.registry = registry
        self.fingerprint = fingerprint
        self.built_in = built_in
        self.live = live
        self.rebuilder = rebuilder
        self.model = model  # whose fitted weights are used
        self.default_weights = order_weights  # where a table has none fitted for the model
        self.problems: list[str] = []
        self.generation: Hashable = None
        self.opened: dict[Path, Table | None] = {}
        self.marks: dict[Path, Hashable] = {}  # of the tables' files, as they were
        self.fits: dict[Path, dict[str, OrderWeights]] = {}

    def mixture_for(self, file: Path | None, language: str | None) -> Mixture | None:
        """What is known of code like this file's, or None if nothing is."""
        for _ in range(2):  # a build may replace a table between the registry's word and its opening
            self.refresh()
            chosen = [(domain, weight, self.open(domain.path)) for domain, weight in self.chosen(file, language)]
            if all(table for _, _, table in chosen):
                break
        found: list[tuple[str, Sequence[Columns], float]] = []
        rows = None
        for domain, weight, table in chosen:
            if table:
                rows = rows or self.fitted(domain)
                found.append((domain.name, (table.columns, *self.changes(domain)), weight))
        if language in self.built_in and (table := self.open(self.built_in[language])):
            taken = any(name == language for name, _, _ in found)
            found.append((f"{language} (built in)" if taken else language, (table.columns,), BUILT_IN_WEIGHT))
        if self.live and (columns := self.live.open_files(language)):
            found.append((OPEN_FILES, columns, DEFAULT_WEIGHT))
        if not found:
            return None
        names, pools, weights = zip(*found, strict=True)
        return Mixture(pools, weights, names, rows or self.default_weights)

    def fitted(self, domain: Domain) -> OrderWeights | None:
        """The weights fitted for this domain and model, if any were."""
        home = domain.path.parent
        if home not in self.fits:
            self.fits[home] = read_fitted_weights(home)
        return self.fits[home].get(self.model)

    def changes(self, domain: Domain) -> Sequence[Columns]:
        """What changed since a domain's table was built."""
        if self.live is None:
            return ()
        return self.live.columns(
            domain, lambda: read_indexed_files(domain.path.parent, domain.path.name, self.fingerprint)
        )

    def run_idle_work(self, seconds: float) -> bool:
        """Bring the changes up to date for about so long, while nobody waits; whether there is more to do."""
        if self.live is None:
            return False
        more, outgrown = self.live.run_idle_work(seconds), self.live.outgrown()
        problems = [outdated_message(domain) for domain in outgrown]
        if self.rebuilder is not None:
            self.rebuilder.update(outgrown)
            problems = self.rebuilder.problems
        for problem in problems:
            self.tell(problem)
        return more

    def refresh(self) -> None:
        """Forget what was opened if anything was rebuilt, chosen, removed or written over since."""
        generation = self.registry.generation() if self.registry else None
        kept = all(file_stamp(path) == found for path, found in self.marks.items())
        if kept and generation == self.generation:
            return
        self.generation = generation
        self.opened, self.marks, self.fits = {}, {}, {}
        if self.registry:
            if not kept:
                self.registry.latest = None  # it knows no table's file, only that none was replaced
            domains = self.registry.domains()
            self.marks = {domain.path: file_stamp(domain.path) for domain in domains}
            self.problems = [fault for fault in (self.registry.fault(), *(one.fault for one in domains)) if fault]
            if self.live:
                self.live.keep(domain.name for domain in domains)

    def chosen(self, file: Path | None, language: str | None) -> list[tuple[Domain, float]]:
        """The registry's word, if there is a registry, without the tables of other models' tokens.

        Those are told only where this model has no table of the same sources.
        """
        named = self.registry.domains_for(file, language) if self.registry else []
        fitting = [(domain, weight) for domain, weight in named if domain.fingerprint == self.fingerprint]
        for domain, _ in named:
            if domain.fingerprint != self.fingerprint and not covering_domains(
                [one for one, _ in fitting], domain
            ):
                self.tell(mismatch_message(domain, self.model or "this model"))
        return fitting

    def tell(self, problem: str) -> None:
        """Note a problem once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def open(self, path: Path) -> Table | None:
        """The table at a path, or None if it cannot be used."""
        if path not in self.opened:
            self.marks[path] = file_stamp(path)
            try:
                table = Table.open(path, fingerprint=self.fingerprint)
                _ = table.columns  # read into memory now, where mapping is not safe
                self.opened[path] = table
            except UserError as error:
                self.opened[path] = None
                self.tell(str(error))
        return self.opened[path]
