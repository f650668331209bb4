"""What several tests need: a tiny model without weights, that counts its passes, and models that people use."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import spd_lsp
from spd_lsp.models.hub import locate
from tests.real_models import QWEN, SMOLLM2, MissingModelError, RealModel, fetch

# Tests complete with a small model that does not change when the bundled one does; child processes do, too.
STARTER_FILES = Path(__file__).parent / "starter"
STARTER_FILE = STARTER_FILES / "spd-lsp-starter.gguf"
os.environ["SPD_LSP_STARTER"] = str(STARTER_FILES)
for home in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
    os.environ[home] = tempfile.mkdtemp(prefix="spd-lsp-")
    atexit.register(shutil.rmtree, os.environ[home], ignore_errors=True)
STARTER = locate("starter")
PACKAGE = Path(spd_lsp.__file__).parent
VOCABULARY = 40

# No test depends on wall time: on a busy machine an example may take any time.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


class TinyModel:
    """A random recurrent network: the logits depend on every input in its order, mixed ones included."""

    def __init__(self, seed: int = 0, vocabulary: int = VOCABULARY, width: int = 12) -> None:
        random = np.random.default_rng(seed)
        self.embedding = random.normal(size=(vocabulary, width))
        self.recurrent = random.normal(size=(width, width)) / width**0.5
        self.state = np.zeros(width)
        self.prompt: list[int] = []
        self.passes = 0
        self.rows = self.steps = 0
        self.max_positions = 512
        self.second_row_is_free = False
        self.pass_seconds = 0.0

    def prefill(self, ids: Sequence[int], check: Callable[[], None] = lambda: None) -> np.ndarray:
        check()
        self.passes += 1
        self.prompt, self.drafts_read = list(ids), {()}
        return self.logits_after(ids)

    def logits_after(self, ids: Sequence[int]) -> np.ndarray:
        self.state = np.zeros_like(self.state)
        for i in ids:
            logits = self.read(self.embedding[i])
        return logits

    def step(self, ids: Sequence[int], weights: np.ndarray) -> np.ndarray:
        self.passes += 1
        self.steps += 1
        return self.read(np.asarray(weights) @ self.embedding[list(ids)])

    def read_drafts(self, drafts: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        assert all(draft[:-1] in self.drafts_read for draft in drafts)
        self.drafts_read.update(drafts)
        self.passes += 1
        self.rows += len(drafts)
        return [self.logits_after([*self.prompt, *draft]) for draft in drafts]

    def read_draft(self, draft: tuple[int, ...]) -> np.ndarray:
        return self.read_drafts([draft])[0]

    def read(self, embedded: np.ndarray) -> np.ndarray:
        self.state = np.tanh(self.recurrent @ self.state + embedded)
        return self.embedding @ self.state


def first_of(*ids: int) -> Callable[[tuple[int, ...]], np.ndarray | None]:
    """What a draft may go on with that begins with one of these ids, or with any if there are none."""
    return lambda written: None if written or not ids else np.array(ids)


def spelled(written: tuple[int, ...]) -> np.ndarray | None:
    """What a draft may go on with that begins with 11, or with 12 and then 13 or 14."""
    return {(): np.array([11, 12]), (12,): np.array([13, 14])}.get(written)


@pytest.fixture(scope="session")
def starter_network() -> Any:
    """The starter in transformers."""
    from spd_lsp.training.gguf_model import read_model

    return read_model(STARTER_FILE).eval()


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, 98 MB, for tests marked `slow`; CI has to have it."""
    return _real_model(SMOLLM2, is_required=bool(os.environ.get("CI")))


@pytest.fixture(scope="session")
def qwen() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct, 491 MB, for tests marked `slow`, where somebody put its file."""
    return _real_model(QWEN, is_required=False)


@pytest.fixture(scope="session", params=["smollm2", "qwen"])
def real_model(request: pytest.FixtureRequest) -> Path:
    """Each of them in turn, for tests marked `slow`."""
    path: Path = request.getfixturevalue(request.param)
    return path


def _real_model(model: RealModel, *, is_required: bool) -> Path:
    """The path of a model's file; without it the test is skipped, or fails if it is required."""
    pytest.importorskip("xllamacpp")
    try:
        return fetch(model)
    except MissingModelError as error:
        (pytest.fail if is_required else pytest.skip)(f"needs {model.file}: {error}")
