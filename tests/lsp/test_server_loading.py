"""How the server loads its model and its settings: the editor never waits, and failures are shown once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ngram_builders.errors import UserError
from spd_lsp.settings import Settings
from tests.lsp.lsp_client import Editor, FakeCompleter, at, editing, result, session, texts, until

COMPLETION = "textDocument/completion"


def gated(fake: FakeCompleter) -> tuple[threading.Event, Callable[[Settings, Any], FakeCompleter]]:
    """An event, and a loader that waits for it."""
    gate = threading.Event()

    def load(settings: Settings, report: Any) -> FakeCompleter:
        assert gate.wait(20)
        return fake

    return gate, load


async def test_initialize_is_answered_before_the_model_is_there():
    gate, load = gated(FakeCompleter())
    async with session(load) as editor:
        await editor.start()
        editor.open("x = \n")
        answer = await editor.request(COMPLETION, at(0, 4, 2))
        assert answer == {"isIncomplete": True, "items": []}
        assert (await editor.status())["kind"] == "loading"
        gate.set()
        await editor.ready()
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["one", "two"]
        status = await editor.status()
        assert (status["kind"], status["message"], status["busy"]) == ("normal", "the model is ready", False)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UserError("expected a model, found none; name one"), "expected a model, found none; name one"),
        (ZeroDivisionError("private"), "loading the model failed (ZeroDivisionError); see the server's log"),
    ],
)
async def test_a_model_that_cannot_be_loaded_is_reported_once_and_completions_are_empty(
    error: Exception, told: str
):
    def load(settings: Settings, report: Any) -> FakeCompleter:
        raise error

    async with editing(load) as editor:
        for _ in range(2):
            assert texts(await editor.request(COMPLETION, at(0, 4))) == []
        (message,) = editor.received("window/showMessage")
        assert message == {"type": 1, "message": f"spd-lsp: {told}"}
        assert (await editor.status())["kind"] == "error"


async def test_loading_shows_its_progress():
    shown = threading.Event()

    def load(settings: Settings, report: Any) -> FakeCompleter:
        assert shown.wait(20)
        report("loading weights")
        return FakeCompleter()

    async with session(load) as editor:
        await editor.start({"window": {"workDoneProgress": True}})
        await until(lambda: len(editor.received("$/progress")) == 2)
        shown.set()
        await editor.ready()
        values = [params["value"] for params in editor.received("$/progress")]
        assert [value["kind"] for value in values] == ["begin", "report", "report", "end"]
        assert values[2]["message"] == "loading weights"
        tokens = {params["token"] for params in editor.received("$/progress")}
        assert tokens == {params["token"] for params in editor.received("window/workDoneProgress/create")}


class Loads:
    """A loader that remembers the settings it was called with."""

    def __init__(self) -> None:
        self.settings: list[Settings] = []

    def __call__(self, settings: Settings, report: Any) -> FakeCompleter:
        self.settings.append(settings)
        return FakeCompleter()


async def says(editor: Editor, message: str) -> None:
    """Wait until the status is that: what changes a configuration is not answered."""
    while (await editor.status())["message"] != message:
        await asyncio.sleep(0.005)


PULLS = {"workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}}


async def test_invalid_options_are_reported_once_and_completions_go_on_with_the_defaults():
    loads = Loads()
    async with session(loads) as editor:
        await editor.start_and_load(initializationOptions={"device": "meta", "drafts": "many", "colour": 1})
        editor.notify("workspace/didChangeConfiguration", {"settings": None})
        editor.notify("workspace/didChangeConfiguration", {"settings": None})
        editor.open("x = \n")
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["one", "two"]
        device, drafts, colour = [m["message"] for m in editor.received("window/showMessage")]
        assert "not 'meta'; ignored" in device
        assert "'drafts'" in drafts and "'colour'" in colour
        assert loads.settings == [Settings()]


async def test_a_changed_configuration_is_pulled_and_switches_completions_off_and_on():
    loads = Loads()
    async with session(loads) as editor:
        await editor.start_and_load(PULLS)
        (registered,) = editor.received("client/registerCapability")
        assert registered["registrations"][0]["registerOptions"] == {"section": "spd-lsp"}
        editor.open("x = \n")
        editor.replies["workspace/configuration"] = [{"enabled": False}]
        editor.notify("workspace/didChangeConfiguration", {"settings": None})
        await says(editor, "completions are off")
        assert texts(await editor.request(COMPLETION, at(0, 4))) == []
        editor.replies["workspace/configuration"] = [{}]
        editor.notify("workspace/didChangeConfiguration", {"settings": None})
        await says(editor, "the model is ready")
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["one", "two"]
        assert len(loads.settings) == 1


HOSTILE = {"model": "evil/model", "device": "meta", "dataDir": "/tmp", "contextTokens": 32768}


@pytest.mark.parametrize("pulled", [True, False])
async def test_what_a_folder_may_not_set_is_ignored_and_reported_once(pulled: bool):
    loads = Loads()
    async with session(loads) as editor:
        editor.replies["workspace/configuration"] = [{**HOSTILE, "drafts": 5}]
        await editor.start_and_load(PULLS if pulled else None)
        for _ in range(2):
            section = {"spd-lsp": {**HOSTILE, "drafts": 5}}
            editor.notify("workspace/didChangeConfiguration", {"settings": section})
        await editor.status()
        if pulled:
            await until(lambda: len(editor.received("workspace/configuration")) == 3)
        editor.open("x = \n")
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["one", "two"]
        (shown,) = editor.received("window/showMessage")
        assert all(f"'{key}'" in shown["message"] for key in HOSTILE)
        assert "use the editor's initializationOptions" in shown["message"]
        assert loads.settings == [Settings()]
        assert editor.server.settings == Settings(drafts=5)


async def test_the_editor_changes_its_initial_options():
    loads = Loads()
    async with session(loads) as editor:
        await editor.start_and_load(initializationOptions={"drafts": 4})
        editor.notify("spd-lsp/options", {"drafts": 4, "model": "owner/mine", "disabledLanguages": ["go"]})
        await until(lambda: len(loads.settings) == 2)
        assert loads.settings[1] == Settings(drafts=4, model="owner/mine", disabled_languages=("go",))
        editor.notify("spd-lsp/options", None)
        await until(lambda: len(loads.settings) == 3)
        assert loads.settings[2] == Settings()
        assert not editor.received("window/showMessage")


async def test_no_model_is_loaded_while_completions_are_off():
    loads = Loads()
    async with session(loads) as editor:
        await editor.start_and_load(initializationOptions={"enabled": False})
        editor.open("x = \n")
        assert texts(await editor.request(COMPLETION, at(0, 4))) == []
        status = await editor.status()
        assert (status["kind"], status["message"], status["reason"]) == ("normal", *["completions are off"] * 2)
        assert loads.settings == []
        editor.notify("workspace/didChangeConfiguration", {"settings": {"spd-lsp": {"enabled": True}}})
        await until(lambda: loads.settings)
        await editor.ready()
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["one", "two"]


OTHER_SETTINGS = {"drafts": 5, "minProbability": 0.2, "maxTokens": 8, "ngramWeight": 0.5}


async def test_settings_that_need_no_reload_apply_at_once():
    fake, loaded = FakeCompleter(held=True), []

    def load(settings: Settings, report: Any) -> FakeCompleter:
        loaded.append(settings)
        return fake

    async with editing(load) as editor:
        _, old = editor.send_request(COMPLETION, at(0, 4, 2))
        await until(lambda: fake.steps_taken)
        editor.notify("spd-lsp/options", OTHER_SETTINGS)
        _, new = editor.send_request(COMPLETION, at(0, 4, 2))
        assert await result(old) is None
        fake.turns.release(99)
        assert texts(await result(new)) == ["one", "two"], "without waiting for a model"
        chosen = Settings(drafts=5, ngram_weight=0.5, min_probability=0.2, max_tokens=8)
        assert (fake.applied, loaded) == ([chosen], [Settings()])


async def test_after_a_failure_any_change_tries_again():
    tries: list[Settings] = []

    def load(settings: Settings, report: Any) -> FakeCompleter:
        tries.append(settings)
        if len(tries) == 1:
            raise UserError("expected a model, found none; name one")
        return FakeCompleter()

    async with editing(load) as editor:
        editor.notify("workspace/didChangeConfiguration", {"settings": {"spd-lsp": {"drafts": 5}}})
        await until(lambda: len(tries) == 2)
        await editor.ready()
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["one", "two"]


def refuses_cuda(tries: list[Settings]) -> Callable[[Settings, Any], FakeCompleter]:
    def load(settings: Settings, report: Any) -> FakeCompleter:
        tries.append(settings)
        if settings.device == "cuda":
            raise UserError("device 'cuda' is not available here")
        return FakeCompleter(f"of {settings.model}")

    return load


async def test_a_model_that_cannot_be_opened_leaves_the_bundled_one_where_it_is():
    tries: list[Settings] = []
    async with editing(refuses_cuda(tries)) as editor:
        editor.notify("spd-lsp/options", {"model": "owner/large", "device": "cuda"})
        await until(lambda: len(tries) == 2)
        await editor.ready()
        (shown,) = editor.received("window/showMessage")
        assert shown["message"].endswith("is not available here; meanwhile completing with starter")
        status = await editor.status()
        assert (status["kind"], status["model"]) == ("normal", "starter")
        assert f"spd-lsp: {status['problem']}" == shown["message"]
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["of starter"]
        assert len(tries) == 2


async def test_a_large_model_makes_room_for_another_and_the_bundled_one_completes_if_that_cannot_be_opened():
    tries: list[Settings] = []
    async with session(refuses_cuda(tries)) as editor:
        await editor.start_and_load(initializationOptions={"model": "owner/large"})
        editor.notify("spd-lsp/options", {"model": "owner/larger", "device": "cuda", "ngramWeight": 0.25})
        await until(lambda: len(tries) == 3)
        await editor.ready()
        assert tries == [
            Settings(model="owner/large"),
            Settings(model="owner/larger", device="cuda", ngram_weight=0.25),
            Settings(ngram_weight=0.25),
        ]
        editor.open("x = \n")
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["of starter"]


async def test_a_first_model_that_cannot_be_opened_is_replaced_by_the_bundled_one():
    tries: list[Settings] = []
    async with session(refuses_cuda(tries)) as editor:
        await editor.start_and_load(initializationOptions={"model": "owner/large", "device": "cuda"})
        editor.open("x = \n")
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["of starter"]
        assert (await editor.status())["model"] == "starter"


async def test_the_model_that_is_loaded_completes_until_another_one_is_ready():
    gate = threading.Event()

    def load(settings: Settings, report: Any) -> FakeCompleter:
        assert settings.model == "starter" or gate.wait(20)
        return FakeCompleter(f"of {settings.model}")

    async with editing(load) as editor:
        editor.notify("spd-lsp/options", {"model": "owner/large"})
        for trigger in (1, 2):
            assert texts(await editor.request(COMPLETION, at(0, 4, trigger))) == ["of starter"]
        assert (await editor.status())["kind"] == "loading"
        gate.set()
        await editor.ready()
        assert texts(await editor.request(COMPLETION, at(0, 4))) == ["of owner/large"]


async def test_a_client_that_answers_no_request_still_gets_its_model():
    """As lsp-mode does while its user waits for a reply."""
    async with session(FakeCompleter()) as editor:
        wants = {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}
        editor.unanswered = {
            "workspace/configuration",
            "client/registerCapability",
            "window/workDoneProgress/create",
        }
        await editor.start({"workspace": wants, "window": {"workDoneProgress": True}})
        await editor.ready()
        assert {message["method"] for message in editor.messages if "id" in message} == editor.unanswered
