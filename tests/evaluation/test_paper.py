"""The paper's experiments: what must hold for any model, on the shipped one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from spd_lsp.cli import main
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.decoding.candidates import log_softmax
from spd_lsp.evaluation.paper import PAPER, nats, read_passages, trace_passage
from spd_lsp.models.load import load
from tests.conftest import STARTER

CODE = "import os\n\n\ndef read(path):\n    with open(path) as file:\n        return "


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many") / "shop"
    folder.mkdir()
    for n in range(12):
        lines = [f"def price_{n}_{i}(order, tax):\n    return order.total * {i} + tax\n" for i in range(30)]
        (folder / f"part_{n}.py").write_text("\n".join(lines))
    return folder


def test_passages_are_what_stands_in_held_out_files(repository: Path, tokens: ModelTokenizer) -> None:
    passages = read_passages([repository], tokens, 10)
    assert len(passages) == 10
    for passage in passages:
        assert (len(passage.before), len(passage.after)) == (128, 30)
        text = (repository / passage.group[1]).read_text()
        assert tokens.bytes_of([*passage.before, *passage.after]).decode() in text
        mine = passage.before[-4:]  # names a number of its own file, which no counted file has
        assert not passage.mixture([mine], np.array(passage.after[:1])).max() > 0.999
    assert len({passage.group for passage in passages}) <= 3  # one file in six, and one


def naive_nats(model: Any, prompt: Sequence[int], draft: Sequence[int]) -> np.ndarray:
    log_p = log_softmax(model.forward([*prompt, *draft], model.new_cache()))[-len(draft) - 1 : -1]
    return -log_p[np.arange(len(draft)), list(draft)]


def test_each_draft_is_judged_after_the_same_prompt(tokens: ModelTokenizer) -> None:
    model = load(STARTER, "cpu")
    prompt, *drafts = map(tokens.encode, (CODE, "file.read()", "open(path)"))
    drafts = [draft[:3] for draft in drafts]
    for found, draft in zip(nats(model, prompt, drafts), drafts, strict=True):
        assert found == pytest.approx(naive_nats(model, prompt, draft), abs=0.1)  # read in other pieces


def table(output: str, head: str) -> dict[str, list[str]]:
    """The rows of a table by their first cells."""
    lines = output.partition(f"| {head}")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: [cell.partition(" (")[0] for cell in row] for name, *row in cells}


@pytest.mark.slow
def test_every_table_is_of_its_parts(repository: Path) -> None:
    command = ["eval", "paper", str(repository), "-k", "2", "--examples", "2"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0
    perplexity = table(done.stdout, "perplexity")
    assert len(perplexity) == 11 and float(perplexity["the real text"][0]) >= 1
    assert perplexity["greedy"][1] == ""  # has one draft
    for *drafts, best in perplexity.values():
        assert float(best) <= min(float(draft) for draft in drafts if draft)
    assert len(table(done.stdout, "n-grams")) == 6
    assert len(table(done.stdout, "resets")) == 6
    facts, coverage = (
        table(done.stdout, "the next 4 tokens (table 2)"),
        table(done.stdout, "the next 4 tokens (fig"),
    )
    assert (len(facts), len(coverage)) == (10, 6)
    for row in (facts | coverage).values():
        assert row == sorted(row, key=float)
    assert coverage["nucleus, linear n-grams"][-1] == coverage["nucleus x SPD, linear n-grams"][-1] == "100.0"
    assert len(table(done.stdout, "linearity")) == 6
    assert (PAPER.alpha, PAPER.temperature, PAPER.interpolation) == (0.54, 0.06, "paper")


def test_with_a_sharp_distribution_superposing_does_nothing(tokens: ModelTokenizer) -> None:
    found = trace_passage(load(STARTER, "cpu"), tokens.encode(CODE), 3, 4, 0.001)
    assert found[:, 0] == pytest.approx(1, abs=1e-3)
    assert found[:, 2] == pytest.approx(0, abs=1e-2)
