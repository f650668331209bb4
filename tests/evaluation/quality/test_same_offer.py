"""What is measured is what ships: an arm offers, at any cursor, exactly what the product offers there."""

from __future__ import annotations

import dataclasses
import email
import shutil
from pathlib import Path

import pytest

from ngram_builders.index.mixture import Mixture
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.offer import first_line
from spd_lsp.completion.ranking import Completion
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.arms import ArmRunner, parse_arm
from spd_lsp.evaluation.quality.examples import (
    STRATA,
    Example,
    PackageFile,
    PackageFiles,
    read_packages,
    sample_examples,
)
from spd_lsp.evaluation.quality.held_out_ngrams import PackageNgrams
from spd_lsp.evaluation.quality.run import open_runner, text_without_target
from spd_lsp.models.load import load
from spd_lsp.ngrams.open_documents import OpenDocument
from spd_lsp.settings import Settings
from tests.conftest import STARTER, STARTER_FILE

CURSORS = 100  # at line starts, behind signs and blanks, inside words
SECRET = 'api_token = "9f8Kq2LmZx7RtY4wVb6N"\n'


class FixedNgrams:
    """Tables that always serve one mixture."""

    open_files = None
    revision = 0
    problems = ()

    def __init__(self, mixture: Mixture | None = None) -> None:
        self.mixture = mixture

    def serve(self, document: OpenDocument, cursor: int) -> Mixture | None:
        return self.mixture


class Asked:
    """The starter, asked both ways."""

    def __init__(self) -> None:
        self.tokens = ModelTokenizer(STARTER)
        self.model = load(STARTER, "cpu")
        self.tables = FixedNgrams()
        self.product = Completer(self.model, self.tokens, self.tables, Settings())  # type: ignore[arg-type]
        self.runner = ArmRunner(self.model, self.tokens, Settings())

    def both(self, source: str, cursor: int, mixture: Mixture | None) -> tuple[list[Completion], list[Completion]]:
        self.tables.mixture = mixture
        shipped = self.product.complete(source, cursor, "python", explicit=True).completions
        arm = parse_arm("best-first@repository+file")
        request = self.runner.request(source, cursor, "python", shape=None)
        texts = dataclasses.replace(request.texts, context=request.texts.context.opening)
        request = dataclasses.replace(request, texts=texts)
        shipped = [dataclasses.replace(one, text=first_line(one.text)) for one in shipped]  # not copied blocks
        return shipped, self.runner.complete(arm, request, mixture).completions


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked()


@pytest.mark.slow
def test_an_arm_offers_what_the_product_offers(asked: Asked) -> None:
    (package,) = read_packages([Path(email.__file__).parent])
    files, prior = {file.name: file for file in package.files}, PackageNgrams(package, asked.tokens)
    examples = [one for seed in range(9) for one in sample_examples([package], seed=seed)][:CURSORS]
    names = copies = others = 0
    for example in examples:
        file = files[example.file]
        source = text_without_target(file.text, example, "")
        mixture = prior.without(file).mixtures(example)["repository+file"]
        shipped, measured = asked.both(source, example.at, mixture)
        found = [{one.text: one.probability for one in offer} for offer in (measured, shipped)]
        clear = [{text for text, p in one.items() if p >= 0.03} for one in found]
        others += not (clear[0] <= found[1].keys() and clear[1] <= found[0].keys())
        rated = [one.probability for one in shipped if one.is_rated]
        assert rated == sorted(rated, reverse=True)
        names += any(one.is_name for one in shipped)
        copies += any(one.is_copy for one in shipped)
    assert others <= CURSORS // 20, "in few places rounding, which depends on what is cached, turns two alike"
    assert len(examples) == CURSORS and {example.stratum for example in examples} == set(STRATA)
    assert min(names, copies) >= CURSORS // 20  # all kinds had a say


def test_an_arm_withholds_what_the_product_withholds(asked: Asked) -> None:
    files = [PackageFile("shop", f"{name}.py", "python", f"{SECRET}# {name}\n") for name in ("a", "b", "c")]
    prior = PackageNgrams(PackageFiles("shop", tuple(files)), asked.tokens)
    file, source = PackageFile("shop", "d.py", "python", SECRET), SECRET.partition("9f8K")[0]
    example = Example("shop", "d.py", "", 0, STRATA[1], len(source), 0, len(SECRET), "", "")
    mixture = prior.without(file).mixtures(example)["repository"]
    shipped, measured = asked.both(source, len(source), mixture)
    assert measured == shipped
    assert not any("9f8Kq2" in one.text for one in measured)


def test_a_run_reads_as_much_of_a_file_as_the_model_was_made_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copy(STARTER_FILE, tmp_path)
    (tmp_path / "training.json").write_text('{"settings": {"context_tokens": 384}}')
    monkeypatch.setenv("SPD_LSP_STARTER", str(tmp_path))
    assert open_runner(Settings(), lambda text: None).settings.context_tokens == 384
