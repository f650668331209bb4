"""The editors' files agree with the server: settings, versions, names, and nothing that does not belong there."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import spd_lsp
from editors.vscode.settings import OWN, activation_events, configuration, key, properties_of, restricted
from ngram_builders.sources.language_ids import LANGUAGE_BY_EXTENSION, language_of
from spd_lsp.completion.syntax.languages import LANGUAGES
from spd_lsp.lsp.options import CLIENT_KEYS, WORKSPACE_SETTINGS, Configuration
from spd_lsp.settings import Settings

EDITORS = Path(__file__).parents[1] / "editors"
MANIFEST = json.loads((EDITORS / "vscode" / "package.json").read_text(encoding="utf-8"))
PROPERTIES = properties_of(MANIFEST["contributes"]["configuration"])
TYPES = {"string": str, "integer": int, "number": float, "array": list, "boolean": bool}
SERVERS = {name: entry for name, entry in PROPERTIES.items() if name not in OWN}


def problems_of(options: dict[str, Any]) -> list[str]:
    """What the server says of options."""
    configuration = Configuration(Settings())
    configuration.set_options(options)
    return configuration.take_problems()


def test_the_manifest_is_what_its_generator_writes():
    assert MANIFEST["contributes"]["configuration"] == configuration(), "run: python editors/vscode/settings.py"


def test_every_setting_of_the_server_is_in_the_manifest_and_no_other():
    fields = {key(field): field for field in dataclasses.fields(Settings) if field.metadata["in_editors"]}
    assert SERVERS.keys() == fields.keys()
    for name, field in fields.items():
        entry = SERVERS[name]
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        assert entry["default"] == default
        assert type(entry["default"]) is TYPES[entry["type"]]
        assert field.metadata["description"][1:] in entry["markdownDescription"]
        assert entry.get("minimum") == field.metadata["low"]
        assert entry.get("maximum") == field.metadata["high"]
        assert entry.get("enum", []) == list(field.metadata["choices"])


def test_the_extension_starts_in_every_language_that_is_source_code():
    events = MANIFEST["activationEvents"]
    assert events == activation_events(), "run: python editors/vscode/settings.py"
    assert {f"onLanguage:{language_of(name)}" for name in ("a.py", "a.tsx", "a.kt", "Dockerfile")} <= set(events)
    assert not {f"onLanguage:{language}" for language in Settings().disabled_languages} & set(events)


def test_a_folder_that_is_opened_sets_no_more_in_vs_code_than_in_other_editors():
    """Trusted or not: settings of these scopes are not read from a workspace."""
    not_of_folders = ("machine", "application")
    of_folders = {name for name, entry in PROPERTIES.items() if entry.get("scope") not in not_of_folders}
    assert of_folders == {key(field) for field in dataclasses.fields(Settings) if field.name in WORKSPACE_SETTINGS}
    untrusted = MANIFEST["capabilities"]["untrustedWorkspaces"]
    assert untrusted["supported"] == "limited"
    assert untrusted["restrictedConfigurations"] == restricted(PROPERTIES)
    assert set(untrusted["restrictedConfigurations"]) == PROPERTIES.keys() - of_folders
    assert MANIFEST["capabilities"]["virtualWorkspaces"]["supported"] is False


def test_the_server_leaves_the_extensions_own_settings_alone():
    assert {name.split(".")[1] for name in OWN} == set(CLIENT_KEYS)


def test_versions_agree():
    assert MANIFEST["version"] == spd_lsp.__version__
    lock = json.loads((EDITORS / "vscode" / "package-lock.json").read_text(encoding="utf-8"))
    assert lock["packages"][""]["version"] == MANIFEST["version"]
    assert lock["packages"][""]["devDependencies"] == MANIFEST["devDependencies"]


def test_the_lock_file_names_no_registry():
    lock = json.loads((EDITORS / "vscode" / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    assert all("integrity" in package for name, package in lock["packages"].items() if name)


def test_commands_keys_and_links_of_the_manifest_are_registered():
    folder = EDITORS / "vscode" / "src"
    sources = [(folder / name).read_text(encoding="utf-8") for name in ("menu.js", "next_edits.js")]
    handlers = "".join(source.partition("get handlers()")[2].partition("};")[0] for source in sources)
    registered = {f"spd-lsp.{name}" for name in re.findall(r"^ +(\w+): \(\) =>", handlers, re.MULTILINE)}
    contributes = MANIFEST["contributes"]
    assert {command["command"] for command in contributes["commands"]} == registered
    assert {binding["command"] for binding in contributes["keybindings"]} <= registered
    assert set(re.findall(r"\(command:([\w.-]+)\)", json.dumps(contributes["walkthroughs"]))) <= registered


def test_every_editor_starts_the_server_for_the_languages_with_a_grammar():
    emacs = re.findall(r'^ +\'?\(+"(\w+)" ', (EDITORS / "emacs" / "spd-lsp.el").read_text(), re.MULTILINE)
    neovim = (EDITORS / "nvim" / "lsp" / "spd_lsp.lua").read_text()
    filetypes = re.findall(r'"(\w+)"', neovim.partition("filetypes = {")[2].partition("}")[0])
    renamed = {"cs": "csharp", "sh": "shellscript", "bash": "shellscript"}  # Neovim's names
    served = {renamed.get(name, name) for name in LANGUAGES}
    assert {renamed.get(name, name) for name in filetypes} == served
    assert {*emacs, "javascriptreact"} == served  # which is js-mode in Emacs
    assert {f"onLanguage:{language}" for language in served} <= set(MANIFEST["activationEvents"])


def test_the_template_for_jetbrains_starts_the_server_for_these_languages_and_their_files():
    template = json.loads((EDITORS / "jetbrains" / "template.json").read_text(encoding="utf-8"))
    assert all("spd-lsp serve" in command for command in template["programArgs"].values())
    mapped = {one["languageId"]: one["fileType"]["patterns"] for one in template["fileTypeMappings"]}
    assert set(mapped) == set(LANGUAGES) - {"cs", "sh", "bash"}  # Neovim's names
    for language, patterns in mapped.items():
        files = {f"*.{end}" for end, of in LANGUAGE_BY_EXTENSION.items() if of == language and end != "ipynb"}
        assert set(patterns) == files
    options = json.loads((EDITORS / "jetbrains" / "initializationOptions.json").read_text(encoding="utf-8"))
    assert problems_of(options) == []


def test_the_json_recipes_are_valid_and_so_are_their_settings():
    recipes = re.findall(r"```json\n(.*?)```", (EDITORS / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(recipes) >= 2
    for recipe in recipes:
        options = re.findall(r'"initialization_?[oO]ptions": (\{.*?\})', json.dumps(json.loads(recipe)))
        settings = [name for name in json.loads(recipe) if name.startswith("spd-lsp.")]  # of VS Code
        assert options or settings
        assert all(problems_of(json.loads(text)) == [] for text in options)
        assert set(settings) <= set(PROPERTIES)
