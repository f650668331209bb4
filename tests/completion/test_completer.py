"""The completer: one document and cursor to completions, with the starter model and real tables."""

from __future__ import annotations

import re
from unittest.mock import patch

import pytest

from ngram_builders.build import build
from ngram_builders.registry.registry import Registry
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.checkpoint.hub import built_in_domains
from spd_lsp.models.load import load
from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
from spd_lsp.ngrams.interpolation import Domains
from spd_lsp.ngrams.live_index import LiveIndex
from spd_lsp.settings import Settings
from tests.conftest import STARTER, TinyModel

HABIT = """\
def {name}(frobnicator):
    zygote = frobnicator.quench_all(depth=4)
    return zygote
"""
ASKED = "def fifth(frobnicator):\n    zygote = frob"
ELSEWHERE = "import os\n\n\ndef names(path):\n    return os."


@pytest.fixture(scope="module")
def tokens():
    return ModelTokenizer(STARTER)


@pytest.fixture(scope="module")
def network():
    return load(STARTER, "cpu")


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "data")


@pytest.fixture
def completer(network, tokens, registry):
    domains = Domains(registry, tokens.fingerprint, built_in_domains(STARTER))
    return Completer(network, tokens, domains, Settings())


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
    build(
        [repository],
        "mine",
        tokens.encode_batch,
        end_of_text=tokens.end_of_text,
        fingerprint=tokens.fingerprint,
        vocab_size=tokens.vocab_size,
        registry=registry,
    )


def texts(answer):
    return [completion.text for completion in answer.completions]


def test_a_repository_s_habits_are_completed_once_they_were_counted(completer, registry, tokens, repository):
    file = repository / "fifth.py"
    before = completer.complete(ASKED, len(ASKED), "python", file)
    assert "nicator.quench_all(depth=4)" not in texts(before)
    teach(repository, registry, tokens)
    completer.run_idle_work(0.0)
    after = completer.complete(ASKED, len(ASKED), "python", file)
    assert "nicator.quench_all(depth=4)" in texts(after)
    assert after.ngrams == ("mine", "python")


def test_a_table_rebuilt_while_it_is_open_is_read_anew(completer, registry, tokens, repository):
    file = repository / "fifth.py"
    teach(repository, registry, tokens)
    completer.complete(ASKED, len(ASKED), "python", file)
    write(repository, HABIT.replace("quench_all(depth=4)", "kindle(9)"))
    teach(repository, registry, tokens)
    completer.run_idle_work(0.0)
    after = texts(completer.complete(ASKED, len(ASKED), "python", file))
    assert "nicator.kindle(9)" in after
    assert "nicator.quench_all(depth=4)" not in after


def test_a_removed_table_has_no_say(completer, registry, tokens, repository):
    teach(repository, registry, tokens)
    registry.remove("mine")
    assert completer.complete(ASKED, len(ASKED), "python", repository / "a.py").ngrams == ("python",)


def test_a_truncated_table_is_named_and_the_rest_still_completes(network, tokens, registry, repository):
    teach(repository, registry, tokens)
    path = registry.find("mine").path
    path.write_bytes(path.read_bytes()[:-100])
    domains = Domains(registry, tokens.fingerprint, built_in_domains(STARTER))
    answer = Completer(network, tokens, domains, Settings()).complete(
        ELSEWHERE, len(ELSEWHERE), "python", repository / "a.py"
    )
    assert answer.completions
    assert answer.ngrams == ("python",)
    assert len(answer.problems) == 1
    assert "run: spd-lsp ngrams rebuild" in answer.problems[0]


@pytest.mark.parametrize("k", [1, 3, 8])
def test_there_are_at_most_k_completions_for_one_pass_a_token(network, tokens, k):
    settings = Settings(drafts=k, max_tokens=8, decoder="superposed")
    completer = Completer(network, tokens, Domains(None, tokens.fingerprint, {}), settings)
    text = "try:\n    import numpy\nexcept "
    answer = completer.complete(text, len(text), "python")
    assert 1 <= len(answer.completions) <= k
    assert answer.passes == answer.tokens <= 8


@pytest.mark.parametrize(
    ("is_free", "drafts", "streams", "used"),
    [(False, 3, 0, 1), (True, 3, 0, 2), (True, 1, 0, 1), (True, 3, 1, 1), (False, 3, 3, 3)],
)
def test_drafts_share_two_rows_where_the_second_is_free(tokens, is_free, drafts, streams, used):
    model, rows = load(STARTER, "cpu"), []
    model.second_row_is_free, forward_batch = is_free, model.forward_batch
    model.forward_batch = lambda inputs: rows.append(len(inputs[0].mixtures)) or forward_batch(inputs)
    settings = Settings(drafts=drafts, streams=streams, max_tokens=6)
    completer = Completer(model, tokens, Domains(None, tokens.fingerprint, {}), settings)
    assert completer.settings.streams == used
    completer.complete(ELSEWHERE, len(ELSEWHERE), "python", explicit=True)
    assert max(rows) == used


def test_drafts_share_one_row_again_once_a_gpu_ran_out_of_memory(tokens):
    model = load(STARTER, "cpu")
    model.second_row_is_free = True
    completer = Completer(model, tokens, Domains(None, tokens.fingerprint, {}), Settings(max_tokens=6))
    assert completer.settings.streams == 2
    model.second_row_is_free = False  # as `OomFallback` notes
    completer.complete(ELSEWHERE, len(ELSEWHERE), "python", explicit=True)
    assert completer.settings.streams == 1


@pytest.mark.parametrize("forks_are_free", [False, True])
def test_drafts_are_read_best_first_where_a_model_can_go_on_from_any(tokens, forks_are_free):
    model = load(STARTER, "cpu")
    model.forks_are_free, read, read_draft = forks_are_free, [], model.read_draft
    model.read_draft = lambda draft: read.append(draft) or read_draft(draft)
    completer = Completer(model, tokens, Domains(None, tokens.fingerprint, {}), Settings(max_tokens=6))
    answer = completer.complete(ELSEWHERE, len(ELSEWHERE), "python", explicit=True)
    assert answer.completions
    assert len(read) == (answer.passes - 1 if forks_are_free else 0)


def test_completions_go_on_from_the_cursor_in_the_middle_of_a_word(completer):
    source = "import collections\n\nqueue = collections.deq\n"
    answer = completer.complete(source, source.index("deq") + 3, "python")
    assert any(text.startswith("ue") for text in texts(answer))


@pytest.mark.parametrize(("source", "reason"), [("", "no code before"), ("  \n\n", "no code before")])
def test_an_empty_file_says_why_nothing_is_offered(completer, source, reason):
    answer = completer.complete(source, len(source), "python")
    assert answer.completions == []
    assert reason in answer.reason


def test_text_right_of_the_cursor_says_why_nothing_is_offered_unless_asked_for(completer):
    source = "value = compute(first, second) + other\n"
    cursor = source.index("first")
    assert "a word goes on right of the cursor" in completer.complete(source, cursor, "python").reason
    assert completer.complete(source, cursor, "python", explicit=True).passes > 0


def test_a_name_of_the_file_whose_letters_are_typed_is_among_three(completer):
    source = "zygomorphic_petals = 4\nzygote_count = 2\n\n\ndef grow():\n    total = zygo"
    answer = completer.complete(source, len(source), "python")
    words = {"zygo" + re.split(r"\W", text)[0] for text in texts(answer)}
    assert {"zygomorphic_petals", "zygote_count"} <= words


def test_cancelling_ends_the_work_within_a_pass(completer):
    class Stopped(Exception):
        pass

    calls = []

    def check():
        calls.append(1)
        if len(calls) == 4:
            raise Stopped

    with pytest.raises(Stopped):
        completer.complete(ELSEWHERE, len(ELSEWHERE), "python", check=check)
    assert len(calls) == 4


def test_a_file_longer_than_the_model_can_read_is_trimmed(completer):
    source = "".join(f"def f{i}(x):\n    return x + {i}\n\n\n" for i in range(400)) + "def last(x):\n    return "
    answer = completer.complete(source, len(source), "python")
    assert 300 < answer.prompt_tokens <= completer.model.max_positions - completer.settings.max_tokens
    assert answer.completions


def test_weights_tuned_for_a_model_serve_where_a_table_has_none_of_its_own(
    network, tokens, registry, repository, monkeypatch
):
    teach(repository, registry, tokens)
    tuned, own = ((0.1,), (0.1, 0.2)), ((0.3,),)
    domains = Domains(registry, tokens.fingerprint, {}, model="mine", order_weights=tuned)
    found = domains.mixture_for(repository / "first.py", "python")
    assert found.order_weights[0, 1, 0] == 0.1
    monkeypatch.setattr(Domains, "fitted", lambda self, domain: own)
    domains = Domains(registry, tokens.fingerprint, {}, model="mine", order_weights=tuned)
    assert domains.mixture_for(repository / "first.py", "python").order_weights[0, 1, 0] == 0.3


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_change_no_completion(completer, end):
    source = f"{HABIT.format(name='first')}\n\ndef second(frobnicator):\n    zyg\n    return zygote\n"
    cursor = source.index("zyg\n") + 3
    other = source.replace("\n", end), len(source[:cursor].replace("\n", end))
    assert texts(completer.complete(*other, "python", explicit=True)) == texts(
        completer.complete(source, cursor, "python", explicit=True)
    )


def test_a_table_that_counted_carriage_returns_brings_none_into_a_completion(
    completer, registry, tokens, repository
):
    """As tables of files with such line ends were before."""
    with patch("ngram_builders.sources.filters.normalize_line_ends", lambda text: text):
        write(repository, HABIT.replace("\n", "\r\r\n"))
        teach(repository, registry, tokens)
    for source in ("def f(frobnicator):", "def f(frobnicator):\n    zygote =", ASKED):
        answer = completer.complete(source, len(source), "python", repository / "f.py", explicit=True)
        assert "mine" in answer.ngrams and answer.completions
        assert not any("\r" in text for text in texts(answer))


def test_drafts_that_leave_no_room_for_code_are_the_reason_given(completer):
    completer.settings = Settings(max_tokens=512)
    completer.model = TinyModel()
    answer = completer.complete("import os\nos.", 13, "python")
    assert answer.completions == []
    assert answer.reason == (
        "the model reads 512 tokens and has no room for code beside drafts of 512; ask for less"
    )
    assert completer.complete("  \n", 2, "python").reason == "there is no code before the cursor"


UNCOMMON = """\
def {name}(frobnicator):
    if frobnicator.is_tired(threshold=0.25, hours=17):
        return None
"""


def complete_in_first(network, tokens, registry, repository):
    """Complete behind `if` in first.py, which is open and whose line is no longer written."""
    live = LiveIndex(IncrementalTokenizer(tokens), end_of_text=tokens.end_of_text, vocab_size=tokens.vocab_size)
    domains = Domains(registry, tokens.fingerprint, built_in_domains(STARTER), live)
    source = UNCOMMON.format(name="first").partition("frobnicator.is")[0]
    file = repository / "first.py"
    completer = Completer(network, tokens, domains, Settings())
    return completer.complete(source, len(source), "python", file, name=file.as_uri(), explicit=True)


def test_a_line_of_other_files_is_the_first_draft(network, tokens, registry, repository):
    write(repository, UNCOMMON)
    teach(repository, registry, tokens)
    best, *others = complete_in_first(network, tokens, registry, repository).completions
    assert best.text == "frobnicator.is_tired(threshold=0.25, hours=17):"
    assert best.is_copy
    assert (best.match.count, best.match.places, best.match.files) == (3, 3, 3)
    assert not any(other.is_copy for other in others)


def test_what_stood_in_the_open_file_itself_is_not_copied(network, tokens, registry, repository):
    (repository / "first.py").write_text(UNCOMMON.format(name="first"), encoding="utf-8")
    teach(repository, registry, tokens)
    completions = complete_in_first(network, tokens, registry, repository).completions
    assert not any("threshold" in one.text for one in completions)
