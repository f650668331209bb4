"""How each family of models was trained to fill in the middle: its prompt, and where that is published.

A row is chosen by the model's type, its special tokens and its name together: vocabularies are shared by families
that order the same tokens in another way, and by models that never saw them in training.

Instructed models of Qwen3-Coder and Granite 4 are shown these prompts within a message of a chat, base models as
they are here. Granite Code and CodeGemma were trained with the suffix first, too; no text names the order of its
tokens. `fillFormat` chooses another row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.settings import NO_FILL_FORMAT


@dataclass(frozen=True, slots=True)
class FillFormat:
    """The prompt of a family.

    `parts` in order: special tokens by name, `{after}`, and `{before}` or both parts of it, `{above}` and
    `{recent}`. Typing only appends, and the model's cache holds: where a family allows it the suffix stands first;
    elsewhere the middle has begun some lines above the cursor.
    """

    name: str  # as in the setting
    parts: tuple[str, ...]
    source: str  # where it is published
    model_types: tuple[str, ...]  # in config.json; some have another name in GGUF files
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)  # in config.json, if the type is not enough
    family_tokens: tuple[str, ...] = ()  # further special tokens of the family
    lacks: str = ""  # a special token of another family
    unlike: str = ""  # a pattern of the names of models with the same type and tokens, but not trained with it

    @property
    def marks(self) -> list[str]:
        """The special tokens of this format."""
        return [part for part in self.parts if not part.startswith("{")]

    def fits(self, config: Mapping[str, Any], is_special: Callable[[str], bool]) -> bool:
        """Whether a model of this configuration and with these special tokens was trained with it."""
        return (
            config.get("model_type", "") in self.model_types
            and all(map(is_special, (*self.marks, *self.family_tokens)))
            and all(config.get(name) in sizes for name, sizes in self.sizes.items())
            and not (self.lacks and is_special(self.lacks))
            and not (self.unlike and re.search(self.unlike, str(config.get("name", "")), re.IGNORECASE))
        )


_SUFFIX_FIRST = ("<fim_prefix>", "<fim_suffix>", "{after}", "<fim_middle>", "{before}")
_PREFIX_FIRST = ("<fim_prefix>", "{above}", "<fim_suffix>", "{after}", "<fim_middle>", "{recent}")
_PIPES = ("<|fim_prefix|>", "{above}", "<|fim_suffix|>", "{after}", "<|fim_middle|>", "{recent}")

FILL_FORMATS = (
    FillFormat(  # it is opened by its tokenizer.json, which has no config.json
        "starter", ("<|suffix|>", "{after}", "<|prefix|>", "{before}"), "spd_lsp/training", ("llama", "")
    ),
    FillFormat(
        "starcoder",
        _SUFFIX_FIRST,
        "StarCoder (arXiv 2305.06161) and StarCoder2 (arXiv 2402.19173): both orders, half of the texts each",
        ("gpt_bigcode", "starcoder2", "starcoder"),
    ),
    FillFormat(
        "granite-code",
        _PREFIX_FIRST,
        "Granite Code Models (arXiv 2405.04324)",
        ("llama",),
        {"vocab_size": [49152]},
        ("<reponame>",),
        "<|im_start|>",
    ),
    FillFormat(
        "mellum",
        ("<fim_suffix>", "{after}", "<fim_prefix>", "{before}", "<fim_middle>"),
        "the model card of JetBrains/Mellum-4b-base; the order also in arXiv 2510.05788. Mellum2's base model as "
        "MizuchiLabs/tsugi.nvim runs it",
        ("llama", "mellum"),
        {"vocab_size": [49152, 98304]},
        ("<filename>",),
        unlike="mellum2.*(?:instruct|thinking)",
    ),
    FillFormat("stable-code", _PREFIX_FIRST, "the model card of stabilityai/stable-code-3b", ("stablelm",)),
    FillFormat(
        "qwen",
        _PIPES,
        "Qwen2.5-Coder Technical Report (arXiv 2409.12186); Qwen3-Coder's README. Qwen3.5 as people report "
        "in ggml-org/llama.vscode#55",
        ("qwen2", "qwen3_moe", "qwen3moe", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen35", "qwen35moe"),
        unlike=r"^(?!.*coder)(?!.*qwen[ _-]?3\.5).*qwen",
    ),
    FillFormat("codegemma", _PIPES, "the model card of google/codegemma-2b", ("gemma",)),
    FillFormat(
        "granite",
        _PIPES,
        "Granite 4.0's prompt engineering guide (ibm-granite/granite-4.0-language-models)",
        ("granitemoehybrid", "granitehybrid", "granite"),
    ),
    FillFormat(
        "deepseek",
        ("<｜fim▁begin｜>", "{above}", "<｜fim▁hole｜>", "{after}", "<｜fim▁end｜>", "{recent}"),
        "the READMEs of deepseek-ai/DeepSeek-Coder and DeepSeek-Coder-V2",
        ("llama", "deepseek_v2", "deepseek2"),
    ),
    FillFormat(
        "code-llama",
        ("▁<PRE>", "{above}", "▁<SUF>", "{after}", "▁<MID>", "{recent}"),
        "Code Llama (arXiv 2308.12950)",
        ("llama",),
    ),
    FillFormat(
        "codestral",
        ("[SUFFIX]", "{after}", "[PREFIX]", "{before}"),
        "mistral-common, `InstructTokenizerV2.encode_fim`; other models of Mistral have the tokens, too",
        ("mistral",),
        {"hidden_size": [6144]},
    ),
    FillFormat(
        "seed-coder",
        ("<[fim-suffix]>", "{after}", "<[fim-prefix]>", "{before}", "<[fim-middle]>"),
        "Seed-Coder (arXiv 2506.03524)",
        ("llama",),
    ),
)


def choose_format(name: str, config: Mapping[str, Any], is_special: Callable[[str], bool]) -> FillFormat | None:
    """The format of this name, or the one that a model was trained with if it is `auto`; None: its text alone."""
    if name == "auto":
        return next((one for one in FILL_FORMATS if one.fits(config, is_special)), None)
    if name == NO_FILL_FORMAT:
        return None
    chosen = next(one for one in FILL_FORMATS if one.name == name)
    if missing := [mark for mark in chosen.marks if not is_special(mark)]:
        raise UserError(
            f"the fill-in-the-middle format {name} needs {', '.join(missing)}, which this model's tokenizer does "
            "not have; set fillFormat to auto"
        )
    return chosen
