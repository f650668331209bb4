"""Whether a network is the one that its files describe: all weights read, all of them numbers, read left to right.

Comes in: a network, what transformers says of its loading, its reference engine. Goes out: nothing, or what is
wrong as `Unsound`. Knows no files.

Legend: T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ngram_builders.arrays import Floats
from spd_lsp.models.base import Runner
from spd_lsp.models.self_test import PROBE, probe

_TOLD = 3  # names of tensors in a sentence
_COMMON = PROBE // 2  # positions that two texts begin with
_OTHER_TASKS = (
    "ForMaskedLM",
    "ForPreTraining",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForNextSentencePrediction",
)
_ROUNDING = (
    1e-5  # largest difference of two logits, relative to the largest, that is none: causal ones differ by 0
)
_HALVES = 8  # units in the last place of a half precision that are rounding as well


class Unsound(Exception):
    """What is wrong, and what to do."""


def made_for_another_task(config: Any) -> bool:
    """Whether a description says that the weights learned something else than what comes next."""
    names = getattr(config, "architectures", None) or []
    return bool(getattr(config, "is_encoder_decoder", False)) or (
        bool(names) and all(str(name).endswith(_OTHER_TASKS) for name in names)
    )


def demand_all_weights(network: Any, loaded: Mapping[str, Any]) -> None:
    """Raise if a parameter was not read, which transformers would fill with random numbers.

    loaded: its `output_loading_info`, which does not count what is tied to another tensor. Tensors that the
    network has no use for are no fault.
    """
    parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    if missing := parameters & set(loaded["missing_keys"]):
        raise Unsound(f"expected the tensors {some(missing)}, found none; restore the files")
    if other := loaded["mismatched_keys"]:
        shapes = [f"{name} of shape {list(wanted)}, found {list(found)}" for name, found, wanted in other]
        raise Unsound(f"expected {some(shapes)}; restore the files")


def demand_numbers(network: Any) -> None:
    """Raise if a weight is not a number: whatever is computed with it is none either."""
    if wrong := [name for name, tensor in network.named_parameters() if tensor.numel() and _has_nan(tensor)]:
        raise Unsound(f"expected numbers, found NaN in {some(wrong)}; restore the files")


@torch.inference_mode()
def _has_nan(tensor: torch.Tensor) -> bool:
    """Whether any is not a number, which the largest then is not either."""
    return bool(tensor.max().isnan()) if tensor.is_floating_point() else False


def demand_causal(reference: Runner, network: Any) -> None:
    """Raise if a first pass fails to give numbers, or if what follows a token changes what is said of it."""
    embedding = network.get_input_embeddings().weight
    logits = _two_texts(reference, len(embedding))
    if np.isnan(logits).any() or not np.isfinite(logits.max(axis=-1)).all():
        raise Unsound("its predictions are not numbers; restore the files, or try another --device")
    rounding = max(_ROUNDING, _HALVES * torch.finfo(embedding.dtype).eps)
    first, second = logits[:, :_COMMON]
    differ = np.abs(first - second).max(axis=-1) > rounding * np.abs(first).max(axis=-1)  # [T]
    if differ.all():
        raise Unsound("each token sees those that follow it, as in an encoder; choose a causal language model")


def _two_texts(reference: Runner, vocabulary: int) -> Floats:
    """The logits of two texts that begin alike, read in one pass of one shape. [2, T, V]."""
    ids = probe(vocabulary)
    logits: Floats = reference.read([ids, [*ids[:_COMMON], *ids[_COMMON:][::-1]]], reference.empty())
    return logits


def some(names: Iterable[str]) -> str:
    """The first few in order. Example: ["b", "a", "d", "c"] -> `a, b, c and 1 more`."""
    known: Collection[str] = sorted(names)
    more = f" and {len(known) - _TOLD} more" if len(known) > _TOLD else ""
    return ", ".join(list(known)[:_TOLD]) + more
