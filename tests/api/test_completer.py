"""`import spd_lsp`: light, typed, and what it completes is what the command line completes."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import spd_lsp
from spd_lsp.api.completer import _public
from spd_lsp.cli import main
from spd_lsp.completion import ranking
from spd_lsp.settings import Settings
from tests.conftest import STARTER_FILES

ROOT = Path(__file__).parents[2]
CODE = "import os\n\n\ndef names(path):\n    for name in os."
USING = (ROOT / "spd_lsp" / "README.md").read_text(encoding="utf-8")
SECTION = USING.split("\n## From Python\n")[1].split("\n## ")[0]
EXAMPLES = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)


@pytest.fixture(scope="module")
def completer(tmp_path_factory):
    return spd_lsp.load(data_dir=str(tmp_path_factory.mktemp("data")), drafts=4)


def modules_after(program):
    """The modules that a program has imported, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_import_loads_nothing_but_itself():
    loaded = modules_after("import spd_lsp; spd_lsp.__version__")
    assert [name for name in loaded if name.split(".")[0] in ("spd_lsp", "ngram_builders")] == ["spd_lsp"]
    assert not {"numpy", "torch", "transformers", "tree_sitter", "pygls", "click"} & set(loaded)


def test_completions_of_the_starter_need_neither_torch_nor_the_server(tmp_path):
    program = f"import spd_lsp; spd_lsp.load(data_dir={str(tmp_path)!r}).complete({CODE!r}, {len(CODE)})"
    assert not {"torch", "transformers", "pygls", "click"} & set(modules_after(program))


def test_every_name_is_there_and_known_to_type_checkers():
    stub = ast.parse((ROOT / "spd_lsp" / "__init__.pyi").read_text(encoding="utf-8"))
    typed = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed | {"__version__"} == set(spd_lsp.__all__)
    assert all(getattr(spd_lsp, name) for name in spd_lsp.__all__)
    assert set(spd_lsp.__all__) <= set(dir(spd_lsp))
    with pytest.raises(AttributeError, match="module 'spd_lsp' has no attribute 'complete'"):
        spd_lsp.complete  # noqa: B018 - it is looked up


@pytest.mark.parametrize("while_typing", [False, True])
def test_what_is_offered_is_what_the_command_line_offers(completer, tmp_path, while_typing):
    path = tmp_path / "app.py"
    path.write_text(CODE)
    found = completer.complete(CODE, len(CODE), path=path, while_typing=while_typing)
    asked = ["--data-dir", completer.settings.data_dir, "complete", f"{path}:5:20", "-k", "4", "--json"]
    done = CliRunner().invoke(main, [*asked, *(["--while-typing"] if while_typing else [])])
    expected = json.loads(done.stdout)
    assert [one.text for one in found] == [one["text"] for one in expected["completions"]]
    for one, other in zip(found, expected["completions"], strict=True):
        assert one.probability == pytest.approx(other["probability"], abs=0.01)
    assert found.ngrams == tuple(expected["ngrams"]) != ()
    beside_a_word = completer.complete("x = some(a)", 4, path=path, while_typing=while_typing)
    assert (beside_a_word.reason == "a word goes on right of the cursor") is while_typing


def test_an_answer_does_not_depend_on_what_was_asked_before(completer):
    other = CODE.replace("os.", "os.walk(path):\n        os.")
    first = completer.complete(CODE, len(CODE), path="app.py")
    for path in ("app.py", "other.py", None):
        completer.complete(other, len(other), path=path)
        assert completer.complete(CODE, len(CODE), path="app.py")[0].text == first[0].text


def test_a_completion_says_where_it_comes_from(completer):
    text = "def compute_total(items):\n    return sum(items)\n\n\nprint(comp"
    found = completer.complete(text, len(text), language="python")
    assert len(found) == len(list(found)) == len(found.items) <= 4
    assert "ute_total" in {one.text for one in found}
    for one in found:
        assert (one.probability is None) == (one.source in ("beginning", "name"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found[0].text = ""


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ({}, "draft"),
        ({"is_copy": True}, "copy"),
        ({"is_rated": False, "ends": False}, "beginning"),
        ({"is_rated": False, "ends": False, "is_name": True}, "name"),
    ],
)
def test_each_kind_of_completion_has_a_source(kind, source):
    public = _public(ranking.Completion("x", 0.5, **kind))
    assert (public.source, public.probability is None) == (source, "is_rated" in kind)


def test_with_lets_go_of_the_model(tmp_path):
    with spd_lsp.load(data_dir=str(tmp_path)) as completer:
        model = weakref.ref(completer._pipeline.model)
        assert completer.complete(CODE, len(CODE))
    assert model() is None
    with pytest.raises(ValueError, match=r"was closed; open another with spd_lsp.load"):
        completer.complete(CODE, len(CODE))


def test_a_block_is_written_unless_it_is_not_wanted(completer):
    opened = "def names(path):"
    whole, line = (completer.complete(opened, len(opened), path="a.py", block=block) for block in (True, False))
    assert whole[0].text.startswith(line[0].text)
    assert whole.items[1:] == line.items[1:] != () and whole.passes > line.passes


@pytest.mark.parametrize("cursor", [-1, len(CODE) + 1])
def test_a_cursor_outside_the_text_is_refused(completer, cursor):
    with pytest.raises(ValueError, match=rf"expected a cursor from 0 to {len(CODE)}.*found {cursor}"):
        completer.complete(CODE, cursor)


def test_settings_are_those_of_editors_and_wrong_ones_are_named(completer):
    assert completer.settings.drafts == 4
    with pytest.raises(TypeError, match="'draft' is not a setting; did you mean 'drafts'"):
        spd_lsp.load(draft=3)
    with pytest.raises(TypeError, match=r"'colour' is not a setting; there are alpha, automatic, "):
        spd_lsp.load(colour="red")
    wrong = {"drafts": 30, "alpha": 5, "temperature": 0, "candidates": 0, "device": "gpu", "max_tokens": "8"}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name} must be .*, not {value!r}"):
            spd_lsp.load(**{name: value})
    with pytest.raises(spd_lsp.UserError):
        spd_lsp.load("./no-such-model")
    assert {field.name for field in dataclasses.fields(Settings)} >= {"drafts", "device", "max_tokens"}


@pytest.fixture
def downloaded(monkeypatch, starter_network):
    """The starter stands for every model that an example names."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(STARTER_FILES / "tokenizer.json"), eos_token="<|endoftext|>"
    )
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda name, **options: tokenizer)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda name, **options: starter_network)


@pytest.mark.slow
def test_the_documented_examples_run_one_after_the_other(downloaded, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SPD_LSP_DATA_DIR", str(tmp_path))
    namespace = {}
    assert len(EXAMPLES) >= 3
    for example in EXAMPLES:
        exec(compile(example, "spd_lsp/README.md", "exec"), namespace)
        assert capsys.readouterr().out.strip(), example
