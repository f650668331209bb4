"""An example is judged by what other files say, never by itself."""

from __future__ import annotations

import numpy as np

from ngram_builders.index.mixture import Mixture, Signed
from ngram_builders.index.suffix_array import build_suffix_array
from ngram_builders.token_space import with_boundaries
from spd_lsp.evaluation.quality.examples import read_packages, sample_examples
from spd_lsp.evaluation.quality.held_out_ngrams import LINE_SEEN, PackageNgrams


def table_of(texts, tokens):
    streams = [with_boundaries(ids, tokens.end_of_text) for ids in tokens.encode_batch(texts)]
    return Signed(build_suffix_array(streams))


def says(mixture, history, tokens):
    candidates = np.arange(0, tokens.vocab_size, 7)
    return mixture([tokens.encode(history)[-8:]], candidates)


def source_named(package, name):
    return next(source for source in package.files if source.name == name)


def test_the_repository_prior_is_that_of_a_table_without_the_file(repository, tokens):
    (package,) = read_packages([repository])
    source = source_named(package, "table.py")
    held_out = PackageNgrams(package, tokens).without(source)
    example = next(c for c in sample_examples([package]) if c.file == "table.py")
    others = table_of([s.text for s in package.files if s is not source], tokens)
    expected = Mixture([[others]], [0.7])
    found = held_out.mixtures(example)
    for history in ("rows = ", "name, default=None", "self.rows.get", "with open(path, encoding="):
        assert np.array_equal(says(found["repository"], history, tokens), says(expected, history, tokens))
    assert found["none"] is None


def test_versions_of_the_file_are_taken_out_with_it(repository, tokens):
    (repository / "copy.py").write_text((repository / "table.py").read_text() + "\nEXTRA = 1\n")
    (package,) = read_packages([repository])
    prior = PackageNgrams(package, tokens)
    source = source_named(package, "table.py")
    assert {package.files[i].name for i in prior.near_duplicates(source)} == {"table.py", "copy.py"}
    example = next(c for c in sample_examples([package]) if c.file == "table.py" and "lookup" not in c.line)
    assert prior.without(source).line_seen(example) != LINE_SEEN[0]


def test_seen_tells_other_files_from_the_same_file_from_nowhere(tmp_path, tokens):
    folder = tmp_path / "few"
    folder.mkdir()
    (folder / "a.py").write_text(
        "shared = call(first, second)\n" + "own = call(a, b)\nown = call(a, b)\nnew = f(a, b)\n" * 8
    )
    (folder / "b.py").write_text(
        "shared = call(first, second)\n" + "something = altogether.different(here, there)\n" * 9
    )
    (package,) = read_packages([folder])
    source = source_named(package, "a.py")
    held_out = PackageNgrams(package, tokens).without(source)
    examples = {c.line: c for seed in range(40) for c in sample_examples([package], seed=seed) if c.file == "a.py"}
    assert held_out.line_seen(examples["shared = call(first, second)"]) == LINE_SEEN[0]
    assert held_out.line_seen(examples["own = call(a, b)"]) == LINE_SEEN[1]
