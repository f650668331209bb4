"""Opening a small model without torch, which takes seconds to import, with the help of a record.

The record holds what the weights do not show, and the logits of transformers after a probe. The self-test is the
same as with the reference at hand: where the logits differ, the record is not used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.limits import read_json
from spd_lsp.models.numpy.decoder import Decoder, DecoderConfig, Dense, DraftAdapter, NumpyEngine
from spd_lsp.models.numpy.weights import NumpyWeights, UnsupportedModel, check_names
from spd_lsp.models.self_test import Probe, find_mismatch, probe_reference

RECORD = "decoder.json"
DRAFT_ADAPTER = "draft_adapter.safetensors"
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
        decoder = _read_decoder(folder, record)
        engine = NumpyEngine(
            replace(decoder, adapter=_read_adapter(folder, decoder.embedding[:1].shape[1], report))
        )
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


def _read_adapter(folder: Path, width: int, report: Callable[[str], None]) -> DraftAdapter | None:
    """The draft adapter beside a model of width D, if there is one that fits; one line if it does not."""
    if not (path := folder / DRAFT_ADAPTER).is_file():
        return None
    try:
        return draft_adapter(load_file(path), width)
    except _DAMAGES as error:
        report(
            f"{path} cannot be used ({type(error).__name__}: {error}); drafts share one distribution without it"
        )
        return None


def draft_adapter(weights: Mapping[str, Floats], width: int) -> DraftAdapter:
    """The draft adapter with these weights; raise ValueError if they do not fit a model of width D."""
    inner = weights["down"].shape[-1]
    expected = {"gate_up": (2 * inner, 3 * width), "of_log_gamma": (2 * inner,), "down": (width, inner)}
    if not inner or {name: array.shape for name, array in weights.items()} != expected:
        raise ValueError(f"it is not of a model of width {width}")
    with np.errstate(over="ignore"):  # what does not fit becomes infinite
        gate_up, of_log_gamma, down = (np.asarray(weights[name], np.float32) for name in expected)
    if not all(np.isfinite(array).all() for array in (gate_up, of_log_gamma, down)):
        raise ValueError("it has numbers that are not finite in single precision")
    return DraftAdapter(Dense(np.ascontiguousarray(gate_up.T)), of_log_gamma, Dense(np.ascontiguousarray(down.T)))


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
