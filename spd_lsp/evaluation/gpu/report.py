"""What was measured on a device -> a report. Measures nothing."""

from __future__ import annotations

import dataclasses
from statistics import median

from spd_lsp.evaluation.bench.moments import Spread, ratio
from spd_lsp.evaluation.bench.report import NAMES, milliseconds, times
from spd_lsp.evaluation.gpu.measure import THREE_ROWS, Found, Served, Steps
from spd_lsp.evaluation.report_writer import Report, Table

NEAR, LITTLE, MORE = 0.7, 1.05, 2.0  # what is aimed at: see `_goals`


def report_of(found: Found) -> Report:
    """Tables, what they were taken from, and all rounds."""
    tables = {
        "Wall clock, medians with quartiles. OrderWeights are random: times do not depend on them.": _goals(found),
        "A step: one superposed position of each request. The limit is the time to read the weights, and the keys "
        "and values of each request's prompt, once. Whole: with all logits on the host; few logits: with those "
        "that choosing needs.": _step_table(found),
        "One more token of all drafts of one request (three, but for greedy):": _draft_table(found),
        "Editors that ask as soon as they are answered, after each has typed five tokens. Beside three rows: "
        "beside the faster of the two ways to read them.": _served_table(found),
    }
    parts = [Table(caption, head, rows) for caption, (head, *rows) in tables.items()]
    return Report("gpu", "Superposed decoding on a device, timed", facts(found), parts, dataclasses.asdict(found))


def facts(found: Found) -> dict[str, str]:
    """The circumstances."""
    rate = found.prefill_tokens / median(found.prefill)
    facts = {
        "shape": f"{found.asked['shape']}, {found.weights / 1e6:,.0f} MB of weights a step",
        "engine": f"{found.engine}{', compiled' if found.asked['compiled'] else ''}",
        **{f"remark {number}": remark for number, remark in enumerate(found.remarks, 1)},
        **found.machine,
        "bandwidth": ", ".join(f"{rate / 1e9:,.0f} GB/s by {name}" for name, rate in found.bandwidth.items()),
        "a cold prompt": f"{milliseconds(_in_ms(found.prefill))} ms for {found.prefill_tokens} tokens, "
        f"{rate:,.0f} tokens a second",
    }
    if found.peak:
        facts["memory of the device"] = f"{found.peak / 1e6:,.0f} MB at most"
    return facts


def _in_ms(seconds: list[float]) -> list[float]:
    """Milliseconds."""
    return [1e3 * one for one in seconds]


def _limit(steps: Steps, found: Found) -> float:
    """Seconds that reading alone takes, by the fastest way seen."""
    return steps.bytes / max(found.bandwidth.values())


def _step_table(found: Found) -> list[list[str]]:
    """A row for each number of requests."""
    head = [
        "requests",
        "whole, ms",
        "few logits, ms",
        "device, ms",
        "limit, ms",
        "limit / device",
        "limit / whole",
    ]
    rows = [[*head, "positions/s"]]
    for steps in found.steps:
        least = _limit(steps, found)
        rows.append(
            [
                f"{steps.rows}",
                milliseconds(_in_ms(steps.whole)),
                milliseconds(_in_ms(steps.few)) if steps.few else "",
                milliseconds(_in_ms(steps.device)) if steps.device else "not captured",
                f"{1e3 * least:.3g}",
                f"{least / median(steps.device):.0%}" if steps.device else "",
                f"{least / median(steps.whole):.0%}",
                f"{steps.rows / median(steps.whole):,.0f}",
            ]
        )
    return [*rows, ["1, transformers", milliseconds(_in_ms(found.reference_step))]]


def _draft_table(found: Found) -> list[list[str]]:
    """A row for each contender."""
    base = found.drafts["greedy"]
    rows = [["", "a token, ms", "beside greedy"]]
    for name, taken in found.drafts.items():
        rows.append(
            [
                NAMES.get(name, name),
                milliseconds(_in_ms(taken)),
                "" if name == "greedy" else times(ratio(taken, base)),
            ]
        )
    return rows


def _served_table(found: Found) -> list[list[str]]:
    """A row for each number of editors and decoder."""
    rows = [["editors", "drafts by", "requests/s", "beside three rows", "a request, ms", "requests a pass"]]
    for one in found.served:
        rows.append(
            [
                f"{one.editors}",
                {**NAMES, "branches": "the likeliest three branches"}[one.decoder],
                f"{_rate(one):.3g}",
                f"{_rate(one) / _of_three_rows(found, one.editors):.2f}",
                milliseconds(_in_ms(one.taken)),
                f"{one.together:.1f}",
            ]
        )
    return rows


def served(found: Found, editors: int, decoder: str) -> Served:
    """One row of what was served."""
    return next(one for one in found.served if (one.editors, one.decoder) == (editors, decoder))


def _of_three_rows(found: Found, editors: int) -> float:
    """Requests a second by the faster of those that read three rows."""
    return max(_rate(served(found, editors, name)) for name in THREE_ROWS)


def _rate(one: Served) -> float:
    """Requests a second."""
    return len(one.taken) / one.seconds


def _goals(found: Found) -> list[list[str]]:
    """What is aimed at, and what came out."""
    alone = found.steps[0]
    near = _limit(alone, found) / median(alone.device or alone.whole)
    beside = Spread.of([a / b for a, b in zip(found.drafts["superposed"], found.drafts["greedy"], strict=True)])
    most = max(one.editors for one in found.served)
    more = _rate(served(found, most, "superposed")) / _of_three_rows(found, most)
    return [
        ["goal", "found", ""],
        [
            f"a step of {alone.rows} takes the limit / {NEAR} at most",
            f"{near:.0%} of the limit",
            _met(near >= NEAR),
        ],
        [f"three superposed drafts take {LITTLE} of greedy's time", times(beside), _met(beside.median <= LITTLE)],
        [f"{MORE} times the requests of three rows, {most} editors", f"{more:.2f} times", _met(more >= MORE)],
    ]


def _met(reached: bool) -> str:
    """In a word."""
    return "met" if reached else "missed"
