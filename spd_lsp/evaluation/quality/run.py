"""Run every arm on every example. In: packages and options. Out: a record of each example.

The prompt of an example is read once, untimed. Then the arms run in an order drawn for that example, all with the
prompt in the cache. So arms differ only in decoding, and a busy machine slows all of them alike.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp.completion.offer import CompletionResult
from spd_lsp.completion.ranking import Completion
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.completion.typed_along import CompletionRequest, RecentResults, merge_previous
from spd_lsp.evaluation.quality.arms import Arm, ArmRequest, ArmRunner
from spd_lsp.evaluation.quality.examples import PRIMARY, Example, PackageFiles
from spd_lsp.evaluation.quality.held_out_ngrams import HeldOutNgrams, PackageNgrams
from spd_lsp.evaluation.quality.report import Record
from spd_lsp.models.hub import locate, shipped_settings
from spd_lsp.models.load import load
from spd_lsp.settings import Settings

_NOWHERE = CompletionRequest("", 0, None, None, "", explicit=False)


def open_runner(settings: Settings, tell: Callable[[str], None], context_tokens: int | None = None) -> ArmRunner:
    """Load the model, with the context that it was made for, or of this many tokens."""
    folder = locate(settings.model, tell)
    made_for: dict[str, Any] = {**shipped_settings(settings.model, folder)}
    if context_tokens:
        made_for["context_tokens"] = context_tokens
    settings = dataclasses.replace(settings, **made_for)
    return ArmRunner(load(folder, settings.device, tell), ModelTokenizer(folder), settings)


def refuse_leaks(packages: Sequence[PackageFiles], model: str) -> str:
    """Return how leaks were excluded; raise UserError for a package named in the model's training.json."""
    folder = locate(model)
    record = (folder if folder.is_dir() else folder.parent) / "training.json"
    if not record.is_file():
        return f"unknown: {folder.name} does not say what it was trained on"
    sources = json.loads(record.read_text(encoding="utf-8")).get("sources", [])
    trained_on = {_registry_name(source["name"]) for source in sources}
    if leaked := [package.name for package in packages if _registry_name(package.name) in trained_on]:
        raise UserError(f"the model was trained on packages of these names: {', '.join(leaked)}; leave these out")
    return f"other packages by name, compared with the {len(trained_on)} of training.json"


def _registry_name(name: str) -> str:
    """A package's name as registries compare it. Example: `Foo_Bar.baz-1.2.0` -> `foo-bar-baz`"""
    return re.sub(r"[-_.]+", "-", re.sub(r"-v?\d[\w.]*$", "", name)).lower()


def measure(
    runner: ArmRunner,
    packages: Sequence[PackageFiles],
    examples: Sequence[Example],
    arms: Sequence[Arm],
    *,
    typed: int = 0,
) -> Iterator[Record]:
    """Yield a record of each example; typing is simulated for the first `typed` primary ones."""
    by_name = {package.name: package for package in packages}
    files = {(file.package, file.name): file for package in packages for file in package.files}
    ngrams_of = cache(lambda name: PackageNgrams(by_name[name], runner.tokens))
    primary = [example.key for example in examples if example.stratum in PRIMARY]
    for (package, name), group in groupby(examples, lambda example: (example.package, example.file)):
        ngrams = ngrams_of(package).without(files[package, name])
        for example in group:
            typing = [arm for arm in arms if arm.types_lines] if example.key in primary[:typed] else []
            yield _record(runner, example, ngrams, arms, typing)


def _record(
    runner: ArmRunner, example: Example, ngrams: HeldOutNgrams, arms: Sequence[Arm], typing: Sequence[Arm]
) -> Record:
    """Return each arm's completions at an example, and the keystrokes that its line takes with some arms."""
    file = ngrams.file
    mixtures = ngrams.mixtures(example)

    def request(written: str = "") -> ArmRequest:
        text = text_without_target(file.text, example, written)
        return runner.request(text, example.at + len(written), file.language)

    # 1. Complete with every arm.
    whole = request()
    runner.model.prefill(whole.prompt.ids)
    order = random.Random(example.key).sample(list(arms), len(arms))
    results = {arm.label: runner.complete(arm, whole, mixtures[arm.prior]).record() for arm in order}

    # 2. Type the line.
    start = CompletionRequest(whole.document.text, example.at, file.language, None, "", explicit=False)
    typed = {}
    for arm in typing:

        def complete(written: str, arm: Arm = arm) -> Sequence[Completion]:
            return runner.complete(arm, request(written), mixtures[arm.prior]).completions

        most = arm.settings.get("drafts", runner.settings.drafts)
        typed[arm.label] = dataclasses.asdict(type_line(example.target, complete, most, start))

    seen = ngrams.line_seen(example)
    return {"example": dataclasses.asdict(example), "seen": seen, "arms": results, "typed": typed}


@dataclass(frozen=True, slots=True)
class TypedLine:
    """The cost of a line; keystrokes saved is 1 - keystrokes / characters."""

    keystrokes: int
    characters: int
    requests: int
    accepted: int


def type_line(
    target: str,
    complete: Callable[[str], Sequence[Completion]],
    most: int = 3,
    start: CompletionRequest = _NOWHERE,
) -> TypedLine:
    """Simulate a person who types a target at the start and accepts completions wherever that saves keystrokes.

    `complete` returns the completions after a prefix of the target, best first, of which `most` are shown. A
    character costs 1, accepting 1, each step down the list 1. What is shown between requests is what the
    server would show.
    Example: target `abcd`, completions `x`, `abc` -> accept the second (2 keystrokes), then type `d`: 3 of 4.
    """
    written = keystrokes = requests = accepted = 0
    recent = RecentResults()
    while written < len(target):
        request = start.with_typed(target[:written])
        shown = recent.find(request, 0)
        if shown is None or shown.needs_refresh:
            result = CompletionResult(list(complete(target[:written])), most)
            shown = recent.add(request, merge_previous(result, shown))
            requests += 1
        fitting = [
            (len(one.text) - 1 - rank, -rank, one.text)
            for rank, one in enumerate(shown.completions)
            if target.startswith(one.text, written)
        ]
        saved, place, text = max(fitting, default=(0, 0, ""))
        if saved > 0:
            written += len(text)
            keystrokes += 1 - place
            accepted += 1
        else:
            written += 1
            keystrokes += 1
    return TypedLine(keystrokes, len(target), requests, accepted)


def text_without_target(text: str, example: Example, written: str) -> str:
    """The file with only `written` of the target."""
    end = example.line_end
    if text[end - 1 : end] == "\n":
        end -= 1
    return text[: example.at] + written + text[end:]


def read_records(folder: Path) -> list[Record]:
    """Return the records that `eval quality --out FOLDER` wrote; raise UserError if there are none."""
    path = folder / "examples.jsonl"
    if not path.exists():
        raise UserError(f"no results of `spd-lsp eval quality` in {folder}; name the folder of its --out")
    with path.open(encoding="utf-8") as file:  # `splitlines` would also split at other separators
        return [json.loads(line) for line in file]
