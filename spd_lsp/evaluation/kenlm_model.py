"""A stream of ids -> KenLM's smoothed models, built by its own programs and asked in Python or C++.

KenLM keeps no counts: a model gives one smoothed probability for all orders together. Ids are written as words.

Dimensions: K drafts, L context tokens, C candidates.
"""

from __future__ import annotations

import ctypes
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ngram_builders import programs
from spd_lsp.evaluation.compiling import compile_library, run
from spd_lsp.evaluation.stream import ORDERS, Stream

__all__ = [
    "ARPA",
    "BINARIES",
    "KenLMInCPlusPlus",
    "KenLMModel",
    "binarise",
    "estimate",
    "missing_library",
    "missing_module",
    "missing_programs",
    "write_text",
]

ARPA = "model.arpa"
SOURCE = Path(__file__).with_name("kenlm_step.cc")
TEXT = "text.txt"
BINARIES = {"probing": ["probing"], "trie": ["trie"], "8-bit trie": ["-q", "8", "-b", "8", "-a", "22", "trie"]}


def missing_programs(lmplz: Path | None) -> str:
    """What is not installed of what builds models."""
    return "" if find_program(lmplz) else "lmplz is not installed"


def missing_module(lmplz: Path | None) -> str:
    """What is not installed of what is needed to build and ask models."""
    return missing_programs(lmplz) or ("" if find_spec("kenlm") else "the Python module kenlm is not installed")


def missing_library(lmplz: Path | None) -> str:
    """What is not installed of what is needed to build models and ask them in C++."""
    if missing := missing_module(lmplz):
        return missing
    if not (programs.find_program("c++") and all(path.is_file() for path in library_files(lmplz))):
        return "no C++ compiler, or KenLM's sources and libraries are not around lmplz"
    return ""


def library_files(lmplz: Path | None) -> tuple[Path, Path, Path]:
    """KenLM's header and libraries, where lmplz lies in the folder that it was compiled in."""
    built = (find_program(lmplz) or Path()).resolve().parents[1]
    return built.parent / "lm" / "model.hh", built / "lib" / "libkenlm.a", built / "lib" / "libkenlm_util.a"


def find_program(lmplz: Path | None) -> Path | None:
    """lmplz with build_binary beside it, where it was named or on the PATH."""
    found = str(lmplz.absolute()) if lmplz else programs.find_program("lmplz")
    return Path(found) if found and Path(found).with_name("build_binary").is_file() else None


def write_text(stream: Stream, folder: Path) -> None:
    """A line of words for each counted document; KenLM adds its own marks of beginning and end."""
    words = np.array([str(i) for i in range(stream.vocab_size)], dtype=object)
    with (folder / TEXT).open("w", encoding="ascii") as file:
        for ids in stream.counted:
            file.write(" ".join(words[ids[1:-1]]) + "\n")


def estimate(folder: Path, lmplz: Path | None, memory: str, arguments: list[str]) -> None:
    """Count and smooth: text -> model."""
    own = [
        "-o",
        str(ORDERS[-1]),
        "--discount_fallback",
        "-S",
        memory,
        "-T",
        f"{folder}/",
        "--text",
        str(folder / TEXT),
    ]
    run([str(find_program(lmplz)), *own, *arguments])


def binarise(folder: Path, lmplz: Path | None, kind: str) -> None:
    """Model as text -> model as KenLM maps it."""
    program = str((find_program(lmplz) or Path()).with_name("build_binary"))
    run([program, "-T", f"{folder}/", *BINARIES[kind], str(folder / ARPA), str(folder / f"{kind}.binary")])


class KenLMModel:
    """One binary model."""

    def __init__(self, path: Path) -> None:
        import kenlm

        self.path = path
        self.kenlm = kenlm
        self.scratch = kenlm.State()

    def open(self) -> None:
        """Map the file."""
        config = self.kenlm.Config()
        config.load_method = self.kenlm.LoadMethod.LAZY
        self.model = self.kenlm.Model(str(self.path), config)
        self.score = self.model.BaseScore

    def prepare(self, contexts: npt.NDArray[np.integer], candidates: npt.NDArray[np.integer]) -> Any:
        """Its natural input: words, and each draft's state before its newest token, as a decoder carries it."""
        words = [[str(i) for i in context] for context in contexts.tolist()]
        drafts = [(self.state(context[:-1]), context[-1]) for context in words]
        return drafts, [str(i) for i in candidates.tolist()]

    def state(self, words: list[str]) -> Any:
        """The model's state after some words."""
        before, after = self.kenlm.State(), self.kenlm.State()
        self.model.NullContextWrite(before)
        for word in words:
            self.score(before, word, after)
            before, after = after, before
        return before

    def step(self, prepared: Any) -> list[list[float]]:
        """log10 p of every candidate after every draft, [K][C]: one look-up answers for all orders."""
        drafts, candidates = prepared
        score, scratch, state = self.score, self.scratch, self.kenlm.State
        answer = []
        for before, newest in drafts:
            here = state()
            score(before, newest, here)
            answer.append([score(here, word, scratch) for word in candidates])
        return answer

    def perplexity(self, documents: list[npt.NDArray[np.integer]]) -> float:
        """Of whole documents, their ends included."""
        texts = [" ".join(map(str, ids[1:-1].tolist())) for ids in documents]
        total = sum(self.model.score(text) for text in texts)
        return math.pow(10, -total / sum(len(ids) - 1 for ids in documents))


class KenLMInCPlusPlus(KenLMModel):
    """The same asked in C++, all candidates of a step in one call."""

    def __init__(self, path: Path, lmplz: Path | None, vocab_size: int) -> None:
        super().__init__(path)
        self.words = [str(i).encode() for i in range(vocab_size)]
        header, own, util = library_files(lmplz)
        order = f"-DKENLM_MAX_ORDER={ORDERS[-1]}"  # as compiled by default, too
        include = f"-I{header.parents[1]}"
        linked: list[str | Path] = [own, util, "-lz", "-lbz2", "-llzma", "-lpthread"]
        self.library = compile_library("c++", SOURCE, ["-DNDEBUG", order, include, *linked])
        self.library.open_model.restype = ctypes.c_void_p
        self.call = self.library.step
        pointer, number = ctypes.c_void_p, ctypes.c_int32
        self.call.argtypes = [pointer, pointer, pointer, number, pointer, number, pointer]
        self.call.restype = None
        self.state_size = self.library.state_size()

    def open(self) -> None:
        """Map the file, and look up KenLM's number of every id."""
        words = (ctypes.c_char_p * len(self.words))(*self.words)
        opened = self.library.open_model(str(self.path).encode(), words, len(words))
        if not opened:
            raise RuntimeError(f"KenLM cannot open {self.path}")
        self.opened = ctypes.c_void_p(opened)

    def prepare(self, contexts: npt.NDArray[np.integer], candidates: npt.NDArray[np.integer]) -> Any:
        """Its natural input: each draft's state before its newest token, and ids."""
        states = np.zeros((len(contexts), self.state_size), dtype=np.uint8)
        contexts = np.ascontiguousarray(contexts, dtype=np.int64)
        for context, state in zip(contexts, states, strict=True):
            address = ctypes.c_void_p(state.ctypes.data)
            self.library.read(self.opened, ctypes.c_void_p(context.ctypes.data), len(context) - 1, address)
        return states, np.ascontiguousarray(contexts[:, -1]), candidates

    def step(self, prepared: Any) -> Any:
        """log10 p of every candidate after every draft, [K, C]."""
        states, newest, candidates = prepared
        logs = np.empty((len(newest), len(candidates)), dtype=np.float32)
        self.call(
            self.opened,
            states.ctypes.data,
            newest.ctypes.data,
            len(newest),
            candidates.ctypes.data,
            len(candidates),
            logs.ctypes.data,
        )
        return logs

    def perplexity(self, documents: list[npt.NDArray[np.integer]]) -> float:
        """Of whole documents, their ends included."""
        super().open()
        return super().perplexity(documents)
