"""Rules of smoothing: how a model's word and the counts of tables become one distribution.

In: observations to fit on; then a model's probabilities and the evidence of a history. Out: probabilities, which
sum to the model's. Every rule rests on the model where the present product does, below the lowest order.

Dimensions: T tokens of text, W pools, O orders from 2 on, C = 1 + O components (the model first), V vocabulary,
F features, B buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from spd_lsp.evaluation.smoothing.evidence import CLASSES, WIDTH, Evidence
from spd_lsp.evaluation.smoothing.observing import Observations, backed_off, features
from spd_lsp.interpolation import ROWS, whole_rows

Floats = npt.NDArray[np.floating[Any]]

ROUNDS, RATE = 100, 0.1  # of Adam, which finds for `by order` what expectation maximisation would
DISCOUNTS = np.array([0.2, 0.4, 0.6, 0.8, 0.98])
KAPPAS = 4.0 ** np.arange(-1, 4)
TRUSTS = np.array([0.2, 0.35, 0.5, 0.65, 0.8, 1])
ENOUGH = 1500  # tokens that numbers are chosen from grids by
STIFFNESS = 4.0  # how many tokens' worth a bucket is held to what all buckets share


class Rule(Protocol):
    """A way to mix."""

    def fit(self, seen: Observations) -> Rule:
        """The same with what is to be fitted fitted."""

    def likelihoods(self, seen: Observations) -> Floats:
        """How likely each token was among those that could have come. [T]"""

    def mix(self, p: Floats, evidence: Evidence) -> Floats:
        """The mixture; p [V] is the model's word, 0 where a token may not follow. [V]"""


# --- one row of weights for each bucket, or a logistic one ------------------------------------------------------


def by_order(seen: Floats) -> Floats:
    """The highest order seen alone: what the product's rows go by. [T, 5] -> [T, O + 1]"""
    return np.asarray(np.eye(WIDTH + 1)[seen[:, 0].astype(int)])


def logarithmic(values: Floats, most: int) -> npt.NDArray[np.intp]:
    """Example: 1, 2, 3, 4 ... 7, 8 -> 0, 1, 1, 2, 3"""
    return np.asarray(np.minimum(np.log2(np.maximum(values, 1)).astype(np.intp), most))


def bucketed(bucket: Callable[[Floats], npt.NDArray[np.intp]], buckets: int) -> Callable[[Floats], Floats]:
    """Rows by order, and what each bucket of an order adds to them."""

    def design(seen: Floats) -> Floats:
        place = seen[:, 0].astype(int) * buckets + bucket(seen)
        return np.concatenate((by_order(seen), np.eye((WIDTH + 1) * buckets)[place]), axis=1)

    return design


def confidence(seen: Floats) -> npt.NDArray[np.intp]:
    """Five parts of how sure the tables are by five of how sure the model is."""
    tables = np.digitize(seen[:, 3], (0.3, 0.6, 0.9, 0.999))
    model = np.digitize(seen[:, 4], (0.2, 0.4, 0.7, 0.9))
    return np.asarray(tables * 5 + model)


def logistic(seen: Floats) -> Floats:
    """Rows by order, and all features as numbers, for each order apart."""
    order = by_order(seen)
    numbers = np.stack(
        [
            np.log1p(seen[:, 1]),
            np.log1p(seen[:, 2]),
            seen[:, 3],
            seen[:, 4],
            seen[:, 3] * seen[:, 4],
            np.log(np.maximum(seen[:, 4], 1e-3)),
        ],
        axis=1,
    )
    both = order[:, :, None] * numbers[:, None, :] / 3
    return np.concatenate((order, both.reshape(len(seen), -1)), axis=1)


DESIGNS: Mapping[str, Callable[[Floats], Floats]] = {
    "by order": by_order,
    "by count": bucketed(lambda seen: logarithmic(seen[:, 1], 5), 6),
    "by successors": bucketed(lambda seen: logarithmic(seen[:, 2], 4), 5),
    "by count and successors": bucketed(
        lambda seen: logarithmic(seen[:, 1], 4) * 3 + np.digitize(seen[:, 2], (1.5, 3.5)), 15
    ),
    "by confidence": bucketed(confidence, 25),
    "logistic": logistic,
}


def shipped_logits() -> Floats:
    """The product's rows as logits. [O + 1, C]"""
    rows = whole_rows(ROWS)[: WIDTH + 1, :WIDTH]
    table = np.concatenate((1 - rows.sum(axis=1, keepdims=True), rows), axis=1)
    return np.asarray(np.log(np.maximum(table, 1e-4)))


@dataclass(frozen=True)
class Gate:
    """p_f = sum over components of softmax(features Theta) p_c: weights that may hang on more than the order."""

    design: Callable[[Floats], Floats]
    rounds: int = ROUNDS
    theta: Floats | None = None  # [F, C]

    def fit(self, seen: Observations) -> Gate:
        """The weights that make what was written likeliest, by Adam."""
        both = components(seen, seen.gold, 0), components(seen, seen.open, 1)
        x, gold, among = (part.astype(np.float32) for part in (self.design(seen.seen), *both))  # half the time
        start = np.zeros((x.shape[1], WIDTH + 1), dtype=np.float32)
        start[: WIDTH + 1] = shipped_logits()
        theta, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
        for step in range(1, self.rounds + 1):
            w = weights_of(x @ theta, seen.seen[:, 0])
            said = w * gold
            could = w * among
            slope = could / could.sum(axis=1, keepdims=True) - said / np.maximum(said.sum(axis=1), 1e-12)[:, None]
            gradient = x.T @ slope + STIFFNESS * (theta - start)
            first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
            theta -= RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-9)
        return replace(self, theta=theta)

    def likelihoods(self, seen: Observations) -> Floats:
        """See `Rule`."""
        w = self.weights(seen.seen)
        said, could = w * components(seen, seen.gold, 0), w * components(seen, seen.open, 1)
        return np.asarray(said.sum(axis=1) / could.sum(axis=1))

    def mix(self, p: Floats, evidence: Evidence) -> Floats:
        """See `Rule`."""
        w = self.weights(features(p, evidence)[None])[0]
        return np.asarray(w[0] * p + w[1:] @ evidence.p)

    def weights(self, seen: Floats) -> Floats:
        """[T, C]"""
        theta = shipped_logits() if self.theta is None else self.theta
        return weights_of(self.design(seen) @ theta, seen[:, 0])


def weights_of(logits: Floats, highest: Floats) -> Floats:
    """The softmax over the components that there are: the model, and orders up to the highest seen. [T, C]"""
    there = (np.arange(WIDTH + 1) <= highest[:, None]).astype(logits.dtype)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True)) * there
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def components(seen: Observations, counted: Floats, of: int) -> Floats:
    """What the model and each order said of gold (0) or of all that could come (1). [T, C]"""
    p_n = (shares(seen) * counted[..., 0] / np.maximum(seen.totals, 1)).sum(axis=1)
    return np.concatenate((seen.model[:, [of]], p_n), axis=1)


def shares(seen: Observations) -> Floats:
    """As `Evidence.shares`. [T, W, O]"""
    heard = seen.weights[:, :, None] * (seen.totals > 0)
    return np.asarray(heard / np.maximum(heard.sum(axis=1, keepdims=True), 1e-9))


# --- rules that take from each count and give to the order below ------------------------------------------------


@dataclass(frozen=True)
class Discount:
    """Absolute discounting, interpolated: P_n = max(c - D, 0) / total + (what was taken) P_(n-1), P_1 the model.

    D hangs on the order and on whether c is 1, 2 or more, as in Chen and Goodman, "An empirical study of smoothing
    techniques", 1999. It is their Kneser-Ney but for the lower orders, whose continuation counts no table holds.
    In the end p_f = (1 - trust_m) p + trust_m P, m the highest order seen; trust 1 is the textbook's rule.
    """

    d: Floats = field(default_factory=lambda: np.full((WIDTH, CLASSES), 0.8))
    trust: Floats = field(default_factory=lambda: np.ones(WIDTH + 1))
    grids: Mapping[str, Floats] = field(default_factory=lambda: {"d": DISCOUNTS})

    def having(self, name: str, values: Floats) -> Discount:
        """The same with other numbers."""
        changed: dict[str, Any] = {name: values}
        return replace(self, **changed)

    def fit(self, seen: Observations) -> Discount:
        """See `by_grids`."""
        return by_grids(self, self.grids, seen)

    def likelihoods(self, seen: Observations) -> Floats:
        """See `Rule`."""
        gold, among = seen.model[:, 0], seen.model[:, 1]
        part = shares(seen) / np.maximum(seen.totals, 1)  # [T, W, O]
        for n in range(WIDTH):
            left = (part[:, :, n] * (seen.row[:, :, n, 1:] @ self.d[n])).sum(axis=1)
            left = np.where(seen.totals[:, :, n].any(axis=1), left, 1)
            kept = [(part[:, :, n] * (c[:, :, n, 0] - c[:, :, n, 1:] @ self.d[n])).sum(axis=1)
                    for c in (seen.gold, seen.open)]  # fmt: skip
            gold, among = kept[0] + left * gold, kept[1] + left * among
        return trusted(self.trust, gold, among, seen)

    def mix(self, p: Floats, evidence: Evidence) -> Floats:
        """See `Rule`."""
        found = np.asarray(p, dtype=np.float64)
        for n in range(evidence.highest):
            part = evidence.shares[:, n] / np.maximum(evidence.totals[:, n], 1)  # [W]
            counts = evidence.counts[:, n]
            taken = np.concatenate(([0], self.d[n]))[np.minimum(counts, CLASSES).astype(int)]  # [W, V]
            if part.any():
                found = part @ (counts - taken) + (part @ taken.sum(axis=1)) * found
        trust = self.trust[evidence.highest]
        return np.asarray(trust * found + (1 - trust) * p)


@dataclass(frozen=True)
class WittenBell:
    """P_n = (c + kappa_n T P_(n-1)) / (total + kappa_n T), T the different tokens that followed; P_1 the model.

    Witten and Bell, "The zero-frequency problem", 1991, has kappa 1. `trust` as in `Discount`.
    """

    kappa: Floats = field(default_factory=lambda: np.ones(WIDTH))
    trust: Floats = field(default_factory=lambda: np.ones(WIDTH + 1))
    grids: Mapping[str, Floats] = field(default_factory=dict)

    def having(self, name: str, values: Floats) -> WittenBell:
        """The same with other numbers."""
        changed: dict[str, Any] = {name: values}
        return replace(self, **changed)

    def fit(self, seen: Observations) -> WittenBell:
        """See `by_grids`."""
        return by_grids(self, self.grids, seen)

    def likelihoods(self, seen: Observations) -> Floats:
        """See `Rule`."""
        gold, among = seen.model[:, 0], seen.model[:, 1]
        share = shares(seen)
        for n in range(WIDTH):
            given = self.kappa[n] * seen.row[:, :, n, 1:].sum(axis=2)  # [T, W]
            part = share[:, :, n] / np.maximum(seen.totals[:, :, n] + given, 1e-9)
            left = np.where(seen.totals[:, :, n].any(axis=1), (part * given).sum(axis=1), 1)
            gold = (part * seen.gold[:, :, n, 0]).sum(axis=1) + left * gold
            among = (part * seen.open[:, :, n, 0]).sum(axis=1) + left * among
        return trusted(self.trust, gold, among, seen)

    def mix(self, p: Floats, evidence: Evidence) -> Floats:
        """See `Rule`."""
        found = np.asarray(p, dtype=np.float64)
        for n in range(evidence.highest):
            counts = evidence.counts[:, n]
            given = self.kappa[n] * (counts > 0).sum(axis=1)  # [W]
            part = evidence.shares[:, n] / np.maximum(evidence.totals[:, n] + given, 1e-9)
            if part.any():
                found = part @ counts + (part @ given) * found
        trust = self.trust[evidence.highest]
        return np.asarray(trust * found + (1 - trust) * p)


def trusted(trust: Floats, gold: Floats, among: Floats, seen: Observations) -> Floats:
    """The likelihood of gold once the model has had its say again. [T]"""
    t = trust[seen.seen[:, 0].astype(int)]
    both = [t * mine + (1 - t) * seen.model[:, i] for i, mine in enumerate((gold, among))]
    return np.asarray(both[0] / both[1])


R = TypeVar("R", Discount, WittenBell)


def by_grids(rule: R, grids: Mapping[str, Floats], seen: Observations) -> R:
    """One number of a rule after the other, each the best of its grid, twice around."""
    seen = seen.chosen(np.arange(len(seen)) % (len(seen) // ENOUGH + 1) == 0)
    for _ in range(2):
        for name, grid in grids.items():
            for place in np.ndindex(getattr(rule, name).shape):
                tried = [rule.having(name, put(getattr(rule, name), place, value)) for value in grid]
                rule = min(tried, key=lambda one: nats(one.likelihoods(seen)))
    return rule


def put(values: Floats, place: tuple[int, ...], value: float) -> Floats:
    """A copy with one value changed."""
    changed = np.array(values)
    changed[place] = value
    return changed


@dataclass(frozen=True)
class StupidBackoff:
    """The share in the longest context that a token followed, 0.4 of it a step down; the model at the end."""

    def fit(self, seen: Observations) -> StupidBackoff:
        """Nothing is fitted."""
        return self

    def likelihoods(self, seen: Observations) -> Floats:
        """See `Rule`; the scores are normalised first."""
        return np.asarray(seen.backed[:, 0] / seen.backed[:, 1])

    def mix(self, p: Floats, evidence: Evidence) -> Floats:
        """See `Rule`."""
        found = backed_off(p, evidence)
        return np.asarray(found / found.sum())


@dataclass(frozen=True)
class ModelAlone:
    """No tables."""

    def fit(self, seen: Observations) -> ModelAlone:
        """Nothing is fitted."""
        return self

    def likelihoods(self, seen: Observations) -> Floats:
        """See `Rule`."""
        return np.asarray(seen.model[:, 0] / seen.model[:, 1])

    def mix(self, p: Floats, evidence: Evidence) -> Floats:
        """See `Rule`."""
        return p


def nats(p: Floats) -> float:
    """The mean loss of a token."""
    return float(-np.log(np.maximum(p, 1e-9)).mean())


def rules() -> dict[str, Rule]:
    """All that are compared, the product's first."""
    chain = {"trust": TRUSTS}
    return {
        "as shipped": Gate(by_order, rounds=0),
        **{name: Gate(design) for name, design in DESIGNS.items()},
        "stupid backoff": StupidBackoff(),
        "absolute discounting": Discount(),
        "absolute discounting, trusted by order": Discount(grids={"d": DISCOUNTS, **chain}),
        "Witten-Bell": WittenBell(),
        "Witten-Bell, kappa and trust by order": WittenBell(grids={"kappa": KAPPAS, **chain}),
        "model alone": ModelAlone(),
    }
