"""Measures what the learnt weight of a table comes to, and brings, while someone works in a folder.

    python -m tests.evaluation.measure_learning FOLDER TABLE_FOLDER... --places 40

In: a folder, and others from which a table is built. The folder's lines are completed one after the other, with
the n-grams of its other files, the open file and the built-in table. A place counts as accepted, and is learnt
from, if what was written is among the three completions with the table at its learnt weight. Out: a line of
JSON with EM@1 and EM@3 without the table, with it at 0.7, and at the weight learnt so far, and that weight
after every ten places.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ngram_builders.build import build
from ngram_builders.registry.learnt_weights import Learnt
from ngram_builders.registry.ngram_table import DEFAULT_WEIGHT, trust
from ngram_builders.registry.registry import Registry
from ngram_builders.table.reader import Table
from ngram_builders.table.suffix_array import SearchedTexts
from spd_lsp.completion.tokenizer import ModelTokenizer
from spd_lsp.evaluation.commands import open_quality_run
from spd_lsp.evaluation.quality.arms import FULL, Arm
from spd_lsp.evaluation.quality.held_out_ngrams import AddedTable
from spd_lsp.evaluation.quality.run import text_without_target
from spd_lsp.models.checkpoint.hub import STARTER, locate
from spd_lsp.ngrams.weight_learning import Evidence, Learnable

_K = 3
_ARMS = ("none", "0.7", "learnt")


def measure(folder: Path, sources: list[Path], places: int, scratch: Path) -> dict[str, object]:
    """Build the table, complete, learn."""
    tokens = ModelTokenizer(locate(STARTER))
    registry = Registry(scratch / "data")
    build(sources, "t", tokens.encode_batch, token_space=tokens.space, registry=registry)
    files = [Table.open(path, tokens.fingerprint) for path in registry.find("t").paths]

    def table(weight: float) -> AddedTable:
        texts = [SearchedTexts(one.texts, trust=trust(weight)) for one in files if one.texts is not None]
        return AddedTable("t", weight, [one.columns for one in files], texts)

    options = {"drafts": _K, "files": places, "out": scratch / "out"}
    run = open_quality_run([folder], options, lambda *done: None, lambda text: None, may_leak=True)
    (package,) = run.packages
    ngrams = run.package_ngrams(package)
    texts = {file.name: file for file in package.files}
    held_out = cache(lambda name: ngrams.without(texts[name]))
    decoder = run.runner.completer.settings.decoder
    learnt, weights = Learnt(), []
    ranks: dict[str, list[int]] = {arm: [] for arm in _ARMS}
    for number, example in enumerate(run.primary_examples(places)):
        source = text_without_target(texts[example.file].text, example, "")
        request = run.runner.request(source, example.at, texts[example.file].language)
        for arm in _ARMS:
            added = [] if arm == "none" else [table(DEFAULT_WEIGHT if arm == "0.7" else learnt.weight)]
            ngrams.added = added
            mixture = held_out(example.file).mixtures(example)[added[0].label if added else FULL]
            assert mixture is not None
            watching = mixture.watching()
            shown = run.runner.complete(Arm(arm, decoder, FULL, {}), request, watching).drafts[:_K]
            ranks[arm].append(shown.index(example.target) if example.target in shown else _K)
            if arm == "learnt" and example.target in shown:
                history = request.texts.request(watching).history
                spell = partial(request.texts.spelled, example.target)
                found = Evidence(watching, [Learnable(len(watching.pools) - 1, "", "t")], history, spell).learn()
                learnt = next((learnt.plus(one.learnt) for one in found if one), learnt)
        if number % 10 == 0:
            weights.append(learnt.weight)
    shares = {arm: [_share(found, k) for k in (1, _K)] for arm, found in ranks.items()}
    return {"places": len(ranks["none"]), "EM": shares, "weights": weights, "accepted tokens": learnt.tokens}


def _share(ranks: list[int], k: int) -> float:
    return round(100 * sum(rank < k for rank in ranks) / len(ranks), 1)


def main() -> None:
    """Parse the arguments, measure in a scratch folder, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--places", type=int, default=40)
    given = parser.parse_args()
    with TemporaryDirectory() as scratch:
        found = measure(given.folder, given.sources, given.places, Path(scratch))
    sys.stdout.write(json.dumps({"folder": str(given.folder), **found}) + "\n")


if __name__ == "__main__":
    main()
