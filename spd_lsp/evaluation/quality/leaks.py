"""Leak checks: was the evaluated code part of the training data? By name, exact file, near duplicate and window.

Verdicts are `ok`, `leak`, or `not checked` where the training data is not at hand. Nothing is concluded from
missing data.

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
from ngram_builders.sources.filters import read_source_text
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.examples import PackageFiles
from spd_lsp.evaluation.quality.similarity import (
    NEAR_DUPLICATE,
    WINDOW_TOKENS,
    code_digest,
    identifiers,
    jaccard,
    varied_windows,
    window_hashes,
    without_comments,
)
from spd_lsp.models.checkpoint.hub import beside

ReportFiles = Callable[[int, int], None]

_MAX_WINDOW_SHARE = 0.01  # unrelated repositories share 0.0009 at most, true leaks 0.61 and more
_MAX_NEAR_SHARE = 0.02  # of a package's files: small files of few words are similar by chance
_MIN_DISTINCT_IDS = 8  # of a window that counts
_MIN_IDENTIFIERS = 8  # of a file that counts
_FILES_PER_BATCH = 64


@dataclass(frozen=True, slots=True)
class LeakCheck:
    """The outcome of one check."""

    check: str
    subject: str
    verdict: str  # ok, leak or not checked
    text: str


def check_leaks(
    packages: Sequence[PackageFiles],
    tokens: ModelTokenizer,
    model: Path,
    training: Sequence[Path],
    report: ReportFiles = lambda done, total: None,
) -> list[LeakCheck]:
    """Run all checks that can run; `training` are folders of source files the model was trained on."""
    checks = [*_check_names(packages, model)]
    if training:
        checks += _check_corpus(packages, tokens, training, report)
    else:
        for name in ("exact files", "near files", f"windows of {WINDOW_TOKENS} tokens"):
            checks.append(
                LeakCheck(name, "all", "not checked", "no training corpus was given (--training FOLDER)")
            )
    return checks


def _check_names(packages: Sequence[PackageFiles], model: Path) -> Iterator[LeakCheck]:
    """Compare package names with those in the model's training.json."""
    card = beside(model) / "training.json"
    if not card.is_file():
        yield LeakCheck("names", "all", "not checked", f"{model.name} does not say what it was trained on")
        return
    sources = json.loads(card.read_text(encoding="utf-8")).get("sources", [])
    trained_on = {normalised_name(source["name"]) for source in sources}
    for package in packages:
        if normalised_name(package.name) in trained_on:
            yield LeakCheck("names", package.name, "leak", "the model was trained on a package of this name")
    yield LeakCheck("names", "all", "ok", f"compared with the {len(trained_on)} packages of training.json")


def normalised_name(name: str) -> str:
    """A package's name as registries compare it. Example: `Foo_Bar.baz-1.2.0` -> `foo-bar-baz`"""
    return re.sub(r"[-_.]+", "-", re.sub(r"-v?\d[\w.]*$", "", name)).lower()


def _check_corpus(
    packages: Sequence[PackageFiles], tokens: ModelTokenizer, training: Sequence[Path], report: ReportFiles
) -> Iterator[LeakCheck]:
    """Compare every file with every training file: digests, identifiers, windows of tokens."""
    windows = [_package_windows(package, tokens) for package in packages]
    distinct = np.unique(np.concatenate(windows))  # [W]
    seen = np.zeros(len(distinct), dtype=bool)
    digests: set[str] = set()
    vocabularies: list[frozenset[str]] = []
    for texts in _training_batches(training, report):
        digests.update(map(code_digest, texts))
        vocabularies += map(identifiers, texts)
        seen[_positions_in(distinct, window_hashes(_encode(texts, tokens)))] = True
    scope = f"against {len(vocabularies):,} training files"
    for package, its_windows in zip(packages, windows, strict=True):
        counted = [(file.name, file.text, identifiers(file.text)) for file in package.files]
        counted = [one for one in counted if len(one[2]) >= _MIN_IDENTIFIERS]
        same = [name for name, text, _ in counted if code_digest(text) in digests]
        near = [name for name, _, own in counted if _is_near_duplicate(own, vocabularies)]
        share = float(seen[np.searchsorted(distinct, its_windows)].mean()) if len(its_windows) else 0.0
        limit = _MAX_NEAR_SHARE * len(package.files)
        yield _check_files("exact files", package, same, scope, leak=bool(same))
        yield _check_files("near files", package, near, scope, leak=len(near) > limit)
        yield LeakCheck(
            f"windows of {WINDOW_TOKENS} tokens",
            package.name,
            "leak" if share > _MAX_WINDOW_SHARE else "ok",
            f"{share:.2%} {scope}; limit {_MAX_WINDOW_SHARE:.0%}",
        )


def _check_files(check: str, package: PackageFiles, names: Sequence[str], scope: str, *, leak: bool) -> LeakCheck:
    examples = f": {', '.join(names[:3])}" if names else ""
    text = f"{len(names)} of {len(package.files)} {scope}{examples}"
    return LeakCheck(check, package.name, "leak" if leak else "ok", text)


def _package_windows(package: PackageFiles, tokens: ModelTokenizer) -> U64:
    """The windows of all files of a package that are varied enough. -> [W]"""
    ids = _encode([file.text for file in package.files], tokens)
    return window_hashes(ids)[varied_windows(ids, _MIN_DISTINCT_IDS)]


def _encode(texts: Sequence[str], tokens: ModelTokenizer) -> list[npt.NDArray[np.int64]]:
    """The ids of texts without their comments."""
    return [np.array(ids, dtype=np.int64) for ids in tokens.encode_batch([without_comments(t) for t in texts])]


def _positions_in(ordered: U64, values: U64) -> npt.NDArray[np.intp]:
    """The positions of those values that occur in a sorted array."""
    places = np.minimum(np.searchsorted(ordered, values), max(0, len(ordered) - 1))
    return places[ordered[places] == values] if len(ordered) else places[:0]


def _training_batches(training: Sequence[Path], report: ReportFiles) -> Iterator[list[str]]:
    """The texts of a training corpus, some files at a time."""
    paths = sorted(path for folder in training for path in folder.rglob("*.py") if path.is_file())
    if not paths:
        folders = ", ".join(map(str, training))
        raise UserError(f"{folders} holds no Python files; name the folder of the training corpus")
    for start in range(0, len(paths), _FILES_PER_BATCH):
        report(start, len(paths))
        read = (read_source_text(str(path)) for path in paths[start : start + _FILES_PER_BATCH])
        yield [text for text, fault in read if fault is None]


def _is_near_duplicate(own: frozenset[str], others: Sequence[frozenset[str]]) -> bool:
    """Whether any set is nearly the same; sets of very different size cannot be."""
    low, high = len(own) * NEAR_DUPLICATE, len(own) / NEAR_DUPLICATE
    return any(low <= len(other) <= high and jaccard(own, other) >= NEAR_DUPLICATE for other in others)
