"""A family's prompt is the one that it was trained with; whatever else has its tokens gets none, or is refused."""

from __future__ import annotations

import dataclasses

import pytest

from ngram_builders.errors import UserError
from spd_lsp.commands.doctor import fill_format
from spd_lsp.completion.fill_formats import FILL_FORMATS
from spd_lsp.settings import NO_FILL_FORMAT, Settings
from tests.completion.vocabularies import save_tokenizer

END = "<|endoftext|>"
STARCODER = [END, "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<filename>", "<reponame>"]
QWEN = [END, "<|im_start|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>"]
DEEPSEEK = ["<｜end▁of▁sentence｜>", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"]
MISTRAL = ["</s>", "[INST]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"]
SEED = ["<[end▁of▁sentence]>", "<[fim-prefix]>", "<[fim-middle]>", "<[fim-suffix]>"]
CODE_LLAMA = ["</s>", "▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"]

# What stands around the cursor, and what each family reads there.
BEFORE, AFTER, SETTLED = "ab ", "cd", 1
SUFFIX_FIRST = "<fim_prefix><fim_suffix>cd<fim_middle>ab"
PREFIX_FIRST = "<fim_prefix>a<fim_suffix>cd<fim_middle>b"
PIPES = "<|fim_prefix|>a<|fim_suffix|>cd<|fim_middle|>b"
GOLDEN = {
    "starter": ({"model_type": "llama"}, [END, "<|suffix|>", "<|prefix|>"], "<|suffix|>cd<|prefix|>ab"),
    "starcoder": ({"model_type": "gpt_bigcode"}, STARCODER, SUFFIX_FIRST),
    "starcoder2": ({"model_type": "starcoder2"}, [*STARCODER[:5], "<repo_name>", "<file_sep>"], SUFFIX_FIRST),
    "granite-code": ({"model_type": "llama", "vocab_size": 49152}, STARCODER, PREFIX_FIRST),
    "mellum": (
        {"model_type": "llama", "vocab_size": 49152},
        [*STARCODER, "<|im_start|>"],
        "<fim_suffix>cd<fim_prefix>ab<fim_middle>",
    ),
    "mellum2": (
        {"model_type": "mellum", "vocab_size": 98304, "name": "Mellum2-12B-A2.5B-Base"},
        [*STARCODER, "<|im_start|>"],
        "<fim_suffix>cd<fim_prefix>ab<fim_middle>",
    ),
    "stable-code": ({"model_type": "stablelm"}, STARCODER[:5], PREFIX_FIRST),
    "qwen": ({"model_type": "qwen2"}, QWEN, PIPES),
    "qwen3-coder": ({"model_type": "qwen3_moe"}, QWEN, PIPES),
    "qwen3.5": ({"model_type": "qwen3_5", "name": "Qwen3.5-0.8B"}, QWEN, PIPES),
    "qwen3.5 in a file": ({"model_type": "qwen35", "name": "Qwen3.5 0.8B"}, QWEN, PIPES),
    "codegemma": ({"model_type": "gemma"}, ["<eos>", *QWEN[2:5], "<|file_separator|>"], PIPES),
    "granite": ({"model_type": "granitemoehybrid"}, ["<|end_of_text|>", *QWEN[2:5]], PIPES),
    "deepseek": ({"model_type": "llama"}, DEEPSEEK, "<｜fim▁begin｜>a<｜fim▁hole｜>cd<｜fim▁end｜>b"),
    "deepseek-v2": ({"model_type": "deepseek_v2"}, DEEPSEEK, "<｜fim▁begin｜>a<｜fim▁hole｜>cd<｜fim▁end｜>b"),
    "seed-coder": ({"model_type": "llama"}, SEED, "<[fim-suffix]>cd<[fim-prefix]>ab<[fim-middle]>"),
}
SENTENCEPIECE = {
    "code-llama": ({"model_type": "llama"}, CODE_LLAMA, "▁<PRE>▁a▁<SUF>cd▁<MID>b"),
    "codestral": ({"model_type": "mistral", "hidden_size": 6144}, MISTRAL, "[SUFFIX]cd[PREFIX]▁ab"),
}


def shown_prompt(tokens):
    """A prompt's tokens in a row. The blank at the cursor is taken back: it begins the next word."""
    return "".join(
        tokens.vocabulary.tokenizer.id_to_token(i) for i in tokens.prompt(BEFORE, AFTER, settled=SETTLED).ids
    )


@pytest.mark.parametrize("family", GOLDEN)
def test_the_prompt_of_a_family_is_the_one_that_was_published(family, tmp_path):
    config, specials, expected = GOLDEN[family]
    assert shown_prompt(save_tokenizer(tmp_path, specials=specials, config=config)) == expected


@pytest.mark.parametrize("family", SENTENCEPIECE)
def test_a_vocabulary_that_begins_texts_with_a_blank_has_none_before_the_suffix(family, tmp_path):
    config, specials, expected = SENTENCEPIECE[family]
    tokens = save_tokenizer(tmp_path, specials=specials, config=config, is_sentencepiece=True)
    assert shown_prompt(tokens) == expected
    assert tokens.bytes_of(tokens.encode_inside("\n    cd")) == b"\n    cd"


def test_every_format_has_a_golden_prompt_a_source_and_a_value_of_the_setting():
    names = [one.name for one in FILL_FORMATS]
    assert {*names} <= {*GOLDEN, *SENTENCEPIECE}
    assert all(one.source for one in FILL_FORMATS)
    (setting,) = (field for field in dataclasses.fields(Settings) if field.name == "fill_format")
    assert setting.metadata["choices"] == ("auto", *names, NO_FILL_FORMAT)


@pytest.mark.parametrize(
    ("name", "config", "specials"),
    [
        ("OpenCoder, not trained with its tokens", {"model_type": "llama", "vocab_size": 96640}, STARCODER),
        ("Mistral 7B, not trained with its tokens", {"model_type": "mistral", "hidden_size": 4096}, MISTRAL),
        ("Qwen3, not trained with its tokens", {"model_type": "qwen3"}, QWEN),
        ("Mellum2 of chats", {"model_type": "mellum", "vocab_size": 98304, "name": "Mellum2-Instruct"}, STARCODER),
        ("Qwen2.5", {"model_type": "qwen2", "name": "Qwen2.5 7B Instruct"}, QWEN),
        ("R1", {"model_type": "qwen2", "name": "DeepSeek-R1-Distill-Qwen-1.5B"}, QWEN),
        ("Qwen3 MoE", {"model_type": "qwen3moe", "name": "Qwen3 30B A3B"}, QWEN),
        ("SmolLM, without tokens", {"model_type": "llama"}, [END, "<repo_name>", "<file_sep>"]),
        ("a folder without config.json's model_type", {}, QWEN),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tokens_alone_choose_no_format(name, config, specials, tmp_path):
    tokens = save_tokenizer(tmp_path, specials=specials, config=config)
    assert tokens.fill_format is None
    assert shown_prompt(tokens) == "ab"


@pytest.mark.parametrize(
    "place, expected",
    [
        ("Qwen2.5-Coder-0.5B", "qwen"),
        ("mine", "qwen"),  # a copy or a fine-tuned model
        ("Qwen2.5-0.5B", None),
        ("models--Qwen--Qwen2.5-Coder-0.5B/snapshots/0123abcd", "qwen"),
        ("models--Qwen--Qwen2.5-0.5B/snapshots/0123abcd", None),
    ],
)
def test_a_folders_name_tells_models_of_the_same_type_and_tokens_apart(place, expected, tmp_path):
    folder = tmp_path / place
    folder.mkdir(parents=True)
    tokens = save_tokenizer(folder, specials=QWEN, config={"model_type": "qwen2"})
    assert (tokens.fill_format and tokens.fill_format.name) == expected
    finding = fill_format(tokens)
    assert ("none is known for this model of type qwen2" in finding.text) == (not expected)


def test_the_setting_overrides_the_choice(tmp_path):
    config = {"model_type": "llama", "vocab_size": 49152}
    own = save_tokenizer(tmp_path, specials=STARCODER, config=config, fill_format="mellum")
    assert shown_prompt(own) == "<fim_suffix>cd<fim_prefix>ab<fim_middle>"
    none = save_tokenizer(tmp_path, specials=STARCODER, config=config, fill_format=NO_FILL_FORMAT)
    assert shown_prompt(none) == "ab"
    with pytest.raises(UserError, match=r"format qwen needs <\|fim_prefix\|>.* set fillFormat to auto"):
        save_tokenizer(tmp_path, specials=STARCODER, config=config, fill_format="qwen")
