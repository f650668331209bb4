"""Settings: an editor's options are read in both spellings; a wrong one is named and keeps its default."""

from __future__ import annotations

import dataclasses

import pytest

from spd_lsp.settings import Settings, parse_options


def test_no_options_are_the_defaults():
    assert parse_options(None) == (Settings(), [])


def test_both_spellings_are_read():
    assert parse_options({"maxTokens": 8})[0] == parse_options({"max_tokens": 8})[0] == Settings(max_tokens=8)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"drafts": "three"}, "expected int, found 'three'"),
        ({"drafts": True}, "expected int, found True"),
        ({"refresh": 1}, "expected bool, found 1"),
        ({"drafts": 0}, "expected 1 to 16, found 0"),
        ({"alpha": 2}, "expected 0.0 to 1.0, found 2"),
        ({"languagesOff": "python"}, "expected a list of strings"),
        ({"interpolation": "guess"}, "expected one of nested, paper, found 'guess'"),
        ({"colour": "red"}, "'colour' is unknown"),
        ({"device": "meta"}, "expected auto, cpu, cuda, mps, or cuda:0 and so on, found 'meta'"),
        ({"device": "cuda:one"}, "expected auto, cpu, cuda"),
        ({"device": "CPU"}, "expected auto, cpu, cuda"),
        ({"model": "mine"}, "expected `starter`, the full path of a folder that is there, or a Hugging Face id"),
        ({"model": "./mine"}, "the full path of a folder"),
        ({"model": "../mine"}, "the full path of a folder"),
        ({"model": "/not/there"}, "a folder that is there"),
        ({"model": "a/b/c"}, "or a Hugging Face id"),
        ({"model": ""}, "expected `starter`"),
        ({"dataDir": "tables"}, "expected the full path of a folder, found 'tables'"),
        ({"dataDir": "./tables"}, "expected the full path of a folder"),
        ({"dataDir": __file__}, "expected the full path of a folder"),
        ({"dataDir": "/a\0b"}, "expected the full path of a folder"),
        ({"temperature": float("nan")}, "expected 0.001 to 10.0"),
        ([1], "expected an object, found list"),
    ],
)
def test_what_is_wrong_is_named_and_the_default_kept(options, problem):
    settings, problems = parse_options(options)
    assert settings == Settings()
    assert len(problems) == 1
    assert problem in problems[0]


def test_one_wrong_option_spares_the_others():
    settings, problems = parse_options({"drafts": -1, "model": "owner/there", "temperature": 1})
    assert (settings.model, settings.temperature, len(problems)) == ("owner/there", 1.0, 1)


def test_a_home_is_written_out_wherever_the_path_comes_from(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "models" / "mine").mkdir(parents=True)
    said = parse_options({"dataDir": "~/tables", "model": "~/models/mine"})[0]
    assert (said.data_dir, said.model) == (str(tmp_path / "tables"), str(tmp_path / "models" / "mine"))
    assert dataclasses.replace(Settings(), data_dir="~").data_dir == str(tmp_path)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:11", "mps"])
def test_every_device_that_there_can_be_is_taken(device):
    assert parse_options({"device": device}) == (Settings(device=device), [])


def test_a_folder_that_a_program_may_not_open_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert len(parse_options({"model": str(tmp_path), "dataDir": str(tmp_path)})[1]) == 2


@pytest.mark.parametrize("path", ["~nobody-of-that-name/m", "there/~/m", "starter", ""])
def test_a_path_without_a_known_home_stays_as_it_is(path):
    assert Settings(model=path).model == path


def test_every_setting_says_what_it_means():
    assert all(field.metadata["meaning"] for field in dataclasses.fields(Settings))
