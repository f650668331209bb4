"""Opening a small model without torch, which takes seconds to import, with the help of a record.

The record holds what the weights do not show, and the logits of transformers after a probe. The self-test is the
same as with the reference at hand: where the logits differ, the record is not used.
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

from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import read_json
from spd_lsp.models.numpy.decoder import Decoder, DecoderConfig, NumpyEngine
from spd_lsp.models.numpy.weights import NumpyWeights, UnsupportedModel, check_names
from spd_lsp.models.self_test import Probe, find_mismatch, probe_reference

RECORD = "decoder.json"
_COLUMNS = 32  # ids of the vocabulary whose logits are recorded
_DAMAGES = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    RecursionError,
    SafetensorError,
    UnsupportedModel,
)


def open_recorded(folder: Path, report: Callable[[str], None]) -> NumpyEngine | None:
    """The engine for a folder with a matching record; otherwise None, and one line if there is a record."""
    path = folder / RECORD
    if not path.is_file():
        return None
    report(f"loading {folder.name} on cpu")
    try:
        record = read_json(path)
        engine = NumpyEngine(_read_decoder(folder, record))
        mismatch = find_mismatch(engine, Probe(record["probe"], np.array(record["logits"]), record["columns"]))
    except _DAMAGES as error:
        mismatch = f"{type(error).__name__}: {error}"
    if mismatch:
        report(f"{path} does not match the weights ({mismatch}); loading them with torch")
        return None
    return engine


def _read_decoder(folder: Path, record: dict[str, Any]) -> Decoder:
    """The weights, put together as the record says."""
    weights = load_file(folder / "model.safetensors")
    shape = record["shape"]
    config = DecoderConfig(**{**shape, "frequencies": np.array(shape["frequencies"], np.float32)})
    check_names(weights.keys(), record["layers"])
    for name in [name for name, weight in weights.items() if np.isnan(weight).any()][:1]:
        raise UnsupportedModel(f"it has NaN in {name}")
    return NumpyWeights(weights.get, config.epsilon).decoder(record["layers"], config)


def write_recording(folder: Path, decoder: Decoder, reference: Engine) -> None:
    """Record a decoder that passed the self-test, with the reference's logits."""
    vocabulary = len(decoder.embedding)
    probe = probe_reference(reference, vocabulary)
    columns = [vocabulary * number // _COLUMNS for number in range(_COLUMNS)]
    record = {
        "layers": len(decoder.layers),
        "shape": {**asdict(decoder.config), "frequencies": decoder.config.frequencies.tolist()},
        "probe": probe.ids,
        "columns": columns,
        "logits": [[round(float(logit), 5) for logit in row] for row in probe.logits[:, columns]],
    }
    (folder / RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
