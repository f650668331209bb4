"""The comparison of structures: every one gives the true numbers, and every one has its row."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from spd_lsp.evaluation import apart, comparison, kenlm_model
from spd_lsp.evaluation.contenders import BUILDS, OWN, READERS, Site
from spd_lsp.evaluation.stream import CONTEXT, ORDERS, Stream, read_sources, sample_steps, true_probabilities
from spd_lsp.evaluation.structures import Course, Plan, compare, main, measurements
from spd_lsp.settings import UserError

VOCABULARY = 60
COUNTED = [name for name, reader in READERS.items() if not reader.smoothed]
SMOOTHED = [name for name, reader in READERS.items() if reader.smoothed]
ABSENT = Path("absent") / "lmplz"
LMPLZ = os.environ.get("LMPLZ") or shutil.which("lmplz")


def stream_of(documents: list[list[int]], known: int, vocab_size: int = VOCABULARY) -> Stream:
    """A stream of these ids; 0 ends a text."""
    marked = [np.array([0, *ids, 0], dtype=np.uint16) for ids in documents]
    bounds = np.cumsum([0, *map(len, marked)])
    return Stream(np.concatenate(marked), bounds, known, end_of_text=0, vocab_size=vocab_size)


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Text in which a few tokens are frequent, so that there are narrow and wide ranges, with repeats."""
    random = np.random.default_rng(0)
    motif = random.integers(1, VOCABULARY, 40)
    documents = []
    for length in [900, 5, 3000, 0, 1, 1200, 700, 300, 200]:
        ids = np.minimum(random.geometric(0.2, length), VOCABULARY - 1)
        ids[length // 3 : length // 3 + len(motif)] = motif[: max(0, len(ids) - length // 3)]
        documents.append(ids.tolist())
    return stream_of(documents, known=7)


@pytest.fixture
def site(stream: Stream, tmp_path: Path) -> Site:
    stream.save(tmp_path)
    return Site(tmp_path, Path(LMPLZ) if LMPLZ else ABSENT, "64M")


def opened(name: str, stream: Stream, site: Site) -> object:
    """A structure built and opened in this process; skips what is not installed."""
    reader = READERS[name]
    if missing := reader.missing(site):
        pytest.skip(missing)
    BUILDS[reader.build].make(stream, site)
    asked = reader.make(site)
    asked.open()
    return asked


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize(("drafts", "candidates"), [(1, 1), (3, 10), (8, 50)])
def test_every_structure_gives_the_true_probabilities(
    name: str, drafts: int, candidates: int, stream: Stream, site: Site
) -> None:
    asked = opened(name, stream, site)
    for contexts, options in sample_steps(stream, drafts=drafts, candidates=candidates, number=12, seed=1):
        p = asked.probabilities(asked.step(asked.prepare(contexts, options)))
        np.testing.assert_allclose(p, true_probabilities(stream, contexts, options), atol=1e-12)


@pytest.mark.parametrize("name", COUNTED)
def test_no_ngram_reaches_from_one_document_into_the_next(name: str, site: Site) -> None:
    """5 ends the first document and 6 begins the second: only 0 follows 5, and a context ends where 6 begins."""
    stream = stream_of([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [1, 2, 3, 4, 5]], known=2)
    asked = opened(name, stream, site)
    context, candidates = np.array([[1, 2, 3, 4, 5], [3, 4, 5, 0, 6]]), np.array([0, 6, 7])
    p = asked.probabilities(asked.step(asked.prepare(context, candidates)))
    assert p[0].tolist() == [[1, 0, 0]] * len(ORDERS)
    assert p[1].tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("documents", [3, 2000])
@pytest.mark.parametrize("name", COUNTED)
def test_what_ends_one_document_is_not_followed_by_the_next(name: str, documents: int, site: Site) -> None:
    """0 stands before and after each text: it is followed by what begins texts only, in few places or in many."""
    stream = stream_of([[1 + i % 2, 3, 4, 5] for i in range(documents)], known=documents - 1)
    asked = opened(name, stream, site)
    contexts, candidates = np.array([[1, 3, 4, 5, 0]]), np.array([0, 1, 2])
    p = asked.probabilities(asked.step(asked.prepare(contexts, candidates)))
    np.testing.assert_allclose(p, true_probabilities(stream, contexts, candidates), atol=1e-12)
    ones = (documents // 2) / (documents - 1)
    np.testing.assert_allclose(p[0], [[0, ones, 1 - ones]] + [[0, 0, 0]] * 4, atol=1e-12)


def estimate(stream: Stream, site: Site) -> None:
    """What every binary model is made from."""
    folder = site.of("kenlm")
    kenlm_model.write_text(stream, folder)
    kenlm_model.estimate(folder, site.lmplz, site.memory, ["--arpa", str(folder / kenlm_model.ARPA)])


@pytest.mark.parametrize("kind", kenlm_model.BINARIES)
def test_kenlm_says_the_same_in_python_and_in_cpp(kind: str, stream: Stream, site: Site) -> None:
    names = [name for name in SMOOTHED if name.startswith(f"KenLM {kind}, ")]
    if missing := next(filter(None, (READERS[name].missing(site) for name in names)), ""):
        pytest.skip(missing)
    estimate(stream, site)
    one, other = (opened(name, stream, site) for name in names)
    for contexts, candidates in sample_steps(stream, drafts=3, candidates=10, number=5, seed=0):
        logs = [np.array(asked.step(asked.prepare(contexts, candidates))) for asked in (one, other)]
        np.testing.assert_allclose(logs[0], logs[1], atol=1e-6)
    assert one.perplexity(stream.held_out) == other.perplexity(stream.held_out)


@pytest.mark.parametrize("name", SMOOTHED)
def test_a_smoothed_structure_predicts_better_than_chance(name: str, stream: Stream, site: Site) -> None:
    if missing := READERS[name].missing(site):
        pytest.skip(missing)
    estimate(stream, site)
    asked = opened(name, stream, site)
    contexts, candidates = next(iter(sample_steps(stream, drafts=3, candidates=VOCABULARY, number=1, seed=0)))
    logs = np.array(asked.step(asked.prepare(contexts, candidates)))
    assert ((10.0**logs).sum(axis=1) < 1.05).all()
    assert 1 < asked.perplexity(stream.held_out) < VOCABULARY / 2


def test_the_truth_of_a_text_that_fits_on_a_line() -> None:
    """1 2 is followed by 3 twice and by 4 once; 9 1 2 by 3; what was not seen has 0."""
    stream = stream_of([[1, 2, 3, 1, 2, 3, 9, 1, 2, 4], [7]], known=1)
    p = true_probabilities(stream, np.array([[8, 8, 8, 1, 2], [3, 1, 2, 3, 9]]), np.array([3, 4, 1]))
    np.testing.assert_allclose(p[0, :2], [[2 / 3, 1 / 3, 0], [2 / 3, 1 / 3, 0]])
    assert not p[0, 2:].any()
    assert p[1].tolist() == [[0, 0, 1]] * len(ORDERS)


def test_steps_stand_in_the_held_out_text_with_what_really_came_next(stream: Stream) -> None:
    steps = sample_steps(stream, drafts=3, candidates=10, number=20, seed=0)
    held = np.concatenate(stream.held_out).astype(int).tolist()
    windows = {tuple(held[i : i + CONTEXT]): held[i + CONTEXT] for i in range(len(held) - CONTEXT)}
    for contexts, candidates in steps:
        assert len(set(candidates.tolist())) == 10
        for context in contexts.tolist():
            assert tuple(context) in windows
        assert windows[tuple(contexts[0].tolist())] in candidates
    again = sample_steps(stream, drafts=3, candidates=10, number=20, seed=0)
    assert (again.contexts == steps.contexts).all() and (again.candidates == steps.candidates).all()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(20):
        (folder / f"m{number}.py").write_text(
            f"def f{number}(x):\n    return x + {number}\n" * 30, encoding="utf-8"
        )
    (folder / "copy.py").write_text((folder / "m3.py").read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def test_sources_are_read_once_and_their_end_is_held_out(sources: Path) -> None:
    def encode(texts: list[str]) -> list[list[int]]:
        return [[1 + ord(character) % 50 for character in text] for text in texts]

    stream = read_sources([sources], encode, end_of_text=0, vocab_size=VOCABULARY)
    documents = [tuple(ids.tolist()) for ids in stream.counted + stream.held_out]
    assert len(documents) == len(set(documents)) == 20
    assert all(ids[0] == ids[-1] == 0 and 0 not in ids[1:-1] for ids in documents)
    assert len(stream.held_out) == 1
    assert stream.tokens == sum(len(ids) - 1 for ids in stream.counted)
    with pytest.raises(UserError, match="two source files or more"):
        read_sources([sources], lambda texts: [], end_of_text=0, vocab_size=VOCABULARY)


def test_the_report_has_every_row_and_says_what_is_not_installed(stream: Stream, tmp_path: Path) -> None:
    told: list[str] = []
    plan = Plan(repeat=1, steps=2, settings=((2, 5),), skip=frozenset(["dictionaries"]))
    found = compare(stream, Site(tmp_path, ABSENT), plan, {"machine": "mine"}, told.append)
    rows = {row.name: row for row in [*found.builds, *found.answers]}
    assert rows.keys() == BUILDS.keys() | READERS.keys()
    assert {row.note for name, row in rows.items() if "KenLM" in name} == {"lmplz is not installed"}
    assert {row.note for name, row in rows.items() if "dictionaries" in name} == {"skipped"}
    own = next(row for row in found.answers if row.name == f"{OWN}, numpy")
    assert own.note == "" and own.error is not None and own.error < 1e-12
    assert own.step_us["k=2 C=5"][0] > 0 and own.bytes > 0 and own.open_ms[0] > 0
    assert found.builds[0].peak_bytes[0] > 1e6 and found.builds[0].bytes > 0
    assert len(told) == measurements(plan)
    markdown = comparison.as_markdown(found)
    for name in rows:
        assert f"| {name} |" in markdown
    assert json.loads(comparison.as_json(found))["ngrams"] == found.ngrams > 0


def test_a_structure_that_fails_is_a_row_that_says_why(stream: Stream, tmp_path: Path) -> None:
    def fail(row: comparison.Built) -> None:
        apart.run_apart(apart.build, OWN, Site(tmp_path / "nowhere"))

    row = comparison.Built(OWN)
    course = Course(stream, Site(tmp_path), Plan(), lambda what: None)
    course.attempt("build", row, fail)
    assert "FileNotFoundError" in row.note and "nowhere" in row.note
    assert comparison.build_cells(row, comparison.Comparison({}, 1, 1, [], [], [])) == [row.note]


@pytest.mark.parametrize(("values", "told"), [([3.0, 1.0, 2.0], "2 (1 to 3)"), ([2.0], "2"), ([2.1, 2.2], "2")])
def test_numbers_come_with_their_spread(values: list[float], told: str) -> None:
    assert comparison.spread(values, "{:.0f}") == told


def test_figure_is_drawn_of_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    answers = [
        comparison.Answers("a", "how", bytes=100, step_us={"k=3 C=10": [1.0, 2.0]}),
        comparison.Answers("b", "how", note="not installed"),
    ]
    comparison.write(comparison.Comparison({}, 10, 20, [(3, 10)], [], answers), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("x = 1\n", encoding="utf-8")
    wrong_name = CliRunner().invoke(main, [str(tmp_path), "--out", "table.txt"])
    assert wrong_name.exit_code == 1 and "expected a name that ends in .md, .json, .png" in wrong_name.output
    too_little = CliRunner().invoke(main, [str(tmp_path)])
    assert too_little.exit_code == 1 and "expected two source files or more, found 1" in too_little.output
