"""Comparison with llama.cpp's own server, same GGUF file, one thread: cost of answers, and how many are exact.

llama.cpp's server is asked for lines of real files over HTTP, spd-lsp over stdio. Both read the same text. Run as
a program, this is llama.cpp's server.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from ngram_builders.errors import UserError
from ngram_builders.programs import NEUTRAL_CWD, python
from spd_lsp.command_options import print_status
from spd_lsp.completion.context import build_context
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.quality.examples import PRIMARY, read_packages, sample_examples
from spd_lsp.evaluation.speed import spread
from spd_lsp.evaluation.tables import markdown_table
from spd_lsp.evaluation.typing_speed import StdioServer, memory_of, position, processes_of, processor_seconds
from spd_lsp.models.hub import is_gguf_model, locate, shipped_settings
from spd_lsp.output.progress import ReportProgress
from spd_lsp.settings import Settings

_STEPS = ("the first answer", "three answers there", "behind one more key")
_Place = tuple[str, str, str, str]  # a document's URI, its text before and after the cursor, and the next key
_Asks = Sequence[Callable[[], str]]  # the steps at a place; each returns the first line of the answer
_SECONDS = 300  # for an answer


def _start_llama(model: Path) -> tuple[subprocess.Popen[bytes], str]:
    """`llama-server` on the path, or else the server in the package `xllamacpp`, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = python("spd_lsp.evaluation.llama_server", str(model), port)
    if found := shutil.which("llama-server"):
        options = f"--port {port} -np 3 -c 12288 -t 1 -tb 1 --no-warmup"
        command = [found, "-m", str(model), *options.split()]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=NEUTRAL_CWD, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
    while process.poll() is None:
        with suppress(URLError), urlopen(f"http://127.0.0.1:{port}/health"):
            return process, f"http://127.0.0.1:{port}"
        time.sleep(0.1)
    raise UserError("llama.cpp's server did not start; run `llama-server -m FILE` to see why")


def _asks_of_llama(address: str, tokens: ModelTokenizer, budget: int, place: _Place) -> _Asks:
    """Ask as llama.cpp's plugins do, or with our prompt for models whose infilling it does not know."""
    _, before, after, key = place
    seen = build_context(before + after, len(before), "python", budget, tokens.count, explicit=True)
    parts = tokens.fill_format.parts if tokens.fill_format else ("{before}",)
    path = "completion" if tokens.fill_format is None or tokens.fill_format.name == "starter" else "infill"

    def ask(typed: str = "", **options: object) -> str:
        left, right = seen.before + typed, seen.read_after
        asked: dict[str, object] = {"input_prefix": left, "input_suffix": right}
        if path == "completion":
            texts = {"{before}": left, "{after}": right}
            asked = {"prompt": "".join(texts.get(part, part) for part in parts)}
        asked |= {"n_predict": Settings().max_tokens, "temperature": 0, "stop": ["\n"]} | options
        with urlopen(Request(f"{address}/{path}", json.dumps(asked).encode()), timeout=_SECONDS) as answer:
            found: Any = json.load(answer)
        return str((found[0] if isinstance(found, list) else found)["content"])

    return ask, partial(ask, n=3, temperature=0.8), partial(ask, key)


def _asks_of_editor(server: StdioServer, place: _Place) -> _Asks:
    """Open a file, request three drafts explicitly, then type a key and request again."""
    uri, before, after, key = place
    document = {"uri": uri, "languageId": "python", "version": 1, "text": before + after}
    for method in ("didClose", "didOpen"):
        server.send({"method": f"textDocument/{method}", "params": {"textDocument": document}})

    def ask(typed: str = "") -> str:
        if typed:
            change = {"range": {"start": position(before), "end": position(before)}, "text": typed}
            changed = {"textDocument": document, "contentChanges": [change]}
            server.send({"method": "textDocument/didChange", "params": changed})
        where = {"textDocument": document, "position": position(before + typed)}
        params = {**where, "context": {"triggerKind": 2 if typed else 1}}
        answer = server.ask("textDocument/inlineCompletion", params, _SECONDS) or {}
        items = (answer.get("result") or {}).get("items") or [{"insertText": ""}]
        return str(items[0]["insertText"]).split("\n")[0]

    return ask, ask, partial(ask, key)


def compare(repos: Sequence[Path], model: str, places: int, timed: int, report: ReportProgress) -> str:
    """Compare first answers at this many places, and all steps at the first of them. -> a table"""
    path = locate(model, print_status)
    if not is_gguf_model(path):
        raise UserError(f"llama.cpp's server needs a GGUF file, and {path} is none; name one with --model")
    packages = read_packages(repos)
    examples = [one for one in sample_examples(packages, files=places) if one.stratum in PRIMARY][:places]
    texts = {(one.name, file.name): file.text for one in packages for file in one.files}
    budget = shipped_settings(model, path).get("context_tokens", Settings().context_tokens)
    with TemporaryDirectory() as folder, ExitStack() as running:
        root = Path(folder).resolve()
        process, address = _start_llama(path)
        server = StdioServer(Settings(model=model, data_dir=str(root / "data")))
        for one in (process, server.process):
            running.enter_context(one)
            running.callback(one.kill)
        server.start(threads=1)
        pids = (process.pid, server.process.pid)
        asks: list[Callable[[_Place], _Asks]] = [partial(_asks_of_llama, address, ModelTokenizer(path), budget)]
        asks.append(partial(_asks_of_editor, server))
        costs: list[dict[str, list[float]]] = [{step: [] for step in _STEPS} for _ in pids]
        exact = [0 for _ in pids]
        for number, example in enumerate(examples):
            text, uri = texts[example.package, example.file], (root / example.package / example.file).as_uri()
            place = uri, text[: example.at], text[example.at + len(example.target) :], example.target[0]
            for arm, pid in enumerate(pids):
                spent = processor_seconds(processes_of(pid))
                for step, ask in zip(_STEPS[: None if number < timed else 1], asks[arm](place), strict=False):
                    exact[arm] += (ask().rstrip() == example.target) and step == _STEPS[0]
                    before, spent = spent, processor_seconds(processes_of(pid))
                    costs[arm][step].append(1000 * (spent - before))
            report("places", number + 1, len(examples))
        memory = [sum(memory_of(one, "VmRSS") for one in processes_of(pid)) for pid in pids]
    rows = [
        ["", "llama.cpp's server", "spd-lsp"],
        *([f"{step}, CPU ms", *(spread(cost[step]) for cost in costs)] for step in _STEPS),
        ["memory, MiB", *(f"{one:,.0f}" for one in memory)],
        [f"exact first answers of {len(examples)}", *map(str, exact)],
    ]
    return f"{model}, all steps at {timed} places: medians with quartiles.\n\n{markdown_table(rows)}"


if __name__ == "__main__":
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path, given.port = sys.argv[1], int(sys.argv[2])
    given.n_parallel, given.n_ctx, given.warmup = 3, 12288, False
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    serving = xllamacpp.Server(given)
    sys.stdin.read()
