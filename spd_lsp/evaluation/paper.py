"""The Superposed Decoding paper's experiments (https://arxiv.org/abs/2405.18400), on code.

Linearity (section 3.3, figure 3): f(sum_i gamma_i z_i) against sum_i gamma_i f(z_i). As in the paper, beam search
finds K drafts; at each timestep their last tokens are superposed and read on a cache that holds superposed
positions only, while each beam reads its own tokens.

Perplexity (tables 1 and 3): drafts by rank against nucleus, greedy and beam. The paper judges drafts of Llama-2-7B
by Llama-2-70B; here the drafting model judges its own, which favours greedy and beam most of all.

The paper takes the first 15 tokens of web pages. Files of code begin with imports, so passages are drawn from all
of a file: one file in six holds passages, and the others are counted as n-grams.

Dimensions: N passages, K drafts, S timesteps, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from ngram_builders.index.query import Signed
from ngram_builders.index.suffix_array import build_suffix_array
from ngram_builders.token_space import with_boundaries
from spd_lsp.command_options import print_status
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.bootstrap import mean_intervals
from spd_lsp.evaluation.decoders import DECODERS, sample
from spd_lsp.evaluation.quality.examples import read_packages
from spd_lsp.evaluation.tables import markdown_table
from spd_lsp.models.base import Engine
from spd_lsp.models.checkpoint.hub import locate
from spd_lsp.models.load import load
from spd_lsp.models.logits import log_softmax
from spd_lsp.ngrams.mixture import MAX_CONTEXT, Mixture
from spd_lsp.settings import Settings

_PREFIX = 128  # tokens that are read before the drafts
_TOKENS = 10  # of a draft, and timesteps
_HELD_OUT = 6  # one file in so many holds passages
_REPOSITORY_WEIGHT = 0.7  # of its n-grams
_TEMPERATURES = (1.0, 0.06)  # of the drafts' probabilities, which weight their tokens
_DEFAULTS = Settings()
_NUCLEUS = Settings(temperature=0.6, candidates=50)  # the decoder itself sets top_p 0.9
# Appendix B; 9 candidates in its code.
PAPER = Settings(interpolation="paper", ranking="mean", temperature=0.06, alpha=0.54, candidates=9)
_METHODS: dict[str, tuple[str, Settings, bool]] = {  # decoder, settings, and whether n-grams are asked
    "nucleus": ("nucleus", _NUCLEUS, False),
    "greedy": ("greedy", _DEFAULTS, False),
    "beam": ("beam", _DEFAULTS, False),
    "SPD without n-grams": ("superposed", _DEFAULTS, False),
    "SPD without n-grams, tau 0.06": ("superposed", PAPER, False),
    "SPD, paper's formula": ("superposed", PAPER, True),
    "SPD, linear n-grams": ("superposed", _DEFAULTS, True),
    "nucleus, linear n-grams": ("nucleus", _NUCLEUS, True),
    "greedy, linear n-grams": ("greedy", _DEFAULTS, True),
    "beam, linear n-grams": ("beam", _DEFAULTS, True),
}


@dataclass(frozen=True, slots=True)
class Passage:
    """A position in a held-out file: the tokens before it, and those that really follow."""

    group: tuple[str, str]  # repository and file
    before: list[int]
    after: list[int]
    mixture: Mixture  # of the repository's other files


def read_passages(repos: Sequence[Path], tokens: ModelTokenizer, examples: int) -> list[Passage]:
    """Draw `examples` passages of each repository, evenly from its held-out files; no two of a file overlap."""
    passages = []
    for package in read_packages(repos):
        rng = np.random.default_rng([0, *package.name.encode()])
        files = [file for file in package.files if file.language == "python"]
        if len(files) < 2:
            raise UserError(f"{package.folder} has {len(files)} Python files, at least two are needed")
        files = [files[i] for i in rng.permutation(len(files))]
        encoded = [list(ids) for ids in tokens.encode_batch([file.text for file in files])]
        held_out = len(files) // _HELD_OUT + 1
        counted = [with_boundaries(ids, tokens.end_of_text) for ids in encoded[held_out:]]
        mixture = Mixture([[Signed(build_suffix_array(counted))]], [_REPOSITORY_WEIGHT])
        places = []
        for file, ids in zip(files[:held_out], encoded, strict=False):
            drawn = rng.permutation(np.arange(_PREFIX, len(ids) - _TOKENS, _TOKENS)).tolist()
            places += [(turn, file, ids, at) for turn, at in enumerate(drawn)]
        for _, file, ids, at in sorted(places, key=lambda place: place[0])[:examples]:
            group = (package.name, file.name)
            passages.append(Passage(group, ids[at - _PREFIX : at], ids[at : at + _TOKENS], mixture))
    return passages


def linearity_table(repos: Sequence[Path], model: str, device: str, drafts: int, examples: int) -> str:
    """Means over passages and timesteps, at each temperature of the drafts' weights."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = locate(model, print_status)
    passages = read_passages(repos, ModelTokenizer(folder), examples)
    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32 if chosen == "cpu" else "auto", use_safetensors=True, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"transformers cannot open {folder} ({error}); name a model folder with --model"
        ) from error
    network.to(chosen).eval()
    rows = [["tau", "cosine after the last block", "cosine of logits", "KL from the drafts' mixture, nats"]]
    for tau in _TEMPERATURES:
        with click.progressbar(passages, label=f"tau {tau}") as bar:
            means = [trace_passage(network, one.before, drafts, _TOKENS, tau).mean(axis=0) for one in bar]
        found = mean_intervals(means, [passage.group for passage in passages])
        rows.append([str(tau), *(f"{interval:.3f}" for interval in found)])
    return f"{model}, k = {drafts}, {len(passages)} passages, {_TOKENS} timesteps\n\n{markdown_table(rows)}"


def trace_passage(network: Any, prompt: Sequence[int], k: int, steps: int, tau: float) -> Floats:
    """Of each timestep: cosines of hidden states and logits with the weighted sum, and KL in nats. -> [S, 3]"""
    import torch
    from transformers import DynamicCache

    embed = network.get_input_embeddings()
    found = []
    with torch.inference_mode():
        # 1. Read the prompt once; the k likeliest tokens begin the beams, a row of a cache each.
        cache = DynamicCache()
        ids = torch.tensor([list(prompt)], device=network.device)
        logits = network(input_ids=ids, past_key_values=cache, use_cache=True).logits[0, -1].float()
        scores, last = (logits / tau).log_softmax(-1).topk(k)  # [K]
        beams = copy.deepcopy(cache)
        beams.batch_repeat_interleave(k)

        for _ in range(steps):
            # 2. Read the superposed token, and every beam's own.
            gamma = scores.softmax(-1)  # [K] equation 4
            mixed = (gamma.to(embed.weight.dtype) @ embed(last))[None, None]  # [1, 1, D] equation 3
            superposed = _read(network, cache, inputs_embeds=mixed)
            own = _read(network, beams, input_ids=last[:, None])

            # 3. Compare the one with the weighted sum of the others (equation 8).
            cosine = torch.nn.functional.cosine_similarity
            cosines = [float(cosine(a[0], gamma @ b, dim=-1)) for a, b in zip(superposed, own, strict=True)]
            mixture = gamma @ own[-1].softmax(-1)  # [V]
            log_q = superposed[-1][0].log_softmax(-1)
            kl = torch.nn.functional.kl_div(log_q, mixture, reduction="sum")
            found.append([*cosines, float(kl)])

            # 4. Keep the best k of all K x V continuations.
            scores = scores[:, None] + (own[-1] / tau).log_softmax(-1)  # [K, V]
            vocabulary = scores.shape[1]
            scores, places = scores.flatten().topk(k)
            last = places % vocabulary
            beams.reorder_cache(places // vocabulary)
    return np.array(found)


def _read(network: Any, cache: Any, **inputs: Any) -> list[Any]:
    """Read one more position of each row. -> the last block's states [K, D] and the logits [K, V]"""
    out = network(**inputs, past_key_values=cache, use_cache=True, output_hidden_states=True)
    return [out.hidden_states[-1][:, -1].float(), out.logits[:, -1].float()]


def perplexity_table(repos: Sequence[Path], model: str, device: str, drafts: int, examples: int) -> str:
    """Mean perplexities by rank, and of the best draft of each passage."""
    folder = locate(model, print_status)
    passages = read_passages(repos, ModelTokenizer(folder), examples)
    engine = load(folder, device)
    with click.progressbar(passages, label="drafting") as bar:
        measured = [dict(_perplexities(engine, passage, drafts)) for passage in bar]
    groups = [passage.group for passage in passages]
    rows = [["method", *(f"draft {rank + 1}" for rank in range(drafts)), "best"]]
    for name in measured[0]:
        values = np.stack([one[name] for one in measured])  # [N, K]
        found = mean_intervals(np.column_stack([values, np.nanmin(values, axis=1)]), groups)
        rows.append([name, *("" if np.isnan(one.mean) else f"{one:.2f}" for one in found)])
    return f"{model}, {len(passages)} passages, drafts of {_TOKENS} tokens\n\n{markdown_table(rows)}"


def _perplexities(engine: Engine, passage: Passage, k: int) -> Iterator[tuple[str, Floats]]:
    """By method, the perplexity of each draft; of samples, which have no rank, their mean each time. -> [K]"""
    for name in _METHODS:
        texts = _write_drafts(engine, passage, name, k)
        values = [float(np.exp(one.mean())) for one in nats(engine, passage.before, texts)]
        if name.startswith("nucleus"):
            values = [float(np.mean(values))] * k
        yield name, np.array([*values, *[np.nan] * (k - len(values))])
    yield "the real text", np.array([np.exp(nats(engine, passage.before, [passage.after])[0].mean())] * k)


def _write_drafts(engine: Engine, passage: Passage, method: str, k: int) -> list[tuple[int, ...]]:
    """The drafts of a method, best first, as long as the real text."""
    decoder, settings, asks = _METHODS[method]
    mixture = passage.mixture if asks else None
    start = DecodingRequest(passage.before, lambda ids: False, passage.before[-MAX_CONTEXT:], mixture)
    settings = replace(settings, drafts=k, max_tokens=len(passage.after))
    if decoder == "nucleus":  # all samples: equal ones do not count once
        return [draft.ids for draft in sample(engine, start, settings, lambda: None)]
    return [draft.ids for draft in DECODERS[decoder](engine, start, settings, lambda: None).best]


def nats(engine: Engine, prompt: Sequence[int], drafts: Sequence[Sequence[int]]) -> list[Floats]:
    """-log p of each token of each draft after a prompt; drafts have the same length. -> K times [T]"""
    first = engine.prefill(prompt)  # [V]
    rest = np.empty((len(drafts), 0, len(first)), first.dtype)  # [K, T - 1, V]
    if len(drafts[0]) > 1:
        cache = engine.prompts[-1].cache.select_rows([0] * len(drafts))
        rest = engine.forward_ids([list(draft[:-1]) for draft in drafts], cache)
    return [
        -log_softmax(np.concatenate([first[None], after]))[np.arange(len(draft)), list(draft)]
        for draft, after in zip(drafts, rest, strict=True)
    ]
