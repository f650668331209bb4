"""Make the record with which a small model opens without torch: `python -m spd_lsp.models.recording FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from ngram_builders.errors import UserError
from spd_lsp.models.backend_selection import tested_numpy_engine
from spd_lsp.models.checkpoint.limits import SMALL_MODEL
from spd_lsp.models.checkpoint.model_config import read_config
from spd_lsp.models.numpy.recorded import write_recording
from spd_lsp.models.numpy.weights import UnsupportedModel
from spd_lsp.models.transformers_engine import TransformersEngine


def record(folder: Path) -> None:
    """Record the model in a folder; `UserError` if the NumPy decoder does not compute it or it is large."""
    network = AutoModelForCausalLM.from_pretrained(
        folder, config=read_config(folder), dtype=torch.float32, use_safetensors=True, local_files_only=True
    )
    reference = TransformersEngine(network)
    try:
        decoder = tested_numpy_engine(reference, network)[0].decoder
    except UnsupportedModel as reason:
        raise UserError(f"this model can only be opened with torch: {reason}") from reason
    if decoder.size > SMALL_MODEL:
        raise UserError(
            f"a record is for models of up to {SMALL_MODEL:,} parameters; this one has {decoder.size:,}"
        )
    write_recording(folder, decoder, reference)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
