"""What the losses of `adiabat tune` give at equal steps: the softmaxes, weights of hardness, negatives mined
below a share of the positive's score, and a cross-encoder's scores.

    python benchmarks/losses.py OUT SET... [--reranker MODEL] [--losses NAME ...] [--seeds 2] [--steps 200]
        [--rate 1e-5] [--depth 10] [--max-tokens N] [--model demo]

Each SET is a folder with ``corpus.jsonl``, ``train.jsonl`` and ``test.jsonl``, as those of
`benchmarks/recipes.py`. Every loss takes the last weights of as many steps, without rehearsal and guard. The
script prints a row for each set and loss: the change of nDCG@10 on test queries with new documents, and on
those whose documents were trained on, over the runs of all seeds. Without a reranker, losses that learn from
one are left out. OUT keeps stores, scored files, jobs and evaluations: a second call continues what was
interrupted.
"""

import argparse
from pathlib import Path
from typing import Any

import adiabat
from adiabat.report.format import improvement
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result

WHOLE: dict[str, Any] = {"kind": "store_softmax"}
BATCH: dict[str, Any] = {"kind": "in_batch_softmax"}
TEACHER: dict[str, Any] = {"kind": "listwise"}
SEVERAL = 7
"""Negatives of a query in a step, for losses that draw some."""

LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "store softmax": ("train", WHOLE),
    "store softmax, hardness 3": ("train", {**WHOLE, "hardness": 3.0}),
    "store softmax, hardness 9": ("train", {**WHOLE, "hardness": 9.0}),
    "in-batch, mined": ("mined", BATCH),
    "in-batch, mined, hardness 9": ("mined", {**BATCH, "hardness": 9.0}),
    "in-batch, mined below 95 % of the positive": ("below", BATCH),
    "listwise, kl": ("scored", TEACHER),
    "listwise, margin_mse": ("scored", {**TEACHER, "objective": "margin_mse"}),
}
"""Name of a loss to the data that it takes, and its settings."""


def main() -> None:
    """Prepare data, tune, evaluate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--reranker")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1e-5)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--model", default="demo")
    given = parser.parse_args()
    for folder in ("stores", "data", "jobs", "evaluations"):
        (given.out / folder).mkdir(parents=True, exist_ok=True)
    print("| set | loss | data | new documents | seen documents |", "|---|---|---|---|---|", sep="\n")
    for folder in given.sets:
        for name in given.losses:
            data, loss = LOSSES[name]
            if data == "scored" and given.reranker is None:
                continue
            jobs = [_tuned(folder, name, data, loss, seed, given) for seed in range(given.seeds)]
            (target,) = _evaluated(folder, name, jobs, given).datasets
            # Queries with new documents decide; a set without others has no parts.
            changes = [(part.queries, part.change) for part in target.parts]
            cells = [
                f"{improvement(change)}, {change.verdict} ({queries:,})"
                for queries, change in changes or [(target.queries, target.main_change())]
            ]
            print(f"| {' | '.join([folder.name, name, data, *cells])} |", flush=True)


def _stored(folder: Path, given: argparse.Namespace) -> Path:
    store: Path = given.out / "stores" / folder.name
    if not store.exists():
        adiabat.embed(given.model, folder / "corpus.jsonl", store)
    return store


def _data(folder: Path, kind: str, given: argparse.Namespace) -> Path:
    """Training data: as they are, with mined negatives, or with a teacher's scores."""
    if kind == "train":
        return folder / "train.jsonl"
    out: Path = given.out / "data" / f"{folder.name}-{kind}.jsonl"
    if out.exists():
        return out
    store = _stored(folder, given)
    if kind == "scored":
        limit: dict[str, Any] = {} if given.max_tokens is None else {"max_tokens": given.max_tokens}
        adiabat.label(
            folder / "train.jsonl",
            store,
            out,
            reranker=given.reranker,
            model=given.model,
            depth=given.depth,
            **limit,
        )
        return out
    options: dict[str, Any] = {"relative_margin": 0.05} if kind == "below" else {}
    adiabat.mine(
        folder / "train.jsonl",
        store,
        out,
        model=given.model,
        source="fused",
        choice="ranked",
        negatives_per_query=SEVERAL,
        **options,
    )
    return out


def _tuned(
    folder: Path, name: str, data: str, loss: dict[str, Any], seed: int, given: argparse.Namespace
) -> Path:
    job: Path = given.out / "jobs" / f"{folder.name}-{name.replace(' ', '-').replace(',', '')}-{seed}"
    if not (job / "result.json").exists():
        drawn = {} if data == "train" else {"negatives": {"kind": "examples", "per_query": SEVERAL}}
        tune = {
            "recipe": "paper",
            "loss": loss,
            "learning_rate": given.rate,
            "batches_per_epoch": given.steps,
            "max_epochs": 1,
            "keep": "last",
            **drawn,
        }
        settings = {"tune": tune, "data": {"max_validation": 50}, "run": {"seed": seed}}
        source = _data(folder, data, given)
        adiabat.tune(given.model, _stored(folder, given), source, job, resume=job.exists(), settings=settings)
    return job


def _evaluated(folder: Path, name: str, jobs: list[Path], given: argparse.Namespace) -> Result:
    out: Path = given.out / "evaluations" / f"{folder.name}-{name.replace(' ', '-').replace(',', '')}"
    if not (out / "result.json").exists():
        adiabat.evaluate(
            jobs[0],
            _stored(folder, given),
            folder / "test.jsonl",
            runs=jobs[1:],
            baseline=given.model,
            negatives="store",
            out=out,
        )
    return read_result(out / "result.json", Result)


if __name__ == "__main__":
    main()
