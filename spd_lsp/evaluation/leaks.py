"""Whether what is evaluated on was seen in training: by name, exactly, nearly, and by windows of tokens.

In: packages; the training corpus if it is at hand; the model's card data; its n-gram tables. Out: findings, each
with a verdict: `ok`, `leak`, or `not checked` where the material is missing. Nothing is concluded from what is
missing.

Dimensions: W windows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ngram_builders.arrays import U64
from ngram_builders.errors import UserError
from ngram_builders.ngrams import ORDERS, stream
from ngram_builders.sources.filters import read_source_text
from ngram_builders.table.query import Query
from ngram_builders.table.reader import Table
from spd_lsp.completion.tokenizer import Tokens
from spd_lsp.evaluation.places import Package
from spd_lsp.evaluation.similarity import (
    NEAR,
    WINDOW,
    code_digest,
    identifiers,
    jaccard,
    telling,
    windows,
    without_comments,
)

Report = Callable[[int, int], None]

_MOST = 0.01  # of a package's windows; unrelated repositories share 0.0009 at most, true leaks 0.61 and more
_DIFFERENT = 8  # ids of a window that counts
_MOST_FILES = 0.02  # of a package's files may be near ones: small files of few words are alike by chance
FEW = 8  # identifiers, below which files are alike by chance
_CONTEXT = ORDERS[-1] - 1
_BATCH = 64  # training files read at once
_SAMPLED = 4_000  # contexts of a package asked of a table


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says."""

    check: str
    subject: str
    verdict: str  # ok, leak, not checked, told (no limit is known)
    text: str


def check(
    packages: Sequence[Package],
    tokens: Tokens,
    model: Path,
    training: Sequence[Path],
    report: Report = lambda done, total: None,
) -> list[Finding]:
    """All checks that can run; `training`: folders of source files that the model was trained on."""
    found = [*_by_name(packages, model)]
    if not training:
        for name in ("exact files", "near files", f"windows of {WINDOW} tokens"):
            found.append(Finding(name, "all", "not checked", "no training corpus was given (--training FOLDER)"))
    else:
        found += _against_corpus(packages, tokens, training, report)
    for path in sorted(model.glob("*.ngt")):
        found += _against_table(packages, tokens, path)
    return found


def _by_name(packages: Sequence[Package], model: Path) -> Iterator[Finding]:
    """Compare the packages' names with those the model's training.json says it was made from."""
    card = model / "training.json"
    if not card.is_file():
        yield Finding("names", "all", "not checked", f"{model.name} does not say what it was trained on")
        return
    sources = json.loads(card.read_text(encoding="utf-8")).get("sources", [])
    known = {plain_name(source["name"]) for source in sources}
    for package in packages:
        if plain_name(package.name) in known:
            yield Finding("names", package.name, "leak", "the model was trained on a package of this name")
    yield Finding("names", "all", "ok", f"compared with the {len(known)} packages of training.json")


def plain_name(name: str) -> str:
    """A package's name as registries compare it. Example: `Foo_Bar.baz-1.2.0` -> `foo-bar-baz`"""
    return re.sub(r"[-_.]+", "-", re.sub(r"-v?\d[\w.]*$", "", name)).lower()


def _against_corpus(
    packages: Sequence[Package], tokens: Tokens, training: Sequence[Path], report: Report
) -> Iterator[Finding]:
    """Compare every file with every training file: digests, identifiers, windows of tokens."""
    own = [_package_windows(package, tokens) for package in packages]
    asked = np.unique(np.concatenate(own))  # [W]
    seen = np.zeros(len(asked), dtype=bool)
    digests: set[str] = set()
    names: list[frozenset[str]] = []
    for texts in _training_texts(training, report):
        digests.update(map(code_digest, texts))
        names += map(identifiers, texts)
        seen[_found_in(asked, windows(encoded(texts, tokens)))] = True
    told = f"against {len(names):,} training files"
    for package, its_windows in zip(packages, own, strict=True):
        yield _exact_files(package, digests, told)
        yield _near_files(package, names, told)
        yield _window_share(package.name, seen[np.searchsorted(asked, its_windows)], told)


def _package_windows(package: Package, tokens: Tokens) -> U64:
    """The windows of all files of a package that say something. -> [W]"""
    ids = encoded([source.text for source in package.sources], tokens)
    return windows(ids)[telling(ids, _DIFFERENT)]


def encoded(texts: Sequence[str], tokens: Tokens) -> list[npt.NDArray[np.int64]]:
    """The ids of texts without their comments."""
    return [
        np.array(ids, dtype=np.int64) for ids in tokens.encode_batch([without_comments(text) for text in texts])
    ]


def _found_in(ordered: U64, values: U64) -> npt.NDArray[np.intp]:
    """The places of those of the values that are among ordered ones."""
    places = np.searchsorted(ordered, values)
    places = np.minimum(places, max(0, len(ordered) - 1))
    return places[ordered[places] == values] if len(ordered) else places[:0]


def _training_texts(training: Sequence[Path], report: Report) -> Iterator[list[str]]:
    """The texts of a training corpus, some at a time."""
    paths = sorted(path for folder in training for path in folder.rglob("*.py") if path.is_file())
    if not paths:
        raise UserError(
            f"expected Python files below {', '.join(map(str, training))}, found none; name the training corpus"
        )
    for start in range(0, len(paths), _BATCH):
        report(start, len(paths))
        read = (read_source_text(str(path)) for path in paths[start : start + _BATCH])
        yield [text for text, fault in read if fault is None]


def _exact_files(package: Package, digests: set[str], told: str) -> Finding:
    """Files whose code is a training file's, comments and white space apart; nearly empty ones do not count."""
    same = [s.name for s in package.sources if len(identifiers(s.text)) >= FEW and code_digest(s.text) in digests]
    verdict = "leak" if same else "ok"
    return Finding(
        "exact files", package.name, verdict, f"{len(same)} of {len(package.sources)} {told}{_listed(same)}"
    )


def _near_files(package: Package, training: Sequence[frozenset[str]], told: str) -> Finding:
    """Files whose identifiers are nearly a training file's."""
    near = [s.name for s in package.sources if _is_near(identifiers(s.text), training)]
    verdict = "leak" if len(near) > _MOST_FILES * len(package.sources) else "ok"
    return Finding(
        "near files", package.name, verdict, f"{len(near)} of {len(package.sources)} {told}{_listed(near)}"
    )


def _is_near(own: frozenset[str], training: Sequence[frozenset[str]]) -> bool:
    """Whether any set is nearly the same; sets of other sizes cannot be."""
    if len(own) < FEW:
        return False
    low, high = len(own) * NEAR, len(own) / NEAR
    return any(low <= len(other) <= high and jaccard(own, other) >= NEAR for other in training)


def _window_share(name: str, seen: npt.NDArray[np.bool_], told: str) -> Finding:
    """The share of a package's windows that stand in the training text."""
    share = float(seen.mean()) if len(seen) else 0.0
    verdict = "leak" if share > _MOST else "ok"
    return Finding(f"windows of {WINDOW} tokens", name, verdict, f"{share:.2%} {told}; limit {_MOST:.0%}")


def _against_table(packages: Sequence[Package], tokens: Tokens, path: Path) -> Iterator[Finding]:
    """The share of contexts of the longest order that a table knows. It keeps what many packages write, so that
    unrelated code is known in part: the share is told, and nothing follows from it alone.
    """
    table = Table.open(path, tokens.fingerprint)
    asked = Query([[table.columns]], [1.0])
    nothing = np.zeros(1, dtype=np.int64)
    for package in packages:
        contexts = _sampled_contexts(package, tokens)
        heard = [
            asked.probabilities(contexts[i : i + 64], nothing)[1][:, _CONTEXT - 1] > 0
            for i in range(0, len(contexts), 64)
        ]
        share = float(np.concatenate(heard).mean()) if heard else 0.0
        text = f"{path.name} knows {share:.1%} of {len(contexts):,} contexts of {_CONTEXT} tokens"
        yield Finding(f"contexts in {path.name}", package.name, "told", text)


def _sampled_contexts(package: Package, tokens: Tokens) -> npt.NDArray[np.int64]:
    """Contexts at random places of a package's files. -> [at most SAMPLED, CONTEXT]"""
    encoded = tokens.encode_batch([source.text for source in package.sources])
    ids = np.concatenate([stream(one, tokens.end_of_text) for one in encoded])
    starts = np.arange(max(0, len(ids) - _CONTEXT))
    chosen = np.random.default_rng(0).choice(starts, min(_SAMPLED, len(starts)), replace=False)
    return ids[chosen[:, None] + np.arange(_CONTEXT)]


def _listed(names: Sequence[str]) -> str:
    """The first few names. Example: `: a.py, b.py`"""
    return f": {', '.join(names[:3])}" if names else ""
