"""Where nothing belongs, or nothing is known, nothing is offered unless a person asks for it."""

from __future__ import annotations

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.context import build_context
from spd_lsp.decoding.superposed import DecodingResult, Draft
from spd_lsp.models.hub import known_languages
from spd_lsp.ngrams.serving_tables import ServingTables
from spd_lsp.settings import Settings
from tests.conftest import STARTER

WORD = "a word goes on right of the cursor"
NAME = "a new name is being written"
NUMBER = "a number is being written"
COMMENT = "a comment is being written"
TEXT = "there is text right of the cursor"
STATEMENTS = "import os\n\n\ndef names(path):\n    found = os.listdir(path)\n"


def silence(marked, language="python", *, explicit=False):
    source, cursor = marked.replace("¦", ""), marked.index("¦")
    return build_context(source, cursor, language, 500, len, explicit=explicit).silence


@pytest.mark.parametrize(
    ("marked", "language", "reason"),
    [
        ("x = ¦some_function(a)", "python", WORD),
        ("x = ¦(first, second) + other", "python", TEXT),
        ("def ¦", "python", NAME),
        ("class ¦", None, ""),
        ("export interface Prop¦ {", "typescript", NAME),
        ("func (s *Server) Lis¦", "go", NAME),
        ("#define MAX_¦", "c", NAME),
        ("using namespace st¦", "cpp", ""),
        ("  def self.cre¦", "ruby", NAME),
        ("local function M.op¦", "lua", NAME),
        ("x = 12¦", "python", NUMBER),
        ("x = row2¦", "python", ""),
        ("for i in 0..¦", "rust", ""),
        ("pair.0¦", "rust", ""),
        ("x = 1  # so that¦", "python", COMMENT),
        ("x = '#'¦", "python", ""),
        ("¦# why it is so", "python", TEXT),
        ("/** Reads the ¦\n */\nfunction f() {}\n", "typescript", COMMENT),
        ("/* all */¦", "c", ""),
        ("-- a ¦\nf()\n", "lua", COMMENT),
        ("def __in¦", "python", ""),  # such a name is not new
        ("def f(¦):", "python", ""),
        ('call("¦")', "python", ""),
        ("x = ¦          ", "python", ""),
    ],
)
def test_nothing_is_offered_where_nobody_can_know_or_a_text_goes_on(marked, language, reason):
    assert silence(marked, language) == reason
    assert silence(marked, language, explicit=True) == ""


@pytest.fixture
def completer(network, tokens):
    tables = ServingTables(None, tokens.fingerprint)
    return Completer(network, tokens, tables, Settings(min_probability=0.0), languages=known_languages(STARTER))


def draft_always(completer, monkeypatch, drafts):
    monkeypatch.setattr(completer, "_decoders", {True: lambda *given: DecodingResult(drafts, 1, 2)})


def answers(completer, source, language="python"):
    """What is offered to a person who types, and to one who asks."""
    return [completer.complete(source, len(source), language, explicit=explicit) for explicit in (False, True)]


@pytest.mark.parametrize("line", ["    return found", "    found.append(row)", "    found.sort()"])
def test_at_the_end_of_a_finished_line_nothing_is_offered_but_to_one_who_asks(completer, line):
    typed, asked = answers(completer, STATEMENTS + line)
    assert typed.completions == []
    assert typed.reason == "nothing is likely enough here"
    assert asked.completions or line.endswith("(row)")  # behind which stand only `.` and `[`, which are no code


def test_if_the_best_draft_is_empty_the_others_are_for_those_who_ask(completer, monkeypatch):
    end, word = (completer.tokens.encode(text) for text in (" \n", " x\n"))  # the blank is taken back
    for best, shown in (((-0.1, -2.0), []), ((-2.0, -0.1), ["x"])):
        drafts = sorted([Draft(tuple(end), best[0]), Draft(tuple(word), best[1])], key=lambda d: -d.score)
        draft_always(completer, monkeypatch, drafts)
        typed, asked = answers(completer, STATEMENTS + "    return ")
        assert [one.text for one in typed.completions] == shown
        assert [one.text for one in asked.completions] == ["x"]


@pytest.mark.parametrize(
    ("line", "needs_name"),
    [
        ("    with open(path) as file:\n        return file.", True),
        ("    return names('it.')[0].", True),
        ("    return 'Done.", False),
        ('    """The names of\n    a folder.', False),
        ("    return file.read", False),
        ("    ...", False),
    ],
)
def test_behind_the_dot_of_an_expression_the_best_draft_cannot_be_empty(completer, monkeypatch, line, needs_name):
    """`return file.` was met with silence."""
    end, word = (completer.tokens.encode(text) for text in (".\n", ".read\n"))  # the dot is taken back
    drafts = [Draft(tuple(end), -0.1), Draft(tuple(word), -2.0)]
    draft_always(completer, monkeypatch, drafts)
    assert bool(answers(completer, STATEMENTS + line)[0].completions) is needs_name


def test_what_is_below_the_floor_is_for_those_who_ask(completer):
    source = STATEMENTS + "    found = []\n    for name in os.listdir(path):\n        found.app"
    every = answers(completer, source)[1].completions
    highest = max(one.probability for one in every)
    for floor in (every[0].probability - 0.01, every[0].probability + 0.01, highest + 0.01):
        completer.apply_settings(Settings(min_probability=floor))
        typed, asked = answers(completer, source)
        is_first_left = every[0].probability >= floor  # else nothing is shortened
        left = [
            one.text
            for one in every
            if one.probability >= floor and (is_first_left or one.is_rated or one.is_name)
        ]
        assert [one.text for one in typed.completions] == left
        assert [one.text for one in asked.completions] == [one.text for one in every]
    assert typed.reason == "nothing is likely enough here"


@pytest.mark.parametrize("explicit", [False, True])
def test_inside_a_word_nothing_is_offered_even_to_one_who_asks(completer, explicit):
    source = STATEMENTS.replace("(path)", "(größe)")
    answer = completer.complete(source, source.index("größe") + 3, "python", explicit=explicit)
    assert (answer.completions, answer.reason) == ([], "the cursor is inside a word")


@pytest.mark.parametrize(
    "typed", ['    password = "', '    connect(path, db_pass="hun', "    return {'secret': '"]
)
def test_in_the_value_of_what_is_called_secret_nothing_is_offered_even_to_one_who_asks(completer, typed):
    for answer in answers(completer, STATEMENTS + typed):
        assert (answer.completions, answer.reason, answer.passes) == ([], "a secret is being written", 0)
    assert answers(completer, STATEMENTS + "    password = os.environ[")[1].reason == ""


@pytest.mark.parametrize("language", ["sql", "css", "ruby", "log", None])
def test_in_a_language_that_neither_the_model_nor_a_table_knows_nothing_is_offered(completer, language):
    typed, asked = answers(completer, STATEMENTS + "    for name in os.", language)
    assert typed.completions == []
    assert typed.reason == f"neither the model nor any n-gram table knows {language or 'this language'}"
    assert typed.passes == 0
    assert asked.completions
