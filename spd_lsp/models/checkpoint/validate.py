"""Whether a loaded network is the one that its files describe: all weights read, none of them NaN, and causal.

Legend: T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Engine
from spd_lsp.models.self_test import PROBE_LENGTH, probe_ids

_MAX_NAMES = 3  # of tensors in a sentence
_COMMON_PREFIX = PROBE_LENGTH // 2
_ROUNDING = 1e-5  # difference of two logits, relative to the largest, that still counts as none
_ROUNDING_ULPS = 8  # in half precision


class InvalidWeights(Exception):
    """What is wrong, and what to do."""


def check_all_loaded(network: Any, loading_info: Mapping[str, Any]) -> None:
    """Raise if a parameter was not loaded, which transformers would fill with random numbers.

    `loading_info` does not count what is tied to another tensor. Tensors that the network does not use are fine.
    """
    parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    if missing := parameters & set(loading_info["missing_keys"]):
        raise InvalidWeights(f"the tensors {_list_some(missing)} are missing; restore the files")
    if mismatched := loading_info["mismatched_keys"]:
        shapes = [
            f"{name} has shape {list(found)} instead of {list(wanted)}" for name, found, wanted in mismatched
        ]
        raise InvalidWeights(f"{_list_some(shapes)}; restore the files")


def check_no_nan(network: Any) -> None:
    """Raise if a weight is NaN: whatever is computed with it is NaN as well."""
    weights = [(name, weight.data) for name, weight in network.named_parameters() if weight.is_floating_point()]
    if names := [name for name, weight in weights if weight.numel() and weight.max().isnan()]:
        raise InvalidWeights(f"there is NaN in {_list_some(names)}; restore the files")


def check_causal(engine: Engine, network: Any) -> None:
    """Raise if a first pass does not give numbers, or if later tokens change the logits of earlier ones."""
    embedding = network.get_input_embeddings().weight
    logits = _logits_of_two_texts(engine, len(embedding))
    if np.isnan(logits).any() or not np.isfinite(logits.max(axis=-1)).all():
        raise InvalidWeights("its predictions are not numbers; restore the files, or try another --device")
    rounding = max(_ROUNDING, _ROUNDING_ULPS * torch.finfo(embedding.dtype).eps)
    first, second = logits[:, :_COMMON_PREFIX]
    differ = np.abs(first - second).max(axis=-1) > rounding * np.abs(first).max(axis=-1)  # [T]
    if differ.all():
        raise InvalidWeights(
            "each token sees those that follow it, as in an encoder; choose a causal language model"
        )


def _logits_of_two_texts(engine: Engine, vocabulary: int) -> Floats:
    """The logits of two texts with a common prefix, read in one pass of one shape. [2, T, V]."""
    ids = probe_ids(vocabulary)
    other = [*ids[:_COMMON_PREFIX], *ids[_COMMON_PREFIX:][::-1]]
    return engine.forward_ids([ids, other], engine.new_cache())


def _list_some(names: Iterable[str]) -> str:
    """The first few in order. Example: ["b", "a", "d", "c"] -> `a, b, c and 1 more`."""
    known = sorted(names)
    more = f" and {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else ""
    return ", ".join(known[:_MAX_NAMES]) + more
