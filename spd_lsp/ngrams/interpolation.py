"""What n-gram tables say of the next token: p_ngram for k drafts at once, from several weighted tables.

Comes in: the ids of each draft with the text before it, and candidates. Goes out: probabilities. Knows no text.

Legend: W pools, K drafts, C candidates, N orders from 2 on, M longest orders seen, from none on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import F64, Floats, Ids
from ngram_builders.counting.token_cache import read_indexed_files
from ngram_builders.errors import UserError
from ngram_builders.ngrams import HIGHEST_ORDER, ORDERS
from ngram_builders.registry.domains import DEFAULT_WEIGHT, Domain, file_stamp
from ngram_builders.registry.fitted_weights import read_fitted_weights
from ngram_builders.registry.model_match import covering_domains, mismatch_message
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.language_ids import closest_language, related_languages
from ngram_builders.table.format import Columns, TableError
from ngram_builders.table.order_weights import OrderWeights, expand_order_weights, scale_odds
from ngram_builders.table.query import open_query
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import Place, Rewriting, SearchedTexts, find_places
from spd_lsp.ngrams.auto_rebuild import Rebuilder, outdated_message
from spd_lsp.ngrams.live_index import LiveIndex
from spd_lsp.settings import Settings

Histories = Sequence[Sequence[int]] | Ids

MAX_CONTEXT = HIGHEST_ORDER - 1  # tokens of context
PAPER_LAMBDAS = np.array(
    [0.01, 0.04, 0.15, 0.18, 0.12, 0, 0, 0]
)  # the paper's weights of orders 2 ... 6, appendix B
# Weight of each n-gram order beside a model that is sure of nothing (`doubt` 1), one row for each longest matched
# context. Fitted by expectation maximisation beside the starter, on packages that neither it nor any table had
# seen, before there was doubt; `spd-lsp ngrams tune` fits others, and knows of it.
ORDER_WEIGHTS = (
    (0.089,),
    (0.048, 0.090),
    (0.030, 0.090, 0.102),
    (0.019, 0.056, 0.119, 0.092),
    (0.005, 0.035, 0.075, 0.123, 0.383),
)
_TINY = 1e-300
OPEN_FILES = "open files"  # the name under which their counts are listed beside the domains
BUILT_IN_WEIGHT = 0.1  # against 0.7 for the user's own code; more raises perplexity on unseen packages


class Mixture:
    """A weighted mixture of pools of counts; calling it gives p_ngram. Counts within a pool are summed."""

    def __init__(
        self,
        pools: Sequence[Sequence[Columns]],
        weights: Sequence[float],
        names: Sequence[str] = (),
        order_weights: Sequence[OrderWeights] = (ORDER_WEIGHTS,),
        texts: Sequence[SearchedTexts] = (),
    ) -> None:
        """`order_weights`: of each pool, or one for all."""
        self.texts = texts
        self.query = open_query(pools, weights)
        self.names = tuple(names)
        expanded = [expand_order_weights(rows) for rows in order_weights]
        of_pools = zip(weights, expanded if len(expanded) > 1 else expanded * len(weights), strict=True)
        self.order_weights = np.stack([rows for weight, rows in of_pools if weight > 0] or expanded)  # [W, M, N]
        self.reach = MAX_CONTEXT

    def adjusted(self, factor: float, longest: int) -> Mixture:
        """Return the mixture with `factor` times the odds against the model, and n-grams of `longest` at most."""
        if factor == 1 and longest >= ORDERS[-1]:
            return self
        other = copy(self)
        other.order_weights = scale_odds(self.order_weights, factor)
        other.reach = longest - 1
        return other

    def places(self, history: Sequence[int], follow: int, rewritings: Iterable[Rewriting] = ()) -> list[Place]:
        """Return where the end of a history stands in the texts that were counted: see `find_places`."""
        return find_places(self.texts, history, follow, rewritings)

    def with_order_weights(self, order_weights: OrderWeights) -> Mixture:
        """Return the mixture with other order weights, the same for all pools."""
        other = copy(self)
        other.order_weights = np.repeat(expand_order_weights(order_weights)[None], len(self.order_weights), 0)
        return other

    def contexts(self, histories: Histories) -> Ids:
        """Return the contexts to look up, padded with -1. -> [K, MAX_CONTEXT]"""
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

        Candidates each once; p [C] or [K, C] -> [K, C]. Where pools have order weights of their own, w is the mean
        of those that have seen m. The odds of w are multiplied by the model's `doubt`, which the largest p says.

        Example: p .1, of a history only the bigram context seen, with p_2 .5 and w[2, 2] .09 -> .133.
        """
        contexts, p = self.contexts(histories), np.asarray(p)
        if p.ndim == 1:
            return self.query.mix(contexts, candidates, p, self._beside(p.max(initial=0.0)))
        mixed = [
            self.query.mix(context, candidates, row, self._beside(row.max(initial=0.0)))
            for context, row in zip(contexts[:, None], p, strict=True)
        ]
        return np.concatenate(mixed)

    def mix_top(self, histories: Histories, p: Floats, n: int) -> tuple[Ids, Floats]:
        """Return the top n tokens of p [V] and the `successors`, and `mix` of them, in one call: [C], [K, C].

        Where p is below 0 a token may not follow.
        """
        contexts, p = self.contexts(histories), np.ascontiguousarray(p, dtype=np.float32)
        top = p.max(initial=0.0) / max(np.maximum(p, 0).sum(), _TINY)
        return self.query.mix_candidates(contexts, p, n, self._beside(top))

    def _beside(self, top: npt.ArrayLike) -> F64:
        """The order weights beside a model whose likeliest token has this probability. [W, M, N]"""
        return scale_odds(self.order_weights, float(doubt(top)))

    def by_order(self, histories: Histories, candidates: Ids) -> tuple[Floats, Floats]:
        """Return p_n, the weighted mean over the pools that have seen the context, and whether any has.

        -> [K, N, C] and [K, N], orders from 2 on.
        """
        p_n, matched = self.query.probabilities(self.contexts(histories), candidates)
        return p_n, (matched > 0).astype(float)

    def successors(self, histories: Histories, n: int) -> Ids:
        """Return up to n tokens per pool and history that followed its longest known context, each once."""
        return self.query.successors(self.contexts(histories), n)


def doubt(top: npt.ArrayLike) -> F64:
    """What the odds of n-grams beside a model are multiplied by, where its likeliest token has this probability.

    So a model's strength is measured at every token: a good one is more often sure. With the starter, SmolLM2 and
    Qwen2.5-Coder this one rule gives lines a higher likelihood than the best constant of each.
    Example: a row whose weights sum to 1/2, beside a token of .9 -> 1/11.
    """
    return np.asarray(np.maximum(1 - np.asarray(top, dtype=np.float64), 0.0))


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
    """Return the mixture with the weight and the longest order of the settings."""
    return mixture and mixture.adjusted(settings.ngram_weight, settings.max_order)


def _folders_in(home: Path) -> list[Path]:
    """A folder and those in it."""
    try:
        return [home, *(path for path in home.iterdir() if path.is_dir())]
    except OSError:
        return [home]


def _changed_at(folder: Path) -> int:
    """When a file was last put into a folder; 0 without the folder."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class ServingTable:
    """An open table that serves a file, in one file or in several whose counts add up."""

    name: str
    weight: float
    files: tuple[Table, ...]
    domain: Domain | None = None  # None: the table is built in

    @property
    def columns(self) -> tuple[Columns, ...]:
        """The counts in its files."""
        return tuple(file.columns for file in self.files)


class Domains:
    """The tables that serve a file: what the registry names for it, and the built-in one of its language.

    Tables are opened once and opened again when the registry says that something was rebuilt, or their files were
    written over. `run_idle_work` looks for that, and so does a request for another file than the last one, or once
    the registry's folders changed: the tables chosen for a file are kept until then, and their mixture until the
    live index changes. What cannot be used is left out; `problems` says why. With `live`, what was edited since a
    table was built counts as well, and what is open; with `rebuilder`, a table that fell far behind is replaced.
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
        self.reloads = 0
        self.opened: dict[Path, Table | None] = {}
        self.stamps: dict[Path, Hashable] = {}  # of the tables' files, as they were
        self.folders: dict[Path, int] = {}  # the registry's, and when they changed
        self.fitted_weights: dict[Path, dict[str, OrderWeights]] = {}
        self.file: tuple[Path | None, str | None] | None = None  # of the last request, with its language
        self.asked: tuple[Path | None, str | None] | None = None  # the same, also while its tables are not open
        self.tables: list[ServingTable] = []  # for that file
        self.pools: list[tuple[Columns, ...]] = []  # those tables with the changes since, as mixed
        self.followed = 0  # the live index's revision then
        self.mixture: Mixture | None = None

    def mixture_for(self, file: Path | None, language: str | None) -> Mixture | None:
        """Return the mixture for a file, or None if no table and no open file is about such code."""
        if any(_changed_at(folder) != then for folder, then in self.folders.items()):
            self.reload_if_changed()
        if self.file != (file, language):
            self.tables, self.pools = self._tables_for(file, language), []
            self.file = self.asked = file, language
        pools = [(*one.columns, *(self.changes(one.domain) if one.domain else ())) for one in self.tables]
        if self.live and (columns := self.live.open_files(language)):
            pools.append(columns)
        followed = self.live.revision if self.live else 0  # a table's texts are searched once its files are known
        if (pools, followed) != (self.pools, self.followed):
            self.pools, self.followed, self.mixture = pools, followed, self._mix(pools)
        return self.mixture if pools else None

    def know(self, language: str | None) -> bool:
        """Whether a table of the last request's file holds code in this language; open files do not count."""
        wanted = related_languages(language or "")
        held = (one.domain.languages if one.domain else [language] for one in self.tables)
        return any(not languages or not wanted.isdisjoint(languages) for languages in held)

    def _mix(self, pools: Sequence[Sequence[Columns]]) -> Mixture:
        """Return the mixture of the file's tables and of the open files, the last pool if there is one more."""
        names, weights = [one.name for one in self.tables], [one.weight for one in self.tables]
        if len(pools) > len(self.tables):
            names.append(OPEN_FILES)
            weights.append(DEFAULT_WEIGHT)
        return Mixture(pools, weights, names, self._order_weights(len(pools)), self._searched_texts())

    def _order_weights(self, pools: int) -> Sequence[OrderWeights]:
        """Those fitted for each table, or one for all; what has none takes the first: they suit the model."""
        fitted = [self.fitted(one.domain) if one.domain else None for one in self.tables]
        first = next(filter(None, fitted), self.default_weights)
        of_pools = [one or first for one in [*fitted, None][:pools]]
        return of_pools if any(one != first for one in of_pools) else [first]

    def _searched_texts(self) -> list[SearchedTexts]:
        """The texts of the file's tables as they are now, and of the open files."""
        if self.live is None or self.file is None:
            return []
        synced, unassigned, language = self.live.synced, self.live.unassigned, self.file[1]
        served = (
            (synced[one.domain.name], one) for one in self.tables if one.domain and one.domain.name in synced
        )
        found = [
            sync.ledger.searched_texts([file.texts for file in one.files], sync.contents.documents)
            for sync, one in served
        ]
        found += [ledger.searched_texts() for kin, ledger in unassigned.items() if language in kin]
        return list(chain.from_iterable(found))

    def _tables_for(self, file: Path | None, language: str | None) -> list[ServingTable]:
        """Return the registry's tables for a file, then the built-in one."""
        for _ in range(2):  # a build may replace a table before it is opened
            self.reload_if_changed()
            chosen = [
                (domain, weight, self._open_files(domain)) for domain, weight in self._domains_for(file, language)
            ]
            if all(files for _, _, files in chosen):
                break
        tables = [ServingTable(domain.name, weight, files, domain) for domain, weight, files in chosen if files]
        name = closest_language(language, self.built_in)
        if name and (built_in := self._open(self.built_in[name])):
            name = f"{name} (built in)" if any(table.name == name for table in tables) else name
            tables.append(ServingTable(name, BUILT_IN_WEIGHT, (built_in,)))
        return tables

    def fitted(self, domain: Domain) -> OrderWeights | None:
        """Return the order weights fitted for this domain and model, if any."""
        home = domain.path.parent
        if home not in self.fitted_weights:
            self.fitted_weights[home] = read_fitted_weights(home)
        return self.fitted_weights[home].get(self.model)

    def changes(self, domain: Domain) -> Sequence[Columns]:
        """Return the counts of what changed since a domain's table was built."""
        if self.live is None:
            return ()
        return self.live.columns(
            domain, lambda: read_indexed_files(domain.path.parent, domain.layers, self.fingerprint)
        )

    @property
    def revision(self) -> int:
        """Changes with the tables, and with the files that changed since; edits of open files do not count."""
        return self.reloads + (self.live.revision if self.live else 0)

    def run_idle_work(self, seconds: float) -> bool:
        """Index changes for about this long, look for other tables, start due rebuilds; whether there is more."""
        more = self.live is not None and self.live.run_idle_work(seconds)
        if not more:  # it costs up to milliseconds where hundreds of packages have tables
            self.reload_if_changed()
            if self.file is None and self.asked:  # so the next request finds new tables open, and up to date
                self.mixture_for(*self.asked)
        if self.live is None:
            return False
        more = more or self.live.next_work() is not None
        outgrown = self.live.outdated_domains()
        problems = [outdated_message(domain) for domain in outgrown]
        if self.rebuilder is not None:
            self.rebuilder.update(outgrown)
            problems = self.rebuilder.problems
        for problem in problems:
            self._report(problem)
        return more

    def reload_if_changed(self) -> None:
        """Close all tables if one was rebuilt, chosen, removed or overwritten since they were opened."""
        if self.registry:
            self.folders = {path: _changed_at(path) for path in _folders_in(self.registry.folder)}
        generation = self.registry.generation() if self.registry else None
        kept = all(file_stamp(path) == found for path, found in self.stamps.items())
        if kept and generation == self.generation:
            return
        self.generation = generation
        self.reloads += 1
        self.opened, self.stamps, self.fitted_weights, self.file = {}, {}, {}, None
        if self.registry:
            if not kept:
                self.registry.latest = None  # it knows no table's file, only that none was replaced
            domains = self.registry.domains()
            self.stamps = {path: file_stamp(path) for domain in domains for path in domain.paths}
            self.problems = [fault for fault in (self.registry.fault(), *(one.fault for one in domains)) if fault]
            if self.live:
                self.live.retain(domain.name for domain in domains)

    def _domains_for(self, file: Path | None, language: str | None) -> list[tuple[Domain, float]]:
        """The registry's word, if there is a registry, without the tables of other models' tokens.

        Those are told only where this model has no table of the same sources.
        """
        named = self.registry.domains_for(file, language) if self.registry else []
        fitting = [(domain, weight) for domain, weight in named if domain.fingerprint == self.fingerprint]
        for domain, _ in named:
            if domain.fingerprint == self.fingerprint or "package" in domain.recipe:
                continue
            if not covering_domains([one for one, _ in fitting], domain):
                self._report(mismatch_message(domain, self.model or "this model"))
        return fitting

    def _report(self, problem: str) -> None:
        """Add a problem unless it is there."""
        if problem not in self.problems:
            self.problems.append(problem)

    def _open_files(self, domain: Domain) -> tuple[Table, ...]:
        """Return the files of a domain's table; none if one of them cannot be used."""
        files = [self._open(path) for path in domain.paths]
        return tuple(file for file in files if file) if all(files) else ()

    def _open(self, path: Path) -> Table | None:
        """Return the table at a path, or None if it cannot be used."""
        if path not in self.opened:
            self.stamps[path] = file_stamp(path)
            try:
                table = Table.open(path, fingerprint=self.fingerprint)
                if self.live and table.summary.vocab_size != self.live.vocab_size:
                    raise TableError(path, "its vocabulary is not that of its tokenizer")
                _ = table.columns  # read into memory now, where mapping is not safe
                self.opened[path] = table
            except UserError as error:
                self.opened[path] = None
                self._report(str(error))
        return self.opened[path]
