"""Models with states, which cannot be cropped: whatever they read, logits and drafts are those of a fresh one."""

from __future__ import annotations

import numpy as np
import pytest

from spd_lsp.completion.loading import load_completer
from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.superposed import DecodingRequest, superpose
from spd_lsp.models.llama import engine as module
from spd_lsp.models.llama.engine import LlamaEngine
from spd_lsp.models.load import load
from spd_lsp.settings import Settings
from tests.models.llama.gguf_files import STATEFUL, write_gguf

ONE = np.ones(1)
TEXT = [(31 * number + 7) % 900 for number in range(200)]
ABOVE = [*TEXT[:90], 7, 8, *TEXT[91:]]  # a line above the cursor has changed
EDITS = {
    "the same": TEXT,
    "typed on": [*TEXT, 5],
    "another last token": [*TEXT[:-1], 6, 9],
    "deleted": TEXT[:-7],
    "much deleted": TEXT[:-90],
    "a line above": ABOVE,
    "another file": TEXT[50:150],
    "back again": TEXT,
}
ROUNDING = 0.01  # of logits up to about six; llama.cpp keeps keys and values in half precision
SETTINGS = Settings(drafts=3, max_tokens=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, needs_llama):
    folder = tmp_path_factory.mktemp("stateful")
    for architecture in (*STATEFUL, "qwen2"):
        write_gguf(folder / f"{architecture}.gguf", architecture, "F32")
    return folder


def opened(folder, architecture):
    return load(folder / f"{architecture}.gguf", "cpu")


@pytest.fixture(params=STATEFUL)
def engine(request, folder):
    return opened(folder, request.param)


def fresh_logits(engine, ids):
    """After the last of all ids, read at once. [V]."""
    return engine.forward(ids, engine.new_cache(), last_only=True)[-1]


def decoded(engine, prompt, decoder=best_first):
    result = decoder(engine, DecodingRequest(prompt, lambda ids: False), SETTINGS)
    engine.crop(len(prompt))
    return result


def test_after_any_edit_logits_are_those_of_a_fresh_reading(engine):
    for edit in (*EDITS, *EDITS):
        expected = fresh_logits(engine, EDITS[edit])
        np.testing.assert_allclose(engine.prefill(EDITS[edit]), expected, atol=ROUNDING, err_msg=edit)
        engine.step([3], ONE)  # a draft is read and forgotten
        engine.crop(len(EDITS[edit]))


def test_after_any_edit_the_best_draft_has_the_score_that_it_has_in_a_fresh_engine(engine):
    for edit in EDITS.values():
        fresh = LlamaEngine(engine.context.model, "cpu")
        for decoder in (best_first, superpose):
            found, expected = decoded(engine, edit, decoder), decoded(fresh, edit, decoder)
            scores = [max(draft.score for draft in one.best) for one in (found, expected)]
            assert scores[0] == pytest.approx(scores[1], abs=ROUNDING)


def test_drafts_go_on_from_any_that_were_read(engine):
    engine.prefill(TEXT)
    drafts = [(11,), (22,), (11, 33), (22, 44), (11, 55), (11, 33, 66), (11, 55, 77), (22, 44, 88), (11, 33, 99)]
    forgotten = [(11, 33, 66, 1), (22, 44, 2), (11, 1), (22, 44, 2, 3), (11, 33, 2)]
    for draft in [*drafts, *((other,) for other in range(9)), *forgotten]:
        expected = fresh_logits(engine, [*TEXT, *draft])
        np.testing.assert_allclose(engine.read_draft(draft), expected, atol=ROUNDING)
    assert len(engine.drafts_read) <= 8


def test_several_drafts_are_read_at_once(engine):
    engine.prefill(TEXT)
    for drafts in ([(11,), (22,)], [(22, 33), (22, 44), (11, 55)], [(22, 33, 66), (11, 55, 77)]):
        for logits, draft in zip(engine.read_drafts(drafts), drafts, strict=True):
            np.testing.assert_allclose(logits, fresh_logits(engine, [*TEXT, *draft]), atol=ROUNDING)


def positions_read(engine, texts):
    """How many for each text, with a draft of each."""
    read = []
    for text in texts:
        before = engine.positions_read
        engine.prefill(text)
        engine.step([3], ONE)
        engine.crop(len(text))
        read.append(engine.positions_read - before)
    return read


def test_a_key_reads_its_token_and_at_most_a_chunk_where_the_last_one_changes_or_goes(engine):
    engine.prefill(TEXT)
    typed = [[*TEXT, *range(2, 2 + more)] for more in range(1, 40)]
    assert positions_read(engine, typed) == [1] * len(typed)
    last_changes = [[*typed[-1], *range(2, 2 + more), 1] for more in range(20)]
    assert max(positions_read(engine, [*last_changes, *typed[::-1]])) <= engine.chunk + 1


def test_a_line_above_is_read_from_a_state_before_it(engine):
    engine.prefill(TEXT)
    before = engine.positions_read
    engine.prefill(ABOVE)
    assert engine.positions_read - before < len(ABOVE)


def test_more_states_and_positions_than_there_is_room_for(folder, monkeypatch):
    monkeypatch.setattr(module, "_INITIAL_POSITIONS", 512)
    monkeypatch.setattr(module, "_INITIAL_STATES", 4)
    engine = opened(folder, STATEFUL[1])
    for edit in EDITS.values():
        engine.prefill(edit)
        for draft in [(first,) for first in range(9)] + [(4, 5), (8, 7)]:
            engine.read_draft(draft)
        np.testing.assert_allclose(
            engine.read_draft((4, 5, 6)), fresh_logits(engine, [*edit, 4, 5, 6]), atol=ROUNDING
        )
    assert engine.context.sequences > 4 and engine.context.positions > 512


def test_what_a_pass_that_fails_has_left_is_not_read_on(engine):
    engine.prefill(TEXT[:100])
    with pytest.raises(IndexError):
        engine.prefill([*TEXT[:100], 1 << 20])
    np.testing.assert_allclose(engine.prefill(TEXT), fresh_logits(engine, TEXT), atol=ROUNDING)


@pytest.mark.parametrize("architecture, fill_format", [("lfm2", ""), ("granitehybrid", "granite")])
def test_a_document_is_completed_whether_or_not_it_was_trained_to_fill_in(architecture, fill_format, folder):
    chosen = Settings(model=str(folder / f"{architecture}.gguf"), max_tokens=6)
    completer = load_completer(chosen, lambda text: None, ngrams=False)
    source = "import os\n\n\ndef names(path):\n    return os.\n\n\nprint(names('.'))\n"
    cursor = source.index("os.\n") + len("os.")
    first = completer.complete(source, cursor, "python", explicit=True)
    assert first.passes and first.fill_format == fill_format
    again = completer.complete(source[:cursor] + "l" + source[cursor:], cursor + 1, "python", explicit=True)
    assert again.passes and again.read_tokens < first.read_tokens
