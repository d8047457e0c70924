"""The share that `adiabat tune` gains of what joint tuning gains: both towers trained, the corpus embedded
again.

Both towers are trained from the model on the pairs of a set (in-batch softmax at temperature 0.05, batches of
32, linear decay), the corpus is embedded again, and the nDCG@10 of the test queries with new documents is
compared with that of the model before, on its own vectors of the corpus. The lengths are tried at the middle
rate, and the other rates at the best length. The best of all is chosen on the test queries themselves, which
favours joint tuning.

    python benchmarks/joint.py OUT SET... [--rates 1e-5 2e-5 4e-5] [--steps 64 125 250] [--jobs JOB...]

OUT and SET are those of `recipes.py`. Each JOB of `adiabat tune` on a SET is evaluated on the same queries:
its share is its gain over the best joint one's, with a bootstrap interval over queries, paired. A second call
continues what was interrupted.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import Float

import adiabat
from adiabat.report.format import improvement
from adiabat.results.evaluation_result import Result
from adiabat.results.record import read_result

BATCH_SIZE, RESAMPLES = 32, 2_000
MEASURE = "nDCG@10 by cosine"
CONTACTS = ("query trained on", "relevant documents trained on", "near duplicate trained on")
"""Columns of the queries that have met the training data."""


def main() -> None:
    """Train, embed again, evaluate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-5, 2e-5, 4e-5])
    parser.add_argument("--steps", type=int, nargs="+", default=[64, 125, 250])
    parser.add_argument("--jobs", type=Path, nargs="*", default=[])
    parser.add_argument("--model", default="demo")
    given = parser.parse_args()
    for folder in ("stores", "joint"):
        (given.out / folder).mkdir(parents=True, exist_ok=True)
    for folder in given.sets:
        best = _best(folder, given)
        for job in given.jobs:
            _print_share(folder, job, best, given)


def _best(folder: Path, given: argparse.Namespace) -> Path:
    """Evaluation of the best rate and length."""
    middle = sorted(given.rates)[len(given.rates) // 2]
    gains = {(middle, steps): _gain(folder, middle, steps, given) for steps in given.steps}
    _, best_steps = max(gains, key=gains.__getitem__)
    for rate in set(given.rates) - {middle}:
        gains[rate, best_steps] = _gain(folder, rate, best_steps, given)
    return _evaluation(folder, *max(gains, key=gains.__getitem__), given)


def _gain(folder: Path, rate: float, steps: int, given: argparse.Namespace) -> float:
    """Improvement of one joint run in percent, printed."""
    evaluation = _evaluation(folder, rate, steps, given)
    change = read_result(evaluation / "result.json", Result).datasets[0].main_change()
    training = read_result(_run(folder, rate, steps, given) / "result.json", Result).training
    assert training is not None
    assert change.improvement is not None
    minutes = training.seconds / 60
    print(
        f"{folder.name}, joint at {rate:g}, {steps} steps: {improvement(change)}, {minutes:.0f} min",
        flush=True,
    )
    return change.improvement


def _run(folder: Path, rate: float, steps: int, given: argparse.Namespace) -> Path:
    job: Path = given.out / "joint" / f"{folder.name}-{rate:g}-{steps}"
    return job


def _evaluation(folder: Path, rate: float, steps: int, given: argparse.Namespace) -> Path:
    """Folder of the evaluation of one joint run, after what it needs."""
    job = _run(folder, rate, steps, given)
    evaluation = job.with_name(f"{job.name}-evaluation")
    if (evaluation / "result.json").exists():
        return evaluation
    corpus = folder / "corpus.jsonl"
    if not (job / "result.json").exists():
        adiabat.train(
            given.model,
            folder / "train.jsonl",
            job,
            corpus=corpus,
            batch_size=BATCH_SIZE,
            learning_rate=rate,
            steps=steps,
            resume=job.exists(),
        )
    store = job.with_name(f"{job.name}-store")
    if not (store / "manifest.json").exists():
        adiabat.embed(job, corpus, store)
    adiabat.evaluate(
        job,
        store,
        folder / "test.jsonl",
        baseline=given.model,
        baseline_stores=[_stored(folder, given)],
        negatives="store",
        missing="drop",
        out=evaluation,
    )
    return evaluation


def _stored(folder: Path, given: argparse.Namespace) -> Path:
    """Vectors of the model before."""
    store: Path = given.out / "stores" / folder.name
    if not store.exists():
        adiabat.embed(given.model, folder / "corpus.jsonl", store)
    return store


def _print_share(folder: Path, job: Path, best: Path, given: argparse.Namespace) -> None:
    evaluation = given.out / "joint" / f"{folder.name}-{job.name}-evaluation"
    if not (evaluation / "result.json").exists():
        adiabat.evaluate(
            job,
            _stored(folder, given),
            folder / "test.jsonl",
            baseline=given.model,
            negatives="store",
            missing="drop",
            out=evaluation,
        )
    ours, joint = _changes(evaluation), _changes(best)
    shared = sorted(ours.keys() & joint.keys())
    low, share, high = share_of(
        np.array([ours[unit] for unit in shared]), np.array([joint[unit] for unit in shared])
    )
    print(f"{folder.name}, {job.name}: {share:.0f} % [{low:.0f}, {high:.0f}] of the best joint tuning")


def _changes(evaluation: Path) -> dict[str, float]:
    """Change of the nDCG@10 of each query that has neither itself nor an answer in the training data."""
    (target,) = (evaluation / "scores" / "model").glob("*.parquet")
    before, after = (
        pq.read_table(evaluation / "scores" / side / target.name) for side in ("baseline", "model")
    )
    values_before = dict(zip(before["unit"].to_pylist(), before[MEASURE].to_pylist(), strict=True))
    return {
        row["unit"]: row[MEASURE] - values_before[row["unit"]]
        for row in after.select(["unit", MEASURE, *CONTACTS]).to_pylist()
        if not any(row[contact] for contact in CONTACTS)
    }


def share_of(gains: Float[np.ndarray, " n"], joint: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    """One mean gain over another on the same queries, in percent, between the ends of a 95 % bootstrap
    interval.
    """
    random = np.random.default_rng(0)
    drawn = random.integers(gains.size, size=(RESAMPLES, gains.size))
    shares = gains[drawn].mean(1) / joint[drawn].mean(1)
    low, high = np.percentile(shares, [2.5, 97.5])
    return 100 * float(low), 100 * float(gains.mean() / joint.mean()), 100 * float(high)


if __name__ == "__main__":
    main()
