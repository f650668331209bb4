"""How linear a model is in its input: f(sum_i gamma_i z_i) against sum_i gamma_i f(z_i), paper section 3.3.

As in the paper, beam search finds K drafts; at each timestep their last tokens are superposed and read on a cache
that holds superposed positions only, while each beam reads its own tokens. Compared after the embedding, after
each block (the last one normed) and as logits (figures 3 and 16). Beside the paper's cosine stands what a decoder
needs to know: how far the superposed distribution is from the mixture it stands for, and whether the best draft
alone would have been nearer.

Dimensions: K beams, S timesteps, L layers (embedding, blocks, logits), D width, V vocabulary, Q approximations.
"""

# ruff: noqa: TID253 - about tensors from end to end; commands import it where they run

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.models.checkpoint.model_config import read_config

MEASURES = ("superposed", "best draft", "another text")
# What may stand for all drafts. A perfectly linear model gives softmax(sum_i gamma_i f(z_i)), the normalised
# geometric mean of the drafts: a token that one draft excludes is lost, so linearity alone does not make it their
# mixture. The mixture itself is the least that one distribution for all drafts can lose.
APPROXIMATIONS = ("superposed", "best draft alone", "perfectly linear", "the mixture itself")


@dataclass(frozen=True, slots=True)
class Trace:
    """One passage: cosines with sum_i gamma_i f(z_i), and distances between distributions in nats."""

    cosines: dict[str, Floats]  # measure -> [S, L]
    to_mixture: Floats  # [S, Q] KL from the drafts' mixture to each approximation


def open_network(folder: Path, device: str) -> Any:
    """Load the model in transformers, since faster engines do not return hidden states.

    In single precision on the CPU, elsewhere as it was stored.
    """
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=read_config(folder),
            dtype=torch.float32 if chosen == "cpu" else "auto",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"transformers cannot open the model in {folder} ({error}); name a model folder with --model"
        ) from error
    if getattr(network, "_is_stateful", False):
        raise UserError(f"{folder.name} keeps a state that cannot be copied; name an attention-only model")
    return network.to(chosen).eval()


@dataclass(slots=True)
class Beams:
    """Beam search with a row of the cache for each beam."""

    network: Any
    cache: DynamicCache
    ids: Tensor  # [K] the last token of each
    scores: Tensor  # [K] log-probability of each, at the temperature of the drafts
    temperature: float

    @classmethod
    def start(cls, network: Any, prompt: Sequence[int], k: int, temperature: float) -> tuple[Beams, DynamicCache]:
        """The k most likely first tokens after a prompt; and the prompt's cache, for the superposed row."""
        cache = DynamicCache()
        ids = torch.tensor([list(prompt)], device=network.device)
        logits = network(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        logp, first = (logits.float() / temperature).log_softmax(-1).topk(k)
        rows = copy.deepcopy(cache)
        rows.batch_repeat_interleave(k)
        return cls(network, rows, first, logp, temperature), cache

    def read(self) -> tuple[list[Tensor], Tensor]:
        """Each beam reads its last token. -> layers [K, D] and logits [K, V]."""
        return _read_rows(self.network, self.cache, input_ids=self.ids[:, None])

    def extend(self, logits: Tensor) -> None:
        """Keep the best k of all K x V continuations."""
        scores = self.scores[:, None] + (logits / self.temperature).log_softmax(-1)  # [K, V]
        self.scores, places = scores.flatten().topk(len(self.ids))
        parents, self.ids = places // logits.shape[1], places % logits.shape[1]
        self.cache.reorder_cache(parents)  # type: ignore[arg-type]


def _read_rows(network: Any, cache: DynamicCache, **inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """Read one more position of each row. -> every layer with the logits last, L x [K, D or V]; logits [K, V]."""
    out = network(**inputs, past_key_values=cache, use_cache=True, output_hidden_states=True)
    logits = out.logits[:, -1].float()
    return [*(hidden[:, -1].float() for hidden in out.hidden_states), logits], logits


def trace_passages(
    network: Any, prompts: Sequence[Sequence[int]], k: int, steps: int, temperature: float
) -> Iterator[Trace]:
    """Trace each passage; "another text" is the passage before it, which the first lacks."""
    previous: list[list[Tensor]] = []
    for prompt in prompts:
        trace, targets = trace_passage(network, prompt, k, steps, temperature)
        trace.cosines[MEASURES[2]] = (
            np.array([[_cosine(a, b) for a, b in zip(x, y, strict=True)]
                      for x, y in zip(targets, previous, strict=True)])
            if previous
            else np.full(trace.cosines["superposed"].shape, np.nan)
        )  # fmt: skip
        previous = targets
        yield trace


@torch.inference_mode()
def trace_passage(
    network: Any, prompt: Sequence[int], k: int, steps: int, temperature: float
) -> tuple[Trace, list[list[Tensor]]]:
    """Follow one passage for this many timesteps; also return sum_i gamma_i f(z_i) by timestep and layer."""
    beams, cache = Beams.start(network, prompt, k, temperature)
    embed = network.get_input_embeddings()
    cosines: dict[str, list[list[float]]] = {name: [] for name in MEASURES[:2]}
    to_mixture, targets = [], []
    for _ in range(steps):
        gamma = beams.scores.softmax(-1)  # [K] equation 4
        mixed = (gamma.to(embed.weight.dtype) @ embed(beams.ids))[None, None]  # [1, 1, D] equation 3
        superposed, logits = _read_rows(network, cache, inputs_embeds=mixed)
        own, own_logits = beams.read()
        target = [gamma @ rows for rows in own]  # L x [D], the last one [V]
        compared = [
            [rows[0] for rows in superposed],
            [rows[0] for rows in own],
        ]
        for name, layers in zip(cosines, compared, strict=True):
            cosines[name].append([_cosine(a, b) for a, b in zip(layers, target, strict=True)])
        p = own_logits.softmax(-1)  # [K, V]
        log_q = torch.stack([logits[0], own_logits[0], target[-1], (gamma @ p).log()]).log_softmax(-1)  # [Q, V]
        to_mixture.append([float(_kl(gamma @ p, q)) for q in log_q])
        targets.append(target)
        beams.extend(own_logits)
    by_measure = {name: np.array(rows) for name, rows in cosines.items()}
    return Trace(by_measure, np.array(to_mixture)), targets


def _cosine(a: Tensor, b: Tensor) -> float:
    """Equation 8."""
    return float(torch.nn.functional.cosine_similarity(a, b, dim=-1))


def _kl(p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) in nats. [V], [V] -> scalar"""
    return torch.nn.functional.kl_div(log_q, p, reduction="sum")
