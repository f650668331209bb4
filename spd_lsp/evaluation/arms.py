"""The ways to complete that are compared, and how one of them is asked at a place.

An arm is written DECODER[:SETTING=VALUE]...[@PRIOR], as in `superposed`, `beam:drafts=5@built-in` or
`superposed:interpolation=paper:temperature=0.1@none`. Baselines have settings that the product has not:
`nucleus:top_p=0.95:draw_temperature=0.4` and `beam:length_penalty=0.5`. Prompt, n-grams, stop rule and ranking are
the product's; only the shape is fixed: every completion ends with its line, or with its block where one is asked
for. Knows no files.
"""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngram_builders.arrays import Floats
from ngram_builders.errors import UserError
from spd_lsp.completion.completer import HISTORY, BoundedModel, Completer
from spd_lsp.completion.context import trim
from spd_lsp.completion.postprocess import Place, rank, shown
from spd_lsp.completion.tokenizer import Prompt, Tokens
from spd_lsp.decoding.hypotheses import worth
from spd_lsp.decoding.superposed import Drafts, Model, Start
from spd_lsp.evaluation.decoders import DECODERS
from spd_lsp.evaluation.length_penalty import penalised_beam
from spd_lsp.evaluation.prior import PRIORS, Prior
from spd_lsp.evaluation.sampling import Chance, nucleus, sample
from spd_lsp.ngrams.interpolation import Domains, Mixture, believed
from spd_lsp.settings import Settings, invalid_reason

FULL: Prior = "repository+file"  # what the product knows in an indexed repository
DRAWN = 20  # draws at a place, from which the expected score of fewer follows
ORACLE = 20  # drafts of the beam search that says how much the model could find at all

# Settings that only baselines have, with their bounds.
_EXTRA: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "nucleus": {"top_p": (0.01, 1.0), "draw_temperature": (0.01, 10.0)},
    "beam": {"length_penalty": (0.0, 2.0)},
}
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?")


@dataclass(frozen=True, slots=True)
class Kind:
    """A decoder with the settings that go with it."""

    decoder: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    flat: bool = False  # without a language model
    drawn: bool = False  # by chance
    unmixed: bool = False  # of several tokens the heaviest is read alone


KINDS: dict[str, Kind] = {
    **{name: Kind(name) for name in DECODERS},
    "greedy": Kind("greedy", {"drafts": 1}),  # one draft, not the other ends it met on its way
    "nucleus": Kind("nucleus", drawn=True),
    # The decoder of the paper, with the numbers it found for Llama 2 7B.
    "paper": Kind(
        "superposed", {"interpolation": "paper", "temperature": 0.06, "candidates": 9, "ranking": "mean"}
    ),
    "unmixed": Kind("superposed", unmixed=True),
    "no-lm": Kind("superposed", flat=True),
    "oracle": Kind("beam", {"drafts": ORACLE}),
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to complete."""

    label: str  # as it is written, with its prior
    kind: str
    prior: Prior
    settings: Mapping[str, Any]
    extra: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of EXTRA

    def write(self, model: Model, start: Start, settings: Settings) -> Drafts:
        """Drafts by its decoder."""
        if "length_penalty" in self.extra:
            return penalised_beam(model, start, settings, never, self.extra["length_penalty"])
        if self.extra:
            return nucleus(model, start, settings, never, self.chance)
        return DECODERS[self.decoder](model, start, settings, never)

    @property
    def chance(self) -> Chance:
        """How it draws, if it does."""
        as_it_comes = Chance()
        return Chance(
            self.extra.get("top_p", as_it_comes.top_p),
            self.extra.get("draw_temperature", as_it_comes.temperature),
        )

    @property
    def decoder(self) -> str:
        """Its name in DECODERS."""
        return KINDS[self.kind].decoder

    @property
    def types(self) -> bool:
        """Whether lines are typed through with it: that takes many completions, so only with the full prior."""
        return self.prior == FULL

    @property
    def draws(self) -> bool:
        """Whether more is drawn with it than it shows, for what it would score on average."""
        return self.prior == FULL and KINDS[self.kind].drawn

    @property
    def family(self) -> str:
        """The label without the prior: arms of one family differ in nothing else."""
        return self.label.rpartition("@")[0]


def parse_arms(texts: Sequence[str], priors: Sequence[str]) -> list[Arm]:
    """The arms, each once; one that names no prior gets each of `priors`. Without a model there must be one."""
    found: dict[str, Arm] = {}
    for text in texts:
        for prior in [""] if "@" in text else priors:
            arm = parse_arm(text if "@" in text else f"{text}@{prior}")
            if not (KINDS[arm.kind].flat and arm.prior == "none"):
                found.setdefault(arm.label, arm)
    return list(found.values())


def parse_arm(text: str) -> Arm:
    """One arm with its prior. Example: `beam:drafts=5@built-in`."""
    written, _, prior = text.partition("@")
    kind, *options = written.split(":")
    if kind not in KINDS:
        raise UserError(
            f"expected an arm of {', '.join(KINDS)}, found {kind!r}; write DECODER[:SETTING=VALUE][@PRIOR]"
        )
    if prior not in PRIORS:
        raise UserError(
            f"arm {text!r}: expected a prior of {', '.join(PRIORS)} after @, found {prior!r}; choose one"
        )
    chosen, extra = dict(KINDS[kind].settings), {}
    for option in options:
        name, _, value = option.partition("=")
        if name in _EXTRA.get(kind, {}):
            extra[name] = _parse_extra(text, name, value, *_EXTRA[kind][name])
        else:
            chosen[name] = _parse_value(text, name, value)
    return Arm(text, kind, next(one for one in PRIORS if one == prior), chosen, extra)


def _parse_extra(arm: str, name: str, value: str, low: float, high: float) -> float:
    """A number within bounds."""
    number = float(value) if _NUMBER.fullmatch(value) else math.nan
    if not low <= number <= high:
        raise UserError(f"arm {arm!r}, {name}: expected {low:g} to {high:g}, found {value!r}; write another value")
    return number


def _parse_value(arm: str, name: str, value: str) -> int | float | str:
    """A setting's value in its type; what the settings refuse is refused."""
    known = {f.name: f for f in dataclasses.fields(Settings)}
    if name not in known or name in ("decoder", "model", "device"):
        raise UserError(f"arm {arm!r}: {name!r} is no setting of a decoder; see the settings in editors/README.md")
    wanted = type(known[name].default)
    found: int | float | str = value
    if wanted in (int, float) and _NUMBER.fullmatch(value):
        found = wanted(value) if wanted is float or value.lstrip("-").isdecimal() else float(value)
    if (problem := invalid_reason(known[name], found)) is not None:
        raise UserError(f"arm {arm!r}: {name} {problem}")
    return found


def never() -> None:
    """Nothing ends an evaluation's drafts before their time."""


class FlatModel:
    """No language model: every token is as likely as every other, so that n-grams alone decide."""

    def __init__(self, vocab_size: int) -> None:
        self.logits = np.zeros(vocab_size, dtype=np.float32)  # [V]
        self.max_positions = 1 << 20
        self.device = "none"

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """Nothing is read."""
        return self.logits

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """Nothing is read."""
        return self.logits

    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """Nothing is read."""
        return np.broadcast_to(self.logits, (len(rows), len(self.logits)))

    def read_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """The same for every token."""
        return [np.full(len(draft), -np.log(len(self.logits))) for draft in drafts]


@dataclass(frozen=True, slots=True)
class BestAlone:
    """A model that is not given mixtures, but the best draft's token: what mixing is worth is told beside it."""

    model: Model

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> Floats:
        """As the model does."""
        return self.model.prefill(ids, check)

    def step(self, ids: Sequence[int], weights: Floats) -> Floats:
        """The heaviest token is read."""
        return self.model.step([ids[int(np.argmax(weights))]], np.ones(1))

    def step_rows(self, rows: Sequence[tuple[Sequence[int], Floats]], parents: Sequence[int]) -> Floats:
        """The heaviest token of each row is read."""
        return self.model.step_rows(
            [([ids[int(np.argmax(weights))]], np.ones(1)) for ids, weights in rows], parents
        )

    def read_drafts(self, drafts: Sequence[Sequence[int]]) -> list[Floats]:
        """As the model does."""
        return self.model.read_drafts(drafts)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked at a place, the same for all arms."""

    prompt: Prompt
    place: Place


@dataclass(frozen=True, slots=True)
class Reply:
    """An arm's drafts, best first, and what they took beyond reading the prompt."""

    drafts: list[str]
    probabilities: list[float]  # of each draft, as the product shows it
    passes: int  # the prompt's counted as one
    rows: int  # positions read after the prompt
    tokens: int  # of the longest draft written
    wall_ms: float
    cpu_ms: float


class Asker:
    """A model with its tokenizer, asked in many ways."""

    def __init__(self, model: BoundedModel, tokens: Tokens, settings: Settings) -> None:
        self.model = model
        self.flat = FlatModel(tokens.vocab_size)
        self.tokens = tokens
        self.settings = settings
        self.completer = Completer(model, tokens, Domains(None, tokens.fingerprint, {}), settings)

    def question(self, source: str, cursor: int, language: str, block: str | None = None) -> Question:
        """Trim the context and lay out the prompt as for a person who asks by hand.

        A line is asked for, or a block if its indentation is given: lines indented less end it.
        """
        view = trim(source, cursor, language, self.completer.room, self.tokens.count, forced=True)
        indent = view.indent if block is None else block
        place = Place("line" if block is None else "block", indent, view.after, view.left)
        return Question(self.tokens.prompt(view.before, view.after), place)

    def warm(self, question: Question) -> float:
        """Read the prompt, so that no arm has to: its positions are kept, and each arm finds them. -> ms"""
        began = time.perf_counter()
        self.model.prefill(question.prompt.ids, lambda: None)
        return (time.perf_counter() - began) * 1000

    def ask(self, arm: Arm, question: Question, mixture: Mixture | None) -> Reply:
        """Complete with one arm. What is timed: decoding with its n-grams, and ranking."""
        settings = dataclasses.replace(self.settings, **arm.settings)
        wall, cpu = time.perf_counter(), time.process_time()
        drafts = arm.write(self.of(arm), self.start(question, believed(mixture, settings)), settings)
        found = [
            (self.completer.text(draft.ids, question.prompt), worth(draft, settings.ranking))
            for draft in [*drafts.best, *drafts.spare]
        ]
        completions = rank(found, question.place)[: settings.drafts]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Reply(
            [completion.text for completion in completions],
            [completion.probability for completion in completions],
            *costs(drafts),
            wall_ms=wall * 1000,
            cpu_ms=cpu * 1000,
        )

    def draw(self, arm: Arm, question: Question, mixture: Mixture | None) -> list[str]:
        """What DRAWN draws of an arm read, in no order, each as often as it was drawn."""
        settings = dataclasses.replace(self.settings, **arm.settings, drafts=DRAWN)
        drafts, _ = sample(
            self.of(arm), self.start(question, believed(mixture, settings)), settings, never, arm.chance
        )
        found = [
            rank([(self.completer.text(draft.ids, question.prompt), 0.0)], question.place) for draft in drafts
        ]
        return [one[0].text if one else "" for one in found]

    def of(self, arm: Arm) -> Model:
        """The model that an arm asks."""
        kind = KINDS[arm.kind]
        return self.flat if kind.flat else BestAlone(self.model) if kind.unmixed else self.model

    def start(self, question: Question, mixture: Mixture | None) -> Start:
        """Where drafts begin, as in the product."""
        prompt = question.prompt
        return Start(
            prompt.ids,
            stop=lambda ids: self.completer.finished(ids, prompt, question.place),
            history=[self.tokens.end_of_text, *prompt.history][-HISTORY:],
            interpolation=mixture,
            allowed=prompt.allowed,
            reads=lambda ids: shown(self.completer.text(ids, prompt), question.place),
        )


def costs(drafts: Drafts) -> tuple[int, int, int]:
    """Passes, rows and the longest draft's tokens."""
    return drafts.passes, drafts.rows, drafts.longest
