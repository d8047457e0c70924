"""Queries per second of query towers: one by one, as in a search box, and in batches, as in an evaluation.

    python benchmarks/query_speed.py MODEL [MODEL ...] --queries DATA [--rounds 5]

Models take turns on the same queries; 32 of them warm up each model. The last line has the speed of the last
model relative to the first.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

import torch

import adiabat
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.models.towers import DualEncoder

ALONE, TOGETHER = "one by one", "in batches"


def main() -> None:
    """All models in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--queries", required=True, metavar="DATA", help="examples, or a BEIR folder")
    parser.add_argument("--most", type=int, default=300, help="number of queries")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    examples = read_examples(given.queries)
    assert isinstance(examples, ExampleSet), "a language grid has no queries"
    queries = [example.query for example in examples.examples][: given.most]
    towers = {name: adiabat.load(name) for name in given.models}
    rates: dict[tuple[str, str], list[float]] = {
        (name, how): [] for name in towers for how in (ALONE, TOGETHER)
    }
    for model in towers.values():
        model.encode(queries[:32], side="query")
    for _ in range(given.rounds):
        for name, model in towers.items():
            rates[name, ALONE].append(len(queries) / seconds(model, [[query] for query in queries]))
            rates[name, TOGETHER].append(len(queries) / seconds(model, [queries]))
    for (name, how), found in rates.items():
        spread = f"{min(found):,.0f} to {max(found):,.0f} over {given.rounds} rounds"
        print(f"{name}, {how}: median {statistics.median(found):,.0f} queries/s, {spread}")
    medians = {key: statistics.median(found) for key, found in rates.items()}
    first, *_, last = (*towers, *towers) if len(towers) == 1 else towers
    ratios = ", ".join(f"{how} {medians[last, how] / medians[first, how]:.3g}" for how in (ALONE, TOGETHER))
    print(
        f"query_speed: {last} against {first}, {len(queries)} queries, "
        f"{torch.get_num_threads()} threads: {ratios}"
    )


def seconds(model: DualEncoder, asked: Sequence[list[str]]) -> float:
    """That encoding takes, call by call."""
    begun = time.perf_counter()
    for queries in asked:
        model.encode(queries, side="query")
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
