"""Baselines at their best: five to ten settings of each way to write drafts, and the best of each.

Whoever tunes one side of a comparison must tune the other as much. In: records of places with every arm of the
grid. Out: a report, and the arms that the main comparison is made with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.evaluation.arms import FULL, Arm, parse_arm
from spd_lsp.evaluation.coordinate_descent import crossed
from spd_lsp.evaluation.metrics import exact
from spd_lsp.evaluation.report_writer import Cell, Report, Table, percent, points
from spd_lsp.evaluation.store import Record
from spd_lsp.evaluation.tables import Results

NAME = "baselines"
_TEMPERATURES = (1.0, 0.8, 0.6, 0.4, 0.2)
_AS_IT_COMES: Mapping[str, Mapping[str, float | str]] = {
    "superposed": {"temperature": 1.0, "ranking": "probability"},
    "greedy": {"temperature": 1.0, "candidates": 20},
    "nucleus": {"draw_temperature": 1.0, "top_p": 0.9},
    "beam": {"length_penalty": 0.0, "temperature": 1.0},
    "branches": {"temperature": 1.0, "candidates": 20},
}
# Of each way two settings are crossed, the one along the figure's axis first; first values are as they come.
_GRID: Mapping[str, Mapping[str, Sequence[float | str]]] = {
    "superposed": {"temperature": _TEMPERATURES, "ranking": ("probability", "mean")},
    "greedy": {"temperature": _TEMPERATURES, "candidates": (20,)},
    "nucleus": {"draw_temperature": _TEMPERATURES, "top_p": (0.9, 0.95)},
    "beam": {"length_penalty": (0.0, 0.25, 0.5, 0.75, 1.0), "temperature": (1.0, 0.8)},
    "branches": {"temperature": _TEMPERATURES, "candidates": (20,)},  # its ranking changes no EM@k
}


def way(kind: str, **settings: float | str) -> str:
    """An arm as it is written. Example: beam, length_penalty=0.0, temperature=0.8 -> `beam:temperature=0.8`"""
    usual = _AS_IT_COMES.get(kind, {})
    special = {name: value for name, value in settings.items() if usual.get(name) != value}
    return ":".join([kind, *(f"{name}={value}" for name, value in special.items())])


def grid() -> dict[str, dict[tuple[float | str, float | str], Arm]]:
    """The arms of each way, by the values of its two settings; the first is as it comes."""
    return {
        kind: {
            (first, second): parse_arm(f"{way(kind, **{along: first, across: second})}@{FULL}")
            for second in values[across]
            for first in values[along]
        }
        for kind, values in _GRID.items()
        for along, across in [tuple(values)]
    }


def arms_of(kinds: Sequence[str] = tuple(_GRID)) -> list[Arm]:
    """All arms that are tried."""
    return [arm for kind, arms in grid().items() if kind in kinds for arm in arms.values()]


def summarise(records: Sequence[Record], facts: Mapping[str, Any], k: int) -> Report:
    """Every setting of each way, and the best of each by EM@k, then EM@1; of equals the first."""
    best: dict[str, str] = {}
    rows: list[list[Cell]] = []
    winners: list[list[Cell]] = []
    data: dict[str, dict[str, dict[str, float]]] = {}
    for kind, arms in grid().items():
        results = Results(records, list(arms.values()), k, [kind])
        first, many, costs = results.scores("EM@1"), results.scores(f"EM@{k}"), results.costs()
        chosen = max(
            range(len(arms)), key=lambda a: (round(many[a].value.mean, 9), round(first[a].value.mean, 9), -a)
        )
        best[kind] = results.arms[chosen].family
        for a, arm in enumerate(results.arms):
            told = [percent(first[a].value), percent(many[a].value), points(many[a].less.get(kind)),
                    f"{costs[a].passes:.1f}", f"{costs[a].cpu_mean:.0f}"]  # fmt: skip
            rows.append([f"**{arm.family}**" if a == chosen else arm.family, *told])
            data.setdefault(kind, {})[arm.family] = {
                "EM@1": first[a].value.mean, f"EM@{k}": many[a].value.mean, "CPU ms": costs[a].cpu_mean
            }  # fmt: skip
            if a == chosen:
                gain = _gained(results, k)
                winners.append([kind, arm.family, *told, f"{100 * gain:+.1f}"])
    heads = ["EM@1, %", f"EM@{k}, %", f"EM@{k} less as it comes", "passes", "CPU ms"]
    chose = "The best of each by EM@{k}; beside it what choosing gains at files that it was not chosen by."
    tables = [
        Table(chose.format(k=k), ["way", "best", *heads, "gained elsewhere"], winners),
        Table(
            f"EM@{k}, %, along one setting of each way, a row for each value of the other.",
            ["way", "along", f"EM@{k}, %"],
            _crossed_rows(data, best, k),
        ),
        Table(f"All settings, with n-grams of {FULL}; the best of each way is bold.", ["arm", *heads], rows),
    ]
    return Report(
        NAME, "Baselines at their best", facts, tables, {"best": best, "tried": data},
        lambda figure: draw(figure, data, k), (15.0, 3.8),
    )  # fmt: skip


def _crossed_rows(
    data: Mapping[str, Mapping[str, Mapping[str, float]]], best: Mapping[str, str], k: int
) -> list[list[Cell]]:
    """The grid at a glance; the best of each way is bold."""
    rows: list[list[Cell]] = []
    for kind, values in _GRID.items():
        along, across = values
        for one in values[across]:
            names = [way(kind, **{along: value, across: one}) for value in values[along]]
            told = [(name, f"{100 * data[kind][name][f'EM@{k}']:.1f}") for name in names]
            heads = f"{along} {', '.join(str(value) for value in values[along])}"
            cells = ", ".join(f"**{number}**" if name == best[kind] else number for name, number in told)
            rows.append([f"{kind}, {across} {one}", heads, cells])
    return rows


def _gained(results: Results, k: int) -> float:
    """What choosing adds to EM@k of what comes as it is, each half of the files judged by the other's choice."""
    hits = np.array(
        [
            [exact(record["arms"][label]["drafts"], record["place"]["target"], k)[0] for label in results.labels]
            for record in results.records
        ]
    )
    files = [f"{record['place']['package']}/{record['place']['file']}" for record in results.records]
    return float(crossed(hits, files).mean())


def best_of(folder: Path) -> dict[str, str]:
    """The best arm of each way that an earlier run found, by way."""
    path = folder / f"{NAME}.json"
    try:
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["data"]["best"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"expected the best baselines in {path}, found none; run `spd-lsp eval baselines` with the same --out"
        ) from error
    return found


def draw(figure: Any, data: Mapping[str, Mapping[str, Mapping[str, float]]], k: int) -> None:
    """EM@k by the first setting of each way, a line for each value of the second."""
    panels = figure.subplots(1, len(data), sharey=True)
    for axes, (kind, scores) in zip(panels, data.items(), strict=True):
        along, across = _GRID[kind]
        for value in _GRID[kind][across]:
            names = [way(kind, **{along: one, across: value}) for one in _GRID[kind][along]]
            axes.plot(
                _GRID[kind][along],
                [100 * scores[name][f"EM@{k}"] for name in names],
                ".-",
                label=f"{across} {value}",
            )
        axes.set(title=kind, xlabel=along)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    panels[0].set(ylabel=f"EM@{k}, %")
