"""The report of `spd-lsp bench`.

On a CPU, processor time decides, since other processes cannot take it; on a GPU the wall clock does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from statistics import median
from typing import Any

from spd_lsp.evaluation.bench.clocks import Clocks, Spread, ms_per_token, ratio
from spd_lsp.evaluation.bench.contenders import LLAMA_CPP, SINGLE
from spd_lsp.evaluation.bench.prefixes import COLD
from spd_lsp.evaluation.bench.run import BenchResults, Key
from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.evaluation.report_writer import Panel, PlotPoint, Report, ReportTable

Clock = Callable[[Clocks], float]
Rows = list[list[str]]

NO_DIFFERENCE = "no difference shown"
_TOKENS = """\
Medians of {rounds} rounds, with quartiles; in each round each contender ran once, in a random order. The prompt
was read with an empty cache each time. A token: {clock} for one more token of all k drafts. Times greedy: the
median ratio within a round; where 1 lies between its quartiles, no difference is shown. Superposed drafts look
up n-grams, the others do not. llama.cpp is called as a library: k rows
that share the prompt, with keys and values in half precision."""
_NAMES = {
    "superposed": "superposed decoding",
    "best-first": "best-first, one row a pass",
    "greedy": "greedy, one draft",
    "nucleus": "nucleus, batched",
    "beam": "beam search, batched",
    "transformers greedy": "transformers greedy, one draft",
    "transformers nucleus": "transformers nucleus, batched",
    "transformers beam": "transformers beam search",
    LLAMA_CPP: "llama.cpp, batched",
    "reading": "reading the weights (limit)",
}


_wall: Clock = attrgetter("wall")
_cpu: Clock = attrgetter("cpu")


def bench_report(results: BenchResults) -> Report:
    """Tables, the figure, the circumstances, and all rounds."""
    clock = _cpu if results.machine["device"].startswith("cpu") else _wall
    kind = "processor time of all threads" if clock is _cpu else "wall clock"
    tables = {
        _TOKENS.format(rounds=results.asked["rounds"], clock=kind): _token_rows(results, clock),
        "Times superposed decoding with the same k:": _ratio_rows(results, clock),
        "Where this project's decoders spend their time, and the limit of the machine:": _share_rows(
            results, clock
        ),
        "A prompt read again, by what changed since the last request:": _prefix_rows(results, clock),
    }
    if results.peaks:
        tables["Memory, each in a process of its own:"] = _memory_rows(results)
    parts = [ReportTable(caption, head, rows) for caption, (head, *rows) in tables.items()]
    panel = Panel("k, drafts written at once", f"ms of {kind} for a token of all drafts", _series(results, clock))
    return Report("bench", "Drafts per model pass, timed", _facts(results), parts, _data(results), [panel])


def _facts(results: BenchResults) -> dict[str, str]:
    before, after = results.load
    return {
        "model": f"{results.asked['model']}, {results.weights / 1e6:,.1f} MB of weights a token",
        "engine": results.asked["engine"],
        "llama.cpp": results.asked["llama.cpp"],
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
        is_draft = key[0] != "reading"
        rows.append(
            [
                _title(key),
                milliseconds(own),
                milliseconds(ms_per_token(timings, _wall)),
                "" if key[0] == "greedy" else times(ratio(own, greedy)),
                milliseconds(first) if is_draft else "",
                milliseconds(whole) if is_draft else "",
                f"{timings[0].passes or ''}",
                f"{timings[0].rows or ''}",
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
    """A row for each decoder of this project, and the speed of reading."""
    limit = ms_per_token(results.runs["reading", 1], clock)
    rate = results.weights / (Spread.of(limit).median / 1e3) / 1e9
    head = [
        "",
        "n-gram look-ups",
        "choosing tokens",
        "model passes",
        f"times reading the weights at {rate:.1f} GB/s",
    ]
    rows = [head]
    for key, timings in results.runs.items():
        if not all(timing.model.wall for timing in timings):
            continue
        ngrams, model = (
            [clock(part) / clock(timing.rest) for part, timing in zip(parts, timings, strict=True)]
            for parts in ([t.ngrams for t in timings], [t.model for t in timings])
        )
        choosing = [1 - a - b for a, b in zip(ngrams, model, strict=True)]
        shares = [f"{median(values):.1%}" for values in (ngrams, choosing, model)]
        rows.append([_title(key), *shares, times(ratio(ms_per_token(timings, clock), limit))])
    return rows


def _prefix_rows(results: BenchResults, clock: Clock) -> Rows:
    ms = {name: [1e3 * clock(one) for one in timings] for name, timings in results.prefixes.items()}
    rows = [["", "ms", "times faster than cold"]]
    for name, values in sorted(ms.items(), key=lambda item: -median(item[1])):
        rows.append([name, milliseconds(values), "" if name == COLD else times(ratio(ms[COLD], values))])
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
        "weights": results.weights,
        "prompt": results.prompt,
        "runs": [{"name": name, "k": k, "rounds": timings} for (name, k), timings in results.runs.items()],
        "prefixes": results.prefixes,
        "peaks": [
            {"name": name, "k": k, "held": held, "peak": peak} for (name, k), (held, peak) in results.peaks.items()
        ],
    }


def _series(results: BenchResults, clock: Clock) -> dict[str, list[PlotPoint]]:
    """Time of a token by k, with quartiles; contenders that write one draft are level lines."""
    series: dict[str, list[PlotPoint]] = {}
    for k in sorted({k for _, k in results.runs}):
        for name in dict.fromkeys(name for name, _ in results.runs):
            if timings := results.runs.get((name, 1 if name in SINGLE else k)):
                spread = Spread.of(ms_per_token(timings, clock))
                series.setdefault(_NAMES[name], []).append((k, Interval(spread.median, spread.low, spread.high)))
    return series
