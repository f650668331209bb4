"""Folders of source code -> one stream of token ids with a held-out end, questions about it, their true answers.

The true answers come from scanning the ids, slowly and plainly: what every table is checked against.

Dimensions: T ids, D documents, S steps, K drafts, L context tokens, O orders, C candidates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.counts import ORDERS
from ngram_builders.files import survey
from ngram_builders.sources import source_of
from spd_lsp.settings import UserError

__all__ = ["CONTEXT", "ORDERS", "Steps", "Stream", "read_sources", "sample_steps", "true_probabilities"]

Ids = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]
Encode = Callable[[Sequence[str]], Iterable[Sequence[int]]]
Report = Callable[[int, int], None]

CONTEXT = ORDERS[-1] - 1  # tokens of the longest context
HELD_OUT = 50  # one part in so many
BATCH = 64


@dataclass(frozen=True, slots=True)
class Stream:
    """Documents one after another, each with an end-of-text before and after it; the last ones are held out."""

    ids: Ids  # [T] u16 where the vocabulary allows
    bounds: npt.NDArray[np.int64]  # [D + 1] document d is ids[bounds[d]:bounds[d + 1]]
    known: int  # documents that are counted; those after it are held out
    end_of_text: int
    vocab_size: int

    @property
    def counted(self) -> list[Ids]:
        """The documents that tables are built from."""
        return self.documents(0, self.known)

    @property
    def held_out(self) -> list[Ids]:
        """The documents at the end, which no table has seen."""
        return self.documents(self.known, len(self.bounds) - 1)

    @property
    def tokens(self) -> int:
        """Tokens that tables are built from: predicted ones, so an end-of-text counts once per document."""
        return int(self.bounds[self.known]) - self.known

    def documents(self, start: int, end: int) -> list[Ids]:
        """Some documents."""
        return [self.ids[self.bounds[d] : self.bounds[d + 1]] for d in range(start, end)]

    def save(self, folder: Path) -> None:
        """Keep it for other processes."""
        np.save(folder / "ids.npy", self.ids)
        np.save(folder / "bounds.npy", self.bounds)
        facts = {"known": self.known, "end_of_text": self.end_of_text, "vocab_size": self.vocab_size}
        (folder / "stream.json").write_text(json.dumps(facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Stream:
        """What was saved, read into memory."""
        facts = json.loads((folder / "stream.json").read_text(encoding="utf-8"))
        return cls(np.load(folder / "ids.npy"), np.load(folder / "bounds.npy"), **facts)


@dataclass(frozen=True, slots=True)
class Steps:
    """The questions of S decoding steps."""

    contexts: npt.NDArray[np.int64]  # [S, K, L] the newest token rightmost
    candidates: npt.NDArray[np.int64]  # [S, C] distinct within a step

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        return zip(self.contexts, self.candidates, strict=True)

    def part(self, start: int, end: int) -> Steps:
        """Some of the steps."""
        return Steps(self.contexts[start:end], self.candidates[start:end])


def read_sources(
    roots: Sequence[Path],
    encode: Encode,
    *,
    end_of_text: int,
    vocab_size: int,
    limit: int | None = None,
    report: Report = lambda done, total: None,
) -> Stream:
    """Tokenise the sources of some folders, each text once, the folders mixed; stop at `limit` tokens."""
    files = mixed(roots)
    dtype = np.uint16 if vocab_size < 2**16 else np.uint32
    documents: list[Ids] = []
    tokens = 0
    seen: set[bytes] = set()
    for start in range(0, len(files), BATCH):
        report(start, len(files))
        for ids in encode(list(new_texts(files[start : start + BATCH], seen))):
            documents.append(np.array([end_of_text, *ids, end_of_text], dtype=dtype))
            tokens += len(ids) + 1
        if limit is not None and tokens >= limit:
            break
    report(len(files), len(files))
    if len(documents) < 2:
        found = f"{len(documents)} in {', '.join(map(str, roots))}"
        raise UserError(f"expected two source files or more, found {found}; name a folder with more source code")
    bounds = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    known = int(np.searchsorted(bounds, bounds[-1] * (HELD_OUT - 1) // HELD_OUT, side="right")) - 1
    return Stream(
        np.concatenate(documents), bounds, min(max(known, 1), len(documents) - 1), end_of_text, vocab_size
    )


def mixed(roots: Sequence[Path]) -> list[str]:
    """All sources, shuffled, always in the same way: any stretch holds something of every folder."""
    files = [found.path for found in survey(*roots).found]
    np.random.default_rng(0).shuffle(files)
    return files


def new_texts(files: Sequence[str], seen: set[bytes]) -> Iterator[str]:
    """The text of each file that counts as source and whose text was not seen before."""
    for file in files:
        text, fault = source_of(file)
        digest = hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()
        if fault is None and digest not in seen:
            seen.add(digest)
            yield text


def sample_steps(stream: Stream, *, drafts: int, candidates: int, number: int, seed: int) -> Steps:
    """Decoding steps at random places of the held-out text, with the candidates that a fair model might propose.

    Each draft stands at a place of its own, the hardest case for caches. Candidates are what really comes next for
    each draft, then what followed the drafts' last tokens in the counted text, then frequent tokens.
    """
    random = np.random.default_rng([seed, drafts, candidates])
    known = stream.ids[: stream.bounds[stream.known]]
    by_token = np.argsort(known[:-1], kind="stable")  # places of each token in the counted text
    first = np.concatenate(([0], np.cumsum(np.bincount(known[:-1], minlength=stream.vocab_size))))
    places = places_within(stream.held_out)
    held = stream.ids[stream.bounds[stream.known] :].astype(np.int64)
    contexts = np.empty((number, drafts, CONTEXT), dtype=np.int64)
    options = np.empty((number, min(candidates, stream.vocab_size)), dtype=np.int64)
    for step in range(number):
        at = random.choice(places, drafts)
        contexts[step] = held[at[:, None] - np.arange(CONTEXT, 0, -1)]
        last = contexts[step, :, -1]
        drawn = first[last] + (random.random((4 * candidates, drafts)) * (first[last + 1] - first[last])).astype(
            int
        )
        followers = known[by_token[np.minimum(drawn, len(by_token) - 1)].ravel() + 1]
        frequent = known[random.integers(len(known), size=8 * candidates)]
        options[step] = distinct(
            held[at], followers, frequent, np.arange(stream.vocab_size), size=options.shape[1]
        )
    return Steps(contexts, options)


def places_within(documents: Sequence[Ids]) -> npt.NDArray[np.int64]:
    """Places with a whole context before them in the same document, counted over all documents joined."""
    lengths = np.array([len(document) for document in documents])
    offset = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.flatnonzero(offset >= CONTEXT)
    if not len(places):
        raise UserError("expected held-out files of some length, found short ones only; name more source code")
    return places


def distinct(*parts: Ids, size: int) -> npt.NDArray[np.int64]:
    """The first so many different values. Example: [4, 4, 1], [1, 7], size=3 -> [4, 1, 7]"""
    values = np.concatenate(parts)
    _, first = np.unique(values, return_index=True)
    return np.asarray(values[np.sort(first)[:size]], dtype=np.int64)


def true_probabilities(stream: Stream, contexts: Ids, candidates: Ids) -> Floats:
    """count / total of each candidate after each context, by scanning: [K, L], [C] -> [K, O, C]; 0 if unseen."""
    bounds = stream.bounds[: stream.known + 1]
    known = stream.ids[: bounds[-1]]
    p = np.zeros((len(contexts), len(ORDERS), len(candidates)))
    for k, context in enumerate(contexts):
        places = np.flatnonzero(known[:-1] == context[-1]) + 1  # what came next stands there
        for o, order in enumerate(ORDERS):
            back = order - 1
            places = places[places >= back]
            places = places[known[places - back] == context[-back]]
            whole = np.searchsorted(bounds, places, "right") == np.searchsorted(bounds, places - back, "right")
            following = known[places[whole]]
            if len(following):
                p[k, o] = (following[:, None] == candidates).mean(axis=0)
    return p
