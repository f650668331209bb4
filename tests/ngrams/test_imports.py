"""Names of the modules that a file imports, from the table of its repository, are there before they are opened."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from ngram_builders.build import build
from ngram_builders.registry.registry import Registry
from ngram_builders.sources.language_ids import language_of
from spd_lsp.completion.completer import Completer
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.load import load
from spd_lsp.ngrams.open_documents import ImportedModules, OpenDocument, exported_names
from spd_lsp.ngrams.serving_tables import OpenFiles, ServingTables
from spd_lsp.settings import Settings
from tests.conftest import STARTER


@pytest.fixture(scope="module")
def parts():
    return load(STARTER, "cpu"), ModelTokenizer(STARTER)


@pytest.fixture
def offered(parts, tmp_path):
    """What is offered at the end of a file of an indexed repository, of which only that file is open."""
    network, tokens = parts

    def ask(files: dict[str, str], name: str, source: str, rest: str = "") -> list[str]:
        folder = tmp_path / "repository"
        for path, text in {**files, name: source.rpartition("\n")[0]}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        registry = Registry(tmp_path / "data")
        build([folder], "mine", tokens.encode_batch, token_space=tokens.space, registry=registry)
        open_files = OpenFiles(tokens)
        tables = ServingTables(registry, tokens.fingerprint, open_files)
        completer = Completer(network, tokens, tables, Settings())
        file = folder / name
        answer = completer.complete(source + rest, len(source), language_of(file), file, name=file.as_uri())
        return [completion.text for completion in answer.completions]

    return ask


MODULE = "def zygomorphic(petals):\n    return petals\n"


@pytest.mark.parametrize(
    ("path", "name", "source"),
    [
        ("app/util.py", "app/main.py", "from . import util\n\nprint(util.zygo"),
        ("app/util/__init__.py", "app/main.py", "from .util import *\n\nprint(zygo"),
        ("app/lib/util.py", "app/cli/main.py", "from app.lib.util import Flower\n\nprint(Flower.zygo"),
        ("app/util.py", "app/cli/main.py", "from ..util import Flower\n\nprint(Flower.zygo"),
        ("src/util.ts", "src/main.ts", "import {Flower} from './util.js';\n\nconsole.log(Flower.zygo"),
        ("src/lib/index.js", "src/main.js", "const lib = require('./lib');\n\nconsole.log(lib.zygo"),
        ("src/lib/util.rs", "src/main.rs", "use crate::lib::util::Flower;\n\nfn main() {\n    Flower::zygo"),
        ("include/util.h", "include/main.c", '#include "util.h"\n\nint main(void) {\n    return zygo'),
        ("src/org/a/Util.java", "src/org/b/Main.java", "import org.a.Util;\n\nclass Main {\n  int x = Util.zygo"),
    ],
)
def test_a_name_of_an_imported_module_that_is_not_open_is_offered(offered, path, name, source):
    assert any(text.startswith("morphic") for text in offered({path: MODULE}, name, source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("app/other.py", "from . import util\n\nprint(util.zygo"),  # not imported
        ("app/util.py", "print(util.zygo"),
        ("app/util.py", "from app.missing.thing import util\n\nprint(zygo"),
    ],
)
def test_other_modules_bring_no_names(offered, path, source):
    files = {path: MODULE, ".gitignore": "", "app/deep/x.py": "x = 1\n"}
    found = offered(files, "app/deep/main.py", source)
    assert not any(text.startswith("morphic") for text in found)


def test_an_ignored_module_and_a_line_with_a_secret_bring_no_names(offered):
    secret = "zygomorphic_key = 'AKIA" + "IOSFODNN7EXAMPLX'\n"  # in one piece, builds would mask this line
    files = {".gitignore": "util.py\n", "app/util.py": MODULE, "app/keys.py": "x = 1\n" * 9 + secret}
    found = offered(files, "app/main.py", "from . import keys, util\n\nprint(util.zygo")
    assert not any(text.startswith("morphic") for text in found)


class CountedStates(dict):
    """A table's files, of which there are none; counts how often one is looked for."""

    lookups = 0

    def __contains__(self, path: object) -> bool:
        self.lookups += 1
        return super().__contains__(path)


@pytest.mark.parametrize(
    "line",
    [
        "from " + " ".join(f"{{}}a{n}" for n in range(40)) + " import " + " ".join(f"{{}}b{n}" for n in range(40)),
        "import {}" + "/a" * 190,
        "import " + " ".join(f"{{}}c{n}/a/a/a" for n in range(30)),
    ],
)
def test_a_file_crafted_to_import_thousands_of_modules_is_searched_within_limits(line, tmp_path):
    place = tmp_path.joinpath(*["deep"] * 100, "main.py")
    states = CountedStates()
    table = SimpleNamespace(table=SimpleNamespace(roots=[tmp_path]), states=states)
    text = "".join(line.replace("{}", f"m{number}_") + "\n" for number in range(100))
    document = OpenDocument(str(place), None, "python", text)
    assert not ImportedModules(SimpleNamespace(tables={"mine": table})).paths(document)
    assert 0 < states.lookups < 500_000


MODELS = """from .base import Model, register


class Cart(Model):
    items = []


def _private():
    pass


class Order(Model):
    pass


async def receipt_of(order):
    return order


LIMIT: int = 3
"""
SCRIPT = """import { base } from "./base";

export const cart = 1;
export async function orderOf(id: string) {}
export interface Receipt {}
"""


@pytest.mark.parametrize(
    ("path", "name", "source", "expected"),
    [
        (
            "app/models.py",
            "app/main.py",
            "import os\n\nfrom .models import Cart, ",
            {"Order", "receipt_of", "LIMIT"},
        ),
        ("app/models.py", "app/main.py", "from .models import (\n    Cart,\n    Or", {"der"}),
        ("app/models/__init__.py", "app/main.py", "from app.models import rec", {"eipt_of"}),
        ("app/models.ts", "app/main.ts", "import { cart, ", {"orderOf", "Receipt"}),
    ],
)
def test_in_a_list_of_imported_names_those_of_the_module_are_offered_and_no_others(
    offered, path: str, name: str, source: str, expected: set[str]
):
    module, rest = (SCRIPT, ' } from "./models";\n') if path.endswith(".ts") else (MODELS, "\n")
    texts = offered({path: module}, name, source, rest)
    assert texts and {re.match(r"\w+", text)[0] for text in texts} <= expected, texts


LOGS = "import logging\nimport os\n\nlogger = logging.getLogger(__name__)\n"


def test_where_nothing_is_known_of_a_module_no_other_module_is_offered_as_its_name(offered):
    files = {"app/log.py": f"{LOGS}from other import Thing, logging\n" * 3}
    texts = offered(files, "app/main.py", f"{LOGS}from flask import Flask, ", "\n")
    assert not {re.match(r"\w*", text)[0] for text in texts} & {"logging", "os", "Flask"}, texts


def test_a_module_that_files_of_the_project_import_from_another_one_is_offered(offered):
    files = {"app/log.py": f"{LOGS}from flask import Flask, logging\n"}
    texts = offered(files, "app/main.py", f"{LOGS}from flask import Flask, ", "\n")
    assert "logging" in texts, texts


def test_a_module_that_exports_more_than_it_names_may_export_anything(offered):
    files = {
        "app/models.py": f"from .base import *\n{MODELS}",
        "app/log.py": "from .models import Cart, Base\n" * 3,
    }
    texts = offered(files, "app/main.py", "from .models import Cart, ", "\n")
    assert "Base" in texts, texts


def test_what_a_module_says_that_it_exports_is_what_it_does():
    assert exported_names('__all__ = ["Cart", "Order"]\n\nclass Other:\n    pass\n') == ["Cart", "Order"]
    assert exported_names(MODELS) == ["Cart", "Order", "receipt_of", "LIMIT"]
    assert exported_names("from .base import Model, register\n", is_package=True) == ["Model", "register"]
    assert exported_names(SCRIPT) == ["cart", "orderOf", "Receipt"]
