"""Models that were trained to read other files of a repository read them first, in the published format."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngram_builders.build import build
from ngram_builders.registry.registry import Registry
from spd_lsp.completion.completer import Completer
from spd_lsp.ngrams.incremental_tokenizer import IncrementalTokenizer
from spd_lsp.ngrams.live_index import LiveIndex
from spd_lsp.ngrams.open_documents import DocumentChange, OpenDocument
from spd_lsp.ngrams.related_files import RelatedFiles
from spd_lsp.ngrams.serving_tables import ServingTables
from spd_lsp.settings import Settings
from tests.completion.test_fill_formats import END, QWEN, STARCODER
from tests.completion.vocabularies import save_tokenizer

STARCODER2 = [END, "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<repo_name>", "<file_sep>"]
FAMILIES = {
    "qwen": ({"model_type": "qwen2", "name": "Qwen2.5-Coder-0.5B"}, QWEN),
    "starcoder2": ({"model_type": "starcoder2"}, STARCODER2),
    "mellum": ({"model_type": "llama", "vocab_size": 49152}, [*STARCODER, "<|im_start|>"]),
}
RELATED = RelatedFiles("shop", "app/c.py", (("a.py", "A\n"), ("app/b.py", "B = 1\n")))
# Around `ab ` and `cd`; the blank at the cursor is taken back, as it begins the next word.
GOLDEN = {
    "qwen": "<|repo_name|>shop\n<|file_sep|>a.py\nA\n<|file_sep|>app/b.py\nB = 1\n<|file_sep|>app/c.py\n"
    "<|fim_prefix|>a<|fim_suffix|>cd<|fim_middle|>b",
    "starcoder2": "<repo_name>shop<file_sep>a.py\nA\n<file_sep>app/b.py\nB = 1\n"
    "<file_sep><fim_prefix><fim_suffix>cd<fim_middle>app/c.py\nab",
    "mellum": "<filename>a.py\nA\n<filename>app/b.py\nB = 1\n"
    "<filename>app/c.py\n<fim_suffix>cd<fim_prefix>ab<fim_middle>",
}
AT_THE_END = {
    "qwen": "<|repo_name|>shop\n<|file_sep|>a.py\nA\n<|file_sep|>app/b.py\nB = 1\n<|file_sep|>app/c.py\nab",
    "starcoder2": "<repo_name>shop<file_sep>a.py\nA\n<file_sep>app/b.py\nB = 1\n<file_sep>app/c.py\nab",
    "mellum": "<filename>a.py\nA\n<filename>app/b.py\nB = 1\n<filename>app/c.py\nab",
}


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def tokens(family, tmp_path):
    config, specials = FAMILIES[family]
    return save_tokenizer(tmp_path, specials=specials, config=config)


def shown(tokens, ids):
    names = {i: tokens.tokenizer.id_to_token(i).encode() for i in tokens.specials}
    return b"".join(names.get(i) or tokens.bytes_of([i]) for i in ids).decode()


def test_the_prompt_of_a_family_is_the_one_that_was_published(family, tokens):
    assert shown(tokens, tokens.prompt("ab ", "cd", RELATED, 500, settled=1).ids) == GOLDEN[family]
    assert shown(tokens, tokens.prompt("ab ", "", RELATED, 500).ids) == AT_THE_END[family]


def test_other_files_take_no_more_than_the_room(tokens):
    long = RelatedFiles("shop", "c.py", tuple((f"{name}.py", "x = 1\n" * 100) for name in "abcdef"))
    alone = len(tokens.prompt("ab ", "cd").ids)
    lengths = [len(tokens.prompt("ab ", "cd", long, room).ids) for room in range(0, 3000, 50)]
    assert all(length <= alone + room for length, room in zip(lengths, range(0, 3000, 50), strict=True))
    assert lengths[-1] > alone + 2000


def test_a_mark_in_another_file_is_characters(tokens):
    marks = [tokens.tokenizer.id_to_token(i) for i in tokens.specials]
    written = RelatedFiles("".join(marks), "".join(marks), (("".join(marks), "".join(marks)),))
    plain = RelatedFiles("r", "p", (("o", "t"),))
    counts = [
        sum(i in tokens.specials for i in tokens.prompt("a", "b", one, 9999).ids) for one in (written, plain)
    ]
    assert counts[0] == counts[1]


class Reader:
    """A model that notes what it reads, and says that texts end."""

    max_positions, device, second_row_is_free = 4096, "cpu", False
    forks_are_free = False

    def __init__(self, size):
        self.size, self.read = size, []

    positions_read = 0

    def limit_threads(self, count):
        """It has one."""

    def prefill(self, ids, check=lambda: None):
        self.read.append(ids)
        raise KeyboardInterrupt  # enough was seen

    def close(self):
        """Nothing is open."""


@pytest.fixture
def completer(tokens):
    live = LiveIndex(IncrementalTokenizer(tokens))
    tables = ServingTables(None, tokens.fingerprint, {}, live)
    return Completer(Reader(tokens.vocab_size), tokens, tables, Settings(context_tokens=1024))


def opened(name, text, language="python"):
    return OpenDocument(f"file:///shop/{name}", Path(f"/shop/{name}"), language, text)


def show(completer, *documents):
    completer.update_documents({one.name: DocumentChange(one, False) for one in documents})
    assert not completer.run_idle_work(60)


def read(completer, text, name="app.py"):
    """The prompt for the end of a document's first line."""
    document = opened(name, text)
    with pytest.raises(KeyboardInterrupt):
        completer.complete(text, text.index("\n"), "python", document.path, name=document.name, explicit=True)
    return completer.model.read[-1]


def test_other_open_files_of_the_language_are_read(completer, tokens):
    others = [opened("names.py", "NAMES = 3\n"), opened("a.js", "let a\n", "javascript")]
    secret = opened("keys.py", 'password = "hunter2hunter2"\nKEYS = 4\n')
    show(completer, *others, secret)
    text = shown(tokens, read(completer, "from names import \nx = 1\n"))
    assert "names.py\nNAMES = 3\n" in text
    assert "KEYS = 4" in text
    assert "hunter2" not in text
    assert "let a" not in text
    assert text.index("NAMES") < text.index("x = 1")


def test_what_is_read_ahead_for_another_file_is_what_its_request_reads(completer):
    show(completer, opened("names.py", "NAMES = 3\n"), opened("keys.py", "KEYS = 4\n"))
    text = "from names import \nx = 1\n"
    app = read(completer, text)
    other = opened("other.py", text)
    show(completer, other)
    with pytest.raises(KeyboardInterrupt):
        completer.prefetch(other, text.index("\n"), lambda: None)
    ahead = completer.model.read[-1]
    assert ahead == read(completer, text, "other.py") != app


def test_modules_that_a_file_imports_from_its_repository_are_read_without_being_open(tokens, tmp_path):
    folder = tmp_path / "shop"
    (folder / "app").mkdir(parents=True)
    for name, text in {
        "util.py": "UTIL = 1\n",
        "other.py": "OTHER = 2\n",
        "main.py": "from . import util\n",
    }.items():
        (folder / "app" / name).write_text(text, encoding="utf-8")
    registry = Registry(tmp_path / "data")
    build([folder], "mine", tokens.encode_batch, token_space=tokens.space, registry=registry)
    tables = ServingTables(registry, tokens.fingerprint, {}, LiveIndex(IncrementalTokenizer(tokens)))
    completer = Completer(Reader(tokens.vocab_size), tokens, tables, Settings())
    place = folder / "app" / "main.py"
    source = "from . import util\n\nprint(util.\n"
    for _ in range(2):  # the first one opens the table
        with pytest.raises(KeyboardInterrupt):
            completer.complete(source, len(source) - 1, "python", place, name=place.as_uri(), explicit=True)
    text = shown(tokens, completer.model.read[-1])
    assert "app/util.py\nUTIL = 1\n" in text
    assert "app/main.py\n" in text
    assert "OTHER" not in text
    assert ("shop" in text) == (tokens.repository_format.opening != ())


def test_of_many_open_files_the_same_few_are_read_by_every_request(completer, tokens, monkeypatch):
    encoded = []
    encode = tokens.encode_inside
    monkeypatch.setattr(tokens, "_encode_file", lambda text: encoded.append(text) or encode(text))
    show(completer, *(opened(f"n{number}.py", f"NAME_{number} = 1\n") for number in range(200)))
    prompts = [read(completer, "x = \ny\n") for _ in range(3)]
    assert prompts[0] == prompts[1] == prompts[2]
    assert len(encoded) <= 3 * 32
    assert "NAME_199" in shown(tokens, prompts[0])


def test_the_setting_turns_it_off(completer, tokens):
    show(completer, opened("names.py", "NAMES = 3\n"))
    completer.apply_settings(Settings(repository_prompt=False))
    assert "NAMES" not in shown(tokens, read(completer, "a\nb\n"))
