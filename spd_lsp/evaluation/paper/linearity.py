"""How linear a model is in its input: f(sum_i gamma_i z_i) against sum_i gamma_i f(z_i), paper section 3.3.

As in the paper, beam search finds K drafts; at each timestep their last tokens are superposed and read on a cache
that holds superposed positions only, while each beam reads its own tokens. Compared after the last block, normed,
and as logits (figure 3). Beside the paper's cosine stands what a decoder needs to know: how far the superposed
distribution is from the mixture it stands for.

Dimensions: N passages, K beams, S timesteps, L layers (embedding, blocks, logits), D width, V vocabulary.
"""

# ruff: noqa: TID253 - about tensors from end to end; commands import it where they run

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.evaluation.bootstrap import mean_interval, mean_intervals
from spd_lsp.evaluation.report_writer import Cell, Report, ReportTable
from spd_lsp.models.checkpoint.model_config import read_config

Groups = Sequence[tuple[str, str]]  # repository and file of each passage

_PLACES = {"last block": -2, "logits": -1}
_SPANS = ((1, 10), (11, 24))  # timesteps that are averaged in the table
_CAPTION = """\
Cosine of a superposed run with the weighted sum of its separate drafts (equation 8), and KL divergence from the
drafts' mixture to the superposed distribution."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One passage: cosines with sum_i gamma_i f(z_i), and distances between distributions in nats."""

    cosines: Floats  # [S, L]
    to_mixture: Floats  # [S] KL from the drafts' mixture


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

    def read(self) -> list[Tensor]:
        """Each beam reads its last token. -> layers [K, D], the last of them logits [K, V]."""
        return _read_rows(self.network, self.cache, input_ids=self.ids[:, None])

    def extend(self, logits: Tensor) -> None:
        """Keep the best k of all K x V continuations."""
        scores = self.scores[:, None] + (logits / self.temperature).log_softmax(-1)  # [K, V]
        self.scores, places = scores.flatten().topk(len(self.ids))
        parents = places // logits.shape[1]
        self.ids = places % logits.shape[1]
        self.cache.reorder_cache(parents)  # type: ignore[arg-type]


def _read_rows(network: Any, cache: DynamicCache, **inputs: Tensor) -> list[Tensor]:
    """Read one more position of each row. -> every layer with the logits last, L x [K, D or V]."""
    out = network(**inputs, past_key_values=cache, use_cache=True, output_hidden_states=True)
    return [*(hidden[:, -1].float() for hidden in out.hidden_states), out.logits[:, -1].float()]


@torch.inference_mode()
def trace_passage(network: Any, prompt: Sequence[int], k: int, steps: int, temperature: float) -> Trace:
    """Follow one passage for this many timesteps."""
    beams, cache = Beams.start(network, prompt, k, temperature)
    embed = network.get_input_embeddings()
    cosines, to_mixture = [], []
    for _ in range(steps):
        gamma = beams.scores.softmax(-1)  # [K] equation 4
        mixed = (gamma.to(embed.weight.dtype) @ embed(beams.ids))[None, None]  # [1, 1, D] equation 3
        superposed = _read_rows(network, cache, inputs_embeds=mixed)
        own = beams.read()
        cosines.append([_cosine(a[0], gamma @ b) for a, b in zip(superposed, own, strict=True)])
        mixture = gamma @ own[-1].softmax(-1)  # [V]
        to_mixture.append(_kl(mixture, superposed[-1][0].log_softmax(-1)))
        beams.extend(own[-1])
    return Trace(np.array(cosines), np.array(to_mixture))


def trace_passages(
    network: Any, prompts: Sequence[Sequence[int]], k: int, steps: int, temperature: float
) -> Iterator[Trace]:
    """Trace each passage."""
    return (trace_passage(network, prompt, k, steps, temperature) for prompt in prompts)


def _cosine(a: Tensor, b: Tensor) -> float:
    """Equation 8."""
    return float(torch.nn.functional.cosine_similarity(a, b, dim=-1))


def _kl(p: Tensor, log_q: Tensor) -> float:
    """KL(p || q) in nats. [V], [V] -> one number"""
    return float(torch.nn.functional.kl_div(log_q, p, reduction="sum"))


def summarise(traces: Mapping[float, Sequence[Trace]], groups: Groups, facts: Mapping[str, Any]) -> Report:
    """A row for each temperature and place, and all means by timestep."""
    steps = len(next(iter(traces.values()))[0].to_mixture)
    spans = [(first, min(last, steps)) for first, last in _SPANS if first <= steps]
    rows: list[list[Cell]] = []
    data: dict[str, Any] = {}
    for temperature, of_temperature in traces.items():
        cosines = np.stack([trace.cosines for trace in of_temperature])  # [N, S, L]
        measures = {f"cosine, {where}": cosines[:, :, layer] for where, layer in _PLACES.items()}
        measures["KL, nats"] = np.stack([trace.to_mixture for trace in of_temperature])  # [N, S]
        for name, values in measures.items():
            means = [mean_interval(values[:, first - 1 : last].mean(axis=1), groups) for first, last in spans]
            rows.append([str(temperature), name, *means])
        data[str(temperature)] = {name: mean_intervals(values, groups) for name, values in measures.items()}
    heads = ["tau", "measure", *(f"timesteps {first}-{last}" for first, last in spans)]
    return Report("linearity", "Linearity", facts, [ReportTable(_CAPTION, heads, rows, digits=3)], data)
