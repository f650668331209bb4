"""The completer: one document and cursor to completions, with the starter model and real tables."""

from __future__ import annotations

import re
from collections import deque

import pytest

from ngram_builders.build import build
from ngram_builders.registry.registry import Registry
from spd_lsp.completion.completer import Completer
from spd_lsp.models.load import load
from spd_lsp.ngrams.serving_tables import OpenFiles, ServingTables
from spd_lsp.settings import Settings
from tests.conftest import STARTER, TinyModel

HABIT = """\
def {name}(frobnicator):
    zygote = frobnicator.quench_all(depth=4)
    return zygote
"""
ASKED = "def fifth(frobnicator):\n    zygote = frob"
ELSEWHERE = "import os\n\n\ndef names(path):\n    return os."


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "data")


@pytest.fixture
def completer(network, tokens, registry):
    tables = ServingTables(registry, tokens.fingerprint)
    return Completer(network, tokens, tables, Settings(min_probability=0.0))


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    write(folder, HABIT)
    return folder


def write(folder, text):
    for name in ("first", "second", "third", "fourth"):
        (folder / f"{name}.py").write_text(text.format(name=name), encoding="utf-8")


def teach(repository, registry, tokens):
    build([repository], "mine", tokens.encode_batch, token_space=tokens.space, registry=registry)


def texts(answer):
    return [completion.text for completion in answer.completions]


def test_a_repository_s_habits_are_completed_once_they_were_counted(completer, registry, tokens, repository):
    file = repository / "fifth.py"
    before = completer.complete(ASKED, len(ASKED), "python", file)
    assert not any(text.startswith("nicator.quench_all") for text in texts(before))
    teach(repository, registry, tokens)
    completer.run_idle_work(0.0)
    after = completer.complete(ASKED, len(ASKED), "python", file)
    assert any(text.startswith("nicator.quench_all") for text in texts(after))
    assert after.ngrams == ("mine",)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_there_are_at_most_k_completions_for_one_pass_a_token(network, tokens, k):
    settings = Settings(drafts=k, max_tokens=8, decoder="superposed")
    completer = Completer(network, tokens, ServingTables(None, tokens.fingerprint), settings)
    text = "try:\n    import numpy\nexcept "
    answer = completer.complete(text, len(text), "python")
    assert 1 <= len(answer.completions) <= k
    assert answer.passes == answer.tokens <= 8


def test_a_model_that_takes_long_for_a_pass_makes_fewer_of_them(network, tokens, monkeypatch):
    """Its drafts are superposed; those of a model that something slows down for a moment are not."""
    text = "try:\n    import numpy\nexcept "
    passes = {}
    for times in ((0.05, 0.04), (0.05, 0.02), ()):
        completer = Completer(network, tokens, ServingTables(None, tokens.fingerprint), Settings())
        monkeypatch.setattr(network, "pass_times", deque(times))
        passes[times] = completer.complete(text, len(text), "python").passes
    completer.apply_settings(Settings(decoder="superposed"))
    superposed = completer.complete(text, len(text), "python").passes
    assert passes == {(0.05, 0.04): superposed, (0.05, 0.02): passes[()], (): passes[()]}
    assert superposed < passes[()]


def test_a_name_of_the_file_whose_letters_are_typed_is_among_three(completer):
    source = "zygomorphic_petals = 4\nzygote_count = 2\n\n\ndef grow():\n    total = zygo"
    answer = completer.complete(source, len(source), "python")
    words = {"zygo" + re.split(r"\W", text)[0] for text in texts(answer)}
    assert {"zygomorphic_petals", "zygote_count"} <= words


def test_a_file_longer_than_the_model_can_read_is_trimmed(completer):
    source = "".join(f"def f{i}(x):\n    return x + {i}\n\n\n" for i in range(400)) + "def last(x):\n    return "
    answer = completer.complete(source, len(source), "python")
    assert 300 < answer.prompt_tokens <= completer.model.max_positions - completer.settings.max_tokens
    assert answer.completions


def test_drafts_that_leave_no_room_for_code_are_the_reason_given(completer):
    completer.settings = Settings(max_tokens=512)
    completer.model = TinyModel()
    answer = completer.complete("import os\nos.", 13, "python")
    assert answer.completions == []
    assert answer.reason == ("the model reads 512 tokens: no room for code beside drafts of 512; lower maxTokens")
    assert completer.complete("  \n", 2, "python").reason == "there is no code before the cursor"


UNCOMMON = """\
def {name}(frobnicator):
    if frobnicator.is_tired(threshold=0.25, hours=17):
        return None
"""


def test_a_line_of_other_files_is_the_first_draft(network, tokens, registry, repository):
    """Behind `if` in first.py, which is open and whose line is no longer written."""
    write(repository, UNCOMMON)
    teach(repository, registry, tokens)
    tables = ServingTables(registry, tokens.fingerprint, OpenFiles(tokens))
    source = UNCOMMON.format(name="first").partition("frobnicator.is")[0]
    file = repository / "first.py"
    completer = Completer(network, tokens, tables, Settings())
    answer = completer.complete(source, len(source), "python", file, name=file.as_uri(), explicit=True)
    best, *others = answer.completions
    assert best.text == "frobnicator.is_tired(threshold=0.25, hours=17):"
    assert best.is_copy
    assert (best.match.count, best.match.places, best.match.files) == (3, 3, 3)
    assert not any(other.is_copy for other in others)


class Stop(Exception):
    """Nobody waits any more."""


def test_a_model_that_was_stopped_anywhere_completes_as_a_fresh_one_does(tokens, registry):
    """In the document that it was stopped in and in another one."""

    def completer_of() -> Completer:
        return Completer(load(STARTER, "cpu"), tokens, ServingTables(registry, tokens.fingerprint), Settings())

    def completed(completer: Completer, source: str) -> dict[str, float]:
        found = completer.complete(source, len(source), "python", explicit=True).completions
        return {one.text: one.probability for one in found}

    long = "".join(HABIT.format(name=f"habit_{number}") for number in range(12)) + ASKED
    expected = {source: completed(completer_of(), source) for source in (long, ELSEWHERE)}
    stopped = completer_of()
    for steps in (0, 1, 2, 4, 9):

        def check(left: list[None] = [None] * steps) -> None:  # counts down
            if not left:
                raise Stop
            left.pop()

        with pytest.raises(Stop):
            stopped.complete(long, len(long), "python", explicit=True, check=check)
        for source in (ELSEWHERE, long):
            found, wanted = completed(stopped, source), expected[source]
            best = max(wanted, key=wanted.__getitem__)  # of others, rounding may offer one or another
            assert found[best] == pytest.approx(wanted[best], abs=0.02)
        stopped.model.crop(5)  # read again in the next round
