"""A run of arms at places, from packages and options to records in a store: what all commands at places share.

Leaks are refused before any model is loaded. Results lie in one folder, so that commands given the same folder
share what was asked already: `quality`, `baselines`, `drafts`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngram_builders.errors import UserError
from spd_lsp import __version__
from spd_lsp.completion.tokenizer import Tokens
from spd_lsp.evaluation.arms import Arm, Asker
from spd_lsp.evaluation.leaks import Finding, check
from spd_lsp.evaluation.places import PRIMARY, Cursor, Package, sample
from spd_lsp.evaluation.prior import PackagePrior
from spd_lsp.evaluation.quality import Plan, measure
from spd_lsp.evaluation.store import Record, Store
from spd_lsp.models.checkpoint.hub import STARTER, built_in_domains, locate
from spd_lsp.models.load import load
from spd_lsp.settings import Settings

Report = Callable[[str, int, int], None]
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a person asked for, whatever the command."""

    model: str = STARTER
    device: str = "auto"
    drafts: int = 3
    files: int = 25
    seed: int = 0
    max_tokens: int = 24
    left_only: bool = False
    language: Sequence[str] = ("python",)
    training: Sequence[Path] = ()
    out: Path = Path("eval-quality")


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that arms need to be asked."""

    options: Options
    packages: Sequence[Package]
    cursors: Sequence[Cursor]
    tokens: Tokens
    folder: Path
    findings: Sequence[Finding]
    store: Store
    asker: Asker
    report: Report

    @property
    def facts(self) -> dict[str, Any]:
        """What was run."""
        return _facts_of(self.options, self.packages, self.folder)

    def primary(self, limit: int | None = None) -> Sequence[Cursor]:
        """The first places of the strata by which ways are compared."""
        return [cursor for cursor in self.cursors if cursor.stratum in PRIMARY][:limit]

    def ask(
        self, cursors: Sequence[Cursor], arms: Sequence[Arm], *, typed: int = 0, drawn: int = 0
    ) -> list[Record]:
        """Ask what the store lacks; the first primary places are also typed through, and drawn at more often."""
        primary = [cursor for cursor in cursors if cursor.stratum in PRIMARY]
        typing, drawing = (frozenset(cursor.key for cursor in primary[:n]) for n in (typed, drawn))
        plan = Plan(cursors, arms, typing, drawing, right=not self.options.left_only)
        built_in = built_in_domains(self.folder) if self.options.model == STARTER else {}

        def known(package: Package) -> PackagePrior:
            return PackagePrior(package, self.tokens, built_in)

        measure(plan, self.packages, known, self.asker, self.store, self.report)
        chosen = {cursor.key for cursor in cursors}
        return [record for record in self.store.records() if record["key"] in chosen]


def open_session(
    packages: Sequence[Package], options: Options, report: Report, tell: Tell, *, check_leaks: bool = True
) -> Session:
    """Choose places, refuse leaks, load the model."""
    cursors = sample(packages, options.seed, options.files, options.language)
    folder = locate(options.model, tell)
    tokens = Tokens(folder)
    store = Store(options.out / "places.jsonl", _facts_of(options, packages, folder))
    findings = _refuse_leaks(packages, tokens, folder, options.training, store, report) if check_leaks else ()
    settings = Settings(drafts=options.drafts, max_tokens=options.max_tokens)
    asker = Asker(load(folder, options.device, tell), tokens, settings)
    return Session(options, packages, cursors, tokens, folder, findings, store, asker, report)


def _facts_of(options: Options, packages: Sequence[Package], folder: Path) -> dict[str, Any]:
    """What decides the results at a place; results with other facts are not mixed with these."""
    weights = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        weights.update(path.read_bytes())
    return {
        "model": options.model,
        "weights": weights.hexdigest()[:16],
        "packages": ", ".join(package.name for package in packages),
        "seed": options.seed,
        "k": options.drafts,
        "max_tokens": options.max_tokens,
        "right context": not options.left_only,
        "version": __version__,
    }


def _refuse_leaks(
    packages: Sequence[Package],
    tokens: Tokens,
    folder: Path,
    training: Sequence[Path],
    store: Store,
    report: Report,
) -> list[Finding]:
    """Run the leak checks, or take those of the run that goes on; raise if anything was seen in training."""
    asked = sorted(str(path.resolve()) for path in training)
    kept: Mapping[str, Any] | None = store.kept("leaks")
    if kept and kept["training"] == asked:
        findings = [Finding(**finding) for finding in kept["findings"]]
    else:
        findings = check(packages, tokens, folder, training, lambda done, total: report("leaks", done, total))
        told = [dataclasses.asdict(finding) for finding in findings]
        store.append({"leaks": {"training": asked, "findings": told}})
    leaks = [f"{found.subject}: {found.check}, {found.text}" for found in findings if found.verdict == "leak"]
    if leaks:
        raise UserError(
            f"expected repositories that the model has not seen, found {'; '.join(leaks)}; leave these out"
        )
    return findings
