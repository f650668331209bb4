"""Arms: the decoders that are compared, each with its settings and what its n-grams know.

An arm is written DECODER[:SETTING=VALUE]...[@PRIOR], such as `superposed`, `beam:drafts=5@file` or
`superposed:interpolation=paper:temperature=0.1@none`. Several values make a grid: `nucleus:temperature=0.6/0.8`
are two arms.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.quality.held_out_ngrams import PRIORS, Prior
from spd_lsp.settings import Settings, invalid_reason

FULL: Prior = "repository+file"  # what the product knows in an indexed repository

_NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?")


@dataclass(frozen=True, slots=True)
class ArmKind:
    """A decoder with the settings that define it as an arm."""

    decoder: str  # empty for none
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    as_product: bool = False  # whether lines of the repository and beginnings of drafts are offered too


ARM_KINDS: dict[str, ArmKind] = {
    **{name: ArmKind(name) for name in DECODERS},
    "superposed": ArmKind("superposed", as_product=True),
    "uncopied": ArmKind("superposed"),
    "best-first": ArmKind("best-first", as_product=True),
    "best-first-alone": ArmKind("best-first"),
    "greedy": ArmKind("greedy", {"drafts": 1}),  # one draft, not the other ends it met on its way
    # The paper's decoder with its numbers for Llama-2-7B.
    "paper": ArmKind(
        "superposed",
        {"interpolation": "paper", "temperature": 0.06, "candidates": 9, "ranking": "mean"},
    ),
    "copy": ArmKind("", as_product=True),  # the product without a model: lines of the repository alone
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One decoder to compare."""

    label: str  # as it is written, with its prior
    kind: str
    prior: str
    settings: Mapping[str, Any]

    @property
    def types_lines(self) -> bool:
        """Whether lines are typed with it: that takes many completions, so only with what the product knows."""
        return self.prior in ("file", FULL)

    @property
    def family(self) -> str:
        """The label without the prior: arms of one family differ in nothing else."""
        return self.label.rpartition("@")[0]


def parse_arms(texts: Sequence[str], priors: Sequence[str]) -> list[Arm]:
    """Parse arms, each once; one without a prior gets each of `priors`."""
    labels: dict[str, None] = {}  # in order
    for text in itertools.chain.from_iterable(map(_expand_grid, texts)):
        labels |= dict.fromkeys([text] if "@" in text else [f"{text}@{prior}" for prior in priors])
    return [parse_arm(label) for label in labels]


def _expand_grid(text: str) -> Iterator[str]:
    """All combinations of values. Example: `beam:drafts=2/3@none` -> `beam:drafts=2@none`, `beam:drafts=3@none`"""
    written, at, prior = text.partition("@")
    kind, *options = written.split(":")
    choices = [[f"{name}={value}" for value in values.split("/")] for name, _, values in
               (option.partition("=") for option in options)]  # fmt: skip
    for combination in itertools.product(*choices):
        yield ":".join([kind, *combination]) + at + prior


def parse_arm(text: str) -> Arm:
    """Parse one arm with its prior. Example: `beam:drafts=5@file`."""
    written, _, prior = text.partition("@")
    kind, *options = written.split(":")
    if kind not in ARM_KINDS:
        raise UserError(f"arm {text!r}: unknown decoder {kind!r}; choose one of {', '.join(ARM_KINDS)}")
    if prior not in PRIORS:
        raise UserError(f"arm {text!r}: unknown prior {prior!r}; choose one of {', '.join(PRIORS)} after @")
    settings = dict(ARM_KINDS[kind].settings)
    for option in options:
        name, _, value = option.partition("=")
        settings[name] = _parse_setting(text, name, value)
    return Arm(text, kind, next(one for one in PRIORS if one == prior), settings)


def _parse_setting(arm: str, name: str, value: str) -> int | float | str:
    """A setting of the product, in its type."""
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    if name not in fields or name in ("decoder", "model", "device"):
        raise UserError(f"arm {arm!r}: {name!r} is not a decoder setting; see the settings in editors/README.md")
    wanted = type(fields[name].default)
    parsed: int | float | str = value
    if wanted in (int, float) and _NUMBER.fullmatch(value):
        parsed = wanted(value) if wanted is float or value.lstrip("-").isdecimal() else float(value)
    if (problem := invalid_reason(fields[name], parsed)) is not None:
        raise UserError(f"arm {arm!r}: {name} {problem}")
    return parsed
