"""Traces of many passages -> the tables and the figure of the linearity experiment (figures 3 and 16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from spd_lsp.evaluation.bootstrap import Interval, mean_interval, mean_intervals
from spd_lsp.evaluation.paper.linearity import APPROXIMATIONS, MEASURES, Trace
from spd_lsp.evaluation.report_writer import Panel, Report, ReportTable

Groups = Sequence[tuple[str, str]]

_LAST_BLOCK, _LOGITS = -2, -1
_STEPS_BY_LAYER = 5  # drawn, as in figure 16
_SPANS = ((1, 10), (11, 24))  # timesteps that are averaged in tables


def _mean_over(values: Floats, span: tuple[int, int], groups: Groups) -> Interval:
    """The mean over timesteps first to last, counted from 1, of [N, S]."""
    return mean_interval(values[:, span[0] - 1 : span[1]].mean(axis=1), groups)


def summarise(traces: Mapping[float, Sequence[Trace]], groups: Groups, facts: Mapping[str, Any]) -> Report:
    """Tables by temperature, and everything by timestep and layer."""
    steps, layers = next(iter(traces.values()))[0].cosines[MEASURES[0]].shape
    spans = [(first, min(last, steps)) for first, last in _SPANS if first <= steps]
    names = ["embedding", *(f"block {n}" for n in range(1, layers - 2)), f"block {layers - 2}, normed", "logits"]
    data: dict[str, Any] = {"layers": names, "temperatures": {}}
    cosine_rows: list[list[Any]] = []
    distance_rows: list[list[Any]] = []
    for temperature, of_temperature in traces.items():
        cosines = {name: np.stack([trace.cosines[name] for trace in of_temperature]) for name in MEASURES}
        by_step: dict[str, Any] = {
            "hidden": {name: mean_intervals(v[:, :, _LAST_BLOCK], groups) for name, v in cosines.items()},
            "logits": {name: mean_intervals(v[:, :, _LOGITS], groups) for name, v in cosines.items()},
            "layers": {name: np.nanmean(v, axis=0) for name, v in cosines.items()},  # [S, L]
        }
        for layer, where in ((_LAST_BLOCK, "last block"), (_LOGITS, "logits")):
            for name, values in cosines.items():
                spanned = [_mean_over(values[:, :, layer], span, groups) for span in spans]
                cosine_rows.append([str(temperature), where, name, *spanned])
        values = np.stack([trace.to_mixture for trace in of_temperature])  # [N, S, Q]
        by_step["to_mixture"] = {}
        for at, name in enumerate(APPROXIMATIONS):
            by_step["to_mixture"][name] = mean_intervals(values[:, :, at], groups)
            distance_rows.append(
                [str(temperature), name, *(_mean_over(values[:, :, at], s, groups) for s in spans)]
            )
        data["temperatures"][str(temperature)] = by_step
    heads = [f"timesteps {first}-{last}" for first, last in spans]
    tables = [
        ReportTable("Cosine with the weighted sum of the separate drafts (equation 8).",
                    ["tau", "where", "of", *heads], cosine_rows, digits=3),
        ReportTable("KL divergence in nats from the drafts' mixture to what one pass can say for all of them.",
                    ["tau", "to", *heads], distance_rows),
    ]  # fmt: skip
    return Report("linearity", "Linearity", facts, tables, data, _panels(data))


def _panels(data: Mapping[str, Any]) -> list[Panel]:
    """Cosine by timestep (figure 3), by layer (figure 16), and distance by timestep, at the first temperature."""
    temperature, by_step = next(iter(data["temperatures"].items()))
    cosines = {
        f"{name}, {where}": list(enumerate(values, 1))
        for key, where in (("logits", "logits"), ("hidden", "last block"))
        for name, values in by_step[key].items()
    }
    layers = {
        f"timestep {step}": [(float(n), Interval(c, c, c)) for n, c in enumerate(cosines_by_layer.tolist())]
        for step, cosines_by_layer in enumerate(by_step["layers"][MEASURES[0]][:_STEPS_BY_LAYER], 1)
    }
    distances = {name: list(enumerate(values, 1)) for name, values in by_step["to_mixture"].items()}
    return [
        Panel("timestep", f"cosine, tau {temperature}", cosines),
        Panel("layer (0: embedding, last: logits)", "cosine", layers),
        Panel("timestep", "KL from the drafts' mixture, nats", distances),
    ]
