"""A gap loses nothing of its text, and the model is asked for exactly what was cut out."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from spd_lsp.training.documents import (
    cut_gap,
    infilling_document,
    strip_copyright,
)
from spd_lsp.training.tokenizer import END_ID, PREFIX_ID, SUFFIX_ID

SUFFIX_TOKENS = 256
TEXTS = st.text(alphabet="ab \n\té=()", max_size=300)
SEEDS = st.integers(0, 1000)


@given(text=TEXTS, seed=SEEDS)
def test_the_three_parts_of_a_gap_are_the_text(text: str, seed: int) -> None:
    gap = cut_gap(text, random.Random(seed))
    assert gap.before + gap.middle + gap.after == text


@given(text=TEXTS, seed=SEEDS)
def test_a_document_is_suffix_then_prefix_and_middle_as_one_text(
    tokenizer: Tokenizer, text: str, seed: int
) -> None:
    gap = cut_gap(text, random.Random(seed))
    ids = infilling_document(gap, tokenizer, 10_000)
    prefix = ids.index(PREFIX_ID)
    assert ids[0] == SUFFIX_ID
    assert ids[-1] == END_ID
    assert ids[prefix + 1 : -1] == tokenizer.encode(gap.before + gap.middle).ids
    assert ids[1:prefix] == tokenizer.encode(gap.after).ids[:SUFFIX_TOKENS]


@given(text=TEXTS, seed=SEEDS, length=st.integers(SUFFIX_TOKENS + 8, 300))
def test_a_document_fits_and_keeps_the_text_next_to_the_gap(
    tokenizer: Tokenizer, text: str, seed: int, length: int
) -> None:
    gap = cut_gap(text, random.Random(seed))
    whole, short = infilling_document(gap, tokenizer, 10_000), infilling_document(gap, tokenizer, length)
    assert len(short) == min(length, len(whole))
    assert short[-4:] == whole[-4:]


@pytest.mark.parametrize(
    ("text", "learnt"),
    [
        ("/* Copyright 2020 Someone.\n * Licensed to all. */\n\n#include <a.h>\n", "#include <a.h>\n"),
        ("// SPDX-License-Identifier: MIT\n// and more\npackage a\n", "package a\n"),
        ("#!/usr/bin/env python\n# Copyright 2020 Someone\n\nx = 1\n", "x = 1\n"),
        ("// Copyright 2020 Someone\n\n/* Licence: MIT */\nint x;\n", "int x;\n"),
        ("# What this is for.\nx = 1\n", "# What this is for.\nx = 1\n"),
        ("#define LICENCE 1\n", "#define LICENCE 1\n"),
        ("x = 1  # copyright\n", "x = 1  # copyright\n"),
    ],
)
def test_only_copyright_comments_at_the_head_are_dropped(text: str, learnt: str) -> None:
    assert strip_copyright(text) == learnt
