"""Train the same small encoder with several losses, towers and seeds, and compare what each ranks first on
held-out pairs.

One row of JSON per run: run it again and what is there is not run again. ``--table`` prints means over seeds
with paired bootstrap intervals over held-out queries against the first loss of the grid. LOG.md has what came
of it.

Usage: python scripts/compare_losses.py PAIRS.jsonl.gz ROWS.jsonl [--grid losses|duplicates] [--query q
--positive p] [--table]
"""

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.dual_encoder.contrastive_objective import ranks_of_answers
from adiabat.dual_encoder.pair_data import read_pairs
from adiabat.models.towers import DualEncoder

LOSSES: dict[str, dict[str, Any]] = {
    "standard": {},
    "SamToNe, query": {"loss": {"kind": "samtone", "same_tower": "query"}},
    "SamToNe, both": {"loss": {"kind": "samtone", "same_tower": "both"}},
    "PAIR": {"loss": "pair"},
}
TOWERS = {"SDE": "shared", "ADE": "asymmetric", "ADE-SPL": "shared_projection"}
DOCUMENT = {"loss": {"kind": "samtone", "same_tower": "document"}}
DUPLICATES: dict[str, dict[str, Any]] = {
    "standard, masked": {},
    "standard, not masked": {"loss": {"mask_duplicates": False}},
    "SamToNe, document, masked": DOCUMENT,
    "SamToNe, document, not masked": {"loss": {**DOCUMENT["loss"], "mask_duplicates": False}},
    "SamToNe, both, masked": LOSSES["SamToNe, both"],
    "SamToNe, both, not masked": {"loss": {**LOSSES["SamToNe, both"]["loss"], "mask_duplicates": False}},
}
SEEDS = (0, 1, 2)
TRAIN = {"steps": 100, "batch_size": 64, "learning_rate": 1e-4, "validate_every": 100, "dropout": False}
BLOCKS, MAX_TOKENS = 2, 64
Measure = Callable[[Int[np.ndarray, "s q"]], Float[np.ndarray, "s q"]]


@dataclass(frozen=True)
class Run:
    """One cell of the grid."""

    towers: str
    loss: str
    seed: int
    settings: dict[str, Any]

    @property
    def key(self) -> str:
        """What names its row."""
        return f"{self.towers} / {self.loss} / {self.seed}"


def grid(name: str) -> Iterator[Run]:
    """All runs, seed by seed, so that a grid cut short has every cell."""
    kinds, losses = (TOWERS, LOSSES) if name == "losses" else ({"SDE": "shared"}, DUPLICATES)
    for seed, (towers, kind), (loss, train) in itertools.product(SEEDS, kinds.items(), losses.items()):
        yield Run(
            towers, loss, seed, {"towers": {"kind": kind}, "train": {**TRAIN, **train}, "run": {"seed": seed}}
        )


def settings_of(run: Run, arguments: argparse.Namespace, out: Path) -> TrainSettings:
    """Everything that decides one run."""
    columns = {"query": arguments.query, "positive": arguments.positive}
    job = {"model": "demo", "data": arguments.data, "out": str(out)}
    encoder = {"blocks": BLOCKS, "max_tokens": MAX_TOKENS}
    return checked(
        TrainSettings, {"job": job, "encoder": encoder, "data": {"columns": columns}, **run.settings}
    )


def ranks_of(model: DualEncoder, settings: TrainSettings) -> Int[np.ndarray, " q"]:
    """Rank of the first answer of each held-out query among all held-out documents."""
    assert settings.job.data is not None
    _, held_out = read_pairs(settings.job.data, settings.data)
    queries, candidates = held_out.query_rows, np.unique(held_out.positive)
    query = model.encode(held_out.texts.queries.take(queries), side="query", precision="fp32")
    documents = model.encode(held_out.texts.documents.take(candidates), side="document", precision="fp32")
    answers = [np.flatnonzero(np.isin(candidates, held_out.answers[row])) for row in queries]
    return ranks_of_answers(torch.from_numpy(query), torch.from_numpy(documents), answers, distance=False)


def take(run: Run, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, measure, and give the row."""
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(run, arguments, Path(folder) / "job")
        result = adiabat.train(settings=settings)
        assert result is not None
        assert result.training is not None
        ranks = ranks_of(adiabat.load(Path(folder) / "job"), settings)
    return {
        "key": run.key,
        "towers": run.towers,
        "loss": run.loss,
        "seed": run.seed,
        "seconds": result.seconds,
        "ranks": ranks.tolist(),
    }


def table(rows: list[dict[str, Any]], draws: int = 10_000) -> Iterator[str]:
    """P@1 and MRR in percent, and the difference to the first loss of the same towers with its 95 % interval
    over queries.
    """
    random = np.random.default_rng(0)
    yield "| towers | loss | seeds | P@1 | difference | MRR | difference |"
    yield "|---|---|---|---|---|---|---|"
    for towers, group in itertools.groupby(
        sorted(rows, key=lambda row: list(TOWERS).index(row["towers"])), key=lambda row: row["towers"]
    ):
        by_loss: dict[str, list[list[int]]] = {}
        for row in group:
            by_loss.setdefault(row["loss"], []).append(row["ranks"])
        first = next(iter(by_loss))
        for loss, ranks in by_loss.items():
            cells = [
                _cell(np.array(ranks), np.array(by_loss[first]), measure, random, draws)
                for measure in (_first, _reciprocal)
            ]
            yield f"| {towers} | {loss} | {len(ranks)} | {' | '.join(cells)} |"


def _first(ranks: Int[np.ndarray, "s q"]) -> Float[np.ndarray, "s q"]:
    return np.where(ranks == 1, 100.0, 0.0)


def _reciprocal(ranks: Int[np.ndarray, "s q"]) -> Float[np.ndarray, "s q"]:
    return 100.0 / ranks


def _cell(
    ranks: Int[np.ndarray, "s q"],
    base: Int[np.ndarray, "s q"],
    measure: Measure,
    random: np.random.Generator,
    draws: int,
) -> str:
    """Mean and standard deviation over seeds, and the paired difference to the base."""
    own = measure(ranks)
    spread = own.mean(axis=1).std(ddof=1) if len(own) > 1 else 0.0
    stated = f"{own.mean():.1f} ± {spread:.1f}"
    if ranks is base or np.array_equal(ranks, base):
        return f"{stated} |"
    apart = own.mean(axis=0) - measure(base).mean(axis=0)
    means = [apart[random.integers(0, len(apart), len(apart))].mean() for _ in range(draws)]
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{stated} | {apart.mean():+.2f} [{low:+.2f}, {high:+.2f}]"


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("rows", type=Path)
    parser.add_argument("--grid", choices=("losses", "duplicates"), default="losses")
    parser.add_argument("--query", default="q")
    parser.add_argument("--positive", default="p")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    done = (
        [json.loads(line) for line in arguments.rows.read_text().splitlines()]
        if arguments.rows.exists()
        else []
    )
    if arguments.table:
        print("\n".join(table(done)))
        return
    keys = {row["key"] for row in done}
    for run in grid(arguments.grid):
        if run.key in keys:
            continue
        row = take(run, arguments)
        with arguments.rows.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        ranks = np.array(row["ranks"])
        print(
            f"{run.key}: P@1 {(ranks == 1).mean():.4f}, MRR {(1 / ranks).mean():.4f}, {row['seconds']:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
