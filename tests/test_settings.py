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


def test_editors_set_what_people_need_in_either_spelling_and_nothing_of_the_decoders():
    assert parse_options({"maxTokens": 40}) == parse_options({"max_tokens": 40}) == (Settings(max_tokens=40), [])
    for name in ("maxOrder", "alpha", "advanced"):
        settings, (problem,) = parse_options({name: 4})
        assert settings == Settings()
        assert problem.startswith("unknown setting")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"drafts": "three"}, "'drafts' must be an integer, not 'three'; ignored"),
        ({"enabled": 1}, "must be true or false, not 1"),
        ({"indexing": "on"}, "must be one of folders, off, not 'on'"),
        ({"drafts": 0}, "must be from 1 to 16, not 0"),
        ({"disabledLanguages": "python"}, "must be a list of strings"),
        ({"draft": 5}, "unknown setting 'draft' ignored; did you mean 'drafts'?"),
        ({"device": "meta"}, "must be auto, cpu, mps, cuda or cuda:N, not 'meta'"),
        (
            {"model": "mine"},
            "must be `starter`, `none`, the full path of a folder or GGUF file, a",
        ),
        ({"model": "a/b/c"}, "a Hugging Face id"),
        ({"model": "http://me:secret@gpu"}, "an address such as http://127.0.0.1:8080"),
        ({"dataDir": "tables"}, "must be the full path of a folder, not 'tables'"),
        ({"ngramWeight": float("nan")}, "must be from 0.0 to 100.0"),
    ],
)
def test_what_is_wrong_is_named_and_the_default_kept(options, problem):
    settings, problems = parse_options(options)
    assert settings == Settings()
    assert len(problems) == 1
    assert problem in problems[0]


def test_one_wrong_option_spares_the_others():
    settings, problems = parse_options({"drafts": -1, "model": "owner/there", "ngramWeight": 2})
    assert (settings.model, settings.ngram_weight, len(problems)) == ("owner/there", 2.0, 1)


def test_a_home_is_written_out_wherever_the_path_comes_from(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "models" / "mine").mkdir(parents=True)
    said = parse_options({"dataDir": "~/tables", "model": "~/models/mine"})[0]
    assert (said.data_dir, said.model) == (str(tmp_path / "tables"), str(tmp_path / "models" / "mine"))
    assert dataclasses.replace(Settings(), data_dir="~").data_dir == str(tmp_path)


def test_a_gpu_is_chosen_by_its_number():
    assert parse_options({"device": "cuda:11"}) == (Settings(device="cuda:11"), [])
