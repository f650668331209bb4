"""The paper's experiments: what must hold for any model, on the shipped one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ngram_builders.errors import UserError
from spd_lsp.cli import main
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.paper import PAPER, nats, read_passages, trace_passage
from spd_lsp.models.load import load
from spd_lsp.models.logits import log_softmax
from tests.conftest import STARTER

CODE = "import os\n\n\ndef read(path):\n    with open(path) as file:\n        return "


@pytest.fixture(scope="module")
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


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
        assert (len(passage.before), len(passage.after)) == (128, 10)
        text = (repository / passage.group[1]).read_text()
        assert tokens.bytes_of([*passage.before, *passage.after]).decode() in text
        mine = passage.before[-4:]  # names a number of its own file, which no counted file has
        assert not passage.mixture([mine], np.array(passage.after[:1])).max() > 0.999
    assert len({passage.group for passage in passages}) <= 3  # one file in six, and one


def test_a_folder_without_source_is_refused(tmp_path: Path, tokens: ModelTokenizer) -> None:
    with pytest.raises(UserError, match="at least two are needed"):
        read_passages([tmp_path], tokens, 10)


def naive_nats(model: Any, prompt: Sequence[int], draft: Sequence[int]) -> np.ndarray:
    log_p = log_softmax(model.forward_ids([[*prompt, *draft]], model.new_cache())[0])[-len(draft) - 1 : -1]
    return -log_p[np.arange(len(draft)), list(draft)]


def test_each_draft_is_judged_after_the_same_prompt(tokens: ModelTokenizer) -> None:
    model = load(STARTER, "cpu")
    prompt, *drafts = map(tokens.encode, (CODE, "file.read()", "open(path)"))
    drafts = [draft[:3] for draft in drafts]
    for found, draft in zip(nats(model, prompt, drafts), drafts, strict=True):
        assert found == pytest.approx(naive_nats(model, prompt, draft), abs=0.1)  # read in other pieces


@pytest.mark.slow
def test_every_method_has_its_row(repository: Path) -> None:
    command = ["eval", "perplexity", str(repository), "-k", "2", "--examples", "1"]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 11 and rows[-1][0] == "| the real text"
    assert (PAPER.alpha, PAPER.temperature, PAPER.interpolation) == (0.54, 0.06, "paper")


def test_with_a_sharp_distribution_superposing_does_nothing(starter_network: Any, tokens: ModelTokenizer) -> None:
    torch.set_num_threads(1)
    (found,) = trace_passage(starter_network, tokens.encode(CODE), 3, 1, 0.001)
    assert found == pytest.approx([1, 1, 0], abs=1e-2)


def test_superposed_beams_move_away_from_their_mixture(starter_network: Any, tokens: ModelTokenizer) -> None:
    found = trace_passage(starter_network, tokens.encode(CODE), 3, 4, 1.0)
    assert found.shape == (4, 3)
    assert (found[:, :2] <= 1 + 1e-5).all() and (found[:, 2] > -1e-4).all()


def test_linearity_needs_a_model_whose_hidden_states_can_be_read(repository: Path) -> None:
    result = CliRunner().invoke(main, ["eval", "linearity", str(repository), "--examples", "1"])
    assert result.exit_code == 1
    assert "name a model folder with --model" in result.output
    assert "Traceback" not in result.output
