"""The starter's tokens and network, and a completer without tables."""

import pytest

from spd_lsp.completion.completer import Completer
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.models.base import Engine
from spd_lsp.models.load import load
from spd_lsp.ngrams.serving_tables import ServingTables
from spd_lsp.settings import Settings
from tests.conftest import STARTER


@pytest.fixture(scope="session")
def tokens() -> ModelTokenizer:
    return ModelTokenizer(STARTER)


@pytest.fixture(scope="session")
def network() -> Engine:
    return load(STARTER, "cpu")


@pytest.fixture
def completer(network: Engine, tokens: ModelTokenizer) -> Completer:
    return Completer(network, tokens, ServingTables(None, tokens.fingerprint), Settings(min_probability=0.0))
