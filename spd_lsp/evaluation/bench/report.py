"""What a session found -> a report. Measures nothing.

Processor time decides, since neighbours cannot take it; on a GPU, where it says little, the wall clock does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spd_lsp.evaluation.bench.arms import LLAMA_CPP, SINGLE
from spd_lsp.evaluation.bench.editors import DRAFTS
from spd_lsp.evaluation.bench.moments import Moment, Spread, per_token, ratio
from spd_lsp.evaluation.bench.prefixes import COLD
from spd_lsp.evaluation.bench.session import Found, Key
from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.evaluation.report_writer import Panel, Report, Table

NO_DIFFERENCE = "no difference shown"
_TAKEN = (
    "Medians of {rounds} rounds, with quartiles; in each round each contender ran once, in an order that changed. "
    "The prompt was read with an empty cache each time. A token: {clock} for one more token of all k drafts. "
    "Beside greedy: the median ratio within a round; where 1 lies between its quartiles, no difference is shown. "
    "Superposed drafts ask n-grams, the others do not; verifying them at the end is shared among their tokens. "
    "llama.cpp is called as a library: k rows that share the prompt, with keys and values in half precision."
)
_SHARED = (
    "Editors that ask at once, each as soon as it is answered, after five more typed tokens. What waits is "
    "read in one pass, of one row for superposed drafts and of k for others; all ask n-grams. The same clock:"
)
NAMES = {
    "superposed": "superposed decoding",
    "rescored": "superposed, then rescored",
    "greedy": "greedy, one draft",
    "branches": "likeliest first tokens, batched",
    "nucleus": "nucleus, batched",
    "beam": "beam search, batched",
    "transformers greedy": "transformers greedy, one draft",
    "transformers nucleus": "transformers nucleus, batched",
    "transformers beam": "transformers beam search",
    LLAMA_CPP: "llama.cpp, batched",
    "reading": "reading the weights (limit)",
}


def wall(moment: Moment) -> float:
    """Its wall clock."""
    return moment.wall


def cpu(moment: Moment) -> float:
    """Its processor time."""
    return moment.cpu


def _clock_of(found: Found) -> Callable[[Moment], float]:
    """The clock that decides."""
    return cpu if found.machine["device"].startswith("cpu") else wall


def report_of(found: Found) -> Report:
    """Tables, what they were taken from, and all rounds."""
    clock = _clock_of(found)
    kind = "processor time of all threads" if clock is cpu else "wall clock"
    tables = {
        _TAKEN.format(rounds=found.asked["rounds"], clock=kind): _tokens_table(found, clock),
        "How many times as long as superposed decoding with the same k:": _ratio_table(found, clock),
        "Where this project's decoders spend their time, and the limit of the machine:": _share_table(
            found, clock
        ),
        "A prompt read again, by what changed since the last request:": _prefix_table(found, clock),
    }
    if found.served:
        tables[_SHARED] = _editors_table(found, clock)
    if found.peaks:
        tables["Memory, each in a process of its own:"] = _memory_table(found)
    return Report(
        "bench",
        "Drafts per model pass, timed",
        facts(found),
        [Table(caption, head, rows) for caption, (head, *rows) in tables.items()],
        rounds(found),
        [_panel(found)],
    )


def facts(found: Found) -> dict[str, str]:
    """The circumstances, in words."""
    before, after = found.load
    return {
        "model": f"{found.asked['model']}, {found.weights / 1e6:,.1f} MB of weights a token",
        "engine": found.asked["engine"],
        "llama.cpp": found.asked["llama.cpp"],
        "asked": f"{found.asked['tokens']} tokens after a prompt of {found.prompt}",
        **found.machine,
        "load": f"{before} processes wanted to run before, {after} after",
    }


def title(key: Key) -> str:
    """Example: ("beam", 3) -> beam search, batched, k = 3."""
    name, k = key
    return NAMES[name] if name in SINGLE else f"{NAMES[name]}, k = {k}"


def _tokens_table(found: Found, clock: Callable[[Moment], float]) -> list[list[str]]:
    """A row for each contender."""
    head = ["", "a token, ms", "wall clock, ms", "beside greedy", "first token, ms", "all drafts, ms"]
    rows = [[*head, "passes", "positions read"]]
    base = per_token(found.runs["greedy", 1], clock)
    for key, runs in found.runs.items():
        ended = [1e3 * clock(run.first + run.rest) for run in runs]
        rows.append(
            [
                title(key),
                milliseconds(per_token(runs, clock)),
                milliseconds(per_token(runs, wall)),
                "" if key[0] == "greedy" else times(ratio(per_token(runs, clock), base)),
                milliseconds([1e3 * clock(run.first) for run in runs]) if key[0] != "reading" else "",
                milliseconds(ended) if key[0] != "reading" else "",
                f"{runs[0].passes or ''}",
                f"{runs[0].rows or ''}",
            ]
        )
    return rows


def _ratio_table(found: Found, clock: Callable[[Moment], float]) -> list[list[str]]:
    """A row for each batched contender, a column for each k."""
    ks = sorted({k for name, k in found.runs if name == "superposed"})
    names = list(dict.fromkeys(name for name, _ in found.runs if name not in (*SINGLE, "superposed")))
    rows = [["", *(f"k = {k}" for k in ks)]]
    for name in names:
        cells = [
            times(ratio(per_token(found.runs[name, k], clock), per_token(found.runs["superposed", k], clock)))
            if (name, k) in found.runs
            else ""
            for k in ks
        ]
        rows.append([NAMES[name], *cells])
    return rows


def _share_table(found: Found, clock: Callable[[Moment], float]) -> list[list[str]]:
    """What a token is made of in this project's decoders, and how near to the limit it is."""
    limit = per_token(found.runs["reading", 1], clock)
    speed = found.weights / Spread.of(limit).median / 1e6
    rows = [["", "n-gram look-ups", "choosing drafts", "model", f"beside reading the weights ({speed:.1f} GB/s)"]]
    for key, runs in found.runs.items():
        if not all(run.model.wall for run in runs):
            continue
        whole = [clock(run.rest) for run in runs]
        ngrams = [clock(run.ngrams) / all_ for run, all_ in zip(runs, whole, strict=True)]
        model = [clock(run.model) / all_ for run, all_ in zip(runs, whole, strict=True)]
        chosen = [1 - a - b for a, b in zip(ngrams, model, strict=True)]
        near = times(ratio(per_token(runs, clock), limit))
        rows.append([title(key), *map(_percent, (ngrams, chosen, model)), near])
    return rows


def _prefix_table(found: Found, clock: Callable[[Moment], float]) -> list[list[str]]:
    """A row for each kind of edit."""
    taken = {name: [1e3 * clock(moment) for moment in moments] for name, moments in found.prefixes.items()}
    rows = [["", "ms", "cheaper than cold"]]
    for name, values in sorted(taken.items(), key=lambda item: -Spread.of(item[1]).median):
        rows.append([name, milliseconds(values), "" if name == COLD else times(ratio(taken[COLD], values))])
    return rows


def _editors_table(found: Found, clock: Callable[[Moment], float]) -> list[list[str]]:
    """A row for each number of editors and decoder."""
    rows = [["editors", "drafts by", "ms a completion", "completions a second", "beside superposed", "in a pass"]]
    each = {key: [1e3 * clock(one.taken) / one.completions for one in all_] for key, all_ in found.served.items()}
    for (name, editors), values in each.items():
        rows.append(
            [
                f"{editors}",
                "greedy, one draft" if name == "greedy" else f"{NAMES[name]}, k = {DRAFTS}",
                milliseconds(values),
                f"{1e3 / Spread.of(values).median:.0f}",
                "" if name == "superposed" else times(ratio(values, each["superposed", editors])),
                f"{Spread.of([one.together for one in found.served[name, editors]]).median:.1f}",
            ]
        )
    return rows


def _memory_table(found: Found) -> list[list[str]]:
    """A row for each contender that was weighed."""
    rows = [["", "with the model loaded, MB", "more at most, MB"]]
    for key, (held, peak) in found.peaks.items():
        rows.append([title(key), f"{held / 1e6:,.0f}", f"{max(0, peak - held) / 1e6:,.0f}"])
    return rows


def milliseconds(values: Sequence[float]) -> str:
    """Example: [1.0, 2.0, 3.0] -> 2.00 (1.50 to 2.50)."""
    found = Spread.of(values)
    digits = 1 if found.median >= 100 else 2 if found.median >= 1 else 3
    return f"{found.median:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def times(found: Spread) -> str:
    """A ratio with its quartiles, if it shows a difference."""
    if not found.differs:
        return NO_DIFFERENCE
    digits = 0 if found.median >= 100 else 1 if found.median >= 10 else 2
    return f"{found.median:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def _percent(values: Sequence[float]) -> str:
    """A share."""
    return f"{Spread.of(values).median:.1%}"


def rounds(found: Found) -> dict[str, Any]:
    """All numbers: seconds and bytes."""
    return {
        "asked": found.asked,
        "machine": found.machine,
        "load": found.load,
        "weights": found.weights,
        "prompt": found.prompt,
        "runs": [{"name": name, "k": k, "rounds": runs} for (name, k), runs in found.runs.items()],
        "prefixes": found.prefixes,
        "served": [
            {"name": name, "editors": editors, "rounds": served}
            for (name, editors), served in found.served.items()
        ],
        "peaks": [
            {"name": name, "k": k, "held": held, "peak": peak} for (name, k), (held, peak) in found.peaks.items()
        ],
    }


def _panel(found: Found) -> Panel:
    """Time of a token by k, with quartiles; contenders that write one draft are level lines."""
    clock = _clock_of(found)
    ks = sorted({k for _, k in found.runs})
    series: dict[str, list[tuple[float | str, Interval]]] = {}
    for name in dict.fromkeys(name for name, _ in found.runs):
        for k in ks:
            key = (name, 1 if name in SINGLE else k)
            if key in found.runs:
                spread = Spread.of(per_token(found.runs[key], clock))
                series.setdefault(NAMES[name], []).append((k, Interval(spread.median, spread.low, spread.high)))
    what = "processor time" if clock is cpu else "wall clock"
    return Panel("k, drafts written at once", f"ms of {what} for a token of all drafts", series)
