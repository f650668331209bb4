"""Make the record by which a small model is opened without torch: `python -m spd_lsp.models.recording FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from ngram_builders.errors import UserError
from spd_lsp.models.backend_selection import SMALL, fault_of_windows
from spd_lsp.models.checkpoint.description import read_config
from spd_lsp.models.numpy.convert import convert
from spd_lsp.models.numpy.engine import NumpyRunner
from spd_lsp.models.numpy.recorded import write_record
from spd_lsp.models.self_test import expect, fault
from spd_lsp.models.transformers_engine import CausalModel


def record(folder: Path) -> None:
    """Record the model in a folder; `UserError` if the NumPy decoder does not compute it or it is large."""
    network = AutoModelForCausalLM.from_pretrained(
        folder, config=read_config(folder), dtype=torch.float32, use_safetensors=True, local_files_only=True
    )
    reference = CausalModel(network)
    decoder = convert(network)
    if decoder.size > SMALL:
        raise UserError(f"expected at most {SMALL:,} parameters, found {decoder.size:,}; large models need torch")
    found = fault(NumpyRunner(decoder), expect(reference, len(decoder.embedding)))
    if found := found or fault_of_windows(decoder, reference, network):
        raise UserError(f"expected what transformers computes, found: {found}; this model cannot be recorded")
    write_record(folder, decoder, reference)


if __name__ == "__main__":
    record(Path(sys.argv[1]))
