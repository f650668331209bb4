"""The process that opens a GGUF file for the first time; llama.cpp may end it.

In: the file, an empty folder, and the model's name. Out: the folder filled, or one line of standard error and exit
status 1; the share that is done, in lines of standard output.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.llama.embeddings import check_tensors
from spd_lsp.models.llama.engine import LlamaEngine
from spd_lsp.models.llama.header import read_header
from spd_lsp.models.llama.open_gguf import open_file
from spd_lsp.models.llama.prepared import GgufSource, describe, write_source
from spd_lsp.models.llama.tokenizer import build_tokenizer
from spd_lsp.models.self_test import all_logits, kl_divergence, probe_ids, read_every_way

# In nats, between two ways of reading: products of several rows are rounded in another way than those of one.
_MAX_DIVERGENCE = 1e-2
_MIXED = 4  # positions that are read as mixtures: a wrong scale shows at each


def _try_file(path: Path, folder: Path, name: str) -> None:
    """Open a file, test it, and write what was found to a folder."""
    header = read_header(path)
    check_tensors(header)
    _note(0.1)
    engine = open_file(header, "auto")
    _note(0.3)
    model = engine.context.model
    tokenizer = build_tokenizer(header, model.tokenize, model.begin_of_text)
    _note(0.5)
    scale = _embedding_scale(engine, name)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "config.json").write_text(json.dumps(describe(header, model.size)), encoding="utf-8")
    write_source(folder, GgufSource(str(path), name, version("xllamacpp"), scale))


def _note(share: float) -> None:
    sys.stdout.write(f"{share}\n")
    sys.stdout.flush()


def _embedding_scale(engine: LlamaEngine, name: str) -> float:
    """The factor with which a mixture of a token with itself predicts what the token does, if there is one."""
    ids = probe_ids(engine.context.model.size)
    expected = all_logits(engine, ids)
    if not np.isfinite(expected).all():
        raise UserError(f"{name} computes NaN instead of numbers here; fetch the file again")
    for number, (way, positions, logits) in enumerate(read_every_way(engine, ids)):
        _note(0.6 + 0.1 * number)
        if not kl_divergence(logits, expected[positions]) < _MAX_DIVERGENCE:
            raise UserError(f"{name} predicts something else when it reads {way}; choose another model")
    ids = ids[:_MIXED]
    expected = expected[:_MIXED]
    for scale in (1.0, float(engine.context.model.width) ** 0.5):
        engine.embedding_scale = scale
        if kl_divergence(_mixed_logits(engine, ids), expected) < _MAX_DIVERGENCE:
            return scale
    raise UserError(f"{name} does not read mixtures of embeddings as it reads tokens; choose another model")


def _mixed_logits(engine: LlamaEngine, ids: list[int]) -> Floats:
    """The logits after each id, all read as mixtures. [T, V]."""
    cache = engine.new_cache()
    halves = np.array([0.5, 0.5])
    return np.concatenate([engine.forward([((token, token), halves)], cache) for token in ids])


def _leave_no_core_file() -> None:
    """Have the system store no image of this process if llama.cpp ends it."""
    with suppress(ImportError):  # there is no such limit on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _leave_no_core_file()
    try:
        _try_file(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except UserError as error:
        sys.exit(str(error))
