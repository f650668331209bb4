"""What is measured is what ships: an arm offers, at any cursor, exactly what the product offers there."""

from __future__ import annotations

from pathlib import Path

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.offer import Completion
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.arm_runner import ArmRunner
from spd_lsp.evaluation.quality.arms import parse_arm
from spd_lsp.evaluation.quality.examples import (
    STRATA,
    Example,
    PackageFile,
    PackageFiles,
    read_packages,
    sample_examples,
)
from spd_lsp.evaluation.quality.held_out_ngrams import PackageNgrams
from spd_lsp.evaluation.quality.run import text_without_target
from spd_lsp.models.load import load
from spd_lsp.ngrams.interpolation import Mixture
from spd_lsp.settings import Settings
from tests.conftest import PACKAGE, STARTER

CURSORS = 200  # at line starts, behind signs and blanks, inside words, anywhere
SECRET = 'api_token = "9f8Kq2LmZx7RtY4wVb6N"\n'


class FixedNgrams:
    """Domains that always serve one mixture."""

    live = None
    revision = 0
    problems = ()

    def __init__(self, mixture: Mixture | None = None) -> None:
        self.mixture = mixture

    def mixture_for(self, file: Path | None, language: str | None) -> Mixture | None:
        return self.mixture


class Asked:
    """The starter, asked both ways."""

    def __init__(self) -> None:
        self.tokens = ModelTokenizer(STARTER)
        self.model = load(STARTER, "cpu")
        self.domains = FixedNgrams()
        self.product = Completer(self.model, self.tokens, self.domains, Settings())  # type: ignore[arg-type]
        self.runner = ArmRunner(self.model, self.tokens, Settings())

    def both(self, source: str, cursor: int, mixture: Mixture | None) -> tuple[list[Completion], list[Completion]]:
        self.domains.mixture = mixture
        shipped = self.product.complete(source, cursor, "python", explicit=True).completions
        arm = parse_arm(f"{self.product.settings.decoder}@repository+file")
        request = self.runner.request(source, cursor, "python", shape=None)
        return shipped, self.runner.complete(arm, request, mixture).completions


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked()


@pytest.mark.slow
def test_an_arm_offers_what_the_product_offers(asked: Asked) -> None:
    (package,) = read_packages([PACKAGE])
    files, prior = {file.name: file for file in package.files}, PackageNgrams(package, asked.tokens, {})
    examples = sample_examples([package], files=70)[:CURSORS]
    names = copies = 0
    for example in examples:
        file = files[example.file]
        source = text_without_target(file.text, example, "", right=True)
        mixture = prior.without(file).mixtures(example)["repository+file"]
        shipped, measured = asked.both(source, example.at, mixture)
        assert measured == shipped, f"{example.file}:{example.at}"
        rated = [one.probability for one in shipped if one.is_rated]
        assert rated == sorted(rated, reverse=True)
        names += any(one.is_name for one in shipped)
        copies += any(one.is_copy for one in shipped)
    assert len(examples) == CURSORS and {example.stratum for example in examples} == set(STRATA)
    assert min(names, copies) >= CURSORS // 20  # all kinds had a say


def test_an_arm_withholds_what_the_product_withholds(asked: Asked) -> None:
    files = [PackageFile("shop", f"{name}.py", "python", f"{SECRET}# {name}\n") for name in ("a", "b", "c")]
    prior = PackageNgrams(PackageFiles("shop", STARTER, tuple(files)), asked.tokens, {})
    file, source = PackageFile("shop", "d.py", "python", SECRET), SECRET.partition("9f8K")[0]
    example = Example("shop", "d.py", "", 0, STRATA[1], len(source), 0, len(SECRET), "", "")
    mixture = prior.without(file).mixtures(example)["repository"]
    shipped, measured = asked.both(source, len(source), mixture)
    assert measured == shipped
    assert not any("9f8Kq2" in one.text for one in measured)
