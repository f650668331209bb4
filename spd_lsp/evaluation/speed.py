"""The cost of a token of k drafts, by decoder, on one model in one run.

Each decoder continues the same prompt, which is in the cache. Superposed and best-first drafts look up n-grams of
this package's own code. The others do without, which makes them as fast as they can be.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import quantiles

from ngram_builders.index.mixture import DEFAULT_WEIGHT, Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from ngram_builders.token_space import with_boundaries
from spd_lsp.command_options import print_status
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.superposed import DecodingRequest
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.tables import markdown_table
from spd_lsp.models.base import Engine
from spd_lsp.models.hub import locate
from spd_lsp.models.load import load
from spd_lsp.output.progress import ReportProgress
from spd_lsp.settings import Settings

_PROMPT = 512  # tokens
_TOKENS = 16  # of a draft
_HISTORY = 16  # tokens of the prompt that n-grams can see
_WITH_NGRAMS = ("superposed", "best-first")
_BATCHED = ("nucleus", "beam")  # from two drafts on: with one they are greedy
_CODE = Path(__file__).parents[1] / "completion"  # text that is continued and counted

_Key = tuple[str, int]  # a decoder's name and its number of drafts
_Timing = tuple[float, int, int]  # milliseconds a token of all drafts, passes, positions read after the prompt


def run_rounds(
    model: str, device: str, ks: Sequence[int], repeat: int, report: ReportProgress
) -> dict[_Key, list[_Timing]]:
    """Run every decoder once a round, in changing order, so that disturbances affect all alike."""
    folder = locate(model, print_status)
    tokens = ModelTokenizer(folder)
    engine = load(folder, device, print_status)
    prompt = tokens.encode((_CODE / "completer.py").read_text(encoding="utf-8"))[-_PROMPT:]
    encoded = tokens.encode_batch([path.read_text(encoding="utf-8") for path in sorted(_CODE.glob("*.py"))])
    streams = [with_boundaries(ids, tokens.end_of_text) for ids in encoded]
    ngrams = Mixture([[Signed(build_suffix_array(streams))]], [DEFAULT_WEIGHT])
    keys: list[_Key] = [("greedy", 1)]
    keys += [(name, k) for k in ks for name in (*_WITH_NGRAMS, *_BATCHED) if k > 1 or name not in _BATCHED]
    runs: dict[_Key, list[_Timing]] = {key: [] for key in keys}
    for number in range(repeat + 1):
        for key in Random(number).sample(keys, len(keys)):
            timing = _run(engine, prompt, ngrams, *key)
            if number:  # the first round warms up
                runs[key].append(timing)
        report("rounds", number, repeat)
    return runs


def _run(engine: Engine, prompt: Sequence[int], ngrams: Mixture, name: str, k: int) -> _Timing:
    """Decode k drafts of full length after a cached prompt."""
    # Processor time on a CPU, which other processes do not change; wall time on a GPU.
    clock = time.process_time if str(engine.device).startswith("cpu") else time.perf_counter
    mixture = ngrams if name in _WITH_NGRAMS else None
    start = DecodingRequest(prompt, lambda ids: False, prompt[-_HISTORY:], mixture)
    engine.prefill(prompt)
    began = clock()
    drafts = DECODERS[name](engine, start, Settings(drafts=k, max_tokens=_TOKENS), lambda: None)
    return 1000 * (clock() - began) / _TOKENS, drafts.passes, drafts.rows


def speed_report(runs: dict[_Key, list[_Timing]], model: str) -> str:
    """Return a row for each decoder and number of drafts, with ratios taken within rounds."""
    greedy = [ms for ms, _, _ in runs["greedy", 1]]
    rows = [["decoder", "drafts", "ms a token of all drafts", "times greedy", "passes", "rows"]]
    for (name, k), timings in runs.items():
        own = [ms for ms, _, _ in timings]
        ratios = [ms / one for ms, one in zip(own, greedy, strict=True)]
        rows.append([name, f"{k}", spread(own), spread(ratios), *map(str, timings[0][1:])])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{model}, {_TOKENS} tokens a draft, {len(greedy)} rounds: medians with quartiles.\n\n"
        f"{markdown_table(rows)}\n\nPeak memory: {peak:,.0f} MiB."
    )


def spread(values: Sequence[float]) -> str:
    """A median and its quartiles. Example: 1, 2, 3, 4, 5 -> `3.00 (2.00 to 4.00)`"""
    low, median, high = quantiles(values, n=4, method="inclusive")
    return f"{median:.2f} ({low:.2f} to {high:.2f})"
