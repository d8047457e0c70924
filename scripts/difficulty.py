"""PND at each difficulty of arxiv-negatives, 1 (the most alike paper) to 21 (a random one), from one pass over all of them (mission A10).

Prints a table per model in Markdown, each PND with its 95 % bootstrap interval over queries. Beside it stands the paired comparison with
the baseline on the same store; without a baseline, with the model's own difficulty 1. Writes the curves as SVG.

Usage: python scripts/difficulty.py TEST.jsonl.gz --model MODEL STORE [--model MODEL STORE ...] [--baseline MODEL] [--queries N] [--out DIR]
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from adiabat import api
from adiabat.console import plain_warnings, watching
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.errors import DataError
from adiabat.files import write_text
from adiabat.measure.difficulty import against_hardest, changes_by_difficulty, errors_by_difficulty
from adiabat.measure.results import Change
from adiabat.report.difficulty import difficulty_rows, error_curves, improvement_curves
from adiabat.store.embeddings import Store
from adiabat.watch import Watch


def examples_of(source: str, *, most: int | None, seed: int) -> ExampleSet:
    """The examples of a made data set, or some of them drawn at random, in file order."""
    examples = read_examples(source)
    if not isinstance(examples, ExampleSet):
        raise DataError(f"{source} must hold queries with negatives, got a language grid; name test.jsonl.gz of arxiv-negatives")
    if most is None or most >= len(examples):
        return examples
    picked = np.sort(np.random.default_rng(seed).permutation(len(examples))[:most])
    return replace(examples, examples=[examples.examples[row] for row in picked])


def errors_of(model: str, store: str, examples: ExampleSet, device: str, watch: Watch) -> Bool[np.ndarray, "q d"]:
    """Errors of one model against its store."""
    return errors_by_difficulty(api.load(model, device=device), Store.open(store), examples, watch=watch)


def table(name: str, changes: Sequence[Change], *, compared: str) -> str:
    """One model's figures in Markdown."""
    heads = ("difficulty", "PND", "95 % interval", compared, "change [paired 95 %]", "verdict")
    lines = [f"**{name}**", "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in difficulty_rows(changes))])


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--model", nargs=2, action="append", required=True, metavar=("MODEL", "STORE"))
    parser.add_argument("--baseline", metavar="MODEL", help="a query tower for the same stores")
    parser.add_argument("--queries", type=int, help="ask so many only, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the pictures")
    arguments = parser.parse_args()
    curves: dict[str, list[Change]] = {}
    with plain_warnings(), watching() as watch:
        examples = examples_of(arguments.data, most=arguments.queries, seed=arguments.seed)
        for model, store in arguments.model:
            errors = errors_of(model, store, examples, arguments.device, watch)
            before = (
                errors_of(arguments.baseline, store, examples, arguments.device, watch) if arguments.baseline else against_hardest(errors)
            )
            curves[f"{model} on {store}" if model in curves else model] = changes_by_difficulty(errors, before, seed=arguments.seed)
    print(f"{examples.name}: {len(examples):,} queries\n")
    for name, changes in curves.items():
        print(table(name, changes, compared="baseline" if arguments.baseline else "at difficulty 1"), end="\n\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(error_curves(curves), arguments.out / "difficulty.svg")
    if arguments.baseline:
        write_text(improvement_curves(curves), arguments.out / "difficulty-improvement.svg")


if __name__ == "__main__":
    main()
