"""One session of measurements: all contenders in turn, round by round, so that disturbances meet them alike.

Comes in: a model's folder and what to ask. Goes out: `Found`, for `report` to write.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.evaluation.bench.arms import LLAMA_CPP, WHOLE, Contest, contenders, forget, run
from spd_lsp.evaluation.bench.editors import Served, serve
from spd_lsp.evaluation.bench.machine import (
    WeightReader,
    apart,
    describe,
    forget_peak,
    held_bytes,
    load,
    peak_bytes,
)
from spd_lsp.evaluation.bench.moments import Moment, Run
from spd_lsp.evaluation.bench.prefixes import TYPED, read_again

if TYPE_CHECKING:
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.evaluation.bench.llama_cpp import LlamaCpp
    from spd_lsp.ngrams.interpolation import Mixture


Report = Callable[[str, int, int], None]
Key = tuple[str, int]  # a contender's name and its k

_CONTEXT = 512  # tokens of the prompt, where model and text have so many
_LEAST_PROMPT = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure."""

    folder: Path
    model: str  # as the person named it
    device: str
    text: str  # whose end is the prompt
    ks: tuple[int, ...]
    tokens: int
    repeat: int
    threads: int
    memory: bool
    editors: tuple[int, ...] = ()  # how many ask at once


@dataclass(slots=True)
class Found:
    """All that was measured."""

    asked: dict[str, Any]
    machine: dict[str, str]
    load: tuple[str, str] = ("", "")  # processes that wanted to run, before and after
    weights: int = 0  # bytes
    prompt: int = 0  # tokens
    runs: dict[Key, list[Run]] = field(default_factory=dict)
    prefixes: dict[str, list[Moment]] = field(default_factory=dict)
    served: dict[Key, list[Served]] = field(default_factory=dict)
    peaks: dict[Key, tuple[int, int]] = field(default_factory=dict)  # bytes with the model loaded, and at most


def hold(asked: Asked, report: Report) -> Found:
    """Load everything, measure everything."""
    from spd_lsp.completion.tokenizer import ModelTokenizer

    tokens = ModelTokenizer(asked.folder)
    contest = prepare(asked, tokens, parts=("engine", "transformers", "reading"))
    assert contest.model is not None
    assert contest.reader is not None
    contest.llama_cpp, of_llama_cpp = with_llama_cpp(contest, asked)
    found = Found(
        {
            "model": asked.model,
            "tokens": asked.tokens,
            "rounds": asked.repeat,
            "engine": "; ".join([type(contest.model).__name__, *contest.remarks]),
            "llama.cpp": of_llama_cpp,
        },
        describe(str(contest.model.device)),
        weights=contest.reader.size,
        prompt=len(contest.prompt),
    )
    before = load()
    _compete(contest, asked, found, report)
    found.prefixes = read_again(contest.model, [*contest.prompt, *contest.prompt[:TYPED]], asked.repeat)
    if asked.editors:
        found.served = serve(contest, asked.editors, asked.repeat, report)
    if asked.memory and found.machine["device"] == "cpu":
        _weigh(asked, found, report)
    found.load = (before, load())
    return found


def prepare(asked: Asked, tokens: ModelTokenizer, parts: Sequence[str]) -> Contest:
    """Load what these parts need: `engine`, `transformers`, `reading`."""
    from spd_lsp.models.load import load as load_model

    remarks: list[str] = []
    engine = load_model(asked.folder, asked.device, remarks.append) if "engine" in parts else None
    network = _plain_network(asked, str(engine.device) if engine else "cpu") if "transformers" in parts else None
    if "torch" in sys.modules:  # some engines do without, and so weigh less
        sys.modules["torch"].set_num_threads(asked.threads)
    longest = (engine.max_positions if engine else _CONTEXT + asked.tokens + TYPED) - asked.tokens - TYPED
    prompt = tokens.encode(asked.text)[-min(_CONTEXT, longest) :]
    if len(prompt) < _LEAST_PROMPT:
        raise UserError(
            f"expected a prompt of {_LEAST_PROMPT} tokens or more, found {len(prompt)}; name a longer file"
        )
    reader = None
    if network is not None and "reading" in parts:
        reader = WeightReader(weight_bytes(network), str(network.device))
    ngrams = own_code(asked.folder, tokens)
    return Contest(engine, network, tuple(prompt), asked.tokens, ngrams, reader, tuple(remarks[1:]))


def with_llama_cpp(contest: Contest, asked: Asked) -> tuple[LlamaCpp | None, str]:
    """llama.cpp, where it is installed, loads the model and predicts what the engine does; what to say of it."""
    from spd_lsp.evaluation.bench.gguf_file import Unlike

    assert contest.model is not None
    if str(contest.model.device) != "cpu":
        return None, "left out: compared on a CPU only"
    try:
        model = _open_llama_cpp(asked, len(contest.prompt))
    except Unlike as error:
        return None, f"left out: {error}"
    theirs = model.drafts(contest.prompt, 1, contest.tokens, lambda: None)[0].tolist()
    same = [a == b for a, b in zip(theirs, _greedy_ids(contest), strict=True)]
    alike = same.index(False) if False in same else len(same)
    if not alike:
        return None, "left out: its first token is another than this engine's"
    return model, f"{model}; its greedy draft is this engine's for {alike} of {len(same)} tokens"


def _open_llama_cpp(asked: Asked, prompt: int) -> LlamaCpp:
    """The model in llama.cpp, with room for the prompt once and all drafts."""
    from spd_lsp.evaluation.bench.llama_cpp import LlamaCpp as Opened

    rows = max(asked.ks)
    return Opened(asked.folder, rows, prompt + rows * asked.tokens, asked.threads)


def _greedy_ids(contest: Contest) -> list[int]:
    """What the engine's model predicts, token by token."""
    assert contest.model is not None
    forget(contest.model)
    found = [int(np.argmax(contest.model.prefill(contest.prompt, lambda: None)))]
    while len(found) < contest.tokens:
        found.append(int(np.argmax(contest.model.step(found[-1:], WHOLE))))
    return found


def _plain_network(asked: Asked, device: str) -> Any:
    """The model as transformers loads it, with weights of its own in the same precision."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    from spd_lsp.models.checkpoint.model_config import read_config

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    if device.startswith("cuda") and not torch.cuda.is_bf16_supported():
        dtype = torch.float16
    network: Any = AutoModelForCausalLM.from_pretrained(
        asked.folder,
        config=read_config(asked.folder),
        dtype=dtype,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
    )
    network.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]  # no token ends a text
    return network.to(device).eval()


def weight_bytes(network: Any) -> int:
    """Bytes of weights that one token needs: all but a table of input embeddings that is used for nothing else."""
    weights = {id(one): one for one in network.parameters()}
    inputs, outputs = network.get_input_embeddings(), network.get_output_embeddings()
    if outputs is None or inputs.weight is not outputs.weight:
        weights.pop(id(inputs.weight), None)
    return sum(one.numel() * one.element_size() for one in weights.values())


def own_code(folder: Path, tokens: ModelTokenizer) -> Mixture:
    """N-grams of this package's own code, with the table that comes with the model if one does."""
    import numpy as np

    from ngram_builders.ngrams import ORDERS, count_streams, stream
    from ngram_builders.table.reader import Table
    from ngram_builders.table.writer import build_columns
    from spd_lsp.models.checkpoint.hub import built_in_domains
    from spd_lsp.ngrams.interpolation import BUILT_IN_WEIGHT, Mixture

    sources = sorted(Path(__file__).parents[2].rglob("*.py"))
    encoded = tokens.encode_batch([path.read_text(encoding="utf-8") for path in sources])
    streams = [stream(np.array(ids, dtype=np.int64), tokens.end_of_text) for ids in encoded]
    run = count_streams(streams, orders=ORDERS, vocab_size=tokens.vocab_size)
    built_in = [Table.open(path, tokens.fingerprint) for path in built_in_domains(folder).values()]
    pools = [[build_columns(run, tokens.vocab_size)], *([table.columns] for table in built_in)]
    return Mixture(pools, [1 - BUILT_IN_WEIGHT, *(BUILT_IN_WEIGHT for _ in built_in)])


def _compete(contest: Contest, asked: Asked, found: Found, report: Report) -> None:
    """Let every contender run once a round, in an order that changes from round to round."""
    keys = contenders(asked.ks, [] if contest.llama_cpp else [LLAMA_CPP])
    found.runs = {key: [] for key in keys}
    done = 0
    for number in range(asked.repeat + 1):
        for name, k in Random(number).sample(keys, len(keys)):
            gc.collect()
            gc.disable()
            try:
                one = run(name, k, contest)
            finally:
                gc.enable()
            if number:  # the first round warms up
                found.runs[name, k].append(one)
            done += 1
            report("rounds", done, len(keys) * (asked.repeat + 1))


def _weigh(asked: Asked, found: Found, report: Report) -> None:
    """Note the memory of each contender at its largest k, each in a process of its own."""
    largest = max(asked.ks)
    keys = [key for key in found.runs if key[0] != "reading" and (key[1] == largest or key[0].endswith("greedy"))]
    for done, key in enumerate(keys, 1):
        found.peaks[key] = apart(memory_of, asked, key)
        report("memory", done, len(keys))


def memory_of(asked: Asked, key: Key) -> tuple[int, int]:
    """Bytes that a process holds with the model loaded, and at most while a contender runs."""
    from spd_lsp.completion.tokenizer import ModelTokenizer

    theirs = key[0].startswith("transformers")
    parts = [] if key[0] == LLAMA_CPP else ["transformers" if theirs else "engine"]
    contest = prepare(asked, ModelTokenizer(asked.folder), parts)
    if key[0] == LLAMA_CPP:
        contest.llama_cpp = _open_llama_cpp(asked, len(contest.prompt))
    forget_peak()
    held = held_bytes()
    run(*key, contest)
    return held, peak_bytes()
