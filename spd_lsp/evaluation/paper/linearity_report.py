"""Traces of many passages -> the tables and the figure of the linearity experiment (figures 3 and 16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.evaluation.bootstrap import Interval, means
from spd_lsp.evaluation.paper.linearity import GUESSES, MEASURES, Trace
from spd_lsp.evaluation.report_writer import Report, Table

Traces = Mapping[float, Sequence[Trace]]  # temperature -> one trace a passage

_SHOWN_STEPS = 5  # of which layers are drawn, as in figure 16
_SPANS = ((1, 10), (11, 24))  # timesteps told of as one


def _layer_names(count: int) -> list[str]:
    """Names of what is compared: the embedding, blocks, and logits."""
    return ["embedding", *(f"block {n}" for n in range(1, count - 2)), f"block {count - 2}, normed", "logits"]


def _stacked(traces: Sequence[Trace]) -> dict[str, Floats]:
    """Cosines of all passages by measure: [N, S, L]."""
    return {name: np.stack([trace.cosines[name] for trace in traces]) for name in MEASURES}


def over(values: Floats, span: tuple[int, int], groups: Sequence[tuple[str, str]]) -> Interval:
    """The mean over timesteps first to last, counted from 1, of [N, S]."""
    return means(values[:, span[0] - 1 : span[1]].mean(axis=1, keepdims=True), groups)[0]


def _spans_within(steps: int) -> list[tuple[int, int]]:
    """The spans that were measured, the last one cut."""
    return [(first, min(last, steps)) for first, last in _SPANS if first <= steps]


def summarise(traces: Traces, groups: Sequence[tuple[str, str]], facts: Mapping[str, Any]) -> Report:
    """Tables by temperature, and everything by timestep and layer for the figure."""
    steps, layers = next(iter(traces.values()))[0].cosines[MEASURES[0]].shape
    spans = _spans_within(steps)
    data: dict[str, Any] = {"layers": _layer_names(layers), "temperatures": {}}
    cosine_rows: list[list[Any]] = []
    distance_rows: list[list[Any]] = []
    for temperature, found in traces.items():
        cosines = _stacked(found)
        data["temperatures"][str(temperature)] = one = {
            "hidden": {name: means(values[:, :, -2], groups) for name, values in cosines.items()},
            "logits": {name: means(values[:, :, -1], groups) for name, values in cosines.items()},
            "layers": {name: np.nanmean(values, axis=0) for name, values in cosines.items()},  # [S, L]
            "weight": means(np.stack([trace.weight for trace in found]), groups),
        }
        for at, where in ((-2, "last block"), (-1, "logits")):
            for name, values in cosines.items():
                spanned = [over(values[:, :, at], span, groups) for span in spans]
                cosine_rows.append([str(temperature), where, name, *spanned])
        for name, distances in (("mixture", "to_mixture"), ("each draft", "to_drafts")):
            values = np.stack([getattr(trace, distances) for trace in found])  # [N, S, Q]
            one[distances] = {guess: means(values[:, :, at], groups) for at, guess in enumerate(GUESSES)}
            for at, guess in enumerate(GUESSES):
                spanned = [over(values[:, :, at], span, groups) for span in spans]
                distance_rows.append([str(temperature), name, guess, *spanned])
    heads = [f"timesteps {first}-{last}" for first, last in spans]
    tables = [
        Table("Cosine with the weighted sum of the separate drafts (equation 8).",
              ["tau", "where", "of", *heads], cosine_rows, digits=3),
        Table("Distance in nats from what the drafts say, to what one pass can say for all of them.",
              ["tau", "KL from", "to", *heads], distance_rows),
    ]  # fmt: skip
    return Report("linearity", "Linearity", facts, tables, data, lambda figure: draw(figure, data), (12.0, 4.2))


def draw(figure: Any, data: Mapping[str, Any]) -> None:
    """Cosine by timestep (figure 3), by layer (figure 16), and distance by timestep, at the first temperature."""
    first, one = next(iter(data["temperatures"].items()))
    by_time, by_layer, distance = figure.subplots(1, 3)
    for where, style in (("logits", "-"), ("hidden", "--")):
        for colour, (name, found) in enumerate(one[where].items()):
            _band(by_time, found, f"{name}, {'last block' if where == 'hidden' else where}", f"C{colour}", style)
    by_time.axhline(0.6, color="grey", linewidth=0.8, linestyle=":")
    by_time.set(title=f"Cosine by timestep, tau {first}", xlabel="timestep", ylim=(-0.55, 1.02))
    by_time.legend(fontsize=6, ncol=2, loc="lower left")
    for step, cosines in enumerate(one["layers"][MEASURES[0]][:_SHOWN_STEPS], 1):
        by_layer.plot(cosines, marker=".", label=f"timestep {step}")
    by_layer.set_xticks(range(len(data["layers"])), data["layers"], rotation=40, ha="right", fontsize=7)
    by_layer.set(title="Cosine by layer")
    by_layer.legend(fontsize=7)
    for colour, (name, found) in enumerate(one["to_mixture"].items()):
        _band(distance, found, name, f"C{colour}", "-")
    distance.set(title="KL from the drafts' mixture, nats", xlabel="timestep", ylim=(0, None))
    distance.legend(fontsize=7)


def _band(axes: Any, found: Sequence[Interval], label: str, colour: str, style: str) -> None:
    """A line of means and their intervals, counted from 1."""
    steps = range(1, len(found) + 1)
    axes.plot(steps, [one.mean for one in found], style, color=colour, label=label, linewidth=1.2)
    axes.fill_between(
        steps, [one.low for one in found], [one.high for one in found], color=colour, alpha=0.15, linewidth=0
    )
