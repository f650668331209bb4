"""How linear a model is in its input: f(sum_i gamma_i z_i) against sum_i gamma_i f(z_i), paper section 3.3.

As in the paper, beam search finds K drafts; at each timestep their last tokens are superposed and read on a cache
that holds superposed positions only, while each beam reads its own tokens. Compared after the embedding, after
each block (the last one normed) and as logits (figures 3 and 16). Beside the paper's cosine stands what a decoder
needs to know: how far the superposed distribution is from the mixture it stands for, and whether the best draft
alone would have been nearer.

Legend: K beams, S timesteps, L layers (embedding, blocks, logits), D width, V vocabulary, Q guesses.
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
from spd_lsp.models.checkpoint.description import read_config

MEASURES = ("superposed", "same history", "best draft", "another text")
# What may stand for all drafts. A perfectly linear model gives softmax(sum_i gamma_i f(z_i)), the normalised
# geometric mean of the drafts: a token that one draft excludes is lost, so linearity alone does not make it their
# mixture. The mixture itself is the least that one distribution for all drafts can lose.
GUESSES = ("superposed", "best draft alone", "perfectly linear", "the mixture itself")


@dataclass(frozen=True, slots=True)
class Trace:
    """One passage: cosines with sum_i gamma_i f(z_i), and distances between distributions in nats."""

    cosines: dict[str, Floats]  # measure -> [S, L]
    to_mixture: (
        Floats  # [S, 2] KL from the drafts' mixture to the superposed distribution, and to the best draft's
    )
    to_drafts: Floats  # [S, 2] the mean of KL from each draft's own distribution, weighted alike, to the same two
    weight: Floats  # [S] gamma of the best draft


def open_network(folder: Path, device: str) -> Any:
    """The model as transformers runs it: faster engines do not tell what their layers hold.

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
        raise UserError(f"transformers cannot open the model in {folder} ({error}); name another model") from error
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
        """The k likeliest first tokens after a prompt; and the prompt's cache, for the superposed row."""
        cache = DynamicCache()
        read = torch.tensor([list(prompt)], device=network.device)
        logits = network(input_ids=read, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        logp, ids = (logits.float() / temperature).log_softmax(-1).topk(k)
        rows = copy.deepcopy(cache)
        rows.batch_repeat_interleave(k)
        return cls(network, rows, ids, logp, temperature), cache

    def read(self) -> tuple[list[Tensor], Tensor]:
        """Each beam reads its last token. -> layers [K, D] and logits [K, V]."""
        return _read_rows(self.network, self.cache, input_ids=self.ids[:, None])

    def go_on(self, logits: Tensor) -> None:
        """The best k of all K x V ways to go on."""
        scores = self.scores[:, None] + (logits / self.temperature).log_softmax(-1)  # [K, V]
        self.scores, places = scores.flatten().topk(len(self.ids))
        parents, self.ids = places // logits.shape[1], places % logits.shape[1]
        self.cache.reorder_cache(parents)  # type: ignore[arg-type]


def _read_rows(network: Any, cache: DynamicCache, **inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """One more position of each row: what every layer makes of it, the logits last. -> L x [K, D or V], [K, V]."""
    out = network(**inputs, past_key_values=cache, use_cache=True, output_hidden_states=True)
    logits = out.logits[:, -1].float()
    return [*(hidden[:, -1].float() for hidden in out.hidden_states), logits], logits


def traces(
    network: Any, prompts: Sequence[Sequence[int]], k: int, steps: int, temperature: float
) -> Iterator[Trace]:
    """Follow each passage; the one before it is the other text that it is compared with, the first has none."""
    before: list[list[Tensor]] = []
    for prompt in prompts:
        found, ends = trace(network, prompt, k, steps, temperature)
        other = against_another(ends, before) if before else np.full(found.cosines["superposed"].shape, np.nan)
        found.cosines[MEASURES[3]] = other
        before = ends
        yield found


@torch.inference_mode()
def trace(
    network: Any, prompt: Sequence[int], k: int, steps: int, temperature: float
) -> tuple[Trace, list[list[Tensor]]]:
    """Follow one passage for so many timesteps; also sum_i gamma_i f(z_i) by timestep and layer."""
    beams, cache = Beams.start(network, prompt, k, temperature)
    embed = network.get_input_embeddings()
    cosines: dict[str, list[list[float]]] = {name: [] for name in MEASURES[:3]}
    to_mixture, to_drafts, weight, ends = [], [], [], []
    for _ in range(steps):
        gamma = beams.scores.softmax(-1)  # [K] equation 4
        same = _shared_history(network, cache, beams.ids, k)
        mixed = (gamma.to(embed.weight.dtype) @ embed(beams.ids))[None, None]  # [1, 1, D] equation 3
        superposed, logits = _read_rows(network, cache, inputs_embeds=mixed)
        own, own_logits = beams.read()
        target = [gamma @ rows for rows in own]  # L x [D], the last one [V]
        seen = [[rows[0] for rows in superposed], [gamma @ rows for rows in same], [rows[0] for rows in own]]
        for name, found in zip(cosines, seen, strict=True):
            cosines[name].append([_cosine(a, b) for a, b in zip(found, target, strict=True)])
        p = own_logits.softmax(-1)  # [K, V]
        guesses = torch.stack([logits[0], own_logits[0], target[-1], (gamma @ p).log()]).log_softmax(-1)  # [Q, V]
        to_mixture.append([float(_kl(gamma @ p, q)) for q in guesses])
        to_drafts.append([float(gamma @ torch.stack([_kl(row, q) for row in p])) for q in guesses])
        weight.append(float(gamma[0]))
        ends.append(target)
        beams.go_on(own_logits)
    by_measure = {name: np.array(rows) for name, rows in cosines.items()}
    return Trace(by_measure, np.array(to_mixture), np.array(to_drafts), np.array(weight)), ends


def _shared_history(network: Any, cache: DynamicCache, ids: Tensor, k: int) -> list[Tensor]:
    """Each token read alone, but after the superposed positions: what one step's mixing does. -> L x [K, D]."""
    rows = copy.deepcopy(cache)
    rows.batch_repeat_interleave(k)
    return _read_rows(network, rows, input_ids=ids[:, None])[0]


def against_another(ends: Sequence[Sequence[Tensor]], others: Sequence[Sequence[Tensor]]) -> Floats:
    """Cosine of one text's target with another's: what two unrelated texts have in common anyway. -> [S, L]."""
    return np.array(
        [[_cosine(a, b) for a, b in zip(x, y, strict=True)] for x, y in zip(ends, others, strict=True)]
    )


def _cosine(a: Tensor, b: Tensor) -> float:
    """Equation 8."""
    return float(torch.nn.functional.cosine_similarity(a, b, dim=-1))


def _kl(p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) in nats. [V], [V] -> scalar."""
    return torch.nn.functional.kl_div(log_q, p, reduction="sum")
