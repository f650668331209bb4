"""An arm is asked exactly as the product asks, and its name says all that is special about it."""

from __future__ import annotations

import numpy as np
import pytest

from ngram_builders.errors import UserError
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.context import build_context
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.arm_runner import ArmRunner, UnmixedModel
from spd_lsp.evaluation.quality.arms import ARM_KINDS, parse_arm, parse_arms
from spd_lsp.evaluation.quality.examples import read_packages, sample_examples
from spd_lsp.evaluation.quality.held_out_ngrams import PackageNgrams
from spd_lsp.evaluation.quality.run import text_without_target
from spd_lsp.models.load import load
from spd_lsp.settings import Settings
from tests.conftest import STARTER


@pytest.fixture(scope="module")
def tokens():
    return ModelTokenizer(STARTER)


@pytest.fixture(scope="module")
def model():
    return load(STARTER, "cpu")


class Fixed:
    """Domains that always serve one mixture."""

    live = None
    revision = 0
    problems = ()

    def __init__(self, mixture):
        self.mixture = mixture

    def mixture_for(self, file, language):
        return self.mixture


def test_names_are_read():
    arm = parse_arm("beam:drafts=5:temperature=0.5@built-in")
    assert (arm.decoder, arm.prior, dict(arm.settings)) == ("beam", "built-in", {"drafts": 5, "temperature": 0.5})
    assert arm.family == "beam:drafts=5:temperature=0.5"
    assert parse_arm("paper@none").settings["interpolation"] == "paper"


def test_baselines_have_settings_of_their_own():
    arm = parse_arm("nucleus:top_p=0.95:draw_temperature=0.4:temperature=0.8@none")
    assert dict(arm.settings) == {"temperature": 0.8}
    assert arm.baseline_settings == {"top_p": 0.95, "draw_temperature": 0.4}
    assert parse_arm("beam:length_penalty=0.5@none").baseline_settings == {"length_penalty": 0.5}


def test_arms_without_a_prior_get_each_and_no_arm_comes_twice():
    labels = [arm.label for arm in parse_arms(["superposed", "no-lm", "superposed@none"], ["none", "repository"])]
    assert labels == ["superposed@none", "superposed@repository", "no-lm@repository"]


def test_several_values_make_a_grid():
    labels = [arm.label for arm in parse_arms(["beam:drafts=2/3:temperature=0.5/1@none", "greedy"], ["none"])]
    assert labels == [
        "beam:drafts=2:temperature=0.5@none",
        "beam:drafts=2:temperature=1@none",
        "beam:drafts=3:temperature=0.5@none",
        "beam:drafts=3:temperature=1@none",
        "greedy@none",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magic@none", "unknown decoder 'magic'; choose one of superposed"),
        ("beam@moon", "unknown prior 'moon'"),
        ("beam:drafts=99@none", "must be from 1 to 16"),
        ("beam:drafts=few@none", "must be an integer"),
        ("beam:model=x@none", "no setting of a decoder"),
        ("beam:colour=red@none", "no setting of a decoder"),
        ("beam:drafts=2.5@none", "must be an integer"),
        ("beam:top_p=0.9@none", "no setting of a decoder"),
        ("nucleus:top_p=0@none", "top_p must be from 0.01 to 1"),
        ("beam:length_penalty=much@none", "length_penalty must be from 0 to 2"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        parse_arm(text)


@pytest.mark.parametrize("kind", ["superposed", "best-first"])
def test_an_arm_answers_as_the_product_does(kind, repository, model, tokens):
    (package,) = read_packages([repository])
    prior = PackageNgrams(package, tokens, {})
    runner = ArmRunner(model, tokens, Settings())
    for example in sample_examples([package])[:4]:
        source = next(s for s in package.files if s.name == example.file)
        text = text_without_target(source.text, example, "", right=True)
        mixture = prior.without(source).mixtures(example)["repository+file"]
        request = runner.request(text, example.at, "python")
        runner.warm_up(request)
        reply = runner.complete(parse_arm(f"{kind}@repository+file"), request, mixture)
        product = Completer(model, tokens, Fixed(mixture), Settings(decoder=kind))
        answer = product.complete(text, example.at, "python", explicit=True)
        if build_context(text, example.at, "python", 1000, tokens.count, explicit=True).shape == "line":
            drafts = [completion.text for completion in answer.completions if not completion.is_name]
            assert [draft for draft in reply.drafts if draft in drafts] == drafts
            assert len(drafts) == len(reply.drafts) or any(one.is_name for one in answer.completions)
            assert (reply.passes, reply.tokens) == (answer.passes, answer.tokens)
        assert reply.rows >= reply.passes - 1


def test_without_a_model_n_grams_alone_decide(repository, model, tokens):
    (package,) = read_packages([repository])
    source = next(s for s in package.files if s.name == "reader.py")
    example = next(c for c in sample_examples([package]) if c.file == "reader.py")
    mixture = PackageNgrams(package, tokens, {}).without(source).mixtures(example)["repository+file"]
    runner = ArmRunner(model, tokens, Settings())
    source = "class Reader:\n    def read(self, name, default=None):\n        found = self.rows."
    request = runner.request(source, len(source), "python")
    reply = runner.complete(parse_arm("no-lm@repository+file"), request, mixture)
    assert "get(name, default)" in reply.drafts


@pytest.mark.parametrize("heaviest", [0, 1, 2])
def test_unmixed_reads_the_heaviest_token_alone(heaviest, model):
    prompt, ids = [5, 7, 11], [40, 41, 42]
    weights = np.where(np.arange(3) == heaviest, 0.6, 0.2)
    unmixed = UnmixedModel(model)
    unmixed.prefill(prompt)
    logits = unmixed.step(ids, weights).copy()
    model.prefill(prompt, lambda: None)
    assert np.array_equal(logits, model.step([ids[heaviest]], np.ones(1)))
    model.prefill(prompt, lambda: None)
    assert not np.allclose(logits, model.step(ids, weights))


def test_unmixed_is_superposed_where_there_is_one_draft_alone(model, tokens):
    runner = ArmRunner(model, tokens, Settings(max_tokens=8))
    request = runner.request("def f(first, second):\n    return ", 36, "python")
    one, same = (
        runner.complete(parse_arm(f"{kind}:drafts=1@none"), request, None) for kind in ("unmixed", "superposed")
    )
    assert one.drafts == same.drafts


def test_every_kind_is_a_decoder(model, tokens):
    runner = ArmRunner(model, tokens, Settings(max_tokens=4))
    request = runner.request("def f(a, b):\n    return ", 26, "python")
    for kind in (name for name, kind in ARM_KINDS.items() if not kind.is_text):
        reply = runner.complete(parse_arm(f"{kind}@none"), request, None)
        assert reply.tokens <= 4
        assert len(reply.drafts) <= {"greedy": 1, "oracle": 20}.get(kind, 3)
