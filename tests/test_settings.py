"""Settings: an editor's options are read in both spellings; a wrong one is named and keeps its default."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.lsp.options import Configuration
from spd_lsp.settings import Settings


def parse_options(options):
    """The settings that an editor's options make, and what was wrong with them."""
    configuration = Configuration(Settings())
    configuration.set_options(options)
    return configuration.merged(), configuration.take_problems()


def test_advanced_settings_stand_in_an_object_of_their_own():
    assert parse_options({"advanced": {"maxOrder": 4, "reset_every": 8}})[0] == Settings(
        max_order=4, reset_every=8
    )
    assert parse_options({"advanced.maxOrder": 4}) == parse_options({"advanced.max_order": 4})
    for options in ({"maxOrder": 4}, {"advanced": {"drafts": 4}}, {"advanced": {"advanced": {"maxOrder": 4}}}):
        settings, (problem,) = parse_options(options)
        assert settings == Settings()
        assert problem.startswith("unknown setting")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"drafts": "three"}, "'drafts' must be an integer, not 'three'; using 3"),
        ({"enabled": 1}, "must be true or false, not 1"),
        ({"indexing": "on"}, "must be one of folders, dependencies, off, not 'on'"),
        ({"drafts": 0}, "must be from 1 to 16, not 0"),
        ({"advanced": {"alpha": 2}}, "'advanced.alpha' must be from 0.0 to 1.0, not 2"),
        ({"disabledLanguages": "python"}, "must be a list of strings"),
        ({"advanced": {"interpolation": "guess"}}, "must be one of linear, paper, not 'guess'"),
        ({"colour": "red"}, "unknown setting 'colour' ignored"),
        ({"temperature": 0.5}, "unknown setting 'temperature' ignored; did you mean 'advanced.temperature'?"),
        (
            {"advanced": {"max_tokens": 9}},
            "unknown setting 'advanced.max_tokens' ignored; did you mean 'max_tokens'?",
        ),
        ({"advanced": 7}, "setting 'advanced' must be an object that holds settings, not int; ignored"),
        ({"advanced": [1]}, "setting 'advanced' must be an object that holds settings, not list; ignored"),
        ({"device": "meta"}, "must be auto, cpu, mps, cuda or cuda:N, not 'meta'"),
        (
            {"model": "mine"},
            "must be `starter`, `none`, the full path of an existing folder or GGUF file, a",
        ),
        ({"model": "./mine"}, "the full path of an existing folder"),
        ({"model": "a/b/c"}, "a Hugging Face id"),
        ({"model": "http://me:secret@gpu"}, "an address such as http://127.0.0.1:8080"),
        ({"model": ""}, "must be `starter`"),
        ({"dataDir": "tables"}, "must be the full path of a folder, not 'tables'"),
        ({"dataDir": __file__}, "must be the full path of a folder"),
        ({"dataDir": "/a\0b"}, "must be the full path of a folder"),
        ({"advanced": {"temperature": float("nan")}}, "must be from 0.001 to 10.0"),
        ([1], "must be an object, not list"),
    ],
)
def test_what_is_wrong_is_named_and_the_default_kept(options, problem):
    settings, problems = parse_options(options)
    assert settings == Settings()
    assert len(problems) == 1
    assert problem in problems[0]


def test_one_wrong_option_spares_the_others():
    settings, problems = parse_options({"drafts": -1, "model": "owner/there", "advanced": {"temperature": 1}})
    assert (settings.model, settings.temperature, len(problems)) == ("owner/there", 1.0, 1)


def test_a_home_is_written_out_wherever_the_path_comes_from(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "models" / "mine").mkdir(parents=True)
    said = parse_options({"dataDir": "~/tables", "model": "~/models/mine"})[0]
    assert (said.data_dir, said.model) == (str(tmp_path / "tables"), str(tmp_path / "models" / "mine"))
    assert dataclasses.replace(Settings(), data_dir="~").data_dir == str(tmp_path)


@pytest.mark.parametrize("device", ["auto", "cuda:11", "mps"])
def test_every_device_that_there_can_be_is_taken(device):
    assert parse_options({"device": device}) == (Settings(device=device), [])


def test_a_folder_that_a_program_may_not_open_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert len(parse_options({"model": str(tmp_path), "dataDir": str(tmp_path)})[1]) == 2


@pytest.mark.parametrize("path", ["~nobody-of-that-name/m", "there/~/m", "starter", ""])
def test_a_path_without_a_known_home_stays_as_it_is(path):
    assert Settings(model=path).model == path
