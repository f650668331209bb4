"""An arm is asked exactly as the product asks, and its name says all that is special about it."""

from __future__ import annotations

import pytest

from ngram_builders.errors import UserError
from spd_lsp.evaluation.quality.arms import ARM_KINDS, ArmRunner, parse_arm, parse_arms
from spd_lsp.models.load import load
from spd_lsp.settings import Settings
from tests.conftest import STARTER


@pytest.fixture(scope="module")
def model():
    return load(STARTER, "cpu")


def test_names_are_read():
    arm = parse_arm("beam:drafts=5:temperature=0.5@file")
    assert (arm.kind, arm.prior, dict(arm.settings)) == ("beam", "file", {"drafts": 5, "temperature": 0.5})
    assert arm.family == "beam:drafts=5:temperature=0.5"
    assert parse_arm("paper@none").settings["interpolation"] == "paper"


def test_arms_without_a_prior_get_each_and_no_arm_comes_twice():
    labels = [arm.label for arm in parse_arms(["superposed", "beam", "superposed@none"], ["none", "file"])]
    assert labels == ["superposed@none", "superposed@file", "beam@none", "beam@file"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magic@none", "unknown decoder 'magic'; choose one of superposed"),
        ("beam@moon", "unknown prior 'moon'"),
        ("beam:drafts=99@none", "must be from 1 to 16"),
        ("beam:model=x@none", "is not a decoder setting"),
        ("beam:drafts=2.5@none", "must be an integer"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        parse_arm(text)


def test_every_kind_completes(model, tokens):
    runner = ArmRunner(model, tokens, Settings(max_tokens=4))
    request = runner.request("def f(a, b):\n    return ", 26, "python")
    for kind in ARM_KINDS:
        reply = runner.complete(parse_arm(f"{kind}@none"), request, None)
        assert reply.passes <= 12 and (reply.passes > 0) == (kind != "copy")
        assert len(reply.drafts) <= (1 if kind == "greedy" else 3)
