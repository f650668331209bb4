"""The experiments of the paper on Superposed Decoding (https://arxiv.org/abs/2405.18400), on files at hand.

A passage is a position in a held-out file; the other files are counted as n-grams. The paper takes the first 15
tokens of web pages; files of code begin with imports, so passages are drawn from all of a file. The paper judges
drafts of Llama-2-7B by Llama-2-70B; here the drafting model judges its own, which favours greedy and beam most.

Linearity compares f(sum_i gamma_i z_i) with sum_i gamma_i f(z_i). As in the paper, beam search finds k drafts.
Their last tokens are superposed on a cache of superposed positions; each reads its own.

Dimensions: N passages, K drafts, S timesteps, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from ngram_builders.index.mixture import ORDER_COUNT, Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from ngram_builders.token_space import with_boundaries
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.candidates import TINY, log_softmax, top
from spd_lsp.decoding.nucleus import sampled_drafts
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.bootstrap import Interval, mean_intervals
from spd_lsp.evaluation.decoders import DECODERS, sample
from spd_lsp.evaluation.quality.examples import read_packages
from spd_lsp.evaluation.tables import markdown_table, percent
from spd_lsp.models.base import Engine, ForwardInput
from spd_lsp.ngrams.serving_tables import adjusted
from spd_lsp.output.progress import ReportProgress
from spd_lsp.settings import Settings

_PREFIX = 128  # tokens that are read before the drafts
_TOKENS = 10  # of a draft
_LONG = 30  # tokens of a draft that is reset
_FACT = 4  # tokens that have to follow
_SAMPLES = (1, 2, 4, 8)
_STEPS = (1, 2, 3, 5, 10)  # the timesteps in the table
_HELD_OUT = 6  # one file in this many is held out
_WEIGHT = 0.7  # of n-grams
_TEMPERATURES = (1.0, 0.06)  # of the drafts' probabilities, which weight their tokens

_PLAIN = Settings()
_NUCLEUS = Settings(temperature=0.6, candidates=50)  # of the smallest set that holds 0.9
# Appendix B; 9 candidates in its code.
PAPER = Settings(interpolation="paper", ranking="mean", temperature=0.06, alpha=0.54, candidates=9)
_Method = tuple[str, Settings, bool]  # decoder, settings, whether n-grams are used
_PERPLEXITY: dict[str, _Method] = {
    "nucleus": ("nucleus", _NUCLEUS, False),
    "greedy": ("greedy", _PLAIN, False),
    "beam": ("beam", _PLAIN, False),
    "SPD without n-grams": ("superposed", _PLAIN, False),
    "SPD without n-grams, tau 0.06": ("superposed", PAPER, False),
    "SPD, paper's formula": ("superposed", PAPER, True),
    "SPD, linear n-grams": ("superposed", _PLAIN, True),
    "nucleus, linear n-grams": ("nucleus", _NUCLEUS, True),
    "greedy, linear n-grams": ("greedy", _PLAIN, True),
    "beam, linear n-grams": ("beam", _PLAIN, True),
}
_ORDERS: dict[str, _Method] = {f"2 to {n}": ("superposed", replace(PAPER, max_order=n), True) for n in range(2, 7)}
_RESETS: dict[str, _Method] = {
    "never": ("superposed", PAPER, True),
    **{f"{name}, every {s}": (decoder, replace(PAPER, reset_every=s), True)
       for name, decoder in (("the best", "superposed"), ("one drawn", "sampled-resets")) for s in (5, 10)},
}  # fmt: skip
_COVERAGE: dict[str, tuple[_Method, _Method]] = {
    " without n-grams": (("nucleus", _NUCLEUS, False), ("nucleus-superposed", _PLAIN, False)),
    ", paper's formula": (("nucleus", _NUCLEUS, False), ("nucleus-superposed", PAPER, True)),
    ", linear n-grams": (("nucleus", _NUCLEUS, True), ("nucleus-superposed", _PLAIN, True)),
}

PARTS = {  # of the report, with the heads of their tables
    "perplexity": f"perplexity of {_TOKENS} tokens (tables 1, 3)",
    "facts": f"the next {_FACT} tokens (table 2)",
    "orders": "n-grams (table 4)",
    "resets": f"resets, {_LONG} tokens (section 5.3)",
    "coverage": f"the next {_FACT} tokens (figures 8 to 11)",
    "linearity": "linearity (figure 3)",
}
_Measure = Callable[["Passage"], Mapping[str, Floats]]


@dataclass(frozen=True, slots=True)
class Passage:
    """A position in a held-out file: the tokens before it and the tokens after it."""

    group: tuple[str, str]  # repository and file
    before: list[int]
    after: list[int]
    mixture: Mixture  # of the other files


def read_passages(repos: Sequence[Path], tokens: ModelTokenizer, examples: int) -> list[Passage]:
    """Draw passages evenly from held-out files, without overlap. `examples`: the number for each repository."""
    passages: list[Passage] = []
    for package in read_packages(repos):
        name, rng = package.name, np.random.default_rng([0, *package.name.encode()])
        files = [file for file in package.files if file.language == "python"]
        if len(files) < 2:
            raise UserError(f"{name} has {len(files)} files of Python, at least two are needed; name others")
        files = [files[i] for i in rng.permutation(len(files))]
        encoded = [list(ids) for ids in tokens.encode_batch([file.text for file in files])]
        held_out = len(files) // _HELD_OUT + 1
        counted = [with_boundaries(ids, tokens.end_of_text) for ids in encoded[held_out:]]
        mixture = Mixture([[Signed(build_suffix_array(counted))]], [_WEIGHT])
        places = []
        for file, ids in zip(files[:held_out], encoded, strict=False):
            drawn = rng.permutation(np.arange(_PREFIX, len(ids) - _LONG, _LONG)).tolist()
            places += [(turn, file.name, ids, at) for turn, at in enumerate(drawn)]
        for _, file_name, ids, at in sorted(places, key=lambda place: place[0])[:examples]:
            passages.append(Passage((name, file_name), ids[at - _PREFIX : at], ids[at : at + _LONG], mixture))
    return passages


def paper_tables(
    engine: Engine, passages: Sequence[Passage], k: int, parts: Sequence[str], report: ReportProgress
) -> Iterator[str]:
    """Yield the tables of the chosen PARTS."""
    ranks = [*(f"draft {rank + 1}" for rank in range(k)), "best"]
    perplexities = partial(_perplexities, engine, k)

    def linearity(passage: Passage) -> dict[str, Floats]:
        found = {}
        for tau in _TEMPERATURES:
            traced = trace_passage(engine, passage.before, k, _STEPS[-1], tau)[[step - 1 for step in _STEPS]]
            for name, column in zip(("cosine", "cosine with the step before", "KL, nats"), traced.T, strict=True):
                found[f"tau {tau}: {name}"] = column
        return found

    measures: dict[str, tuple[Sequence[str], _Measure, Callable[[Interval], str]]] = {
        "perplexity": (ranks, partial(perplexities, _PERPLEXITY, _TOKENS), "{:.2f}".format),
        "orders": (ranks, partial(perplexities, _ORDERS, _TOKENS), "{:.2f}".format),
        "resets": (ranks, partial(perplexities, _RESETS, _LONG), "{:.2f}".format),
        "facts": ([f"P@{n + 1}, %" for n in range(k)], partial(_precisions, engine, k), percent),
        "coverage": ([f"{n * _FACT} passes, %" for n in _SAMPLES], partial(_coverage, engine, k), percent),
        "linearity": ([f"step {s}" for s in _STEPS], linearity, "{:.3f}".format),
    }
    for part in parts:
        head, measure, show = measures[part]
        measured = []
        for number, passage in enumerate(passages):
            report(part, number, len(passages))
            measured.append(measure(passage))
        rows = [[PARTS[part], *head]]
        for name in measured[0]:
            found = mean_intervals([one[name] for one in measured], [passage.group for passage in passages])
            rows.append([name, *("" if np.isnan(one.mean) else show(one) for one in found)])
        yield markdown_table(rows)


def _drafts(engine: Engine, passage: Passage, method: _Method, k: int, tokens: int) -> list[tuple[int, ...]]:
    """Return drafts of a fixed length, best first; samples, which have no rank, as drawn."""
    decoder, settings, asks = method
    settings = replace(settings, drafts=k, max_tokens=tokens)
    mixture = adjusted(passage.mixture, settings) if asks else None
    request = DecodingRequest(passage.before, lambda ids: False, passage.before[-ORDER_COUNT:], mixture)
    if decoder == "nucleus":  # equal ones do not count once
        _, drafts = sample(engine, request, settings, lambda: None)
    elif decoder == "nucleus-superposed":
        samples = sampled_drafts(engine, request, settings, lambda: None, _SAMPLES[-1])
        drafts = [draft for result in samples for draft in result.best]
    else:
        drafts = DECODERS[decoder](engine, request, settings, lambda: None).best
    return [draft.ids for draft in drafts]


def _perplexities(
    engine: Engine, k: int, methods: Mapping[str, _Method], tokens: int, passage: Passage
) -> dict[str, Floats]:
    """Return the perplexity of each draft by rank, and of the best. -> [K + 1]"""
    texts = {name: _drafts(engine, passage, method, k, tokens) for name, method in methods.items()}
    texts["the real text"] = [tuple(passage.after[:tokens])]
    found = {}
    for name, drafts in texts.items():
        values = [float(np.exp(one.mean())) for one in nats(engine, passage.before, drafts)]
        found[name] = np.array([*values, *[np.nan] * (k - len(values)), min(values)])
    return found


def nats(engine: Engine, prompt: Sequence[int], drafts: Sequence[Sequence[int]]) -> list[Floats]:
    """-log p of each token of each draft after a prompt; drafts have the same length. -> K times [T]"""
    first = engine.prefill(prompt)  # [V]
    rest = np.empty((len(drafts), 0, len(first)), first.dtype)  # [K, T - 1, V]
    if len(drafts[0]) > 1:
        cache = engine.prompts[-1].cache
        rest = np.stack([engine.forward(draft[:-1], cache.fork(len(prompt))) for draft in drafts])
    return [
        -log_softmax(np.concatenate([first[None], after]))[np.arange(len(draft)), list(draft)]
        for draft, after in zip(drafts, rest, strict=True)
    ]


def _precisions(engine: Engine, k: int, passage: Passage) -> dict[str, Floats]:
    """Whether the true continuation is among the first 1 ... k drafts. -> [K]"""
    fact = tuple(passage.after[:_FACT])
    found = {}
    for name, method in _PERPLEXITY.items():
        right = [draft == fact for draft in _drafts(engine, passage, method, k, _FACT)]
        found[name] = np.array([any(right[: n + 1]) for n in range(k)], float)
    return found


def _coverage(engine: Engine, k: int, passage: Passage) -> dict[str, Floats]:
    """Whether the true continuation is among the drafts of n samples, 1 or k drafts each. -> [len(_SAMPLES)]"""
    fact = tuple(passage.after[:_FACT])
    most = _SAMPLES[-1]
    found = {}
    for name, (one, several) in _COVERAGE.items():
        samples = [draft == fact for draft in _drafts(engine, passage, one, most, _FACT)]
        finished = [draft == fact for draft in _drafts(engine, passage, several, k, _FACT)]
        found[f"nucleus{name}"] = np.array([any(samples[:n]) for n in _SAMPLES], float)
        found[f"nucleus x SPD{name}"] = np.array([any(finished[: n * k]) for n in _SAMPLES], float)
    return found


def trace_passage(engine: Engine, prompt: Sequence[int], k: int, steps: int, tau: float) -> Floats:
    """Compare the logits of the superposed run with the weighted sum at each timestep. -> [S, 3]

    The columns are their cosine; for comparison, the cosine with the weighted sum of the step before; and the KL
    divergence from the drafts' mixture, in nats.
    """
    # 1. Read the prompt once; the k likeliest tokens begin the beams, each with a cache.
    before = engine.prefill(prompt)  # [V]
    last = top(before, k)
    scores = log_softmax(before / tau)[last]  # [K]
    superposed = engine.prompts[-1].cache.fork(len(prompt))
    beams, parents = [engine.prompts[-1].cache], np.zeros(k, int)
    found = []
    for step in range(steps):
        # 2. Read the superposed token, and every beam's own.
        gamma = np.exp(log_softmax(scores))  # [K] equation 4
        mixed = engine.forward(last.tolist(), superposed, gamma)  # [V] equation 3
        beams = [beams[parent].fork(len(prompt) + step) for parent in parents.tolist()]
        inputs = zip(beams, last.tolist(), strict=True)
        own = np.stack(engine.forward_batch([ForwardInput(beam, [token], np.ones(1)) for beam, token in inputs]))

        # 3. Compare the first with the weighted sum of the others (equation 8).
        expected = gamma @ own
        p = gamma @ np.exp(log_softmax(own))
        kl = p @ (np.log(np.maximum(p, TINY)) - log_softmax(mixed))
        sums = np.array([expected, before])  # [2, V]
        cosines = sums @ mixed / (np.linalg.norm(sums, axis=1) * np.linalg.norm(mixed))
        found.append([*cosines, kl])
        before = expected

        # 4. Keep the best k of all K x V continuations.
        options = scores[:, None] + log_softmax(own / tau)
        places = top(options.ravel(), k)
        parents, last = np.divmod(places, options.shape[1])
        scores = options.ravel()[places]
    return np.array(found)
