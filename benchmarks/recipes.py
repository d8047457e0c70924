"""What the recipes of `adiabat tune` give: on queries with new documents, on queries with seen ones, and on
three retention sets.

Every set is tuned by every recipe with every seed, and the runs of one recipe are evaluated together. The
retention sets are those of the
demo: mathematics and physics papers, and TICO-19. The script prints a table with a row for each set and
recipe.

    python benchmarks/recipes.py OUT SET... [--recipes quick paper] [--seeds 5] [--search-once] [--budget-time
    10min] [--model demo]

Each SET is a folder with ``corpus.jsonl``, ``train.jsonl`` and ``test.jsonl`` (`scripts/make_recipe_data.py`
makes six); its name is that of the set. Test queries whose relevant documents answered no training query give
the verdict, so a set needs at least 50 of them. A time
limit makes runs comparable only on a machine that does nothing else. OUT keeps stores, jobs and evaluations:
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
    "| set | recipe | seeds | rate | steps kept | minutes | queries | new | seen "
    "documents | mathematics | physics | TICO-19 |"
)


def main() -> None:
    """Tune, evaluate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--recipes", nargs="+", choices=sorted(RECIPES), default=["quick"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--search-once", action="store_true", help="later seeds take the rate and the length of the first one"
    )
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
        if seed and given.search_once:
            first = _training_of(given.out / "jobs" / f"{folder.name}-{recipe}-0").settings["tune"]
            options |= {
                "learning_rate": first["learning_rate"],
                "max_epochs": first["max_epochs"],
                "budget_seconds": "1d",
            }
        adiabat.tune(given.model, store, folder / "train.jsonl", job, resume=job.exists(), **options)
    return job


def _evaluated(folder: Path, recipe: str, jobs: Sequence[Path], given: argparse.Namespace) -> Result:
    out: Path = given.out / "evaluations" / f"{folder.name}-{recipe}-{len(jobs)}"
    if not (out / "result.json").exists():
        files = adiabat.demo_files()
        corpora = {"arxiv-math": "corpus", "arxiv-physics": "corpus", "tico19": "tico19-corpus"}
        retain = [(_stored(files[corpus], corpus, given), files[name]) for name, corpus in corpora.items()]
        store = _stored(folder / "corpus.jsonl", folder.name, given)
        # The listed candidates of the demo's sets say less about a corpus than all its documents.
        options: dict[str, Any] = {
            "negatives": "store",
            "device": given.device,
            "baseline": given.model,
            "retain": retain,
            "out": out,
        }
        adiabat.evaluate(jobs[0], store, folder / "test.jsonl", runs=jobs[1:], **options)
    return read_result(out / "result.json", Result)


def _row(name: str, recipe: str, jobs: Sequence[Path], evaluation: Result) -> str:
    records = [_training_of(job) for job in jobs]
    target, *retained = evaluation.datasets
    rates = sorted({f"{record.settings['tune']['learning_rate']:.2g}" for record in records})
    kept = [(record.best_epoch or 0) * record.settings["tune"]["batches_per_epoch"] for record in records]
    seconds = [
        record.seconds + _search_seconds(job, recipe, record)
        for job, record in zip(jobs, records, strict=True)
    ]
    minutes = statistics.median(seconds) / 60
    first = next((part.queries for part in target.parts), target.queries)
    seen = [
        f"{_told(part.change)} ({part.queries:,})" for part in target.parts if part.name == "seen documents"
    ]
    cells = [
        name,
        recipe,
        str(len(jobs)),
        ", ".join(rates),
        f"{min(kept)} to {max(kept)}",
        f"{minutes:.0f}",
        f"{first:,}",
    ]
    cells += [
        _told(target.main_change()),
        *(seen or [""]),
        *(_told(dataset.main_change()) for dataset in retained),
    ]
    return f"| {' | '.join(cells)} |"


def _training_of(job: Path) -> TrainingRecord:
    record = read_result(job / "result.json", Result).training
    assert record is not None, "a job has a record of its training"
    return record


def _search_seconds(job: Path, recipe: str, record: TrainingRecord) -> float:
    """Time of the trials of a rate search, without the one that the run of `quick` went on from."""
    trials = job / "rate-search" / "trials.parquet"
    if not trials.exists():
        return 0.0
    rows = pq.read_table(trials, columns=["rate", "seconds"]).to_pylist()
    continued = record.settings["tune"]["learning_rate"] if recipe == "quick" else None
    return sum(float(row["seconds"]) for row in rows if row["rate"] != continued)


def _told(change: Change) -> str:
    return f"{improvement(change)}, {change.verdict}"


if __name__ == "__main__":
    main()
