"""The report of `spd-lsp bench`.

On a CPU, processor time decides, since other processes cannot take it; on a GPU the wall clock does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from statistics import median
from typing import Any

from spd_lsp.evaluation.bench.clocks import Clocks, Spread, ms_per_token, ratio
from spd_lsp.evaluation.bench.contenders import SINGLE
from spd_lsp.evaluation.bench.run import BenchResults, Key
from spd_lsp.evaluation.report_writer import Report, ReportTable

Clock = Callable[[Clocks], float]
Rows = list[list[str]]

NO_DIFFERENCE = "no difference shown"
_TOKENS = """\
Medians of {rounds} rounds, with quartiles; in each round each contender ran once, in a random order. The prompt
was read with an empty cache each time. A token: {clock} for one more token of all k drafts. Times greedy: the
median ratio within a round; where 1 lies between its quartiles, no difference is shown. Superposed drafts look
up n-grams, the others do not."""
_NAMES = {
    "superposed": "superposed decoding",
    "best-first": "best-first, one row a pass",
    "greedy": "greedy, one draft",
    "nucleus": "nucleus, batched",
    "beam": "beam search, batched",
    "transformers greedy": "transformers greedy, one draft",
    "transformers nucleus": "transformers nucleus, batched",
    "transformers beam": "transformers beam search",
}


_wall: Clock = attrgetter("wall")
_cpu: Clock = attrgetter("cpu")


def bench_report(results: BenchResults) -> Report:
    """Tables, the circumstances, and all rounds."""
    clock = _cpu if results.machine["device"].startswith("cpu") else _wall
    kind = "processor time of all threads" if clock is _cpu else "wall clock"
    tables = {
        _TOKENS.format(rounds=results.asked["rounds"], clock=kind): _token_rows(results, clock),
        "Times superposed decoding with the same k:": _ratio_rows(results, clock),
        "Where this project's decoders spend their time:": _share_rows(results, clock),
    }
    if results.peaks:
        tables["Memory, each in a process of its own:"] = _memory_rows(results)
    parts = [ReportTable(caption, head, rows) for caption, (head, *rows) in tables.items()]
    return Report("bench", "Drafts per model pass, timed", _facts(results), parts, _data(results))


def _facts(results: BenchResults) -> dict[str, str]:
    before, after = results.load
    return {
        "model": results.asked["model"],
        "engine": results.asked["engine"],
        "drafts": f"{results.asked['tokens']} tokens after a prompt of {results.prompt}",
        **results.machine,
        "load average": f"{before} before, {after} after",
    }


def _title(key: Key) -> str:
    """Example: ("beam", 3) -> `beam search, batched, k = 3`"""
    name, k = key
    return _NAMES[name] if name in SINGLE else f"{_NAMES[name]}, k = {k}"


def _token_rows(results: BenchResults, clock: Clock) -> Rows:
    head = ["", "a token, ms", "wall clock, ms", "times greedy", "first token, ms", "all drafts, ms"]
    rows = [[*head, "passes", "positions read"]]
    greedy = ms_per_token(results.runs["greedy", 1], clock)
    for key, timings in results.runs.items():
        own = ms_per_token(timings, clock)
        first = [1e3 * clock(timing.first) for timing in timings]
        whole = [1e3 * clock(timing.first + timing.rest) for timing in timings]
        rows.append(
            [
                _title(key),
                milliseconds(own),
                milliseconds(ms_per_token(timings, _wall)),
                "" if key[0] == "greedy" else times(ratio(own, greedy)),
                milliseconds(first),
                milliseconds(whole),
                f"{timings[0].passes}",
                f"{timings[0].rows}",
            ]
        )
    return rows


def _ratio_rows(results: BenchResults, clock: Clock) -> Rows:
    """A row for each batched contender, a column for each k."""
    ks = sorted({k for name, k in results.runs if name == "superposed"})
    names = dict.fromkeys(name for name, _ in results.runs if name not in (*SINGLE, "superposed"))
    per_token = {key: ms_per_token(timings, clock) for key, timings in results.runs.items()}
    rows = [["", *(f"k = {k}" for k in ks)]]
    for name in names:
        cells = [
            times(ratio(per_token[name, k], per_token["superposed", k])) if (name, k) in per_token else ""
            for k in ks
        ]
        rows.append([_NAMES[name], *cells])
    return rows


def _share_rows(results: BenchResults, clock: Clock) -> Rows:
    """A row for each decoder of this project."""
    rows = [["", "n-gram look-ups", "choosing tokens", "model passes"]]
    for key, timings in results.runs.items():
        if not all(timing.model.wall for timing in timings):
            continue
        ngrams, model = (
            [clock(part) / clock(timing.rest) for part, timing in zip(parts, timings, strict=True)]
            for parts in ([t.ngrams for t in timings], [t.model for t in timings])
        )
        choosing = [1 - a - b for a, b in zip(ngrams, model, strict=True)]
        rows.append([_title(key), *(f"{median(values):.1%}" for values in (ngrams, choosing, model))])
    return rows


def _memory_rows(results: BenchResults) -> Rows:
    rows = [["", "with the model loaded, MB", "more at most, MB"]]
    for key, (held, peak) in results.peaks.items():
        rows.append([_title(key), f"{held / 1e6:,.0f}", f"{max(0, peak - held) / 1e6:,.0f}"])
    return rows


def milliseconds(values: Sequence[float]) -> str:
    """Example: [1.0, 2.0, 3.0] -> `2.00 (1.50 to 2.50)`"""
    spread = Spread.of(values)
    digits = 1 if spread.median >= 100 else 2 if spread.median >= 1 else 3
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


def times(spread: Spread) -> str:
    """A ratio with its quartiles, if it shows a difference."""
    if not spread.differs:
        return NO_DIFFERENCE
    digits = 0 if spread.median >= 100 else 1 if spread.median >= 10 else 2
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


def _data(results: BenchResults) -> dict[str, Any]:
    """All numbers: seconds and bytes."""
    return {
        "asked": results.asked,
        "machine": results.machine,
        "load": results.load,
        "prompt": results.prompt,
        "runs": [{"name": name, "k": k, "rounds": timings} for (name, k), timings in results.runs.items()],
        "peaks": [
            {"name": name, "k": k, "held": held, "peak": peak} for (name, k), (held, peak) in results.peaks.items()
        ],
    }
