"""What the recipes of `adiabat tune` give: on queries with new documents, on queries with seen ones, and on
retention sets.

Every set is tuned by every recipe with every seed, and the runs of one recipe are evaluated together. The
retention sets are those of the demo (mathematics and physics papers, and TICO-19), and the test queries of
SQuAD where ``squad_dev`` is one of the sets; no set is its own. In jobs that keep by ranking, half of each
chooses the result. The script prints a table with a row for each set and recipe.

    python benchmarks/recipes.py OUT SET... [--recipes quick paper] [--seeds 3] [--epochs N] [--budget-time
    10min] [--model demo]

Each SET is a folder with ``corpus.jsonl``, ``train.jsonl`` and ``test.jsonl`` (`scripts/make_recipe_data.py`
makes ten); its name is that of the set. Test queries whose relevant documents answered no training query give
the verdict, so a set needs at least 50 of them. A time
limit makes runs comparable only on a machine that does nothing else; `--epochs` makes them as long without
one. OUT keeps stores, jobs and evaluations:
a second call continues what was interrupted.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import adiabat
from adiabat.config.tuning import RECIPES
from adiabat.report.format import improvement
from adiabat.results.evaluation_result import Change, Result
from adiabat.results.record import read_result
from adiabat.results.training_record import TrainingRecord

HEADER = (
    "| set | recipe | seeds | expected | kept | steps | minutes | queries | new | seen documents "
    "| mathematics | physics | TICO-19 | SQuAD |"
)


BY_RANKING = frozenset(
    name for name, tables in RECIPES.items() if tables.get("tune", {}).get("keep") == "ranking"
)
"""Recipes whose jobs take retention sets."""

SQUAD = "squad_dev"
"""The set of `scripts/make_recipe_data.py` that is a retention set of all others."""


def main() -> None:
    """Tune, evaluate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--recipes", nargs="+", choices=sorted(RECIPES), default=["quick"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="most epochs of a job, in place of a time limit")
    parser.add_argument("--budget-time", help="time limit of each job; that of the recipe if left out")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    for folder in ("stores", "jobs", "evaluations"):
        (given.out / folder).mkdir(parents=True, exist_ok=True)
    print(HEADER, "|---" * HEADER.count(" |") + "|", sep="\n")
    for folder in given.sets:
        for recipe in given.recipes:
            jobs = [_tuned(folder, recipe, seed, given) for seed in range(given.seeds)]
            print(_row(folder.name, recipe, jobs, _evaluated(folder, recipe, jobs, given)), flush=True)


def _stored(corpus: Path, name: str, given: argparse.Namespace) -> Path:
    store: Path = given.out / "stores" / name
    if not store.exists():
        adiabat.embed(given.model, corpus, store, device=given.device)
    return store


def _tuned(folder: Path, recipe: str, seed: int, given: argparse.Namespace) -> Path:
    job: Path = given.out / "jobs" / f"{folder.name}-{recipe}-{seed}"
    if not (job / "result.json").exists():
        store = _stored(folder / "corpus.jsonl", folder.name, given)
        options: dict[str, Any] = {"recipe": recipe, "seed": seed, "device": given.device}
        if given.budget_time is not None:
            options["budget_seconds"] = given.budget_time
        if given.epochs is not None:
            options |= {"max_epochs": given.epochs, "budget_seconds": "1d"}
        if recipe in BY_RANKING:
            options["retain"] = list(_retained(folder.name, given).values())
        adiabat.tune(given.model, store, folder / "train.jsonl", job, resume=job.exists(), **options)
    return job


def _retained(name: str, given: argparse.Namespace) -> dict[str, tuple[Path, Path]]:
    """Store and data of each retention set, without the target itself."""
    files = adiabat.demo_files()
    corpora = {"arxiv-math": "corpus", "arxiv-physics": "corpus", "tico19": "tico19-corpus"}
    sets = {each: (_stored(files[corpus], corpus, given), files[each]) for each, corpus in corpora.items()}
    for folder in given.sets:
        if folder.name == SQUAD:
            sets[SQUAD] = (_stored(folder / "corpus.jsonl", SQUAD, given), folder / "test.jsonl")
    sets.pop(name, None)
    return sets


def _evaluated(folder: Path, recipe: str, jobs: Sequence[Path], given: argparse.Namespace) -> Result:
    out: Path = given.out / "evaluations" / f"{folder.name}-{recipe}-{len(jobs)}"
    if not (out / "result.json").exists():
        store = _stored(folder / "corpus.jsonl", folder.name, given)
        # The listed candidates of the demo's sets say less about a corpus than all its documents.
        options: dict[str, Any] = {
            "negatives": "store",
            "device": given.device,
            "baseline": given.model,
            "retain": list(_retained(folder.name, given).values()),
            "out": out,
        }
        adiabat.evaluate(jobs[0], store, folder / "test.jsonl", runs=jobs[1:], **options)
    return read_result(out / "result.json", Result)


def _row(name: str, recipe: str, jobs: Sequence[Path], evaluation: Result) -> str:
    records = [_training_of(job) for job in jobs]
    target, *retained = evaluation.datasets
    kept = list(dict.fromkeys(_kept(record) for record in records))
    steps = [record.steps for record in records]
    expected = records[0].expected
    seconds = [record.seconds + _search_seconds(job) for job, record in zip(jobs, records, strict=True)]
    minutes = statistics.median(seconds) / 60
    first = next((part.queries for part in target.parts), target.queries)
    seen = [
        f"{_told(part.change)} ({part.queries:,})" for part in target.parts if part.name == "seen documents"
    ]
    cells = [
        name,
        recipe,
        str(len(jobs)),
        "" if expected is None else f"{expected[0]:+.1f} %",
        "; ".join(kept),
        f"{min(steps)} to {max(steps)}",
        f"{minutes:.0f}",
        f"{first:,}",
    ]
    cells += [_told(target.main_change()), *(seen or [""])]
    told = {dataset.name.partition("/")[0]: _told(dataset.main_change()) for dataset in retained}
    cells += [told.get(each, "") for each in ("arxiv-math", "arxiv-physics", "tico19", SQUAD)]
    return f"| {' | '.join(cells)} |"


def _kept(record: TrainingRecord) -> str:
    """What a job kept, in words."""
    if record.chosen is not None:
        return record.chosen.name
    if record.candidates or not record.best_epoch:
        return "the start"
    return f"epoch {record.best_epoch}"


def _training_of(job: Path) -> TrainingRecord:
    record = read_result(job / "result.json", Result).training
    assert record is not None, "a job has a record of its training"
    return record


def _search_seconds(job: Path) -> float:
    """Time of the trials of a rate search."""
    trials = job / "rate-search" / "trials.parquet"
    if not trials.exists():
        return 0.0
    return float(sum(pq.read_table(trials, columns=["seconds"])["seconds"].to_pylist()))


def _told(change: Change) -> str:
    return f"{improvement(change)}, {change.verdict}"


if __name__ == "__main__":
    main()
