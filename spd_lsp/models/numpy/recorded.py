"""A small model opened without torch, which takes seconds to import: what to know of it was recorded beforehand.

Beside the weights lies what does not show in them, and what transformers answered to a probe when the record was
made. The self-test is the same as with the reference at hand: where the answers differ, the record does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from spd_lsp.models.base import Runner
from spd_lsp.models.checkpoint.sizes import read_json
from spd_lsp.models.numpy.decoder import Decoder, Shape
from spd_lsp.models.numpy.engine import NumpyRunner
from spd_lsp.models.numpy.weights import Assembly, Unlike, compare_names
from spd_lsp.models.self_test import Expected, expect, fault

RECORD = "decoder.json"
_COLUMNS = 32  # ids of the vocabulary whose logits are recorded


def open_recorded(folder: Path, report: Callable[[str], None]) -> Runner | None:
    """The engine for a folder with a record that is right; otherwise None, and a line if there is a record."""
    path = folder / RECORD
    if not path.is_file():
        return None
    report(f"loading {folder.name} on cpu")
    try:
        record = read_json(path)
        engine = NumpyRunner(_read_decoder(folder, record))
        found = fault(engine, Expected(record["probe"], np.array(record["logits"]), record["columns"]))
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        RecursionError,
        SafetensorError,
        Unlike,
    ) as error:
        found = f"{type(error).__name__}: {error}"
    if found:
        report(f"{path} does not fit the weights ({found}); reading them with torch")
        return None
    return engine


def _read_decoder(folder: Path, record: dict[str, Any]) -> Decoder:
    """The weights, put together as the record says."""
    weights = load_file(folder / "model.safetensors")
    shape = Shape(**{**record["shape"], "frequencies": np.array(record["shape"]["frequencies"], np.float32)})
    compare_names(weights.keys(), record["layers"])
    for name in [name for name, weight in weights.items() if np.isnan(weight).any()][:1]:
        raise Unlike(f"it has NaN in {name}")
    return Assembly(weights.get, lambda name, weight: None).decoder(record["layers"], shape)


def write_record(folder: Path, decoder: Decoder, reference: Runner) -> None:
    """Record a decoder that passed the self-test, with what the reference answers."""
    vocabulary = len(decoder.embedding)
    expected = expect(reference, vocabulary)
    columns = [vocabulary * number // _COLUMNS for number in range(_COLUMNS)]
    record = {
        "layers": len(decoder.layers),
        "shape": {**asdict(decoder.shape), "frequencies": decoder.shape.frequencies.tolist()},
        "probe": expected.ids,
        "columns": columns,
        "logits": [[round(float(logit), 5) for logit in row] for row in expected.logits[:, columns]],
    }
    (folder / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
