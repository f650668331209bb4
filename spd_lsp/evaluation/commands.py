"""The commands `eval ...` and `bench`: quality and speed of completions. Slow imports are inside the functions."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import click
import platformdirs

from ngram_builders.errors import UserError
from spd_lsp import __version__
from spd_lsp.command_options import Choices, model_options, print_status
from spd_lsp.output.progress import progress
from spd_lsp.settings import Settings

_MAX_DRAFTS = 16

_repositories = click.argument(
    "repos", metavar="REPO...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
_drafts = click.option("-k", "--drafts", type=click.IntRange(1, 20), default=3, help="Number of drafts.")


_max_tokens = partial(
    click.option, "--max-tokens", type=click.IntRange(1, 512), help="Maximum length of a draft, in tokens."
)
_arms = partial(click.option, "--arms", metavar="A,B,...")


@click.group("eval", context_settings={"show_default": True})
def evaluate() -> None:
    """Measure the quality of completions.

    Use repositories that no model or table has seen.
    """


@evaluate.command(epilog="\b\nExample: spd-lsp eval quality ~/code/*/ --examples 200")
@_repositories
@model_options
@_drafts
@_max_tokens(default=24)
@_arms(
    default="superposed,best-first,greedy,nucleus,beam,paper",
    help="Decoders to compare: DECODER[:SETTING=VALUE]...[@PRIOR], such as beam:drafts=5@file.",
)
@click.option(
    "--priors",
    default="repository+file,none",
    metavar="P,Q,...",
    help="Sources of n-grams for arms without @: none, file, repository, repository+file.",
)
@click.option(
    "--against",
    default="greedy,nucleus,beam",
    metavar="A,B,...",
    help="Baselines of the paired comparisons. They use the same prior.",
)
@click.option("--examples", type=click.IntRange(min=1), help="Maximum number of examples in total.")
@click.option(
    "--primary", is_flag=True, help="Use only examples at the start of a line or after a trigger such as a dot."
)
@click.option("--files", type=click.IntRange(min=1), default=25, help="Maximum number of files per package.")
@click.option("--language", multiple=True, default=("python",), help="Language of the tested files. Repeatable.")
@click.option("--seed", type=int, default=0, help="Random seed of the examples.")
@click.option("--typed", type=click.IntRange(min=0), default=100, help="Number of lines to type key by key.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=lambda: platformdirs.user_state_path("spd-lsp", appauthor=False) / "eval-quality",
    show_default="the user's folder for results",
    help="Folder for examples.jsonl, which holds all completions and parts of the code.",
)
def quality(repos: tuple[Path, ...], out: Path, **options: Any) -> None:
    """Compare decoders on held-out lines of repositories.

    Each example is a cursor position in a file of REPO. Its n-grams are counted from the other files.
    """
    from spd_lsp.evaluation.quality.arms import parse_arms
    from spd_lsp.evaluation.quality.examples import PRIMARY, read_packages, sample_examples
    from spd_lsp.evaluation.quality.report import Results, quality_report
    from spd_lsp.evaluation.quality.run import measure, open_runner, refuse_leaks

    # 1. Check the input before anything slow.
    arms = parse_arms(_split(options["arms"]), _split(options["priors"]))
    packages = read_packages(repos)
    examples = sample_examples(packages, options["seed"], options["files"], options["language"])
    if options["primary"]:
        examples = [example for example in examples if example.stratum in PRIMARY]
    examples = examples[: options["examples"]]
    trained_on = refuse_leaks(packages, options["model"])

    # 2. Measure, writing each record at once.
    runner = open_runner(
        Settings(**{name: options[name] for name in ("model", "device", "drafts", "max_tokens")}), print_status
    )
    out.mkdir(mode=0o700, parents=True, exist_ok=True)  # records contain code
    records = []
    with progress() as report, (out / "examples.jsonl").open("w", encoding="utf-8") as file:
        for number, record in enumerate(measure(runner, packages, examples, arms, typed=options["typed"]), 1):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            records.append(record)
            report("examples", number, len(examples))

    # 3. Report.
    facts = {"model": options["model"], "packages": ", ".join(package.name for package in packages)}
    facts |= {"seed": options["seed"], "k": options["drafts"], "max_tokens": options["max_tokens"]}
    facts |= {"version": __version__, "trained on": trained_on}
    click.echo(quality_report(Results(records, arms, options["drafts"], _split(options["against"])), facts))
    print_status(f"wrote {out / 'examples.jsonl'}")


@evaluate.command()
@click.argument("results", metavar="RESULTS", type=click.Path(path_type=Path, exists=True, file_okay=False))
@_arms(default="superposed@repository+file,superposed@none", help="Arms whose candidates are used.")
def confidence(results: Path, arms: str) -> None:
    """Calibrate the probabilities of completions.

    RESULTS is the folder that `eval quality` wrote. The command prints weights for completion/ranking.py,
    cross-validated by package.
    """
    from spd_lsp.evaluation.calibration import describe_fit, read_candidates
    from spd_lsp.evaluation.quality.run import read_records

    records = read_records(results)
    for label in _split(arms):
        click.echo(describe_fit(label, read_candidates(records, label)))


@evaluate.command(epilog="\b\nExample: spd-lsp eval edits ~/code/*/")
@_repositories
@click.option("--commits", type=click.IntRange(min=1), default=60, help="Number of newest commits per repository.")
def edits(repos: tuple[Path, ...], commits: int) -> None:
    """Measure next edits on git history.

    The command replays the commits of each REPO change by change. It compares each proposal with what the author
    changed next.
    """
    from spd_lsp.evaluation.edits import describe_edits

    click.echo("\n".join(describe_edits(repos, commits)))


@evaluate.command("llama-server", epilog="\b\nExample: spd-lsp eval llama-server ~/code/*/ --model qwen.gguf")
@_repositories
@click.option("--model", default="starter", metavar="M", help="GGUF file that both servers open.")
@click.option("--places", type=click.IntRange(2), default=60, help="Maximum number of places.")
@click.option("--timed", type=click.IntRange(2), default=15, help="Places with all timings.")
def llama_server(repos: tuple[Path, ...], model: str, places: int, timed: int) -> None:
    """Compare with llama.cpp's own server.

    Both complete lines of the Python files of each REPO with the same model, from the same text, on one
    thread. The server is `llama-server` if it is on the path, or else the one in xllamacpp.
    """
    from spd_lsp.evaluation.llama_server import compare

    with progress() as report:
        click.echo(compare(repos, model, places, timed, report))


@evaluate.command(epilog="\b\nExample: spd-lsp eval infilling HumanEval-SingleLineInfilling.jsonl.gz --run-code")
@click.argument("benchmark", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@model_options
@_drafts
@_max_tokens(default=64)
@_arms(default="best-first-alone,uncopied,greedy,beam", help="Decoders to compare, as for `eval quality`.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of tasks, chosen at random.")
@click.option("--run-code", is_flag=True, help="Run programs that the model wrote on this machine. Required.")
def infilling(benchmark: Path, arms: str, limit: int | None, run_code: bool, **options: Any) -> None:
    """Fill gaps in programs and run their tests.

    FILE is the single-line file of HumanEval-Infilling. The completed programs run with your
    permissions, within limits of time and memory. On Linux on x86-64 they cannot use the network, reach other
    processes or write files.
    """
    from spd_lsp.evaluation.infilling.run import WHOLE_PROGRAM, fill_gap, infilling_report, read_tasks
    from spd_lsp.evaluation.infilling.sandbox import is_confined
    from spd_lsp.evaluation.quality.arms import parse_arms
    from spd_lsp.evaluation.quality.run import open_runner

    if not run_code:
        raise UserError("this runs programs that a model wrote, on this machine; if you want that, add --run-code")
    if not is_confined():
        print_status("only limits hold here: what the model writes can reach files, processes and the network")
    tasks = read_tasks(benchmark)
    drawn = random.Random(0).sample(range(len(tasks)), len(tasks))[
        :limit
    ]  # a larger limit includes the tasks of a smaller one
    tasks = [tasks[number] for number in sorted(drawn)]
    asked = parse_arms(_split(arms), ["none"])
    runner = open_runner(Settings(**options), print_status, context_tokens=WHOLE_PROGRAM)
    records = []
    with progress() as report:
        for number, task in enumerate(tasks, 1):
            records.append(fill_gap(runner, task, asked))
            report("tasks", number, len(tasks))
    click.echo(infilling_report(records, asked, options["drafts"]))


@evaluate.command(epilog="\b\nExample: spd-lsp eval paper ~/code/*/ --part coverage")
@_repositories
@model_options
@_drafts
@click.option("--examples", default=40, help="Maximum number of held-out passages per repository.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="PART",
    help="Run only this part: perplexity, facts, orders, resets, coverage or linearity. Repeatable.",
)
def paper(repos: tuple[Path, ...], model: str, device: str, parts: tuple[str, ...], **numbers: int) -> None:
    """Repeat the experiments of the paper on Superposed Decoding.

    One file in six supplies the passages, the others supply n-grams. The model judges its own drafts.
    """
    from spd_lsp.completion.tokenizer import ModelTokenizer
    from spd_lsp.evaluation.paper import PARTS, paper_tables, read_passages
    from spd_lsp.models.hub import locate
    from spd_lsp.models.load import load

    if unknown := [part for part in parts if part not in PARTS]:
        raise UserError(f"--part takes {', '.join(PARTS)}, not {unknown[0]!r}")
    folder = locate(model, print_status)
    passages = read_passages(repos, ModelTokenizer(folder), numbers["examples"])
    engine = load(folder, device, print_status)
    files = len({passage.group for passage in passages})
    click.echo(f"{model}, {len(passages)} passages of {files} files, k = {numbers['drafts']}")
    with progress() as report:
        for table in paper_tables(engine, passages, numbers["drafts"], parts or tuple(PARTS), report):
            click.echo(f"\n{table}")


@click.command(epilog="\b\nExamples:\n  spd-lsp bench -k 3\n  spd-lsp bench --typing app.py --keys 200")
@model_options
@click.option(
    "-k", "--drafts", default="1,3,8", show_default=True, metavar="K,K", help="Numbers of drafts to compare."
)
@click.option("--repeat", type=click.IntRange(2), default=15, show_default=True, help="Number of rounds.")
@click.option(
    "--typing",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Type FILE in real time instead, as an editor would. Repeatable.",
)
@click.option(
    "--keys", type=click.IntRange(1), default=1000, show_default=True, help="Number of keys that --typing types."
)
@click.pass_obj
def bench(
    choices: Choices, model: str, device: str, drafts: str, repeat: int, typing: tuple[Path, ...], keys: int
) -> None:
    """Measure the speed of decoders on this machine.

    The command compares the decoders of spd-lsp with greedy decoding, nucleus sampling and beam search. It prints
    medians and quartiles of all rounds. Use an idle machine.
    """
    if typing:
        from spd_lsp.evaluation.typing_speed import typing_report

        # Measurements use nothing of the configuration file but the folder of the tables.
        settings = Settings(data_dir=choices.settings.data_dir, model=model, device=device)
        click.echo(typing_report(typing, keys, settings))
        return
    from spd_lsp.evaluation.speed import run_rounds, speed_report

    ks = _split(drafts)
    if not ks or not all(k.isdecimal() and 1 <= int(k) <= _MAX_DRAFTS for k in ks):
        raise UserError(f"-k takes numbers from 1 to {_MAX_DRAFTS}, such as 1,3,8, not {drafts!r}")
    with progress() as report:
        runs = run_rounds(model, device, list(map(int, ks)), repeat, report)
    click.echo(speed_report(runs, model))


def _split(text: str) -> list[str]:
    """Example: `a, b` -> a and b"""
    return [part.strip() for part in text.split(",") if part.strip()]
