"""How many drafts: superposed decoding, beam search and nucleus sampling for several k, and what could be found.

In: records of places with every arm. Out: a report of EM@k, distinct@k, keystrokes saved and cost, each arm by its
own k. The ceiling is a beam search with many drafts: whether the target is among them at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spd_lsp.evaluation.arms import FULL, ORACLE, Arm, parse_arm
from spd_lsp.evaluation.bootstrap import Interval
from spd_lsp.evaluation.report_writer import Cell, Report, Table, percent, points
from spd_lsp.evaluation.store import Record
from spd_lsp.evaluation.tables import Cost, Results

NAME = "drafts"
_DRAFTS = (2, 3, 5, 8)
Ways = Mapping[int, Sequence[Arm]]  # by k, superposed decoding first

PLAIN = ("superposed", "beam", "nucleus")


def arms_of(drafts: Sequence[int], ways: Sequence[str] = PLAIN) -> dict[int, list[Arm]]:
    """The arms for each k; 1 is greedy, 20 the ceiling.

    All are written with their k, so that they are asked in one turn and none has times of other comparisons.
    """
    found = {1: [parse_arm(f"greedy:drafts=1@{FULL}")]}
    for k in drafts:
        found[k] = [parse_arm(f"{way}:drafts={k}@{FULL}") for way in ways]
    found[ORACLE] = [parse_arm(f"oracle@{FULL}")]
    return found


def summarise(records: Sequence[Record], ways: Ways, facts: Mapping[str, Any]) -> Report:
    """A row for each k and way, with what it scores less than superposed decoding with as many drafts."""
    every = [arm for arms in ways.values() for arm in arms]
    complete = Results(records, every, 1).records
    rows: list[list[Cell]] = []
    data: dict[str, dict[int, dict[str, float]]] = {}
    typed = 0
    for k, arms in ways.items():
        results = Results(complete, arms, k, [arms[0].family])
        saved = {score.arm: score.value for score in results.keystrokes()}
        typed = len(results.typed(complete)) if k > 1 else typed
        scores, distinct = results.scores(f"EM@{k}"), results.scores(f"distinct@{k}")
        for arm, score, different, cost in zip(arms, scores, distinct, results.costs(), strict=True):
            name = _plain_name(arm)
            value = saved.get(arm.label)
            rows.append([k, name, percent(score.value), points(score.less.get(arms[0].family)),
                         f"{100 * different.value.mean:.0f}", keys(value), *_spent(cost)])  # fmt: skip
            data.setdefault(name, {})[k] = numbers(score.value, value, cost, different.value)
    heads = ["k", "drafts by", "EM@k, %", "EM@k less superposed", "distinct@k, %", "KS, %", "passes", "CPU ms"]
    caption = (
        f"Each way by its own k, with n-grams of {FULL}; beam search with {ORACLE} drafts is the ceiling. KS over "
        f"{typed} lines typed through."
    )
    told = {**facts, "places": len(complete)}
    return Report(NAME, "How many drafts", told, [Table(caption, heads, rows)], data,
                  lambda figure: draw(figure, data), (10.0, 4.2))  # fmt: skip


def _plain_name(arm: Arm) -> str:
    """The arm without its number of drafts. Example: `beam:drafts=5@none` -> `beam`."""
    return ":".join(part for part in arm.family.split(":") if not part.startswith("drafts="))


def keys(value: Interval | None) -> str:
    """Keystrokes saved, where lines were typed through."""
    return percent(value, bounds=False) if value else ""


def _spent(cost: Cost) -> tuple[str, str]:
    """Passes and processor time."""
    return f"{cost.passes:.1f}", f"{cost.cpu_mean:.0f}"


def numbers(score: Interval, saved: Interval | None, cost: Cost, different: Interval) -> dict[str, float]:
    """What the figure and other programs want of an arm."""
    told = {"EM@k": score.mean, "low": score.low, "high": score.high, "distinct@k": different.mean}
    told |= {"passes": cost.passes, "CPU ms": cost.cpu_mean}
    return told | ({"KS": saved.mean} if saved else {})


def draw(figure: Any, data: Mapping[str, Mapping[int, Mapping[str, float]]]) -> None:
    """EM@k and processor time by k."""
    quality, time = figure.subplots(1, 2)
    for name, found in data.items():
        if name == "oracle":
            (ceiling,) = found.values()
            quality.axhline(100 * ceiling["EM@k"], linestyle=":", color="grey", label=f"among {ORACLE} beams")
            continue
        shown = [100 * one["EM@k"] for one in found.values()]
        errors = [[100 * (one["EM@k"] - one["low"]) for one in found.values()],
                  [100 * (one["high"] - one["EM@k"]) for one in found.values()]]  # fmt: skip
        quality.errorbar(list(found), shown, yerr=errors, marker="o", capsize=2, label=name)
        time.plot(list(found), [one["CPU ms"] for one in found.values()], "o-", label=name)
    quality.set(xlabel="k", ylabel="EM@k, % (95 %)")
    time.set(xlabel="k", ylabel="processor time of a completion, ms", ylim=(0, None))
    quality.legend(fontsize=7)
    for axes in (quality, time):
        axes.grid(alpha=0.3)
