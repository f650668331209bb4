"""The structures that are compared: how each is built, how it is asked, and what it needs installed.

Comes in: a saved stream. Goes out: files, and readers with `open`, `prepare`, `step` and what checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from spd_lsp.evaluation import dictionaries, kenlm_model, own_table, suffix_array
from spd_lsp.evaluation.stream import Stream

__all__ = ["BUILDS", "OWN", "READERS", "Build", "Reader", "Site"]

OWN, DICTIONARIES, SUFFIXES, KENLM = "this project's table", "dictionaries", "suffix array", "KenLM"
ESTIMATE = f"{KENLM}: lmplz"
PRUNE = ["--prune", "0", "0", "1"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where everything is: the saved stream, a folder for each structure, KenLM's programs."""

    folder: Path
    lmplz: Path | None = None
    memory: str = "1G"  # that lmplz may sort in

    def of(self, name: str) -> Path:
        """A structure's folder."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    @property
    def vocab_size(self) -> int:
        """The saved stream's."""
        return Stream.load(self.folder).vocab_size


@dataclass(frozen=True, slots=True)
class Build:
    """One way from ids to files."""

    make: Callable[[Stream, Site], None]
    folder: str
    files: tuple[str, ...]  # what it leaves that is needed to answer
    missing: Callable[[Site], str]  # what is not installed

    def paths(self, site: Site) -> list[Path]:
        """Where its files are."""
        return [site.of(self.folder) / name for name in self.files]


@dataclass(frozen=True, slots=True)
class Reader:
    """One way from files to answers."""

    how: str
    build: str
    make: Callable[[Site], Any]
    missing: Callable[[Site], str]
    smoothed: bool = False
    loaded: bool = False  # answers from memory of its own, not from files


def nothing(site: Site) -> str:
    """For what is always there."""
    return ""


def estimate(stream: Stream, site: Site, arguments: list[str]) -> None:
    """Run lmplz on the text."""
    folder = site.of("kenlm")
    kenlm_model.estimate(folder, site.lmplz, site.memory, [word.format(folder=folder) for word in arguments])


def binarise(stream: Stream, site: Site, kind: str) -> None:
    """Run build_binary on what lmplz made."""
    kenlm_model.binarise(site.of("kenlm"), site.lmplz, kind)


def kenlm_build(make: Callable[[Stream, Site], None], *files: str) -> Build:
    """A step of KenLM's way."""
    return Build(make, "kenlm", files, lambda site: kenlm_model.missing_programs(site.lmplz))


ARPA = ["--arpa", "{folder}/" + kenlm_model.ARPA]
PRUNED = ["--arpa", "{folder}/pruned.arpa"]
INTERMEDIATE = ["--intermediate", "{folder}/intermediate"]

BUILDS: Mapping[str, Build] = {
    OWN: Build(lambda stream, site: own_table.build(stream, site.of("own")), "own", (own_table.NAME,), nothing),
    DICTIONARIES: Build(
        lambda stream, site: dictionaries.build(stream, site.of("dictionaries")),
        "dictionaries",
        (dictionaries.FILE,),
        nothing,
    ),
    SUFFIXES: Build(
        lambda stream, site: suffix_array.build(stream, site.of("suffixes")),
        "suffixes",
        ("text.npy", "array.npy", "heads.npy"),
        lambda site: suffix_array.missing(),
    ),
    f"{ESTIMATE}, counts and smoothing only": kenlm_build(partial(estimate, arguments=INTERMEDIATE)),
    f"{ESTIMATE}, as it comes (nothing pruned)": kenlm_build(partial(estimate, arguments=ARPA), kenlm_model.ARPA),
    f"{ESTIMATE} {' '.join(PRUNE)}": kenlm_build(partial(estimate, arguments=PRUNED + PRUNE), "pruned.arpa"),
    **{
        f"{KENLM}: build_binary {kind}, after lmplz": kenlm_build(partial(binarise, kind=kind), f"{kind}.binary")
        for kind in kenlm_model.BINARIES
    },
}


def kenlm_readers(kind: str) -> Iterator[tuple[str, Reader]]:
    """The ways of asking one of KenLM's models, by name."""
    build, file = f"{KENLM}: build_binary {kind}, after lmplz", f"{kind}.binary"
    yield (
        f"{KENLM} {kind}, C++",
        Reader(
            "C++, one call",
            build,
            lambda site: kenlm_model.KenLMInCPlusPlus(site.of("kenlm") / file, site.lmplz, site.vocab_size),
            lambda site: kenlm_model.missing_library(site.lmplz),
            smoothed=True,
        ),
    )
    yield (
        f"{KENLM} {kind}, its Python module",
        Reader(
            "Python, one call per candidate",
            build,
            lambda site: kenlm_model.KenLMModel(site.of("kenlm") / file),
            lambda site: kenlm_model.missing_module(site.lmplz),
            smoothed=True,
        ),
    )


READERS: Mapping[str, Reader] = {
    f"{OWN}, C": Reader(
        "C, one call",
        OWN,
        lambda site: own_table.OwnTable(site.of("own")),
        lambda site: own_table.missing_kernel(),
    ),
    f"{OWN}, numpy": Reader("numpy only", OWN, lambda site: own_table.OwnTableInNumpy(site.of("own")), nothing),
    f"{DICTIONARIES}, as published": Reader(
        "Python, adds a context's counts up for each candidate",
        DICTIONARIES,
        lambda site: dictionaries.AsPublished(site.of("dictionaries")),
        nothing,
        loaded=True,
    ),
    f"{DICTIONARIES}, totals kept": Reader(
        "Python, one look-up per context",
        DICTIONARIES,
        lambda site: dictionaries.WithTotals(site.of("dictionaries")),
        nothing,
        loaded=True,
    ),
    f"{SUFFIXES}, C": Reader(
        "C, one call",
        SUFFIXES,
        lambda site: suffix_array.SuffixArrayInC(site.of("suffixes")),
        lambda site: suffix_array.missing_compiler(),
    ),
    f"{SUFFIXES}, numpy": Reader(
        "numpy only",
        SUFFIXES,
        lambda site: suffix_array.SuffixArrayInNumpy(site.of("suffixes")),
        lambda site: suffix_array.missing(),
    ),
    **{name: reader for kind in kenlm_model.BINARIES for name, reader in kenlm_readers(kind)},
}
