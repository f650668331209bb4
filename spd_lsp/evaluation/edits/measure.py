"""What is proposed after one change of a file, against what its author changed, too.

In: examples from history. Out: precision, recall, silence and time, by kind; and the weights of
`spd_lsp.edits.propose`, fitted to half of the repositories.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path

import numpy as np

from ngram_builders.errors import UserError
from spd_lsp.completion.syntax.parsing import PARSER_POOL
from spd_lsp.edits.candidates import Opened
from spd_lsp.edits.observed import Observed
from spd_lsp.edits.probability import MIN_PROBABILITY, probability_of
from spd_lsp.edits.repeats import repeats
from spd_lsp.edits.rewrite import Edit
from spd_lsp.evaluation.calibration import fit_logistic
from spd_lsp.evaluation.edits.history import Example, Hunk, read_examples

_PENALTY = 1.0  # on squared weights


@dataclass(slots=True)
class Outcome:
    """What was proposed after one change."""

    repository: str
    kind: str
    places: int  # where the author made the same change
    elsewhere: bool  # only in other files
    evidence: list[dict[str, float]] = field(default_factory=list)  # of each candidate
    right: list[bool] = field(default_factory=list)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    seconds: float = 0.0  # of processor time

    def shown(self, weights: dict[str, float] | None) -> list[bool]:
        """Of what is proposed, best first, whether each is right."""
        best: dict[tuple[str, int, int], tuple[float, bool]] = {}
        for evidence, right, span in zip(self.evidence, self.right, self.spans, strict=True):
            found = probability_of(evidence, weights) if weights else probability_of(evidence), right
            best[span] = max(found, best.get(span, (0.0, False)))
        return [right for p, right in sorted(best.values(), key=lambda one: -one[0]) if p >= MIN_PROBABILITY]


def measure(example: Example, changes: int = 1) -> Outcome | None:
    """Change the first line, or the first ones, and see what is proposed."""
    edited = example.files[0]
    here = [line for line in edited.lines if (0, line) in example.alike]
    if changes > 1 + len(here):
        return None
    observed = Observed(edited.before)
    made = list[Hunk]()
    for line in (example.first, *here[: changes - 1]):
        observed.see(_changed(observed.text, line, made))
        made += line
    if not observed.recent.now:
        return None
    texts = {file.name: observed.text if file is edited else file.before for file in example.files}
    opened = [Opened(file.name, file.language, texts[file.name]) for file in example.files]
    started = _processor_seconds()
    found = list(repeats(observed.recent, opened[0], opened[1:]))
    seconds = _processor_seconds() - started
    wanted = set(_wanted(example, texts, made))
    places = len(example.alike) + 1 - changes
    elsewhere = len(here) < changes
    outcome = Outcome(example.repository, _kind(observed.recent.now), places, elsewhere, seconds=max(0.0, seconds))
    for document, site, evidence in found:
        text = texts[document]
        outcome.evidence.append(evidence)
        changed = text[: site.start] + site.text + text[site.end :]
        outcome.right.append((document, *_line(text, site.start, changed)) in wanted)
        outcome.spans.append((document, site.start, site.end))
    return outcome


def _processor_seconds() -> float:
    """Of this process and of those that parse for it."""
    total = time.process_time()
    for process in PARSER_POOL.idle:
        status = Path(f"/proc/{process.pid}/schedstat")
        total += int(status.read_text().split()[0]) / 1e9 if status.exists() else 0.0
    return total


def _wanted(example: Example, texts: Mapping[str, str], made: Sequence[Hunk]) -> Iterator[tuple[str, int, str]]:
    """What the author's other changes make of their lines."""
    for number, file in enumerate(example.files):
        already = made if number == 0 else ()
        for line in file.lines:
            if not set(line) & set(already):
                for start, result in _results(texts[file.name], line, already):
                    yield file.name, start, result


def _changed(text: str, hunks: Iterable[Hunk], made: Sequence[Hunk]) -> str:
    """A text with more changes, after others were made."""
    for hunk in sorted(hunks, key=lambda one: -one.start):
        at = _moved(hunk.start, made)
        text = text[:at] + hunk.new + text[at + len(hunk.old) :]
    return text


def _results(text: str, line: Sequence[Hunk], made: Sequence[Hunk]) -> Iterator[tuple[int, str]]:
    """What changes of a line leave: each of them, and neighbours together."""
    for first, last in combinations(range(len(line) + 1), 2):
        yield _line(text, _moved(line[first].start, made), _changed(text, line[first:last], made))


def _moved(start: int, made: Iterable[Hunk]) -> int:
    return start + sum(len(hunk.new) - len(hunk.old) for hunk in made if hunk.start < start)


def _line(text: str, at: int, changed: str) -> tuple[int, str]:
    """Where a line starts and what it has become: of a change that can be cut in several ways, one."""
    start = text.rfind("\n", 0, at) + 1
    return start, changed[start : changed.find("\n", start) % (len(changed) + 1)]


def _kind(edits: Sequence[Edit]) -> str:
    edit = edits[0]
    if len(edits) > 1:
        return "several"
    if edit.is_word:
        return "literal" if edit.old.isdigit() or edit.old in ("True", "False", "None") else "word"
    return "insertion" if not edit.old else "deletion" if not edit.new else "other"


def _fit_weights(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The weights under which what was right is likeliest. All candidates after one change count as one."""
    rows = [row for outcome in outcomes for row in outcome.evidence]
    names = list(dict.fromkeys(name for row in rows for name in row))
    x = np.array([[row.get(name, 0.0) for name in names] for row in rows], float)
    right = np.array([one for outcome in outcomes for one in outcome.right], float)
    counts = np.array([1 / len(outcome.right) for outcome in outcomes for _ in outcome.right])
    return dict(zip(names, map(float, fit_logistic(x, right, counts, _PENALTY)), strict=True))


def describe_edits(repos: Sequence[Path], commits: int, *, fit: bool) -> Iterator[str]:
    """What is measured on repositories, as lines; with weights fitted to every other one, if there are to be."""
    examples = [list(read_examples(repo, commits)) for repo in repos]
    if not fit:
        yield from _report(_outcomes(chain(*examples)), None)
        return
    if len(repos) < 2:
        raise UserError("--fit needs two repositories or more: one half is judged by weights fitted to the other")
    fitted = list(chain(*examples[::2]))
    judged = list(chain(*examples[1::2]))
    weights = _fit_weights([*_outcomes(fitted), *_outcomes(fitted, 2)])
    yield from (f"{name}: {weight:.2f}" for name, weight in sorted(weights.items()))
    yield from _report(_outcomes(judged), weights)
    yield "after two lines were changed alike:"
    yield from _report(_outcomes(judged, 2), weights)


def _outcomes(examples: Iterable[Example], changes: int = 1) -> list[Outcome]:
    """Those of examples with more places than were changed, or with none if one was."""
    found = (measure(example, changes) for example in examples if changes == 1 or example.alike)
    return [one for one in found if one and (changes == 1 or one.places)]


def _report(outcomes: Sequence[Outcome], weights: dict[str, float] | None) -> Iterator[str]:
    """The figures of all kinds."""
    kinds = defaultdict(list)
    for outcome in outcomes:
        for kind in ("all", outcome.kind, *(["elsewhere"] if outcome.elsewhere else [])):
            kinds[kind].append(outcome)
    yield f"{'':10} cases  shown  precision  recall  right in 3  places found"
    for kind, of_kind in sorted(kinds.items()):
        repeated = [outcome for outcome in of_kind if outcome.places]
        shown = [outcome.shown(weights) for outcome in repeated]
        first = sum(one[0] for one in shown if one)
        three = sum(any(one[:3]) for one in shown)
        found = sum(min(sum(one), o.places) for one, o in zip(shown, repeated, strict=True))
        some = sum(map(bool, shown))
        total = len(repeated)
        all_places = sum(outcome.places for outcome in repeated)
        yield (
            f"{kind:10} {total:5}  {some:5}  {first / max(1, some):9.3f}  {first / max(1, total):6.3f}"
            f"  {three / max(1, total):10.3f}  {found / max(1, all_places):12.3f}"
        )
    once = [outcome for outcome in outcomes if not outcome.places]
    loud = [one for one in (outcome.shown(weights) for outcome in once) if one]
    seconds = np.array([outcome.seconds for outcome in outcomes] or [0.0]) * 1000
    yield f"silent after {1 - len(loud) / max(1, len(once)):.3f} of {len(once)} changes made once"
    shown = [one for one in (outcome.shown(weights) for outcome in outcomes) if one]
    right = sum(one[0] for one in shown) / max(1, len(shown))
    yield f"after all changes {right:.3f} of {len(shown)} first proposals are right"
    median, late = np.percentile(seconds, (50, 95))
    yield f"{median:.1f} ms of processor time in the median, {late:.1f} ms at the 95th percentile"
