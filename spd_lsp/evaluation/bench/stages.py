"""Where the processor time of a completion goes, stage by stage, while someone types in a repository.

A timer interrupts this process after each millisecond of its processor time, and what has passed since is counted
for the stage whose code runs: so nothing is wrapped, and what is measured is as fast as it is in an editor.
"""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from ngram_builders.errors import UserError
from ngram_builders.sources.discovery import survey
from ngram_builders.sources.language_ids import language_of
from spd_lsp.completion.completer import Completer
from spd_lsp.decoding.best_first import best_first
from spd_lsp.decoding.superposed import superpose
from spd_lsp.evaluation.bench.clocks import Spread
from spd_lsp.evaluation.bench.machine import children_seconds, load_average
from spd_lsp.evaluation.report_writer import Cell, Report, ReportTable
from spd_lsp.ngrams.open_documents import DocumentChange
from spd_lsp.progress import ReportProgress

_INTERVAL = 0.001  # seconds of processor time between two samples; systems may round it up
_LINES = 6  # typed in each file
_SIZES = range(2_000, 60_000)  # characters of a file that is typed in
_SIGNS = frozenset(".([=, ")  # behind which completions are asked for, and where a line begins

# What `Completer.complete` and `make_offer` call, and the stage that it belongs to.
STAGES = {
    "normalize_newlines": "context",
    "build_context": "context",
    "prompt": "prompt's ids",
    "serve": "live index and tables",
    "adjusted": "live index and tables",
    "occurrences": "copies: search",
    "continuations": "copies: texts",
    "rank_candidates": "copies: texts",
    "_matching_names": "names",
    "make_offer": "offer",
}
_PROMPT, STEPS, QUERIES = "model: the prompt's new tokens", "model: steps", "n-gram queries"
_CANDIDATES, _HYPOTHESES, _TEXTS = "candidates", "hypotheses", "their texts and ends"
_IN_STEPS = (STEPS, QUERIES, _CANDIDATES, _HYPOTHESES, _TEXTS)
# Inside the decoder, what the innermost of these files is about.
_DECODING = {
    "spd_lsp/models/base.py": STEPS,
    "spd_lsp/models/llama/": STEPS,
    "spd_lsp/models/torch/": STEPS,
    "ngram_builders/": QUERIES,
    "spd_lsp/ngrams/": QUERIES,
    "spd_lsp/decoding/candidates.py": _CANDIDATES,
    "spd_lsp/completion/": _TEXTS,
    "spd_lsp/decoding/": _HYPOTHESES,
}
_ROOT = Path(__file__).parents[3]
_CAPTION = """\
Processor time of a completion while lines are typed in the middle of a file: asked for where a line begins, behind
a dot, a bracket, `=`, a comma and a blank. At first the file's prompt is not in the cache. Parsers run in another
process."""

_DECODERS = {decode.__name__ for decode in (superpose, best_first)}


def stage_of(stack: Sequence[CodeType]) -> str:
    """The stage that runs, from the functions on the stack, the innermost first."""
    outer = next((n for n, code in enumerate(stack) if code is Completer.complete.__code__), None)
    if not outer:
        return "other"
    called = [code.co_name for code in reversed(stack[:outer])]
    if called[0] not in _DECODERS:
        inside = STAGES.get(called[1]) if called[0] == "make_offer" and called[1:] else None
        return inside or STAGES.get(called[0], "other")
    inner = stack[:outer]
    if any(code.co_name == "prefill" for code in inner):
        return _PROMPT
    files = (code.co_filename.removeprefix(f"{_ROOT}/") for code in inner)
    found = next((stage for file in files for start, stage in _DECODING.items() if file.startswith(start)), "")
    if found in ("", _HYPOTHESES):
        return _CANDIDATES if any(code.co_name == "score_logits" for code in inner) else _HYPOTHESES
    return found


@dataclass
class StageSampler:
    """Processor seconds of each stage."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    last: float = 0.0

    def sample(self, signal_number: int, frame: FrameType | None) -> None:
        """Count what has passed since the last sample for the stage of a frame."""
        now, stack = time.process_time(), []
        while frame is not None:
            stack.append(frame.f_code)
            frame = frame.f_back
        self.seconds[stage_of(stack)] += now - self.last
        self.last = now

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample what runs in the main thread."""
        self.last = time.process_time()
        before = signal.signal(signal.SIGPROF, self.sample)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


@dataclass
class StageTimes:
    """What was measured."""

    sampler: StageSampler = field(default_factory=StageSampler)
    milliseconds: list[float] = field(default_factory=list)  # of each completion, the parsers' apart
    passes: int = 0
    tables: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # of tables that could not be used
    parsers: float = 0.0  # seconds of processor time of all completions


def stages_report(folder: Path, files: int, completer: Completer, report: ReportProgress) -> Report:
    """Type in so many files of a folder, and report on each stage of all completions."""
    if not hasattr(signal, "setitimer"):
        raise UserError("--stages needs a timer of processor time, which this system does not have")
    times, chosen = StageTimes(), choose_files(folder, files)
    before = children_seconds()
    for number, path in enumerate(chosen):
        report("files", number, len(chosen))
        _type_in(completer, path, times)
    times.parsers = children_seconds() - before
    if not times.milliseconds:
        raise UserError(f"nothing was completed in {folder}; name another folder")
    facts = {
        "folder": f"{folder.name}, {len(chosen)} files",
        "completions": f"{len(times.milliseconds)}, of {times.passes / len(times.milliseconds):.1f} passes",
        "n-grams": ", ".join(times.tables) + "".join(f"; {problem}" for problem in times.problems),
        "load average": load_average(),
    }
    data = {"seconds": times.sampler.seconds, "milliseconds": times.milliseconds, "parsers": times.parsers}
    return Report("stages", "A completion's processor time", facts, _tables(times), data)


def choose_files(folder: Path, count: int) -> list[Path]:
    """Some files of a folder, always the same ones."""
    paths = [path for path in survey(folder).paths if language_of(path) and path.stat().st_size in _SIZES]
    if not paths:
        raise UserError(f"{folder} has no source files of {_SIZES.start:,} to {_SIZES.stop:,} bytes; name another")
    return random.Random(0).sample(paths, min(count, len(paths)))


def _type_in(completer: Completer, path: Path, times: StageTimes) -> None:
    """Take some lines out of a file's middle, type them again, and note what each completion takes."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    middle = len(lines) // 2
    parts = lines[:middle], lines[middle : middle + _LINES], lines[middle + _LINES :]
    before, typed, after = map("".join, parts)
    name = path.as_uri()
    for end in filter(lambda end: is_asked(typed[:end]), range(len(typed))):
        source = f"{before}{typed[:end]}\n{after}"
        with times.sampler.sampling():
            began = time.process_time()
            result = completer.complete(source, len(before) + end, language_of(path), path, name=name)
            taken = time.process_time() - began
        if result.passes:
            times.milliseconds.append(1e3 * taken)
            times.passes += result.passes
            times.tables, times.problems = result.ngrams, result.problems
    completer.update_documents({name: DocumentChange(None, saved=False)})


def is_asked(written: str) -> bool:
    """Whether the sampled person asks here: where a line may begin, and once behind signs and words.

    Example: `    return f(` is asked for before `return`, behind it and its blank, and behind the bracket.
    """
    line = written.rpartition("\n")[2]
    return not line or (line[-1] in _SIGNS and bool(line.strip()) and line[-2:] != "  ")


def _tables(times: StageTimes) -> list[ReportTable]:
    completions, seconds = len(times.milliseconds), times.sampler.seconds
    spread, total = Spread.of(times.milliseconds), sum(seconds.values())
    quartiles, parsers = f"{spread.low:.1f} to {spread.high:.1f}", 1e3 * times.parsers / completions
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    rows: list[list[Cell]] = [
        [stage, 1e3 * spent / completions, f"{spent / total:.1%}"] for stage, spent in ranked
    ]
    steps = sum(seconds.get(stage, 0) for stage in _IN_STEPS)
    share = f"N-gram queries take {seconds.get(QUERIES, 0) / steps:.1%} of the steps." if steps else ""
    columns = ["ms, median", "quartiles", "parsers, ms, mean"]
    return [
        ReportTable(_CAPTION, columns, [[spread.median, quartiles, parsers]], 1),
        ReportTable(f"The stages. {share}", ["stage", "ms, mean", "share"], rows),
    ]
